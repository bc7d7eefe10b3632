"""Loops, branches and operations of one's own."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ._ops import _Tensor
from ._tensor import Tensor

_C = TypeVar("_C")
_R = TypeVar("_R")

def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: _C,
    xs: Any = ...,
    length: int | None = ...,
    reverse: bool = ...,
    unroll: int = ...,
    keep_every: int = ...,
) -> tuple[_C, Any]: ...
def while_loop(condition: Callable[[Any], Tensor], body: Callable[[Any], Any], init: _C) -> _C: ...
def fori_loop(
    lower: int | Tensor,
    upper: int | Tensor,
    body: Callable[[Tensor, Any], Any],
    init: _C,
    max_count: int | None = ...,
    keep_every: int = ...,
) -> _C: ...
def cond(condition: Tensor | bool, if_true: Callable[..., _R], if_false: Callable[..., _R], *operands: Any) -> _R: ...
def switch(index: Tensor | int, branches: Sequence[Callable[..., _R]], *operands: Any) -> _R: ...

class CustomOp:
    name: str
    signature: str
    def __call__(self, *tensors: _Tensor) -> Any: ...

def custom_op(
    name: str,
    signature: str | None = ...,
    *,
    function: Any = ...,
    library: str | None = ...,
    symbol: str | None = ...,
    operands: Sequence[str] | None = ...,
    results: Sequence[str] | None = ...,
    gradient: Callable[..., Any] | None = ...,
    buffers: bool | None = ...,
    threads: bool = ...,
) -> Any: ...
