"""torch_xla.distributed.spmd: importable, since transformers imports it whether or not it is used; all names come later."""
from .. import _later


def __getattr__(name):
    raise _later.missing(__name__, name)
