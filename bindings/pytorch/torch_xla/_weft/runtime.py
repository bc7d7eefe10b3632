"""The C module, the context, and what is asked of the library seldom enough for ctypes."""
import atexit
import ctypes
import os
import pathlib
import threading

import torch

OLDEST = (2, 10)
REPETITION_NODES = 10_000  # the library's own is 1000
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
if VERSION < OLDEST or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    raise ImportError(f"torch_xla over Weft needs torch {OLDEST[0]}.{OLDEST[1]} or newer; this is torch {torch.__version__}")

_HERE = pathlib.Path(__file__).resolve().parent
if any(_HERE.parent.glob("_XLAC*.so")):
    raise ImportError("PyTorch/XLA itself is installed in the same place as torch_xla over Weft, and its files are among "
                      f"those of {_HERE.parent}: uninstall both, then install the one that is wanted")
_LIBRARY = pathlib.Path(os.environ.get("WEFT_LIBRARY", "") or _HERE / "libweft.so.1")

# Element types in Weft's numbers, which are DLPack's.
DTYPES = {
    torch.int8: 0x10800, torch.int16: 0x11000, torch.int32: 0x12000, torch.int64: 0x14000, torch.uint8: 0x10801,
    torch.uint16: 0x11001, torch.uint32: 0x12001, torch.uint64: 0x14001, torch.float16: 0x11002, torch.float32: 0x12002,
    torch.float64: 0x14002, torch.bfloat16: 0x11004, torch.complex64: 0x14005, torch.complex128: 0x18005,
    torch.bool: 0x10806, torch.float8_e4m3fn: 0x1080A, torch.float8_e4m3fnuz: 0x1080B, torch.float8_e5m2: 0x1080C,
    torch.float8_e5m2fnuz: 0x1080D}
TORCH_DTYPES = {number: dtype for dtype, number in DTYPES.items()}
F16, F32, F64, BF16 = (DTYPES[d] for d in (torch.float16, torch.float32, torch.float64, torch.bfloat16))
I32, I64, BOOL, U8 = (DTYPES[d] for d in (torch.int32, torch.int64, torch.bool, torch.uint8))
COMPLEX = (DTYPES[torch.complex64], DTYPES[torch.complex128])
FLOATS = (F16, F32, F64, BF16)

# torch's own numbers of its dtypes (c10/core/ScalarType.h), which its C interface speaks.
_TORCH_NUMBERS = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16, 23: torch.float8_e5m2,
    24: torch.float8_e4m3fn, 25: torch.float8_e5m2fnuz, 26: torch.float8_e4m3fnuz, 27: torch.uint16, 28: torch.uint32,
    29: torch.uint64}
_NUMBER_OF = {dtype: number for number, dtype in _TORCH_NUMBERS.items()}


def _result_number(a, b):
    return _NUMBER_OF.get(torch.result_type(a, b), 63)  # 63: no dtype of the device, which the kernel says


def _promotions():
    rows = [[0] * 64 for _ in range(64)]
    for i, a in _TORCH_NUMBERS.items():
        for j, b in _TORCH_NUMBERS.items():
            try:
                rows[i][j] = _NUMBER_OF[torch.promote_types(a, b)]
            except (RuntimeError, KeyError):
                rows[i][j] = 63  # no dtype: the kernel says so
    return rows


def _load():
    if not _LIBRARY.exists():
        raise ImportError(f"the library of Weft was looked for at {_LIBRARY} (variable WEFT_LIBRARY) and is not there")
    from . import _weft_torch as module
    major, minor = VERSION
    folder = pathlib.Path(torch.__file__).resolve().parent / "lib"
    module.load(str(_LIBRARY), str(folder / "libtorch_cpu.so"), (major << 56) | (minor << 48),
                torch.Tensor.__dlpack_c_exchange_api__, _result_number,
                [DTYPES[_TORCH_NUMBERS[i]] if i in _TORCH_NUMBERS else 0 for i in range(64)], _promotions())
    return module


C = _load()
library = ctypes.CDLL(str(_LIBRARY))
_lock = threading.RLock()
_options = {}
_random_state = []  # of a context that was ended, for the next
_addresses = []
_process = None


def configure(**options):
    """Options of the context by name, before the device is used."""
    with _lock:
        if context_made():
            raise RuntimeError("options of the device xla cannot change any more: the context is made with its first use")
        _options.update({name: str(int(value)) if isinstance(value, bool) else str(value) for name, value in options.items()})
        if _addresses and set(options) == {"seed"}:
            seed(options["seed"])
        elif _addresses:
            _drop("seed" not in options)


def context_made():
    """Whether the device was used, so that options cannot change any more. Counting the devices is no use of them."""
    return bool(_addresses) and C.used()


