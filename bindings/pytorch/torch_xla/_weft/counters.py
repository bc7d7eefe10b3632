"""Counters and samples that the binding keeps beside the library's own."""
import threading
import time

from . import runtime

_lock = threading.Lock()
_counters = {}
_samples = {}
_native_at_clear = {}
_KEPT = 1024  # samples of each name


def add(name, n=1):
    with _lock:
        _counters[name] = _counters.get(name, 0) + n


def sample(name, value, kind):
    with _lock:
        kept = _samples.setdefault(name, [])
        kept.append((time.monotonic(), value, kind))
        if len(kept) > 2 * _KEPT:
            del kept[:_KEPT]


def counters():
    """All counters by name; what the host computed is named aten::operation."""
    with _lock:
        return dict(_counters)


def native_calls():
    """Calls of kernels in C by overload, since the counters were cleared."""
    calls = runtime.C.counts()
    return {name: n - _native_at_clear.get(name, 0) for name, n in calls.items() if n > _native_at_clear.get(name, 0)}


def clear():
    with _lock:
        _counters.clear()
        _samples.clear()
        _native_at_clear.update(runtime.C.counts())


def timings():
    with _lock:
        return {name: list(kept) for name, kept in _samples.items()}
