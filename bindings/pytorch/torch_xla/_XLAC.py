"""The names of PyTorch/XLA's private module that programs and the five documents call."""
from . import _later, _weft
from .debug import metrics as _metrics


def _xla_metrics_report():
    """Metrics and counters as text, in the format of the documents of 2019: a metric's sum is called Counter."""
    return _metrics._report(_weft.metrics.XLA_2019)


def _xla_get_tensor_id(tensor):
    """A number that belongs to this tensor of a device and to no other that is alive."""
    return _weft.tensor_id(tensor)


def __getattr__(name):
    raise _later.missing(__name__, name)