def _defaults():
    """Options that are others here than in the library, where the environment does not choose them."""
    # An optimizer's lists of tensors look like a loop, and a step that is cut inside is not replayed. PyTorch/XLA's programs say
    # where a step ends; a loop that does not is cut all the same, by its nodes.
    if "WEFT_REPETITION_NODES" in os.environ:
        return {}
    return {"repetition_nodes": str(REPETITION_NODES)}


def ensure():
    """Makes the context where there is none yet."""
    global _process
    if _addresses:
        return
    with _lock:
        if not _addresses:
            options = {**_defaults(), **_options}
            made = C.start(tuple(options), tuple(options.values()))
            if _process is None:
                atexit.register(_end)
            _process = os.getpid()
            _addresses.extend(made)
            if _random_state:
                set_random_state(*_random_state.pop())
            from . import positions
            positions.start()


def of_a_parent():
    """Whether the context is that of the process that this one was forked from, which cannot use it."""
    return bool(_addresses) and _process != os.getpid()


def _drop(keep_random_state):
    """Ends a context that nothing was computed in; the next use makes another."""
    if keep_random_state:
        _random_state[:] = [random_state()]
    _addresses.clear()
    C.stop()


def release_unused():
    """Ends a context that only counted the devices: a child cannot use its parent's, and some devices have one user."""
    if _process == os.getpid() and _addresses and not C.used():
        with _lock:
            _drop(True)


os.register_at_fork(before=release_unused)


def _end():
    if _process == os.getpid():
        C.stop()


def context():
    ensure()
    return ctypes.c_void_p(_addresses[0])


def device_address(index):
    ensure()
    if not 0 <= index < len(_addresses) - 1:
        raise RuntimeError(f"xla:{index} is no device: there {'is' if len(_addresses) == 2 else 'are'} {len(_addresses) - 1}")
    return ctypes.c_void_p(_addresses[1 + index])


def device_count():
    ensure()
    return len(_addresses) - 1


def index_of(device):
    """The number of a device given as text, number, torch.device or None, checked."""
    if device is None:
        index = current_device()
    elif isinstance(device, int):
        index = device
    else:
        device = torch.device(device)
        if device.type != "xla":
            raise RuntimeError(f"Expected an XLA device but got {device}")
        index = current_device() if device.index is None else device.index
    if not 0 <= index < device_count():
        device_address(index)
    return index


_current = threading.local()


def current_device():
    return getattr(_current, "index", 0)


def set_current_device(index):
    _current.index = index


class _Blob:
    """Text that the library gives, taken over."""

    def __init__(self):
        self.address = ctypes.c_void_p()

    def take(self):
        library.weft_blob_data.restype = ctypes.c_void_p
        library.weft_blob_size.restype = ctypes.c_size_t
        data = ctypes.string_at(library.weft_blob_data(self.address), library.weft_blob_size(self.address))
        library.weft_blob_release(self.address)
        return data.decode()


def call(name, *arguments):
    """A function of the library that returns an error."""
    function = getattr(library, name)
    function.restype = ctypes.c_void_p
    error = function(*arguments)
    if error:
        library.weft_error_message.restype = ctypes.c_char_p
        text = library.weft_error_message(ctypes.c_void_p(error), None).decode()
        library.weft_error_release(ctypes.c_void_p(error))
        raise RuntimeError(text)


def program_text(values, form):
    handles = (ctypes.c_void_p * len(values))(*(value.handle for value in values))
    blob = _Blob()
    call("weft_program_text", context(), handles, ctypes.c_size_t(len(values)), ctypes.c_int(form), ctypes.byref(blob.address))
    return blob.take()


def option(name):
    blob = _Blob()
    call("weft_context_option", context(), name.encode(), ctypes.c_size_t(len(name.encode())), ctypes.byref(blob.address))
    return blob.take()


def _text_of_device(function, index):
    text, length = ctypes.c_char_p(), ctypes.c_size_t()
    call(function, device_address(index), ctypes.byref(text), ctypes.byref(length))
    return text.value.decode()


def device_name(index):
    return _text_of_device("weft_device_name", index)


def device_description(index):
    return _text_of_device("weft_device_kind", index)


class _MemoryStats(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("next", ctypes.c_void_p), ("in_use", ctypes.c_uint64),
                ("peak", ctypes.c_uint64), ("limit", ctypes.c_uint64)]


def memory(index):
    stats = _MemoryStats(struct_size=ctypes.sizeof(_MemoryStats))
    call("weft_device_memory", device_address(index), ctypes.byref(stats))
    return stats.in_use, stats.peak, stats.limit


def seed(value):
    call("weft_random_seed", context(), ctypes.c_uint64(value & 0xFFFFFFFFFFFFFFFF))


def random_state():
    parts = [ctypes.c_uint64() for _ in range(3)]
    call("weft_random_get_state", context(), *(ctypes.byref(part) for part in parts))
    return tuple(part.value for part in parts)


def set_random_state(key, low, high):
    call("weft_random_set_state", context(), ctypes.c_uint64(key), ctypes.c_uint64(low), ctypes.c_uint64(high))
