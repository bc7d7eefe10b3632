"""Values of Python, NumPy and DLPack become tensors."""

import ctypes
import math
import struct
from array import array
from sys import _getframe as _frame

from . import _call, _device
from ._call import Handle, bind, byref, c_double, c_int64, c_size_t, c_void_p, check, done, now, quick
from ._dtypes import BY_NAME, dtype as dtype_of
from ._errors import InvalidArgument, InvalidType
from ._wait import blocking

_from_host = bind("weft_tensor_from_host")
_from_f64 = quick("weft_tensor_from_f64")
_from_i64 = quick("weft_tensor_from_i64")
_from_u64 = quick("weft_tensor_from_u64")
_constant_like = quick("weft_tensor_constant_like")
_argument_like = quick("weft_tensor_argument_like")
_from_dlpack = bind("weft_tensor_from_dlpack")
_from_dlpack_legacy = bind("weft_tensor_from_dlpack_legacy")
_f32, _i64, _bool, _c64 = BY_NAME["f32"], BY_NAME["i64"], BY_NAME["bool"], BY_NAME["c64"]
_BY_LETTER = {d.letter: d for d in BY_NAME.values() if d.letter}
_BY_LETTER.update(
    {
        "l": BY_NAME["i64"],
        "L": BY_NAME["u64"],
        "n": BY_NAME["i64"],
        "N": BY_NAME["u64"],
        "Zf": BY_NAME["c64"],
        "Zd": BY_NAME["c128"],
    }
)


def _context():
    return now.body or now.context or _call.start()


def from_bytes(data, shape, dtype, device=None):
    """A tensor of dense row-major bytes: an object with the buffer's interface, or an address and a size."""
    where, size = data if isinstance(data, tuple) else (data, len(data))
    handle = Handle()
    dims = struct.pack("%dq" % len(shape), *shape)
    _call.mark()
    check(
        blocking(
            _from_host,
            _context(),
            _device.chosen(device),
            dtype.number,
            dims,
            c_size_t(len(shape)),
            where,
            c_size_t(size),
            byref(handle),
        )
    )
    return done(handle)


def scalar(value, dtype):
    """A scalar of a type, which other values later compile nothing new for."""
    handle = Handle()
    if dtype.is_complex:
        letters = "2f" if dtype.bits == 64 else "2d"
        return from_bytes(struct.pack(letters, complex(value).real, complex(value).imag), (), dtype)
    if dtype.is_float and type(value) is int and not -(2**63) <= value < 2**64:
        try:
            value = float(value)
        except OverflowError:
            _too_large(value, dtype)
    if isinstance(value, (bool, int)):
        value = int(value)
        check(
            _from_i64(_context(), dtype.number, c_int64(value), byref(handle))
            if -(2**63) <= value < 2**63
            else _from_u64(_context(), dtype.number, ctypes.c_uint64(value), byref(handle))
            if 0 <= value < 2**64
            else _too_large(value, dtype)
        )
    else:
        if not dtype.is_float:
            raise InvalidType("the number %r is none of type %s" % (value, dtype))
        check(_from_f64(_context(), dtype.number, c_double(value), byref(handle)))
    return done(handle)


def _too_large(value, dtype):
    raise InvalidArgument("%d is beyond what %s holds" % (value, dtype))


def argument(value, dtype):
    """A number that is passed when the program runs: others later compile nothing new."""
    return scalar(value, dtype_of(dtype))


_numbers, _CHANGED = _call.NUMBERS, _call.CHANGED


def beside(like, value):
    """The tensor for a number beside one: of its type where that can hold it.

    A number is part of the program, so that it folds, until the same place of the code is met with another number: from
    then on
    it is passed when the program runs, and compiles nothing new."""
    dtype = like.dtype
    if type(value) is not float or not dtype.is_float:
        made = _beside_other(dtype, value)
        if made is not None:
            return made
    frame = _frame(2)
    while frame is not None and frame.f_code.co_filename.startswith(_call.PACKAGE):
        frame = frame.f_back
    changed = frame is not None and now.body is None and _has_changed((id(frame.f_code), frame.f_lasti), value)
    if changed and dtype.is_complex:
        return scalar(value, dtype)
    handle = Handle()
    error = (_argument_like if changed else _constant_like)(like._h, c_double(value), byref(handle))
    if error:
        raise _call.error_of(error)
    return done(handle)


