"""The names of PyTorch/XLA's private module that programs and the five documents call."""
from . import _later, _weft
from .debug import metrics as _metrics
from .debug import report as _report


def _xla_metrics_report():
    """Metrics and counters as text, in the format of the documents of 2019: a metric's sum is called Counter."""
    return _report.render(_metrics.gathered(), _metrics.counters(), _report.FORMAT_2019)


def _xla_get_tensor_id(tensor):
    """A number that belongs to this tensor of a device and to no other that is alive."""
    return _weft.tensor_id(tensor)


def __getattr__(name):
    raise _later.missing(__name__, name)
