"""The Python array API standard's names over tensors: what `x.__array_namespace__()` gives. What is missing is missing by
name."""

import math as _math

from . import _complex, _numpy, _ops
from ._convert import from_dlpack as _from_dlpack, tensor as _tensor
from ._dtypes import BY_NAME as _D, dtype as _dtype, promoted as _promoted
from ._errors import InvalidArgument as _Invalid, OutOfRange as _OutOfRange
from ._index import broadcast_shape as _broadcast_shape
from ._more import (
    argwhere as _argwhere,
    as_tensor as _as,
    common as _common,
    concat,
    eye as _eye,
    full_like as _full_like,
    moveaxis,  # noqa: F401
    stack,
    unique as _unique,
    unstack as _unstack,
)
from ._numpy import meshgrid  # noqa: F401
from ._tensor import Tensor as _Tensor, power as _power

VERSIONS = ("2022.12", "2023.12", "2024.12")
__array_api_version__ = "2023.12"
pi, e, inf, nan, newaxis = _math.pi, _math.e, _math.inf, _math.nan, None
float32, float64, complex64, complex128 = _D["f32"], _D["f64"], _D["c64"], _D["c128"]
int8, int16, int32, int64 = (_D["i%d" % n] for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (_D["u%d" % n] for n in (8, 16, 32, 64))
bool = _D["bool"]
_KINDS = {
    "bool": ("bool",),
    "signed integer": ("signed integer",),
    "unsigned integer": ("unsigned integer",),
    "integral": ("signed integer", "unsigned integer"),
    "real floating": ("float",),
    "complex floating": ("complex",),
    "numeric": ("signed integer", "unsigned integer", "float", "complex"),
}

# Operations of one name and meaning.
_SAME = (
    "add",
    "asin",
    "atan",
    "atan2",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "exp",
    "floor_divide",
    "hypot",
    "imag",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "nextafter",
    "real",
    "reciprocal",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tril",
)
globals().update({_name: getattr(_ops, _name) for _name in _SAME})


def _also_complex(name):
    real, of_complex = getattr(_ops, name), getattr(_complex, name)

    def applied(x, /):
        return of_complex(x) if x.dtype.is_complex else real(x)

    return applied


for _name in ("acos", "acosh", "asinh", "atanh", "expm1", "tanh"):
    globals()[_name] = _also_complex(_name)
subtract, multiply, negative, remainder = _ops.sub, _ops.mul, _ops.neg, _ops.mod
equal, not_equal, less, less_equal, greater, greater_equal = _ops.eq, _ops.ne, _ops.lt, _ops.le, _ops.gt, _ops.ge
bitwise_invert, bitwise_left_shift = _ops.bitwise_not, _ops.shift_left


def _whole(x):
    return x.dtype.is_integer or x.dtype == "bool"


def _of_floats(operation, of_whole):
    """An operation of floats, which whole numbers answer by themselves and complex ones by their parts."""

    def applied(x, /):
        if _whole(x):
            return of_whole(x)
        if x.dtype.is_complex and operation in (_ops.is_nan, _ops.is_inf):
            return operation(x.real) | operation(x.imag)
        if x.dtype.is_complex and operation is _ops.is_finite:
            return operation(x.real) & operation(x.imag)
        if x.dtype.is_complex and operation is _ops.round:
            return _ops.complex(operation(x.real), operation(x.imag))
        return operation(x)

    return applied


def _itself(x):
    return x


isnan = _of_floats(_ops.is_nan, lambda x: _ops.full(x.shape, 0, dtype=bool))
isinf = _of_floats(_ops.is_inf, lambda x: _ops.full(x.shape, 0, dtype=bool))
isfinite = _of_floats(_ops.is_finite, lambda x: _ops.full(x.shape, 1, dtype=bool))
ceil, floor, round, trunc = (_of_floats(_o, _itself) for _o in (_ops.ceil, _ops.floor, _ops.round, _ops.trunc))


def abs(x, /):
    return x if x.dtype.kind == "unsigned integer" else _ops.abs(x)


def sign(x, /):
    if x.dtype.kind == "unsigned integer":
        return (x != 0).astype(x.dtype)
    return _ops.where(x == 0, _ops.full(x.shape, 0, dtype=x.dtype), _ops.sign(x))


def where(condition, x1, x2, /):
    tensors = [t for t in (x1, x2) if isinstance(t, _Tensor)]
    if len(tensors) == 2:
        x1, x2 = _common([x1, x2])
    return _ops.where(condition, x1, x2)


def from_dlpack(x, /, *, device=None, copy=None):
    made = _from_dlpack(x)
    return made if device is None else made.to(device)


def positive(x, /):
    return x


def divide(x1, x2, /):
    return _as(x1) / x2


def pow(x1, x2, /):
    return _power(x1, x2)


def bitwise_right_shift(x1, x2, /):
    return x1 >> x2


def clip(x, /, min=None, max=None):
    if min is not None:
        x = _ops.maximum(x, min)
    return x if max is None else _ops.minimum(x, max)


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    if isinstance(obj, _Tensor) and not copy:
        return obj if dtype is None else obj.astype(dtype)
    return _tensor(obj, dtype, device)


def astype(x, dtype, /, *, copy=True, device=None):
    return x.astype(dtype, copy=copy)


def _shape(shape):
    return (shape,) if hasattr(shape, "__index__") else tuple(shape)


def zeros(shape, *, dtype=None, device=None):
    return _ops.full(_shape(shape), 0, dtype=dtype or float32)


def ones(shape, *, dtype=None, device=None):
    return _ops.full(_shape(shape), 1, dtype=dtype or float32)


def full(shape, fill_value, *, dtype=None, device=None):
    if dtype is None:
        dtype = (
            bool
            if fill_value is True or fill_value is False
            else int64
            if isinstance(fill_value, int)
            else complex64
            if isinstance(fill_value, complex)
            else float32
        )
    if isinstance(fill_value, complex) or isinstance(fill_value, int) and abs_int(fill_value) > 2**53:
        return _ops.broadcast_to(_tensor(fill_value, dtype), _shape(shape))
    return _ops.full(_shape(shape), fill_value, dtype=dtype)


def abs_int(value):
    """The size of a whole number; `abs` is the operation here."""
    return value if value >= 0 else -value


empty = zeros


def zeros_like(x, /, *, dtype=None, device=None):
    return zeros(x.shape, dtype=dtype or x.dtype)


def ones_like(x, /, *, dtype=None, device=None):
    return ones(x.shape, dtype=dtype or x.dtype)


empty_like = zeros_like


def full_like(x, /, fill_value, *, dtype=None, device=None):
    return _full_like(x, fill_value, dtype)


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    from ._more import arange as made

    return made(start, stop, step, dtype)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    return _ops.linspace(start, stop, num, endpoint=endpoint, dtype=dtype or float32)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    return _eye(n_rows, n_cols, k, dtype or float32)


def triu(x, /, *, k=0):
    return _ops.triu(x, diagonal=k)


def tril(x, /, *, k=0):  # noqa: F811
    return _ops.tril(x, diagonal=k)


def can_cast(from_, to, /):
    source = from_.dtype if isinstance(from_, _Tensor) else _dtype(from_)
    return _promoted(source, _dtype(to)) is _dtype(to)


def result_type(*arrays_and_dtypes):
    kinds = [
        a.dtype if isinstance(a, _Tensor) else _dtype(a) for a in arrays_and_dtypes if not isinstance(a, (int, float, complex))
    ]
    out = kinds[0]
    for kind in kinds[1:]:
        out = _promoted(out, kind)
    return out


def isdtype(dtype, kind):
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return any_true(
        _dtype(dtype).kind in _KINDS[k]
        if isinstance(k, str) and k in _KINDS and not hasattr(k, "number")
        else _dtype(dtype) is _dtype(k)
        for k in kinds
    )


def any_true(values):
    """Python's any; `any` is the operation here."""
    for value in values:
        if value:
            return True
    return False


def broadcast_to(x, /, shape):
    return _ops.broadcast_to(x, shape)


def broadcast_arrays(*arrays):
    shape = _broadcast_shape([a.shape for a in arrays])
    return [_ops.broadcast_to(a, shape) for a in arrays]


def expand_dims(x, /, axis=0):
    axes = (axis,) if hasattr(axis, "__index__") else tuple(axis)
    rank = x.ndim + len(axes)
    if any_true(not -rank <= a < rank for a in axes):
        raise _OutOfRange("expand_dims: axis %s is out of range for %d axes" % (axis, rank))
    places, sizes = {a % rank for a in axes}, iter(x.shape)
    return x.reshape([1 if i in places else next(sizes) for i in range(rank)])


def squeeze(x, /, axis):
    return _ops.squeeze(x, dims=axis)


def flip(x, /, *, axis=None):
    return _numpy.flip(x, axis)


def permute_dims(x, /, axes):
    return x.transpose(*axes) if axes else x


def matrix_transpose(x, /):
    return x.mT


def reshape(x, /, shape, *, copy=None):
    return x.reshape(shape)


def roll(x, /, shift, *, axis=None):
    if axis is None:
        return _ops.roll(x.reshape(-1), shift, dims=[0]).reshape(x.shape)
    return _ops.roll(x, shift, dims=axis)


def repeat(x, repeats, /, *, axis=None):
    return _numpy.repeat(x, repeats, axis)


def tile(x, repetitions, /):
    return _ops.tile(
        x.reshape(*[1] * (len(repetitions) - x.ndim), *x.shape), [1] * (x.ndim - len(repetitions)) + list(repetitions)
    )


def unstack(x, /, *, axis=0):
    return _unstack(x, axis)


def take(x, indices, /, *, axis=None):
    if axis is None and x.ndim != 1:
        raise _Invalid("take: a tensor of %d axes needs an axis" % x.ndim)
    indices = _as(indices)
    length = x.shape[axis or 0]
    return _ops.take(x, _ops.where(_ops.lt(indices, 0), indices + length, indices), axis=axis or 0)


def _reduction(name):
    operation = getattr(_ops, name)

    def reduced(x, /, *, axis=None, keepdims=False, **more):
        return operation(x, dims=axis, keepdims=keepdims, **more)

    reduced.__name__ = name
    return reduced


max, min, mean = map(_reduction, ("max", "min", "mean"))


def _of_truths(name):
    reduced = _reduction(name)

    def of_numbers(x, /, *, axis=None, keepdims=False):
        return reduced(x if x.dtype == "bool" else x != 0, axis=axis, keepdims=keepdims)

    of_numbers.__name__ = name
    return of_numbers


all, any = map(_of_truths, ("all", "any"))


def _accumulated(x, dtype):
    if dtype is not None:
        return x.astype(dtype)
    if x.dtype == "bool" or x.dtype.kind == "signed integer":
        return x.astype(int64)
    return x.astype(uint64) if x.dtype.is_integer else x


def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    return _ops.sum(_accumulated(x, dtype), dims=axis, keepdims=keepdims)


def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    return _ops.prod(_accumulated(x, dtype), dims=axis, keepdims=keepdims)


def var(x, /, *, axis=None, correction=0, keepdims=False):
    return _ops.var(x, dims=axis, correction=int(correction), keepdims=keepdims)


def std(x, /, *, axis=None, correction=0, keepdims=False):
    return _ops.std(x, dims=axis, correction=int(correction), keepdims=keepdims)


def count_nonzero(x, /, *, axis=None, keepdims=False):
    return _ops.count_nonzero(x, dims=axis, keepdims=keepdims).astype(int64)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    out = _ops.cumsum(_accumulated(x, dtype), axis=0 if axis is None else axis)
    return _with_first(out, 0, axis) if include_initial else out


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    out = _ops.cumprod(_accumulated(x, dtype), axis=0 if axis is None else axis)
    return _with_first(out, 1, axis) if include_initial else out


def _with_first(x, value, axis):
    axis = (axis or 0) % x.ndim
    return concat([_ops.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), value, dtype=x.dtype), x], axis)


