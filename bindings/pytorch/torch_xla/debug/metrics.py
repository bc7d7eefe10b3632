"""torch_xla.debug.metrics: what was measured and counted, as text and as numbers."""
from .. import _later, _weft
from . import library as _library
from . import report as _report
from . import spans as _spans


def gathered():
    """By name (samples ever, their sum, kept ones or their summary, kind): the program's, the binding's, the library's."""
    metrics = dict(_spans.gathered())
    for name, samples in _weft.timings().items():
        if samples:
            kept = [(when, value) for when, value, _ in samples[-_report.kept_samples():]]
            metrics[name] = (len(samples), sum(sample[1] for sample in samples), kept, samples[0][2])
    metrics.update(_library.metrics())
    return metrics


def counters():
    """Counters by name: what the host computed is aten::operation, what the library counts has no such prefix."""
    return {**_library.counters(), **_weft.counters()}


def metrics_report():
    """All metrics and counters as text, in the format of PyTorch/XLA 2.9."""
    return _report.render(gathered(), counters(), _report.FORMAT_2_9)


def metric_names():
    return sorted(gathered())


def metric_data(metric_name):
    """(number of samples, their sum, the kept samples as (seconds, value)); None where nothing has this name.

    The library keeps percentiles of its own measurements, which the report shows, and not the samples: that list is empty.
    """
    found = gathered().get(metric_name)
    return found and (*found[:2], [] if isinstance(found[2], _report.Summary) else found[2])


def counter_names():
    return sorted(name for name, value in counters().items() if value)


def counter_value(counter_name):
    """The counter's value; None where nothing has this name."""
    return counters().get(counter_name) or None


def executed_fallback_ops():
    """Names of the operations that were computed on the host, not on the device, such as aten::nonzero."""
    return [name for name in counter_names() if name.startswith("aten::")]


def clear_all():
    """Forgets all samples, and all counters start at 0 again."""
    _weft.clear_counters()
    _library.clear()
    _spans.clear()


def __getattr__(name):
    raise _later.missing(__name__, name)
