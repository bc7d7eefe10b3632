"""Elementwise operations that are more than one of Weft's, or that take numbers."""

import torch

from . import runtime
from .factory import converted, dtype_number, number
from .index import common_values, device_of, on_device, value_of
from .nn import like, turned
from .reduce import count_of
from .runtime import BOOL, C, COMPLEX, DTYPES, F32, FLOATS
from .table import lower

op = C.op


def _bound(value, self, dtype):
    if isinstance(value, torch.Tensor) and value.device.type == "xla":
        return converted(C.read(value), dtype)
    return number(value, dtype, self.device.index)


@lower("clamp", "clamp.Tensor")
def clamp(self, min=None, max=None):  # noqa: A002
    dtype = self.dtype
    for bound in (min, max):
        if bound is not None:
            dtype = torch.result_type(
                torch.empty((1,) * self.dim(), dtype=dtype, device="meta"),
                bound if not isinstance(bound, torch.Tensor) else bound.to("meta"),
            )
    x = converted(C.read(self), dtype_number(dtype))
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if min is not None:
        x = op("maximum", x, _bound(min, self, x.dtype))
    if max is not None:
        x = op("minimum", x, _bound(max, self, x.dtype))
    return C.wrap(x)


@lower("clamp_min", "clamp_min.Tensor")
def clamp_min(self, min):  # noqa: A002
    return clamp(self, min, None)


@lower("clamp_max", "clamp_max.Tensor")
def clamp_max(self, max):  # noqa: A002
    return clamp(self, None, max)


@lower("pow.Tensor_Scalar")
def pow_scalar(self, exponent):
    x = converted(C.read(self), dtype_number(torch.result_type(self, exponent)))
    if exponent == 2:
        return C.wrap(op("mul", x, x))
    if exponent == 1:
        return C.wrap(op("reshape", x, shape=tuple(x.shape)))
    if x.dtype in FLOATS and exponent in (0.5, -0.5, 3, -1, -2):
        if exponent == 3:
            return C.wrap(op("mul", op("mul", x, x), x))
        if exponent in (0.5, -0.5):
            return C.wrap(op("sqrt" if exponent == 0.5 else "rsqrt", x))
        return C.wrap(op("div", like(1.0, x), x if exponent == -1 else op("mul", x, x)))
    if x.dtype not in FLOATS + COMPLEX and exponent < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    return C.wrap(op("pow", x, number(exponent, x.dtype, x.device)))


@lower("reciprocal")
def reciprocal(self):
    x = C.read(self)
    x = x if x.dtype in FLOATS + COMPLEX else converted(x, F32)
    return C.wrap(op("div", number(1.0, x.dtype, x.device), x))


@lower("log10")
def log10(self):
    x = C.read(self)
    x = x if x.dtype in FLOATS + COMPLEX else converted(x, F32)
    return C.wrap(op("mul", op("log2", x), like(0.30102999566398119521, x)))


def _truth(tensor):
    return converted(C.read(tensor), BOOL)


@lower("logical_not")
def logical_not(self):
    return C.wrap(op("bitwise_not", _truth(self)))


def _logical(name):
    def function(self, other):
        x, y = (converted(value, BOOL) for value in _either(self, other))
        return C.wrap(op(name, x, y))

    return function


def _either(self, other):
    place = device_of(self, other)
    return [C.read(t) if on_device(t) else number(t, BOOL, place) for t in (self, other)]


lower("logical_and")(_logical("bitwise_and"))
lower("logical_or")(_logical("bitwise_or"))
lower("logical_xor")(_logical("bitwise_xor"))


@lower("isnan")
def isnan(self):
    x = C.read(self)
    return C.wrap(op("ne", x, x))


@lower("isfinite")
def isfinite(self):
    x = C.read(self)
    if x.dtype in COMPLEX:
        return C.wrap(op("bitwise_and", op("is_finite", op("real", x)), op("is_finite", op("imag", x))))
    return C.wrap(op("is_finite", x) if x.dtype in FLOATS else op("eq", x, x))


@lower("isinf")
def isinf(self):
    x = C.read(self)
    if x.dtype not in FLOATS:
        return C.wrap(op("ne", x, x))
    return C.wrap(op("eq", op("abs", x), like(float("inf"), x)))


