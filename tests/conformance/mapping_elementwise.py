"""Functions element by element that mapping.py does not have: special functions, formulas of arithmetic, activations. See there."""
import math

import torch

from mapping import WIDENED, Refused, argument, axis_of, maps, pair, shaped, unary
from mapping_sequences import any_equal, elements_at

for _name in ("sinh", "cosh", "asinh", "acosh", "atanh", "asin", "acos", "atan", "erfc", "lgamma", "log10", "deg2rad", "rad2deg",
              "reciprocal"):
    unary(_name, _name, floats=True)


@maps("sinc")
def sinc(t, s):
    if not s.input.is_complex():
        return t.op("sinc", t(s.input, s.result.dtype))
    t.no_gradient, x = bool((s.input == 0).any()), t.op("mul", t(s.input), t(math.pi, s.input.dtype))
    return t.op("where", t.op("eq", x, t(0, s.input.dtype)), t(1, s.input.dtype), t.op("div", t.op("sin", x), x))


unary("special.i0e", "bessel_i0e", floats=True)
unary("special.i1e", "bessel_i1e", floats=True)
unary("special.entr", "entr", floats=True)
for _name in ("i0", "special.i1", "special.modified_bessel_i0", "special.modified_bessel_i1", "special.modified_bessel_k0",
              "special.modified_bessel_k1"):
    unary(_name, "bessel_" + _name[-2:], floats=True)
for _name in ("k0", "k1"):
    unary("special.scaled_modified_bessel_" + _name, f"bessel_{_name}e", floats=True)
for _name in ("erfcx", "ndtri", "log_ndtr"):
    unary("special." + _name, _name, floats=True)


@maps("special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1", "special.airy_ai", "special.ndtr", sums=True)
def of_fewer_digits(t, s):
    """PyTorch's Bessel and Airy functions of f64 have some seven digits, its ndtr as many as one plus erf has."""
    t.loose = 2e-16 if s.name == "special.ndtr" else 1e-6
    t.no_gradient = s.input.dtype == torch.float64 and s.name != "special.ndtr"
    dtype = s.input.dtype if s.input.is_floating_point() else torch.float32
    return t.op(s.name.split(".")[1], t(s.input, dtype))


unary("frac", "frac")


unary("isinf", "is_inf")
unary("isneginf", "is_neg_inf")
unary("isposinf", "is_pos_inf")
unary("angle", "angle", floats=True)


@maps("signbit")
def signbit(t, s):
    return t.op("signbit", t(s.input, torch.uint8 if s.input.dtype == torch.bool else None))


@maps("polygamma/polygamma_n_0", "polygamma/polygamma_n_1", "polygamma/polygamma_n_2", "polygamma/polygamma_n_3", "polygamma/polygamma_n_4",
      "special.polygamma/special_polygamma_n_0")
def polygamma(t, s):
    # OpInfo calls polygamma(x, n) through a lambda.
    dtype = s.input.dtype if s.input.is_floating_point() else torch.float32
    t.loose = 1e-8 if argument(s, 0, "n", 0) == 1 else 0.0  # PyTorch's trigamma of f64
    t.skipped = (s.input <= 0) & (s.input == s.input.double().floor())
    t.no_gradient = dtype == torch.float64  # PyTorch's trigamma has some nine digits
    return t.op("polygamma", t(float(argument(s, 0, "n", 0)), dtype), t(s.input, dtype))


def of_floats(torch_name, weft_name):
    @maps(torch_name)
    def call(t, s):
        dtype = torch.result_type(s.input, s.args[0])
        return t.op(weft_name, *pair(t, s.input, s.args[0], dtype if dtype.is_floating_point or dtype.is_complex else torch.float32))


for _name, _own in (("xlogy", "xlogy"), ("special.xlog1py", "xlog1py"), 
                    ("logaddexp2", "logaddexp2"), ("igamma", "igamma"), ("igammac", "igammac"), ("hypot", "hypot"), ("copysign", "copysign")):
    of_floats(_name, _own)


@maps("logaddexp")
def logaddexp(t, s):
    dtype = torch.result_type(s.input, s.args[0])
    if not dtype.is_complex:
        return t.op("logaddexp", *pair(t, s.input, s.args[0]))
    shape = list(s.result.shape)
    return log_add(t, *(t.op("broadcast_to", t(v, dtype), shape=shape) for v in (s.input, s.args[0])))


def log_add(t, x, y):
    """log(e^x + e^y) of complex numbers. PyTorch's angle is the larger one's and what it turns by, beyond pi too."""
    less = t.op("lt", t.op("real", x), t.op("real", y))
    low, high = t.op("where", less, x, y), t.op("where", less, y, x)
    return t.op("add", high, t.op("log1p", t.op("exp", t.op("sub", low, high))))


