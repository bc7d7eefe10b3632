"""Part of numpy_test.py: distributions of tensors, whole numbers and permutations beside their distribution functions. Seeds are fixed: a
bound that the first run keeps is kept. tests/ops/scipy_test.py goes to the extremes."""
import itertools
import math

import numpy as np
from numpy_judge import CTX, FAILURES, NAN, SEEN, apply, refused

COUNT = 50000
each = np.vectorize


def normal(z):
    return each(math.erfc)(-z / math.sqrt(2)) / 2


def draws(op, inputs, dtype="f4", **attrs):
    SEEN.add(op)
    return apply(op, [np.asarray(x, dtype) for x in inputs], attrs)[0]


def continuous(title, x, share):
    """Kolmogorov and Smirnov's statistic: above 2.2 / sqrt(n) once in 8,000."""
    if x.dtype.kind != "f" or not np.all(np.isfinite(x)):
        FAILURES.append(f"{title}: {x.dtype}, not all finite")
        return
    p, n = share(np.sort(x.astype("f8").ravel())), x.size
    off = max((p - np.arange(n) / n).max(), (np.arange(1, n + 1) / n - p).max()) * math.sqrt(n)
    if not off < 2.2:
        FAILURES.append(f"{title}: the distribution functions are {off:.2f} / sqrt(n) apart")


def counted(title, found, shares):
    """Chi squared of whole numbers with these shares, small ones together; 5 deviations above its mean and a bit for its skew."""
    found, n = np.asarray(found).astype("f8").ravel(), found.size
    if not np.all(found == np.floor(found)) or np.any((found < 0) | (found >= len(shares) + 1e9)):
        FAILURES.append(f"{title}: not whole numbers from 0 on")
        return
    bins = np.bincount(np.minimum(found, len(shares)).astype("i8"), minlength=len(shares) + 1)[:len(shares) + 1].astype("f8")
    wanted = n * np.append(shares, max(0.0, 1 - np.sum(shares)))
    small = wanted < 8
    bins, wanted = np.append(bins[~small], bins[small].sum()), np.append(wanted[~small], wanted[small].sum())
    if wanted[-1] < 8:
        if bins[-1] > 30:
            FAILURES.append(f"{title}: {bins[-1]} draws where {wanted[-1]:.3f} are expected")
        bins, wanted = bins[:-1], wanted[:-1]
    chi, degrees = ((bins - wanted) ** 2 / wanted).sum(), max(1, len(wanted) - 1)
    if not chi < degrees + 5 * math.sqrt(2 * degrees) + 8:
        FAILURES.append(f"{title}: chi squared is {chi:.1f} of {degrees} degrees of freedom")


def formulas():
    CTX.seed(91)
    shape = [COUNT]
    for dtype in ("f4", "f8"):
        for a, s in ((0, 1), (-3, 0.25)):
            z = lambda x: (x - a) / s
            table = {"normal_of": lambda x: normal(z(x)), "log_normal": lambda x: normal(z(np.log(x))),
                     "laplace": lambda x: np.where(z(x) < 0, np.exp(np.minimum(z(x), 0)) / 2, 1 - np.exp(-np.maximum(z(x), 0)) / 2),
                     "gumbel": lambda x: np.exp(-np.exp(-z(x))), "cauchy": lambda x: np.arctan(z(x)) / np.pi + 0.5}
            for op, share in table.items():
                continuous(f"{op} {a} {s} {dtype}", draws(op, [a, s], dtype, shape=shape), share)
        for rate in (1e-3, 1, 50):
            continuous(f"exponential {rate} {dtype}", draws("exponential", [rate], dtype, shape=shape), lambda x: -np.expm1(-rate * x))
        for low, high in ((-2, 2), (5, 6), (-np.inf, -3), (0.5, np.inf), (30, 31)):
            tail = lambda x: (normal(-x) - normal(-np.float64(low))) / (normal(-np.float64(high)) - normal(-np.float64(low)))
            head = lambda x: (normal(x) - normal(np.float64(low))) / (normal(np.float64(high)) - normal(np.float64(low)))
            x = draws("truncated_normal", [], dtype="f4", shape=shape, low=float(low), high=float(high))
            continuous(f"truncated_normal {low} {high}", x, tail if low > 0 else head)
            if not np.all((x >= np.float32(low)) & (x <= np.float32(high))):
                FAILURES.append(f"truncated_normal {low} {high}: outside")
    x = draws("truncated_normal", [], shape=shape, mean=10.0, deviation=2.0, low=9.0, high=14.0)
    head = lambda v: (normal((v - 10) / 2) - normal(np.float64(-0.5))) / (normal(np.float64(2)) - normal(np.float64(-0.5)))
    continuous("truncated_normal of mean 10", x, head)
    for op in ("normal_of", "log_normal", "laplace", "gumbel", "cauchy"):
        if not np.array_equal(np.isnan(draws(op, [[0, 0, NAN, 0], [1, -1, 1, NAN]])), [False, True, True, True]):
            FAILURES.append(f"{op}: NaN not where its scale is negative or NaN")
    if not np.array_equal(np.isnan(draws("exponential", [[1, 0, -1, NAN]])), [False, True, True, True]):
        FAILURES.append("exponential: NaN not where its rate is not above 0")
    refused("normal_of", [np.ones((2, 3), "f4"), np.ones(4, "f4")], "do not broadcast")
    refused("laplace", [np.ones(3, "f4"), np.ones((), "f4")], "which does not broadcast to shape [2]", shape=[2])
    refused("truncated_normal", [], "low must be below high", shape=[2], low=1.0, high=1.0)
    refused("truncated_normal", [], "there is nothing of a normal distribution", shape=[2], low=50.0, high=51.0)
    refused("truncated_normal", [], "deviation above 0", shape=[2], deviation=0.0)


