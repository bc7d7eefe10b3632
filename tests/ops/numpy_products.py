"""Part of numpy_test.py: products, statistics and losses of classes that are formulas."""
import itertools

import numpy as np
import weft
from numpy_judge import CTX, INF, NAN, expect, refused, rng


def products():
    a, b, c = rng(40).normal(size=(2, 3, 4)), rng(41).normal(size=(4, 5)), rng(42).normal(size=5)
    expect("addmm", [c, a, b], 3 * c - 2 * (a @ b), tolerance=1e-13, floor=1, alpha=-2.0, beta=3.0)
    expect("addmm", [np.full(5, NAN), a, b], a @ b, tolerance=1e-13, floor=1, beta=0.0)
    u = np.arange(6, dtype="u1").reshape(2, 3)
    expect("addmm", [u[:, :2], u, u.T], (u[:, :2] - u @ u.T).astype("u1"), alpha=-1.0)
    for x, y in ((a, c), (b[0], b), (a, b), (a + 1j, 1j * b)):
        expect("kron", [x, y], np.kron(x, y), tolerance=1e-13)
    p, q = rng(43).normal(size=(5, 3)), rng(44).normal(size=3)
    expect("cross", [p, q], np.cross(p, q), tolerance=1e-13, floor=1)
    expect("cross", [p.T, q[:, None]], np.cross(p, q).T, tolerance=1e-13, floor=1, axis=0)
    expect("vecdot", [p + 1j * p[::-1], p.astype("c16")], np.sum(np.conj(p + 1j * p[::-1]) * p, -1), tolerance=1e-13, floor=1)
    r = rng(45).normal(size=(2, 4, 3))
    apart = np.abs(p[None, :, None] - r[:, None])
    for d, f in ((0.0, lambda v: (v != 0).sum(-1)), (1.0, lambda v: v.sum(-1)), (2.0, lambda v: np.sqrt((v * v).sum(-1))), (INF, lambda v: v.max(-1)), (3.0, lambda v: (v ** 3).sum(-1) ** (1 / 3))):
        expect("cdist", [p, r], f(apart).astype("f8"), tolerance=1e-12, p=d)
    expect("vander", [p[0]], np.vander(p[0], 5), tolerance=1e-13, count=5)
    expect("vander", [p], np.stack([np.vander(v, 2, True) for v in p]), tolerance=1e-13, count=2, increasing=True)
    m = rng(46).normal(size=(2, 3, 3))
    for n in (0, 1, 5, -1, -3):
        for x in (m, m + 1j * m[::-1]):
            expect("matrix_power", [x], np.linalg.matrix_power(x, n), tolerance=1e-9, floor=1, n=n)


def groups_and_pairs():
    x = rng(52).normal(size=(6, 4))
    first, second = np.triu_indices(6, 1)
    apart = np.abs(x[first] - x[second])
    for d, f in ((0.0, lambda v: (v != 0).sum(-1)), (1.0, lambda v: v.sum(-1)), (2.0, lambda v: np.sqrt((v * v).sum(-1))), (INF, lambda v: v.max(-1))):
        expect("pdist", [x], f(apart).astype("f8"), tolerance=1e-12, p=d)
    expect("pdist", [x[:1]], np.zeros(0), tolerance=0)
    m = rng(53).normal(size=(2, 3, 3))
    expect("matrix_power", [m], np.linalg.matrix_power(m, -3), tolerance=1e-9, floor=1, n=-3)
    refused("matrix_power", [m.astype("i4")], "n is -1; of i32 it must be at least 0", n=-1)
    # Empty groups, one group of everything, sizes that leave rows over, and more groups than rows.
    for rows, sizes in ((7, [3, 0, 4]), (7, [0, 0, 7]), (9, [2, 1, 3]), (5, [5]), (3, [1, 0, 0, 1, 0, 1, 0]), (6, [0, 0]), (64, [1] * 30 + [34])):
        a, w = rng(54).normal(size=(rows, 5)), rng(55).normal(size=(len(sizes), 5, 3))
        want, at = np.zeros((rows, 3)), 0
        for group, size in enumerate(sizes):
            want[at:at + size] = a[at:at + size] @ w[group]
            at += size
        expect("ragged_dot", [a, w, np.array(sizes, "i4")], want, tolerance=1e-12, floor=1)
        expect("ragged_dot", [a.astype("f4"), w.astype("f4"), np.array(sizes, "i8")], want.astype("f4"), tolerance=1e-5, floor=1)
    refused("ragged_dot", [a, w[0], np.array(sizes, "i4")], "[rows, k] and [groups, k, n] are needed")
    refused("ragged_dot", [a, w, np.array(sizes[1:], "i4")], "sizes have shape [30]; [31] is needed")
    refused("pdist", [m], "x has shape [2, 3, 3]; [points, features] is needed")
    refused("pdist", [x], "p is -1; it must be at least 0", p=-1.0)


