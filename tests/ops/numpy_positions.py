"""Part of numpy_test.py: order, running results, positions, and results as large as the data say."""
import itertools

import numpy as np
from numpy_judge import INF, INTS, NAN, expect, limits, rng


def order():
    x = rng(7).integers(-5, 5, (4, 37)).astype("f8")  # with ties
    x[0, 3], x[1, 5], x[2, 2], x[3, 0] = NAN, INF, -INF, -0.0
    for d in ("f4", "f8", "f2", "i4", "i1", "u1", "i8", "b1"):
        v = x.astype(d) if d[0] == "f" else np.abs(np.nan_to_num(x, posinf=7, neginf=1)).astype(d)
        for axis in (0, 1):
            expect("sort", [v], np.sort(v, axis, kind="stable"), axis=axis)
            expect("argsort", [v], np.argsort(v, axis, kind="stable").astype("i4"), axis=axis)
            # Descending and stable: the mirrored row in ascending order, mirrored again.
            mirrored = np.flip(v, axis)
            down = v.shape[axis] - 1 - np.flip(np.argsort(mirrored, axis, kind="stable"), axis)
            expect("argsort", [v], down.astype("i4"), axis=axis, descending=True)
            expect("sort", [v], np.take_along_axis(v, down, axis), axis=axis, descending=True)
            best = np.take(down, np.arange(3), axis)
            expect("top_k", [v], [np.take_along_axis(v, best, axis), best.astype("i4")], k=3, axis=axis)
    large = rng(8).integers(0, 1000, 200_000).astype("u4")
    expect("argsort", [large], np.argsort(large, kind="stable").astype("i4"), note=" (several threads)")
    expect("sort", [rng(9).normal(size=100_000)], np.sort(rng(9).normal(size=100_000)))
    expect("sort", [np.zeros((3, 0))], np.zeros((3, 0)))


def extremes(v, ufunc, later, axis):
    """NumPy's accumulate, and where the value was reached last."""
    values = ufunc.accumulate(v, axis)
    rows, found = np.moveaxis(v, axis, -1), np.zeros(np.moveaxis(v, axis, -1).shape, "i4")
    for row, out in zip(rows.reshape(-1, rows.shape[-1]), found.reshape(-1, rows.shape[-1])):
        for i in range(1, len(row)):
            best = row[out[i - 1]]
            out[i] = i if row[i] != row[i] or (best == best and later(row[i], best)) else out[i - 1]
    return [values, np.moveaxis(found, -1, axis)]


