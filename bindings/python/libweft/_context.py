"""Contexts, steps and barriers."""

import atexit
import ctypes
import os
from _thread import RLock, allocate_lock

from . import _call, _device, _wait
from ._abi import STRUCTS
from ._call import bind, blob_text, byref, c_void_p, check, handle_class, now, quick, struct_of, text_of
from ._wait import blocking

_create = bind("weft_context_create")
_release = bind("weft_context_release", None)
_scope_begin = quick("weft_scope_begin")
_scope_end = bind("weft_scope_end")
_sync = bind("weft_sync")
_eval = bind("weft_eval")
_option = quick("weft_context_option")
_live = quick("weft_context_live_bytes")
_seed = quick("weft_random_seed")
_first = allocate_lock()
_MODES = {"lazy": 1, "eager": 2, "debug": 3}
_own = None


# A context is released without Python's lock: the last release waits for work that runs.
_ContextHandle = handle_class("_ContextHandle", _release, waits=False)


class _WaitingHandle(_ContextHandle):
    """A context that computes at once what is recorded, so that an operation may wait and call back."""

    __slots__ = ()
    waits = True


class Context:
    """Devices, a recording, random numbers and compiled programs of their own. Most programs need only the one that is there.

    >>> with wf.Context(mode="eager", threads=1):
    ...     three = wf.tensor([1, 2]).sum()
    >>> int(three)
    3
    """

    def __init__(self, mode=None, **settings):
        if mode is not None:
            settings["mode"] = mode
        kept, rows = [], bytearray()
        size = STRUCTS["weft_setting"][0]
        for name, value in settings.items():
            key, text = str(name).encode(), _text_of_setting(value)
            kept += [key, text]
            row = struct_of("weft_setting", name=key, name_length=len(key), value=text, value_length=len(text))
            kept.append(row)
            rows += row.ljust(size, b"\0")
        packed = bytes(rows)
        options = struct_of("weft_context_options", settings=packed if settings else None, setting_count=len(settings))
        self._h = _ContextHandle()
        self._outer = []
        check(_create(options, byref(self._h)))
        if self.option("mode") != "lazy" or self.option("op_by_op") != "off":
            lazy, self._h = self._h, _WaitingHandle(self._h.value)
            lazy.value = None
        _call.keep_stacks(self._h, self.option("positions") == "stack")
        del kept

    def __enter__(self):
        self._outer.append(now.context)
        now.context = self._h
        return self

    def __exit__(self, *_):
        now.context = self._outer.pop()

    def option(self, name):
        """The effective value of an option as text."""
        blob = c_void_p()
        check(_option(self._h, *text_of(name), byref(blob)))
        return blob_text(blob)

    @property
    def live_bytes(self):
        """Bytes of the values of all tensors."""
        out = ctypes.c_uint64()
        check(_live(self._h, byref(out)))
        return out.value

    @property
    def devices(self):
        return _device.all_of(self._h)

    def cancel(self):
        """Asks waits and launches to give up. May be called from any thread."""
        _wait.cancel(self._h)


def _text_of_setting(value):
    if isinstance(value, bool):
        value = int(value)
    return os.fspath(value).encode() if isinstance(value, os.PathLike) else str(value).encode()


class _Own(Context):
    def __init__(self):
        super().__init__()
        atexit.register(self.close)

    def close(self):
        """Ends the process's context while Python is whole: its programs are then on disk."""
        _call.set_own(None)
        handle, self._h = self._h, c_void_p()
        if handle and os.getpid() == self.pid:
            del handle


def start():
    """The handle of the process's own context."""
    global _own
    if _own is None:
        with _first:
            if _own is None:
                made = _Own()
                made.pid = os.getpid()
                _call.set_own(made._h)
                _own = made
    return _own._h


_call.start = start


class _Borrowed(Context):
    """The context that a thread is in, as an object."""

    def __init__(self, handle):
        self._h, self._outer = handle, []


def context():
    """The context of this thread: that of the innermost `with`, else the process's own."""
    start()
    return _own if now.context is None else _Borrowed(now.context)


def configure(**settings):
    """Settings of the process's own context (`wf.configure(threads=2, cache_dir=...)`), before its first use."""
    global _own
    with _first:
        if _own is not None:
            raise _call._errors.FailedPrecondition(
                "configure: the process's context is there already; configure before the first tensor, or make a Context",
                "configure",
            )
        made = Context.__new__(_Own)
        Context.__init__(made, **settings)
        made.pid = os.getpid()
        atexit.register(made.close)
        _call.set_own(made._h)
        _own = made


def devices():
    """The devices of this thread's context."""
    return context().devices


def device(name):
    """The device of a name, such as `cpu:0`."""
    return _device.named(now.context or start(), name)


_locks = {}


def _alone(context):
    """The lock of a context's steps. A barrier ends the temporaries of every step that is open, so that one thread is in a
    step at a time."""
    with _first:
        return _locks.setdefault(context.value, RLock())


class step:
    """A step of a loop: what is recorded inside belongs to it, and one program computes it at the end.

    Intermediates die with the step, whoever still refers to them, so that each step is the same program. What is to be read
    afterwards is kept: `loss.keep()`. Threads that share a context go through steps one after the other. Assigned tensors
    (`assign`, parameters of an optimizer) have their new values.

    >>> x, total = wf.ones((3,)), wf.zeros(())
    >>> for _ in range(3):
    ...     with wf.step():
    ...         y = x * 2
    ...         total.assign(total + y.sum())
    >>> float(total)
    18.0
    """

    __slots__ = ("_sync", "_scope", "_outer", "_lock")

    def __init__(self, sync=True):
        self._sync = sync

    def __enter__(self):
        context, scope = now.context or start(), c_void_p()
        lock = _alone(context)
        lock.acquire()
        try:
            check(_scope_begin(context, byref(scope)))
        except BaseException:
            lock.release()
            raise
        self._lock, self._scope, self._outer, now.scope = lock, scope, now.scope, scope
        return self

    def __exit__(self, kind, value, trace):
        now.scope = self._outer
        scope, self._scope = self._scope, None
        try:
            if self._sync and kind is None:
                check(blocking(_sync, now.context or start(), None, None))
        finally:
            try:
                error = blocking(_scope_end, scope)
            finally:  # Ctrl-C may come in between.
                self._lock.release()
        check(error)
        return False

    def keep(self, *tensors):
        """The same as `keep()` of each tensor; gives them back."""
        for tensor in tensors:
            tensor.keep()
        return tensors[0] if len(tensors) == 1 else tensors


def sync(wait=False, device=None):
    """The barrier: computes everything that is live, in one program. Returns when it is launched, or with `wait` when it
    has run."""
    context = now.context or start()
    event = _wait.Event()
    with _alone(context):
        check(blocking(_sync, context, _device.chosen(device), byref(event) if wait else None))
    if wait:
        _wait.interruptible(event, context)


def evaluate(*tensors, wait=True):
    """Computes these tensors and nothing else; other recorded work stays recorded."""
    context = now.context or start()
    array, count = _call.handles(tensors)
    event = _wait.Event()
    check(blocking(_eval, context, array, count, byref(event)))
    if wait:
        _wait.interruptible(event, context)
    return tensors[0] if len(tensors) == 1 else tensors


def begin_evaluation(tensor):
    """An event that has happened once the tensor is computed."""
    array, count = _call.handles((tensor,))
    event = _wait.Event()
    check(blocking(_eval, now.context or start(), array, count, byref(event)))
    return event


def seed(value):
    """The first state of this context's random numbers."""
    check(_seed(now.context or start(), ctypes.c_uint64(_call.whole(value, "seed", "value"))))
