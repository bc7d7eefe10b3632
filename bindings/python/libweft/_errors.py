"""Exceptions: each derives from Error, which has the code, and from the built-in that a Python programmer expects."""

from ._abi import CODES


class Error(Exception):
    """An error of Weft. `code` is its name, `operation` and `position` (file:line) say where, each None where it is not
    known."""

    code = "UNKNOWN"
    operation = None
    position = None

    def __init__(self, message, operation=None, position=None, code=None):
        super().__init__(message)
        self.message, self.operation, self.position = message, operation, position
        if code is not None:
            self.code = code

    def __str__(self):
        return self.message

    def __reduce__(self):
        return type(self), (self.message, self.operation, self.position, self.code)


class InvalidArgument(Error, ValueError):
    """The call is wrong whatever the state: shapes, element types, attributes."""

    code = "INVALID_ARGUMENT"


class InvalidType(Error, TypeError):
    """An argument is of a type that cannot be used there."""

    code = "INVALID_ARGUMENT"


class OutOfRange(Error, IndexError):
    """An index past the end."""

    code = "OUT_OF_RANGE"


class Unimplemented(Error, NotImplementedError):
    """This version or device cannot do it."""

    code = "UNIMPLEMENTED"


class OutOfMemory(Error, MemoryError):
    """There is no memory; every tensor stays readable."""

    code = "RESOURCE_EXHAUSTED"


class DeadlineExceeded(Error, TimeoutError):
    """The time passed first."""

    code = "DEADLINE_EXCEEDED"


class FailedPrecondition(Error, RuntimeError):
    """A right call at the wrong time: a value read after its step, a context used after fork."""

    code = "FAILED_PRECONDITION"


class Cancelled(Error, RuntimeError):
    """Somebody cancelled the wait or the launch."""

    code = "CANCELLED"


class NotFound(Error, LookupError):
    """There is no such key, device or operation."""

    code = "NOT_FOUND"


class Internal(Error, RuntimeError):
    """A fault of Weft, or a failure without a kind of its own."""

    code = "INTERNAL"


class FileError(Error, OSError):
    """A file cannot be read or written: a full disk, a broken file."""

    code = "DATA_LOSS"


class FileMissing(FileError, FileNotFoundError):
    """There is no such file or folder."""

    code = "NOT_FOUND"


class FileRefused(FileError, PermissionError):
    """The file system refuses."""

    code = "PERMISSION_DENIED"


class FileThere(FileError, FileExistsError):
    """The file exists."""

    code = "ALREADY_EXISTS"


_CLASSES = {
    "INVALID_ARGUMENT": InvalidArgument,
    "OUT_OF_RANGE": OutOfRange,
    "UNIMPLEMENTED": Unimplemented,
    "RESOURCE_EXHAUSTED": OutOfMemory,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "FAILED_PRECONDITION": FailedPrecondition,
    "CANCELLED": Cancelled,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": InvalidArgument,
    "PERMISSION_DENIED": FileRefused,
    "DATA_LOSS": FileError,
}
_FILES = {
    "NOT_FOUND": FileMissing,
    "PERMISSION_DENIED": FileRefused,
    "ALREADY_EXISTS": FileThere,
    "RESOURCE_EXHAUSTED": FileError,
    "DATA_LOSS": FileError,
    "INTERNAL": FileError,
    "UNIMPLEMENTED": Unimplemented,
}


def exception(number, message, operation=None, position=None, file=False):
    """The exception for an error code; `file` says that the call was about a file."""
    code = CODES.get(number, "UNKNOWN")
    kind = (_FILES if file else _CLASSES).get(code) or _CLASSES.get(code, Internal)
    return kind(message, operation, position, code)
