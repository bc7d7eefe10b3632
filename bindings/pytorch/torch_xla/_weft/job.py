"""A job: several processes that run one program together, and the group of all of them (weft_job.h).

Tensors of the device go through their own context. Bytes of the host go through a context of their own, made when it is
first needed, so that who only meets the others has not used the device.
"""
import ctypes
import json
import threading

from . import runtime
from .runtime import C, call, library

_SIZE = ctypes.c_size_t
SUM, PRODUCT, MIN, MAX, AND, OR = range(6)
_U8 = ctypes.c_int(runtime.U8)


class _Options(ctypes.Structure):
    _fields_ = [("struct_size", _SIZE), ("next", ctypes.c_void_p), ("id", ctypes.c_char_p), ("id_length", ctypes.c_uint64),
                ("token", ctypes.c_char_p), ("token_length", ctypes.c_uint64), ("timeout_ms", ctypes.c_int64),
                ("rank", ctypes.c_int32), ("size", ctypes.c_int32), ("local_rank", ctypes.c_int32),
                ("local_size", ctypes.c_int32)]


class _Setting(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("name_length", _SIZE), ("value", ctypes.c_char_p), ("value_length", _SIZE)]


class _ContextOptions(ctypes.Structure):
    """The fields that were there in 1.0, by which its size says what is set."""

    _fields_ = [("struct_size", _SIZE), ("next", ctypes.c_void_p), ("mode", ctypes.c_int), ("min_log_level", ctypes.c_int32),
                ("settings", ctypes.POINTER(_Setting)), ("setting_count", ctypes.c_uint64), ("log", ctypes.c_void_p),
                ("log_user_data", ctypes.c_void_p), ("log_release", ctypes.c_void_p), ("allocate", ctypes.c_void_p),
                ("free", ctypes.c_void_p), ("allocator_user_data", ctypes.c_void_p), ("allocator_release", ctypes.c_void_p),
                ("pressure", ctypes.c_void_p), ("pressure_user_data", ctypes.c_void_p), ("pressure_release", ctypes.c_void_p)]


def find():
    """Who this process is, by what started it: a dictionary with rank, size, local_rank, local_size and source."""
    if not hasattr(library, "weft_job_find"):  # A library before 1.2.
        return {"rank": 0, "size": 1, "local_rank": 0, "local_size": 1, "source": "a library without jobs"}
    blob = runtime._Blob()
    call("weft_job_find", None, ctypes.byref(blob.address))
    return json.loads(blob.take())


def _host_context():
    """A context for bytes of the host: it computes nothing, and keeps no programs."""
    settings = (_Setting * 3)(*((name, len(name), value, len(value)) for name, value in (
        (b"platform", b"reference"), (b"devices", b"1"), (b"cache_mode", b"off"))))
    options = _ContextOptions()
    library.weft_context_options_init(ctypes.byref(options), _SIZE(ctypes.sizeof(options)))
    options.settings, options.setting_count = settings, len(settings)
    made = ctypes.c_void_p()
    call("weft_context_create", ctypes.byref(options), ctypes.byref(made))
    return made


class Job:
    """A membership; `find` where nothing is said. Making one waits until all processes have come.

    Every call is one that all processes make, in the same order; an error of one is an error of all, and every later call
    answers with it. Calls wait without the interpreter's lock.
    """

    def __init__(self, rank=0, size=0, identity=None, token=None):
        self._lock = threading.Lock()
        self._host = None
        self._job = ctypes.c_void_p()
        options = _Options(struct_size=ctypes.sizeof(_Options), rank=rank, size=size)
        if identity is not None:
            options.id, options.id_length = identity, len(identity)
            options.token, options.token_length = token, len(token)
        call("weft_job_join", ctypes.byref(options), ctypes.byref(self._job))

    def _through(self, function, value, *arguments):
        out = ctypes.c_void_p()
        call(function, self._job, ctypes.c_void_p(value.handle), *map(ctypes.c_int32, arguments), ctypes.byref(out))
        return C.adopt(out.value, value.device)

    def all_reduce(self, value, reduction):
        return self._through("weft_job_all_reduce", value, reduction)

    def all_gather(self, value):
        """Values of all processes behind each other, along the first dimension."""
        return self._through("weft_job_all_gather", value)

    def reduce_scatter(self, value, reduction):
        """The part of the reduction that this process has, along the first dimension."""
        return self._through("weft_job_reduce_scatter", value, reduction)

    def all_to_all(self, value):
        """Part k of the result is this process's part of the value of process k."""
        return self._through("weft_job_all_to_all", value)

    def broadcast(self, value, root):
        return self._through("weft_job_broadcast", value, root)

    def barrier(self):
        call("weft_job_barrier", self._job)

    def _gather_rows(self, data, size):
        """Equally many bytes of each process."""
        if self._host is None:
            self._host = _host_context()
        given, gathered = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            call("weft_tensor_from_host", self._host, None, _U8, (ctypes.c_int64 * 1)(len(data)), _SIZE(1), data,
                 _SIZE(len(data)), ctypes.byref(given))
            call("weft_job_all_gather", self._job, given, ctypes.byref(gathered))
            out = ctypes.create_string_buffer(size * len(data))
            call("weft_tensor_to_host", gathered, out, _SIZE(len(out)))
        finally:
            library.weft_tensor_release(given)
            library.weft_tensor_release(gathered)
        return [out.raw[at:at + len(data)] for at in range(0, size * len(data), len(data))]

    def gather_bytes(self, data, size):
        """What each of `size` processes gave, of any length, by rank."""
        with self._lock:
            lengths = [int.from_bytes(row, "little") for row in self._gather_rows(len(data).to_bytes(8, "little"), size)]
            longest = max(lengths)
            if longest == 0:
                return [b""] * size
            rows = self._gather_rows(bytes(data).ljust(longest, b"\0"), size)
        return [row[:length] for row, length in zip(rows, lengths)]

    def release(self):
        """Leaves without waiting: who still waits for this process hears that it has left."""
        job, self._job = self._job, ctypes.c_void_p()
        library.weft_job_release(job)
        host, self._host = self._host, None
        if host is not None:
            library.weft_context_release(host)
