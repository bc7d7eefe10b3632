"""Exceptions: each derives from Error, which has the code, and from the built-in that a Python programmer expects."""

import sys

from ._abi import CODES

PACKAGE = __file__.rpartition("/")[0] + "/"


def _caller():
    """file:line of the program that is in a call of the package, as the traceback shows it."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return None if frame is None else "%s:%d" % (frame.f_code.co_filename, frame.f_lineno)


class Error(Exception):
    """An error of Weft. `code` is its name, `operation` and `position` (file:line) say where, each None where it is not
    known."""

    code = "UNKNOWN"
    operation = None
    position = None

    def __init__(self, message, operation=None, position=None, code=None):
        super().__init__(message)
        self.message, self.operation, self.position = message, operation, position or _caller()
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


def _parameters(function):
    code = function.__code__
    return code.co_varnames[code.co_varnames[:1] in (("self",), ("cls",)) : code.co_argcount + code.co_kwonlyargcount]


def unknown_keyword(name, function, error):
    """The error of a call with a keyword that its function does not have, which names the nearest; None if the TypeError says
    something else."""
    _, found, rest = str(error).partition("got an unexpected keyword argument '")
    if not found:
        return None
    import difflib

    word, takes = rest.partition("'")[0], _parameters(function)
    nearest = difflib.get_close_matches(word, takes, 1)
    text = "%s() got an unexpected keyword argument %r%s; it takes %s" % (
        name,
        word,
        "; did you mean %r?" % nearest[0] if nearest else "",
        ", ".join(takes) or "none",
    )
    return InvalidType(text.replace("?; it", "? It"), name)


# Names of one thing, ours and StableHLO's: a function that has the one takes the other, as weft_op_apply does.
_ALIASES = {"axis": "dimension", "dimension": "axis", "dims": "dimensions", "dimensions": "dims"}


def _aliased(function, keywords):
    """The keywords by the function's own names, where another name of one of them was given; else None."""
    takes = _parameters(function)
    own = {_ALIASES[k] if k not in takes and _ALIASES.get(k) in takes else k: v for k, v in keywords.items()}
    return own if own.keys() != keywords.keys() and len(own) == len(keywords) else None


def named(function, name=None):
    """The function, with an error that names the nearest where a keyword is none of its own."""

    def call(*values, **keywords):
        try:
            return function(*values, **keywords)
        except TypeError as error:
            # Raised by the call itself, not in the function.
            own = error.__traceback__.tb_next is None
            aliased = _aliased(function, keywords) if own else None
            refused = unknown_keyword(call.__name__, function, error) if own and aliased is None else None
            if aliased is None and refused is None:
                raise
        if aliased is not None:
            return function(*values, **aliased)
        raise refused

    call.__module__, call.__doc__, call.__wrapped__ = function.__module__, function.__doc__, function
    call.__name__, call.__qualname__ = name or function.__name__, function.__qualname__
    return call


def named_functions(namespace, names):
    """named() of the functions of a module, in their places, and of the first values that classes take."""
    for name in names:
        value = namespace[name]
        if isinstance(value, type):
            named_first_values(value)
        elif hasattr(value, "__code__") and not hasattr(value, "__wrapped__"):
            namespace[name] = named(value)


def named_first_values(cls):
    if "__init__" in vars(cls):
        cls.__init__ = named(vars(cls)["__init__"], cls.__name__)
