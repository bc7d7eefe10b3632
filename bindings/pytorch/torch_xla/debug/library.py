"""What the library counted and measured, under PyTorch/XLA's names where it has one and else as weft::name.

Until the library forgets on request, clearing is remembering where its counters stood.
"""
import json
import threading
import time

from .. import _weft
from . import report as _report

_COUNTERS = {"programs_queued": "UncachedCompile", "memory_cache_hits": "CachedCompile",
             "disk_cache_hits": "PersistentCacheHit", "disk_cache_misses": "PersistentCacheMiss"}
_SAMPLES = {"compile_nanoseconds": "CompileTime", "load_nanoseconds": "PersistentCacheLoad", "run_nanoseconds": "ExecuteTime",
            "upload_nanoseconds": "TransferToDeviceTime", "read_nanoseconds": "TransferFromDeviceTime",
            "upload_bytes": "OutboundData", "read_bytes": "InboundData", "launch_nodes": "TensorsGraphSize"}

_lock = threading.Lock()
_cleared = {"counters": {}, "samples": {}, "process": {}}
_since = time.monotonic()


def _read():
    """The library's numbers; nothing before the context is made, which asking would make."""
    return json.loads(_weft.weft_metrics_json()) if _weft.context_made() else {"counters": {}, "samples": {}, "process": {}}


def counters():
    now = _read()["counters"]
    with _lock:
        before = _cleared["counters"]
        return {_COUNTERS.get(name, "weft::" + name): value - before.get(name, 0) for name, value in now.items()}


def _kind(name):
    return "time" if name.endswith("nanoseconds") else "bytes" if name.endswith("bytes") else "number"


def metrics():
    """By name (samples ever, their sum, percentiles of the newest, kind), without those that nothing was measured of."""
    now = _read()["samples"]
    found = {}
    with _lock:
        seconds = time.monotonic() - _since
        for name, sample in now.items():
            before = _cleared["samples"].get(name, {"count": 0, "sum": 0})
            count, total = sample["count"] - before["count"], sample["sum"] - before["sum"]
            if count > 0:
                known = {int(key[1:]): value for key, value in sample.items() if key[0] == "p"}
                summary = _report.Summary(known, seconds, count, total)
                found[_SAMPLES.get(name, "weft::" + name)] = (count, total, summary, _kind(name))
    return found


def used():
    """Whether the device has had anything to do: who only asks how many there are has not used one."""
    now = _read()
    return any(now["counters"].get(name) for name in ("operations_recorded", "bytes_to_device")) or bool(
        now["process"].get("live_tensors"))


def clear():
    global _cleared, _since
    now = _read()
    with _lock:
        _cleared, _since = now, time.monotonic()
