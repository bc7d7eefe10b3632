"""torch_xla over Weft: programs written for PyTorch/XLA run as they are, on the devices that Weft has.

Importing it gives PyTorch the device type `xla`. Nothing is started by that: the first tensor makes the context, so
that environment variables and `torch_xla.runtime.initialize_cache` count until then. docs/pytorch.md says what runs.
"""
from . import _weft  # First: it checks PyTorch's version and registers the device.
from . import _later, _state, _step

__version__ = "2.9.0+weft"

_later.refuse_imports()
_state.prepare()

from . import _XLAC  # noqa: E402
from . import runtime  # noqa: E402
from .core import xla_model as _xm  # noqa: E402
from .distributed import xla_multiprocessing as _xmp  # noqa: E402


def device(index=None):
    """The device `xla:index`, or the thread's current one, `xla:0` unless something else was chosen."""
    _state.prepare()
    return _state.device(None if index is None else _state.check_index(index))


def devices():
    """All devices of this process."""
    return [_state.device(index) for index in range(_weft.device_count())]


def real_devices():
    """What stands behind `devices()`, for example ['CPU:0']."""
    return _xm.xla_real_devices()


def device_count():
    return _weft.device_count()


def sync(wait=False, reset_scope=True):
    """The barrier: evaluates all live tensors of the current device, then runs step closures.

    It returns when the work is launched; with `wait` or XLA_SYNC_WAIT=1, when it is done. Weft keeps no stack of names
    over a barrier, so there is nothing that `reset_scope` could leave standing.
    """
    _step.sync(wait=wait)


def manual_seed(seed, device=None):
    """Starts the random numbers of a device, or of all of them, at `seed`."""
    if device is not None:
        _xm.set_rng_state(seed, device)
        return
    for index in range(_weft.device_count() if _weft.context_made() else 1):
        _xm.set_rng_state(seed, index)


def launch(fn, args=(), start_method="spawn", debug_single_process=False):
    """Runs fn(index, *args) in one process for each device of the machine; see xla_multiprocessing.spawn."""
    return _xmp.spawn(fn, args=args, nprocs=1 if debug_single_process else None, start_method=start_method)


def __getattr__(name):
    raise _later.missing(__name__, name)
