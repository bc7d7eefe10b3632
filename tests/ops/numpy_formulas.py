"""Parts of numpy_test.py: special functions, formulas of arithmetic, activations, losses and measures beside definitions in NumPy."""
import math

import warnings

import numpy as np
from numpy_judge import EDGES, INF, INTS, NAN, expect, limits, refused, rng, sigmoid, softplus

each = np.vectorize
CIRCLE = (np.arange(400) + 0.5) * np.pi / 400


def bessel(x, order):
    """e^-|x| I(x) by its integral over half a circle, whose midpoint sums converge faster than any power."""
    return np.mean(np.exp(x[:, None] * np.cos(CIRCLE) - np.abs(x[:, None])) * np.cos(order * CIRCLE), 1)


def zeta(x, q):
    """Sums of 40 terms, and Euler and Maclaurin's rest."""
    k = q + 40
    rest = k ** (1 - x) / (x - 1) + k ** -x / 2 + x * k ** (-x - 1) / 12 - x * (x + 1) * (x + 2) * k ** (-x - 3) / 720
    return sum((q + i) ** -x for i in range(40)) + rest + x * (x + 1) * (x + 2) * (x + 3) * (x + 4) * k ** (-x - 5) / 30240


def digamma(x):
    k = x + 40
    return np.log(k) - 0.5 / k - 1 / (12 * k**2) + 1 / (120 * k**4) - 1 / (252 * k**6) - sum(1 / (x + i) for i in range(40))


def special():
    x = rng(80).uniform(-6, 6, 300)
    inside, above, positive = x / 6.1, np.abs(x) + 1, np.abs(x) + 0.1
    table = {"sinh": (np.sinh, x), "cosh": (np.cosh, x), "asinh": (np.arcsinh, x), "acosh": (np.arccosh, above), "atanh": (np.arctanh, inside),
             "asin": (np.arcsin, inside), "acos": (np.arccos, inside), "atan": (np.arctan, x), "erfc": (each(math.erfc), x),
             "lgamma": (each(math.lgamma), positive), "digamma": (digamma, positive), "bessel_i0e": (lambda v: bessel(v, 0), x),
             "bessel_i1e": (lambda v: bessel(v, 1), x), "log10": (np.log10, positive), "deg2rad": (np.deg2rad, x), "rad2deg": (np.rad2deg, x),
             "reciprocal": (np.reciprocal, positive), "sinc": (np.sinc, x), "entr": (lambda v: -v * np.log(v), positive),
             "logit": (lambda v: np.log(v / (1 - v)), np.abs(inside) * 0.9 + 0.05)}
    for op, (f, v) in table.items():
        expect(op, [v], f(v), tolerance=1e-12, floor=1)
        single = v.astype("f4")
        expect(op, [single], f(single.astype("f8")), tolerance=2e-5, floor=1)
    expect("polygamma", [np.full(300, 2.0), positive], -2 * zeta(3, positive), tolerance=1e-12)
    expect("zeta", [above + 0.5, positive], zeta(above + 0.5, positive), tolerance=1e-12)
    edge = np.array([0.0, 1.0, 2.0, -1.0, NAN, INF])
    expect("entr", [edge], np.array([0, 0, -2 * np.log(2), -INF, NAN, -INF]))
    expect("logit", [edge], np.array([-INF, INF, NAN, NAN, NAN, NAN]))
    expect("logit", [np.array([0.0, 1.0, 2.0])], np.log([1 / 9, 9, 9]), eps=0.1, tolerance=1e-14)
    expect("sinc", [np.zeros(2)], np.ones(2), tolerance=0)