def cumulative():
    x = rng(70).normal(size=(3, 37, 2))
    for axis in (0, 1, 2, -1):
        for d in ("f4", "f8", "f2"):
            v = x.astype(d)
            w = v.astype("f8")
            expect("cumsum", [v], np.cumsum(w, axis), floor=1, axis=axis)
            expect("cumprod", [v], np.cumprod(w, axis), axis=axis, tolerance={"f2": 2e-3, "f4": 2e-5, "f8": 1e-13}[d])
            expect("cumsum", [v], np.flip(np.cumsum(np.flip(w, axis), axis), axis), floor=1, axis=axis, reverse=True)
    for d in ("c8", "c16"):
        v = (x + 1j * x[::-1]).astype(d)
        expect("cumsum", [v], np.cumsum(v.astype("c16"), 1).astype(d), floor=1, axis=1)
        expect("cumprod", [v[:, :5]], np.cumprod(v[:, :5].astype("c16"), 1).astype(d), axis=1)
    for d in INTS:
        v = np.concatenate([limits(d), limits(d)[::-1]])
        expect("cumsum", [v], np.cumsum(v, dtype=d))  # wraps in its own type, NumPy's default widens
        expect("cumprod", [v | 1], np.cumprod(v | 1, dtype=d))

    ties = rng(71).integers(-3, 4, (4, 23)).astype("f8")
    ties[0, 5], ties[1, 0], ties[2, 9], ties[2, 11], ties[3, 2] = NAN, NAN, INF, NAN, -INF
    for d in ("f4", "f8", "f2", "i4", "i1", "u8", "b1"):
        v = ties.astype(d) if d[0] == "f" else np.abs(np.nan_to_num(ties, posinf=7, neginf=1)).astype(d)
        for axis in (0, 1):
            if d == "b1":
                expect("cummax", [v], extremes(v, np.logical_or, np.greater_equal, axis), axis=axis)
                expect("cummin", [v], extremes(v, np.logical_and, np.less_equal, axis), axis=axis)
            else:
                expect("cummax", [v], extremes(v, np.maximum, np.greater_equal, axis), axis=axis)
                expect("cummin", [v], extremes(v, np.minimum, np.less_equal, axis), axis=axis)
    for d in INTS:
        expect("cummax", [limits(d)], extremes(limits(d), np.maximum, np.greater_equal, 0))
        expect("cummin", [limits(d)], extremes(limits(d), np.minimum, np.less_equal, 0))
    expect("cumsum", [np.array([-0.0, -0.0, 0.0])], np.array([-0.0, -0.0, 0.0]), tolerance=0, exact_sign=True)
    expect("cumsum", [np.array([1.0, INF, 2.0, -INF, 3.0])], np.array([1, INF, INF, NAN, NAN]))
    expect("cumprod", [np.array([2.0, 0.0, 3.0, INF])], np.array([2.0, 0, 0, NAN]))
    long = rng(72).normal(size=100_003)
    expect("cumsum", [long], np.cumsum(long), floor=100)
    expect("cumsum", [np.ones(300_000, "i1").astype("i4")], np.arange(1, 300_001, dtype="i4"))
    for op in ("cumsum", "cumprod"):
        expect(op, [np.zeros((0, 3))], np.zeros((0, 3)), axis=0)
        expect(op, [np.zeros((3, 0))], np.zeros((3, 0)))


def long_running():
    """Lines that are one kernel's: in one piece, in several, several side by side; floats are rounded once."""
    for shape, axis in (((31,), 0), ((32,), 0), ((200_003,), 0), ((3, 70_001), 1), ((70_001, 3), 0), ((5, 40, 200), 1), ((70, 33), 1), ((2, 131_073, 1), 1)):
        x = rng(sum(shape)).normal(size=shape)
        for d in ("f4", "f8", "f2"):
            v = x.astype(d)
            w = v.astype(np.longdouble)
            close = {"f2": 1e-3, "f4": 1e-7, "f8": 1e-15}[d] if shape[axis] >= 32 else None
            small = {"floor": 1, "tolerance": close}
            expect("cumsum", [v], np.cumsum(w, axis).astype(d), axis=axis, **small)
            expect("cumsum", [v], np.flip(np.cumsum(np.flip(w, axis), axis), axis).astype(d), axis=axis, reverse=True, **small)
            near_one = (1 + 0.01 * x).astype(d)
            with np.errstate(all="ignore"):
                product = np.cumprod(near_one.astype(np.longdouble), axis).astype(d)
            if d != "f2":
                expect("cumprod", [near_one], product, axis=axis, tolerance=1e-6 if d == "f4" else 1e-10)
        for d in INTS:
            v = (100 * x).astype("i8").astype(d)
            expect("cumsum", [v], np.cumsum(v, axis, dtype=d), axis=axis)
            expect("cumprod", [v | 1], np.cumprod(v | 1, axis, dtype=d), axis=axis, reverse=False)
        whole = np.round(3 * x)
        for d in ("f4", "f2", "i2", "i8", "u1") if x.size < 50_000 else ("f8", "u1"):
            v = whole.astype(d) if d != "u1" else np.abs(whole).astype(d)
            expect("cummax", [v], extremes(v, np.maximum, np.greater_equal, axis), axis=axis)
            expect("cummin", [v], extremes(v, np.minimum, np.less_equal, axis), axis=axis)
    odd = rng(5).normal(size=150_000)
    odd[70_000], odd[140_000] = INF, -INF
    with np.errstate(all="ignore"):
        expect("cumsum", [odd], np.cumsum(odd), floor=100)
    expect("cumsum", [np.full(100_000, -0.0)], np.full(100_000, -0.0), tolerance=0, exact_sign=True)
    alike = np.full(1 << 20, 0.1, "f4")  # a sum that stops growing where it is kept in f32
    expect("cumsum", [alike], np.cumsum(alike.astype("f8")).astype("f4"), tolerance=1e-7)
    bits = rng(6).integers(0, 2, 300_000).astype(bool)
    found = np.flatnonzero(bits).astype("i4")
    expect("nonzero_static", [bits], [np.concatenate([found, np.full(200_000 - len(found), -1, "i4")]).reshape(-1, 1), np.array(len(found), "i4")], size=200_000)


