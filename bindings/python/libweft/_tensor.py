"""Tensor: a value that may not be computed yet, with NumPy's operators and indexing."""

import ctypes
import math

from . import _call, _device, _fast, _ops, _wait
from ._call import Handle, bind, byref, c_double, c_int64, c_size_t, c_void_p, check, done, quick, struct_of
from ._dtypes import dtype as dtype_of, of_number
from ._errors import InvalidArgument, InvalidType, OutOfMemory, named, named_functions
from ._wait import blocking

_dtype = quick("weft_tensor_dtype")
_dims = quick("weft_tensor_dims")
_count = quick("weft_tensor_count")
_size = quick("weft_tensor_size")
_device_of = quick("weft_tensor_device")
_to_host = bind("weft_tensor_to_host")
_item_f64 = bind("weft_tensor_item_f64")
_item_i64 = bind("weft_tensor_item_i64")
_item_u64 = bind("weft_tensor_item_u64")
_to_string = bind("weft_tensor_to_string")
_keep = quick("weft_tensor_keep")
_copy = quick("weft_tensor_copy")
_copy_to = bind("weft_tensor_copy_to")
_assign = bind("weft_tensor_assign")
_copy_from = bind("weft_tensor_copy_from")
_require_grad = quick("weft_tensor_require_grad")
_to_dlpack = bind("weft_tensor_to_dlpack")
_to_dlpack_legacy = bind("weft_tensor_to_dlpack_legacy")
_Dims = c_int64 * 32
_print = {"threshold": None, "edge_items": None, "precision": None, "line_width": None}


def _read(tensor, function, *arguments):
    """A function of C that reads a tensor, and may compute and wait."""
    if _wait.patient() and _call.now.body is None:
        from ._context import begin_evaluation

        _wait.interruptible(begin_evaluation(tensor), _call.now.context or _call.start())
    return blocking(function, tensor._h, *arguments)


def _room(make, tensor, *values):
    """Memory for the elements of a tensor."""
    try:
        return make(*values)
    except (MemoryError, OverflowError):
        text = "%s%s has %d bytes, for which the host has no room" % (tensor.dtype, list(tensor.shape), tensor.nbytes)
    raise OutOfMemory(text)


def set_printoptions(threshold=None, edgeitems=None, precision=None, linewidth=None):
    """How tensors are written, as in NumPy; None: as it is without being told."""
    _print.update(threshold=threshold, edge_items=edgeitems, precision=precision, line_width=linewidth)


