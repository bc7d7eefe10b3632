"""torch_xla.test: helpers that training scripts print their progress with."""
from .. import _later


def __getattr__(name):
    raise _later.missing(__name__, name)
