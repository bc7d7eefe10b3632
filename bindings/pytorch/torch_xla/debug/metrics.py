"""torch_xla.debug.metrics: what was measured and counted, as text and as numbers. The library keeps and writes it all."""
from .. import _later, _weft
from . import library as _library
from . import spans as _spans


def _report(form):
    """Everything as text of one of the library's formats."""
    _spans.hand_over()
    return _weft.metrics.render(form)


def gathered():
    """By name (samples ever, their sum): the profiler's scopes and what the library measures."""
    _spans.hand_over()
    return _library.metrics()


def counters():
    """Counters by name: what the host computed is aten::operation, what the library counts has no such prefix."""
    return _library.counters()


def metrics_report():
    """All metrics and counters as text, in the format of PyTorch/XLA 2.9."""
    return _report(_weft.metrics.XLA)


def metric_names():
    return sorted(gathered())


def metric_data(metric_name):
    """(number of samples, their sum, the newest of them as (seconds, value)); None where nothing has this name.

    The newest are those of the profiler's scopes. Of its own measurements the library gives percentiles, which the report
    shows, and not the samples: that list is empty.
    """
    _spans.hand_over()
    found = _library.metric(metric_name)
    return found and (*found, _spans.samples(metric_name))


def counter_names():
    return sorted(name for name, value in counters().items() if value)


def counter_value(counter_name):
    """The counter's value; None where nothing has this name."""
    return counters().get(counter_name) or None


def executed_fallback_ops():
    """Names of the operations that were computed on the host, not on the device, such as aten::nonzero.

    The library's own aten::_local_scalar_dense, a read of one element, is none of them.
    """
    return sorted(name for name, value in _weft.metrics.counters().items() if value and name.startswith("aten::"))


def clear_all():
    """Forgets all samples, and all counters start at 0 again, but for what is counted of the whole process."""
    _spans.clear()
    _weft.metrics.clear()


def __getattr__(name):
    raise _later.missing(__name__, name)
