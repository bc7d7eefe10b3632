"""Writes special_points_fixture.txt: the first and second derivatives of elementwise functions at 0, whole and half numbers, both
infinities and the ends of their domains, by mpmath with 50 digits. Where a formula says nothing (kinks, poles, infinity) the
number is written here: the limit, where there is one; else PyTorch's or JAX's choice, which the line names.

    python tests/transforms/make_special_points.py > tests/transforms/special_points_fixture.txt
"""
import mpmath as mp

mp.mp.dps = 50
INF, NAN = mp.inf, mp.nan
PLAIN = [-3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3, 10, -10]
SQRT = mp.sqrt
PHI = lambda x: mp.exp(-x * x / 2) / SQRT(2 * mp.pi)
CDF = lambda x: mp.ncdf(x)
SIG = lambda x: 1 / (1 + mp.exp(-x))
K, C = SQRT(2 / mp.pi), mp.mpf("0.044715")
GTANH = lambda x: x / 2 * (1 + mp.tanh(K * (x + C * x**3)))
I0E = lambda x: mp.exp(-abs(x)) * mp.besseli(0, x)
I1E = lambda x: mp.exp(-abs(x)) * mp.besseli(1, x)
ERFCX = lambda x: mp.exp(mp.mpf(x) ** 2) * mp.erfc(x)
LOGCDF = lambda x: mp.log(mp.ncdf(x))
MISH = lambda x: x * mp.tanh(mp.log(1 + mp.exp(x)))
inside = [x for x in PLAIN if -1 < x < 1]
positive = [x for x in PLAIN if x > 0]


def by(f, order):
    """The derivative by differences with many digits, for points where f is smooth."""
    return lambda x: mp.diff(f, x, order)


