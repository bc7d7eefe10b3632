"""torch_xla._internal.tpu: what trainers ask before they choose devices."""
from .. import _later, _state, _weft


def num_available_devices():
    """Devices that Weft has, also where they are a CPU: trainers count by it."""
    _state.prepare()
    return _weft.device_count()


def __getattr__(name):
    raise _later.missing(__name__, name)
