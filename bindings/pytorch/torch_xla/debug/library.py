"""What the library counted and measured, under PyTorch/XLA's names where it has one and else as weft::name.

The names are the report's. Before the context is made there is nothing, and asking does not make it.
"""
from .. import _weft

_metrics = _weft.metrics


def _label(name):
    if name.startswith(_metrics.OF_OPERATION):
        return "xla::" + name.removeprefix(_metrics.OF_OPERATION)
    return _metrics.labels().get(name, name)


def counters():
    """All counters by name, the process's too."""
    now = _metrics.snapshot()
    return {_label(name): value for kind in ("counters", "process") for name, value in now[kind].items()}


def metrics():
    """By name (samples ever, their sum), without those that nothing was measured of."""
    found = _metrics.snapshot()["samples"]
    return {_label(name): (one["count"], one["sum"]) for name, one in found.items() if one["count"]}


def metric(label):
    """(samples ever, their sum) of one name; None where nothing was measured under it."""
    for name in _metrics.snapshot()["samples"]:
        if _label(name) == label:
            found = _metrics.summary(name)
            return found if found[0] else None
    return None


def used():
    """Whether the device has had anything to do: who only asks how many there are has not used one."""
    now = _metrics.snapshot()
    return any(now["counters"].get(name) for name in ("operations_recorded", "bytes_to_device")) or bool(
        now["process"].get("live_tensors"))
