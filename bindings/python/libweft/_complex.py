"""Functions of complex numbers from real operations, with the values that the array API standard gives at zeros, infinities
and NaN, which the library's own do not give everywhere. Sources: Kahan, Branch Cuts for Complex Elementary Functions (1987);
C23, annex G."""

import math

from . import _ops


def _times(a, b):
    """a * b in which a zero makes zero of anything, an infinity or NaN, too."""
    return _ops.where((a == 0) | (b == 0), _ops.where(a == 0, a * _ops.sign(_number(b)), b * _ops.sign(_number(a))), a * b)


def _number(x):
    """x with 1 in the place of NaN and zero, whose sign does not count."""
    return _ops.where((x == x) & (x != 0), x, _ones(x))


def _ones(x):
    return _ops.full(x.shape, 1.0, dtype=x.dtype)


def _constant(x, value):
    return _ops.full(x.shape, value, dtype=x.dtype)


def _infinite(x):
    return _ops.is_inf(x.real) | _ops.is_inf(x.imag)


def _choose(*rules):
    """The value of the first condition that holds: (condition, value), ..., the value of none."""
    *rules, out = rules
    for condition, value in reversed(rules):
        out = _ops.where(condition, value, out)
    return out


def _direction(x):
    return _ops.copysign(_constant(x, math.inf), x)


def expm1(z):
    a, b = z.real, z.imag
    half, lost = _ops.sin(b * 0.5), _ops.is_inf(a) & ~_ops.is_finite(b)
    real = _choose(
        (lost, _choose((a > 0, a), _constant(a, -1.0))), _times(_ops.expm1(a), _ops.cos(b)) - 2 * half * half
    )
    neither = _ops.is_finite(a) & ~_ops.is_finite(b), _constant(a, math.nan)  # also where exp(a) is 0
    imag = _choose((lost & (a < 0), _constant(a, 0.0)), neither, _times(_ops.exp(a), _ops.sin(b)))
    return _ops.complex(_choose((z == 0, _constant(a, 0.0)), real), imag)


def tanh(z):
    a, b = z.real, z.imag
    inside = _ops.tanh(z)
    neither = _ops.is_finite(a) & (a != 0) & ~_ops.is_finite(b), _constant(a, math.nan)
    real = _choose((_ops.is_inf(a), _ops.copysign(_ones(a), a)), neither, inside.real)
    imag = _choose((_ops.is_inf(a), _ops.copysign(_constant(b, 0.0), b)), (b == 0, b), neither, inside.imag)
    return _ops.complex(real, imag)


def acos(z):
    a, b = z.real, z.imag
    one = _ops.complex(_ones(a), _constant(a, 0.0))
    below, above = _ops.sqrt(one - z), _ops.sqrt(one + z)
    real = 2 * _ops.atan2(below.real, above.real)
    imag = _ops.asinh(above.real * below.imag - above.imag * below.real)
    far = _infinite(z)
    real = _choose((far, _ops.abs(_ops.atan2(b, a))), ((a == 0) & _ops.is_nan(b), _constant(a, math.pi / 2)), real)
    return _ops.complex(real, _choose((far, -_direction(b)), _ops.copysign(imag, -b)))


def acosh(z):
    turned = acos(z)
    return _ops.complex(_ops.abs(turned.imag), _ops.copysign(turned.real, z.imag))


def asinh(z):
    a, b = z.real, z.imag
    # -i asin(i z), of which the formulas are Kahan's.
    one, iz = _ops.complex(_ones(a), _constant(a, 0.0)), _ops.complex(-b, a)
    below, above = _ops.sqrt(one - iz), _ops.sqrt(one + iz)
    real = _ops.asinh(below.real * above.imag - below.imag * above.real)
    imag = -_ops.atan2(-b, below.real * above.real - below.imag * above.imag)
    far = _infinite(z)
    angle = _ops.copysign(_ops.atan2(_ops.abs(b), _ops.abs(a)), b)
    imag = _choose((far, angle), (_ops.is_nan(a) & (b == 0), b), _ops.copysign(imag, b))
    return _ops.complex(_choose((far, _direction(a)), _ops.copysign(real, a)), imag)


def atanh(z):
    a, b = z.real, z.imag
    far = _infinite(z)
    # With |a| nothing cancels; at |a| = 1 without b's square, which is lost where b is small.
    size, away = _ops.abs(a), 1 - _ops.abs(a)
    pole = _ops.log(2 / _ops.abs(b)) * 0.5
    small = (away == 0) & (_ops.abs(b) < 1e-4)
    real = _choose((small, pole), _ops.log1p(4 * size / (away * away + b * b)) * 0.25)
    real = _ops.copysign(real, a)
    imag = _ops.atan2(2 * b, (1 - a) * (1 + a) - b * b) * 0.5
    real = _choose((far, _ops.copysign(_constant(a, 0.0), a)), ((a == 0) & _ops.is_nan(b), a), real)
    quarter = _choose((_ops.is_nan(b), b), _ops.copysign(_constant(b, math.pi / 2), b))
    return _ops.complex(real, _choose((far, quarter), imag))