def filled(values, size, fill):
    """The first `size` along axis 0, and the number behind them."""
    room = np.full((size, *values.shape[1:]), fill, values.dtype)
    room[:min(size, len(values))] = values[:size]
    return room


def sized(types):
    """Every shape with one element type, every type with one shape."""
    return [*((shape, "f4") for shape in [(), (1,), (0,), (3, 0), (0, 2), (2, 3, 4), (2, 1, 3, 2), (130, 5)]), *(((4, 3), d) for d in types)]


def sizes():
    for shape, d in sized(("f4", "f8", "f2", "b1", "c8", *INTS)):
        x = rng(80).integers(0, 3, shape).astype(d)
        if d[0] == "f" and x.size > 2:
            x.flat[0], x.flat[1] = NAN, -0.0
        rows = np.argwhere(x != 0).astype("i4") if shape else np.zeros((int(x != 0), 0), "i4")
        for size in (0, 1, x.size + 3):
            expect("nonzero_static", [x], [filled(rows, size, -1), np.int32(len(rows))], size=size)
        mask = rng(81).random(shape) < 0.5
        for size in (2, x.size + 1):
            fill = 1 if d != "c8" else 0
            kept = x[mask] if shape else x.reshape(1)[mask.reshape(1)]
            expect("masked_select_static", [x, mask], [filled(kept, size, fill), np.int32(len(kept))], tolerance=0, size=size, fill=fill)
        for axis in range(len(shape)):
            for rank in range(len(shape) - axis + 1):
                mask = rng(82).random(shape[axis:axis + rank]) < 0.5
                kept = x[(slice(None),) * axis + (mask,)]
                want = np.moveaxis(filled(np.moveaxis(kept, axis, 0), 3, 0), 0, axis)
                expect("boolean_mask_static", [x, mask], [want, np.int32(mask.sum())], tolerance=0, size=3, axis=axis)
    a, b = np.arange(6.0).reshape(2, 3), np.array([[True], [False]])
    expect("masked_select_static", [a, b], [np.array([0.0, 1, 2, 9]), np.int32(3)], size=4, fill=9)
    expect("masked_select_static", [np.arange(3.0), b], [np.array([0.0, 1, 2, 9]), np.int32(3)], size=4, fill=9)
    expect("nonzero_static", [np.ones((2, 2), "i4")], [np.array([[0, 0], [0, 1], [1, 0], [1, 1], [7, 7]], "i4"), np.int32(4)], size=5, fill=7)
    expect("boolean_mask_static", [np.arange(3), np.array(True)], [np.arange(3)[:, None], np.int32(1)], size=1, axis=-1)
    large = rng(83).random(200_000) < 0.3
    where = np.flatnonzero(large).astype("i4")
    expect("nonzero_static", [large], [filled(where[:, None], 70_000, -1), np.int32(len(where))], size=70_000)
    # Few results among many elements are looked for in lines of 64 and of 512: none, all, the ends of lines, and a few.
    for n in (256, 300, 2048, 9000, 70_001):
        index = np.arange(n)
        lines = {"none": index < 0, "all": index >= 0, "firsts": index % 64 == 0, "lasts": index % 64 == 63, "the last": index == n - 1,
                 "a half": index % 64 >= 32, "from 100 on": index >= 100, "few": rng(n).random(n) < 0.01, "many": rng(n).random(n) < 0.7}
        for (name, truth), d in itertools.product(lines.items(), ("b1", "f4")):
            where = np.flatnonzero(truth).astype("i4")
            for size in {1, 2, n // 8192, n // 128, n // 8 - 1, n // 8, n // 8 + 1} - {0}:
                expect("nonzero_static", [truth.astype(d)], [filled(where[:, None], size, -1), np.int32(len(where))], size=size, note=" of " + name)


def different():
    for shape, d in sized(("f4", "f8", "f2", "b1", *INTS)):
        x = rng(84).integers(0, 6, shape).astype(d)
        if d[0] == "f" and x.size > 6:
            x.flat[:5] = [NAN, -0.0, 0.0, NAN, INF]
        for equal_nan in (True, False) if d[0] == "f" else (True,):
            values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, equal_nan=equal_nan)
            # Of equal elements NumPy shows one, whichever; ours is the first.
            values = x.ravel()[first].astype(d)
            inverse = inverse.reshape(shape)
            for size in (len(values) + 2, max(len(values) - 1, 0)):
                want = [filled(values, size, 1), np.int32(len(values)), inverse.astype("i4"), filled(counts.astype("i4"), size, 0),
                        filled(first.astype("i4"), size, -1)]
                expect("unique_static", [x], want, tolerance=0, size=size, fill=1, equal_nan=equal_nan)
    slices_apart()
    large = rng(85).integers(0, 1000, 200_000)
    values, first, inverse, counts = np.unique(large, return_index=True, return_inverse=True, return_counts=True)
    expect("unique_static", [large], [values, np.int32(1000), inverse.astype("i4"), counts.astype("i4"), first.astype("i4")], size=1000)


