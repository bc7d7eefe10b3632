"""A line that says how far a loop is."""

from collections.abc import Iterable, Iterator
from typing import Generic, SupportsFloat, TextIO, TypeVar

_T = TypeVar("_T")

class bar(Generic[_T]):
    count: int
    total: int | None
    def __init__(
        self,
        iterable: Iterable[_T],
        title: str = ...,
        total: int | None = ...,
        file: TextIO | None = ...,
        every: float = ...,
        shown: bool | None = ...,
    ) -> None: ...
    def set(self, **values: SupportsFloat) -> None: ...
    def line(self) -> str: ...
    def __iter__(self) -> Iterator[_T]: ...
