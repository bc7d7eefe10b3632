"""Waits that Ctrl-C ends: while the main thread is in the library, a signal wakes a thread that cancels the wait."""

import _signal  # `signal` is made of it; it comes without the enumerations, which take longer to import than this package.
import ctypes
import os
from _thread import allocate_lock, get_ident, start_new_thread

from . import _call
from ._call import bind, byref, c_int64, c_void_p, check, error_of, handle_class, quick
from ._errors import Cancelled, DeadlineExceeded

SLICE = 50_000_000  # Nanoseconds that an event is waited for before Python looks for signals.

_cancel = quick("weft_cancel", None)
_event_wait = bind("weft_event_wait")
_event_poll = quick("weft_event_poll")
_event_fd = quick("weft_event_fd")
Event = handle_class("EventHandle", quick("weft_event_release", None))


class _Watch:
    """The thread that cancels. It begins with the first wait of the main thread and sleeps in a read of a pipe."""

    def __init__(self):
        self.pid = self.main = None
        self.waiting = None  # The context whose wait the main thread is in.
        self.before = -1
        self.lock = allocate_lock()  # What is cancelled is what the main thread waits for, never what it begins next.
        self.stray = False  # A call may still answer that it was cancelled, and mean the last Ctrl-C.

    def start(self):
        import threading  # Late, as is nothing else that takes long to import.

        self.set, self.interrupt = _signal.set_wakeup_fd, _signal.SIGINT
        self.main = threading.main_thread().ident
        self.out, self.into = os.pipe()
        os.set_blocking(self.into, False)
        self.pid, self.waiting, self.stray, self.lock = os.getpid(), None, False, allocate_lock()
        try:
            start_new_thread(self.run, (self.out,))
        except RuntimeError:  # An isolated sub-interpreter has no threads, and no signals.
            self.main = None

    def cancel(self, context):
        """Ctrl-C has ended a wait. Where nobody was waiting any more, the next call hears of it, and is then called again."""
        self.stray = True
        _cancel(context)

    def run(self, pipe):
        while True:
            for number in os.read(pipe, 64):
                if self.before >= 0:
                    try:
                        os.write(self.before, bytes([number]))  # An event loop's: it wants to hear of signals, too.
                    except OSError:
                        pass
                with self.lock:
                    if self.waiting is not None and number == self.interrupt:
                        self.cancel(self.waiting)


_watch = _Watch()


def blocking(function, *arguments):
    """Calls a function of C that may wait; on the main thread Ctrl-C ends it within some hundredths of a second."""
    if _watch.pid != os.getpid():
        _watch.start()
    if _watch.main != get_ident() or not _raises():
        return function(*arguments)
    while True:
        try:
            before = _watch.set(_watch.into, warn_on_full_buffer=False)
        except ValueError:  # A sub-interpreter's main thread is not the one that gets signals.
            return function(*arguments)
        if before != _watch.into:
            _watch.before = before
        _watch.waiting = _call.now.context or _call.start()
        try:
            error = function(*arguments)
        finally:
            with _watch.lock:
                _watch.waiting = None
            _watch.set(_watch.before, warn_on_full_buffer=False)
        if not (error and _watch.stray and _is_cancelled(error)):
            return error
        _watch.stray = False
        _call._error_release(error)  # Ours, of a Ctrl-C that was heard, or whose handler went on: the call begins again.


def _raises():
    """True if Ctrl-C raises KeyboardInterrupt. What another handler does is not known, so that nothing is cancelled for it."""
    return _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler


def patient():
    """True on a main thread whose handler of Ctrl-C is the program's own: waits are then made of slices, between which it
    runs."""
    if _watch.pid != os.getpid():
        _watch.start()
    return _watch.main == get_ident() and not _raises()


def cancel(context):
    """Somebody's own wish to end what runs: what is cancelled from now on is told."""
    _watch.stray = False
    _cancel(context)


def _is_cancelled(error):
    return _call._error_code(c_void_p(error)) == 1


def wait(event, timeout=None):
    """Waits for an event in slices, between which signals of Python are seen; raises its failure."""
    left = None if timeout is None else max(int(timeout * 1e9), 0)
    while True:
        part = SLICE if left is None else min(SLICE, left)
        error = _event_wait(event, c_int64(part))
        if not error:
            return
        failure = error_of(error)
        if isinstance(failure, Cancelled) and _watch.stray:
            _watch.stray = False
            continue
        if not isinstance(failure, DeadlineExceeded) or done(event):
            raise failure
        if left is not None:
            left -= part
            if left <= 0:
                raise failure


def done(event):
    out = ctypes.c_int32()
    check(_event_poll(event, byref(out)))
    return out.value != 0


def interruptible(event, context):
    """wait() that gives the work up on Ctrl-C."""
    try:
        wait(event)
    except (DeadlineExceeded, Cancelled):
        raise
    except BaseException as error:
        if not isinstance(error, _call._errors.Error):  # A handler of a signal raised it.
            _watch.cancel(context)
        raise


async def awaited(event):
    """Waits in an event loop of asyncio, without a thread."""
    import asyncio

    if not done(event):
        fd = ctypes.c_int32()
        check(_event_fd(event, byref(fd)))
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_reader(fd.value, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(fd.value)
    wait(event)
