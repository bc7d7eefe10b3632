"""Part of numpy_test.py: pools, windows as rows, padding by a tensor's own elements, sizes, samples, features and norms."""
import itertools

import numpy as np
from numpy_judge import INF, NAN, expect, refused, rng


def windows(shape, window, strides, pads, dilation, ceil):
    """(coordinates of the result, its window's coordinates that lie inside, how many lie inside or in the padding)."""
    outs = []
    for n, w, s, (low, high), d in zip(shape, window, strides, pads, dilation):
        room = n + low + high - d * (w - 1) - 1
        out = room // s + 1
        if ceil and room % s and out * s < n + low:
            out += 1
        outs.append(out)
    for at in itertools.product(*map(range, outs)):
        taps = [[a * s - low + k * d for k in range(w)] for a, w, s, (low, _), d in zip(at, window, strides, pads, dilation)]
        inside = list(itertools.product(*[[i for i in t if 0 <= i < n] for t, n in zip(taps, shape)]))
        padded = int(np.prod([sum(i < n + high for i in t) for t, n, (_, high) in zip(taps, shape, pads)]))
        yield at, inside, padded, outs


def pooled(x, how):
    spatial = x.shape[1:-1]
    n = len(spatial)
    pads = np.reshape(how.get("pads", [0] * 2 * n), (n, 2))
    found = list(windows(spatial, how["window"], how.get("strides", how["window"]), pads, how.get("dilation", [1] * n), how.get("ceil_mode", False)))
    outs = found[0][3]
    most, place, sums, counts, padded = (np.zeros((x.shape[0], *outs, x.shape[-1])) for _ in range(5))
    for at, inside, size, _ in found:
        under = np.stack([x[(slice(None), *i)] for i in inside])
        best = np.argmax(under, 0)
        flat = np.array([np.ravel_multi_index(i, spatial) for i in inside])
        key = (slice(None), *at)
        most[key], place[key], sums[key] = under.max(0), flat[best], under.sum(0)
        counts[key], padded[key] = len(inside), size
    return most, place.astype("i4"), sums, counts, padded