def _arg(operation):
    def found(x, /, *, axis=None, keepdims=False):
        if axis is None:
            out = operation(x.reshape(-1), axis=0, dtype="i64")
            return out.reshape([1] * x.ndim) if keepdims else out
        return operation(x, axis=axis, keepdims=keepdims, dtype="i64")

    return found


argmax, argmin = _arg(_ops.argmax), _arg(_ops.argmin)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    return _ops.sort(x, axis=axis, descending=descending)


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    return _ops.argsort(x, axis=axis, descending=descending).astype(int64)


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    if sorter is not None:
        x1 = _ops.take(x1, sorter)
    return _ops.searchsorted(x1, x2, right=side == "right").astype(int64)


def nonzero(x, /):
    if not x.shape:
        raise _Invalid("nonzero: a scalar has no positions")
    rows = _argwhere(x).astype(int64)
    return _unstack(rows, 1)


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    parts = [p for p in (prepend, x, append) if p is not None]
    return _ops.diff(concat(parts, axis) if len(parts) > 1 else x, n=n, axis=axis)


def _unique_flat(x):
    """wf.unique of all elements, each NaN by itself; complex numbers by the ranks of their parts, the real ones first."""
    x = x.reshape(-1)
    if not x.dtype.is_complex:
        return _unique(x, equal_nan=False)
    first, second = (_unique(part, equal_nan=False) for part in (x.real, x.imag))
    pairs = first[1].astype(int64) * second[0].shape[0] + second[1].astype(int64)
    _, inverse, counts, indices = _unique(pairs)
    return _ops.take(x, indices, axis=0), inverse, counts, indices


