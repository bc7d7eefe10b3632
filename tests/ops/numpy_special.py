"""Part of numpy_test.py: Bessel, normal and incomplete gamma functions beside integrals and sums of NumPy; divisors, parts of numbers, made
tensors, grids and scaled losses beside NumPy. tests/accuracy/special_test.py has the first in units of the last place."""
import itertools
import math

import numpy as np
from numpy_judge import EDGES, INF, INTS, NAN, SEEN, apply, expect, limits, refused, rng

each = np.vectorize
TURN = (np.arange(600) + 0.5) * np.pi / 600
STEPS = (np.arange(6000) + 0.5) * 2e-3


def waves(order):
    """J and Y by their integrals, DLMF 10.9.2 and 10.9.7."""
    def j(x):
        return np.cos(order * TURN - np.abs(x)[:, None] * np.sin(TURN)).mean(1) * np.where(order * (x < 0), -1, 1)

    def y(x):
        decay = np.exp(-x[:, None] * np.sinh(STEPS)) * (np.exp(order * STEPS) + (-1) ** order * np.exp(-order * STEPS))
        return np.sin(x[:, None] * np.sin(half()) - order * half()) @ weights() / np.pi - integral(decay) / np.pi

    return j, y


GAUSS = np.polynomial.legendre.leggauss(200)


def half():
    return (GAUSS[0] + 1) * np.pi / 2


def weights():
    return GAUSS[1] * np.pi / 2


def integral(values):
    """Midpoint sums over STEPS with the ends' correction: errors of the fourth order."""
    first, second = values[:, 0], values[:, 1]
    slope = (second - first) / 2e-3 - (values[:, 2] - 2 * second + first) / 2e-3 / 1
    return values.sum(1) * 2e-3 - 2e-3 ** 2 / 24 * slope


def decays(order):
    """e^x K by its integral, DLMF 10.32.9, whose integrand is even: midpoint sums converge faster than any power."""
    return lambda x: (np.exp(-x[:, None] * (np.cosh(STEPS) - 1)) * np.cosh(order * STEPS)).sum(1) * 2e-3


def airy():
    """By Maclaurin's series, DLMF 9.4.1 and 9.4.2, with the digits of long double."""
    x = rng(123).uniform(-6, 3, 400).astype("f4").astype(np.longdouble)
    first, second = np.longdouble("0.35502805388781723926"), np.longdouble("0.25881940379280679840")
    sums = []
    for start, (a, b) in ((0, (2, 3)), (1, (3, 4))):
        term, value, slope = (x**start).copy(), x**start, np.full_like(x, start)
        for k in range(60):
            slope = slope + term * x * x / (3 * k + a)
            term = term * x**3 / ((3 * k + a) * (3 * k + b))
            value = value + term
        sums.append((value, slope))
    for op, part in (("airy_ai", 0), ("airy_ai_slope", 1)):
        wanted = (first * sums[0][part] - second * sums[1][part]).astype("f8")
        expect(op, [x.astype("f8")], wanted, tolerance=2e-14, floor=0.1)
        expect(op, [x.astype("f4")], wanted.astype("f4"), tolerance=1.2e-7)
    expect("airy_ai", [np.array([INF, -INF, 1e300, np.nan, -1e17])], np.array([0, 0, 0, np.nan, np.nan]), tolerance=0)
    expect("airy_ai_slope", [np.array([INF, 1e300, -INF])], np.array([0, 0, np.nan]), tolerance=0)


