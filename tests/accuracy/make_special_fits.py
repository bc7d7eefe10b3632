"""Writes src/ops/elementwise/special_fits.h: polynomials of special functions, highest power first. Power series end where the rest is below
1e-18 of the sum; the others are Chebyshev interpolations of mpmath's functions with 50 digits, cut at 1e-18 (for f32 1e-9) of the largest
coefficient and turned into powers of t in [-1, 1] or [0, 1], where the sum of the sizes says that no digits are lost. Wants mpmath; takes a minute.

    python tests/accuracy/make_special_fits.py > src/ops/elementwise/special_fits.h
"""
import mpmath as mp

mp.mp.dps = 50
PI, EULER, LOG2 = mp.pi, mp.euler, mp.log(2)
LIMIT, SINGLE = mp.mpf(10) ** -40, mp.mpf(10) ** -9
FACTORIAL = [mp.factorial(k) for k in range(40)]
HARMONIC = [mp.harmonic(k) for k in range(41)]
NEAR = mp.mpf("7.9")  # where the waves of J and Y begin


def series(term, most):
    """Coefficients of the powers of z up to `most`, of term(k)."""
    found, sizes = [], mp.mpf(0)
    for k in range(40):
        found.append(term(k))
        sizes += abs(found[-1]) * most ** k
        if k > 3 and abs(found[-1]) * most ** k < sizes * mp.mpf(10) ** -18:
            break
    return found


def chebyshev(f, rest=mp.mpf(10) ** -18, count=96):
    angles = [PI * (k + mp.mpf(1) / 2) / count for k in range(count)]
    values = [f(mp.cos(a)) for a in angles]
    found = [2 * sum(v * mp.cos(j * a) for v, a in zip(values, angles)) / count for j in range(count)]
    found[0] /= 2
    most = max(abs(c) for c in found)
    while abs(found[-1]) < most * rest:
        found.pop()
    if len(found) > count - 3:
        raise SystemExit(f"{count} points are not enough")
    return found


def powers(coefficients):
    """Of a Chebyshev series those of the powers of t."""
    last, here, total = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)], [mp.mpf(0)] * len(coefficients)
    for c in coefficients:
        for i, x in enumerate(last):
            total[i] += c * x
        after = [mp.mpf(0)] + [2 * x for x in here]
        for i, x in enumerate(last):
            after[i] -= x
        last, here = here, after
    return total


def fit(f, rest=mp.mpf(10) ** -18):
    return powers(chebyshev(f, rest))


def unit(f):
    """The same of f on [0, 1], in powers of w."""
    total = [mp.mpf(0)]
    for c in reversed(powers(chebyshev(lambda t: f((t + 1) / 2)))):  # Horner in t = 2 w - 1
        shifted = [mp.mpf(0)] + [2 * x for x in total]
        for i, x in enumerate(total):
            shifted[i] -= x
        shifted[0] += c
        total = shifted
    while total[-1] == 0:
        total.pop()
    return total


def far(order, sine):
    """sqrt(pi x / 2) (J cos + Y sin), or x sqrt(pi x / 2) (Y cos - J sin), in w = (7.9 / x)²; the limits at infinity."""
    def f(w):
        if w <= LIMIT:
            return (mp.mpf(4 * order * order - 1) / 8) if sine else mp.mpf(1)
        x = NEAR / mp.sqrt(w)
        angle, root = x - order * PI / 2 - PI / 4, mp.sqrt(PI * x / 2)
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        return x * root * (y * mp.cos(angle) - j * mp.sin(angle)) if sine else root * (j * mp.cos(angle) + y * mp.sin(angle))
    return unit(f)


def middle(f):
    """f in t = (x - 5) 11 / 32, up to 7.909."""
    return chebyshev(lambda t: f(5 + t * 32 / 11))


def scaled_k(order):
    """sqrt(x) e^x K(x) from 1 on, in 2 / x - 1."""
    def f(t):
        if t <= -1 + LIMIT:
            return mp.sqrt(PI / 2)
        x = 2 / (t + 1)
        return mp.sqrt(x) * mp.exp(x) * mp.besselk(order, x)
    return fit(f)


def scaled_i(order):
    """sqrt(x) e^-x I(x) from 4 on, in 8 / x - 1."""
    def f(t):
        if t <= -1 + LIMIT:
            return 1 / mp.sqrt(2 * PI)
        x = 8 / (t + 1)
        return mp.sqrt(x) * mp.exp(-x) * mp.besseli(order, x)
    return f


def erfcx(t):
    """(1 + x) e^(x²) erfc(x) from 0 on, where it has nearly no slope, in (x - 3.75) / (x + 3.75)."""
    if t >= 1 - LIMIT:
        return 1 / mp.sqrt(PI)
    x = mp.mpf("3.75") * (1 + t) / (1 - t)
    if x > 1000:  # its asymptotic series, where e^(x²) is out of reach
        z = 1 / (2 * x * x)
        total, term = mp.mpf(1), mp.mpf(1)
        for k in range(1, 12):
            term *= -(2 * k - 1) * z
            total += term
        return (1 + x) * total / (x * mp.sqrt(PI))
    return (1 + x) * mp.exp(x * x) * mp.erfc(x)


