"""torch_xla._internal: what trainers ask about the hardware."""
from .. import _later


def __getattr__(name):
    raise _later.missing(__name__, name)