def statistics():
    x = rng(47).normal(size=(4, 9)) * 30
    for axis in (0, 1):
        expect("logcumsumexp", [x], np.logaddexp.accumulate(x, axis), tolerance=1e-13, axis=axis)
    expect("logcumsumexp", [np.array([-INF, -INF, 1.0, INF, 2.0])], np.array([-INF, -INF, 1, INF, INF]))
    holes = np.where(x > 20, NAN, x)
    holes[2] = NAN
    order = np.argsort(holes, 1)
    middle = np.maximum((~np.isnan(holes)).sum(1) - 1, 0) // 2
    at = order[np.arange(4), middle]
    expect("nanmedian", [holes], [holes[np.arange(4), at], at.astype("i4")], tolerance=0)
    v = np.array([-1.0, 1.0, 0.5, NAN, 3, -2, 0.999, 0, 0.25])
    expect("histc", [v], np.histogram(v[~np.isnan(v)], 4, (-1, 1))[0].astype("f8"), bins=4, low=-1.0, high=1.0)
    expect("histc", [x], np.histogram(x, 7)[0].astype("f8"), bins=7)
    places = np.sort(rng(48).normal(size=9))
    expect("trapezoid", [x, places], np.trapezoid(x, places), tolerance=1e-12, floor=1)
    expect("trapezoid", [x, None], np.trapezoid(x, dx=0.5, axis=0), tolerance=1e-12, floor=1, axis=0, dx=0.5)
    steps = (x[:, 1:] + x[:, :-1]) / 2 * np.diff(places)
    expect("cumulative_trapezoid", [x, places], np.cumsum(steps, 1), tolerance=1e-12, floor=1)
    counts, weights = np.array([1.0, 2, 0, 3, 1, 1, 2, 1, 1]), rng(49).uniform(0.1, 1, 9)
    expect("cov", [x, None, None], np.cov(x), tolerance=1e-12, floor=1)
    expect("cov", [x, counts, weights], np.cov(x, fweights=counts.astype(int), aweights=weights), tolerance=1e-12, floor=1)
    expect("cov", [x[0], None, weights], np.cov(x[0], aweights=weights, ddof=0), tolerance=1e-12, floor=1, correction=0)
    expect("corrcoef", [x], np.corrcoef(x), tolerance=1e-12)
    lengths = np.sqrt((x * x).sum(1, keepdims=True))
    expect("renorm", [x], np.where(lengths > 90, x * 90 / (lengths + 1e-7), x), tolerance=1e-12, p=2.0, axis=0, most=90.0)
    y = rng(50).normal(size=(4, 9))
    even = lambda z: z / np.maximum(np.sqrt((z * z).sum(1, keepdims=True)), 1e-8)
    expect("cosine_similarity", [x, y], (even(x) * even(y)).sum(1), tolerance=1e-12)
    rows = np.sort(rng(51).integers(0, 9, (3, 7)), 1).astype("f8")
    values = rng(52).integers(-1, 10, (3, 5)).astype("f8")
    for right in (False, True):
        wanted = np.stack([np.searchsorted(r, w, "right" if right else "left") for r, w in zip(rows, values)])
        expect("searchsorted", [rows, values], wanted.astype("i4"), right=right)


