"""mapping.py's entries for products, statistics, losses of classes, windows and transforms."""
import math

import torch

from mapping import NAMES, Refused, argument, axes_of, axis_of, far, maps, shaped
from mapping_elementwise import log_add
from mapping_images import of_i32
from mapping_sequences import whole_ends


def scales(s):
    """alpha and beta. Of integers PyTorch cuts them off."""
    return {name: float(x if s.result.is_floating_point() or s.result.is_complex() else int(x)) for name in ("alpha", "beta") for x in [s.kwargs.get(name, 1)]}


def scaled_sum(t, s, x, a, b):
    """beta x + alpha a b."""
    if not any(isinstance(s.kwargs.get(name, 1), complex) for name in ("alpha", "beta")):
        return t.op("addmm", x, a, b, **scales(s))
    alpha, beta = (t(s.kwargs.get(name, 1), s.result.dtype) for name in ("alpha", "beta"))
    return t.op("add", t.op("mul", beta, x), t.op("mul", alpha, t.op("matmul", a, b)))


def wide(dtype):
    """What several operations on 16 bits go on in, so that they round once, as PyTorch's one does."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def row_axis(dim, x):
    return int(dim) % max(1, x.ndim)


# --- products --------------------------------------------------------------------------------------------------------

@maps("addmm", "addmv", "baddbmm", "addmm/decomposed", sums=True)
def addmm(t, s):
    return scaled_sum(t, s, t(s.input), t(s.args[0]), t(s.args[1]))


@maps("addbmm", sums=True)
def addbmm(t, s):
    (n, rows, k), columns = s.args[0].shape, s.args[1].shape[2]
    left = t.op("reshape", t.op("transpose", t(s.args[0]), permutation=[1, 0, 2]), shape=[rows, n * k])
    return scaled_sum(t, s, t(s.input), left, t.op("reshape", t(s.args[1]), shape=[n * k, columns]))


@maps("addr", sums=True)
def addr(t, s):
    dtype = torch.promote_types(s.input.dtype, torch.promote_types(s.args[0].dtype, s.args[1].dtype))
    up = torch.int32 if dtype == torch.bool else dtype
    left, right = t.op("expand_dims", t(s.args[0], up), dims=[1]), t.op("expand_dims", t(s.args[1], up), dims=[0])
    return t.convert(scaled_sum(t, s, t(s.input, up), left, right), dtype)


@maps("kron", sums=True)
def kron(t, s):
    dtype = torch.result_type(s.input, s.args[0])
    up = torch.uint8 if dtype == torch.bool else dtype
    return t.convert(t.op("kron", t(s.input, up), t(s.args[0], up)), dtype)


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
    t.no_gradient, axis = far(s.input), row_axis(argument(s, 0, "dim"), s.input)
    if s.input.is_complex():
        at = lambda i: t.op("slice_in_dim", t(s.input), axis=axis, start=i, limit=i + 1)
        found = [t(s.input) if s.input.ndim == 0 else at(0)]
        for i in range(1, s.input.shape[axis] if s.input.ndim else 1):
            found.append(log_add(t, found[-1], at(i)))
        return t.op("concatenate", found, dimension=axis) if s.input.ndim else shaped(t, s, found[0])
    return t.op("logcumsumexp", t(s.input), axis=axis)


@maps("nanmedian", "median")
def median(t, s):
    dim, x = argument(s, 0, "dim"), s.input
    name = s.name if x.is_floating_point() else "median"
    if dim is None:
        return t.op(name, t.op("reshape", t(x), shape=[x.numel()]))[0]
    values, places = t.op(name, t(x), axis=row_axis(dim, x), keepdims=bool(argument(s, 1, "keepdim", False)))
    return [values, of_i32(places)]


@maps("histc")
def histc(t, s):
    return t.op("histc", t(s.input), bins=int(argument(s, 0, "bins", 100)), low=float(argument(s, 1, "min", 0)), high=float(argument(s, 2, "max", 0)))


@maps("trapezoid", "trapz", "cumulative_trapezoid", sums=True)
def trapezoid(t, s):
    x, dtype = argument(s, 0, "x"), s.result.dtype
    axis, own = int(s.kwargs.get("dim", -1)), dtype.is_complex or x is not None and not s.input.is_floating_point()
    up = s.input.dtype if own else dtype  # integers are multiplied as such
    y, places, x = t(s.input, up), x, None if x is None else t(x, up)
    if x is not None and list(places.shape) != list(s.input.shape) and places.ndim != 1:
        x = t.op("broadcast_to", x, shape=list(s.input.shape))
    if not own:
        return t.op(s.name.replace("trapz", "trapezoid"), y, x, axis=axis, dx=float(s.kwargs.get("dx", 1)))
    cut = lambda v, of, ends: t.op("slice_in_dim", v, axis=axis if of > 1 else 0, start=ends, limit=s.input.shape[axis] - 1 + ends)
    if x is not None and places.ndim == 1 < s.input.ndim:
        x = t.op("reshape", x, shape=[len(places) if d == axis % s.input.ndim else 1 for d in range(s.input.ndim)])
    width = t(s.kwargs.get("dx", 1), up) if x is None else t.op("sub", cut(x, s.input.ndim, 1), cut(x, s.input.ndim, 0))
    areas = t.op("mul", t.op("add", cut(y, s.input.ndim, 1), cut(y, s.input.ndim, 0)), width)
    areas = t.op("mul", t.convert(areas, dtype), t(0.5, dtype))
    return t.op("cumsum", areas, axis=axis) if s.name.startswith("cum") else t.op("sum", areas, dims=[axis % s.input.ndim])


@maps("cov", "corrcoef", sums=True)
def cov(t, s):
    up = wide(s.result.dtype)
    if s.name == "corrcoef":
        return t.op("corrcoef", t(s.input, s.result.dtype))
    t.no_gradient = up != s.input.dtype and s.kwargs.get("aweights") is not None  # 0 up to rounding, along weights of f32
    counts, weights = (t(v, up.to_real()) if v is not None else None for v in (s.kwargs.get("fweights"), s.kwargs.get("aweights")))
    return t.convert(t.op("cov", t(s.input, up), counts, weights, correction=int(s.kwargs.get("correction", 1))), s.result.dtype)


@maps("renorm", sums=True)
def renorm(t, s):
    return t.op("renorm", t(s.input), p=float(s.args[0]), axis=int(s.args[1]), most=float(s.args[2]))


@maps("nn.functional.cosine_similarity", sums=True)
def cosine_similarity(t, s):
    return t.op("cosine_similarity", t(s.input), t(s.args[0]), axis=axis_of(argument(s, 1, "dim", 1), max(s.input.ndim, s.args[0].ndim)), eps=float(argument(s, 2, "eps", 1e-8)))


@maps("hash_tensor")
def hash_tensor(t, s):
    result = t.op("hash_tensor", t(s.input), dims=axes_of(s), keepdims=bool(s.kwargs.get("keepdim", False)))
    result.dtype = "ui64"
    return result


@maps("aminmax")
def aminmax(t, s):
    dim = s.kwargs.get("dim")
    return t.op("aminmax", t(s.input), dims=None if dim is None or s.input.ndim == 0 else [dim], keepdims=bool(s.kwargs.get("keepdim", False)))


@maps("nansum", "nanmean", sums=True)
def of_numbers(t, s):
    x, dtype = s.input, s.kwargs.get("dtype")
    if not x.is_floating_point():
        return t.convert(t.op("sum", t(x, s.result.dtype), dims=axes_of(s), keepdims=bool(argument(s, 1, "keepdim", False))), s.result.dtype)
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
    if not s.input.is_floating_point() and not s.input.is_complex():
        return distance(t, x, y, s, bool(argument(s, 3, "keepdim", False)), **given)
    return t.op("pairwise_distance", x, y, keepdims=bool(argument(s, 3, "keepdim", False)), **given)


def distance(t, x, y, s, keepdims=False, p=2.0, eps=1e-6):
    """The norm of x - y + eps, of integers that are subtracted as such."""
    off = t.op("add", t.convert(t.op("sub", x, y), torch.float32), t(eps, torch.float32))
    return t.op("norm", off, p=p, dims=[max(1, s.input.ndim) - 1], keepdims=keepdims)


@maps("nn.functional.triplet_margin_loss", "nn.functional.triplet_margin_with_distance_loss", sums=True)
def triplet(t, s):
    how, tensors = {"reduction": s.kwargs.get("reduction", "mean"), "swap": bool(s.kwargs.get("swap"))}, [t(x) for x in (s.input, *s.args[:2])]
    given = {name: float(s.kwargs[name]) for name in ("margin", "p", "eps") if name in s.kwargs}
    if type(s.kwargs.get("distance_function")).__name__ not in ("PairwiseDistance", "NoneType"):
        raise Refused("own distances")
    if s.input.is_floating_point() or s.input.is_complex():
        return t.op("triplet_margin", *tensors, **how, **given)
    anchor, near, far_off = tensors
    margin = given.pop("margin", 1.0)
    to_near, to_far = distance(t, anchor, near, s, **given), distance(t, anchor, far_off, s, **given)
    if how["swap"]:
        to_far = t.op("minimum", to_far, distance(t, near, far_off, s, **given))
    part = s.result.dtype
    loss = t.op("maximum", t.op("add", t.op("sub", to_near, to_far), t(margin, part)), t(0, part))
    return loss if how["reduction"] == "none" else t.op(how["reduction"], loss)


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
    rows = t(s.input) if s.input.ndim else t.op("reshape", t(s.input), shape=[1])
    return t.op("multi_margin", rows, t(s.args[0]) if s.args[0].ndim == s.input.ndim - 1 else t.op("reshape", t(s.args[0]), shape=list(s.input.shape[:-1])),
                weight_of(t, s), p=int(s.kwargs.get("p", 1)), margin=float(s.kwargs.get("margin", 1.0)), reduction=s.kwargs.get("reduction", "mean"))


@maps("nn.functional.multilabel_margin_loss", sums=True)
def multilabel_margin(t, s):
    rows = [t(x) if x.ndim else t.op("reshape", t(x), shape=[1]) for x in (s.input, s.args[0])]
    return t.op("multilabel_margin", *rows, reduction=s.kwargs.get("reduction", "mean"))


@maps("nn.functional.multilabel_soft_margin_loss", sums=True)
def multilabel_soft_margin(t, s):
    return t.op("multilabel_soft_margin", t(s.input), t(s.args[0]), weight_of(t, s), reduction=s.kwargs.get("reduction", "mean"))


@maps("nn.functional.cosine_embedding_loss", sums=True)
def cosine_embedding(t, s):
    dtype = s.input.dtype if s.input.is_floating_point() else torch.float32
    return t.op("cosine_embedding", t(s.input, dtype), t(s.args[0], dtype), t(s.args[1], dtype), margin=float(s.kwargs.get("margin", 0.0)),
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
    base, count, dtype = float(argument(s, 2, "base", 10.0)), s.args[1], s.result.dtype
    if dtype.is_floating_point:
        return t.op("logspace", start=float(s.input), stop=float(s.args[0]), count=count, base=base, dtype=NAMES[dtype])
    if dtype.is_complex:
        start, stop = complex(s.input), complex(s.args[0])
        row = t.op("linspace", start=start.real, stop=stop.real, start_imaginary=start.imag, stop_imaginary=stop.imag, count=count, dtype=NAMES[dtype])
        return t.op("pow", t(base, dtype), row)
    row = whole_ends(t, int(s.input), int(s.args[0]), count)
    return t.convert(t.op("pow", t(base, torch.float64), row), dtype)


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
    t.no_values = bool(s.kwargs.get("training"))
    return t.op("leaky_relu", t(s.input), slope=(float(s.kwargs.get("lower", 1 / 8)) + float(s.kwargs.get("upper", 1 / 3))) / 2)