def erlang(a):
    return lambda x: 1 - np.exp(-x) * sum(x ** k / math.factorial(k) for k in range(a))


def gammas():
    CTX.seed(92)
    for dtype in ("f4", "f8"):
        for a in (1, 2, 5):
            continuous(f"gamma {a} {dtype}", draws("gamma", [a], dtype, shape=[COUNT]), erlang(a))
            log = draws("gamma", [a], dtype, shape=[COUNT], logarithm=True)
            continuous(f"log gamma {a} {dtype}", log, lambda x: erlang(a)(np.exp(x)))
        continuous(f"gamma 1/2 {dtype}", draws("gamma", [0.5], dtype, shape=[COUNT]), lambda x: each(math.erf)(np.sqrt(x)))
        continuous(f"beta 1/2 1/2 {dtype}", draws("beta", [0.5, 0.5], dtype, shape=[COUNT]), lambda x: 2 / np.pi * np.arcsin(np.sqrt(np.minimum(x, 1))))
        continuous(f"beta 3 1 {dtype}", draws("beta", [3, 1], dtype, shape=[COUNT]), lambda x: x ** 3)
        rows = draws("dirichlet", [[1, 2, 0.5]], dtype, shape=[COUNT, 3]).astype("f8")
        if np.abs(rows.sum(1) - 1).max() > 1e-5:
            FAILURES.append(f"dirichlet {dtype}: rows that do not sum to 1")
        continuous(f"dirichlet {dtype}", 1 - rows[:, 0], lambda x: x ** 2.5)  # the first is beta(1, 2.5)
    for op, inputs in (("gamma", [[1, 0, -1, NAN, np.inf]]), ("beta", [[1, 0, -1, NAN, 1], [1, 1, 1, 1, 0]])):
        if not np.array_equal(np.isnan(draws(op, inputs)), [False, True, True, True, True]):
            FAILURES.append(f"{op}: NaN not where it has no distribution")
    refused("dirichlet", [np.float32(1)], "last dimension of at least 1")


def poisson_shares(rate, count):
    return np.array([math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in range(count)])


def binomial_shares(n, p):
    return np.array([math.comb(n, k) * p ** k * (1 - p) ** (n - k) for k in range(n + 1)])


def counts():
    CTX.seed(93)
    for dtype in ("f4", "f8"):
        for rate in (0.01, 0.5, 3, 9.99, 10.01, 30, 200):
            counted(f"poisson {rate} {dtype}", draws("poisson", [rate], dtype, shape=[COUNT]), poisson_shares(rate, int(rate + 12 * math.sqrt(rate) + 12)))
        for n, p in ((1, 0.3), (20, 0.25), (20, 0.5), (20, 0.9), (100, 0.3), (100, 0.85), (1000, 0.02), (300, 0.5)):
            counted(f"binomial {n} {p} {dtype}", draws("binomial", [n, p], dtype, shape=[COUNT]), binomial_shares(n, np.array(p, dtype).astype("f8")))
        for p in (1, 0.7, 0.2):
            counted(f"geometric {p} {dtype}", draws("geometric", [p], dtype, shape=[COUNT]) - 1, [p * (1 - p) ** k for k in range(60)])
        far = draws("geometric", [1e-6], dtype, shape=[COUNT]).astype("f8")
        continuous(f"geometric 1e-6 {dtype}", far, lambda x: -np.expm1(-1e-6 * x))
    for op, inputs, wanted in (("poisson", [[0, -1, NAN, np.inf]], [0, NAN, NAN, NAN]), ("geometric", [[1, 0, -1, NAN, 1.5]], [1, NAN, NAN, NAN, NAN]),
                               ("binomial", [[5, 5, 0, 5, 5, 2.5, -1, NAN], [0, 1, 0.5, -0.1, NAN, 0.5, 0.5, 0.5]], [0, 5, 0, NAN, NAN, NAN, NAN, NAN])):
        found = draws(op, inputs)
        if not np.array_equal(found, np.array(wanted, "f4"), equal_nan=True):
            FAILURES.append(f"{op}{inputs}: {found}, not {wanted}")
    mask = draws("bernoulli_of", [[0, 0.3, 1, 2, -1, NAN, 1e-4]], shape=[COUNT, 7])
    shares = mask.mean(0)
    if mask.dtype != bool or list(shares[[0, 2, 3, 4, 5]]) != [0, 1, 1, 0, 0] or abs(shares[1] - 0.3) > 0.012 or not 0 < shares[6] < 6e-4:
        FAILURES.append(f"bernoulli_of: {shares}")


