"""torch_xla.distributed: loaders that upload, one process per device, data parallelism by threads."""
from .. import _later


def __getattr__(name):
    raise _later.missing(__name__, name)
