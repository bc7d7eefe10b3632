"""Special functions that are computed in f64 whatever their type is, in units of the last place: mpmath with 40 digits is the judge, and
the table that this prints is in docs/accuracy.md. Of functions that oscillate the unit is that of their envelope, so
that zeros do not count. Without the registry the test is SKIPPED and says so."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import python_env  # noqa: E402

python_env.enter("mpmath", ["numpy", "mpmath"], os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "conformance"))
import mpmath as mp  # noqa: E402
import numpy as np  # noqa: E402
import weft  # noqa: E402

mp.mp.dps = 40
weft.load()
CTX = weft.Context()
RNG = np.random.default_rng(1)
COUNT = 300


def spread(low, high):
    """Half of them evenly, half evenly in their logarithm."""
    return np.concatenate([RNG.uniform(low, high, COUNT // 2), np.exp(RNG.uniform(np.log(max(low, 1e-8)), np.log(high), COUNT // 2))])


def either(high):
    x = spread(0, high)
    return x * np.where(RNG.random(x.size) < 0.5, -1, 1)


def envelope(f, order):
    """A wave's value, and the size that it is measured by."""
    def both(x):
        return f(order, x), mp.sqrt(mp.besselj(order, x) ** 2 + mp.bessely(order, abs(x)) ** 2) if x else mp.mpf(1)
    return both


def plain(f):
    return lambda x: (f(mp.mpf(x)), None)


def log_ndtr(x):
    return mp.log(mp.ncdf(x)) if x < 5 else mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2)


def ndtri(p):
    with mp.workdps(90):
        return -mp.sqrt(2) * mp.erfinv(1 - 2 * p)


def airy(slope):
    """Left of 0 both oscillate."""
    def both(x):
        ai, bi = (mp.mpf(f(x, derivative=slope)) for f in (mp.airyai, mp.airybi))
        return ai, mp.sqrt(ai * ai + bi * bi) if x < 0 else None
    return both


# name: (judge, operands, bound of f64, bound of f32)
TABLE = {
    "bessel_i0": (plain(lambda x: mp.besseli(0, x)), either(80), 8, 0.51),
    "bessel_i1": (plain(lambda x: mp.besseli(1, x)), either(80), 8, 0.51),
    "bessel_j0": (envelope(mp.besselj, 0), either(100), 8, 0.51),
    "bessel_j1": (envelope(mp.besselj, 1), either(100), 8, 0.51),
    "bessel_y0": (envelope(mp.bessely, 0), spread(1e-3, 100), 10, 0.51),
    "bessel_y1": (envelope(mp.bessely, 1), spread(1e-3, 100), 8, 0.51),
    "bessel_k0": (plain(lambda x: mp.besselk(0, x)), spread(1e-6, 80), 8, 0.51),
    "bessel_k1": (plain(lambda x: mp.besselk(1, x)), spread(1e-6, 80), 8, 0.51),
    "bessel_k0e": (plain(lambda x: mp.exp(x) * mp.besselk(0, x)), spread(1e-6, 1e3), 8, 0.51),
    "bessel_k1e": (plain(lambda x: mp.exp(x) * mp.besselk(1, x)), spread(1e-6, 1e3), 8, 0.51),
    "erfcx": (plain(lambda x: mp.exp(x * x) * mp.erfc(x)), np.concatenate([spread(1e-6, 25), -spread(1e-6, 9)]), 200, 0.51),
    "ndtr": (plain(mp.ncdf), np.concatenate([either(8), -spread(1, 12)]), 200, 0.51),
    "log_ndtr": (plain(log_ndtr), np.concatenate([either(8), -spread(1, 1e4)]), 16, 0.51),
    "airy_ai": (airy(0), np.concatenate([either(10), -spread(1, 1e4), spread(1, 100)]), 5, 0.51),
    "airy_ai_slope": (airy(1), np.concatenate([either(10), -spread(1, 1e4), spread(1, 100)]), 5, 0.51),
    "ndtri": (plain(ndtri), np.concatenate([RNG.uniform(0.001, 0.999, COUNT), np.exp(-spread(1, 80))]), 16, 0.51),
}


def units(op, dtype):
    judge, operands, *bounds = TABLE[op]
    x = operands.astype(dtype)
    if op == "ndtri":
        x = x[np.abs(x - 0.5) > 1e-3]  # its zero
    found = CTX.apply(op, [CTX.tensor(x)], {})[0].numpy()
    digits = 24 if dtype == "f4" else 53
    worst, where = 0.0, None
    for v, y in zip(x.astype("f8"), found.astype("f8")):
        wanted, size = judge(mp.mpf(float(v)))
        if abs(wanted) < (1e-37 if dtype == "f4" else 1e-300):
            continue
        unit = mp.ldexp(1, int(mp.floor(mp.log(abs(size if size is not None else wanted), 2))) + 1 - digits)
        off = float(abs(mp.mpf(float(y)) - wanted) / unit)
        if not off <= worst:
            worst, where = off, v
    return worst, where, bounds[1 if dtype == "f4" else 0]


def main():
    failed = []
    for op in TABLE:
        for dtype, name in (("f4", "f32"), ("f8", "f64")):
            worst, where, bound = units(op, dtype)
            print(f"| {op} | {name} | {bound} | {worst:.3f} | {where!r} |")
            if not worst <= bound:
                failed.append(f"{op} in {name}: {worst} units at {where!r}, not {bound}")
    print(*failed, sep="\n")
    sys.exit(1 if failed else 0)


main()