def slices_apart():
    """Slices along an axis, in lexicographic order and as runs; of many columns."""
    for (n, rest), d in itertools.product(((7, (3,)), (9, (2, 2)), (40, (1,)), (1, (5,)), (30, (33,)), (5, ())), ("f4", "f2", "i8", "u1", "b1")):
        rows = rng(86).integers(0, 2, (n, int(np.prod(rest)))).astype(d)
        rows[1::2] = rows[0]  # equal ones, and some that differ in the last element alone
        rows[1::4, -1] = 1 - rows[0, -1].astype("i4")
        order = sorted(range(n), key=lambda i: rows[i].tolist())
        for op, found in (("unique_static", order), ("unique_consecutive_static", range(n))):
            groups = [list(g) for _, g in itertools.groupby(found, key=lambda i: rows[i].tolist())]
            inverse, first = np.zeros(n, "i4"), np.array([g[0] for g in groups], "i4")
            for k, g in enumerate(groups):
                inverse[g] = k
            counts = np.array([len(g) for g in groups], "i4")
            for size, axis in itertools.product((len(groups) + 2, len(groups), len(groups) - 1), (0, -1)):
                along = lambda v: np.moveaxis(v.reshape(len(v), *rest), 0, axis)
                want = [along(filled(rows[first], size, 1)), np.int32(len(groups)), inverse, filled(counts, size, 0), filled(first, size, -1)]
                expect(op, [along(rows)], want[:5 if op == "unique_static" else 4], tolerance=0, size=size, fill=1, axis=axis)
    nan = np.array([[NAN, 1], [0, 1], [NAN, 1], [-0.0, 1]])
    for equal_nan, first, inverse, counts in ((True, [1, 0], [1, 0, 1, 0], [2, 2]), (False, [1, 0, 2], [1, 0, 2, 0], [2, 1, 1])):
        expect("unique_static", [nan], [nan[first], np.int32(len(first)), *map(np.int32, (inverse, counts, first))], tolerance=0, size=len(first), axis=0, equal_nan=equal_nan)
    one = np.int32([0])
    expect("unique_static", [np.float32(3)], [np.float32([3]), np.int32(1), one, one + 1, one], size=1, axis=0)
    expect("unique_static", [np.zeros((3, 0))], [np.zeros((2, 0)), np.int32(1), np.zeros(3, "i4"), np.int32([3, 0]), np.int32([0, -1])], size=2, axis=0)