def pairs():
    x, y = (a.ravel() for a in np.meshgrid(EDGES, EDGES))
    safe = np.isfinite(x) & np.isfinite(y) & (y != 0)
    for d in ("f4", "f8"):
        a, b = x.astype(d), y.astype(d)
        for op, f in {"copysign": np.copysign, "nextafter": np.nextafter, "fmax": np.fmax, "fmin": np.fmin}.items():
            expect(op, [a, b], f(a, b), tolerance=0)
        for op, f in {"logaddexp": np.logaddexp, "logaddexp2": np.logaddexp2, "hypot": np.hypot}.items():
            expect(op, [a, b], f(a.astype("f8"), b.astype("f8")))
        expect("mod", [a[safe], b[safe]], np.mod(a[safe], b[safe]), tolerance=1e-6 if d == "f4" else 1e-14)
        expect("floor_divide", [a[safe], b[safe]], np.floor_divide(a[safe], b[safe]), tolerance=0)
        expect("trunc_divide", [a, b], np.trunc(a / b), tolerance=0)
        expect("xlogy", [a, b], np.where((a == 0) & ~np.isnan(b), 0, a.astype("f8") * np.log(b.astype("f8"))))
        expect("xlog1py", [a, b], np.where((a == 0) & ~np.isnan(b) & (b <= -1) | (a == 0) & (b == INF), 0, a.astype("f8") * np.log1p(b.astype("f8"))))
        expect("heaviside", [a, b], np.where(a == 0, b, (a > 0).astype(d)), tolerance=0)
        expect("isclose", [a, b], np.isclose(a, b))
        expect("isclose", [a, b], np.isclose(a.astype("f8"), b.astype("f8"), 0.5, 0.5, True), rtol=0.5, atol=0.5, equal_nan=True)
        for op, f in {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}.items():
            expect(op, [a, b], f(a, b))
        expect("allclose", [a, a], np.array(False))
    expect("allclose", [x[safe], x[safe]], np.array(True))
    for d in INTS:
        a, b = (v.ravel() for v in np.meshgrid(limits(d), limits(d)))
        if d[0] == "i":  # the least integer by -1 overflows
            keep = ~((a == np.iinfo(d).min) & (b == -1))
            a, b = a[keep], b[keep]
        a, b = a[b != 0], b[b != 0]
        expect("mod", [a, b], np.mod(a, b))
        expect("floor_divide", [a, b], np.floor_divide(a, b))
        expect("fmax", [a, b], np.fmax(a, b))
        expect("logical_and", [a, b], np.logical_and(a, b))
        expect("logical_not", [a], np.logical_not(a))
    truth = np.array([True, True, False, False]), np.array([True, False, True, False])
    for op, f in {"fmax": np.fmax, "fmin": np.fmin, "isclose": np.isclose}.items():
        expect(op, [*truth], f(*truth))
    for d in ("c8", "c16"):
        z = np.array([1 + 2j, 1 + 2.00001j, INF, complex(1, NAN), complex(NAN, 1), 1 + 2.1j, 0]).astype(d)
        a, b = (v.ravel() for v in np.meshgrid(z, z))
        for equal_nan in (False, True):
            expect("isclose", [a, b], np.isclose(a, b, rtol=1e-4, equal_nan=equal_nan), rtol=1e-4, equal_nan=equal_nan)
            expect("allclose", [z, z], np.array(np.allclose(z, z, equal_nan=equal_nan)), equal_nan=equal_nan)
    n = np.array([-1074, -149, -3, 0, 7, 127, 300, 1023, 2000], "i4")
    expect("ldexp", [np.ones(9), n], np.ldexp(np.ones(9), n), tolerance=0)
    p, q, w = (rng(s).normal(size=(3, 4)) for s in (81, 82, 83))
    expect("lerp", [p, q, w], p + w * (q - p), tolerance=1e-13, floor=1)
    expect("addcmul", [p, q, w], p - 2 * q * w, tolerance=1e-13, floor=1, value=-2.0)
    expect("addcdiv", [p, q, w + 5], p + q / (w + 5), tolerance=1e-13, floor=1)
    expect("masked_fill", [p, q > 0, np.float64(7)], np.where(q > 0, 7, p), tolerance=0)