def cylinder():
    x = rng(120).uniform(-25, 25, 200)
    positive = np.abs(x) + 0.3
    for order in (0, 1):
        j, y = waves(order)
        grown = lambda v: np.mean(np.exp(v[:, None] * np.cos(TURN)) * np.cos(order * TURN), 1)
        table = {"j": (j, x, 1e-13), "y": (y, positive, 1e-6), "i": (grown, x, 1e-13),
                 "k": (lambda v: decays(order)(v) * np.exp(-v), positive, 1e-13)}
        for letter, (f, v, tolerance) in table.items():
            floor = 1 if letter in "jy" else 1e-3 if letter == "i" else 0
            expect(f"bessel_{letter}{order}", [v], f(v), tolerance=tolerance, floor=floor)
            single = v.astype("f4")
            expect(f"bessel_{letter}{order}", [single], f(single.astype("f8")), tolerance=max(2e-7, tolerance), floor=floor)
        expect(f"bessel_k{order}e", [positive], decays(order)(positive), tolerance=1e-13)
        ends = np.array([0.0, INF, NAN, -1.0])
        expect(f"bessel_y{order}", [ends], np.array([-INF, 0, NAN, NAN]))
        expect(f"bessel_k{order}", [ends], np.array([INF, 0, NAN, NAN]))
        expect(f"bessel_j{order}", [np.array([0.0, INF, -INF, NAN])], np.array([1.0 - order, 0, 0, NAN]))
        expect(f"bessel_i{order}", [np.array([0.0, INF, -INF, NAN])], np.array([1.0 - order, INF, -INF if order else INF, NAN]))
    # Wronski's determinant ties all four of a kind together, DLMF 10.5.2 and 10.28.2.
    for letter, wanted in (("jy", lambda v: 2 / (np.pi * v)), ("ik", lambda v: 1 / v)):
        first, second = ([one(f"bessel_{name}{order}", positive) for order in (0, 1)] for name in letter)
        found = first[1] * second[0] - first[0] * second[1] if letter == "jy" else first[0] * second[1] + first[1] * second[0]
        expect("add", [found, 0 * found], wanted(positive), tolerance=1e-13, note=f" (Wronskian of {letter})")


def one(op, x):
    SEEN.add(op)
    return apply(op, [x], {})[0]


def shares():
    x = np.concatenate([rng(121).uniform(-8, 8, 200), [0.0, -0.0, 26.0, -26.0, -37.0]])
    below = each(math.erfc)(-x / math.sqrt(2)) / 2
    expect("ndtr", [x], below, tolerance=5e-13, floor=0)
    expect("ndtr", [x.astype("f4")[:-1]], each(math.erfc)(-x.astype("f4")[:-1].astype("f8") / math.sqrt(2)) / 2, tolerance=2e-7, floor=1e-37)
    expect("log_ndtr", [x], np.where(x > 0, np.log1p(-each(math.erfc)(np.abs(x) / math.sqrt(2)) / 2), np.log(below)), tolerance=5e-13, floor=0)
    expect("log_ndtr", [np.array([-1e3, -1e5, -INF, INF])], np.array([-500007.826694812, -5000000012.431864, -INF, 0]), tolerance=1e-14)
    expect("erfcx", [x[np.abs(x) < 8]], (np.exp(x * x) * each(math.erfc)(x))[np.abs(x) < 8], tolerance=5e-14)
    expect("erfcx", [np.array([0.0, 1e3, 1e8, 1e300, INF, -30.0, -INF])],
           np.array([1, 1 / (1e3 * math.sqrt(math.pi)) * (1 - 0.5e-6 + 0.75e-12), 1e-8 / math.sqrt(math.pi), 1e-300 / math.sqrt(math.pi), 0, INF, INF]),
           tolerance=1e-14, floor=0)
    p = np.concatenate([rng(122).uniform(0, 1, 200), [1e-300, 1e-20, 1e-5, 0.5]])
    back = one("ndtri", p)
    expect("ndtr", [back], p, tolerance=1e-12, floor=0, note=" (of ndtri)")
    expect("ndtri", [np.array([0.0, 1.0, 0.5, -0.1, 1.1, NAN])], np.array([-INF, INF, 0, NAN, NAN, NAN]))