@_fast.tensor_class
class Tensor:
    """A value: recorded and not computed yet, or computed. Reading it (print, float, numpy) computes it.

    >>> x = wf.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> (x @ x.T + 1).sum().item()
    56.0
    """

    __slots__ = ("_h", "_type", "_shape", "__weakref__")
    __array_ufunc__ = None  # NumPy's operators leave an operation with a tensor to the tensor.
    __array_priority__ = 1000

    def __new__(cls, data=0.0, dtype=None, device=None):
        from ._convert import tensor

        made = tensor(data, dtype, device)
        if cls is not Tensor:
            self = object.__new__(cls)
            self._h = made._h
            return self
        return made

    # The kind of value: known at once, without computing.

    @property
    def dtype(self):
        try:
            return self._type
        except AttributeError:
            number = ctypes.c_uint32()
            check(_dtype(self._h, byref(number)))
            self._type = found = of_number(number.value)
            return found

    @property
    def shape(self):
        try:
            return self._shape
        except AttributeError:
            dims, rank = _Dims(), c_size_t()
            check(_dims(self._h, dims, c_size_t(32), byref(rank)))
            self._shape = found = tuple(dims[: rank.value])
            return found

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def itemsize(self):
        return self.dtype.itemsize

    @property
    def nbytes(self):
        out = ctypes.c_uint64()
        check(_size(self._h, byref(out)))
        return out.value

    @property
    def device(self):
        handle = _device.empty()
        check(_device_of(self._h, byref(handle)))
        return _device.adopt(handle)

    # Reading: computes what is needed, and waits.

    def item(self, *index):
        """The only element, or the one at an index, as a number of Python."""
        if index:
            return self[index if len(index) > 1 else index[0]].item()
        kind = self.dtype
        if kind.is_complex:
            return complex(*memoryview(self.tobytes()).cast("f" if kind.bits == 64 else "d"))
        out, function = (
            (ctypes.c_uint64(), _item_u64)
            if kind == "u64"
            else (c_int64(), _item_i64)
            if kind.is_integer or kind == "bool"
            else (c_double(), _item_f64)
        )
        check(_read(self, function, byref(out)))
        return bool(out.value) if kind == "bool" else out.value

    def tobytes(self):
        """The elements, dense and row-major."""
        size = self.nbytes
        data = _room(bytearray, self, size)
        if size:
            check(_read(self, _to_host, (ctypes.c_char * size).from_buffer(data), c_size_t(size)))
        return bytes(data)

    def tolist(self):
        """Nested lists of numbers, or one number."""
        if not self.shape:
            return self.item()
        kind = self.dtype
        if kind.letter is None and not kind.is_complex:
            return self.astype("f32").tolist()
        if kind.is_complex:
            parts = memoryview(self.tobytes()).cast("f" if kind.bits == 64 else "d").tolist()
            flat = [complex(a, b) for a, b in zip(parts[::2], parts[1::2])]
        else:
            raw = self.tobytes()
            import struct

            flat = list(struct.unpack("%d%s" % (self.size, kind.letter), raw))
        for length in reversed(self.shape[1:]):
            flat = [flat[i : i + length] for i in range(0, len(flat), length)] if length else []
        return flat if self.size else _empty_lists(self.shape)

    def numpy(self):
        """A NumPy array of its own."""
        import numpy

        out = _room(numpy.empty, self, self.shape, self.dtype.numpy)
        if out.nbytes:
            check(_read(self, _to_host, c_void_p(out.ctypes.data), c_size_t(out.nbytes)))
        return out

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("a tensor is copied to become a NumPy array: numpy.from_dlpack(x) shares its memory")
        out = self.numpy()
        return out if dtype is None else out.astype(dtype, copy=False)

    def __buffer__(self, flags):
        """The buffer's interface, which Python asks for from 3.12 on, and the accelerator on 3.11."""
        kind = self.dtype
        if kind.letter is None:
            raise BufferError("elements of type %s have no letter in a buffer" % kind)
        if not self.size:
            raise BufferError("a buffer without elements has no shape")  # NumPy then asks for __array__.
        return memoryview(self.tobytes()).cast(kind.letter, self.shape)

    def __dlpack_device__(self):
        return self.device.dlpack()

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if stream not in (None, -1, 0, 1):
            raise InvalidArgument("__dlpack__: the host has no streams, and %r was asked for" % (stream,))
        if dl_device is not None and tuple(map(int, dl_device)) != self.__dlpack_device__():
            raise BufferError("__dlpack__: the tensor is on device %r, not on %r" % (self.__dlpack_device__(), dl_device))
        new = max_version is not None and max_version[0] >= 1
        out = c_void_p()
        source = self
        if copy:
            from ._convert import from_bytes

            source = from_bytes(self.tobytes(), self.shape, self.dtype)
        check(blocking(_to_dlpack if new else _to_dlpack_legacy, source._h, byref(out)))
        return _capsule(out.value, new)

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __complex__(self):
        return complex(self.item())

    def __bool__(self):
        if self.size != 1:
            raise InvalidArgument(
                "the truth of a tensor of shape %s is not one value: use all() or any()" % (list(self.shape),)
            )
        return bool(self.item())

    def __index__(self):
        if not (self.dtype.is_integer or self.dtype == "bool") or self.shape:
            raise InvalidType("only a scalar of an integer type is an index; this is %s%s" % (self.dtype, list(self.shape)))
        return int(self.item())

    def __len__(self):
        if not self.shape:
            raise InvalidType("a scalar has no length")
        return self.shape[0]

    def __iter__(self):
        from ._more import unstack

        if not self.shape:
            raise InvalidType("a scalar cannot be iterated over")
        return iter(unstack(self, 0) if self.shape[0] else ())

    def __contains__(self, value):
        return bool((self == value).any())

    # Text.

    def _text(self):
        options = struct_of(
            "weft_print_options",
            **{k: v for k, v in _print.items() if v is not None},
            present=sum(
                bit for bit, key in ((1, "threshold"), (2, "precision"), (4, "line_width")) if _print[key] is not None
            ),
        )
        blob = c_void_p()
        check(_read(self, _to_string, options, byref(blob)))
        return _call.blob_text(blob)

    def __str__(self):
        if _call.now.body is not None:
            return repr(self)
        return self._text()

    def __repr__(self):
        if _call.now.body is not None:  # A traced value has none yet.
            return "tensor(traced, shape=%s, dtype=%s)" % (self.shape, self.dtype)
        lines = self._text().split("\n")
        inner = ("\n" + " " * 7).join(lines)
        return "tensor(%s, dtype=%s)" % (inner, self.dtype)

    def __format__(self, spec):
        return format(self.item(), spec) if spec else str(self)

    def _repr_html_(self):
        """How notebooks show it: type and shape above the values, of which a large tensor shows the edges."""
        import html

        head = "%s%s on %s" % (self.dtype, list(self.shape), self.device.name)
        return "<div><code>%s</code><pre>%s</pre></div>" % (html.escape(head), html.escape(self._text()))

    # Life.

    def keep(self):
        """The value survives the end of its step, so that it can be read afterwards."""
        check(_keep(self._h))
        return self

    def copy(self):
        """A second tensor of the value, at no cost; assignments to one leave the other as it is."""
        handle = Handle()
        check(_copy(self._h, byref(handle)))
        return done(handle)

    __copy__ = copy

    def __deepcopy__(self, memo):
        return self.copy()

    def __reduce__(self):
        return _unpickle, (type(self), self.tobytes(), self.shape, str(self.dtype))

    def to(self, device=None, dtype=None):
        """The value on a device (an object or a name), or in another type."""
        made = self
        if device is not None:
            place = device if isinstance(device, _device.Device) else _device.named(_call.now.context or _call.start(), device)
            handle = Handle()
            check(blocking(_copy_to, self._h, place._h, byref(handle)))
            made = done(handle)
        return made if dtype is None else made.astype(dtype)

    def astype(self, dtype, copy=False):
        """The value in another element type."""
        kind = dtype_of(dtype)
        if kind is self.dtype:
            return self.copy() if copy else self
        return _ops.convert(self, kind)

    def assign(self, value):
        """Takes over the value of a tensor of the same shape; gradients stop here."""
        check(_assign(self._h, self._like(value)._h))
        if _call.now.body is not None:
            _call.now.changed[id(self)] = self

    def copy_from(self, value):
        """assign() through which gradients flow."""
        check(_copy_from(self._h, self._like(value)._h))
        if _call.now.body is not None:
            _call.now.changed[id(self)] = self

    def _like(self, value):
        value = (
            value if isinstance(value, Tensor) else _call.operands("assign", (("x", "T"), ("value", "T")), (self, value))[1]
        )
        value = value.astype(self.dtype)
        return value if value.shape == self.shape else _ops.broadcast_to(value, self.shape)

    def require_grad(self, on=True):
        """Gradients may be asked for of what is recorded from here on."""
        check(_require_grad(self._h, 1 if on else 0))
        return self

    def detach(self):
        return _ops.stop_gradient(self)

    def eval(self):
        """Computes this tensor and waits for it."""
        from ._context import evaluate

        return evaluate(self)

    def __await__(self):
        from ._context import begin_evaluation

        async def value():
            await _wait.awaited(begin_evaluation(self))
            return self

        return value().__await__()

    # Shapes.

    def reshape(self, *shape):
        """The elements in another shape; one size may be -1."""
        if len(shape) == 1 and hasattr(shape[0], "__iter__"):
            shape = tuple(shape[0])
        return _ops.reshape(self, known_shape(shape, self.size, "reshape"))

    def transpose(self, *axes):
        """The axes in another order, by default turned around."""
        if len(axes) == 1 and hasattr(axes[0], "__iter__"):
            axes = tuple(axes[0])
        rank = self.ndim
        if not axes or axes == (None,):
            axes = range(rank - 1, -1, -1)
        axes = [_call.whole(a, "transpose", "axes") for a in axes]
        return _ops.transpose(self, [a + rank if a < 0 else a for a in axes])

    @property
    def T(self):
        return self.transpose()

    @property
    def mT(self):
        if self.ndim < 2:
            raise InvalidArgument("mT is of matrices, and this has shape %s" % (list(self.shape),))
        return _ops.transpose(self, [*range(self.ndim - 2), self.ndim - 1, self.ndim - 2])

    def ravel(self):
        return self.reshape(-1)

    @property
    def flat(self):
        """Goes over all elements."""
        return iter(self.ravel())

    def swapaxes(self, a, b):
        from ._more import swapaxes

        return swapaxes(self, a, b)

    def repeat(self, repeats, axis=None):
        from ._numpy import repeat

        return repeat(self, repeats, axis)

    def dot(self, other):
        from ._more import dot

        return dot(self, other)

    @property
    def real(self):
        return _ops.real(self) if self.dtype.is_complex else self

    @property
    def imag(self):
        return _ops.imag(self) if self.dtype.is_complex else self * 0

    def split(self, sizes, axis=0):
        from ._more import split

        return split(self, sizes, axis)

    # Indexing.

    def __getitem__(self, key):
        from ._index import get

        return get(self, key)

    def __setitem__(self, key, value):
        from ._index import put

        put(self, key, value)

    # Operators that are no operation of C as they stand; the others are set below.

    def __eq__(self, other):
        return NotImplemented if other is None or isinstance(other, str) else _ops.eq(self, other)

    def __ne__(self, other):
        return NotImplemented if other is None or isinstance(other, str) else _ops.ne(self, other)

    __hash__ = object.__hash__

    def __truediv__(self, other):
        return _ops.div(*_true(self, other))

    def __rtruediv__(self, other):
        return _ops.div(*_true(other, self))

    def __pow__(self, other):
        return power(self, other)

    def __rpow__(self, other):
        return power(other, self)

    def __pos__(self):
        return self

    def __abs__(self):
        return self if self.dtype.kind == "unsigned integer" or self.dtype == "bool" else _ops.abs(self)

    def __divmod__(self, other):
        return self // other, self % other

    def __round__(self, digits=None):
        return _ops.round(self) if digits is None else _ops.round_decimals(self, digits)

    def __rshift__(self, other):
        return (_ops.shift_right_logical if self.dtype.kind.startswith("unsigned") else _ops.shift_right_arithmetic)(
            self, other
        )

    def __array_namespace__(self, api_version=None):
        from . import array_api

        if api_version not in (None, *array_api.VERSIONS):
            raise InvalidArgument(
                "the array API %r is unknown here; there are %s" % (api_version, ", ".join(array_api.VERSIONS))
            )
        return array_api

    def to_device(self, device, /, *, stream=None):
        return self.to(device)


