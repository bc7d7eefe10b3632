"""torch_xla.runtime: how many devices and processes there are, and the folder of compiled programs."""
import os

from . import _later, _state, _weft


def device_type():
    """'CPU', 'TPU' or what else the devices are."""
    _state.prepare()
    return _state.kind()


def using_pjrt():
    """True: what is asked here is whether XRT, which is gone, has to be served."""
    return True


def world_size():
    """Processes that train together: one."""
    return 1


def global_ordinal():
    return 0


def local_ordinal():
    return 0


def host_index():
    return 0


def global_runtime_device_count():
    """Devices that the runtime has, whether or not this process uses them."""
    return _weft.device_count()


def is_spmd():
    """False: one program over several devices comes later (torch_xla.distributed.spmd)."""
    return False


def initialize_cache(path, readonly=False):
    """Keeps compiled programs in the folder `path`, and finds those that are there.

    It has to come before the first computation. With `readonly` the folder is read and never written, nor made.
    """
    _state.prepare()
    path = os.fspath(path)
    if not path:
        raise ValueError("initialize_cache: the path is empty")
    if _weft.context_made():
        raise RuntimeError("initialize_cache must be called before any computation is executed: the device is already in use")
    if not readonly:
        os.makedirs(path, exist_ok=True)
    _weft.configure(cache_dir=os.path.abspath(path), cache_mode="read" if readonly else "write")


def __getattr__(name):
    raise _later.missing(__name__, name)