def losses():
    x = rng(53).normal(size=(6, 5))
    logp = x - np.log(np.exp(x).sum(1, keepdims=True))
    labels, weight = np.array([0, 4, 2, -7, 1, 4]), rng(54).uniform(0.1, 1, 5)
    there = labels != -7
    safe = np.where(there, labels, 0)
    each = np.where(there, weight[safe], 0)
    plain, smooth = -logp[np.arange(6), safe] * each, np.where(there, -(logp * weight).sum(1), 0)
    for smoothing in (0.0, 0.2):
        rows = (1 - smoothing) * plain + smoothing / 5 * smooth
        for reduction, wanted in (("none", rows), ("sum", rows.sum()), ("mean", rows.sum() / each.sum())):
            expect("nll", [logp, labels, weight], wanted, tolerance=1e-12, reduction=reduction, ignore_index=-7, label_smoothing=smoothing)
    y = rng(55).dirichlet(np.ones(5), 6)
    expect("soft_cross_entropy", [x, y, weight], -(logp * y * weight).sum(1).mean(), tolerance=1e-12)
    hard = np.array([0, 4, 2, 3, 1, 4])
    near = np.maximum(0, 0.7 + x - x[np.arange(6), hard][:, None]) ** 2 * weight[hard][:, None]
    near[np.arange(6), hard] = 0
    expect("multi_margin", [x, hard, weight], near.sum(1) / 5, tolerance=1e-12, p=2, margin=0.7, reduction="none")
    lists = np.array([[3, 0, -1, 1, 2], [-1, 0, 1, 2, 3], [4, 3, 2, 1, 0]])
    wanted = []
    for row, given in zip(x, lists):
        listed = [int(c) for c in given[:list(given).index(-1)]] if -1 in given else list(given)
        wanted.append(sum(max(0, 1 - row[t] + row[c]) for t in listed for c in range(5) if c not in listed) / 5)
    expect("multilabel_margin", [x[:3], lists], np.array(wanted), tolerance=1e-12, reduction="none")
    sigmoid = 1 / (1 + np.exp(-x))
    bits = (y > 0.2).astype("f8")
    soft = -(bits * np.log(sigmoid) + (1 - bits) * np.log(1 - sigmoid))
    expect("multilabel_soft_margin", [x, bits, weight], (soft * weight).mean(1).mean(), tolerance=1e-12)
    other, side = rng(56).normal(size=(6, 5)), np.array([1.0, -1, 1, -1, -1, 1])
    cosine = (x * other).sum(1) / np.sqrt((x * x).sum(1) * (other * other).sum(1))
    expect("cosine_embedding", [x, other, side], np.where(side == 1, 1 - cosine, np.maximum(0, cosine - 0.1)), tolerance=1e-10, reduction="none", margin=0.1)


def refusals():
    x, i = np.zeros((4, 5)), np.zeros(4, "i8")
    for op, inputs, attrs, text in (
            ("addmm", [x, x, x.T], {}, "x has shape [4, 5], which does not broadcast to [4, 4]"),
            ("addmm", [i[0], i, i], {"alpha": 0.5}, "alpha is 0.5; of i64 it must be a whole number"),
            ("cross", [x, x], {}, "axis 1 has 5 elements; a cross product is of 3"),
            ("vecdot", [x, x], {"axis": 2}, "axis"),
            ("cdist", [x, x.T], {}, "x has 5 features and y 4; they must be equal"),
            ("cdist", [x, x], {"p": -1.0}, "p is -1; it must be at least 0"),
            ("vander", [x], {"count": -1}, "count is -1; it must be 0 to 2^31 - 1"),
            ("matrix_power", [x], {"n": 2}, "x has shape [4, 5]; square matrices are needed"),
            ("matrix_power", [x[:, :4].astype("i4")], {"n": -1}, "n is -1; of i32 it must be at least 0, as inverses are not whole"),
            ("logcumsumexp", [x], {"axis": 2}, "axis"),
            ("nanmedian", [x[:0]], {"axis": 0}, "axis 0 has size 0: there is no element to find"),
            ("histc", [x], {"bins": 0}, "bins is 0; it must be 1 to 2^31 - 1"),
            ("histc", [x], {"bins": 2, "low": 2.0, "high": 1.0}, "low is 2 and high 1; they must be finite, and low at most high"),
            ("trapezoid", [x, x[0, :3]], {}, "x has shape [3]; [5] or [4, 5] is needed"),
            ("cov", [x, x[0, :3]], {}, "counts must have shape [5], not [3]"),
            ("corrcoef", [x[None]], {}, "x has shape [1, 4, 5]; [variables, observations] is needed"),
            ("renorm", [x], {"p": 0.0, "axis": 0, "most": 1.0}, "p is 0; it must be above 0"),
            ("cosine_similarity", [x, x], {"eps": -1.0}, "eps is -1; it must be at least 0"),
            ("nll", [x, i[:3]], {}, "labels must have shape [4], not [3]"),
            ("nll", [x, i], {"label_smoothing": 2.0}, "label_smoothing is 2; it must be 0 to 1"),
            ("soft_cross_entropy", [x, x, x[:, 0]], {}, "weight must have shape [5], not [4]"),
            ("multi_margin", [x, i], {"p": 3}, "p is 3; it must be 1 or 2"),
            ("multilabel_margin", [x, i], {}, "labels must have shape [4, 5], not [4]"),
            ("cosine_embedding", [x, x, x], {}, "y must have shape [4], not [4, 5]")):
        refused(op, inputs, text, **attrs)