def rearranged():
    x = rng(90).normal(size=(2, 4, 5))
    for d in ("f4", "f2", "i4", "b1", "c8"):
        v = (x * 3).astype(d)
        for k in (-9, -2, -1, 0, 1, 3, 9):
            expect("tril", [v], np.tril(v, k), tolerance=0, diagonal=k)
            expect("triu", [v], np.triu(v, k), tolerance=0, diagonal=k)
        expect("roll", [v], np.roll(v, 7), tolerance=0, shifts=[7])
        expect("roll", [v], np.roll(v, (-1, 8), (1, -1)), tolerance=0, shifts=[-1, 8], dims=[1, -1])
        expect("roll", [v], np.roll(v, (1, 1), (0, 0)), tolerance=0, shifts=[1, 1], dims=[0, 0])
        expect("tile", [v], np.tile(v, (2, 1, 3)), tolerance=0, reps=[2, 1, 3])
        expect("tile", [v[0]], np.tile(v[0], (2, 3, 1)), tolerance=0, reps=[2, 3, 1])
        expect("tile", [v], np.tile(v, 2), tolerance=0, reps=[2])
        for axis in (0, 1, -1):
            expect("repeat_interleave", [v], np.repeat(v, 3, axis), tolerance=0, repeats=3, axis=axis)
            for n in (0, 1, 2, 6):
                expect("diff", [v], np.diff(v, n, axis), n=n, axis=axis, floor=1)
    for start, stop, step in ((0, 5, 1), (5, -4.5, -2), (1, 1, 1), (0, 1, 0.1), (-3, 9, 4)):
        expect("arange", [], np.arange(start, stop, step, "f8"), start=start, stop=stop, step=step, dtype="f8")
        if step == int(step):
            expect("arange", [], np.arange(start, stop, step).astype("i4"), start=start, stop=stop, step=step, dtype="i4")
        for n in (0, 1, 2, 7):
            for endpoint in (True, False):
                expect("linspace", [], np.linspace(start, stop, n, endpoint), start=start, stop=stop, count=n, endpoint=endpoint, dtype="f8")
    expect("linspace", [], np.linspace(0, 1, 1001, dtype="f4"), tolerance=0, start=0, stop=1, count=1001)
    bins, weights = rng(91).integers(0, 7, (3, 11)), rng(92).normal(size=(3, 11))
    expect("bincount", [bins, None], np.bincount(bins.ravel(), minlength=9).astype("i4"), length=9)
    expect("bincount", [bins, None], np.bincount(bins.ravel())[:4].astype("i4"), length=4, note=" (outside: left out)")
    expect("bincount", [bins.astype("u1"), weights], np.bincount(bins.ravel(), weights.ravel(), 7), length=7, floor=1)
    for d in ("f4", "f8", "f2", "i4", "u1", "i8"):
        row = np.sort(rng(93).integers(0, 20, 23).astype(d))
        values = rng(94).integers(0, 22, (4, 9)).astype(d)
        if d[0] == "f":
            row[-2:], values[0, :3] = NAN, [NAN, INF, -INF]
        for n in (0, 1, 2, 22, 23):
            for side in ("left", "right"):
                expect("searchsorted", [row[:n], values], np.searchsorted(row[:n], values, side).astype("i4"), right=side == "right")
            expect("isin", [values, row[:n]], np.isin(values, row[:n]))