@lower("signbit")
def signbit(self):
    x = C.read(self)
    if x.dtype in FLOATS:
        bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[runtime.TORCH_DTYPES[x.dtype].itemsize]
        x = op("bitcast_convert", x, dtype=DTYPES[bits])
    return C.wrap(op("lt", x, like(0, x)))


def _floored(x, y):
    """Division rounded down: torch's floor of the quotient, made exact by the remainder."""
    if x.dtype in FLOATS:
        rest = op("rem", x, y)
        quotient = op("div", op("sub", x, rest), y)
        below = op(
            "bitwise_and", op("ne", rest, like(0.0, x)), op("ne", op("lt", y, like(0.0, y)), op("lt", rest, like(0.0, x)))
        )
        quotient = op("where", below, op("sub", quotient, like(1.0, x)), quotient)
        whole = op("floor", quotient)
        whole = op("where", op("gt", op("sub", quotient, whole), like(0.5, x)), op("add", whole, like(1.0, x)), whole)
        return op("where", op("eq", y, like(0.0, y)), op("div", x, y), whole)
    quotient = op("div", x, y)
    rest = op("rem", x, y)
    apart = op("bitwise_and", op("ne", rest, like(0, x)), op("ne", op("lt", y, like(0, y)), op("lt", rest, like(0, x))))
    return op("sub", quotient, converted(apart, x.dtype))


def _divided(self, other, mode):
    x, y = common_values(self, other)
    if mode is None:
        x, y = (v if v.dtype in FLOATS + COMPLEX else converted(v, F32) for v in (x, y))
        return C.wrap(op("div", x, y))
    if mode == "floor":
        return C.wrap(_floored(x, y))
    out = op("div", x, y)
    return C.wrap(op("trunc", out) if x.dtype in FLOATS else out)


@lower("div.Tensor_mode")
def div_mode(self, other, *, rounding_mode=None):
    return _divided(self, other, rounding_mode)


@lower("floor_divide")
def floor_divide(self, other):
    return _divided(self, other, "floor")


@lower("remainder.Tensor")
def remainder(self, other):
    x, y = common_values(self, other)
    rest = op("rem", x, y)
    zero = like(0, x)
    apart = op("bitwise_and", op("ne", rest, zero), op("ne", op("lt", rest, zero), op("lt", y, zero)))
    return C.wrap(op("where", apart, op("add", rest, y), rest))


@lower("remainder.Scalar_Tensor")
def remainder_of_number(self, other):
    return remainder(self, other)


@lower("fmax")
def fmax(self, other):
    x, y = common_values(self, other)
    return C.wrap(op("where", op("ne", y, y), x, op("where", op("ne", x, x), y, op("maximum", x, y))))


@lower("fmin")
def fmin(self, other):
    x, y = common_values(self, other)
    return C.wrap(op("where", op("ne", y, y), x, op("where", op("ne", x, x), y, op("minimum", x, y))))


def _with_number(name):
    def function(self, other):
        dtype = dtype_number(torch.result_type(self, other))
        return C.wrap(op(name, converted(C.read(self), dtype), number(other, dtype, self.device.index)))

    return function


for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    lower(_name + ".Scalar")(_with_number(_name))


@lower("lerp.Tensor")
def lerp_tensor(self, end, weight):
    x, y = common_values(self, end)
    w = value_of(weight, x.dtype, x.device)
    difference = op("sub", y, x)
    near = op("add", x, op("mul", w, difference))
    far = op("sub", y, op("mul", difference, op("sub", like(1.0, w), w)))
    return C.wrap(op("where", op("lt", op("abs", w), like(0.5, w)), near, far))


@lower("complex")
def complex_(real, imag):
    return C.wrap(op("complex", C.read(real), C.read(imag)))


@lower("_conj_physical")
def conj_physical(self):
    x = C.read(self)
    return C.wrap(op("conj", x) if x.dtype in COMPLEX else op("reshape", x, shape=tuple(x.shape)))


