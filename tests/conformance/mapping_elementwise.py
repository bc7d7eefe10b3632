"""Functions element by element that mapping.py does not have: special functions, formulas of arithmetic, activations. See there."""
import torch

from mapping import MAPPED, NAMES, SUMS, Refused, argument, axis_of, maps, pair, unary  # noqa: F401
from mapping_sequences import any_equal

for _name in ("sinh", "cosh", "asinh", "acosh", "atanh", "asin", "acos", "atan", "erfc", "lgamma", "log10", "deg2rad", "rad2deg",
              "reciprocal", "sinc"):
    unary(_name, _name, floats=True)
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


@maps("special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1", "special.ndtr")
def of_fewer_digits(t, s):
    if bool((s.input < -1 if s.name == "special.ndtr" else abs(s.input.double()) > (0 if s.input.dtype == torch.float64 else 5)).any()):
        raise Refused("digits")
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
    if dtype == torch.float64 and argument(s, 0, "n", 0) == 1:
        raise Refused("digits")
    if bool(((s.input <= 0) & (s.input == s.input.double().floor())).any()):
        raise Refused("poles")
    t.no_gradient = dtype == torch.float64  # PyTorch's trigamma has some nine digits
    return t.op("polygamma", t(float(argument(s, 0, "n", 0)), dtype), t(s.input, dtype))


def of_floats(torch_name, weft_name):
    @maps(torch_name)
    def call(t, s):
        dtype = torch.result_type(s.input, s.args[0])
        return t.op(weft_name, *pair(t, s.input, s.args[0], dtype if dtype.is_floating_point or dtype.is_complex else torch.float32))


for _name, _own in (("xlogy", "xlogy"), ("special.xlog1py", "xlog1py"), ("logaddexp", "logaddexp"),
                    ("logaddexp2", "logaddexp2"), ("igamma", "igamma"), ("igammac", "igammac"), ("hypot", "hypot"), ("copysign", "copysign")):
    of_floats(_name, _own)


def polynomial(family):
    shifted = ("special.shifted_" + family.replace("_", "_polynomial_"),) if family.startswith("chebyshev") else ()

    @maps("special." + family.replace("_", "_polynomial_"), *shifted)
    def call(t, s):
        dtype = torch.result_type(s.input, s.args[0])
        if family in ("chebyshev_t", "chebyshev_u", "laguerre_l") and not dtype.is_floating_point:
            raise Refused("digits")
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
    if bool((s.input == 0).any()):
        raise Refused("poles")
    t.no_gradient = s.input.dtype == torch.float64  # PyTorch's has some nine digits
    return t.op("digamma", t(s.input, s.input.dtype if s.input.is_floating_point() else torch.float32))


@maps("special.zeta")
def zeta(t, s):
    x, q = torch.broadcast_tensors(*(torch.as_tensor(v).detach().double() for v in (s.input, s.args[0])))
    if bool(((q <= 0) & (q == q.floor())).any()):
        raise Refused("poles")
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
    if s.input.is_complex():
        raise Refused("dtype")
    dtype = s.input.dtype if s.input.is_floating_point() else torch.float32
    return t.op("ldexp", t(s.input, dtype), t(s.args[0]))


@maps("logit")
def logit(t, s):
    eps = argument(s, 0, "eps")
    if eps is not None and eps > 0.5:
        raise Refused("negative width")
    x = t(s.input, s.input.dtype if s.input.is_floating_point() else torch.float32)
    return t.op("logit", x, **({} if eps is None else {"eps": float(eps)}))


@maps("nan_to_num")
def nan_to_num(t, s):
    given = {name: argument(s, i, name) for i, name in enumerate(("nan", "posinf", "neginf"))}
    return t.op("nan_to_num", t(s.input), **{name: float(x) for name, x in given.items() if x is not None})


@maps("round/decimals_3", "round/decimals_neg_3")
def round_decimals(t, s):
    return t.op("round_decimals", t(s.input), decimals=int(s.kwargs["decimals"]))


@maps("lerp", sums=True)
def lerp(t, s):
    dtype = torch.result_type(s.input, s.args[0])
    return t.op("lerp", t(s.input, dtype), t(s.args[0], dtype), t(argument(s, 1, "weight"), dtype))


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

for _name in ("hardswish", "logsigmoid", "mish", "selu", "softsign", "tanhshrink"):
    unary("nn.functional." + _name, _name)


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
    if (width := float(argument(s, 0, "lambd", 0.5))) < 0:
        raise Refused("negative width")
    return t.op("hardshrink", t(s.input), lambd=width)


attributes("nn.functional.softshrink", "softshrink", lambd=("lambd", 0.5))
attributes("nn.functional.threshold", "threshold", threshold=("threshold", 0.0), value=("value", 0.0))


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


loss("nn.functional.l1_loss", "l1")
loss("nn.functional.smooth_l1_loss", "smooth_l1", "beta")
loss("nn.functional.huber_loss", "huber", "delta")
loss("nn.functional.kl_div", "kl_div", "log_target")
loss("nn.functional.hinge_embedding_loss", "hinge_embedding", "margin")
loss("nn.functional.margin_ranking_loss", "margin_ranking", "margin")
loss("nn.functional.soft_margin_loss", "soft_margin")
loss("nn.functional.triplet_margin_loss", "triplet_margin", "margin", "p", "eps", "swap")


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
    return t.op("poisson_nll", t(s.input), t(s.args[0], s.input.dtype), reduction=s.kwargs.get("reduction", "mean"), **given)


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
    if s.input.ndim and any_equal(s.input, argument(s, 1, "dim", -1)):
        raise Refused("equal elements")
    return t.op("kthvalue", t(s.input), k=int(s.args[0]), axis=axis_of(argument(s, 1, "dim", -1), max(1, s.input.dim())),
                keepdims=bool(argument(s, 2, "keepdim", False)))


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