def whole_numbers():
    CTX.seed(94)
    for dtype in ("i1", "u1", "i2", "i4", "i8", "u8"):
        SEEN.add("randint")
        found = apply("randint", [], {"shape": [COUNT], "low": 3, "high": 20, "dtype": dtype})[0]
        if found.dtype != np.dtype(dtype):
            FAILURES.append(f"randint in {dtype} gives {found.dtype}")
        counted(f"randint {dtype}", found - 3, [1 / 17] * 17)
    for low, high in ((-2 ** 63, 2 ** 63 - 1), (-5, 2 ** 62), (0, 2 ** 32), (0, 2 ** 32 + 1), (-3 * 2 ** 61, 3 * 2 ** 61)):
        found = apply("randint", [], {"shape": [COUNT], "low": low, "high": high, "dtype": "i8"})[0]
        if found.min() < low or found.max() >= high:
            FAILURES.append(f"randint {low} {high}: {found.min()} to {found.max()}")
        continuous(f"randint {low} {high}", (found.astype("f8") - low) / (float(high) - low), lambda x: np.clip(x, 0, 1))
    refused("randint", [], "low must be below high", shape=[2], low=3, high=3)
    refused("randint", [], "the number 128 does not fit i8", shape=[2], low=0, high=129, dtype="i1")
    refused("randint", [], "the number -1 does not fit u64", shape=[2], low=-1, high=4, dtype="u8")
    refused("randint", [], "dtype is f32", shape=[2], low=0, high=4, dtype="f4")
    SEEN.add("randperm")
    for count, dtype in ((0, "i4"), (1, "i4"), (5000, "i8")):
        found = apply("randperm", [], {"count": count, "dtype": dtype})[0]
        if found.dtype != np.dtype(dtype) or not np.array_equal(np.sort(found), np.arange(count)):
            FAILURES.append(f"randperm {count}: {found}")
    orders = [tuple(apply("randperm", [], {"count": 4})[0]) for _ in range(2400)]
    numbers = {order: i for i, order in enumerate(itertools.permutations(range(4)))}
    counted("randperm 4", np.array([numbers[order] for order in orders]), [1 / 24] * 24)
    refused("randperm", [], "it must be 0 to 2^31 - 1", count=-1)


def rows():
    CTX.seed(95)
    shares = np.array([0.5, 0, 2, 1, 0.25])
    p = shares / shares.sum()
    for dtype in ("f4", "f8", "f2"):
        found = draws("multinomial", [shares], dtype, count=COUNT, replacement=True)
        counted(f"multinomial {dtype}", found, p)
        pairs = draws("multinomial", [np.tile(shares, (COUNT, 1))], dtype, count=2)
        wanted = [[0 if i == j else p[i] * p[j] / (1 - p[i]) for j in range(5)] for i in range(5)]
        counted(f"multinomial without replacement {dtype}", pairs[:, 0] * 5 + pairs[:, 1], np.ravel(wanted))
    batch = draws("multinomial", [[[[0, 1, 0]], [[0, 0, 3]]]], count=4, replacement=True)
    if not np.array_equal(batch, [[[1] * 4], [[2] * 4]]):
        FAILURES.append(f"multinomial of rows: {batch}")
    odd = draws("multinomial", [[[NAN, -1, 2, 0], [0, 0, 0, 0]]], count=9, replacement=True)
    if not np.array_equal(odd, [[2] * 9, [0] * 9]):
        FAILURES.append(f"multinomial of shares that are none: {odd}")
    refused("multinomial", [np.ones(3, "f4")], "without replacement each is drawn once", count=4)
    refused("multinomial", [np.ones((2, 0), "f4")], "there must be 1 to", count=1)
    refused("multinomial", [np.float32(1)], "at least one dimension", count=1)


PARTS = (formulas, gammas, counts, whole_numbers, rows)