def unique_values(x, /):
    return _unique_flat(x)[0]


def unique_counts(x, /):
    found = _unique_flat(x)
    return _UniqueCounts(found[0], found[2].astype(int64))


def unique_inverse(x, /):
    found = _unique_flat(x)
    return _UniqueInverse(found[0], found[1].reshape(x.shape).astype(int64))


def unique_all(x, /):
    values, inverse, counts, indices = _unique_flat(x)
    return _UniqueAll(values, indices.astype(int64), inverse.reshape(x.shape).astype(int64), counts.astype(int64))


from ._call import results as _results  # noqa: E402

_UniqueCounts = _results("unique_counts", ("values", "counts"))
_UniqueInverse = _results("unique_inverse", ("values", "inverse_indices"))
_UniqueAll = _results("unique_all", ("values", "indices", "inverse_indices", "counts"))


def matmul(x1, x2, /):
    return _ops.matmul(*_common([x1, x2]))


def vecdot(x1, x2, /, *, axis=-1):
    x1, x2 = _common([x1, x2])
    if x1.shape[axis] != x2.shape[axis]:
        raise _Invalid("vecdot: axis %d has %d elements here and %d there" % (axis, x1.shape[axis], x2.shape[axis]))
    return _ops.sum(_ops.conj(x1) * x2 if x1.dtype.is_complex else x1 * x2, dims=axis)