def normal_tail(t):
    """(1 + 0.75 x) e^(x² / 2) times the share of the normal distribution beyond x >= 0, in (x - 5) / (x + 5)."""
    if t >= 1 - LIMIT:
        return mp.mpf("0.75") / mp.sqrt(2 * PI)
    x = 5 * (1 + t) / (1 - t)
    z = x / mp.sqrt(2)
    share = erfcx((z - mp.mpf("3.75")) / (z + mp.mpf("3.75"))) / (1 + z) / 2
    return (1 + mp.mpf("0.75") * x) * share


def lgamma(t):
    """log Gamma(x) / ((x - 1) (x - 2)) on [1, 3], in x - 2."""
    if abs(t) < LIMIT:
        return 1 - EULER
    if abs(t + 1) < LIMIT:
        return EULER
    return mp.loggamma(t + 2) / ((t + 1) * t)


ROOT = mp.findroot(mp.digamma, mp.mpf("1.4616321449683623"))


def digamma(t):
    """psi(x) / (x - its zero) on [1, 2], in 2 x - 3."""
    x = (t + 3) / 2
    return mp.polygamma(1, ROOT) if abs(x - ROOT) < LIMIT else mp.digamma(x) / (x - ROOT)


def tanhshrink(t):
    """(x - tanh x) / x³ up to sqrt(2), in x² - 1."""
    x = mp.sqrt(t + 1)
    return mp.mpf(1) / 3 if t + 1 < mp.mpf(10) ** -15 else (x - mp.tanh(x)) / x**3


def twice(k):
    return FACTORIAL[k] * FACTORIAL[k]


def step(k):
    return FACTORIAL[k] * FACTORIAL[k + 1]


def zeta(x):
    return 2 * mp.sqrt(mp.mpf(x) ** 3) / 3


def linear(f, low, high):
    """A function of x on [low, high]."""
    return lambda t: f((mp.mpf(low) + high) / 2 + t * (mp.mpf(high) - low) / 2)


def falls(slope):
    """e^ζ Ai(x) x^(1/4), or e^ζ Ai'(x) / x^(1/4), whose limit at infinity is 1 / (2 sqrt(pi)), or less that."""
    def f(x):
        return mp.exp(zeta(x)) * mp.airyai(x, derivative=int(slope)) * mp.mpf(x) ** ((-1 if slope else 1) * mp.mpf(1) / 4)
    return f


def airy_far(slope):
    """falls() from 2.25 on, in 4.5 / ζ - 1."""
    def f(t):
        if t <= -1 + mp.mpf(10) ** -40:
            return (-1 if slope else 1) / (2 * mp.sqrt(PI))
        return falls(slope)((3 * (mp.mpf(9) / 2 / (t + 1)) / 2) ** (mp.mpf(2) / 3))
    return f


def airy_wave(slope, second):
    """The parts of the waves of Ai(-z) and Ai'(-z) from 5 on, in 250 / z³ - 1, DLMF 9.7.9 to 9.7.12; the second ones times ζ."""
    def f(t):
        if t <= -1 + mp.mpf(10) ** -40:
            return mp.mpf(1) if not second else mp.mpf(-7 if slope else 5) / 72
        z = (250 / (t + 1)) ** (mp.mpf(1) / 3)
        with mp.workdps(80):
            angle, d = zeta(z) - PI / 4, int(slope)
            root = mp.sqrt(PI) * z ** ((-1 if slope else 1) * mp.mpf(1) / 4)
            ai, bi, c, s = mp.airyai(-z, derivative=d), mp.airybi(-z, derivative=d), mp.cos(angle), mp.sin(angle)
            if slope:
                return root * zeta(z) * (bi * s - ai * c) if second else root * (ai * s + bi * c)
            return root * zeta(z) * (ai * s + bi * c) if second else root * (ai * c - bi * s)
    return f


