"""torch_xla.distributed.xla_multiprocessing: runs a function in a process for each device.

The processes are ranks of one job (_processes.py, _world.py): each sees one device, `xla:0`, and collectives of
core.xla_model add up what they have.
"""
import multiprocessing

from .. import _later, _processes, _state, _weft, _world
from ..debug import library as _library

_START_METHODS = ("spawn", "fork", "forkserver")
# A function that `spawn` ran here was the first to use a device: the caller has not.
_used_by_spawn = False


def spawn(fn, args=(), nprocs=None, join=True, daemon=False, start_method="spawn"):
    """Runs fn(index, *args) in `nprocs` processes, or in one for each device; `index` is the process's ordinal.

    One alone runs here, where it is the caller's own process. Several are started by `start_method`: with 'spawn' each
    begins anew, runs the main program's file up to its main part, and gets `args` pickled; with 'fork' each begins as a
    copy of this process, as notebooks need it. None of them may start when this process has used a device. What a function
    raises, spawn raises, and ends the others; a process that dies is a torch.multiprocessing.ProcessExitedException. Gives
    None when all have run, or, with join=False, a context whose `join` waits for them (None where the function ran here).

    In a process that was started as one of several already (`weft launch`, torchrun) the function runs here.
    """
    if start_method not in _START_METHODS:
        raise ValueError(f"spawn: start_method '{start_method}' is not one of {', '.join(_START_METHODS)}")
    if nprocs is not None and nprocs < 1:
        raise ValueError(f"spawn: nprocs has to be None or 1 or more, not {nprocs}")
    _state.prepare()
    here = _world.size()
    if here > 1:
        if nprocs not in (None, 1, _world.local_size()):
            raise ValueError(f"spawn: nprocs is {nprocs}, and this process is one of {_world.local_size()} that were started "
                             f"already ({_world.place()['source']})")
        return _run_here(fn, args, _world.rank())
    if nprocs != 1 and not _used_by_spawn and _library.used():
        raise RuntimeError("Runtime is already initialized. Do not use the XLA device before calling xmp.spawn: devices can be "
                           "accessed only from within the function that it runs; tensors of this process would not be there "
                           "in the processes that it starts")
    count = _count(nprocs)
    if count == 1:
        return _run_here(fn, args, 0)
    if _used_by_spawn and start_method == "fork":
        raise RuntimeError("Runtime is already initialized by an earlier function of xmp.spawn, which ran in this process: "
                           "a copy of it could not use the device. Use start_method='spawn', or nprocs from the beginning")
    context = _processes.start(fn, args, count, daemon, start_method)
    if not join:
        return context
    context.join()
    return None


def _count(nprocs):
    """How many processes: as many as are asked for on CPUs, which share what there is; at most one a device elsewhere."""
    if nprocs == 1:
        return 1
    devices = _weft.device_count() if nprocs is None or _state.kind() != "CPU" else nprocs
    if nprocs is not None and nprocs > devices:
        raise ValueError(f"spawn: nprocs={nprocs}, and there {'is' if devices == 1 else 'are'} {devices} {_state.kind()} "
                         f"device{'' if devices == 1 else 's'}: each process needs its own")
    return devices if nprocs is None else nprocs


def _run_here(fn, args, index):
    global _used_by_spawn
    used_before = _library.used()
    try:
        fn(index, *args)
    finally:
        _used_by_spawn = _used_by_spawn or not used_before


def _lock():
    """A lock that processes of every start method share, and threads, too."""
    return multiprocessing.get_context("spawn").Lock()


class MpModelWrapper:
    """Holds a model for every process of `spawn`, and converts it in one process after the other.

    Made before `spawn`: a process that is a copy has it, one that begins anew gets it among `args`.
    """

    def __init__(self, model):
        self._model = model
        self._lock = _lock()

    def to(self, device):
        """The model, moved to the device."""
        with self._lock:
            self._model = self._model.to(device)
            return self._model


class MpSerialExecutor:
    """Runs a function in one process of `spawn` after the other."""

    def __init__(self):
        self._lock = _lock()

    def run(self, fn):
        with self._lock:
            return fn()


def __getattr__(name):
    raise _later.missing(__name__, name)
