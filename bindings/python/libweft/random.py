"""Random numbers of this thread's context. They are drawn when the program runs; the state moves on by itself."""

import ctypes

from . import _call, _ops
from ._call import byref, check, now, quick
from ._context import seed, start
from ._convert import tensor
from ._errors import InvalidArgument, named_functions
from ._more import shape_of
from ._ops import (
    bernoulli,
    bernoulli_of,
    beta,
    binomial,
    categorical,
    cauchy,
    dirichlet,
    dropout,
    exponential,
    gamma,
    geometric,
    gumbel,
    laplace,
    log_normal,
    multinomial,
    normal_of,
    poisson,
    truncated_normal,
)

_get = quick("weft_random_get_state")
_set = quick("weft_random_set_state")

__all__ = [
    "bernoulli",
    "bernoulli_of",
    "beta",
    "binomial",
    "categorical",
    "cauchy",
    "dirichlet",
    "dropout",
    "exponential",
    "gamma",
    "geometric",
    "get_state",
    "gumbel",
    "laplace",
    "log_normal",
    "multinomial",
    "normal",
    "normal_of",
    "permutation",
    "poisson",
    "randint",
    "seed",
    "set_state",
    "shuffle",
    "truncated_normal",
    "uniform",
]


def uniform(shape=(), low=0.0, high=1.0, dtype="f32", device=None):
    """Numbers from low to high, which is not among them.

    >>> wf.random.uniform((2, 3)).shape
    (2, 3)
    """
    return _ops.uniform(shape_of(shape), low=low, high=high, dtype=dtype, device=device)


def normal(shape=(), mean=0.0, deviation=1.0, dtype="f32", device=None):
    """Normally distributed numbers."""
    return _ops.normal(shape_of(shape), mean=mean, deviation=deviation, dtype=dtype, device=device)


def randint(low, high=None, shape=(), dtype="i32"):
    """Whole numbers from low to high - 1."""
    if high is None:
        low, high = 0, low
    low, high = _call.whole(low, "randint", "low"), _call.whole(high, "randint", "high")
    if high <= low:
        raise InvalidArgument("randint: no whole number is from %d to %d" % (low, high - 1))
    return _ops.randint(shape_of(shape), low, high, dtype="i64").astype(dtype)


def permutation(x):
    """The numbers below x, or the rows of a tensor, in random order."""
    rows = None if isinstance(x, int) else x if hasattr(x, "_h") else tensor(x)
    count = x if rows is None else rows.shape[0]
    order = _ops.randperm(count)
    return order if rows is None else _ops.take(rows, order)


def shuffle(x):
    """The rows of a tensor in random order, in place."""
    x.assign(permutation(x))


def get_state():
    """(key, low, high): where the stream is."""
    out = [ctypes.c_uint64() for _ in range(3)]
    check(_get(now.context or start(), *map(byref, out)))
    return tuple(v.value for v in out)


def set_state(state):
    """Goes on from a state that get_state gave."""
    check(_set(now.context or start(), *[ctypes.c_uint64(v) for v in state]))


named_functions(globals(), __all__)