@lower("sign")
def sign(self):
    x = C.read(self)
    if x.dtype == BOOL:
        return C.wrap(op("reshape", x, shape=tuple(x.shape)))
    zero = like(0, x)
    return C.wrap(op("sub", converted(op("gt", x, zero), x.dtype), converted(op("lt", x, zero), x.dtype)))


@lower("sgn")
def sgn(self):
    return C.wrap(op("sign", C.read(self))) if self.is_complex() else sign(self)


@lower("log_sigmoid_forward")
def log_sigmoid_forward(self):
    x = C.read(self)
    low = op("minimum", x, like(0.0, x))
    return C.wrap(op("sub", low, op("log1p", op("exp", op("neg", op("abs", x)))))), C.empty(x.dtype, [0], x.device)


@lower("log_sigmoid_backward")
def log_sigmoid_backward(grad_output, self, buffer):
    g, x = C.read(grad_output), C.read(self)
    return C.wrap(op("mul", g, op("sigmoid", op("neg", x))))


@lower("cholesky")
def cholesky(self, upper=False):
    lower_ = op("cholesky", C.read(self), lower=True)
    if upper:
        lower_ = turned(lower_)
    return C.wrap(lower_)


@lower("linalg_solve_triangular")
def solve_triangular(self, B, *, upper, left=True, unitriangular=False):
    return C.wrap(
        op(
            "triangular_solve",
            C.read(self),
            C.read(B),
            left_side=bool(left),
            lower=not upper,
            unit_diagonal=bool(unitriangular),
        )
    )


def _composed(function):
    """A function of one float value, computed in f32 where the tensor's type is narrower."""

    def kernel(self):
        x = C.read(self)
        dtype = x.dtype if x.dtype in FLOATS + COMPLEX else F32
        wide = converted(x, F32 if dtype in (runtime.F16, runtime.BF16) else dtype)
        return C.wrap(converted(function(wide), dtype))

    return kernel


def _outside_one(x):
    """sqrt(1 - x^2) without cancellation beside 1."""
    one = like(1.0, x)
    return op("sqrt", op("mul", op("sub", one, x), op("add", one, x)))


# Functions that older libraries lack (register.py prefers the library's own).
@lower("asin")
@_composed
def asin(x):
    return op("atan2", x, _outside_one(x))


@lower("acos")
@_composed
def acos(x):
    return op("atan2", _outside_one(x), x)


@lower("atan")
@_composed
def atan(x):
    return op("atan2", x, like(1.0, x))


@lower("sinh")
@_composed
def sinh(x):
    half = like(0.5, x)
    size = op("abs", x)
    grown = op("expm1", size)
    small = op("mul", half, op("add", grown, op("div", grown, op("add", grown, like(1.0, x)))))
    large = op("square", op("mul", op("exp", op("mul", half, size)), like(0.7071067811865476, x)))
    return op("mul", op("sign", x), op("where", op("gt", size, like(80.0, x)), large, small))


@lower("cosh")
@_composed
def cosh(x):
    half = like(0.5, x)
    grown = op("exp", op("mul", half, op("abs", x)))
    return op("add", op("mul", op("mul", half, grown), grown), op("div", op("div", half, grown), grown))


@lower("asinh")
@_composed
def asinh(x):
    size = op("abs", x)
    square = op("square", size)
    near = op(
        "log1p", op("add", size, op("div", square, op("add", like(1.0, x), op("sqrt", op("add", square, like(1.0, x))))))
    )
    far = op("add", op("log", size), like(0.6931471805599453, x))
    return op("mul", op("sign", x), op("where", op("gt", size, like(1e8, x)), far, near))


@lower("acosh")
@_composed
def acosh(x):
    over = op("sub", x, like(1.0, x))
    near = op("log1p", op("add", over, op("sqrt", op("mul", over, op("add", x, like(1.0, x))))))
    far = op("add", op("log", x), like(0.6931471805599453, x))
    return op("where", op("gt", x, like(1e8, x)), far, near)


@lower("atanh")
@_composed
def atanh(x):
    size = op("abs", x)
    ratio = op("div", op("add", size, size), op("sub", like(1.0, x), size))
    return op("mul", op("sign", x), op("mul", like(0.5, x), op("log1p", ratio)))