def parts():
    for d in ("f4", "f8", "f2"):
        x = EDGES.astype(d)
        expect("is_inf", [x], np.isinf(x))
        expect("is_pos_inf", [x], np.isposinf(x))
        expect("is_neg_inf", [x], np.isneginf(x))
        expect("signbit", [x], np.signbit(x))
        expect("frac", [x], np.where(np.isinf(x), NAN, x - np.trunc(x)), tolerance=0)
        expect("nan_to_num", [x], np.nan_to_num(x), tolerance=0)
        expect("nan_to_num", [x], np.nan_to_num(x, nan=1, posinf=2, neginf=-3), tolerance=0, nan=1.0, posinf=2.0, neginf=-3.0)
        expect("logical_not", [x], np.logical_not(x))
    expect("is_inf", [limits("i4")], np.zeros(8, bool))
    expect("signbit", [limits("i4")], limits("i4") < 0)
    x = np.array([1.25, -1.35, 2.675, 12345.678, -0.05, 150.0])
    for decimals in (-2, -1, 0, 1, 2):
        expect("round_decimals", [x], np.round(x, decimals), tolerance=1e-15, decimals=decimals)
    z = rng(84).normal(size=9) + 1j * rng(85).normal(size=9)
    expect("angle", [z], np.angle(z), tolerance=1e-13)
    expect("angle", [EDGES], np.where(np.isnan(EDGES), NAN, np.where(EDGES < 0, np.pi, 0)))


def activations():
    x = np.concatenate([EDGES[np.isfinite(EDGES)], rng(86).normal(size=50) * 4])
    table = {
        "celu": (lambda v: np.where(v > 0, v, 0.7 * np.expm1(v / 0.7)), {"alpha": 0.7}),
        "selu": (lambda v: 1.0507009873554805 * np.where(v > 0, v, 1.6732632423543772 * np.expm1(v)), {}),
        "hardshrink": (lambda v: np.where(np.abs(v) <= 0.5, 0, v), {}), "softshrink": (lambda v: np.sign(v) * np.maximum(np.abs(v) - 0.5, 0), {}),
        "hardtanh": (lambda v: np.clip(v, -1, 1), {}), "hardsigmoid": (lambda v: np.clip(v + 3, 0, 6) / 6, {}),
        "hardswish": (lambda v: v * np.clip(v + 3, 0, 6) / 6, {}), "logsigmoid": (lambda v: -softplus(-v), {}),
        "softplus_beta": (lambda v: np.where(2 * v > 3, v, softplus(2 * v) / 2), {"beta": 2.0, "threshold": 3.0}),
        "threshold": (lambda v: np.where(v > 0.5, v, -1), {"threshold": 0.5, "value": -1.0}), "mish": (lambda v: v * np.tanh(softplus(v)), {}),
        "softsign": (lambda v: v / (1 + np.abs(v)), {}), "tanhshrink": (lambda v: v - np.tanh(v), {}),
    }
    for op, (f, attrs) in table.items():
        expect(op, [x], f(x), tolerance=1e-12, floor=1, **attrs)
        expect(op, [x.astype("f4")], f(x.astype("f4").astype("f8")), tolerance=4e-6, floor=1, **attrs)
    expect("prelu", [x, np.array([0.3])], np.where(x > 0, x, 0.3 * x), tolerance=1e-14)
    m = rng(87).normal(size=(4, 6))
    expect("glu", [m], m[:, :3] * sigmoid(m[:, 3:]), tolerance=1e-13)
    expect("softmin", [m], np.exp(-m) / np.exp(-m).sum(0), tolerance=1e-13, axis=0)
    # The limits at infinity.
    far = np.array([INF, -INF])
    for op, wanted in {"hardswish": [INF, 0], "mish": [INF, 0], "softsign": [1, -1], "selu": [INF, -1.7580993408473766], "logsigmoid": [0, -INF]}.items():
        expect(op, [far], np.array(wanted))


