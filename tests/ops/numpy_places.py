"""Part of numpy_test.py: elements at computed places, diagonals, windows and strides, what turns, repeats and joins."""
import numpy as np
from numpy_judge import expect, refused, rng


def along():
    for d in ("f4", "i4", "b1", "c8", "u1"):
        x = (rng(1).normal(size=(4, 5, 3)) * 3).astype(d)
        for axis in (0, 1, -1):
            at = rng(2).integers(0, x.shape[axis], (2, 3, 3))
            wanted = np.take_along_axis(x[tuple(slice(0, n) if i != axis % 3 else slice(None) for i, n in enumerate(at.shape))], at, axis)
            expect("take_along_axis", [x, at], wanted, tolerance=0, axis=axis)
    expect("take_along_axis", [np.float32(7), np.int32(0)], np.float32(7), tolerance=0)
    expect("take_along_axis", [np.arange(3.0), np.array([-4, 9])], np.array([0.0, 2.0]), note=" (held to the ends)")
    ways = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
    for d in ("f8", "f4", "i4", "u1"):
        x = (np.abs(rng(3).normal(size=(4, 5))) * 5 + 1).astype(d)
        source = (np.abs(rng(4).normal(size=(6, 5))) * 5 + 1).astype(d)
        at = rng(5).integers(0, 4, (6, 3))
        for reducer, f in ways.items():
            for self in (True, False):
                wanted = x.copy()
                hit = np.zeros(x.shape, bool)
                for i, j in np.ndindex(*at.shape):
                    fresh = not self and not hit[at[i, j], j]
                    wanted[at[i, j], j] = source[i, j] if fresh else f(wanted[at[i, j], j], source[i, j])
                    hit[at[i, j], j] = True
                expect("scatter_reduce", [x, at, source], wanted, tolerance=1e-5 if d == "f4" else 1e-13, reducer=reducer, include_self=self)
        total, count = x.astype("f8"), np.ones(x.shape)
        for i, j in np.ndindex(*at.shape):
            total[at[i, j], j] += source[i, j]
            count[at[i, j], j] += 1
        mean = total / count if d[0] == "f" else (total.astype("i8") % 256 if d == "u1" else total.astype("i8")) // count.astype("i8")
        expect("scatter_reduce", [x, at, source], mean.astype(d), tolerance=1e-5 if d == "f4" else 1e-13, reducer="mean")
    expect("scatter_reduce", [np.zeros(3, bool), np.array([2]), np.array([True])], np.array([False, False, True]), reducer="set")
    # Sum and max of bool are "or", prod and min are "and".
    held, at, source = np.array([True, False, True]), np.array([0, 0, 1, 1, 2]), np.array([False, True, True, False, False])
    for reducer, f in (("sum", any), ("max", any), ("prod", all), ("min", all)):
        for self in (True, False):
            wanted = np.array([f(([held[i]] if self else []) + list(source[at == i])) for i in range(3)])
            for name in ("scatter_reduce", "index_reduce"):
                expect(name, [held, at, source], wanted, reducer=reducer, include_self=self)


def into():
    x, source = rng(6).normal(size=(5, 4)), rng(7).normal(size=(3, 4))
    at = np.array([4, 0, 4])
    added = x.copy()
    np.add.at(added, at, 2 * source)
    expect("index_add", [x, at, source], added, tolerance=1e-14, alpha=2.0)
    copied = x.copy()
    copied[:, [3, 1]] = source[:2, :2].repeat(3, 0)[:5]
    expect("index_copy", [x, np.array([3, 1], "i4"), source[:2, :2].repeat(3, 0)[:5]], copied, tolerance=0, axis=-1)
    filled = x.copy()
    filled[[4, 0]] = 9
    expect("index_fill", [x, np.array([4, 0]), np.float64(9)], filled, tolerance=0)
    for reducer, f in {"prod": np.multiply, "max": np.maximum, "min": np.minimum}.items():
        wanted = x.copy()
        f.at(wanted, at, source)
        expect("index_reduce", [x, at, source], wanted, tolerance=1e-14, reducer=reducer)
    mean = x.copy()
    mean[4], mean[0] = (source[0] + source[2]) / 2, source[1]
    expect("index_reduce", [x, at, source], mean, tolerance=1e-14, reducer="mean", include_self=False)
    expect("index_add", [np.int32(5), np.int32(0), np.int32(2)], np.int32(7))