def incomplete():
    x = np.abs(rng(123).normal(size=150)) * 8 + 0.05
    for dtype, tolerance in (("f8", 3e-14), ("f4", 2e-7)):
        v = x.astype(dtype)
        wide = v.astype("f8")
        lower = {0.5: each(math.erf)(np.sqrt(wide))}  # and by DLMF 8.8.5
        upper = {0.5: each(math.erfc)(np.sqrt(wide)), 1.0: np.exp(-wide)}
        for a in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0):
            if a > 1:
                upper[a] = upper[a - 1] + np.exp((a - 1) * np.log(wide) - wide - math.lgamma(a))
            lower[a] = 1 - upper[a] if a != 0.5 else lower[a]
            expect("igammac", [np.full(150, a, dtype), v], upper[a], tolerance=tolerance, floor=0)
            expect("igamma", [np.full(150, a, dtype), v], lower[a], tolerance=tolerance, floor=1e-2)
    # The median of a large shape is at a - 1/3 + 8 / (405 a).
    for a in (50.0, 1e3, 1e5):
        expect("igamma", [np.array(a), np.array(a - 1 / 3 + 8 / (405 * a))], np.array(0.5), tolerance=1e-5)
    a, v = np.array([0.0, 0, 1, 1, INF, INF, -1, 1, NAN, 1]), np.array([0.0, 2, 0, INF, 3, INF, 1, -1, 1, NAN])
    expect("igamma", [a, v], np.array([NAN, 1, 0, 1, 0, NAN, NAN, NAN, NAN, NAN]))
    expect("igammac", [a, v], np.array([NAN, 0, 1, 0, 1, NAN, NAN, NAN, NAN, NAN]))
    v = np.abs(rng(124).normal(size=60)) + 2.1
    for p in (1, 2, 5):
        wanted = p * (p - 1) / 4 * math.log(math.pi) + sum(each(math.lgamma)(v - j / 2) for j in range(p))
        expect("mvlgamma", [v], wanted, tolerance=1e-12, floor=1, p=p)
    expect("mvlgamma", [np.array([0.5, 0.4])], np.array([NAN, NAN]), p=2)
    refused("mvlgamma", [np.ones(2)], "p is 0", p=0)


FAMILIES = {"chebyshev_t": np.polynomial.chebyshev.Chebyshev, "hermite_h": np.polynomial.hermite.Hermite, "hermite_he": np.polynomial.hermite_e.HermiteE,
            "laguerre_l": np.polynomial.laguerre.Laguerre, "legendre_p": np.polynomial.legendre.Legendre}


def polynomials():
    x = rng(129).uniform(-2, 2, 40)
    for family, basis in FAMILIES.items():
        for n in (0, 1, 2, 5, 12):
            for order in (0, 1, 3):
                wanted = basis.basis(n).deriv(order)(x) if order else basis.basis(n)(x)
                expect("orthogonal_polynomial", [x, np.float64(n)], wanted, tolerance=1e-11, floor=np.abs(wanted).max() + 1e-3, family=family, derivative=order)
        single = x.astype("f4")
        expect("orthogonal_polynomial", [single, np.float32(4.9)], basis.basis(4)(single.astype("f8")), tolerance=2e-7, floor=1, family=family)
    turn = rng(130).uniform(0.1, 3, 40)
    waves_of = {"chebyshev_t": lambda n: np.cos(n * turn), "chebyshev_u": lambda n: np.sin((n + 1) * turn) / np.sin(turn),
                "chebyshev_v": lambda n: np.cos((n + 0.5) * turn) / np.cos(turn / 2), "chebyshev_w": lambda n: np.sin((n + 0.5) * turn) / np.sin(turn / 2)}
    for family, f in waves_of.items():
        for n in (0, 1, 2, 7, 30):
            expect("orthogonal_polynomial", [np.cos(turn), np.full(40, float(n))], f(n), tolerance=1e-11, floor=1, family=family)
    degrees = np.array([-1.0, 0, 1, 2, NAN])
    expect("orthogonal_polynomial", [np.full(5, 0.5), degrees], np.array([0, 1, 0.5, -0.125, NAN]), family="legendre_p")
    refused("orthogonal_polynomial", [np.ones(2), np.ones(2)], "derivative is 9", family="legendre_p", derivative=9)


