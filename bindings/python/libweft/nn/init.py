"""First values of parameters. Each takes a shape whose last two sizes are inputs and outputs, and what stands in front a
window."""

import math

from .. import _call, _ops
from .._errors import InvalidArgument
from .._more import ones, zeros  # noqa: F401


def fans(shape):
    """How many inputs and outputs an element of a weight connects."""
    if len(shape) < 2:
        return (shape[0] if shape else 1,) * 2
    window = math.prod(shape[:-2])
    return shape[-2] * window, shape[-1] * window


def uniform(shape, low=-1.0, high=1.0, dtype="f32"):
    return _ops.uniform(tuple(shape), low=low, high=high, dtype=dtype)


def normal(shape, deviation=0.02, mean=0.0, dtype="f32"):
    return _ops.normal(tuple(shape), mean=mean, deviation=deviation, dtype=dtype)


def xavier_uniform(shape, gain=1.0, dtype="f32"):
    """Glorot and Bengio (2010)."""
    bound = gain * math.sqrt(6.0 / sum(fans(shape)))
    return uniform(shape, -bound, bound, dtype)


def xavier_normal(shape, gain=1.0, dtype="f32"):
    return normal(shape, gain * math.sqrt(2.0 / sum(fans(shape))), dtype=dtype)


def kaiming_uniform(shape, gain=math.sqrt(2.0), dtype="f32"):
    """He et al. (2015); the gain is that of the activation behind, by default of relu."""
    bound = gain * math.sqrt(3.0 / fans(shape)[0])
    return uniform(shape, -bound, bound, dtype)


def kaiming_normal(shape, gain=math.sqrt(2.0), dtype="f32"):
    return normal(shape, gain / math.sqrt(fans(shape)[0]), dtype=dtype)


def lecun_uniform(shape, dtype="f32"):
    """From -1/sqrt(inputs) to 1/sqrt(inputs), as PyTorch's layers begin."""
    bound = 1.0 / math.sqrt(fans(shape)[0])
    return uniform(shape, -bound, bound, dtype)


def truncated_normal(shape, deviation=1.0, mean=0.0, low=-2.0, high=2.0, dtype="f32"):
    """A normal distribution cut off at mean + low * deviation and mean + high * deviation, by the inverse of its integral."""
    low, high = (_call.doubles(v, "truncated_normal", n).value for v, n in ((low, "low"), (high, "high")))
    if not low < high:
        raise InvalidArgument("truncated_normal: low is %r and high %r; low must be below high" % (low, high))
    ends = [math.erf(v / math.sqrt(2.0)) for v in (low, high)]
    wide = "f64" if dtype == "f64" else "f32"
    unit = _ops.erf_inv(_ops.uniform(tuple(shape), low=ends[0], high=ends[1], dtype=wide)) * math.sqrt(2.0)
    return (_ops.clip(unit, low, high) * deviation + mean).astype(dtype)


def orthogonal(shape, gain=1.0, dtype="f32"):
    """Rows or columns at right angles, of length `gain` (Saxe et al. 2014); what stands in front of the last two sizes is a window.

    A normal matrix times the inverse of the Cholesky factor of its products, in f64, twice, so that rounding is gone.
    """
    if len(shape) < 2:
        raise InvalidArgument("orthogonal: shape is %r; it must have at least two sizes" % (tuple(shape),))
    rows, columns = math.prod(shape[:-1]), shape[-1]
    tall = rows >= columns
    q = _ops.normal((rows, columns) if tall else (columns, rows), dtype="f64")
    for _ in range(2):
        factor = _ops.cholesky(_ops.matmul(_ops.transpose(q, (1, 0)), q), lower=True)
        q = _ops.triangular_solve(factor, _ops.transpose(q, (1, 0)), left_side=True, lower=True)
        q = _ops.transpose(q, (1, 0))
    q = q if tall else _ops.transpose(q, (1, 0))
    return _ops.reshape(q * gain, tuple(shape)).astype(dtype)
