"""torch_xla.experimental: nothing yet; asking names what comes later."""
from .. import _later


def __getattr__(name):
    raise _later.missing(__name__, name)