def divisors():
    for d in INTS:
        a, b = (v.ravel() for v in np.meshgrid(limits(d), limits(d)))
        if d[0] == "i":  # the size of the least integer does not fit
            keep = (a != np.iinfo(d).min) & (b != np.iinfo(d).min)
            a, b = a[keep], b[keep]
        expect("gcd", [a, b], np.gcd(a, b))
        small = np.abs(a.astype("f8") * b.astype("f8")) < np.iinfo(d).max  # the others need not fit
        expect("lcm", [a[small], b[small]], np.lcm(a[small], b[small]))
    a, b = rng(125).integers(-10**9, 10**9, (2, 400))
    expect("gcd", [a, b], np.gcd(a, b))
    expect("lcm", [a, b], np.lcm(a, b))
    expect("gcd", [np.zeros((0, 3), "i4"), np.ones(3, "i4")], np.zeros((0, 3), "i4"))
    for d in ("f4", "f8", "f2"):
        small = np.finfo(d).smallest_subnormal
        x = np.concatenate([EDGES.astype(d), rng(126).normal(size=50).astype(d), [np.finfo(d).max, np.finfo(d).tiny, small, 3 * small, -7 * small]]).astype(d)
        mantissa, exponent = np.frexp(x)
        expect("frexp", [x], [mantissa, np.where(np.isfinite(x), exponent, 0).astype("i4")], tolerance=0, exact_sign=True)
    size, angle = np.abs(rng(127).normal(size=(3, 4))), rng(128).normal(size=4) * 3
    expect("polar", [size, angle], size * np.exp(1j * angle), tolerance=1e-14)
    refused("polar", [np.ones(2, "f2"), np.ones(2, "f2")], "complex numbers have parts of f32 or f64")


def made():
    for rows, columns, offset in ((3, 3, 0), (2, 5, 1), (5, 2, -2), (3, 3, 9), (0, 4, 0)):
        for d in ("f4", "i8", "?", "c8", "f2"):
            expect("eye", [], np.eye(rows, columns, offset, d), tolerance=0, rows=rows, columns=columns, offset=offset, dtype=d)
        for d in ("i4", "i8"):
            expect("tril_indices", [], np.stack(np.tril_indices(rows, offset, columns)).astype(d), rows=rows, columns=columns, offset=offset, dtype=d)
            expect("triu_indices", [], np.stack(np.triu_indices(rows, offset, columns)).astype(d), rows=rows, columns=columns, offset=offset, dtype=d)
    refused("eye", [], "rows is -1", rows=-1)
    refused("tril_indices", [], "columns is -2", rows=1, columns=-2)
    refused("triu_indices", [], "more than 2^31 - 1 elements", rows=1 << 20, columns=1 << 20)
    refused("triu_indices", [], "dtype is f32", rows=1, columns=2, dtype="f4")
    expect("logspace", [], np.logspace(-3, 4, 9), tolerance=1e-14, floor=0, start=-3.0, stop=4.0, count=9, dtype="f8")
    expect("logspace", [], np.logspace(0, 8, 5, base=2, dtype="f4"), start=0.0, stop=8.0, count=5, base=2.0)
    refused("logspace", [], "count is -1", start=0.0, stop=1.0, count=-1)
    forms = {"hann": np.hanning, "hamming": np.hamming, "blackman": np.blackman, "bartlett": np.bartlett, "kaiser": lambda n: np.kaiser(n, 12.0),
             "cosine": lambda n: np.sin(np.pi * (np.arange(n) + 0.5) / n),
             "gaussian": lambda n: np.exp(-0.5 * (np.arange(n) - (n - 1) / 2) ** 2), "exponential": lambda n: np.exp(-np.abs(np.arange(n) - (n - 1) / 2)),
             "nuttall": lambda n: sum(c * np.cos(2 * np.pi * k * np.arange(n) / (n - 1)) for k, c in enumerate((0.3635819, -0.4891775, 0.1365995, -0.0106411)))}
    for form, f in forms.items():
        for n in (2, 7, 64):
            for d in ("f8", "f4"):
                tolerance = 2e-14 if d == "f8" else 4e-7
                expect("window", [], f(n).astype(d), tolerance=tolerance, floor=1, count=n, form=form, periodic=False, dtype=d)
                expect("window", [], f(n + 1)[:-1].astype(d), tolerance=tolerance, floor=1, count=n, form=form, dtype=d)
        expect("window", [], np.ones(1, "f4"), count=1, form=form)
        expect("window", [], np.ones(0, "f4"), count=0, form=form)
    expect("window", [], np.kaiser(9, 3.0), tolerance=1e-14, floor=1, count=9, form="kaiser", periodic=False, parameter=3.0, dtype="f8")
    n = np.arange(8) * 2 * np.pi / 8
    expect("window", [], 0.6 - 0.3 * np.cos(n) + 0.1 * np.cos(2 * n), tolerance=1e-14, floor=1, count=8, form="general_cosine",
           coefficients=[0.6, 0.3, 0.1], dtype="f8")
    refused("window", [], "coefficients are those of form general_cosine", count=3, form="general_cosine")
    refused("window", [], "coefficients are those of form general_cosine", count=3, coefficients=[1.0])
    refused("window", [], "parameter is 0", count=3, form="gaussian", parameter=0.0)


