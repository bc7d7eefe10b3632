"""Writes src/ops/elementwise/special_fits.h: Chebyshev coefficients of special functions, by interpolation of mpmath's functions with
50 digits. A table ends where the rest is below 1e-18 of its largest coefficient. Wants mpmath; takes a minute.

    python tests/accuracy/make_special_fits.py > src/ops/elementwise/special_fits.h
"""
import mpmath as mp

mp.mp.dps = 50
PI = mp.pi


def far(order, sine):
    """sqrt(pi x / 2) (J cos + Y sin), or x sqrt(pi x / 2) (Y cos - J sin), in 128 / x² - 1; the limits at infinity."""
    def f(t):
        if t <= -1 + mp.mpf(10) ** -40:
            return (mp.mpf(4 * order * order - 1) / 8) if sine else mp.mpf(1)
        x = mp.sqrt(128 / (t + 1))
        angle, root = x - order * PI / 2 - PI / 4, mp.sqrt(PI * x / 2)
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        return x * root * (y * mp.cos(angle) - j * mp.sin(angle)) if sine else root * (j * mp.cos(angle) + y * mp.sin(angle))
    return f


def near(f, size, at_zero):
    """An even function of x on [0, size], in 2 x² / size² - 1."""
    def g(t):
        x = size * mp.sqrt((t + 1) / 2)
        return at_zero if x < mp.mpf(10) ** -20 else f(x)
    return g


EULER = mp.euler
Y0 = lambda x: mp.bessely(0, x) - 2 / PI * mp.log(x) * mp.besselj(0, x)
Y1 = lambda x: (mp.bessely(1, x) - 2 / PI * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x
K0 = lambda x: mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)
K1 = lambda x: (mp.besselk(1, x) - 1 / x - mp.log(x / 2) * mp.besseli(1, x)) / x


def scaled(order):
    """sqrt(x) e^x K(x) from 2 on, in 4 / x - 1."""
    def f(t):
        if t <= -1 + mp.mpf(10) ** -40:
            return mp.sqrt(PI / 2)
        x = 4 / (t + 1)
        return mp.sqrt(x) * mp.exp(x) * mp.besselk(order, x)
    return f


def i1e_near(t):
    """e^-x I1(x) / x on [0, 8], in x / 4 - 1."""
    x = 4 * (t + 1)
    return mp.mpf(1) / 2 if x < mp.mpf(10) ** -20 else mp.exp(-x) * mp.besseli(1, x) / x


def i1e_far(t):
    """sqrt(x) e^-x I1(x) from 8 on, in 16 / x - 1."""
    if t <= -1 + mp.mpf(10) ** -40:
        return 1 / mp.sqrt(2 * PI)
    x = 16 / (t + 1)
    return mp.sqrt(x) * mp.exp(-x) * mp.besseli(1, x)


def erfcx(t):
    """(1 + 2 x) e^(x²) erfc(x) from 0 on, in (x - 3.75) / (x + 3.75)."""
    if t >= 1 - mp.mpf(10) ** -40:
        return 2 / mp.sqrt(PI)
    x = mp.mpf("3.75") * (1 + t) / (1 - t)
    if x > 1000:  # its asymptotic series, where e^(x²) is out of reach
        z = 1 / (2 * x * x)
        total, term = mp.mpf(1), mp.mpf(1)
        for k in range(1, 12):
            term *= -(2 * k - 1) * z
            total += term
        return (1 + 2 * x) * total / (x * mp.sqrt(PI))
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


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


TABLES = {
    "J0Near": ("J0 on [0, 8]", near(lambda x: mp.besselj(0, x), 8, mp.mpf(1))),
    "J1Near": ("J1(x) / x on [0, 8]", near(lambda x: mp.besselj(1, x) / x, 8, mp.mpf(1) / 2)),
    "Y0Near": ("Y0(x) - 2 / pi log(x) J0(x) on [0, 8]", near(Y0, 8, 2 / PI * (EULER - mp.log(2)))),
    "Y1Near": ("(Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x on [0, 8]", near(Y1, 8, (2 * EULER - 1 - 2 * mp.log(2)) / (2 * PI))),
    "P0Far": ("the cosine's part of order 0 from 8 on", far(0, False)),
    "Q0Far": ("x times the sine's part of order 0", far(0, True)),
    "P1Far": ("the cosine's part of order 1 from 8 on", far(1, False)),
    "Q1Far": ("x times the sine's part of order 1", far(1, True)),
    "K0Near": ("K0(x) + log(x / 2) I0(x) on [0, 2]", near(K0, 2, -EULER)),
    "K1Near": ("(K1(x) - 1 / x - log(x / 2) I1(x)) / x on [0, 2]", near(K1, 2, (2 * EULER - 1) / 4)),
    "K0Far": ("sqrt(x) e^x K0(x) from 2 on, in 4 / x - 1", scaled(0)),
    "K1Far": ("sqrt(x) e^x K1(x) from 2 on, in 4 / x - 1", scaled(1)),
    "I1eNear": ("e^-x I1(x) / x on [0, 8], in x / 4 - 1", i1e_near),
    "I1eFar": ("sqrt(x) e^-x I1(x) from 8 on, in 16 / x - 1", i1e_far),
    "Erfcx": ("(1 + 2 x) erfcx(x) from 0 on, in (x - 3.75) / (x + 3.75)", erfcx),
    **{f"Ai{'Slope' if d else ''}{part}": (what.replace("Ai", "Ai'") if d else what, f) for d in (0, 1) for part, what, f in (
        ("Low", "Ai on [-7, 1]", linear(lambda x, d=d: mp.airyai(x, derivative=d), -7, 1)),
        ("Near", "Ai on [-3, 1]", linear(lambda x, d=d: mp.airyai(x, derivative=d), -3, 1)),
        ("Middle", "the falling part of Ai on [1, 2.25]", linear(falls(d), 1, 2.25)),
        ("Far", "the falling part of Ai from 2.25 on, in 4.5 / zeta - 1", airy_far(d)),
        ("P", "the first part of the wave of Ai from -5 on, in 250 / z^3 - 1", airy_wave(d, False)),
        ("Q", "zeta times the second part of the wave of Ai", airy_wave(d, True)))},
}


def coefficients(f, count):
    angles = [PI * (k + mp.mpf(1) / 2) / count for k in range(count)]
    values = [f(mp.cos(a)) for a in angles]
    found = [2 * sum(v * mp.cos(j * a) for v, a in zip(values, angles)) / count for j in range(count)]
    found[0] /= 2
    most = max(abs(c) for c in found)
    while abs(found[-1]) < most * mp.mpf(10) ** -18:
        found.pop()
    if len(found) > count - 3:
        raise SystemExit(f"{count} points are not enough")
    return found


print("""// Chebyshev coefficients of special functions, written by tests/accuracy/make_special_fits.py.
#pragma once

namespace weft::ops {
""")
for name, (what, f) in TABLES.items():
    print(f"// Coefficients of {what}.\ninline constexpr double k{name}[] = {{")
    texts = [repr(float(c)) for c in coefficients(f, 64)]
    for i in range(0, len(texts), 4):
        print("    " + ", ".join(texts[i:i + 4]) + ("," if i + 4 < len(texts) else "};"))
    print()
print("}  // namespace weft::ops")
