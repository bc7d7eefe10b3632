"""Times of named parts of a program, by name: what the profiler's scopes measure and the metrics report shows."""
import collections
import threading
import time

from . import report as _report

_lock = threading.Lock()
_spans = {}


class _Span:

    def __init__(self):
        self.count = 0
        self.total = 0
        self.kept = collections.deque(maxlen=_report.kept_samples())


def add(name, nanoseconds):
    with _lock:
        span = _spans.setdefault(name, _Span())
        span.count += 1
        span.total += nanoseconds
        span.kept.append((time.monotonic(), nanoseconds))


def gathered():
    with _lock:
        return {name: (span.count, span.total, list(span.kept), "time") for name, span in _spans.items()}


def clear():
    with _lock:
        _spans.clear()