def grids():
    x, y, z = np.array([1.0, 2, 3]), np.array([4.0, 5]), np.array(7.0)
    for indexing in ("ij", "xy"):
        expect("meshgrid", [x, y, z], np.stack(np.meshgrid(x, y, z, indexing=indexing)), indexing=indexing)
        expect("meshgrid", [x], x[None], indexing=indexing)
    expect("meshgrid", [x[:0], y], np.zeros((2, 0, 2)))
    expect("cartesian_prod", [x, y, z], np.array(list(itertools.product(x, y, [7.0]))))
    expect("cartesian_prod", [x[:0], y], np.zeros((0, 2)))
    refused("meshgrid", [np.ones((2, 2))], "[n] is needed")
    v = np.array([5, 3, 8, 1, 9], "i4")
    for count in (1, 2, 3, 5, 6):
        expect("combinations", [v], np.array(list(itertools.combinations(v, count)), "i4").reshape(-1, count), count=count)
        again = list(itertools.combinations_with_replacement(v, count))
        expect("combinations", [v], np.array(again, "i4").reshape(-1, count), count=count, replacement=True)
    refused("combinations", [np.ones(100)], "more than 2^24", count=50)
    refused("combinations", [np.ones((2, 2))], "[n] is needed")


def loss_scales():
    for d in ("f4", "f8", "f2"):
        x = np.array([[1, -2, 3]], d)
        for bad in (0, NAN, INF, -INF):
            v = x.copy()
            v[0, 1] = bad or -2
            for before in (0.0, 1.0):
                with np.errstate(all="ignore"):
                    wanted = [v * np.asarray(0.25, d), np.float32(1.0 if bad else before)]
                expect("amp_non_finite_check_and_unscale", [v, np.float32(before), np.float32(0.25)], wanted, tolerance=0)
    scale = np.float32(8)
    for tracker, found, wanted in ((0, 0, (8, 1)), (3, 0, (16, 0)), (3, 1, (2, 0)), (0, 2, (2, 0))):
        expect("amp_update_scale", [scale, np.int32(tracker), np.float32(found)], [np.float32(wanted[0]), np.int32(wanted[1])], tolerance=0,
               growth_factor=2.0, backoff_factor=0.25, growth_interval=4)
    expect("amp_update_scale", [np.float32(3e38), np.int32(0), np.float32(0)], [np.float32(3e38), np.int32(0)], tolerance=0, growth_interval=1)
    refused("amp_update_scale", [np.ones(2, "f4"), np.int32(0), np.float32(0)], "a scalar is needed")
    refused("amp_update_scale", [scale, np.int32(0), np.float32(0)], "growth_interval is 0", growth_interval=0)


PARTS = (airy, cylinder, shares, incomplete, polynomials, divisors, made, grids, loss_scales)
