"""mapping.py's entries for what nobody fixes: draws, whose numbers are each generator's own (tests/ops/numpy_draws.py judges their distributions), and
tensors that are not filled. Shapes and types are compared."""
import torch

from mapping import NAMES, Refused, maps


def unfilled(t, s):
    t.no_values = True
    x = s.result
    return t.op("full", shape=list(x.shape), value=0.0, dtype=NAMES[x.dtype])


@maps("empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty", "empty_permuted")
def empty(t, s):
    return unfilled(t, s)


def drawn(t, s, name, *operands, **attrs):
    t.no_values = True
    x = s.result
    if not x.is_floating_point():
        raise Refused("dtype")
    return t.op(name, *operands, **attrs)


@maps("randn", "randn_like", "normal/number_mean", "normal/in_place")
def randn(t, s):
    return drawn(t, s, "normal", shape=list(s.result.shape), dtype=NAMES[s.result.dtype])


@maps("rand_like", "uniform")
def rand(t, s):
    return drawn(t, s, "uniform", shape=list(s.result.shape), dtype=NAMES[s.result.dtype])


@maps("scalar_tensor", "zero_")
def scalar(t, s):
    x = s.result
    value = complex(s.input) if s.name == "scalar_tensor" else 0j
    part = {"imaginary": value.imag} if x.is_complex() else {}
    if not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool and not torch.iinfo(x.dtype).min <= value.real <= torch.iinfo(x.dtype).max:
        raise Refused("out of range")
    value = float(bool(value)) if x.dtype == torch.bool else value.real
    return t.op("full", shape=list(x.shape), value=value, dtype=NAMES[x.dtype], **part)


@maps("item")
def item(t, s):
    return t.convert(t.op("reshape", t(s.input), shape=[]), s.result.dtype)


@maps("equal")
def equal(t, s):
    if s.input.shape != s.args[0].shape:
        raise Refused("other shapes")
    return t.op("all", t.op("eq", t(s.input), t(s.args[0])))
