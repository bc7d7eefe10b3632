"""What the library counts and measures, and what the binding counts beside it: all of it lies in the library."""
import ctypes
import json

from . import runtime

# Formats of weft_metrics_render and units of weft_metric_record.
TEXT, JSON, XLA, XLA_2019 = 0, 1, 2, 3
_NANOSECONDS = 1
OF_OPERATION = "op::"  # begins the names of the library's counters of recorded operations

_known = None


class _Summary(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("next", ctypes.c_void_p)] + [
        (name, ctypes.c_int64)
        for name in ("count", "sum", "least", "largest", "p1", "p5", "p10", "p20", "p50", "p80", "p90", "p95", "p99")]


def _named(name):
    data = name.encode()
    return data, ctypes.c_size_t(len(data))


def _blob(function, *arguments):
    blob = runtime._Blob()
    runtime.call(function, runtime.context(), *arguments, ctypes.byref(blob.address))
    return blob.take()


def add(name, n=1):
    """Adds to a counter of the binding's own: what the host computed is named aten::operation."""
    runtime.call("weft_metric_add", runtime.context(), *_named(name), ctypes.c_int64(n))


def record(name, nanoseconds):
    """One more time of this name."""
    runtime.call("weft_metric_record", runtime.context(), *_named(name), ctypes.c_int(_NANOSECONDS),
                 ctypes.c_int64(nanoseconds))


def render(form):
    """Everything as text; empty before the context is made, which asking would make."""
    return _blob("weft_metrics_render", ctypes.c_int(form)) if runtime.context_made() else ""


def snapshot():
    """Everything as numbers: 'counters', 'samples' and 'process', by the library's names."""
    text = render(JSON)
    return json.loads(text) if text else {"counters": {}, "samples": {}, "process": {}}


def labels():
    """What each of the library's own metrics is called in PyTorch/XLA's report. Others are the binding's."""
    global _known
    if _known is None:
        listed = json.loads(_blob("weft_metric_list"))
        _known = {one["name"]: one.get("torch_xla", "weft::" + one["name"]) for one in listed if one["meaning"]}
    return _known


def summary(name):
    """(count, sum) of the library's sample of this name."""
    found = _Summary(struct_size=ctypes.sizeof(_Summary))
    runtime.call("weft_metric_samples", runtime.context(), *_named(name), ctypes.byref(found))
    return found.count, found.sum


def counters():
    """The binding's own counters by name."""
    found = snapshot()["counters"]
    if not found:
        return {}
    return {name: value for name, value in found.items() if name not in labels() and not name.startswith(OF_OPERATION)}


def clear():
    """Everything is 0 again, but for what is counted of the whole process."""
    if runtime.context_made():
        runtime.call("weft_metrics_clear", runtime.context())