def _true(x, y):
    """Operands of `/`: of integers it is a division of floats."""
    kinds = [v.dtype for v in (x, y) if isinstance(v, Tensor)]
    if all(k.is_integer or k == "bool" for k in kinds):
        x, y = (v.astype("f32") if isinstance(v, Tensor) else v for v in (x, y))
    return x, y


def power(x, y):
    """x to the power of y; a whole number as exponent is multiplied out."""
    if isinstance(x, Tensor) and type(y) is int and -64 <= y <= 64 and x.dtype.is_float:
        return _ops.integer_pow(x, y)
    return _ops.pow(x, y)


def known_shape(shape, size, name):
    """A shape in which one size may be -1."""
    shape = [_call.whole(n, name, "shape") for n in shape]
    if shape.count(-1) > 1:
        raise InvalidArgument("%s: only one size may be -1, and the shape is %s" % (name, shape))
    if -1 in shape:
        rest = math.prod(n for n in shape if n != -1)
        if rest == 0 or size % rest:
            raise InvalidArgument("%s: %d elements do not fill the shape %s" % (name, size, shape))
        shape[shape.index(-1)] = size // rest
    return tuple(shape)


def _empty_lists(shape):
    if len(shape) == 1:
        return []
    return [_empty_lists(shape[1:]) for _ in range(shape[0])]


