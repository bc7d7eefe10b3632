"""torch_xla.utils: checkpoints (serialization) and small helpers (utils)."""
from .. import _later


def __getattr__(name):
    raise _later.missing(__name__, name)