def anywhere():
    for d in ("f4", "i8", "c16", "b1"):
        x = (rng(8).normal(size=(3, 4, 5, 2)) * 3).astype(d)
        i, j = rng(9).integers(-3, 3, (2, 1)), rng(10).integers(-5, 5, 3)
        expect("index", [x, i], x[i], tolerance=0, dims=[0])
        expect("index", [x, i, j], x[i, :, j], tolerance=0, dims=[0, 2], note=" (apart: in front)")
        expect("index", [x, j % 4, j], x[:, j % 4, j], tolerance=0, dims=[1, 2], note=" (side by side: in their place)")
        expect("index", [x, i.astype("i4"), j % 4, j.astype("i1")], x[i, j % 4, j], tolerance=0, dims=[0, 1, 2])
        expect("index", [x, np.int64(-1)], x[..., -1], tolerance=0, dims=[-1])
        put = x.copy()
        values = (rng(11).normal(size=(2, 3, 4, 2)) * 3).astype(d)
        places = (np.array([[0], [2]]), np.array([0, -1, 3]))
        put[places[0], :, places[1]] = values
        expect("index_put", [x, values, *places], put, tolerance=0, dims=[0, 2])
    x = np.zeros((4, 3))
    again = x.copy()
    np.add.at(again, ([0, 0, 3], [1, 1, -1]), 2.0)
    expect("index_put", [x, np.float64(2), np.array([0, 0, 3]), np.array([1, 1, -1])], again, dims=[0, 1], accumulate=True)
    expect("index", [x, np.zeros(0, "i8")], x[:0], dims=[0])
    x = rng(12).normal(size=(3, 4))
    flat = x.copy()
    np.put(flat, [[1, -1], [5, 0]], [9.0, 8.0, 7.0, 6.0])
    expect("put", [x, np.array([[1, -1], [5, 0]]), np.array([9.0, 8, 7, 6])], flat, tolerance=0)
    mask = rng(13).normal(size=(3, 4)) > 0
    placed = x.copy()
    placed[mask] = np.arange(mask.sum())
    expect("masked_scatter", [x, mask, np.arange(12.0)], placed, tolerance=0)
    repeats = np.array([2, 0, 3])
    expect("repeat_interleave_static", [x, repeats], np.repeat(x, repeats, 0), tolerance=0, total=5)


def parts_of():
    for d in ("f4", "i4", "b1", "c8"):
        x = (rng(14).normal(size=(3, 5, 4)) * 3).astype(d)
        for offset in (-2, 0, 3, 9):
            expect("diagonal", [x], np.diagonal(x, offset, 2, 0), tolerance=0, offset=offset, axis1=2, axis2=0)
            wanted = x.copy()
            part = np.diagonal(x, offset, 2, 0)
            i = np.arange(part.shape[-1])
            wanted[i + max(offset, 0), :, i - min(offset, 0)] = 1
            expect("diagonal_scatter", [x, np.ones(part.shape, d)], wanted, tolerance=0, offset=offset, axis1=2, axis2=0)
        row = x[0, 0]
        expect("diag", [row], np.diag(row, -1), tolerance=0, offset=-1)
        expect("diag", [x[0]], np.diag(x[0], 1), tolerance=0, offset=1)
        expect("diag_embed", [x[0]], np.stack([np.diag(r, 1) for r in x[0]]), tolerance=0, offset=1)
        wanted = x.copy()
        wanted[:, -2] = x[:, 0]
        expect("select_scatter", [x, x[:, 0]], wanted, tolerance=0, axis=1, index=-2)
        wanted = x.copy()
        wanted[:, 1:-1:2] = x[:, :2]
        expect("slice_scatter", [x, x[:, :2]], wanted, tolerance=0, axis=1, start=1, limit=-1, step=2)
        windows = np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2]
        expect("unfold", [x], windows, tolerance=0, size=3, step=2, axis=1)
        strided = np.lib.stride_tricks.as_strided(x.reshape(-1)[2:], (3, 2, 4), tuple(s * x.itemsize for s in (7, 0, 3)))
        expect("as_strided", [x], strided, tolerance=0, shape=[3, 2, 4], strides=[7, 0, 3], offset=2)
        wanted = x.copy()
        wanted.reshape(-1)[[2, 5, 9, 12]] = [1, 0, 1, 1]
        expect("as_strided_scatter", [x, np.array([[1, 0], [1, 1]], d)], wanted, tolerance=0, shape=[2, 2], strides=[7, 3], offset=2)
        for k in (-1, 0, 1, 2, 3, 5):
            expect("rot90", [x], np.rot90(x, k, (2, 0)), tolerance=0, k=k, dims=[2, 0])
        expect("movedim", [x], np.moveaxis(x, (0, -1), (1, 0)), tolerance=0, source=[0, -1], destination=[1, 0])
        joined = np.zeros((5, 8), d)
        joined[:3, :4], joined[3, 4:7], joined[4, 7] = x[:, 0], x[:, 0, 0], x[0, 0, 0]
        expect("block_diag", [x[:, 0], x[:, 0, 0], x[0, 0, 0]], joined, tolerance=0)
    expect("diagonal", [np.zeros((0, 3))], np.zeros(0))
    expect("unfold", [np.float32(3)], np.array([3.0]), size=1)


