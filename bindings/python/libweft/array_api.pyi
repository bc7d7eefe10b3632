"""The array API's names over tensors."""

from typing import Any

def __getattr__(name: str) -> Any: ...
