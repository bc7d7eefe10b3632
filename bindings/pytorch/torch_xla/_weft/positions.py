"""Python's frames as the positions of operations, where XLA_IR_DEBUG, XLA_HLO_DEBUG or the option positions=stack asks for them."""
import ctypes
import pathlib
import sys

from . import runtime

_OWN = str(pathlib.Path(__file__).resolve().parent.parent) + "/"
_MOST_FRAMES = 256
_files = {}


class _Frame(ctypes.Structure):
    _fields_ = [("function", ctypes.c_char_p), ("function_length", ctypes.c_size_t), ("file", ctypes.c_char_p),
                ("file_length", ctypes.c_size_t), ("line", ctypes.c_int32), ("reserved", ctypes.c_int32)]


def _file(name):
    """A file's name as the library takes it; None for this package's own."""
    if name not in _files:
        _files[name] = None if name.startswith(_OWN) else name.encode("utf-8", "surrogateescape")
    return _files[name]


def _mark():
    """Marks the frames that record, the innermost first; none on a thread of autograd's, which runs no Python."""
    try:
        frame = sys._getframe(1)
    except ValueError:
        frame = None
    frames = []
    while frame is not None and len(frames) < _MOST_FRAMES:
        code = frame.f_code
        file = _file(code.co_filename)
        if file is not None:
            function = getattr(code, "co_qualname", code.co_name).encode("utf-8", "replace")
            frames.append(_Frame(function, len(function), file, len(file), frame.f_lineno or 0, 0))
        frame = frame.f_back
    runtime.call("weft_position_mark_stack", runtime.context(), (_Frame * len(frames))(*frames), ctypes.c_size_t(len(frames)))


def start():
    """Called for each context: whether its operations have frames is its option's to say."""
    runtime.C.mark_with(_mark if runtime.option("positions") == "stack" else None)
