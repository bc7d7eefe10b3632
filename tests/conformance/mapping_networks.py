"""The second half of mapping.py: PyTorch's products, convolutions, pools, normalisations, losses and attention in Weft.

Importing it adds them to mapping.MAPPED.
"""
import numpy as np
import torch

from mapping import NAMES, Refused, argument, maps


# --- products --------------------------------------------------------------------------------------------------------

@maps("matmul", "mm", "bmm", "mv", "dot", "vdot", sums=True)
def matmul(t, s):
    x = t(s.input)
    return t.op("matmul", t.op("conj", x) if s.name == "vdot" and s.input.is_complex() else x, t(s.args[0]))


@maps("__rmatmul__", sums=True)
def rmatmul(t, s):
    return t.op("matmul", t(s.args[0]), t(s.input))


def wide(t, x):
    """16-bit sums go on in f32, so that what is made of them rounds once, as PyTorch's one operation does."""
    return "f32" if x.dtype in (torch.float16, torch.bfloat16) else None


@maps("inner", sums=True)
def inner(t, s):
    x, y = s.input, s.args[0]
    if x.ndim == 0 or y.ndim == 0:
        return t.op("mul", t(x), t(y))
    return t.op("dot_general", t(x), t(y), lhs_batching_dimensions=[], rhs_batching_dimensions=[],
                lhs_contracting_dimensions=[x.ndim - 1], rhs_contracting_dimensions=[y.ndim - 1])


@maps("tensordot", sums=True)
def tensordot(t, s):
    x, y, dims = s.input, s.args[0], argument(s, 1, "dims", 2)
    a, b = (list(range(x.ndim - dims, x.ndim)), list(range(dims))) if isinstance(dims, int) else dims
    short = lambda v, own, w, others: [i for i, j in zip(own, others) if v.shape[i] != w.shape[j] == 1]
    left, right = (t.op("sum", t(v), dims=over, keepdims=True) if (over := short(v, own, w, others)) else t(v)
                   for v, own, w, others in ((x, a, y, b), (y, b, x, a)))  # sizes of 1 broadcast: the others are summed
    return t.op("dot_general", left, right, lhs_batching_dimensions=[], rhs_batching_dimensions=[],
                lhs_contracting_dimensions=[i % x.ndim for i in a], rhs_contracting_dimensions=[j % y.ndim for j in b])


@maps("outer")
def outer(t, s):
    dtype = torch.result_type(s.input, s.args[0])
    return t.op("mul", t.op("expand_dims", t(s.input, dtype), dims=[1]), t(s.args[0], dtype))


@maps("nn.functional.linear", sums=True)
def linear(t, s):
    w, b = s.args[0], argument(s, 1, "bias")
    if w.ndim == 1:
        return t.op("matmul", t(s.input), t(w))
    if w.is_complex():
        y = t.op("matmul", t(s.input), t.op("transpose", t(w), permutation=[1, 0]))
        return y if b is None else t.op("add", y, t(b))
    return t.op("linear", t(s.input), t.op("transpose", t(w), permutation=[1, 0]), t(b) if b is not None else None)


# --- convolutions and pools ------------------------------------------------------------------------------------------

def many(value, n):
    return [int(value)] * n if isinstance(value, int) else [int(v) for v in (list(value) * n if len(value) == 1 else value)]


def channels_last(t, value, n, batched):
    """[N, C, spatial…] as [N, spatial…, C]; without a batch one is made."""
    if not batched:
        value = t.op("expand_dims", value, dims=[0])
    return t.op("transpose", value, permutation=[0, *range(2, n + 2), 1])


def channels_first(t, value, n, batched):
    value = t.op("transpose", value, permutation=[0, n + 1, *range(1, n + 1)])
    return value if batched else t.op("squeeze", value, dims=[0])


def batched(t, x, n):
    """[N, C, spatial…], and whether that is x's own shape: PyTorch takes one example without N, too."""
    return (t(x), True) if x.ndim == n + 2 else (t.op("expand_dims", t(x), dims=[0]), False)


def alone(t, y, own):
    return y if own else t.op("squeeze", y, dims=[0])


