"""Checkpoints."""

from collections.abc import Callable, Generator, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, overload

from ._device import Device
from ._dtypes import DType
from ._tensor import Tensor

_Path = str | PathLike[str]

class Saving:
    path: str
    @property
    def done(self) -> bool: ...
    def wait(self, timeout: float | None = ...) -> None: ...
    def __await__(self) -> Generator[Any, None, None]: ...

@overload
def save(
    path: _Path,
    tree: Any,
    *,
    metadata: Mapping[str, object] | None = ...,
    step: int = ...,
    durable: bool = ...,
    wait: Literal[True] = ...,
    progress: Callable[[int, int], bool | None] | None = ...,
    keep_last: int = ...,
    keep_every: int = ...,
    pointer: str | None = ...,
    compress: Literal["zstd"] | None = ...,
    base: str | None = ...,
) -> None: ...
@overload
def save(
    path: _Path,
    tree: Any,
    *,
    metadata: Mapping[str, object] | None = ...,
    step: int = ...,
    durable: bool = ...,
    wait: Literal[False],
    progress: Callable[[int, int], bool | None] | None = ...,
    keep_last: int = ...,
    keep_every: int = ...,
    pointer: str | None = ...,
    compress: Literal["zstd"] | None = ...,
    base: str | None = ...,
) -> Saving: ...
def load(path: _Path, *, device: Device | str | None = ...) -> Any: ...

class Reader:
    def __init__(
        self,
        path: _Path,
        *,
        mode: Literal["copy", "map", "auto"] = ...,
        verify: Literal["use", "all", "off"] = ...,
        memory_budget: int = ...,
    ) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, path: str) -> Tensor: ...
    def entries(self) -> list[tuple[str, DType, tuple[int, ...], int]]: ...
    @property
    def info(self) -> dict[str, Any]: ...
    @property
    def metadata(self) -> dict[str, Any]: ...
    def box(self, path: str, starts: Sequence[int], sizes: Sequence[int]) -> Tensor: ...
    def into(self, tree: Any, *, convert: bool = ..., partial: bool = ...) -> dict[str, list[str]]: ...
