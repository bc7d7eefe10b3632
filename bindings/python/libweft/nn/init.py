"""First values of parameters. Each takes a shape whose last two sizes are inputs and outputs, and what stands in front a
window."""

import math

from .. import _ops
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