def polynomial(family):
    WIDENED.update({"special." + family.replace("_", "_polynomial_"), "special.shifted_" + family.replace("_", "_polynomial_")})
    shifted = ("special.shifted_" + family.replace("_", "_polynomial_"),) if family.startswith("chebyshev") else ()

    @maps("special." + family.replace("_", "_polynomial_"), *shifted)
    def call(t, s):
        dtype = torch.result_type(s.input, s.args[0])
        x, n = pair(t, s.input, s.args[0], dtype if dtype.is_floating_point else torch.float32)
        x = t.op("sub", t.op("add", x, x), t(1.0, s.result.dtype)) if "shifted" in s.name else x
        return t.op("orthogonal_polynomial", x, n, family=family)


for _name in ("chebyshev_t", "chebyshev_u", "chebyshev_v", "chebyshev_w", "hermite_h", "hermite_he", "laguerre_l", "legendre_p"):
    polynomial(_name)


def plain(torch_name, weft_name, swap=False):
    @maps(torch_name)
    def call(t, s):
        x, y = pair(t, s.input, s.args[0])
        return t.op(weft_name, *((y, x) if swap else (x, y)))


for _name, _own in (("remainder", "mod"), ("floor_divide", "floor_divide"), ("div/floor_rounding", "floor_divide"), ("fmax", "fmax"),
                    ("fmin", "fmin"), ("heaviside", "heaviside")):
    plain(_name, _own)
plain("__rmod__", "mod", swap=True)


@maps("logical_and", "logical_or", "logical_xor")
def logical(t, s):
    return t.op(s.name, *pair(t, s.input, s.args[0]))


@maps("logical_not")
def logical_not(t, s):
    return t.op("logical_not", t(s.input))


@maps("digamma")
def digamma(t, s):
    """PyTorch's of ±0 is the infinity of -1 / x; ours is NaN, as at the other poles."""
    t.no_gradient = s.input.dtype == torch.float64 or bool((s.input == 0).any())  # PyTorch's has some nine digits
    dtype = s.input.dtype if s.input.is_floating_point() else torch.float32
    x = t(s.input, dtype)
    return t.op("where", t.op("eq", x, t(0, dtype)), t.op("div", t(-1, dtype), x), t.op("digamma", x))


@maps("special.zeta")
def zeta(t, s):
    x, q = torch.broadcast_tensors(*(torch.as_tensor(v).detach().double() for v in (s.input, s.args[0])))
    t.skipped = (q <= 0) & (q == q.floor())
    t.no_gradient = bool(t.skipped.any())
    dtype = torch.result_type(s.input, s.args[0])
    return t.op("zeta", *pair(t, s.input, s.args[0], dtype if dtype.is_floating_point else torch.float32))


@maps("nextafter")
def nextafter(t, s):
    t.no_gradient = True  # a step of the last place has none here
    return t.op("nextafter", *pair(t, s.input, s.args[0]))


@maps("div/trunc_rounding")
def trunc_divide(t, s):
    return t.op("trunc_divide", *pair(t, s.input, s.args[0]))


@maps("ldexp")
def ldexp(t, s):
    if s.result.is_complex():
        return t.op("mul", t(s.input, s.result.dtype), t.op("pow", t(2, s.result.dtype), t(s.args[0], s.result.dtype)))
    dtype = s.input.dtype if s.input.is_floating_point() else torch.float32
    return t.op("ldexp", t(s.input, dtype), t(s.args[0], torch.int32 if s.args[0].dtype == torch.bool else None))


@maps("logit")
def logit(t, s):
    eps = argument(s, 0, "eps")
    dtype = s.input.dtype if s.input.is_floating_point() else torch.float32
    x = t(s.input, dtype)
    if eps is not None and eps > 0.5:  # every number is cut off: below eps to it, above 1 - eps to that
        low, high = t(eps, dtype), t(1 - eps, dtype)
        x = t.op("where", t.op("lt", x, low), low, t.op("where", t.op("gt", x, high), high, x))
        return t.op("logit", x)
    return t.op("logit", x, **({} if eps is None else {"eps": float(eps)}))


@maps("nan_to_num")
def nan_to_num(t, s):
    given = {name: argument(s, i, name) for i, name in enumerate(("nan", "posinf", "neginf"))}
    given = {name: float(x) for name, x in given.items() if x is not None}
    return t.op("nan_to_num", t(s.input), **given)


@maps("round/decimals_3", "round/decimals_neg_3")
def round_decimals(t, s):
    return t.op("round_decimals", t(s.input), decimals=int(s.kwargs["decimals"]))


@maps("lerp", sums=True)
def lerp(t, s):
    dtype = torch.result_type(s.input, s.args[0])
    x, y, weight = t(s.input, dtype), t(s.args[0], dtype), t(argument(s, 1, "weight"), dtype)
    return t.op("lerp", x, y, weight)


