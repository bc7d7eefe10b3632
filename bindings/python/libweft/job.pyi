"""Jobs of several processes."""

from collections.abc import Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal

from ._tensor import Tensor

_Reduction = Literal["sum", "product", "min", "max", "and", "or"]

def find() -> dict[str, Any]: ...

class Job:
    def __init__(
        self,
        rank: int | None = ...,
        size: int | None = ...,
        local_rank: int | None = ...,
        local_size: int | None = ...,
        identity: str | None = ...,
        token: str | None = ...,
        coordinator: str | None = ...,
        timeout: float = ...,
    ) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def collectives(self) -> int: ...
    def all_reduce(self, x: Tensor, reduction: _Reduction = ...) -> Tensor: ...
    def all_gather(self, x: Tensor) -> Tensor: ...
    def reduce_scatter(self, x: Tensor, reduction: _Reduction = ...) -> Tensor: ...
    def all_to_all(self, x: Tensor) -> Tensor: ...
    def broadcast(self, x: Tensor, root: int = ...) -> Tensor: ...
    def barrier(self) -> None: ...
    def reduce(
        self,
        tensors: Sequence[Tensor],
        reduction: Literal["mean", "sum"] = ...,
        first_bucket_bytes: int = ...,
        bucket_bytes: int = ...,
    ) -> list[Tensor]: ...
    def record(
        self,
        collective: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"],
        x: Tensor,
        reduction: Literal["mean"] | _Reduction = ...,
        root: int = ...,
    ) -> Tensor: ...
    def preempt(self) -> None: ...
    def preempted(self) -> bool: ...
    def save(
        self,
        path: str | PathLike[str],
        tree: Any,
        *,
        metadata: Mapping[str, object] | None = ...,
        step: int = ...,
        durable: bool = ...,
        master_only: bool = ...,
    ) -> None: ...
    def leave(self) -> None: ...
    def __enter__(self) -> Job: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