def _beside_other(dtype, value):
    """The tensor for a number that is no float beside a float, or None where the type of the other operand takes it."""
    if isinstance(value, complex):
        return scalar(value, dtype if dtype.is_complex else BY_NAME["c128"] if dtype.bits == 64 and dtype.is_float else _c64)
    if isinstance(value, float) and not (dtype.is_float or dtype.is_complex):
        return scalar(value, _f32)
    if not isinstance(value, bool) and dtype == "bool":
        return scalar(value, _i64)
    if isinstance(value, int) and not -(2**53) <= value <= 2**53:
        return scalar(value, dtype)
    return None


def _has_changed(place, value):
    """True if another number was met at a place of the program, now or before."""
    before = _numbers.get(place)
    if before is _CHANGED:
        return True
    if before is None:
        if len(_numbers) > 100_000:
            _numbers.clear()
        _numbers[place] = value
        return False
    if before == value and (value or str(before) == str(value)):  # 0.0 and -0.0 are two numbers.
        return False
    _numbers[place] = _CHANGED
    return True



def tensor(data, dtype=None, device=None):
    """A tensor of a number, a list, an array, or anything with DLPack's or the buffer's interface. The values are copied.

    Numbers of Python become f32, i64, bool and c64.

    >>> wf.tensor([[1, 2], [3, 4.5]]).shape
    (2, 2)
    """
    wanted = None if dtype is None else dtype_of(dtype)
    if isinstance(data, _call.Tensor):
        made = data.copy() if device is None else data.to(device)
    elif isinstance(data, (bool, int, float, complex)):
        if wanted is None:
            wanted = (
                _bool
                if isinstance(data, bool)
                else _i64
                if isinstance(data, int)
                else _f32
                if isinstance(data, float)
                else _c64
            )
        if isinstance(data, (float, complex)) and not (wanted.is_float or wanted.is_complex):
            if wanted.is_integer and not math.isfinite(data if isinstance(data, float) else abs(data)):
                raise InvalidArgument("the number %r is none of type %s" % (data, wanted))
            return scalar(data, _c64 if isinstance(data, complex) else BY_NAME["f64"]).astype(wanted)
        made = scalar(data, wanted)
        return made if device is None else made.to(device)
    elif hasattr(data, "__array_interface__"):
        made = _from_array_interface(data, device)
    elif hasattr(data, "__dlpack__"):
        made = from_dlpack(data).copy()
    elif isinstance(data, (bytes, bytearray, memoryview, array)) or _has_buffer(data):
        made = _from_buffer(data, device)
    elif hasattr(data, "__array__"):
        made = _from_array_interface(data.__array__(), device)
    elif isinstance(data, (list, tuple, range)):
        return _from_list(data, wanted, device)
    elif hasattr(data, "__index__"):
        return scalar(data.__index__(), wanted or _i64)
    elif hasattr(data, "__float__"):
        return scalar(float(data), wanted or _f32)
    else:
        raise InvalidType(
            "%s cannot become a tensor: give a number, a list, an array, or an object with __dlpack__ or a buffer"
            % type(data).__name__
        )
    return made if wanted is None else made.astype(wanted)


def _has_buffer(data):
    try:
        memoryview(data).release()
    except TypeError:
        return False
    return True


def _from_array_interface(data, device):
    """NumPy's arrays, without importing NumPy."""
    if data.dtype.byteorder == ">":
        data = data.astype(data.dtype.newbyteorder("="))
    if data.dtype.kind == "O":
        return _from_list(data.tolist(), None, device)
    kind = dtype_of(data.dtype.name)
    shape = tuple(data.shape)
    if not data.flags.c_contiguous:
        data = data.copy(order="C")
    where = data.__array_interface__["data"][0]
    return from_bytes((c_void_p(where), data.nbytes), shape, kind, device)


