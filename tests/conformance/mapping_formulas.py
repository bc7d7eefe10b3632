"""mapping.py's entries for products, statistics, losses of classes, windows and transforms."""
import math

import torch

from mapping import NAMES, Refused, argument, axes_of, axis_of, far, maps
from mapping_images import of_i32


def scales(s):
    """alpha and beta. Of integers PyTorch cuts them off; ours are whole there."""
    if any(isinstance(s.kwargs.get(name, 1), complex) for name in ("alpha", "beta")):
        raise Refused("alpha")
    given = {name: float(s.kwargs.get(name, 1)) for name in ("alpha", "beta")}
    if not s.result.is_floating_point() and any(x != int(x) for x in given.values()):
        raise Refused("alpha")
    return given


def wide(dtype):
    """What several operations on 16 bits go on in, so that they round once, as PyTorch's one does."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def row_axis(dim, x):
    return int(dim) % max(1, x.ndim)


# --- products --------------------------------------------------------------------------------------------------------

@maps("addmm", "addmv", "baddbmm", "addmm/decomposed", sums=True)
def addmm(t, s):
    return t.op("addmm", t(s.input), t(s.args[0]), t(s.args[1]), **scales(s))


@maps("addbmm", sums=True)
def addbmm(t, s):
    (n, rows, k), columns = s.args[0].shape, s.args[1].shape[2]
    left = t.op("reshape", t.op("transpose", t(s.args[0]), permutation=[1, 0, 2]), shape=[rows, n * k])
    return t.op("addmm", t(s.input), left, t.op("reshape", t(s.args[1]), shape=[n * k, columns]),
                **scales(s))


@maps("addr", sums=True)
def addr(t, s):
    dtype = torch.promote_types(s.input.dtype, torch.promote_types(s.args[0].dtype, s.args[1].dtype))
    if dtype == torch.bool:
        raise Refused("dtype")
    left, right = t.op("expand_dims", t(s.args[0], dtype), dims=[1]), t.op("expand_dims", t(s.args[1], dtype), dims=[0])
    return t.op("addmm", t(s.input, dtype), left, right, **scales(s))


@maps("kron", sums=True)
def kron(t, s):
    dtype = torch.result_type(s.input, s.args[0])
    return t.op("kron", t(s.input, dtype), t(s.args[0], dtype))


@maps("cross", "linalg.cross", sums=True)
def cross(t, s):
    dim = argument(s, 1, "dim", -1 if s.name != "cross" else None)
    dim = next(i for i, n in enumerate(s.input.shape) if n == 3) if dim is None else dim
    return t.op("cross", t(s.input), t(s.args[0]), axis=dim)


@maps("linalg.vecdot", sums=True)
def vecdot(t, s):
    return t.op("vecdot", t(s.input), t(s.args[0]), axis=argument(s, 1, "dim", -1))


@maps("cdist", sums=True)
def cdist(t, s):
    return t.op("cdist", t(s.input), t(s.args[0]), p=float(argument(s, 1, "p", 2.0)))


@maps("linalg.vander", sums=True)
def vander(t, s):
    x = t(s.input, None if s.input.is_floating_point() or s.input.is_complex() else torch.int64)
    if not s.input.ndim:
        return t.op("reshape", t.op("vander", t.op("reshape", x, shape=[1]), count=int(s.kwargs.get("N") or 1), increasing=True), shape=list(s.result.shape))
    return t.op("vander", x, count=int(s.kwargs.get("N") or s.input.shape[-1]), increasing=True)


@maps("linalg.matrix_power", sums=True)
def matrix_power(t, s):
    return t.op("matrix_power", t(s.input), n=s.args[0])


@maps("linalg.multi_dot", sums=True)
def multi_dot(t, s):
    up = wide(s.result.dtype)
    found = t(s.input[0], up)
    for x in s.input[1:]:
        found = t.op("matmul", found, t(x, up))
    return t.convert(found, s.result.dtype)


# --- statistics ------------------------------------------------------------------------------------------------------

@maps("logcumsumexp", sums=True)
def logcumsumexp(t, s):
    t.no_gradient = far(s.input)
    return t.op("logcumsumexp", t(s.input), axis=row_axis(argument(s, 0, "dim"), s.input))


@maps("nanmedian", "median")
def median(t, s):
    dim, x = argument(s, 0, "dim"), s.input
    if not x.is_floating_point() and s.name == "nanmedian":
        raise Refused("dtype")
    if dim is None:
        return t.op(s.name, t.op("reshape", t(x), shape=[x.numel()]))[0]
    values, places = t.op(s.name, t(x), axis=row_axis(dim, x), keepdims=bool(argument(s, 1, "keepdim", False)))
    return [values, of_i32(places)]


@maps("histc")
def histc(t, s):
    if not s.input.is_floating_point():
        raise Refused("dtype")
    return t.op("histc", t(s.input), bins=int(argument(s, 0, "bins", 100)), low=float(argument(s, 1, "min", 0)), high=float(argument(s, 2, "max", 0)))


@maps("trapezoid", "trapz", "cumulative_trapezoid", sums=True)
def trapezoid(t, s):
    x, dtype = argument(s, 0, "x"), s.result.dtype
    if x is not None and list(x.shape) != list(s.input.shape) and x.ndim != 1:
        raise Refused("broadcast")
    if not s.input.is_floating_point():
        raise Refused("dtype")
    return t.op(s.name.replace("trapz", "trapezoid"), t(s.input, dtype), t(x, dtype) if x is not None else None,
                axis=int(s.kwargs.get("dim", -1)), dx=float(s.kwargs.get("dx", 1)))


@maps("cov", "corrcoef", sums=True)
def cov(t, s):
    up = wide(s.result.dtype)
    if s.name == "corrcoef":
        return t.op("corrcoef", t(s.input, s.result.dtype))
    t.no_gradient = up != s.input.dtype and s.kwargs.get("aweights") is not None  # 0 up to rounding, along weights of f32
    counts, weights = (t(v, up) if v is not None else None for v in (s.kwargs.get("fweights"), s.kwargs.get("aweights")))
    return t.convert(t.op("cov", t(s.input, up), counts, weights, correction=int(s.kwargs.get("correction", 1))), s.result.dtype)


@maps("renorm", sums=True)
def renorm(t, s):
    return t.op("renorm", t(s.input), p=float(s.args[0]), axis=int(s.args[1]), most=float(s.args[2]))


@maps("nn.functional.cosine_similarity", sums=True)
def cosine_similarity(t, s):
    return t.op("cosine_similarity", t(s.input), t(s.args[0]), axis=axis_of(argument(s, 1, "dim", 1), max(s.input.ndim, s.args[0].ndim)), eps=float(argument(s, 2, "eps", 1e-8)))


@maps("aminmax")
def aminmax(t, s):
    dim = s.kwargs.get("dim")
    return t.op("aminmax", t(s.input), dims=None if dim is None or s.input.ndim == 0 else [dim], keepdims=bool(s.kwargs.get("keepdim", False)))


@maps("nansum", "nanmean", sums=True)
def of_numbers(t, s):
    x, dtype = s.input, s.kwargs.get("dtype")
    if not x.is_floating_point():
        raise Refused("dtype")
    return t.op(s.name, t(x, dtype), dims=axes_of(s), keepdims=bool(argument(s, 1, "keepdim", False)))


@maps("linalg.vector_norm", sums=True)
def vector_norm(t, s):
    return t.op("norm", t(s.input, s.kwargs.get("dtype")), p=float(argument(s, 0, "ord", 2)), dims=axes_of(s, 1),
                keepdims=bool(argument(s, 2, "keepdim", False)))


@maps("dist", sums=True)
def dist(t, s):
    up = wide(s.input.dtype)
    return t.convert(t.op("norm", t.op("sub", t(s.input, up), t(s.args[0], up)), p=float(argument(s, 1, "p", 2))), s.result.dtype)


@maps("nn.functional.pairwise_distance", sums=True)
def pairwise_distance(t, s):
    given = {name: float(argument(s, i + 1, name, d)) for i, (name, d) in enumerate((("p", 2.0), ("eps", 1e-6)))}
    shape = list(torch.broadcast_shapes(s.input.shape, s.args[0].shape))
    x, y = (t.op("broadcast_to", t(v), shape=shape) for v in (s.input, s.args[0]))
    return t.op("pairwise_distance", x, y, keepdims=bool(argument(s, 3, "keepdim", False)), **given)


@maps("nn.functional.prelu", sums=True)
def prelu(t, s):
    weight = argument(s, 0, "weight")
    w = t(weight)
    if s.input.ndim == 0:
        w = t.op("reshape", w, shape=[])
    elif weight.ndim == 1 and weight.numel() > 1 and s.input.ndim > 1:
        w = t.op("reshape", w, shape=[weight.numel(), *[1] * (s.input.ndim - 2)])
    return t.op("prelu", t(s.input), w)


# --- losses of classes -----------------------------------------------------------------------------------------------

def classes_last(t, x):
    """[N, classes, …] as [N, …, classes]."""
    return t(x) if x.ndim < 3 else t.op("transpose", t(x), permutation=[0, *range(2, x.ndim), 1])


def weight_of(t, s):
    return t(s.kwargs["weight"]) if s.kwargs.get("weight") is not None else None


@maps("nn.functional.nll_loss", sums=True)
def nll(t, s):
    return t.op("nll", classes_last(t, s.input), t(s.args[0]), weight_of(t, s), ignore_index=int(s.kwargs.get("ignore_index", -100)),
                reduction=s.kwargs.get("reduction", "mean"))


@maps("nn.functional.cross_entropy", sums=True)
def cross_entropy(t, s):
    how = {"label_smoothing": float(s.kwargs.get("label_smoothing", 0.0)), "reduction": s.kwargs.get("reduction", "mean")}
    if s.args[0].is_floating_point():
        return t.op("soft_cross_entropy", classes_last(t, s.input), classes_last(t, s.args[0]), weight_of(t, s), **how)
    if s.kwargs.get("weight") is None and s.kwargs.get("ignore_index") is None:
        return t.op("cross_entropy", classes_last(t, s.input), t(s.args[0]), **how)
    up, weight = NAMES[wide(s.input.dtype)], weight_of(t, s)
    logp = t.op("log_softmax", t.convert(classes_last(t, s.input), up))
    loss = t.op("nll", logp, t(s.args[0]), t.convert(weight, up) if weight else None, ignore_index=int(s.kwargs.get("ignore_index", -100)), **how)
    return t.convert(loss, s.input.dtype)


@maps("nn.functional.multi_margin_loss", sums=True)
def multi_margin(t, s):
    axis_of(-1, s.input.ndim)
    return t.op("multi_margin", t(s.input), t(s.args[0]) if s.args[0].ndim == s.input.ndim - 1 else t.op("reshape", t(s.args[0]), shape=list(s.input.shape[:-1])),
                weight_of(t, s), p=int(s.kwargs.get("p", 1)), margin=float(s.kwargs.get("margin", 1.0)), reduction=s.kwargs.get("reduction", "mean"))


@maps("nn.functional.multilabel_margin_loss", sums=True)
def multilabel_margin(t, s):
    axis_of(-1, s.input.ndim)
    return t.op("multilabel_margin", t(s.input), t(s.args[0]), reduction=s.kwargs.get("reduction", "mean"))


@maps("nn.functional.multilabel_soft_margin_loss", sums=True)
def multilabel_soft_margin(t, s):
    return t.op("multilabel_soft_margin", t(s.input), t(s.args[0]), weight_of(t, s), reduction=s.kwargs.get("reduction", "mean"))


@maps("nn.functional.cosine_embedding_loss", sums=True)
def cosine_embedding(t, s):
    if s.input.dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8):
        raise Refused("dtype")
    return t.op("cosine_embedding", t(s.input), t(s.args[0]), t(s.args[1], s.input.dtype), margin=float(s.kwargs.get("margin", 0.0)),
                reduction=s.kwargs.get("reduction", "mean"))


# --- filled, compared, converted -------------------------------------------------------------------------------------

@maps("fill")
def fill(t, s):
    return t.op("broadcast_to", t(argument(s, 0, "value"), s.input.dtype), shape=list(s.input.shape))


@maps("bucketize")
def bucketize(t, s):
    dtype = torch.result_type(s.input, s.args[0])
    return of_i32(t.op("searchsorted", t(s.args[0], dtype), t(s.input, dtype), right=bool(s.kwargs.get("right", False))))


@maps("eye")
def eye(t, s):
    dtype = NAMES[s.kwargs.get("dtype") or torch.get_default_dtype()]
    return t.op("eye", rows=s.input, columns=s.args[0] if s.args else s.input, dtype=dtype)


@maps("tril_indices", "triu_indices")
def triangle_places(t, s):
    return of_i32(t.op(s.name, rows=s.input, columns=s.args[0], offset=int(argument(s, 1, "offset", 0))))


@maps("logspace", "logspace/tensor_overload")
def logspace(t, s):
    if not s.result.is_floating_point():
        raise Refused("dtype")
    base = float(argument(s, 2, "base", 10.0))
    return t.op("logspace", start=float(s.input), stop=float(s.args[0]), count=s.args[1], base=base, dtype=NAMES[s.result.dtype])


WINDOWS = {"gaussian": "std", "exponential": "tau", "kaiser": "beta"}


@maps(*("signal.windows." + form for form in ("bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "hamming", "hann",
                                              "kaiser", "nuttall")))
def window(t, s):
    form, number = s.name.rsplit(".", 1)[1], s.kwargs.get(WINDOWS.get(s.name.rsplit(".", 1)[1]))
    if s.kwargs.get("center") is not None:
        raise Refused("center")
    return t.op("window", count=s.input, form=form, periodic=not s.kwargs.get("sym", True), parameter=None if number is None else float(number),
                coefficients=[float(a) for a in s.kwargs["a"]] if form == "general_cosine" else None, dtype=NAMES[s.result.dtype])


@maps("combinations")
def combinations(t, s):
    return t.op("combinations", t(s.input), count=argument(s, 0, "r", 2), replacement=bool(argument(s, 1, "with_replacement", False)))


@maps("mvlgamma/mvlgamma_p_1", "mvlgamma/mvlgamma_p_3", "mvlgamma/mvlgamma_p_5", sums=True)
def mvlgamma(t, s):
    dtype = s.input.dtype if s.input.is_floating_point() else torch.float32
    t.no_second = True  # PyTorch's have some nine digits
    return t.op("mvlgamma", t(s.input, dtype), p=int(argument(s, 0, "p", 1)))


@maps("gcd", "lcm")
def divisors(t, s):
    dtype = torch.result_type(s.input, s.args[0])
    return t.op(s.name, t(s.input, dtype), t(s.args[0], dtype))


@maps("frexp")
def frexp(t, s):
    mantissa, exponent = t.op("frexp", t(s.input))
    exponent.dtype = "i32"
    return [mantissa, exponent]


@maps("masked.sum", "masked.prod", "masked.amax", "masked.amin", sums=True)
def masked(t, s):
    mask, dtype, name = s.kwargs.get("mask"), s.result.dtype, s.name.split(".")[1]
    x = t(s.input, dtype)
    if mask is not None:
        neutral = {"sum": 0, "prod": 1}.get(name)
        if neutral is None:
            ends = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
            neutral = (-1 if name == "amax" else 1) * math.inf if dtype.is_floating_point else ends.min if name == "amax" else ends.max
        x = t.op("where", t(mask.expand(s.input.shape).contiguous()), x, t(neutral, dtype))
    dim = s.kwargs.get("dim")
    dims = None if dim is None or s.input.ndim == 0 else [dim] if isinstance(dim, int) else list(dim)
    return t.op(name.replace("am", "m"), x, dims=dims or None, keepdims=bool(s.kwargs.get("keepdim", False)))


@maps("norm/fro", "norm/inf", sums=True)
def norm(t, s):
    p = 2.0 if s.variant == "fro" else float(s.args[0])
    dims = axes_of(s, 1)
    return t.op("norm", t(s.input), p=p, dims=dims, keepdims=bool(argument(s, 2, "keepdim", False)))


@maps("nn.functional.normalize", sums=True)
def normalize(t, s):
    p, dim, eps = float(argument(s, 0, "p", 2.0)), int(argument(s, 1, "dim", 1)), float(argument(s, 2, "eps", 1e-12))
    dtype = s.input.dtype
    up = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    x, part = t(s.input, up), {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(up, up)
    size = t.op("maximum", t.op("norm", x, p=p, dims=[dim], keepdims=True), t(eps, part))
    return t.convert(t.op("div", x, t.convert(size, up)), dtype)


@maps("nn.functional.rrelu")
def rrelu(t, s):
    if s.kwargs.get("training"):
        raise Refused("random")
    return t.op("leaky_relu", t(s.input), slope=(float(s.kwargs.get("lower", 1 / 8)) + float(s.kwargs.get("upper", 1 / 3))) / 2)
