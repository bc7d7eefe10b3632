"""Reading and batching."""

from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from typing import Any, TypeVar

from ._device import Device
from ._tensor import Tensor

_T = TypeVar("_T")

def read_idx(path: str | PathLike[str], device: Device | None = ...) -> Tensor: ...

class Batches:
    length: int
    size: int
    def __init__(
        self, *tensors: Any, size: int, shuffle: bool = ..., seed: int | None = ..., drop_last: bool = ...
    ) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[tuple[Tensor, ...]]: ...

def prefetch(iterable: Iterable[_T], count: int = ..., convert: Callable[[_T], Any] | None = ...) -> Iterator[Any]: ...