def whole(shape, dtype, seed):
    """Bytes, the ends of their type often among them."""
    info = np.iinfo(dtype)
    values = rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)
    return np.where(rng(seed + 1).random(shape) < 0.3, rng(seed + 2).choice([info.min, info.max], shape), values).astype(dtype)


def windows(x, w, stride):
    """A convolution of images with their channels last, nothing around them."""
    height, width = (x.shape[1] - w.shape[0]) // stride + 1, (x.shape[2] - w.shape[1]) // stride + 1
    return sum(x[:, i:i + height * stride:stride, j:j + width * stride:stride] @ w[i, j] for i in range(w.shape[0]) for j in range(w.shape[1]))


def products_of_bytes():
    """Products of bytes with i32 results, for each pair of signs, on the best instruction set, on AMX's tiles (by their model) and on
    the least: whole and broken tiles, tails of K, batches, operands that are turned round."""
    for ctx, (a, b) in itertools.product((CTX, weft.Context(isa="amx-model"), weft.Context(isa="portable")), itertools.product(("i1", "u1"), repeat=2)):
        given = {"dtype": "i4", "ctx": ctx, "note": " on another path"}
        for m, k, n in ((1, 1, 1), (3, 5, 2), (16, 64, 16), (33, 130, 17), (48, 1100, 40), (7, 63, 100)):
            x, y = whole((m, k), a, m), whole((k, n), b, n)
            want = x.astype("i4") @ y.astype("i4")
            expect("matmul", [x, y], want, **given)
            expect("linear", [x, y, np.arange(n, dtype="i4")], want + np.arange(n, dtype="i4"), **given)
            if a == b:  # the primitive takes no others, as StableHLO's
                expect("dot_general", [x.T.copy(), y.T.copy()], want, lhs_batching_dimensions=[], rhs_batching_dimensions=[],
                       lhs_contracting_dimensions=[0], rhs_contracting_dimensions=[1], **given)
        x, y = whole((3, 2, 20, 70), a, 5), whole((2, 70, 33), b, 6)
        expect("matmul", [x, y], x.astype("i4") @ y.astype("i4"), **given)
        for channels, features, window, stride in ((3, 5, 3, 1), (8, 20, 3, 2), (64, 48, 1, 1), (66, 17, 2, 1)):
            x, w = whole((2, 9, 8, channels), a, channels), whole((window, window, channels, features), b, features)
            expect("conv", [x, w], windows(x.astype("i4"), w.astype("i4"), stride), strides=[stride, stride], **given)


