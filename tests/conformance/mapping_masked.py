"""mapping.py's entries for PyTorch's reductions and normalisations of what a mask leaves: the operations of the same names of elements that are
neutral where it is false. See there."""
import math

import torch

from mapping import Refused, argument, axes_of, maps


def operand(t, s, neutral, dtype=None):
    """The input in the result's type, `neutral` where the mask is false; the mask as a value, None without one."""
    x, mask = t(s.input, dtype), s.kwargs.get("mask")
    if mask is None:
        return x, None
    mask = t(mask.expand(s.input.shape).contiguous())
    return t.op("where", mask, x, t(neutral, dtype or s.input.dtype)), mask


def computed(s):
    """16-bit floats go on in f32, so that they round once; integers as what PyTorch makes of them."""
    dtype = s.kwargs.get("dtype") or s.result.dtype
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def count(t, s, mask, dtype, dims, keepdims):
    ones = t.op("full", shape=list(s.input.shape), value=1.0, dtype="f32" if dtype not in (torch.float64, torch.complex128) else "f64")
    ones = ones if mask is None else t.op("where", mask, ones, t(0, torch.float64 if ones.dtype == "f64" else torch.float32))
    return t.convert(t.op("sum", ones, dims=dims, keepdims=keepdims), dtype)


@maps("masked.cumsum", "masked.cumprod", sums=True)
def running(t, s):
    x, _ = operand(t, s, float(s.name.endswith("prod")), s.result.dtype)
    x = x if s.input.ndim else t.op("reshape", x, shape=[1])
    y = t.op(s.name.split(".")[1], x, axis=int(s.args[0]) % max(1, s.input.ndim))
    return y if s.input.ndim else t.op("reshape", y, shape=[])


@maps("masked.argmax", "masked.argmin")
def place(t, s):
    least = s.name.endswith("argmax")
    dtype = s.input.dtype
    if dtype.is_floating_point:
        worst = -math.inf if least else math.inf
    else:
        worst = torch.iinfo(dtype).min if least else torch.iinfo(dtype).max
    x, _ = operand(t, s, worst)
    dim = argument(s, 0, "dim")
    flat = dim is None or s.input.ndim == 0
    y = t.op(s.name.split(".")[1], t.op("reshape", x, shape=[s.input.numel()]) if flat else x, axis=0 if flat else dim % s.input.ndim,
             keepdims=bool(s.kwargs.get("keepdim")) and not flat)
    return t.convert(t.op("reshape", y, shape=list(s.result.shape)), s.result.dtype)


@maps("masked.mean", "masked.var", "masked.std", sums=True)
def moments(t, s):
    name, dims, keep, dtype = s.name.split(".")[1], axes_of(s), bool(s.kwargs.get("keepdim")), computed(s)
    t.no_gradient = True  # PyTorch's of rows without any element are not ours: 0 / 0
    x, mask = operand(t, s, 0, dtype)
    n = count(t, s, mask, dtype, dims, True)
    mean = t.op("div", t.op("sum", x, dims=dims, keepdims=True), n)
    if name != "mean":
        off = t.op("sub", x, mean)
        off = off if mask is None else t.op("where", mask, off, t(0, dtype))
        correction = s.kwargs.get("correction", float(s.kwargs.get("unbiased", True)))
        part = {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype, dtype)
        left = t.op("maximum", t.op("sub", t.convert(n, part), t(float(1 if correction is None else correction), part)), t(0, part))
        squares = t.op("square", off if part == dtype else t.op("abs", off))
        mean = t.op("div", t.op("sum", squares, dims=dims, keepdims=True), left)
        mean = mean if name == "var" else t.op("sqrt", mean)
    return t.convert(t.op("reshape", mean, shape=list(s.result.shape)), s.result.dtype)


@maps("masked.median", sums=True)
def median(t, s):
    t.no_gradient = True  # equal elements
    x, _ = operand(t, s, math.nan)
    dim = argument(s, 0, "dim")
    values = t.op("nanmedian", x if dim is not None else t.op("reshape", x, shape=[s.input.numel()]), axis=0 if dim is None else dim % max(1, s.input.ndim),
                  keepdims=bool(s.kwargs.get("keepdim")))[0]
    return values


@maps("masked.norm", "masked.normalize", sums=True)
def norm(t, s):
    p, dim = float(argument(s, 0, "ord", 2)), argument(s, 1, "dim")
    worst = math.inf if p < 0 and s.kwargs.get("mask") is not None else 0
    dims = None if dim is None else [d % max(1, s.input.ndim) for d in ([dim] if isinstance(dim, int) else dim)] if s.input.ndim else None
    part = {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(computed(s), computed(s))
    if s.input.is_complex() and worst:
        raise Refused("complex")
    x, _ = operand(t, s, worst, torch.promote_types(part, s.input.dtype) if s.input.is_complex() else part)
    size = t.op("norm", x, p=p, dims=dims or None, keepdims=s.name == "masked.normalize" or bool(s.kwargs.get("keepdim")))
    if s.name == "masked.norm":
        return t.convert(size, s.result.dtype)
    size = t.op("maximum", size, t(float(s.kwargs.get("eps", 1e-12)), part))
    return t.convert(t.op("div", x, t.convert(size, x.dtype)), s.result.dtype)


@maps("masked.softmax", "masked.log_softmax", "masked.softmin", sums=True)
def softmax(t, s):
    dtype, name = computed(s), s.name.split(".")[1]
    t.no_gradient = s.kwargs.get("mask") is not None  # of rows without any element
    x, _ = operand(t, s, -math.inf if name != "softmin" else math.inf, dtype)
    return t.convert(t.op(name, x, axis=int(s.args[0]) % max(1, s.input.ndim)), s.result.dtype)


@maps("masked.logsumexp", sums=True)
def logsumexp(t, s):
    """PyTorch's of integers is cut off; the least one stands for what is masked."""
    whole = not s.result.is_floating_point() and not s.result.is_complex()
    x, _ = operand(t, s, torch.iinfo(s.input.dtype).min if whole else -math.inf, s.input.dtype if whole else computed(s))
    x = t.convert(x, torch.float32) if whole else x
    t.no_gradient = s.kwargs.get("mask") is not None
    return t.convert(t.op("logsumexp", x, dims=axes_of(s), keepdims=bool(s.kwargs.get("keepdim"))), s.result.dtype)


@maps("masked.logaddexp")
def logaddexp(t, s):
    dtype = computed(s)
    t.no_gradient = True
    masks = [s.kwargs.get("input_mask"), s.kwargs.get("other_mask")]
    parts = [t(x, dtype) if m is None else t.op("where", t(m.expand(x.shape).contiguous()), t(x, dtype), t(-math.inf, dtype)) for x, m in zip((s.input, s.args[0]), masks)]
    return t.convert(t.op("logaddexp", *parts), s.result.dtype)
