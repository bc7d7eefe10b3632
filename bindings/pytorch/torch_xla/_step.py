"""The barrier and what hangs on it: step closures, the metrics file, the step log.

A step closure is kept by the thread that added it and runs after that thread's next barrier, when its tensors have
values. Closures that were asked to run aside share one thread, in the order in which they came.
"""
import atexit
import os
import queue
import sys
import threading
import time

from . import _state, _weft

_thread = threading.local()
_steps_lock = threading.Lock()
_steps = 0


class _Aside:
    """One thread for asynchronous closures. An error is kept, and raised by the next barrier."""

    def __init__(self):
        self._queue = queue.Queue(maxsize=100)
        self._error = None
        self._lock = threading.Lock()
        self._worker = None

    def put(self, closure):
        with self._lock:
            if self._worker is None:
                self._worker = threading.Thread(target=self._run, name="torch_xla step closures", daemon=True)
                self._worker.start()
                atexit.register(self._queue.join)
        self._queue.put(closure)

    def _run(self):
        while True:
            closure = self._queue.get()
            try:
                closure()
            except BaseException as error:  # Whatever it is, the thread that asks next has to hear of it.
                with self._lock:
                    self._error = self._error or error
            finally:
                self._queue.task_done()

    def join(self):
        self._queue.join()

    def raise_error(self):
        with self._lock:
            error, self._error = self._error, None
        if error is not None:
            raise error


_aside = _Aside()


def add_closure(closure, args, run_async):
    closures = getattr(_thread, "closures", None)
    if closures is None:
        closures = _thread.closures = []
    closures.append((closure, tuple(args), run_async))


def _run_closures():
    _aside.raise_error()
    closures = getattr(_thread, "closures", None)
    if not closures:
        return
    _thread.closures = []
    for closure, args, run_async in closures:
        if run_async:
            _aside.put(lambda closure=closure, args=args: closure(*args))
        else:
            closure(*args)


def _count_step():
    global _steps
    with _steps_lock:
        _steps += 1
        return _steps


def barriers():
    """How many barriers there were in this process, also such as had nothing to compute."""
    return _steps


def _append_metrics(step):
    path = os.environ.get("XLA_METRICS_FILE")
    if not path:
        return
    from .debug import metrics
    record = f"[MetricsData; step={step}]\n{metrics.metrics_report()}\n"
    if path in ("STDERR", "STDOUT"):
        print(record, file=sys.stderr if path == "STDERR" else sys.stdout, flush=True)
        return
    with open(path, "a", encoding="utf-8") as file:
        file.write(record)


def sync(index=None, wait=False):
    """Evaluates the live tensors of a device, then runs what waits for a barrier."""
    index = _state.current_index() if index is None else index
    _weft.sync(index, wait or _state.truth("XLA_SYNC_WAIT"))
    step = _count_step()
    if _state.truth("XLA_EMIT_STEPLOG"):
        print(f"torch_xla.core.xla_model::mark_step time={time.time():.3f} step={step}", file=sys.stderr, flush=True)
    _run_closures()
    _append_metrics(step)


def wait_closures():
    """Until the closures that run aside have run; raises what one of them raised."""
    _aside.join()
    _aside.raise_error()
