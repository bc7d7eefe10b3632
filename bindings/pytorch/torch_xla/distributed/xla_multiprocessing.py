"""torch_xla.distributed.xla_multiprocessing: runs a function once per device, which today means once, here.

The functions and their checks are those of several processes, so that a program that runs here runs there.
"""
import threading

from .. import _later, _state
from ..debug import library as _library

_START_METHODS = ("spawn", "fork", "forkserver")
# A function that `spawn` ran was the first to use a device: the caller has not.
_used_by_spawn = False


def spawn(fn, args=(), nprocs=None, join=True, daemon=False, start_method="spawn"):
    """Runs fn(index, *args) in one process for each device: one, this one. Gives None when it has run.

    `nprocs` is None for all devices, or 1. More than there are devices run as one process, which is said. When it returns,
    the function has run: there is no process that `join` could leave running or `daemon` could end.
    """
    global _used_by_spawn
    if start_method not in _START_METHODS:
        raise ValueError(f"spawn: start_method '{start_method}' is not one of {', '.join(_START_METHODS)}")
    if nprocs is not None and nprocs < 1:
        raise ValueError(f"spawn: nprocs has to be None or 1 or more, not {nprocs}")
    _state.prepare()
    if nprocs is not None and nprocs > 1:
        _state.say_once("spawn", f"spawn: nprocs={nprocs} runs one process: several processes come later")
    if nprocs != 1 and not _used_by_spawn and _library.used():
        raise RuntimeError("Runtime is already initialized. Do not use the XLA device before calling xmp.spawn: "
                           "tensors of this process would not be there in the processes that it starts")
    used_before = _library.used()
    try:
        fn(0, *args)
    finally:
        _used_by_spawn = _used_by_spawn or not used_before


class MpModelWrapper:
    """Holds a model for every process of `spawn`, and converts it in one process after the other."""

    def __init__(self, model):
        self._model = model
        self._lock = threading.Lock()

    def to(self, device):
        """The model, moved to the device."""
        with self._lock:
            self._model = self._model.to(device)
            return self._model


class MpSerialExecutor:
    """Runs a function in one process of `spawn` after the other."""

    def __init__(self):
        self._lock = threading.Lock()

    def run(self, fn):
        with self._lock:
            return fn()


def __getattr__(name):
    raise _later.missing(__name__, name)
