"""Exceptions of the package."""

class Error(Exception):
    code: str
    message: str
    operation: str | None
    position: str | None