ZERO = lambda x: mp.mpf(0)
STEP = {x: (0, 0) for x in (-INF, INF)}  # a constant on both sides
# name and attributes: (points, f', f'', {point: (f', f'')})
TABLE = {
    "sinh": (PLAIN, mp.cosh, mp.sinh, {-INF: (INF, -INF), INF: (INF, INF)}),
    "cosh": (PLAIN, mp.sinh, mp.cosh, {-INF: (-INF, INF), INF: (INF, INF)}),
    "asinh": (PLAIN, lambda x: 1 / SQRT(x * x + 1), lambda x: -x / (x * x + 1) ** 1.5, STEP),
    "acosh": ([x for x in PLAIN if x > 1], lambda x: 1 / SQRT(x * x - 1), lambda x: -x / mp.mpf(x * x - 1) ** 1.5, {1: (INF, -INF), INF: (0, 0)}),
    "atanh": (inside, lambda x: 1 / (1 - mp.mpf(x) ** 2), lambda x: 2 * x / (1 - mp.mpf(x) ** 2) ** 2, {1: (INF, INF), -1: (INF, -INF)}),
    "asin": (inside, lambda x: 1 / SQRT(1 - x * x), lambda x: x / SQRT(1 - x * x) ** 3, {1: (INF, INF), -1: (INF, -INF)}),
    "acos": (inside, lambda x: -1 / SQRT(1 - x * x), lambda x: -x / SQRT(1 - x * x) ** 3, {1: (-INF, -INF), -1: (-INF, INF)}),
    "atan": (PLAIN, lambda x: 1 / mp.mpf(1 + x * x), lambda x: -2 * x / mp.mpf(1 + x * x) ** 2, STEP),
    "erfc": (PLAIN, lambda x: -2 / SQRT(mp.pi) * mp.exp(-x * x), lambda x: 4 * x / SQRT(mp.pi) * mp.exp(-x * x), STEP),
    "lgamma": ([x for x in PLAIN if x > 0 or x % 1], mp.digamma, lambda x: mp.psi(1, x), {INF: (INF, 0)}),
    "digamma": ([x for x in PLAIN if x > 0 or x % 1], lambda x: mp.psi(1, x), lambda x: mp.psi(2, x), {INF: (0, 0)}),
    # JAX: the mean of the sides, where the second derivative jumps.
    "bessel_i1e": ([x for x in PLAIN if x], by(I1E, 1), by(I1E, 2), {0: (0.5, 0), **STEP}),
    "bessel_i0e": ([x for x in PLAIN if x], by(I0E, 1), by(I0E, 2), STEP),
    "bessel_i0": (PLAIN, lambda x: mp.besseli(1, x), by(lambda x: mp.besseli(0, x), 2), {}),
    "bessel_i1": (PLAIN, by(lambda x: mp.besseli(1, x), 1), by(lambda x: mp.besseli(1, x), 2), {}),
    "bessel_j0": (PLAIN, lambda x: -mp.besselj(1, x), by(lambda x: mp.besselj(0, x), 2), STEP),
    "bessel_j1": (PLAIN, by(lambda x: mp.besselj(1, x), 1), by(lambda x: mp.besselj(1, x), 2), STEP),
    "bessel_y0": (positive, lambda x: -mp.bessely(1, x), by(lambda x: mp.bessely(0, x), 2), {0: (INF, -INF), INF: (0, 0)}),
    "bessel_y1": (positive, by(lambda x: mp.bessely(1, x), 1), by(lambda x: mp.bessely(1, x), 2), {INF: (0, 0)}),
    "airy_ai": (PLAIN, lambda x: mp.airyai(x, derivative=1), lambda x: x * mp.airyai(x), {INF: (0, 0)}),
    "airy_ai_slope": (PLAIN, lambda x: x * mp.airyai(x), lambda x: mp.airyai(x) + x * mp.airyai(x, derivative=1), {INF: (0, 0)}),
    "bessel_k0": (positive, lambda x: -mp.besselk(1, x), by(lambda x: mp.besselk(0, x), 2), {0: (-INF, INF), INF: (0, 0)}),
    "bessel_k1": (positive, by(lambda x: mp.besselk(1, x), 1), by(lambda x: mp.besselk(1, x), 2), {INF: (0, 0)}),
    "bessel_k0e": (positive, by(lambda x: mp.exp(x) * mp.besselk(0, x), 1), by(lambda x: mp.exp(x) * mp.besselk(0, x), 2), {INF: (0, 0)}),
    "bessel_k1e": (positive, by(lambda x: mp.exp(x) * mp.besselk(1, x), 1), by(lambda x: mp.exp(x) * mp.besselk(1, x), 2), {INF: (0, 0)}),
    "erfcx": ([x for x in PLAIN if x > -10], by(ERFCX, 1), by(ERFCX, 2), {INF: (0, 0)}),
    "ndtr": (PLAIN, PHI, lambda x: -x * PHI(x), STEP),
    "log_ndtr": (PLAIN, by(LOGCDF, 1), by(LOGCDF, 2), {INF: (0, 0)}),
    "ndtri": ([x for x in inside if x > 0], lambda x: SQRT(2 * mp.pi), ZERO, {0: (INF, -INF), 1: (INF, INF)}),  # half alone
    "mvlgamma p=2": ([x for x in positive if x > 0.5], lambda x: mp.digamma(x) + mp.digamma(x - 0.5), lambda x: mp.psi(1, x) + mp.psi(1, x - 0.5), {}),
    # --- operations
    "abs": ([x for x in PLAIN if x], mp.sign, ZERO, {0: (0, 0), INF: (1, 0), -INF: (-1, 0)}),  # PyTorch: 0 at 0
    "cbrt": (positive, lambda x: mp.cbrt(x) / (3 * x), lambda x: -2 * mp.cbrt(x) / (9 * mp.mpf(x) ** 2), {0: (INF, -INF), INF: (0, 0)}),
    "cos": (PLAIN, lambda x: -mp.sin(x), lambda x: -mp.cos(x), {}),
    "sin": (PLAIN, mp.cos, lambda x: -mp.sin(x), {}),
    "tan": (PLAIN, lambda x: 1 + mp.tan(x) ** 2, lambda x: 2 * mp.tan(x) * (1 + mp.tan(x) ** 2), {}),
    "erf": (PLAIN, lambda x: 2 / SQRT(mp.pi) * mp.exp(-x * x), lambda x: -4 * x / SQRT(mp.pi) * mp.exp(-x * x), STEP),
    "erf_inv": (inside, lambda x: SQRT(mp.pi) / 2 * mp.exp(mp.erfinv(x) ** 2), lambda x: mp.erfinv(x) * mp.pi / 2 * mp.exp(2 * mp.erfinv(x) ** 2),
                {1: (INF, INF), -1: (INF, -INF)}),
    "exp": (PLAIN, mp.exp, mp.exp, {INF: (INF, INF), -INF: (0, 0)}),
    "exp2": (PLAIN, lambda x: 2**mp.mpf(x) * mp.log(2), lambda x: 2**mp.mpf(x) * mp.log(2) ** 2, {INF: (INF, INF), -INF: (0, 0)}),
    "expm1": (PLAIN, mp.exp, mp.exp, {INF: (INF, INF), -INF: (0, 0)}),
    "log": (positive, lambda x: 1 / mp.mpf(x), lambda x: -1 / mp.mpf(x) ** 2, {0: (INF, -INF), INF: (0, 0)}),
    "log2": (positive, lambda x: 1 / (x * mp.log(2)), lambda x: -1 / (mp.mpf(x) ** 2 * mp.log(2)), {0: (INF, -INF), INF: (0, 0)}),
    "log1p": ([x for x in PLAIN if x > -1], lambda x: 1 / mp.mpf(1 + x), lambda x: -1 / mp.mpf(1 + x) ** 2, {-1: (INF, -INF), INF: (0, 0)}),
    "sigmoid": (PLAIN, lambda x: SIG(x) * (1 - SIG(x)), lambda x: SIG(x) * (1 - SIG(x)) * (1 - 2 * SIG(x)), STEP),
    "tanh": (PLAIN, lambda x: 1 - mp.tanh(x) ** 2, lambda x: -2 * mp.tanh(x) * (1 - mp.tanh(x) ** 2), STEP),
    "sqrt": (positive, lambda x: 1 / (2 * SQRT(x)), lambda x: -1 / (4 * SQRT(x) ** 3), {0: (INF, -INF), INF: (0, 0)}),
    "rsqrt": (positive, lambda x: -1 / (2 * SQRT(x) ** 3), lambda x: 3 / (4 * SQRT(x) ** 5), {0: (-INF, INF), INF: (0, 0)}),
    "square": (PLAIN, lambda x: 2 * x, lambda x: mp.mpf(2), {INF: (INF, 2), -INF: (-INF, 2)}),
    "integer_pow exponent=3": (PLAIN, lambda x: 3 * x * x, lambda x: 6 * x, {INF: (INF, INF), -INF: (INF, -INF)}),
    "integer_pow exponent=-1": ([x for x in PLAIN if x], lambda x: -1 / mp.mpf(x) ** 2, lambda x: 2 / mp.mpf(x) ** 3, STEP),
    "neg": (PLAIN, lambda x: mp.mpf(-1), ZERO, {INF: (-1, 0), -INF: (-1, 0)}),
    "sign": (PLAIN, ZERO, ZERO, STEP),
    "floor": (PLAIN, ZERO, ZERO, STEP),
    "ceil": (PLAIN, ZERO, ZERO, STEP),
    "trunc": (PLAIN, ZERO, ZERO, STEP),
    "round": (PLAIN, ZERO, ZERO, STEP),
    "silu": (PLAIN, by(lambda x: x * SIG(x), 1), by(lambda x: x * SIG(x), 2), {INF: (1, 0), -INF: (0, 0)}),
    "softplus": (PLAIN, SIG, lambda x: SIG(x) * (1 - SIG(x)), {INF: (1, 0), -INF: (0, 0)}),
    "gelu": (PLAIN, lambda x: CDF(x) + x * PHI(x), lambda x: (2 - x * x) * PHI(x), {INF: (1, 0), -INF: (0, 0)}),
    "gelu form=tanh": (PLAIN, by(GTANH, 1), by(GTANH, 2), {INF: (1, 0), -INF: (0, 0)}),
    # PyTorch at 0: the left side's, 1; of the second derivative we stay with that side, exp(0).
    "elu": (PLAIN, lambda x: mp.mpf(1) if x > 0 else mp.exp(x), lambda x: mp.mpf(0) if x > 0 else mp.exp(x), {INF: (1, 0), -INF: (0, 0)}),
    "relu": (PLAIN, lambda x: mp.mpf(x > 0), ZERO, {INF: (1, 0), -INF: (0, 0)}),  # PyTorch: 0 at 0
    "relu6": (PLAIN, lambda x: mp.mpf(0 < x < 6), ZERO, {6: (0, 0), **STEP}),  # PyTorch: 0 at 0 and 6
    "leaky_relu": (PLAIN, lambda x: mp.mpf(1) if x > 0 else mp.mpf("0.01"), ZERO, {INF: (1, 0), -INF: ("0.01", 0)}),
    "mish": (PLAIN, by(MISH, 1), by(MISH, 2), {INF: (1, 0), -INF: (0, 0)}),
    "softsign": (PLAIN, lambda x: 1 / mp.mpf(1 + abs(x)) ** 2, lambda x: -2 * mp.sign(x) / mp.mpf(1 + abs(x)) ** 3, STEP),
    "tanhshrink": (PLAIN, lambda x: mp.tanh(x) ** 2, lambda x: 2 * mp.tanh(x) * (1 - mp.tanh(x) ** 2), {INF: (1, 0), -INF: (1, 0)}),
    "entr": (positive, lambda x: -mp.log(x) - 1, lambda x: -1 / mp.mpf(x), {0: (INF, -INF), INF: (-INF, 0)}),
    "logit": ([x for x in inside if x > 0], lambda x: 1 / (x * (1 - mp.mpf(x))), lambda x: (2 * x - 1) / (x * (1 - mp.mpf(x))) ** 2,
              {0: (INF, -INF), 1: (INF, INF)}),
    "sinc": ([x for x in PLAIN if x], by(lambda x: mp.sin(mp.pi * x) / (mp.pi * x), 1), by(lambda x: mp.sin(mp.pi * x) / (mp.pi * x), 2),
             {0: (0, -mp.pi**2 / 3)}),
    "reciprocal": ([x for x in PLAIN if x], lambda x: -1 / mp.mpf(x) ** 2, lambda x: 2 / mp.mpf(x) ** 3, STEP),
    "log10": (positive, lambda x: 1 / (x * mp.log(10)), lambda x: -1 / (mp.mpf(x) ** 2 * mp.log(10)), {0: (INF, -INF), INF: (0, 0)}),
    "logsigmoid": (PLAIN, lambda x: 1 - SIG(x), lambda x: -SIG(x) * (1 - SIG(x)), {INF: (0, 0), -INF: (1, 0)}),
    "celu": (PLAIN, lambda x: mp.mpf(1) if x > 0 else mp.exp(x), lambda x: mp.mpf(0) if x > 0 else mp.exp(x), {INF: (1, 0), -INF: (0, 0)}),
    # PyTorch: at the ends of the straight parts what lies outside, of both derivatives.
    "hardsigmoid": (PLAIN, lambda x: mp.mpf(1) / 6 if -3 < x < 3 else mp.mpf(0), ZERO, STEP),
    "hardtanh": (PLAIN, lambda x: mp.mpf(-1 < x < 1), ZERO, STEP),
    "hardshrink": (PLAIN, lambda x: mp.mpf(abs(x) > 0.5), ZERO, {INF: (1, 0), -INF: (1, 0)}),
    "softshrink": (PLAIN, lambda x: mp.mpf(abs(x) > 0.5), ZERO, {INF: (1, 0), -INF: (1, 0)}),
    "frac": (PLAIN, lambda x: mp.mpf(1), ZERO, {}),
    "deg2rad": (PLAIN, lambda x: mp.pi / 180, ZERO, {INF: (mp.pi / 180, 0), -INF: (mp.pi / 180, 0)}),
    # --- along the second operand, the first being that number
    "polygamma 0": (positive + [-0.5, -1.5], lambda x: mp.psi(1, x), lambda x: mp.psi(2, x), {INF: (0, 0)}),
    "polygamma 1": (positive, lambda x: mp.psi(2, x), lambda x: mp.psi(3, x), {INF: (0, 0)}),
    "polygamma 2": (positive, lambda x: mp.psi(3, x), lambda x: mp.psi(4, x), {INF: (0, 0)}),
    "igamma 2": (positive, lambda x: x * mp.exp(-x), lambda x: (1 - x) * mp.exp(-x), {INF: (0, 0)}),
    "igammac 0.5": (positive, lambda x: -mp.exp(-x) / SQRT(mp.pi * x), lambda x: (1 + 1 / mp.mpf(2 * x)) * mp.exp(-x) / SQRT(mp.pi * x), {INF: (0, 0)}),
    "xlogy 2": (positive, lambda y: 2 / mp.mpf(y), lambda y: -2 / mp.mpf(y) ** 2, {0: (INF, -INF), INF: (0, 0)}),
    "xlogy 0": (positive, ZERO, ZERO, {}),
    "xlog1py 2": ([x for x in PLAIN if x > -1], lambda y: 2 / mp.mpf(1 + y), lambda y: -2 / mp.mpf(1 + y) ** 2, {-1: (INF, -INF), INF: (0, 0)}),
    "hypot 0": ([x for x in PLAIN if x], mp.sign, ZERO, {}),
    "hypot 2": (PLAIN, lambda y: y / SQRT(4 + y * y), lambda y: 4 / SQRT(4 + mp.mpf(y) ** 2) ** 3, {INF: (1, 0), -INF: (-1, 0)}),
    "logaddexp 0": (PLAIN, SIG, lambda x: SIG(x) * (1 - SIG(x)), {INF: (1, 0), -INF: (0, 0)}),
    "atan2 1": (PLAIN, lambda x: -1 / mp.mpf(1 + x * x), lambda x: 2 * x / mp.mpf(1 + x * x) ** 2, STEP),
    "pow 2": (PLAIN, lambda y: mp.mpf(2) ** y * mp.log(2), lambda y: mp.mpf(2) ** y * mp.log(2) ** 2, {}),
    "zeta 2": (positive, lambda q: -2 * mp.zeta(3, q), lambda q: 6 * mp.zeta(4, q), {INF: (0, 0)}),
    "zeta 2.5": (positive, lambda q: -2.5 * mp.zeta(3.5, q), lambda q: 8.75 * mp.zeta(4.5, q), {INF: (0, 0)}),
}


def text(value):
    value = mp.mpf(value)
    return "inf" if value == INF else "-inf" if value == -INF else "nan" if mp.isnan(value) else repr(float(value))


print("# Made by make_special_points.py: a function, a point, its first and its second derivative there.")
for name, (points, first, second, written) in TABLE.items():
    for x in points:
        print(f"{name};{float(x)!r};{text(first(x))};{text(second(x))}")
    for x, (a, b) in written.items():
        print(f"{name};{text(x)};{text(a)};{text(b)}")