def _unpickle(cls, data, shape, kind):
    from ._convert import from_bytes

    made = from_bytes(data, tuple(shape), dtype_of(kind))
    return made if cls is Tensor else cls(made)


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [c_void_p, ctypes.c_char_p, c_void_p]
_DELETER = ctypes.CFUNCTYPE(None, c_void_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_is_valid = ctypes.pythonapi.PyCapsule_IsValid


_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
# The position of the deleter in the struct, in words: it stands behind version and owner, or behind the tensor's six words and the owner.
_DELETERS = ((b"dltensor_versioned", 2), (b"dltensor", 7))


def _dropped(capsule):
    """A capsule that nobody used goes: its tensor is given back."""
    for name, place in _DELETERS:
        if _is_valid(capsule, name):
            managed = _pointer(capsule, name)
            deleter = (c_void_p * 8).from_address(managed)[place]
            if deleter:
                _DELETER(deleter)(managed)


_capsule_end = ctypes.PYFUNCTYPE(None, c_void_p)(_dropped)


def _capsule(address, new):
    return _new_capsule(address, b"dltensor_versioned" if new else b"dltensor", ctypes.cast(_capsule_end, c_void_p))


def _reflected(operation):
    def operator(self, other):
        return operation(other, self)

    return operator


def _install_operators():
    for name, operation in (
        ("add", _ops.add),
        ("sub", _ops.sub),
        ("mul", _ops.mul),
        ("floordiv", _ops.floor_divide),
        ("mod", _ops.mod),
        ("and", _ops.bitwise_and),
        ("or", _ops.bitwise_or),
        ("xor", _ops.bitwise_xor),
        ("lshift", _ops.shift_left),
        ("matmul", _ops.matmul),
    ):
        setattr(Tensor, "__%s__" % name, operation)
        setattr(Tensor, "__r%s__" % name, _reflected(operation))
    for name, operation in (
        ("lt", _ops.lt),
        ("le", _ops.le),
        ("gt", _ops.gt),
        ("ge", _ops.ge),
        ("neg", _ops.neg),
        ("invert", _ops.bitwise_not),
    ):
        setattr(Tensor, "__%s__" % name, operation)


def _install():
    """Methods and operators that are operations of C as they stand: one frame of Python less for each."""
    if _fast.accelerator:
        _fast.install(_ops, Tensor)
    else:
        _install_operators()
    named_functions(vars(_ops), _ops.__all__)
    for name in _ops.METHODS:
        if name not in Tensor.__dict__:
            setattr(Tensor, name, getattr(_ops, name))
    for name in ("to", "astype"):
        setattr(Tensor, name, named(Tensor.__dict__[name]))
    _call.Tensor = Tensor


_install()


class Parameter(Tensor):
    """A tensor that training updates: gradients may be asked for, and its value survives steps.

    >>> w = wf.Parameter(wf.zeros((3,)))
    >>> w -= 0.5
    >>> w.tolist()
    [-0.5, -0.5, -0.5]
    """

    __slots__ = ("trainable", "__dict__")

    def __new__(cls, data, trainable=True, dtype=None):
        from ._convert import tensor

        source = data if isinstance(data, Tensor) and dtype is None else tensor(data, dtype)
        self = object.__new__(cls)
        handle = Handle()
        check(_copy(source._h, byref(handle)))
        self._h, self.trainable = handle, bool(trainable)
        if self.trainable and (self.dtype.is_float or self.dtype.is_complex):
            check(_require_grad(handle, 1))
        return self

    def __init__(self, *_, **__):
        pass

    def __deepcopy__(self, memo):
        return type(self)(self.detach().copy(), self.trainable)

    def __reduce__(self):
        return _unpickle, (type(self), self.tobytes(), self.shape, str(self.dtype))

    def __iadd__(self, other):
        self.assign(self + other)
        return self

    def __isub__(self, other):
        self.assign(self - other)
        return self

    def __imul__(self, other):
        self.assign(self * other)
        return self

    def __itruediv__(self, other):
        self.assign(self / other)
        return self

    def __repr__(self):
        return "Parameter(%s)" % Tensor.__repr__(self)


Parameter.__new__ = named(Parameter.__new__, "Parameter")