def _from_buffer(data, device):
    view = memoryview(data)
    kind = _BY_LETTER.get("B" if view.format == "c" else view.format.lstrip("@=<"))
    if kind is None:
        raise InvalidType("elements of the buffer's format %r are of no type of Weft" % view.format)
    raw = view.tobytes()
    return from_bytes(raw, tuple(view.shape), kind, device)


def _from_list(data, wanted, device):
    """Nested lists of numbers and tensors."""
    shape, leaves = [], data
    while isinstance(leaves, (list, tuple, range)):
        shape.append(len(leaves))
        leaves = leaves[0] if len(leaves) else None
    flat = []
    _flatten(data, shape, 0, flat)
    if any(isinstance(v, _call.Tensor) or hasattr(v, "__array_interface__") for v in flat):
        from . import _ops

        if len(shape) == 1:
            made = _ops.stack([tensor(v) for v in flat])
        else:
            made = _ops.stack([_from_list(v, None, device) for v in data])
        return made if wanted is None else made.astype(wanted)
    kind = wanted or _kind_of(flat)
    if kind.is_complex:
        pairs = [part for v in flat for part in (complex(v).real, complex(v).imag)]
        raw = array("f" if kind.bits == 64 else "d", pairs)
    elif kind.letter is None:
        return _from_list(data, _f32, device).astype(kind)
    else:
        try:
            raw = struct.pack(
                "%d%s" % (len(flat), kind.letter), *(flat if kind.is_float or kind == "bool" else map(_whole, flat))
            )
        except (struct.error, OverflowError, ValueError, AttributeError) as error:
            raise InvalidArgument("a number of the list is none of type %s: %s" % (kind, error)) from None
    return from_bytes(bytes(raw), tuple(shape), kind, device)


def _whole(value):
    return int(value) if isinstance(value, float) else value.__index__()


def _flatten(data, shape, depth, out):
    if depth == len(shape):
        if isinstance(data, (list, tuple, range)):
            raise InvalidArgument("the lists have different depths")
        if not (isinstance(data, (bool, int, float, complex, _call.Tensor)) or hasattr(data, "__float__")):
            raise InvalidType("%r in a list is no number" % (data,))
        out.append(data)
        return
    if not isinstance(data, (list, tuple, range)) or len(data) != shape[depth]:
        raise InvalidArgument(
            "the lists of dimension %d have different lengths: %d and %s"
            % (depth, shape[depth], len(data) if hasattr(data, "__len__") else "a number")
        )
    for item in data:
        _flatten(item, shape, depth + 1, out)


def _kind_of(flat):
    kinds = {type(v) for v in flat}
    if not kinds:
        return _f32
    if kinds <= {bool}:
        return _bool
    if any(issubclass(k, complex) for k in kinds):
        return _c64
    return _i64 if all(issubclass(k, int) or (hasattr(k, "__index__") and not issubclass(k, float)) for k in kinds) else _f32


_call._beside, _call._tensor = beside, tensor

_capsule_name = ctypes.pythonapi.PyCapsule_IsValid
_capsule_name.argtypes, _capsule_name.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [ctypes.py_object, ctypes.c_char_p], c_void_p
_capsule_rename = ctypes.pythonapi.PyCapsule_SetName
_capsule_rename.argtypes, _capsule_rename.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int


def from_dlpack(data):
    """A tensor of an array of another library on the host, whose memory it shares where alignment and strides allow."""
    if isinstance(data, _call.Tensor):
        return data.copy()
    if type(data).__name__ == "PyCapsule":
        capsule = data
    elif hasattr(data, "__dlpack__"):
        try:
            capsule = data.__dlpack__(max_version=(1, 0))
        except TypeError:
            capsule = data.__dlpack__()
    else:
        raise InvalidType("%s has no __dlpack__" % type(data).__name__)
    handle = Handle()
    for name, used, function in (
        (b"dltensor_versioned", b"used_dltensor_versioned", _from_dlpack),
        (b"dltensor", b"used_dltensor", _from_dlpack_legacy),
    ):
        if _capsule_name(capsule, name):
            check(blocking(function, _context(), c_void_p(_capsule_pointer(capsule, name)), byref(handle)))
            _capsule_rename(capsule, used)
            return done(handle)
    raise InvalidArgument("the capsule is no DLPack tensor, or it was used already")