def spectra():
    """Windows written out one by one; the way back gives what they came from."""
    x, window = rng(150).normal(size=(2, 21)), np.hanning(8)[1:-1] + 0.1
    z = x + 1j * rng(151).normal(size=x.shape)
    modes = {"reflect": "reflect", "constant": "constant", "replicate": "edge", "circular": "wrap"}
    for signal, size, hop, taper, center, pad, normalized, one in (
            (x, 8, 3, window, True, "reflect", False, True), (x, 8, 2, None, True, "constant", True, True), (x, 5, 5, np.ones(5), False, "reflect", False, False),
            (x, 7, 2, window, True, "replicate", False, False), (z, 6, 1, window + 0.5j, True, "circular", True, False), (x[0], 21, 4, None, False, "reflect", False, True)):
        around = np.pad(signal, [(0, 0)] * (signal.ndim - 1) + [(size // 2, size // 2)], mode=modes[pad]) if center else signal
        wide = np.zeros(size, taper.dtype if taper is not None else "f8")
        narrow = len(taper) if taper is not None else size
        wide[(size - narrow) // 2:(size - narrow) // 2 + narrow] = 1 if taper is None else taper
        starts = range(0, around.shape[-1] - size + 1, hop)
        rows = np.stack([around[..., i:i + size] * wide for i in starts], -2)
        want = np.swapaxes((np.fft.rfft if one else np.fft.fft)(rows), -1, -2) / (np.sqrt(size) if normalized else 1)
        how = {"size": size, "hop": hop, "center": center, "normalized": normalized, "onesided": one}
        expect("stft", [signal, taper], want, tolerance=1e-12, floor=1, pad=pad, **how)
        if taper is None or not np.iscomplexobj(taper):
            expect("stft", [signal.astype("f4"), taper.astype("f4") if taper is not None else None], want.astype("c8"), tolerance=2e-5, floor=1, pad=pad, **how)
        back_type = "f8" if one else "c16"
        given = None if taper is None else taper.astype(back_type)
        added, weight = (np.zeros((*signal.shape[:-1], around.shape[-1]), "c16") for _ in range(2))
        for k, i in enumerate(starts):
            added[..., i:i + size] += np.fft.ifft(np.fft.fft(rows[..., k, :])) * wide
            weight[..., i:i + size] += wide ** 2
        reach = starts[-1] + size
        first = size // 2 if center else 0
        for length in (None, 9, reach + 4):
            count = reach - 2 * first if length is None else length
            found = np.zeros((*signal.shape[:-1], count), "c16")
            some = min(count, reach - first)
            with np.errstate(all="ignore"):
                found[..., :some] = (added / weight)[..., first:first + some]
            if np.all(np.isfinite(found)):
                expect("istft", [want, given], found.real if one else found, tolerance=1e-12, floor=1, length=length, **how)
    row = np.arange(6.0)
    for op, inputs, attrs, text in (
            ("stft", [row], {"size": 0}, "size is 0; it must be 1 to 2^24"),
            ("stft", [row], {"size": 4, "hop": 0}, "hop is 0; it must be 1 to 2^31 - 1"),
            ("stft", [row + 0j], {"size": 4}, "onesided goes with real numbers, not with c128"),
            ("stft", [row, np.ones(5)], {"size": 4}, "window is f64[5]; a row of 1 to 4 numbers is needed"),
            ("stft", [row], {"size": 12}, "x has 6 samples; 6 on either side of them cannot be made by reflect"),
            ("stft", [row], {"size": 7, "center": False}, "x has 6 samples; a transform needs 7"),
            ("stft", [np.float64(1)], {"size": 1}, "x must have shape [..., samples], not []"),
            ("istft", [row + 0j], {"size": 4}, "x must have shape [..., bins, frames], not [6]"),
            ("istft", [np.ones((4, 2), "c16")], {"size": 4}, "x has 4 bins; of size 4 and one side it has 3"),
            ("istft", [np.ones((3, 0), "c16")], {"size": 4}, "x has 0 frames; at least one is needed"),
            ("istft", [np.ones((3, 2), "c16"), np.ones(4, "f4")], {"size": 4}, "window is f32; the result is f64"),
            ("istft", [np.ones((3, 2), "c16")], {"size": 4, "length": -1}, "length is -1; it must be 0 to 2^31 - 1")):
        refused(op, inputs, text, **attrs)


PARTS = (spectra, products, groups_and_pairs, products_of_bytes, statistics, losses, refusals)