def pools():
    x = rng(20).normal(size=(2, 7, 6, 3))
    x[0, 2, 3, 1] = NAN
    y = rng(21).integers(-3, 3, (1, 9, 2)).astype("f8")  # with ties
    for v, how in ((x, {"window": [3, 2], "strides": [2, 3], "padding": "explicit", "pads": [1, 1, 0, 1], "ceil_mode": True}),
                   (x, {"window": [2, 2], "dilation": [3, 2], "strides": [1, 1]}), (y, {"window": [4], "strides": [2], "ceil_mode": True}), (x, {"window": [7, 6]})):
        most, place, sums, counts, padded = pooled(v, how)
        expect("max_pool_with_indices", [v], [most, place], tolerance=0, **how)
        expect("max_pool", [v], most, tolerance=0, **how)
        expect("max_pool", [v.astype("f4")], most.astype("f4"), tolerance=0, **how)
        if "dilation" not in how:
            expect("avg_pool", [v], sums / counts, tolerance=1e-13, **how)
            expect("avg_pool", [v], sums / padded, tolerance=1e-13, count_include_pad=True, **how)
            expect("avg_pool", [v], sums / 5, tolerance=1e-13, divisor=5, **how)
            cubes = pooled(np.abs(v) ** 3, how)[2]
            expect("lp_pool", [np.abs(v)], cubes ** (1 / 3), tolerance=1e-12, p=3.0, **how)
    far = np.full((1, 3, 1), -INF)
    expect("max_pool_with_indices", [far], [far[:, :2], np.array([[[0], [0]]], "i4")], window=[3], strides=[1], padding="explicit", pads=[1, 0])
    for size in ([3, 4], [7, 6], [9, 1]):
        parts = [[range(i * n // k, -(-(i + 1) * n // k)) for i in range(k)] for n, k in zip((7, 6), size)]
        mean, most, place = np.zeros((2, *size, 3)), np.zeros((2, *size, 3)), np.zeros((2, *size, 3), "i4")
        for i, j in np.ndindex(*size):
            box = x[:, parts[0][i]][:, :, parts[1][j]].reshape(2, -1, 3)
            flat = np.array([p * 6 + q for p in parts[0][i] for q in parts[1][j]])
            mean[:, i, j], most[:, i, j], place[:, i, j] = box.mean(1), box.max(1), flat[np.argmax(box, 1)]
        expect("adaptive_avg_pool", [x], mean, tolerance=1e-13, floor=1, size=size)
        expect("adaptive_max_pool", [x], [most, place], tolerance=0, size=size)
    values, places = rng(22).normal(size=(1, 3, 2)), np.array([[[4, 0], [0, 6], [5, 2]]], "i4")
    wanted = np.zeros((1, 7, 2))
    for k, c in np.ndindex(3, 2):
        wanted[0, places[0, k, c], c] = values[0, k, c]
    expect("max_unpool", [values, places], wanted, tolerance=0, size=[7])


def columns():
    x = rng(23).normal(size=(2, 6, 5, 3))
    how = {"window": [3, 2], "strides": [2, 1], "pads": [1, 1, 0, 2], "dilation": [1, 2]}
    padded = np.pad(x, ((0, 0), (1, 1), (0, 2), (0, 0)))
    rows = [padded[:, i:i + 3, j:j + 4:2].transpose(0, 3, 1, 2).reshape(2, -1) for i in range(0, 6, 2) for j in range(5)]
    wanted = np.stack(rows[:15], 1)
    expect("im2col", [x], wanted, tolerance=0, **how)
    expect("im2col", [x > 0], wanted > 0, **how)
    y = rng(24).normal(size=wanted.shape)
    back = np.zeros(padded.shape)
    for k, (i, j) in enumerate(itertools.product(range(0, 6, 2), range(5))):
        back[:, i:i + 3, j:j + 4:2] += y[:, k].reshape(2, 3, 3, 2).transpose(0, 2, 3, 1)
    expect("col2im", [y], back[:, 1:7, :5], tolerance=1e-13, floor=1, size=[6, 5], **how)


def sizes():
    for d in ("f4", "i4", "c8", "b1"):
        x = (rng(25).normal(size=(3, 5)) * 3).astype(d)
        for op, mode in (("pad_reflect", "reflect"), ("pad_replicate", "edge"), ("pad_circular", "wrap")):
            expect(op, [x], np.pad(x, ((2, 0), (1, 3)), mode), tolerance=0, low=[2, 1], high=[0, 3])
            cut = np.pad(x[:, 1:], ((2, 0), (0, 1)), mode)  # the rest goes around
            expect(op, [x], cut, tolerance=0, low=[2, -1], high=[0, 1])
    x = rng(26).normal(size=(1, 5, 2))
    grid = np.arange(5.0)
    for n in (1, 3, 8, 11):
        middle = (np.arange(n) + 0.5) * 5 / n - 0.5
        line = lambda at: np.stack([np.interp(at, grid, x[0, :, c]) for c in range(2)], -1)[None]
        expect("resize", [x], line(middle), tolerance=1e-13, floor=1, size=[n])
        expect("resize", [x], line(np.linspace(0, 4, n) if n > 1 else np.zeros(1)), tolerance=1e-13, floor=1, size=[n], align_corners=True)
        expect("resize", [x], x[:, np.floor(np.arange(n) * 5 / n).astype(int)], tolerance=0, size=[n], mode="nearest")
        expect("resize", [x], x[:, np.floor((np.arange(n) + 0.5) * 5 / n).astype(int)], tolerance=0, size=[n], mode="nearest_exact")
        cubic = np.zeros((1, n, 2))
        for i, at in enumerate(middle):
            low = int(np.floor(at))
            for k in range(low - 1, low + 3):
                t = abs(at - k)
                w = (1.25 * t - 2.25) * t * t + 1 if t <= 1 else -0.75 * (((t - 5) * t + 8) * t - 4)
                cubic[0, i] += w * x[0, min(max(k, 0), 4)]
        expect("resize", [x], cubic, tolerance=1e-12, floor=1, size=[n], mode="cubic")
    y = rng(27).normal(size=(2, 4, 3, 8))
    shuffled = y.reshape(2, 4, 3, 2, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(2, 8, 6, 2)
    expect("pixel_shuffle", [y], shuffled, tolerance=0, factor=2)
    expect("pixel_unshuffle", [shuffled], y, tolerance=0, factor=2)
    expect("channel_shuffle", [y], y.reshape(2, 4, 3, 4, 2).swapaxes(3, 4).reshape(y.shape), tolerance=0, groups=4)


def samples():
    x = rng(28).normal(size=(2, 4, 5, 3))
    grid = rng(29).uniform(-1.3, 1.3, (2, 7, 2))
    for align in (False, True):
        scale = lambda v, n: (v + 1) * (n - 1) / 2 if align else ((v + 1) * n - 1) / 2
        column, row = scale(grid[..., 0], 5), scale(grid[..., 1], 4)
        at = lambda k, i, j: x[k, i, j] if 0 <= i < 4 and 0 <= j < 5 else np.zeros(3)
        zeros, border, nearest = (np.zeros((2, 7, 3)) for _ in range(3))
        for k, p in np.ndindex(2, 7):
            for out, (r, c) in ((zeros, (row[k, p], column[k, p])), (border, (np.clip(row[k, p], 0, 3), np.clip(column[k, p], 0, 4)))):
                i, j = int(np.floor(r)), int(np.floor(c))
                out[k, p] = sum((1 - abs(r - u)) * (1 - abs(c - v)) * at(k, u, v) for u in (i, i + 1) for v in (j, j + 1))
            nearest[k, p] = at(k, int(np.rint(row[k, p])), int(np.rint(column[k, p])))
        expect("grid_sample", [x, grid], zeros, tolerance=1e-12, floor=1, align_corners=align)
        expect("grid_sample", [x, grid], border, tolerance=1e-12, floor=1, align_corners=align, outside="border")
        expect("grid_sample", [x, grid], nearest, tolerance=0, align_corners=align, mode="nearest")
        theta = rng(30).normal(size=(2, 2, 3))
        line = lambda n: np.linspace(-1, 1, n) if align else (2 * np.arange(n) + 1) / n - 1
        points = np.stack([*np.meshgrid(line(5), line(4)), np.ones((4, 5))], -1)
        expect("affine_grid", [theta], np.einsum("nij,hwj->nhwi", theta, points), tolerance=1e-13, floor=1, size=[4, 5], align_corners=align)


def smooth():
    x = rng(62).normal(size=(1, 11, 2))
    for mode, reach, curve in (("linear", 1, lambda t: np.maximum(1 - t, 0)),
                               ("cubic", 2, lambda t: np.where(t < 1, (1.5 * t - 2.5) * t * t + 1, np.where(t < 2, -0.5 * (((t - 5) * t + 8) * t - 4), 0)))):
        for n in (4, 11, 23):
            width = max(11 / n, 1.0)
            at = (np.arange(n) + 0.5) * 11 / n
            away = np.abs((np.arange(11) + 0.5)[None] - at[:, None]) / width
            weight = curve(away)
            expect("resize", [x], np.einsum("nk,bkf->bnf", weight / weight.sum(1, keepdims=True), x), tolerance=1e-12, floor=1, size=[n], mode=mode, antialias=True)
    refused("resize", [x], "antialias goes with linear and cubic, not with area", size=[3], mode="area", antialias=True)
    expect("resize", [x], x.mean(1, keepdims=True), tolerance=1e-8, floor=1, size=[1], scales=[1e-300], antialias=True)
    expect("resize", [x], np.repeat(x[:, -1:], 3, 1), tolerance=0, size=[3], scales=[1e-300], mode="linear")
    refused("resize", [np.zeros((1, 70000, 1), "i1").astype("f4")], "spatial dimension 0 has 70000 elements, each of 70000 of x; with antialias",
            size=[70000], scales=[1e-9], antialias=True)


def volumes():
    x = rng(63).normal(size=(2, 3, 4, 5, 2))
    grid = rng(64).uniform(-1.2, 1.2, (2, 6, 3))
    at = [((grid[..., 2 - d] + 1) * n - 1) / 2 for d, n in enumerate((3, 4, 5))]  # depth, height, width
    want, near = np.zeros((2, 6, 2)), np.zeros((2, 6, 2))
    for b, p in np.ndindex(2, 6):
        low = [int(np.floor(v[b, p])) for v in at]
        for corner in np.ndindex(2, 2, 2):
            place = [l + c for l, c in zip(low, corner)]
            if all(0 <= i < n for i, n in zip(place, (3, 4, 5))):
                want[b, p] += np.prod([1 - abs(v[b, p] - i) for v, i in zip(at, place)]) * x[(b, *place)]
        place = [int(np.round(v[b, p])) for v in at]
        if all(0 <= i < n for i, n in zip(place, (3, 4, 5))):
            near[b, p] = x[(b, *place)]
    expect("grid_sample", [x, grid], want, tolerance=1e-12, floor=1)
    expect("grid_sample", [x, grid], near, tolerance=0, mode="nearest")
    keys = lambda t: np.where(t < 1, (1.25 * t - 2.25) * t * t + 1, np.where(t < 2, -0.75 * (((t - 5) * t + 8) * t - 4), 0))
    for outside in ("zeros", "border"):
        want = np.zeros((2, 6, 2))
        for b, p in np.ndindex(2, 6):
            low = [int(np.floor(v[b, p])) for v in at]
            for corner in np.ndindex(4, 4, 4):
                place = [l + c - 1 for l, c in zip(low, corner)]
                weight = np.prod([keys(abs(v[b, p] - i)) for v, i in zip(at, place)])
                if outside == "border":
                    place = [min(max(i, 0), n - 1) for i, n in zip(place, (3, 4, 5))]
                if all(0 <= i < n for i, n in zip(place, (3, 4, 5))):
                    want[b, p] += weight * x[(b, *place)]
        expect("grid_sample", [x, grid], want, tolerance=1e-12, floor=1, mode="cubic", outside=outside)
    refused("grid_sample", [x, grid[..., :2]], "grid has shape [2, 6, 2]; [2, …, 3] is needed")


def channels_first():
    x, w = rng(65).normal(size=(2, 4, 5, 6)), rng(66).normal(size=(6, 2, 3, 2))
    want = np.zeros((2, 6, 3, 5))
    for g in range(2):
        for i, j in np.ndindex(3, 2):
            want[:, 3 * g:3 * g + 3] += np.einsum("bchw,oc->bohw", x[:, 2 * g:2 * g + 2, i:i + 3, j:j + 5], w[3 * g:3 * g + 3, :, i, j])
    expect("conv", [x, w], want, tolerance=1e-12, floor=1, groups=2, channels_first=True)
    t = rng(67).normal(size=(4, 3, 2, 3))  # [features, outputs / groups, window]
    spread = np.zeros((2, 6, 2 * 4 + 2, 5 + 3))
    for g in range(2):
        for h, v in np.ndindex(5, 6):
            spread[:, 3 * g:3 * g + 3, 2 * h:2 * h + 2, v:v + 3] += np.einsum("bc,coij->boij", x[:, 2 * g:2 * g + 2, h, v], t[2 * g:2 * g + 2])
    expect("conv_transpose", [x, t], spread, tolerance=1e-12, floor=1, groups=2, strides=[2, 1], channels_first=True)
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3), (2, 3))[:, :, ::2, ::3]
    expect("max_pool", [x], windows.max((-2, -1)), tolerance=0, window=[2, 3], channels_first=True)
    expect("avg_pool", [x], windows.mean((-2, -1)), tolerance=1e-13, floor=1, window=[2, 3], channels_first=True)
    flat = np.argmax(windows.reshape(*windows.shape[:4], 6), -1)
    rows, columns = flat // 3 + 2 * np.arange(2)[:, None], flat % 3 + 3 * np.arange(2)
    expect("max_pool_with_indices", [x], [windows.max((-2, -1)), (6 * rows + columns).astype("i4")], tolerance=0, window=[2, 3], channels_first=True)
    refused("max_pool", [x[0, 0]], "x has shape [5, 6]; with channels_first it must have rank 3 or more", window=[2], channels_first=True)
    refused("conv_transpose", [x, t[:3]], "w has 3 features; they must be a multiple of 2, the groups", groups=2, channels_first=True)


def norms():
    x, scale, offset = rng(31).normal(size=(3, 5, 6)) + 2, rng(32).normal(size=6), rng(33).normal(size=6)
    even = lambda v, axes: (v - v.mean(axes, keepdims=True)) / np.sqrt(v.var(axes, keepdims=True) + 1e-5)
    group = even(x.reshape(3, 5, 2, 3), (1, 3)).reshape(x.shape)
    expect("group_norm", [x, scale, offset], group * scale + offset, tolerance=1e-12, floor=1, groups=2)
    expect("group_norm", [x.swapaxes(1, 2), None, offset], (group + offset).swapaxes(1, 2), tolerance=1e-12, floor=1, groups=2, axis=1)
    expect("instance_norm", [x, scale, None], even(x, 1) * scale, tolerance=1e-12, floor=1)
    squares = np.pad(x * x, ((0, 0), (0, 0), (2, 1)))
    around = sum(squares[..., k:k + 6] for k in range(4)) / 4
    expect("local_response_norm", [x], x / (2 + 0.5 * around) ** 0.75, tolerance=1e-12, size=4, alpha=0.5, k=2.0)


def refusals():
    x = np.zeros((1, 4, 5, 2))
    for op, inputs, attrs, text in (
            ("max_pool_with_indices", [x[0, 0]], {"window": [2]}, "x has shape [5, 2]; [batch, spatial…, features] of rank 3 or more is needed"),
            ("max_pool_with_indices", [x], {"window": [2, 2], "padding": "explicit", "pads": [2, 0, 0, 0]}, "a window lies in padding alone"),
            ("max_pool", [x], {"window": [2, 2], "dilation": [4, 1]}, "the window spans 5 elements of spatial dimension 0"),
            ("avg_pool", [x], {"window": [2, 2], "divisor": 0}, "divisor is 0; it must be another number"),
            ("adaptive_avg_pool", [x], {"size": [2]}, "size"),
            ("adaptive_avg_pool", [x], {"size": [2, -1]}, "size is -1; it must be 0 to 2^31 - 1"),
            ("adaptive_max_pool", [x[:, :0]], {"size": [2, 2]}, "spatial dimension 0 is empty: there is nothing to pool"),
            ("max_unpool", [x, np.zeros((1, 4, 5, 1), "i4")], {"size": [8, 8]}, "shapes [1, 4, 5, 2] and [1, 4, 5, 1] must be equal"),
            ("lp_pool", [x], {"window": [2, 2], "p": 0.0}, "p is 0; it must be finite and not 0"),
            ("im2col", [x], {"window": [2, 2], "pads": [0, 0, -1, 0]}, "pads of spatial dimension 1 must be at least 0"),
            ("col2im", [x[0]], {"size": [5], "window": [2]}, "x has 5 windows of 2 columns; size and window ask for 4 of a multiple of 2"),
            ("pad_reflect", [x[0, 0]], {"low": [5, 0], "high": [0, 0]}, "padding is 5 in dimension 0; there it must be at most 4"),
            ("pad_circular", [x[0, 0]], {"low": [0], "high": [0, 0]}, "low has 1 and high 2 entries; x has 2 dimensions"),
            ("resize", [x], {"size": [0, 1]}, "size is 0; it must be 1 to 2^31 - 1"),
            ("resize", [x], {"size": [1, 1], "mode": "area", "align_corners": True}, "align_corners goes with linear and cubic, not with area"),
            ("resize", [x], {"size": [1, 1], "scales": [1.0, 0.0]}, "scales has 0; it must be finite and above 0"),
            ("grid_sample", [x, np.zeros((2, 3, 2))], {}, "grid has shape [2, 3, 2]; [1, …, 2] is needed"),
            ("affine_grid", [x[0]], {"size": [2, 2]}, "theta has shape [4, 5, 2]; [batch, 2, 3] is needed"),
            ("pixel_shuffle", [x], {"factor": 2}, "x has 2 features; they must be a multiple of 4"),
            ("pixel_unshuffle", [x], {"factor": 2}, "spatial dimension 1 has 5 elements; they must be a multiple of 2"),
            ("channel_shuffle", [x], {"groups": 3}, "groups is 3; it must divide the 2 features"),
            ("group_norm", [x, np.zeros(2), np.zeros(2)], {"groups": 2, "axis": 0}, "axis is 0, which is the batch's"),
            ("group_norm", [x, np.zeros(3), np.zeros(2)], {"groups": 2}, "scale must have shape [2], not [3]"),
            ("instance_norm", [x, np.zeros(2), np.zeros(2)], {"epsilon": INF}, "epsilon is inf; it must be finite"),
            ("local_response_norm", [x], {"size": 0}, "size is 0; it must be 1 to 2^31 - 1")):
        refused(op, inputs, text, **attrs)


def fractions():
    """Graham's windows: where each begins is written out here for each plane."""
    for shape, window, size, first in (((2, 9, 7, 3), [3, 2], [4, 6], False), ((1, 5, 6, 5, 2), [2, 3, 2], [2, 3, 4], False), ((2, 3, 8, 6), [2, 2], [3, 1], True)):
        n = len(window)
        x = rng(68).integers(-4, 4, shape).astype("f8")  # with ties
        planes = x if not first else np.moveaxis(x, 1, -1)
        samples = rng(69).uniform(size=(shape[0], planes.shape[-1], n))
        want, place = (np.zeros((shape[0], *size, planes.shape[-1])) for _ in range(2))
        for b, c in np.ndindex(*samples.shape[:2]):
            starts = []
            for d in range(n):
                last = planes.shape[1 + d] - window[d]
                step = last / (size[d] - 1) if size[d] > 1 else 0
                u = samples[b, c, d]
                starts.append([int((i + u) * step) - int(u * step) for i in range(size[d] - 1)] + [last])
            for at in np.ndindex(*size):
                box = [range(starts[d][i], starts[d][i] + window[d]) for d, i in enumerate(at)]
                under = [(planes[(b, *i, c)], -np.ravel_multi_index(i, planes.shape[1:-1])) for i in itertools.product(*box)]
                most = max(under)
                want[(b, *at, c)], place[(b, *at, c)] = most[0], -most[1]
        turn = (lambda v: np.moveaxis(v, -1, 1)) if first else lambda v: v
        for dtype in ("f8", "f4"):
            expect("fractional_max_pool", [x.astype(dtype), samples.astype(dtype)], [turn(want).astype(dtype), turn(place).astype("i4")], tolerance=0, window=window,
                   size=size, channels_first=first)
    x = np.zeros((1, 5, 4, 2))
    refused("fractional_max_pool", [x, np.zeros((1, 2, 3))], "samples have shape [1, 2, 3], not [1, 2, 2]", window=[2, 2], size=[2, 2])
    refused("fractional_max_pool", [x, np.zeros((1, 2, 2))], "spatial dimension 1 has 4 elements, the window 2 and the result 4", window=[2, 2], size=[2, 4])
    refused("fractional_max_pool", [x[0, 0], np.zeros((1, 2, 2))], "of rank 3 or more is needed", window=[2], size=[2])


PARTS = (pools, fractions, columns, sizes, samples, smooth, volumes, channels_first, norms, refusals)
