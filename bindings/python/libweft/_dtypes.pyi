"""Element types."""

from typing import Any

class DType:
    name: str
    number: int
    kind: str
    bits: int
    computable: bool
    is_float: bool
    is_complex: bool
    is_integer: bool
    @property
    def itemsize(self) -> int: ...
    @property
    def letter(self) -> str | None: ...
    @property
    def numpy(self) -> Any: ...

def dtype(word: Any) -> DType: ...
def promoted(a: DType, b: DType) -> DType: ...
