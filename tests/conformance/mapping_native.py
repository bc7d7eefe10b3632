"""mapping.py's entries for what PyTorch's own layers call (native norms, gradients written out, packed weights) and a few more of one call each.
See there."""
import math

import torch

from mapping import NAMES, Refused, argument, maps, shaped
from mapping_formulas import wide
from mapping_networks import pool
from mapping_sequences import typed


def given_or(t, v, value, size, dtype):
    return t(v) if v is not None else t.op("full", shape=[size], value=value, dtype=NAMES[dtype])


# --- norms -----------------------------------------------------------------------------------------------------------

@maps("native_layer_norm", "native_group_norm", sums=True)
def native_norm(t, s):
    """The result, the mean, and one over the root of the variance."""
    t.no_gradient, x, up = True, s.input, wide(s.input.dtype)
    results = s.result
    eps = float(s.args[3] if s.name == "native_layer_norm" else s.args[6])
    if s.name == "native_layer_norm":
        shape, scale, offset = list(s.args[0]), s.args[1], s.args[2]
        lead, size = list(x.shape[:x.ndim - len(shape)]), math.prod(shape)
        flat = t.op("reshape", t(x), shape=[*lead, size])
        flatten = lambda v: None if v is None else t.op("reshape", t(v), shape=[size])
        y = t.op("reshape", t.op("layer_norm", flat, flatten(scale), flatten(offset), axis=len(lead), epsilon=eps), shape=list(x.shape))
    else:
        scale, offset, groups = s.args[0], s.args[1], s.args[5]
        y = t.op("group_norm", t(x), *[None if v is None else t(v) for v in (scale, offset)], axis=1, groups=groups, epsilon=eps)
        flat = t.op("reshape", t(x), shape=[x.shape[0], groups, math.prod(x.shape[1:]) // groups])
    rank = len(results[1].shape) if s.name != "native_layer_norm" else len(lead)
    over = t.convert(flat, up)
    mean = t.op("mean", over, dims=[rank])
    rest = t.op("rsqrt", t.op("add", t.op("var", over, dims=[rank]), t(eps, up)))
    return [y, *[t.convert(t.op("reshape", v, shape=list(r.shape)), r.dtype) for v, r in zip((mean, rest), results[1:])]]


@maps("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", sums=True)
def native_batch_norm(t, s):
    t.no_gradient, x, up = True, s.input, wide(s.input.dtype)
    updating = s.name.endswith("update")
    given = list(s.args[:4]) if len(s.args) > 5 - updating and not isinstance(s.args[2], bool) else [*s.args[:2], None, None]
    training = True if updating else next(a for a in s.args if isinstance(a, bool))
    eps = float(s.args[-1])
    size = x.shape[1]
    if not training:  # PyTorch leaves the other results empty
        y = t.op("batch_norm_inference", t.convert(t(x), up), *[t.convert(given_or(t, v, d, size, up), up) for v, d in zip(given, (1.0, 0.0, 0.0, 1.0))],
                 axis=1, epsilon=eps)
        return [t.convert(y, x.dtype), *[t.op("full", shape=[0], value=0.0, dtype=NAMES[r.dtype]) for r in s.result[1:]]]
    y, mean, variance = t.op("batch_norm", t.convert(t(x), up), *[t.convert(given_or(t, v, d, size, up), up) for v, d in ((given[0], 1.0), (given[1], 0.0))],
                             axis=1, epsilon=eps)
    rest = t.op("rsqrt", t.op("add", variance, t(eps, up)))
    values = [t.convert(v, r.dtype) for v, r in zip((y, mean, rest), s.result)]
    return values + ([t.constant(s.result[3].numpy())] if updating else [])


@maps("_softmax_backward_data", sums=True)
def softmax_slope(t, s):
    """y (g - sum of y g)."""
    t.no_gradient = True
    slope, y, axis = s.input, s.args[0], int(s.args[1])
    up = wide(s.result.dtype)
    g, y = t(slope, up), t(y, up)
    axis %= max(1, slope.ndim)
    total = t.op("sum", t.op("mul", g, y), dims=[axis] if slope.ndim else None, keepdims=True)
    return t.convert(t.op("mul", y, t.op("sub", g, total)), s.result.dtype)


@maps("native_dropout_backward")
def dropout_slope(t, s):
    dtype = s.result.dtype
    return t.op("mul", t.op("mul", t(s.input, dtype), t(s.args[0], dtype)), t(float(s.args[1]), dtype))


# --- layers and losses -----------------------------------------------------------------------------------------------

@maps("nn.functional.linear_cross_entropy", "nn.functional.linear_cross_entropy/chunked", "nn.functional.linear_cross_entropy/chunked_none", sums=True)
def linear_cross_entropy(t, s):
    up, weight, labels = wide(s.input.dtype), s.args[0], s.args[1]
    middle, features = list(weight.shape[1:-1]), weight.shape[-1]  # several products beside each other: classes go last
    last = lambda x, first: t.op("transpose", t(x, up), permutation=[*range(first), *range(first + 1, x.ndim), first])
    rows = t.op("transpose", t(weight, up), permutation=[*range(1, weight.ndim - 1), 0, weight.ndim - 1])
    flat = t.op("reshape", rows, shape=[math.prod(weight.shape[:-1]), features])
    scores = t.op("matmul", t(s.input, up), t.op("transpose", flat, permutation=[1, 0]))
    scores = t.op("reshape", scores, shape=[*s.input.shape[:-1], *middle, weight.shape[0]])
    bias = argument(s, 2, "linear_bias", s.kwargs.get("bias"))
    scores = scores if bias is None else t.op("add", scores, last(bias, 0))
    per_class = s.kwargs.get("weight")
    how = {"label_smoothing": float(s.kwargs.get("label_smoothing", 0.0)), "reduction": s.kwargs.get("reduction", "mean")}
    classes = None if per_class is None else t(per_class, up)
    if labels.is_floating_point():
        return t.convert(t.op("soft_cross_entropy", scores, last(labels, s.input.ndim - 1), classes, **how), s.result.dtype)
    loss = t.op("nll", t.op("log_softmax", scores), t(labels), classes, ignore_index=int(s.kwargs.get("ignore_index", -100)), **how)
    return t.convert(loss, s.result.dtype)


@maps("nn.functional.bilinear", sums=True)
def bilinear(t, s):
    x, w, bias = s.args[0], s.args[1], argument(s, 2, "bias")
    up = wide(s.input.dtype)
    y = t.op("einsum", [t(s.input, up), t(w, up), t(x, up)], equation="...i,oij,...j->...o")
    return t.convert(y if bias is None else t.op("add", y, t(bias, up)), s.result.dtype)


@maps("nn.functional.pdist", sums=True)
def pdist(t, s):
    return t.op("pdist", t(s.input), p=float(argument(s, 0, "p", 2.0)))


@maps("torch.ops.aten._scaled_dot_product_flash_attention_for_cpu", sums=True)
def flash(t, s):
    """The values, and the logarithms of the sums under softmax."""
    t.no_values = bool(s.kwargs.get("dropout_p"))
    q, k, v, mask = s.input, *s.args[:2], s.kwargs.get("attn_mask")
    t.no_gradient, up = True, wide(q.dtype)
    y = t.op("scaled_dot_product_attention", t(q), t(k), t(v), t(mask) if mask is not None else None, causal=bool(s.kwargs.get("is_causal")), scale=s.kwargs.get("scale"))
    turned = t.op("transpose", t(k, up), permutation=[*range(k.ndim - 2), k.ndim - 1, k.ndim - 2])
    scores = t.op("mul", t.op("matmul", t(q, up), turned), t(s.kwargs.get("scale") or q.shape[-1] ** -0.5, up))
    if mask is not None:
        scores = t.op("add", scores, t(mask, up))
    if s.kwargs.get("is_causal"):
        seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        scores = t.op("where", t(seen.expand([*q.shape[:-1], k.shape[-2]]).contiguous()), scores, t(-math.inf, up))
    return [y, t.convert(t.op("logsumexp", scores, dims=[q.ndim - 1]), s.result[1].dtype)]


@maps("nn.functional.multi_head_attention_forward", sums=True)
def multi_head(t, s):
    """OpInfo's drops weights; the means of the heads' weights are not results here."""
    raise Refused("random")


# --- one call each ---------------------------------------------------------------------------------------------------

@maps("signal.windows.general_hamming")
def general_hamming(t, s):
    alpha = float(s.kwargs.get("alpha", 0.54))
    return t.op("window", count=s.input, form="general_cosine", periodic=not s.kwargs.get("sym", True), coefficients=[alpha, 1 - alpha], dtype=NAMES[s.result.dtype])


@maps("special.spherical_bessel_j0")
def spherical_bessel_j0(t, s):
    dtype = s.input.dtype if s.input.is_floating_point() else torch.float32
    x = t(s.input, dtype)
    return t.op("where", t.op("eq", x, t(0, dtype)), t(1, dtype), t.op("div", t.op("sin", x), x))


@maps("unravel_index")
def unravel_index(t, s):
    shape = argument(s, 0, "shape")
    shape, rest, values = [shape] if isinstance(shape, int) else list(shape), 1, []
    for n in reversed(shape):
        x = t(s.input, torch.int64)
        values.insert(0, t.op("mod", t.op("floor_divide", x, t(rest, torch.int64)), t(n, torch.int64)))
        rest *= n
    return values


@maps("_unsafe_masked_index")
def masked_index(t, s):
    mask, places, fill = s.args
    kept = [None if i is None else t(i) for i in places]
    if any(i is None for i in kept):
        raise Refused("slices")
    places = [torch.where(mask, i.expand(mask.shape), 0) for i in places]
    found = t.op("index", t(s.input), [t(i) for i in places], dims=list(range(len(places))))
    return t.op("where", t(mask), found, t(fill, s.input.dtype))


@maps("_unsafe_masked_index_put_accumulate", sums=True)
def masked_index_put(t, s):
    mask, places, values = s.args
    if any(i is None for i in places):
        raise Refused("slices")
    places = [torch.where(mask, i.expand(mask.shape), 0) for i in places]
    up = torch.int32 if s.input.dtype == torch.bool else s.input.dtype  # bools count
    added = t.op("where", t(mask), t(values, up), t(0, up))
    return t.convert(t.op("index_put", t(s.input, up), added, [t(i) for i in places], dims=list(range(len(places))), accumulate=True), s.input.dtype)


@maps("_chunk_cat")
def chunk_cat(t, s):
    dim, count = s.args[0] % s.input[0].ndim, s.args[1]
    parts = []
    for x in s.input:
        size = -(-x.shape[dim] // count)
        high = [0] * x.ndim
        high[dim] = size * count - x.shape[dim]
        y = t.op("pad", t(x), t(0, x.dtype), edge_padding_low=[0] * x.ndim, edge_padding_high=high, interior_padding=[0] * x.ndim)
        parts.append(t.op("reshape", y, shape=[*x.shape[:dim], count, math.prod([size, *x.shape[dim + 1:]])]))
    return t.op("concatenate", parts, dimension=dim + 1)


@maps("max_pool2d_with_indices_backward")
def pool_slope(t, s):
    """OpInfo's is the slope of the sum of what the pool gives."""
    y = pool(t, s, 2, average=False)
    y = y[0] if isinstance(y, list) else y
    ones = t.op("full", shape=list(torch.nn.functional.max_pool2d(s.input.detach(), *s.args, **{**s.kwargs, "return_indices": False}).shape), value=1.0, dtype=NAMES[s.input.dtype])
    return t.grad(y, t(s.input), ones)


@maps("_segment_reduce/lengths", "_segment_reduce/offsets", sums=True)
def segments(t, s):
    """Rows into the segment that each belongs to; a segment without rows has PyTorch's first value."""
    lengths = s.kwargs.get("lengths")
    lengths = lengths if lengths is not None else s.kwargs["offsets"].diff(dim=-1)
    how, initial, axis = s.args[0], s.kwargs.get("initial"), s.kwargs.get("axis", 0)
    t.no_gradient, up, rest = True, wide(s.input.dtype), s.input.shape[axis + 1:]
    x = s.input.detach().reshape(-1, s.input.shape[axis], *rest)
    batches = lengths.reshape(len(x), -1)
    x = torch.cat([part[:int(of.sum())] for part, of in zip(x, batches)]) if len(x) else x.reshape(0, *rest)  # rows behind the last segment belong to none
    lengths = batches.reshape(-1)
    first = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}[how] if initial is None else float(initial)
    places = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    into = t.op("broadcast_to", t(first, up), shape=[len(lengths), *x.shape[1:]])
    reducer = "sum" if how == "mean" else how
    y = t.op("index_reduce" if reducer != "sum" else "index_add", into, t(places), t(x, up), axis=0, **({"reducer": reducer} if reducer != "sum" else {}))
    if how == "mean":
        n = torch.maximum(lengths, torch.tensor(0)).reshape(-1, *[1] * (x.ndim - 1)).expand([len(lengths), *x.shape[1:]])
        empty = t((n == 0).contiguous())
        quotient = t.op("div", y, t(n.contiguous(), up))
        y = t.op("where", empty, y if initial is not None else t(math.nan, up), quotient)
    return t.convert(shaped(t, s, y), s.result.dtype)


@maps("histogramdd", sums=True)
def histogramdd(t, s):
    """The bin of each point in the row of all bins, and one more for what is outside. The edges are PyTorch's own."""
    counts, edges = s.result[0], s.result[1:]
    points, dtype, t.no_gradient = s.input.detach().reshape(-1, s.input.shape[-1]), s.input.dtype, True
    slot, inside, total = t(0, torch.int32), t(True, torch.bool), counts.numel()
    for d, edge in enumerate(edges):
        x, last, n = t.op("slice_in_dim", t(points), axis=1, start=d, limit=d + 1), t(edge[-1:].clone()), len(edge) - 1
        found = typed(t.op("searchsorted", t(edge), x, right=True), "i32")
        found = t.op("where", t.op("eq", x, last), t(n, torch.int32), found)
        for name, end in (("ge", t(edge[:1].clone())), ("le", last)):
            inside = t.op("logical_and", inside, t.op(name, x, end))
        slot = t.op("add", t.op("mul", slot, t(n, torch.int32)), t.op("sub", found, t(1, torch.int32)))
    slot = t.op("reshape", t.op("where", inside, slot, t(total, torch.int32)), shape=[len(points)])
    weight = s.kwargs.get("weight")
    each = t.op("full", shape=[len(points)], value=1.0, dtype=NAMES[dtype]) if weight is None else t.op("reshape", t(weight.detach()), shape=[len(points)])
    y = t.op("index_add", t.op("full", shape=[total + 1], value=0.0, dtype=NAMES[dtype]), slot, each, axis=0)
    y = t.op("reshape", t.op("slice_in_dim", y, axis=0, start=0, limit=total), shape=list(counts.shape))
    if s.kwargs.get("density"):
        y = t.op("div", y, t.op("sum", y))
        for d, edge in enumerate(edges):
            y = t.op("div", y, t(edge.diff().reshape([-1 if i == d else 1 for i in range(counts.ndim)])))
    return [y, *[t(e) for e in edges]]
