"""airy_ai and its slope, in units of the last place: mpmath with 40 digits is the judge. Left of 0, where both oscillate, the unit is that of
their envelope, so that zeros do not count. Without the registry the test is SKIPPED and says so."""
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
# (dtype, its name, digits, bound)
TYPES = (("f4", "f32", 24, 0.51), ("f8", "f64", 53, 4))


def spread(low, high):
    """Half of them evenly, half evenly in their logarithm."""
    return np.concatenate([RNG.uniform(low, high, COUNT // 2), np.exp(RNG.uniform(np.log(max(low, 1e-8)), np.log(high), COUNT // 2))])


OPERANDS = np.concatenate([spread(0, 10), -spread(0, 10), -spread(1, 1e4), spread(1, 100)])


def units(op, slope, dtype, digits):
    x = OPERANDS.astype(dtype)
    found = CTX.apply(op, [CTX.tensor(x)], {})[0].numpy()
    worst, where = 0.0, None
    for v, y in zip(x.astype("f8"), found.astype("f8")):
        ai, bi = (mp.mpf(f(mp.mpf(float(v)), derivative=slope)) for f in (mp.airyai, mp.airybi))
        if abs(ai) < (1e-37 if dtype == "f4" else 1e-300):
            continue
        size = mp.sqrt(ai * ai + bi * bi) if v < 0 else abs(ai)
        off = float(abs(mp.mpf(float(y)) - ai) / mp.ldexp(1, int(mp.floor(mp.log(size, 2))) + 1 - digits))
        if not off <= worst:
            worst, where = off, v
    return worst, where


def main():
    failed = []
    for slope, op in enumerate(("airy_ai", "airy_ai_slope")):
        for dtype, name, digits, bound in TYPES:
            worst, where = units(op, slope, dtype, digits)
            print(f"{op} in {name}: {worst:.3f} units at {where!r}")
            if not worst <= bound:
                failed.append(f"{op} in {name}: {worst} units at {where!r}, not {bound}")
    print(*failed, sep="\n")
    sys.exit(1 if failed else 0)


main()