def losses():
    x, y, z = (rng(s).normal(size=(4, 5)) for s in (88, 89, 90))
    p, q, side, d = sigmoid(x), sigmoid(y), np.sign(z), np.abs(x - y)
    cross = lambda t, s: -(s * np.log(t) + (1 - s) * np.log(1 - t))
    gauss = 0.5 * (np.log(np.maximum(q, 0.3)) + (x - y) ** 2 / np.maximum(q, 0.3) + np.log(2 * np.pi))
    table = {
        "l1": ([x, y], d, {}), "smooth_l1": ([x, y], np.where(d < 0.7, d * d / 1.4, d - 0.35), {"beta": 0.7}),
        "huber": ([x, y], np.where(d < 0.7, d * d / 2, 0.7 * (d - 0.35)), {"delta": 0.7}), "bce": ([p, q, z[0]], cross(p, q) * z[0], {}),
        "bce_with_logits": ([x, q, None, p[0]], -(p[0] * q * np.log(p) + (1 - q) * np.log(1 - p)), {}),
        "kl_div": ([x, q], q * (np.log(q) - x), {}), "poisson_nll": ([x, q], np.exp(x) - q * x, {}),
        "gaussian_nll": ([x, y, q], gauss, {"full": True, "eps": 0.3}),
        "hinge_embedding": ([x, side], np.where(side == 1, x, np.maximum(0, 1 - x)), {}),
        "margin_ranking": ([x, y, side], np.maximum(0, 0.4 - side * (x - y)), {"margin": 0.4}), "soft_margin": ([x, side], softplus(-side * x), {}),
        "triplet_margin": ([x, y, z], np.maximum(0, 1 + np.sqrt(((x - y + 1e-6) ** 2).sum(1)) - np.sqrt(((x - z + 1e-6) ** 2).sum(1))), {}),
    }
    for op, (inputs, wanted, attrs) in table.items():
        for reduction, f in {"none": lambda v: v, "sum": np.sum, "mean": np.mean}.items():
            expect(op, inputs, f(wanted), tolerance=1e-12, floor=1, reduction=reduction, **attrs)
            single = [None if v is None else v.astype("f4") for v in inputs]
            expect(op, single, f(wanted), tolerance=2e-5, floor=1, reduction=reduction, **attrs)
    expect("kl_div", [x, y], (np.exp(y) * (y - x)).sum() / 4, tolerance=1e-12, floor=1, reduction="batchmean", log_target=True)
    expect("pairwise_distance", [x, y], (np.abs(x - y + 1e-6) ** 3).sum(1) ** (1 / 3), tolerance=1e-13, p=3.0)