@lower("hypot")
def hypot(self, other):
    x, y = (op("abs", value) for value in common_values(self, other))
    large, small = op("maximum", x, y), op("minimum", x, y)
    ratio = op("div", small, large)
    out = op("mul", large, op("sqrt", op("add", like(1.0, x), op("square", ratio))))
    out = op("where", op("eq", small, like(0.0, x)), large, out)
    infinite = op("bitwise_or", op("eq", x, like(float("inf"), x)), op("eq", y, like(float("inf"), x)))
    return C.wrap(op("where", infinite, like(float("inf"), x), out))


@lower("angle")
def angle(self):
    x = C.read(self)
    if x.dtype in COMPLEX:
        return C.wrap(op("atan2", op("imag", x), op("real", x)))
    x = x if x.dtype in FLOATS else converted(x, F32)
    out = op("where", op("lt", x, like(0.0, x)), like(3.141592653589793, x), like(0.0, x))
    return C.wrap(op("where", op("ne", x, x), x, out))


@lower("view_as_real")
def view_as_real(self):
    part = torch.float32 if self.dtype == torch.complex64 else torch.float64
    return torch.ops.aten.view.dtype(torch.ops.aten.unsqueeze(self, -1), part)


@lower("view_as_complex")
def view_as_complex(self):
    if self.dim() == 0 or self.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    whole = torch.complex64 if self.dtype == torch.float32 else torch.complex128
    return torch.ops.aten.squeeze.dim(torch.ops.aten.view.dtype(self, whole), -1)


def _transform(self, dim, kind, last=None):
    """A Fourier transform of some axes, one after the other."""
    x = C.read(self)
    for axis in dim:
        order = [d for d in range(x.ndim) if d != axis] + [axis]
        moved = op("transpose", x, permutation=tuple(order)) if axis != x.ndim - 1 else x
        length = last if last is not None else moved.shape[-1]
        moved = op("fft", moved, fft_type=kind, fft_length=(length,))
        back = [0] * x.ndim
        for place, d in enumerate(order):
            back[d] = place
        x = op("transpose", moved, permutation=tuple(back)) if axis != x.ndim - 1 else moved
    return x


def _scaled(x, count, normalization, inverse):
    """torch's normalisation: 0 none, 1 by the square root, 2 by the count; Weft's inverse divides by the count."""
    factor = {0: 1.0, 1: count**-0.5, 2: 1.0 / count}[normalization] * (count if inverse else 1.0)
    return x if factor == 1.0 else op("mul", x, number(factor, x.dtype, x.device))


@lower("_fft_c2c")
def fft_c2c(self, dim, normalization, forward):
    if len(dim) == 0:
        return C.wrap(op("reshape", C.read(self), shape=tuple(self.shape)))
    out = _transform(self, [d % self.dim() for d in dim], "FFT" if forward else "IFFT")
    return C.wrap(_scaled(out, count_of(self.shape, dim), normalization, not forward))


@lower("_fft_r2c")
def fft_r2c(self, dim, normalization, onesided):
    if not onesided:
        whole = DTYPES[torch.complex64 if self.dtype == torch.float32 else torch.complex128]
        return fft_c2c(C.wrap(converted(C.read(self), whole)), dim, normalization, True)
    axes = [d % self.dim() for d in dim]
    out = C.wrap(_transform(self, [axes[-1]], "RFFT"))
    value = _transform(out, axes[:-1], "FFT") if len(axes) > 1 else C.read(out)
    return C.wrap(_scaled(value, count_of(self.shape, dim), normalization, False))


@lower("_fft_c2r")
def fft_c2r(self, dim, normalization, last_dim_size):
    axes = [d % self.dim() for d in dim]
    value = C.wrap(_transform(self, axes[:-1], "IFFT")) if len(axes) > 1 else self
    out = _transform(value, [axes[-1]], "IRFFT", last_dim_size)
    count = count_of(self.shape, axes[:-1]) * last_dim_size
    return C.wrap(_scaled(out, count, normalization, True))


@lower("frexp.Tensor")
def frexp(self):
    mantissa, exponent = op("frexp", C.read(self))
    return C.wrap(mantissa), C.wrap(converted(exponent, runtime.I32))
