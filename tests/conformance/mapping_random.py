"""mapping.py's entries for what nobody fixes: draws, whose numbers are each generator's own (tests/ops/numpy_draws.py judges their distributions), and
tensors that are not filled. Shapes and types are compared."""
import torch

from mapping import NAMES, argument, maps
from mapping_sequences import typed


def unfilled(t, s):
    t.no_values = True
    x = s.result
    return t.op("full", shape=list(x.shape), value=0.0, dtype=NAMES[x.dtype])


@maps("empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty", "empty_permuted")
def empty(t, s):
    return unfilled(t, s)


def drawn(t, s, name, *operands, **attrs):
    """A complex draw is one of each part."""
    t.no_values, x = True, s.result
    given = {**attrs, "shape": list(x.shape), "dtype": NAMES[x.real.dtype if x.is_complex() else x.dtype]}
    draw = lambda: t.op(name, *operands, **given)
    return t.op("complex", draw(), draw()) if x.is_complex() else draw()


@maps("randn", "randn_like", "normal/number_mean", "normal/in_place")
def randn(t, s):
    return drawn(t, s, "normal")


@maps("rand_like", "uniform")
def rand(t, s):
    return drawn(t, s, "uniform")


@maps("randint", "randint_like")
def randint(t, s):
    t.no_values, ends = True, [a for a in (s.input, *s.args) if isinstance(a, int)]
    draw = t.op("randint", shape=list(s.result.shape), low=0 if len(ends) < 2 else ends[0], high=ends[-1], dtype="i32")
    return t.convert(draw, s.result.dtype)


@maps("exponential", "cauchy", "log_normal", "geometric", "bernoulli")
def with_parameters(t, s):
    t.no_values, shape = True, list(s.result.shape)
    numbers = [float(a) for a in s.args if isinstance(a, (int, float)) and not isinstance(a, bool)]
    default = {"exponential": [1.0], "cauchy": [0.0, 1.0], "log_normal": [1.0, 2.0], "geometric": [0.5]}.get(s.name, [])
    numbers = [*numbers, *default[len(numbers):]]
    if s.name == "bernoulli":
        return t.convert(typed(t.op("bernoulli", shape=shape, probability=0.5), "i1"), s.result.dtype)
    return t.convert(t.op(s.name, *[t(n, torch.float32) for n in numbers], shape=shape), s.result.dtype)


@maps("normal")
def normal(t, s):
    return drawn(t, s, "normal")


@maps("multinomial")
def multinomial(t, s):
    t.no_values = True
    places = t.op("multinomial", t(s.input.detach()), count=int(s.args[0]), replacement=bool(argument(s, 1, "replacement", False)))
    return typed(places, "i32")


@maps("scalar_tensor", "zero_")
def scalar(t, s):
    x = s.result
    value = complex(s.input) if s.name == "scalar_tensor" else 0j
    part = {"imaginary": value.imag} if x.is_complex() else {}
    value = float(bool(value)) if x.dtype == torch.bool else value.real % 256 if x.dtype == torch.uint8 else value.real
    return t.op("full", shape=list(x.shape), value=value, dtype=NAMES[x.dtype], **part)


@maps("item")
def item(t, s):
    return t.convert(t.op("reshape", t(s.input), shape=[]), s.result.dtype)


@maps("equal")
def equal(t, s):
    if s.input.shape != s.args[0].shape:
        return t.op("full", shape=[], value=0.0, dtype="i1")
    return t.op("all", t.op("eq", t(s.input), t(s.args[0])))