def measures():
    x = rng(91).normal(size=(4, 5))
    for p in (0.0, 0.5, 1.0, 2.0, 3.0, INF, -INF):
        wanted = np.linalg.norm(x, p, axis=1)
        expect("norm", [x], wanted, tolerance=1e-13, dims=[1], p=p)
        expect("norm", [x.astype("f4")], wanted, tolerance=1e-5, dims=[1], p=p)
    z = x + 1j * rng(92).normal(size=(4, 5))
    expect("norm", [z], np.linalg.norm(z.ravel()), tolerance=1e-13)
    holes = np.where(x > 0.8, NAN, x)
    expect("nansum", [holes], np.nansum(holes, 0), tolerance=1e-13, dims=[0])
    expect("nanmean", [holes], np.nanmean(holes), tolerance=1e-13)
    expect("count_nonzero", [(x > 0).astype("i4")], np.count_nonzero(x > 0, 1), dims=[1])
    expect("count_nonzero", [holes], np.array(20))
    for v in (x, x.astype("f4"), (4 * x).astype("i2"), (4 * x).astype("i8"), np.abs(9 * x).astype("u1"), x > 0, rng(93).normal(size=(3, 2, 7))[:, :, ::2]):
        bits = v.astype("f8").view("u8") if v.dtype.kind == "f" else v.astype("i8").view("u8")
        expect("hash_tensor", [v], np.bitwise_xor.reduce(bits, None))
        expect("hash_tensor", [v], np.bitwise_xor.reduce(bits, -1, keepdims=True), dims=[-1], keepdims=True)
        expect("hash_tensor", [v], np.bitwise_xor.reduce(bits, 0), dims=[0])
    expect("hash_tensor", [x[:, :0]], np.zeros(4, "u8"), dims=[1])
    expect("hash_tensor", [np.array([-0.0])], np.uint64(1 << 63))
    expect("var_mean", [x], [x.var(1, ddof=1), x.mean(1)], tolerance=1e-13, dims=[1], correction=1)
    expect("std_mean", [x], [x.std(), x.mean()], tolerance=1e-13)
    expect("aminmax", [x], [x.min(1), x.max(1)], tolerance=0, dims=[1])
    expect("trace", [x], np.trace(x), tolerance=1e-13)
    expect("trace", [np.arange(24, dtype="i4").reshape(2, 3, 4)], np.array([0 + 5 + 10, 12 + 17 + 22], "i4"))
    order = np.argsort(x, 0)
    expect("kthvalue", [x], [np.take_along_axis(x, order, 0)[1], order[1].astype("i4")], tolerance=0, k=2, axis=0)
    order = np.argsort(x, 0)[1]
    expect("median", [x], [np.sort(x, 0)[1], order.astype("i4")], tolerance=0, axis=0)
    expect("median", [np.array([1.0, NAN, 0.0, NAN])], [np.float64(NAN), np.int32(1)])
    q = np.array([0.0, 0.1, 0.5, 0.93, 1.0])
    for way in ("linear", "lower", "higher", "nearest", "midpoint"):
        expect("quantile", [x, q], np.quantile(x, q, 1, method=way), tolerance=1e-13, axis=1, interpolation=way)
    expect("quantile", [holes, np.float64(0.5)], np.quantile(holes, 0.5, 0), tolerance=1e-13, axis=0, keepdims=False)


def orders():
    x = rng(56).normal(size=(5, 7))
    x[1, 2] = x[1, 5] = -3.0
    order = np.argsort(x, 1, kind="stable")[:, :3]
    expect("top_k", [x], [np.take_along_axis(x, order, 1), order.astype("i4")], tolerance=0, k=3, largest=False)
    whole = rng(57).integers(-9, 9, (4, 6)).astype("i4")
    order = np.argsort(whole, 0, kind="stable")[:2]
    expect("top_k", [whole], [np.take_along_axis(whole, order, 0), order.astype("i4")], k=2, axis=0, largest=False)
    holes, q = np.where(x > 0.8, NAN, x), np.array([0.0, 0.3, 0.5, 1.0])
    holes[3] = NAN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for way in ("linear", "lower", "higher", "nearest", "midpoint"):
            expect("nanquantile", [holes, q], np.nanquantile(holes, q, 1, method=way), tolerance=1e-12, axis=1, interpolation=way)
        expect("nanquantile", [holes, np.float64(0.25)], np.nanquantile(holes, 0.25, 0, keepdims=True), tolerance=1e-12, axis=0, keepdims=True)
    refused("nanquantile", [x, x], "q has shape [5, 7]; it must be a number or a row of them")
    expect("concatenate", [x, x], np.concatenate([x, x], 1), tolerance=0, axis=1, note=" by our name of StableHLO's dimension")
    expect("reverse", [x], x[::-1], tolerance=0, dims=[0])
    for op, own in (("var", np.var), ("std", np.std)):
        expect(op, [x], own(x, 1, ddof=1.25), tolerance=1e-13, dims=[1], correction=1, fraction=0.25)
        refused(op, [x], "fraction is nan; it must be finite", fraction=NAN)