LOW = mp.mpf("2.1") ** 2 / 4
TABLES = {
    "J0Low": ("J0, in x² / 4, up to 2.1", lambda: series(lambda k: (-1) ** k / twice(k), LOW)),
    "J1Low": ("J1(x) / x, in x² / 4", lambda: series(lambda k: (-1) ** k / step(k) / 2, LOW)),
    "Y0Low": ("Y0(x) - 2 / pi log(x) J0(x), in x² / 4",
              lambda: series(lambda k: (-1) ** k / twice(k) * (EULER - LOG2 - HARMONIC[k]) * 2 / PI, LOW)),
    "Y1Low": ("(Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x, in x² / 4",
              lambda: series(lambda k: -(-1) ** k / step(k) * (HARMONIC[k] + HARMONIC[k + 1] - 2 * EULER + 2 * LOG2) / (2 * PI), LOW)),
    "J0Middle": ("Chebyshev's polynomials, lowest first, of J0, in (x - 5) 11 / 32", lambda: middle(lambda x: mp.besselj(0, x))),
    "J1Middle": ("Chebyshev's polynomials, lowest first, of J1", lambda: middle(lambda x: mp.besselj(1, x))),
    "Y0Middle": ("Chebyshev's polynomials, lowest first, of Y0", lambda: middle(lambda x: mp.bessely(0, x))),
    "Y1Middle": ("Chebyshev's polynomials, lowest first, of Y1", lambda: middle(lambda x: mp.bessely(1, x))),
    "P0Far": ("the cosine's part of order 0 from 7.9 on, in (7.9 / x)²", lambda: far(0, False)),
    "Q0Far": ("x times the sine's part of order 0", lambda: far(0, True)),
    "P1Far": ("the cosine's part of order 1", lambda: far(1, False)),
    "Q1Far": ("x times the sine's part of order 1", lambda: far(1, True)),
    "I0Near": ("I0, in x² / 4, up to 4", lambda: series(lambda k: 1 / twice(k), mp.mpf(4))),
    "I1Near": ("I1(x) / x, in x² / 4, up to 4", lambda: series(lambda k: 1 / step(k) / 2, mp.mpf(4))),
    "I0Far": ("sqrt(x) e^-x I0(x) from 4 on, in 8 / x - 1", lambda: fit(scaled_i(0))),
    "I1Far": ("sqrt(x) e^-x I1(x) from 4 on, in 8 / x - 1", lambda: fit(scaled_i(1))),
    "I0Far32": ("the same of order 0 for f32", lambda: fit(scaled_i(0), SINGLE)),
    "I1Far32": ("the same of order 1 for f32", lambda: fit(scaled_i(1), SINGLE)),
    "K0Low": ("K0(x) + log(x) I0(x), in x² / 4, up to 1",
              lambda: series(lambda k: (HARMONIC[k] - EULER + LOG2) / twice(k), mp.mpf(1) / 4)),
    "K1Low": ("(1 / x + log(x) I1(x) - K1(x)) / x, in x² / 4, up to 1",
              lambda: series(lambda k: (HARMONIC[k] + HARMONIC[k + 1] - 2 * EULER + 2 * LOG2) / (4 * step(k)), mp.mpf(1) / 4)),
    "K0Far": ("sqrt(x) e^x K0(x) from 1 on, in 2 / x - 1", lambda: scaled_k(0)),
    "K1Far": ("sqrt(x) e^x K1(x) from 1 on, in 2 / x - 1", lambda: scaled_k(1)),
    "Erfcx": ("(1 + x) erfcx(x) from 0 on, in (x - 3.75) / (x + 3.75)", lambda: fit(erfcx)),
    "Erfcx32": ("the same for f32", lambda: fit(erfcx, SINGLE)),
    "NormalTail": ("(1 + 0.75 x) e^(x² / 2) times the share beyond x, in (x - 5) / (x + 5)", lambda: fit(normal_tail)),
    "Tanhshrink32": ("(x - tanh x) / x³ up to sqrt(2), in x² - 1, for f32", lambda: fit(tanhshrink, SINGLE)),
    "Lgamma": ("log Gamma(x) / ((x - 1) (x - 2)) on [1, 3], in x - 2", lambda: fit(lgamma)),
    "Digamma": ("psi(x) / (x - its zero) on [1, 2], in 2 x - 3", lambda: fit(digamma)),
    **{f"Ai{'Slope' if d else ''}{part}": ("Chebyshev's polynomials, lowest first, of " + (what.replace("Ai", "Ai'") if d else what), lambda f=f: chebyshev(f)) for d in (0, 1) for part, what, f in (
        ("Low", "Ai on [-7, 1]", linear(lambda x, d=d: mp.airyai(x, derivative=d), -7, 1)),
        ("Near", "Ai on [-3, 1]", linear(lambda x, d=d: mp.airyai(x, derivative=d), -3, 1)),
        ("Middle", "the falling part of Ai on [1, 2.25]", linear(falls(d), 1, 2.25)),
        ("Far", "the falling part of Ai from 2.25 on, in 4.5 / zeta - 1", airy_far(d)),
        ("P", "the first part of the wave of Ai from -5 on, in 250 / z^3 - 1", airy_wave(d, False)),
        ("Q", "zeta times the second part of the wave of Ai", airy_wave(d, True)))},
}

print("""// Polynomials of special functions, highest power first, written by tests/accuracy/make_special_fits.py.
#pragma once

namespace weft::ops {
""")
for name, (what, make) in TABLES.items():
    found = make()
    if not what.startswith("Chebyshev"):
        found = found[::-1]
    print(f"// Coefficients of {what}.\ninline constexpr double k{name}[] = {{")
    texts = [repr(float(c)) for c in found]
    for i in range(0, len(texts), 4):
        print("    " + ", ".join(texts[i:i + 4]) + ("," if i + 4 < len(texts) else "};"))
    print()
high = mp.mpf(float(ROOT))
print(f"// The zero of the digamma function in two parts.\ninline constexpr double kDigammaZero = {float(high)!r}, kDigammaZeroRest = {float(ROOT - high)!r};\n")
print("}  // namespace weft::ops")