def refusals():
    x, i = np.zeros((4, 5)), np.zeros(2, "i8")
    for op, inputs, attrs, text in (
            ("take_along_axis", [x, i], {}, "indices have shape [2]; they must have the rank of x, 2"),
            ("take_along_axis", [x, np.zeros((2, 6), "i8")], {}, "indices have 6 elements along axis 1 and x has 5; there must not be more"),
            ("take_along_axis", [x[:0], np.zeros((2, 5), "i8")], {}, "axis 0 of x is empty: there is no place in it"),
            ("scatter_reduce", [x, np.zeros((2, 5), "i8"), x[:1]], {"reducer": "sum"}, "source has shape [1, 5] and indices [2, 5]; there must be an element for each index"),
            ("scatter_reduce", [x > 0, np.zeros((2, 5), "i8"), x > 0], {"reducer": "mean"}, "bool has no mean"),
            ("index_reduce", [x + 1j, i, x[:2] + 1j], {"reducer": "max"}, "c128 has no max"),
            ("index_add", [x, i, x[:3]], {}, "source has shape [3, 5]; x and index ask for [2, 5]"),
            ("index_add", [i, i, i], {"alpha": 0.5}, "alpha is 0.5; of i64 it must be a whole number"),
            ("index_copy", [x, np.zeros((2, 1), "i8"), x[:2]], {}, "index has shape [2, 1]; it must be a row of places"),
            ("index_fill", [x, i, x], {}, "value has shape [4, 5]; it must be a scalar"),
            ("index", [x, i, i], {"dims": [1, 0]}, "dims must ascend"),
            ("index", [x, i, i], {"dims": [0]}, "2 indices need as many dims, not 1"),
            ("index", [x, i], {"dims": [2]}, "dims"),
            ("index_put", [x, x, i], {"dims": [0]}, "values have shape [4, 5], which does not broadcast to [2, 5]"),
            ("put", [x, i, x], {}, "source has shape [4, 5] and index [2]; there must be an element for each place"),
            ("masked_scatter", [x, x[:3] > 0, x], {}, "mask has shape [3, 5], which does not broadcast to [4, 5]"),
            ("masked_scatter", [x, x > 0, x[:0]], {}, "source is empty: there is nothing to take"),
            ("diagonal", [x[0]], {}, "x must have at least 2 dimensions, not [5]"),
            ("diagonal", [x], {"axis1": 1}, "axis1 and axis2 are both 1; they must differ"),
            ("diagonal_scatter", [x, x[0]], {}, "source has shape [5]; the diagonal has [4]"),
            ("diag", [x[None]], {}, "x must have 1 or 2 dimensions, not [1, 4, 5]"),
            ("diag_embed", [np.float32(1)], {}, "x must have at least 1 dimension, not []"),
            ("diag_embed", [x], {"offset": 2 ** 41}, "offset is 2199023255552; it must be within 2^40"),
            ("select_scatter", [x, x[0]], {"index": 4}, "index is 4; axis 0 has 4 slices"),
            ("select_scatter", [x, x[1:3]], {"index": 1}, "source has shape [2, 5]; the slice has [5]"),
            ("slice_scatter", [x, x], {"start": 2}, "source has shape [4, 5]; the slices have [2, 5]"),
            ("slice_scatter", [x, x], {"step": 0}, "step is 0; it must be at least 1"),
            ("unfold", [x], {"size": 5}, "size is 5; axis 0 has 4 elements"),
            ("as_strided", [x], {"shape": [2], "strides": [20]}, "the last element is 20 of x as one row, which has 20 elements"),
            ("as_strided", [x], {"shape": [2], "strides": [-1]}, "strides is -1; it must be at least 0"),
            ("as_strided", [x], {"shape": [2], "strides": []}, "shape has 1 dimensions and strides 0"),
            ("as_strided_scatter", [x, x], {"shape": [2], "strides": [1]}, "source has shape [4, 5]; shape says [2]"),
            ("rot90", [x], {"dims": [0]}, "dims has 1 entries; a plane has 2 axes"),
            ("rot90", [x], {"dims": [0, -2]}, "dims are both 0; they must differ"),
            ("movedim", [x], {"source": [0], "destination": [0, 1]}, "source has 1 axes and destination 2"),
            ("repeat_interleave_static", [x, i], {"total": 3}, "repeats has shape [2]; axis 0 has 4 slices"),
            ("block_diag", [x[None]], {}, "inputs must have at most 2 dimensions, not [1, 4, 5]")):
        refused(op, inputs, text, **attrs)


PARTS = (along, into, anywhere, parts_of, refusals)
