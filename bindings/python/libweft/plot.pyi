"""Pictures of losses."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

class Picture:
    text: str
    def save(self, path: str | PathLike[str]) -> None: ...

def lines(
    series: Sequence[float] | Mapping[str, Any],
    title: str = ...,
    x: str = ...,
    y: str = ...,
    log: bool = ...,
    width: int = ...,
    height: int = ...,
) -> Picture: ...
