"""Finds and opens the C library. Nothing else is done here: no thread, no context, no reading of the environment but
LIBWEFT_PATH, and of the arguments of `python -m libweft` but --library."""

import ctypes
import os
import sys

from ._abi import ABI, SONAME

ENVIRONMENT = "LIBWEFT_PATH"


class LibraryError(ImportError):
    """No library that this package can use was found; the text says what was looked for, and in which order."""


def candidates():
    """[(who says it, path)] in the order in which they are tried. What a person says is the only candidate."""
    said = _argument()
    if said:
        return [("the argument --library", _file(said))]
    said = os.environ.get(ENVIRONMENT)
    if said:
        return [("the environment variable " + ENVIRONMENT, _file(said))]
    return [("the package", os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME)), ("the system's loader", SONAME)]


def _argument():
    """The path behind --library where this is read for `python -m libweft`, of which sys.argv then has "-m" in front."""
    arguments = getattr(sys, "argv", [])
    typed = getattr(sys, "orig_argv", None)  # From 3.10 on: the module's name is where "-m" is in sys.argv.
    if arguments[:1] != ["-m"] or (typed and typed[-len(arguments)].partition(".")[0] != "libweft"):
        return None
    for i, word in enumerate(arguments):
        if word == "--library":
            return "".join(arguments[i + 1 : i + 2])
        if word.startswith("--library="):
            return word.partition("=")[2]
    return None


def _file(path):
    return os.path.join(path, SONAME) if os.path.isdir(path) else path


def _refusal(path):
    """Why the library at a path cannot be used, or None; and the two ways to call it, which let the lock of Python go or
    keep it."""
    try:
        library, quick = ctypes.CDLL(path), ctypes.PyDLL(path)
    except OSError as error:
        return str(error), None
    try:
        version = library.weft_abi_version
    except AttributeError:
        return "it is not Weft: it has no weft_abi_version", None
    version.restype = ctypes.c_uint32
    major, minor = version() >> 16, version() & 0xFFFF
    if major != ABI[0]:
        return "its ABI is %d.%d, and this package speaks ABI %d" % (major, minor, ABI[0]), None
    if minor < ABI[1]:
        return "it is too old: its ABI is %d.%d, and this package needs %d.%d or later" % (major, minor, *ABI), None
    return None, (library, quick)


def open_library():
    """(path, CDLL, PyDLL) of the first candidate that there is; one that is there and does not fit ends the search."""
    tried = []
    for who, path in candidates():
        if os.sep in path and not os.path.exists(path):
            tried.append("%s: %s: there is no such file" % (who, path))
            continue
        why, opened = _refusal(path)
        if opened:
            return path, opened[0], opened[1]
        tried.append("%s: %s: %s" % (who, path, why))
        if os.sep in path:
            break
    order = "the argument --library of python -m libweft, %s, the package's own folder, the system's loader" % ENVIRONMENT
    raise LibraryError(
        "libweft found no library that it can use (looked for, in this order: %s)\n  %s%s"
        % (order, "\n  ".join(tried), _musl())
    )


def _musl():
    if sys.platform != "linux" or os.environ.get(ENVIRONMENT):
        return ""
    musl = [name for name in ("/lib/ld-musl-x86_64.so.1",) if os.path.exists(name)]
    glibc = os.path.exists("/lib64/ld-linux-x86-64.so.2")
    return "\n  this system's C library is musl; the library needs glibc 2.28 or later" if musl and not glibc else ""