def with_bias(t, y, b, dtype, up, n):
    if b is not None:
        y = t.op("add", y, t.op("reshape", t.convert(t(b), up or NAMES[b.dtype]), shape=[len(b), *[1] * n]))
    return t.convert(y, dtype)


@maps("nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d", sums=True)
def conv(t, s):
    w, b = s.args[0], argument(s, 1, "bias")
    n, padding = w.ndim - 2, argument(s, 3, "padding", 0)
    same = {"padding": padding} if isinstance(padding, str) else {"padding": "explicit", "pads": [p for p in many(padding, n) for _ in range(2)]}
    up, (x, own) = wide(t, s.input) if b is not None else None, batched(t, s.input, n)
    y = t.op("conv", x, t(w), strides=many(argument(s, 2, "stride", 1), n), dilation=many(argument(s, 4, "dilation", 1), n),
             groups=argument(s, 5, "groups", 1), dtype=up, channels_first=True, **same)
    return with_bias(t, alone(t, y, own), b, s.input.dtype, up, n)


@maps("nn.functional.conv_transpose1d", "nn.functional.conv_transpose2d", "nn.functional.conv_transpose3d", sums=True)
def conv_transpose(t, s):
    w, b = s.args[0], argument(s, 1, "bias")
    n = w.ndim - 2
    up, (x, own) = wide(t, s.input) if b is not None else None, batched(t, s.input, n)
    y = t.op("conv_transpose", x, t(w), strides=many(argument(s, 2, "stride", 1), n), pads=[p for p in many(argument(s, 3, "padding", 0), n) for _ in range(2)],
             output_padding=many(argument(s, 4, "output_padding", 0), n), dilation=many(argument(s, 6, "dilation", 1), n), groups=argument(s, 5, "groups", 1),
             dtype=up, channels_first=True)
    return with_bias(t, alone(t, y, own), b, s.input.dtype, up, n)


@maps("nn.functional.max_pool1d", "nn.functional.max_pool2d", "nn.functional.max_pool3d",
      "nn.functional.avg_pool1d", "nn.functional.avg_pool2d", "nn.functional.avg_pool3d", sums=True)
def pools(t, s):
    return pool(t, s, int(s.name[-2]), "avg" in s.name)


def pool(t, s, n, average):
    window = many(argument(s, 0, "kernel_size"), n)
    stride = argument(s, 1, "stride")
    stride = window if stride in (None, [], ()) else many(stride, n)
    padding = many(argument(s, 2, "padding", 0), n)
    rest = {name: argument(s, 3 + i, name) for i, name in enumerate(
        ("ceil_mode", "count_include_pad", "divisor_override") if average else ("dilation", "ceil_mode", "return_indices"))}
    x, own = batched(t, s.input, n)
    how = {"window": window, "strides": stride, "padding": "explicit", "pads": [p for p in padding for _ in range(2)],
           "ceil_mode": bool(rest.get("ceil_mode")), "channels_first": True}
    if average:
        how.update(count_include_pad=rest["count_include_pad"] is not False, divisor=rest.get("divisor_override"))
        whole = not s.input.is_floating_point()  # sums are divided, and cut off
        return t.convert(alone(t, t.op("avg_pool", t.convert(x, torch.float64) if whole else x, **how), own), s.input.dtype)
    how["dilation"] = many(rest["dilation"] or 1, n)
    if not (s.kwargs.get("return_indices") or rest.get("return_indices")):
        return alone(t, t.op("max_pool", x, **how), own)
    values, places = t.op("max_pool_with_indices", x, **how)
    places.dtype = "i32"
    return [alone(t, values, own), alone(t, places, own)]


# --- networks --------------------------------------------------------------------------------------------------------

