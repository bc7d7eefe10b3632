"""Part of numpy_test.py: random bits by a Philox of its own, and what becomes of them."""
import math

import numpy as np
from numpy_judge import CTX, FAILURES, INF, NAN, SEEN, apply, expect


def philox_block(key, low, high):
    c, k = [low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32], [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def philox_words(key, low, high, count):
    """`count` words from a state, and the counter after them."""
    words, at = [], (high << 64) + low
    while len(words) < count:
        words += philox_block(key, at & (2 ** 64 - 1), at >> 64)
        at = (at + 1) % 2 ** 128
    return words[:count], at


def philox():
    # The published test vector of Philox-4x32-10 (Random123): all zeros.
    if philox_block(0, 0, 0) != [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]:
        FAILURES.append("the test's own Philox is wrong")
    for key, low, high, n in ((0, 0, 0, 4), (0x1234567890ABCDEF, 2 ** 64 - 2, 5, 14), (7, 3, 2 ** 64 - 1, 1)):
        words, at = philox_words(key, low, high, n)
        expect("rng_bit_generator", [np.array([key, low, high], "u8")],
               [np.array([key, at & (2 ** 64 - 1), at >> 64], "u8"), np.array(words, "u4")], shape=[n])


def distributions():
    """What becomes of the bits: exactly where the formula is exact, by moments where many samples are needed."""
    n = 4096
    CTX.seed(77)
    words, at = philox_words(77, 0, 0, n)
    bits = np.array(words, "u4")
    expect("uniform", [], (bits >> 8).astype("f8") * 2.0 ** -24, tolerance=0, shape=[n], note=" (the first draw)")
    key, low, high = CTX.random_state()
    if key != 77 or (high << 64) + low < at:  # an operation reserves what its largest element type would take
        FAILURES.append(f"after {n} draws the state is {key}, {low}, {high}: those after it would repeat")
    # The error function takes normal numbers back to the points they were made of.
    words, at = philox_words(key, low, high, n)
    points = ((np.array(words, "u4") >> 9).astype("f8") + 0.5) * 2.0 ** -22 - 1
    z = apply("normal", [], {"shape": [n]})[0].astype("f8")
    back = np.array([math.erf(v / math.sqrt(2)) for v in z])
    tail = 1 - np.abs(points)  # an f32 z of relative error e moves erf by less than 3 e z phi(z)
    if not np.all(np.abs(back - points) <= 1e-6 * np.minimum(1, tail * 20) + 1e-15):
        worst = np.argmax(np.abs(back - points))
        FAILURES.append(f"normal {z[worst]} comes from {points[worst]}, erf gives {back[worst]}")
    n = 200000
    for dtype in ("f4", "f8"):
        u = apply("uniform", [], {"shape": [n], "low": -1.0, "high": 3.0, "dtype": dtype})[0].astype("f8")
        z = apply("normal", [], {"shape": [n], "mean": 2.0, "deviation": 3.0, "dtype": dtype})[0].astype("f8")
        counts = np.histogram(u, 20, (-1, 3))[0]
        w = (z - 2) / 3
        for what, got, want, error in (
                ("uniform's least", u.min(), -1, 1e-3), ("uniform's largest", u.max(), 3, 1e-3), ("uniform's mean", u.mean(), 1, 0.013),
                ("uniform's bins", ((counts - n / 20) ** 2 / (n / 20)).sum(), 19, 31), ("normal's mean", w.mean(), 0, 0.012),
                ("normal's variance", w.var(), 1, 0.016), ("normal's skew", (w ** 3).mean(), 0, 0.045),
                ("normal's fourth moment", (w ** 4).mean(), 3, 0.12), ("normal's share above 2", (w > 2).mean(), 0.02275, 0.0017),
                ("neighbours' correlation", (w[1:] * w[:-1]).mean(), 0, 0.012)):
            if not abs(got - want) <= error:  # five standard errors or more; the seed is fixed
                FAILURES.append(f"{what} in {dtype} is {got}, not {want} within {error}")
    share = apply("bernoulli", [], {"shape": [n], "probability": 0.3})[0].astype("f8").mean()
    dropped = apply("dropout", [np.full(n, 2.0)], {"rate": 0.2})[0]
    if abs(share - 0.3) > 0.0055 or set(np.unique(dropped)) != {0.0, 2.5} or abs((dropped == 0).mean() - 0.2) > 0.0045:
        FAILURES.append(f"bernoulli 0.3 gives {share}, dropout 0.2 {np.unique(dropped, return_counts=True)}")
    SEEN.update(("normal", "bernoulli", "dropout"))


def categories():
    """Draws by their definition, word for word; their frequencies; what is never drawn and what always is."""
    rows, logits = 500, np.array([0.5, -1.0, 2.0, 0.0, -3.0])
    words, at = philox_words(77, 0, 0, rows * 5)
    e = -np.log1p(-np.minimum((np.array(words, "f8") + 0.5) * 2.0 ** -32, 1 - 2.0 ** -24)).reshape(rows, 5)
    for dtype in ("f4", "f2"):
        CTX.seed(77)
        expect("categorical", [np.tile(logits, (rows, 1)).astype(dtype)], np.argmax(logits - np.log(e), 1).astype("i4"), note=" (the first draw)")
    key, low, high = CTX.random_state()
    if key != 77 or (high << 64) + low < at:  # for every logit, not for every result
        FAILURES.append(f"after {rows * 5} logits the state is {key}, {low}, {high}: those after it would repeat")
    n = 100000
    wanted = n * np.exp(logits) / np.exp(logits).sum()
    for dtype in ("f4", "f8"):  # a common summand of any size changes nothing, nor does the axis
        for shift, axis in ((0, 1), (2 ** 20, 1), (-2 ** 20, 0)):
            table = np.tile(logits + shift, (n, 1)).astype(dtype)
            found = apply("categorical", [table if axis else table.T.copy()], {"axis": axis, "keepdims": True})[0]
            if found.shape != ((n, 1) if axis else (1, n)):
                FAILURES.append(f"categorical along {axis}, keepdims, has shape {found.shape}")
            chi = ((np.bincount(found.ravel(), minlength=5) - wanted) ** 2 / wanted).sum()
            if not chi < 26:  # of 4 degrees of freedom: once in 30,000; the seed is fixed
                FAILURES.append(f"categorical in {dtype} {shift:+} along {axis}: chi squared is {chi}")
    never = np.tile([0.0, -INF, -80.0, -INF], (n, 1)).astype("f4")
    if set(np.unique(apply("categorical", [never], {})[0])) != {0}:  # exp(-80) is 1e-35
        FAILURES.append("categorical draws what has no probability")
    drawn = int(apply("categorical", [np.tile([0.0, -12.0], (n * 10, 1)).astype("f4")], {})[0].sum())
    if not 0 < drawn < 18:  # 6.1 of a million: the far tail of what is drawn
        FAILURES.append(f"categorical draws exp(-12) {drawn} times in a million")
    for row, index in (([-INF, -INF], 0), ([0, INF, 5, INF], 1), ([0, INF, NAN, NAN], 2), ([-INF, 0, -INF], 1), ([7], 0)):
        expect("categorical", [np.array(row, "f4")], np.array(index, "i4"))
