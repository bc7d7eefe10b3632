"""torch_xla.debug: metrics, and the profiler's server and scopes."""
from .. import _later


def __getattr__(name):
    raise _later.missing(__name__, name)
