"""Times of named parts of a program: what the profiler's scopes measure. The library keeps and renders them.

It gives no single samples back, so the newest of these are kept here too. What is measured before the context is made
waits, so that measuring makes none.
"""
import collections
import re
import threading
import time

from .. import _state, _weft

_KEPT = 1024  # samples of each name, as many as the library keeps
_LONGEST = 256
_PREFIX = "scope::"

_lock = threading.Lock()
_waiting = []
_kept = {}


def _label(name):
    """What the report calls a scope: names there have no spaces, and those of other metrics are taken."""
    text = re.sub(r"[\s\x00-\x1f\x7f]", "_", str(name)) or "_"
    known = _weft.metrics.labels()
    if text in known or text in known.values() or text.startswith(("aten::", "weft::")):
        text = _PREFIX + text
    return text.encode(errors="replace")[:_LONGEST].decode(errors="ignore")


def _record(name, when, nanoseconds):
    label = _label(name)
    try:
        _weft.metrics.record(label, nanoseconds)
    except RuntimeError as error:  # There are too many names. A program's own steps do not end for that.
        _state.say_once("spans", f"times of the scope '{name}' are not kept: {error}")
        return
    with _lock:
        _kept.setdefault(label, collections.deque(maxlen=_KEPT)).append((when, nanoseconds))


def add(name, nanoseconds):
    with _lock:
        _waiting.append((name, time.monotonic(), nanoseconds))
    if _weft.context_made():
        hand_over()


def hand_over():
    """Gives the library what waits for it; that makes the context, where something does."""
    with _lock:
        waiting, _waiting[:] = list(_waiting), []
    for one in waiting:
        _record(*one)


def samples(label):
    """The newest (seconds, nanoseconds) of a scope, by what the report calls it."""
    with _lock:
        return list(_kept.get(label, ()))


def clear():
    with _lock:
        _waiting.clear()
        _kept.clear()