def tensordot(x1, x2, /, *, axes=2):
    x1, x2 = _common([x1, x2])
    left, right = (
        (list(range(x1.ndim - axes, x1.ndim)), list(range(axes)))
        if isinstance(axes, int)
        else ([a % x1.ndim for a in axes[0]], [a % x2.ndim for a in axes[1]])
    )
    return _ops.dot_general(
        x1,
        x2,
        lhs_batching_dimensions=[],
        rhs_batching_dimensions=[],
        lhs_contracting_dimensions=left,
        rhs_contracting_dimensions=right,
    )


class finfo:
    """The range of a float type."""

    _BITS = {"f16": (10, 15), "bf16": (7, 127), "f32": (23, 127), "f64": (52, 1023)}

    def __init__(self, kind, /):
        kind = kind.dtype if isinstance(kind, _Tensor) else _dtype(kind)
        if kind.is_complex:
            kind = float32 if kind.bits == 64 else float64
        mantissa, exponent = self._BITS[str(kind)]
        self.bits, self.dtype, self.eps = kind.bits, kind, 2.0**-mantissa
        self.max, self.smallest_normal = (2.0 - self.eps) * 2.0**exponent, 2.0 ** (1 - exponent)
        self.min = -self.max


class iinfo:
    """The range of an integer type."""

    def __init__(self, kind, /):
        self.dtype = kind = kind.dtype if isinstance(kind, _Tensor) else _dtype(kind)
        self.bits, signed = kind.bits, kind.kind.startswith("signed")
        self.min, self.max = (-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1) if signed else (0, 2**kind.bits - 1)


def take_along_axis(x, indices, /, *, axis=-1):
    axis %= x.ndim
    length = x.shape[axis]
    indices = _ops.where(_ops.lt(indices, 0), indices + length, indices).astype(int64)
    shape = _broadcast_shape(
        [x.shape[:axis] + (1,) + x.shape[axis + 1 :], indices.shape[:axis] + (1,) + indices.shape[axis + 1 :]]
    )
    x = _ops.broadcast_to(x, shape[:axis] + (length,) + shape[axis + 1 :])
    indices = _ops.broadcast_to(indices, shape[:axis] + (indices.shape[axis],) + shape[axis + 1 :])
    places = [_ops.iota(indices.shape, n, dtype="i64") if n != axis else indices for n in range(x.ndim)]
    return x[tuple(places)]


def isin(x1, x2, /, *, invert=False):
    x1, x2 = _common([_as(x1), _as(x2)])
    found = _ops.isin(x1, x2.reshape(-1))
    return ~found if invert else found


class __array_namespace_info__:
    """This namespace says here what it can do."""

    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}

    def default_device(self):
        from ._context import devices

        return devices()[0]

    def devices(self):
        from ._context import devices

        return devices()

    def default_dtypes(self, *, device=None):
        return {"real floating": float32, "complex floating": complex64, "integral": int64, "indexing": int64}

    def dtypes(self, *, device=None, kind=None):
        names = {
            "bool": bool,
            **{"int%d" % n: _D["i%d" % n] for n in (8, 16, 32, 64)},
            **{"uint%d" % n: _D["u%d" % n] for n in (8, 16, 32, 64)},
            "float32": float32,
            "float64": float64,
            "complex64": complex64,
            "complex128": complex128,
        }
        return {n: d for n, d in names.items() if kind is None or isdtype(d, kind)}


def __getattr__(name):
    if name not in ("fft", "linalg"):
        raise AttributeError("libweft.array_api has no %r" % name)
    import importlib

    globals()[name] = importlib.import_module("libweft." + name)
    return globals()[name]
