"""The judge of the special functions, benchmarks/accuracy/special.h, beside mpmath with 40 digits: what it says in long double and in quad
is right to far more digits than f64 has. `accuracy --quick` (accuracy_test.py) holds the operations to that judge. Without the registry
the test is SKIPPED and says so."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import python_env  # noqa: E402

python_env.enter("mpmath", ["numpy", "mpmath"], os.path.abspath(__file__))
import mpmath as mp  # noqa: E402
import numpy as np  # noqa: E402

mp.mp.dps = 40
PROGRAM = os.path.join(os.environ["WEFT_BUILD"], "bin", "accuracy")
RNG = np.random.default_rng(1)
COUNT = 60
# Long double finds the worst operands, to an eighth of a unit in the last place of f64 at the least; quad says how bad they are.
LONG_DOUBLE, QUAD = 2.0**-56, 2.0**-75


def spread(low, high):
    """Half of them evenly, half evenly in their logarithm."""
    return np.concatenate([RNG.uniform(low, high, COUNT // 2), np.exp(RNG.uniform(np.log(max(low, 1e-8)), np.log(high), COUNT // 2))])


def either(high):
    x = spread(0, high)
    return x * np.where(RNG.random(x.size) < 0.5, -1, 1)


def wave(f, order):
    """A wave's value, and the size that it is measured by."""
    return lambda x: (f(order, x), mp.sqrt(mp.besselj(order, x) ** 2 + mp.bessely(order, abs(x)) ** 2))


def plain(f):
    return lambda *x: (f(*x), None)


def log_ndtr(x):
    return mp.log(mp.ncdf(x)) if x < 5 else mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2)


def reflected(f):
    """A gamma function's value below 0, measured by its largest term."""
    def both(x):
        value = f(x)
        return value, max(abs(value), abs(f(1 - x)), abs(value - f(1 - x))) if x < 0 else abs(value)
    return both


def polygamma(n, x):
    return mp.psi(int(n), x)


def ndtri(p):
    with mp.workdps(90):
        return -mp.sqrt(2) * mp.erfinv(1 - 2 * p)


def zeta(s, q):
    with mp.workdps(90):
        return mp.zeta(s, q)


def mvlgamma(x):
    return mp.loggamma(x) + mp.loggamma(x - mp.mpf(1) / 2) + mp.log(mp.pi) / 2


def pairs(first, second):
    return np.stack([first, second], 1)


# name: (mpmath's, operands)
TABLE = {
    "bessel_i0": (plain(lambda x: mp.besseli(0, x)), either(80)),
    "bessel_i0e": (plain(lambda x: mp.exp(-abs(x)) * mp.besseli(0, x)), either(400)),
    "bessel_i1": (plain(lambda x: mp.besseli(1, x)), either(80)),
    "bessel_i1e": (plain(lambda x: mp.exp(-abs(x)) * mp.besseli(1, x)), either(400)),
    "bessel_j0": (wave(mp.besselj, 0), either(100)),
    "bessel_j1": (wave(mp.besselj, 1), either(100)),
    "bessel_y0": (wave(mp.bessely, 0), spread(1e-3, 100)),
    "bessel_y1": (wave(mp.bessely, 1), spread(1e-3, 100)),
    "bessel_k0": (plain(lambda x: mp.besselk(0, x)), spread(1e-6, 80)),
    "bessel_k1": (plain(lambda x: mp.besselk(1, x)), spread(1e-6, 80)),
    "bessel_k0e": (plain(lambda x: mp.exp(x) * mp.besselk(0, x)), spread(1e-6, 1e3)),
    "bessel_k1e": (plain(lambda x: mp.exp(x) * mp.besselk(1, x)), spread(1e-6, 1e3)),
    "erfcx": (plain(lambda x: mp.exp(x * x) * mp.erfc(x)), np.concatenate([spread(1e-6, 25), -spread(1e-6, 9)])),
    "ndtr": (plain(mp.ncdf), np.concatenate([either(8), -spread(1, 30)])),
    "log_ndtr": (plain(log_ndtr), np.concatenate([either(8), -spread(1, 1e3)])),
    "ndtri": (plain(ndtri), np.concatenate([RNG.uniform(0.51, 0.999, COUNT), np.exp(-spread(1, 12))])),
    "lgamma": (reflected(lambda x: mp.loggamma(x).real), np.concatenate([spread(1e-6, 60), -spread(1e-6, 20)])),
    "digamma": (reflected(mp.digamma), np.concatenate([spread(1e-6, 60), -spread(1e-6, 20)])),
    "mvlgamma": (plain(mvlgamma), spread(0.6, 60)),
    "polygamma": (plain(polygamma), pairs(np.arange(COUNT) % 7, spread(0.05, 30))),
    "zeta": (plain(zeta), pairs(spread(1.1, 30), spread(0.1, 29))),
    "igamma": (plain(lambda a, x: mp.gammainc(a, 0, x, regularized=True)), pairs(spread(0.1, 50), spread(0.1, 50))),
    "igammac": (plain(lambda a, x: mp.gammainc(a, x, regularized=True)), pairs(spread(0.1, 50), spread(0.1, 50))),
}


def main():
    failed = []
    for name, (exact, operands) in TABLE.items():
        operands = np.reshape(operands, (len(operands), -1))
        words = [repr(float(x)) for x in operands.ravel()]
        said = subprocess.run([PROGRAM, "--exact", name, *words], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
        assert len(said) == len(operands), name
        worst = [mp.mpf(0)] * 2
        for row, line in zip(operands, said):
            value, size = exact(*(mp.mpf(float(x)) for x in row))
            for i, word in enumerate(line.split()):
                worst[i] = max(worst[i], abs(mp.mpf(word) - value) / abs(size if size is not None else value))
        print(f"{name}: long double within {mp.nstr(worst[0], 3)}, quad within {mp.nstr(worst[1], 3)}")
        for off, bound, width in zip(worst, (LONG_DOUBLE, QUAD), ("long double", "quad")):
            if not off <= bound:
                failed.append(f"{name} in {width}: {mp.nstr(off, 3)}, not {bound:.3g}")
    print(*failed, sep="\n")
    sys.exit(1 if failed else 0)


main()
