"""torch_xla.experimental: custom_kernel; asking for anything else names what comes later."""
from .. import _later


def __getattr__(name):
    raise _later.missing(__name__, name)