@maps("nn.functional.layer_norm", "nn.functional.rms_norm", sums=True)
def norm(t, s):
    """Over several trailing dimensions: those as one."""
    shape = list(s.args[0])
    lead = list(s.input.shape[:s.input.ndim - len(shape)])
    size = int(np.prod(shape, dtype="i8"))
    layer = s.name.endswith("layer_norm")
    scale, offset = argument(s, 1, "weight"), argument(s, 2, "bias") if layer else None
    eps = s.kwargs.get("eps", argument(s, 3, "eps", 1e-5) if layer else argument(s, 2, "eps"))
    eps = torch.finfo(s.input.dtype).eps if eps is None else eps
    flat = lambda v, to: None if v is None else t.op("reshape", t(v), shape=to)
    operands = [flat(s.input, lead + [size]), flat(scale, [size])] + ([flat(offset, [size])] if layer else [])
    attrs = {"axis": len(lead)} if layer else {}
    y = t.op("layer_norm" if layer else "rms_norm", *operands, epsilon=float(eps), **attrs)
    return t.op("reshape", y, shape=list(s.input.shape))


@maps("nn.functional.batch_norm", "nn.functional.batch_norm/without_cudnn", sums=True)
def batch_norm(t, s):
    x, (mean, variance) = s.input, s.args[:2]
    scale, offset = argument(s, 2, "weight"), argument(s, 3, "bias")
    axis = 1 if x.ndim > 1 else 0
    features = x.shape[axis]
    ones = lambda value, v: t(v) if v is not None else t.op("full", shape=[features], value=value, dtype=NAMES[x.dtype])
    eps = float(s.kwargs.get("eps", 1e-5))
    if s.kwargs.get("training", False):
        return t.op("batch_norm", t(x), ones(1.0, scale), ones(0.0, offset), axis=axis, epsilon=eps)[0]
    return t.op("batch_norm_inference", t(x), ones(1.0, scale), ones(0.0, offset), t(mean), t(variance), axis=axis, epsilon=eps)


@maps("nn.functional.mse_loss", sums=True)
def mse(t, s):
    if argument(s, 4, "weight") is not None:
        raise Refused("weight")
    return t.op("mse", t(s.input), t(s.args[0]), reduction=s.kwargs.get("reduction", "mean"))


@maps("nn.functional.embedding")
def embedding(t, s):
    """OpInfo gives the table first."""
    for name in ("max_norm", "scale_grad_by_freq"):
        if s.kwargs.get(name):
            raise Refused(name)
    if s.kwargs.get("sparse"):
        t.no_gradient = True
    return t.op("embedding", t(s.input), t(s.args[0]), padding=s.kwargs.get("padding_idx"))


@maps("nn.functional.one_hot")
def one_hot(t, s):
    depth = argument(s, 0, "num_classes", -1)
    depth = int(s.input.max()) + 1 if depth == -1 else depth
    return t.op("one_hot", t(s.input), depth=depth, dtype="i64")


@maps("nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d")
def dropout(t, s):
    return dropped(t, s)


def dropped(t, s, **how):
    """Without training nothing is. Which elements are is each generator's own."""
    rate = float(argument(s, 0, "p", 0.5)) if argument(s, 1, "training", s.variant != "without_train") else 0.0
    if rate == 1 or s.input.is_complex():
        t.no_values = rate not in (0, 1)
        return t.op("mul", t(s.input), t(1 - rate, s.input.dtype))
    if rate == 0 and not s.input.is_floating_point():
        return t.op("reshape", t(s.input), shape=list(s.input.shape))
    t.no_values = rate != 0
    return t.op("dropout", t(s.input), rate=rate, **how)


@maps("nn.functional.scaled_dot_product_attention", sums=True)
def attention(t, s):
    t.no_values = s.kwargs.get("dropout_p", 0) > 0
    q, k, v = s.input, *s.args[:2]
    mask, grouped = s.kwargs.get("attn_mask"), s.kwargs.get("enable_gqa", False)
    own = 3 if grouped else 2
    lead = torch.broadcast_shapes(q.shape[:-own], k.shape[:-own], v.shape[:-own])
    spread = lambda x: t(x) if x.shape[:-own] == lead else t.op("broadcast_to", t(x), shape=[*lead, *x.shape[-own:]])
    return t.op("scaled_dot_product_attention", spread(q), spread(k), spread(v), t(mask) if mask is not None else None,
                causal=s.kwargs.get("is_causal", False), scale=s.kwargs.get("scale"), enable_gqa=grouped)