def complexes():
    z = rng(58).normal(size=24) + 1j * rng(59).normal(size=24)
    y = rng(60).normal(size=24) + 1j * rng(61).normal(size=24)
    for kind, near in (("c16", 1e-13), ("c8", 1e-5)):
        a, b = z.astype(kind), y.astype(kind)
        for op, own in (("sinh", np.sinh), ("cosh", np.cosh), ("asinh", np.arcsinh), ("acosh", np.arccosh), ("atanh", np.arctanh), ("asin", np.arcsin),
                        ("acos", np.arccos), ("atan", np.arctan), ("log10", np.log10), ("cbrt", lambda v: v ** (1 / 3))):
            expect(op, [a], own(a), tolerance=near)
        expect("atan2", [a, b], -1j * np.log((b + 1j * a) / np.sqrt(a * a + b * b)), tolerance=near, floor=1)
        larger = (a.real > b.real) | ((a.real == b.real) & (a.imag > b.imag))
        expect("maximum", [a, b], np.where(larger, a, b), tolerance=0)
        expect("minimum", [a, b], np.where(larger, b, a), tolerance=0)
    ties = np.array([1 + 2j, 1 - 1j, 2j, NAN + 1j, 3]), np.array([1 + 1j, 1 + 0j, 2j, 1, 3 + NAN * 1j])
    expect("maximum", [*ties], np.maximum(*ties), tolerance=0)
    expect("minimum", [*ties], np.minimum(*ties), tolerance=0)


def refusals():
    """Each rule of shapes and attributes says what is wrong; nothing is recorded."""
    x, y = np.zeros((4, 5)), np.zeros((4, 1))
    for op, inputs, attrs, text in (
            ("round_decimals", [x], {"decimals": 301}, "decimals is 301; it must be -300 to 300"),
            ("logit", [x], {"eps": 0.75}, "eps is 0.75; it must be 0 to 1/2"),
            ("addcmul", [x.astype("i4")] * 3, {"value": 0.5}, "value is 0.5; of i32 it must be a whole number"),
            ("isclose", [x, x], {"rtol": -1.0}, "rtol is -1; it must be at least 0"),
            ("allclose", [x, x], {"atol": NAN}, "atol is nan; it must be at least 0"),
            ("celu", [x], {"alpha": 0.0}, "alpha is 0; it must be finite and not 0"),
            ("softplus_beta", [x], {"beta": INF}, "beta is inf; it must be finite and not 0"),
            ("hardshrink", [x], {"lambd": -0.5}, "lambd is -0.5; it must be finite and at least 0"),
            ("softshrink", [x], {"lambd": INF}, "lambd is inf; it must be finite and at least 0"),
            ("hardtanh", [x], {"low": 2.0, "high": 1.0}, "low is 2 and high is 1; low must not exceed high"),
            ("glu", [x], {}, "axis 1 has 5 elements; it must be an even number of them"),
            ("softmin", [x], {"axis": 2}, "axis is 2"),
            ("l1", [x, y], {}, "shapes [4, 5] and [4, 1] must be equal"),
            ("bce", [x, x, np.zeros(4)], {}, "weight has shape [4], which does not broadcast to [4, 5]"),
            ("smooth_l1", [x, x], {"beta": -1.0}, "beta is -1; it must be at least 0"),
            ("huber", [x, x], {"delta": 0.0}, "delta is 0; it must be above 0"),
            ("gaussian_nll", [x, x, x], {"eps": 0.0}, "eps is 0; it must be above 0"),
            ("triplet_margin", [x[0, 0]] * 3, {}, "vectors must have shape [..., features], not []"),
            ("pairwise_distance", [x, y], {}, "shapes [4, 5] and [4, 1] must be equal"),
            ("norm", [x], {"p": NAN}, "p is NaN; it must be a number"),
            ("trace", [x[0]], {}, "x must have at least 2 dimensions, not [5]"),
            ("kthvalue", [x], {"k": 6}, "k is 6; it must be 1 to 5, the size of axis 1"),
            ("median", [x[:0]], {"axis": 0}, "axis 0 has size 0: there is no element to find"),
            ("quantile", [x, x], {}, "q has shape [4, 5]; it must be a number or a row of them"),
            ("frac", [x.astype("i4")], {}, "i32"),
            ("lgamma", [x.astype("i4")], {}, "i32"),
            ("hypot", [x, np.zeros(3)], {}, "[4, 5]")):
        refused(op, inputs, text, **attrs)


PARTS = (special, pairs, parts, activations, losses, measures, orders, complexes, refusals)