@maps("addcmul", "addcdiv", sums=True)
def scaled(t, s):
    dtype = torch.promote_types(torch.result_type(s.input, s.args[0]), s.args[1].dtype)
    if isinstance(s.kwargs.get("value", 1), complex):
        raise Refused("alpha")
    return t.op(s.name, t(s.input, dtype), t(s.args[0], dtype), t(s.args[1], dtype), value=float(s.kwargs.get("value", 1)))


@maps("masked_fill")
def masked_fill(t, s):
    return t.op("masked_fill", t(s.input), t(s.args[0]), t(s.args[1], s.input.dtype))


@maps("isclose", "allclose")
def isclose(t, s):
    options = {name: s.kwargs[name] for name in ("rtol", "atol", "equal_nan") if name in s.kwargs}
    return t.op(s.name, *pair(t, s.input, s.args[0]), **options)


# --- activations -----------------------------------------------------------------------------------------------------

for _name in ("hardswish", "logsigmoid", "mish", "selu"):
    unary("nn.functional." + _name, _name)


@maps("nn.functional.softsign", "nn.functional.tanhshrink")
def shrunk(t, s):
    """Complex ones by what they are made of; integers as f32."""
    x = t(s.input, s.result.dtype)
    if not s.input.is_complex():
        return t.op(s.name.rsplit(".", 1)[1], x)
    if s.name.endswith("tanhshrink"):
        return t.op("sub", x, t.op("tanh", x))
    return t.op("div", x, t.op("add", t.convert(t.op("abs", x), s.result.dtype), t(1, s.result.dtype)))


@maps("nn.functional.hardsigmoid")
def hardsigmoid(t, s):
    t.no_gradient = s.input.dtype == torch.float64  # PyTorch's sixth is one of f32
    return t.op("hardsigmoid", t(s.input))


def attributes(torch_name, weft_name, **names):
    """An activation whose numbers come by position or by name: Weft's name and PyTorch's, its default."""
    @maps(torch_name)
    def call(t, s):
        return t.op(weft_name, t(s.input), **{own: float(argument(s, i, theirs, default)) for i, (own, (theirs, default)) in enumerate(names.items())})


attributes("nn.functional.celu", "celu", alpha=("alpha", 1.0))


@maps("nn.functional.hardshrink")
def hardshrink(t, s):
    width = float(argument(s, 0, "lambd", 0.5))
    return t.op("hardshrink", t(s.input), lambd=width) if width >= 0 else shaped(t, s, t(s.input))


attributes("nn.functional.softshrink", "softshrink", lambd=("lambd", 0.5))


@maps("nn.functional.threshold")
def threshold(t, s):
    x, (least, value) = t(s.input), (argument(s, i, name) for i, name in enumerate(("threshold", "value")))
    if not s.input.is_floating_point():
        return t.op("where", t.op("gt", x, t(int(least), s.input.dtype)), x, t(int(value), s.input.dtype))
    return t.op("threshold", x, threshold=float(least), value=float(value))


@maps("nn.functional.glu")
def glu(t, s):
    return t.op("glu", t(s.input), axis=axis_of(argument(s, 0, "dim", -1), s.input.dim()))


@maps("nn.functional.softmin", "nn.functional.softmin/with_dtype")
def softmin(t, s):
    axis = axis_of(argument(s, 0, "dim"), max(1, s.input.dim()))
    if s.kwargs.get("dtype") is None:
        return t.op("softmin", t(s.input), axis=axis)
    return t.op("softmax", t.convert(t.op("neg", t(s.input)), s.kwargs["dtype"]), axis=axis)


# --- losses ----------------------------------------------------------------------------------------------------------

def loss(torch_name, weft_name, *options):
    @maps(torch_name, sums=True)
    def call(t, s):
        given = {name: s.kwargs[name] for name in options if name in s.kwargs}
        given = {name: float(x) if isinstance(x, (int, float)) and not isinstance(x, bool) else x for name, x in given.items()}
        tensors = [x for x in (s.input, *s.args) if isinstance(x, torch.Tensor)]
        dtype = max((x.dtype for x in tensors), key=lambda d: (d.is_complex, d == s.input.dtype))
        return t.op(weft_name, *[t(x, dtype) for x in tensors], reduction=s.kwargs.get("reduction", "mean"), **given)




def reduced(t, value, how):
    return value if how == "none" else t.op(how, value)


@maps("nn.functional.l1_loss", sums=True)
def l1(t, s):
    return t.op("l1", *pair(t, s.input, s.args[0]), reduction=s.kwargs.get("reduction", "mean"))


loss("nn.functional.smooth_l1_loss", "smooth_l1", "beta")
loss("nn.functional.huber_loss", "huber", "delta")
loss("nn.functional.kl_div", "kl_div", "log_target")
loss("nn.functional.hinge_embedding_loss", "hinge_embedding", "margin")
loss("nn.functional.soft_margin_loss", "soft_margin")


