"""torch_xla.runtime: how many devices and processes there are, and the folder of compiled programs."""
import os

from . import _later, _state, _weft, _world


def device_type():
    """'CPU', 'TPU' or what else the devices are."""
    _state.prepare()
    return _state.kind()


def using_pjrt():
    """True: what is asked here is whether XRT, which is gone, has to be served."""
    return True


def world_size():
    """Processes that train together."""
    return _world.size()


def global_ordinal():
    """The number of this process among all."""
    return _world.rank()


def local_ordinal():
    """The number of this process among those of its machine."""
    return _world.local_rank()


def host_index():
    """The number of this machine."""
    return _world.rank() // _world.local_size()


def process_count():
    """Processes of all machines: each has its own device."""
    return _world.size()


def process_index():
    return _world.rank()


def local_process_count():
    """Processes of this machine."""
    return _world.local_size()


def local_device_count():
    """Devices of this machine that the processes of the world use."""
    return _world.local_size() * addressable_device_count()


def addressable_device_count():
    """Devices of this process."""
    _state.prepare()
    return _weft.device_count()


def global_device_count():
    """Devices of all processes."""
    return _world.size() * addressable_device_count()


def addressable_runtime_device_count():
    return addressable_device_count()


def global_runtime_device_count():
    """Devices that the runtime has, whether or not this process uses them."""
    return global_device_count()


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