@maps("nn.functional.margin_ranking_loss", sums=True)
def margin_ranking(t, s):
    how, margin, tensors = s.kwargs.get("reduction", "mean"), float(s.kwargs.get("margin", 0.0)), (s.input, *s.args[:2])
    if s.input.is_floating_point():
        return t.op("margin_ranking", *[t(x) for x in tensors], reduction=how, margin=margin)
    x, y, sign = (t(v, s.input.dtype) for v in tensors)  # integers go on in their type, then in the margin's
    off = t.convert(t.op("mul", t.op("sub", t(0, s.input.dtype), sign), t.op("sub", x, y)), s.result.dtype)
    return reduced(t, t.op("maximum", t.op("add", off, t(margin, s.result.dtype)), t(0, s.result.dtype)), how)


@maps("nn.functional.gaussian_nll_loss", sums=True)
def gaussian_nll(t, s):
    """A variance without the last dimension is one of each row."""
    (y, var), given = s.args[:2], {name: s.kwargs[name] for name in ("full", "eps") if name in s.kwargs}
    shape = list(torch.broadcast_shapes(s.input.shape, y.shape))
    rows = t(var) if var.shape == s.input.shape or list(var.shape[:-1]) == shape[:-1] and var.ndim == len(shape) else t.op("reshape", t(var), shape=[*var.shape, 1])
    x, y, var = (t.op("broadcast_to", v, shape=shape) for v in (t(s.input), t(y), rows))
    return t.op("gaussian_nll", x, y, var, reduction=s.kwargs.get("reduction", "mean"), **given)


@maps("nn.functional.poisson_nll_loss", sums=True)
def poisson_nll(t, s):
    t.no_gradient = bool((s.args[0] == 0).any())  # PyTorch's is NaN along counts of 0, by a logarithm that it does not choose
    given = {"log_input": s.kwargs.get("log_input", True), "full": s.kwargs.get("full", False), "eps": float(s.kwargs.get("eps", 1e-8))}
    dtype = s.input.dtype if s.input.is_floating_point() else torch.float32
    return t.op("poisson_nll", t(s.input, dtype), t(s.args[0], dtype), reduction=s.kwargs.get("reduction", "mean"), **given)


@maps("nn.functional.binary_cross_entropy", sums=True)
def bce(t, s):
    t.no_second = True  # PyTorch adds 1e-12 to what it divides by
    weight = s.kwargs.get("weight")
    return t.op("bce", t(s.input), t(s.args[0]), t(weight) if weight is not None else None, reduction=s.kwargs.get("reduction", "mean"))


@maps("nn.functional.binary_cross_entropy_with_logits", sums=True)
def bce_with_logits(t, s):
    given = [t(s.kwargs[name]) if s.kwargs.get(name) is not None else None for name in ("weight", "pos_weight")]
    return t.op("bce_with_logits", t(s.input), t(s.args[0]), *given, reduction=s.kwargs.get("reduction", "mean"))


# --- measures --------------------------------------------------------------------------------------------------------

@maps("trace")
def trace(t, s):
    return t.op("trace", t(s.input, None if s.input.is_floating_point() or s.input.is_complex() else torch.int64))


@maps("kthvalue")
def kthvalue(t, s):
    axis, keep = axis_of(argument(s, 1, "dim", -1), s.input.ndim), bool(argument(s, 2, "keepdim", False))
    values, indices = t.op("kthvalue", t(s.input), k=int(s.args[0]), axis=axis, keepdims=keep)
    if not any_equal(s.input, axis):
        return [values, indices]
    places = indices if keep or not s.input.ndim else t.op("expand_dims", indices, dims=[axis])
    return [values, shaped(t, s, elements_at(t, s, places, axis), s.result[0])]


@maps("quantile", "nanquantile")
def quantile(t, s):
    dim, keep, x = argument(s, 1, "dim"), bool(argument(s, 2, "keepdim", False)), t(s.input)
    q, how = t(s.args[0], s.input.dtype), {"interpolation": s.kwargs.get("interpolation", "linear")}
    if dim is not None:
        return t.op(s.name, x, q, axis=axis_of(dim, max(1, s.input.dim())), keepdims=keep, **how)
    y = t.op(s.name, t.op("reshape", x, shape=[s.input.numel()]), q, axis=0, **how)
    return t.op("reshape", y, shape=list(s.result.shape)) if keep else y


@maps("count_nonzero")
def count_nonzero(t, s):
    dim = argument(s, 0, "dim")
    dims = None if dim is None else [int(d) for d in (dim if isinstance(dim, (list, tuple)) else [dim])]
    return t.op("count_nonzero", t(s.input), dims=dims or None)
