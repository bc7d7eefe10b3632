"""Composite operations against definitions written down here, in float64 (f64 results: in 80-bit floats) on the very inputs.

The definitions know nothing of expansions, reducers or backends. They run over the whole range of each type: large and tiny
numbers, offsets a thousand deviations wide, axes of 70,000, zeros of both signs, infinities and NaN; unary operations on all
65,536 inputs of the 16-bit types. What is judged: a 16-bit result may be 0.51 units in its last place off, and what the same
computation in f32 may be off; an f32 or f64 result K roundings of what its definition adds and subtracts.
"""
import math
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))
sys.path.insert(0, HERE)
import numpy as np  # noqa: E402
import tape  # noqa: E402
import weft  # noqa: E402

INF, NAN = float("inf"), float("nan")
ROUNDOFF = {"f16": 2.0 ** -24, "bf16": 2.0 ** -24, "f32": 2.0 ** -24, "f64": 2.0 ** -53}
LEAST = {"f16": 2.0 ** -149, "bf16": 2.0 ** -149, "f32": 2.0 ** -149, "f64": 5e-324}
# The largest magnitude put in, and the largest whose square the type of the computation holds.
BIG = {"f16": 6e4, "bf16": 1e30, "f32": 1e30, "f64": 1e300}
BIG_SQUARED = {"f16": 6e4, "bf16": 1e16, "f32": 1e16, "f64": 1e150}
TINY = {"f16": 1e-6, "bf16": 1e-30, "f32": 1e-30, "f64": 1e-300}
TINY_SQUARED = {"f16": 1e-6, "bf16": 1e-16, "f32": 1e-16, "f64": 1e-150}
NORMAL = {"f16": 2.0 ** -126, "bf16": 2.0 ** -126, "f32": 2.0 ** -126, "f64": 2.0 ** -1022}  # the smallest of the computation
SEEN = set()


def rng(seed):
    return np.random.default_rng(seed)


def exact(dtype, raw):
    values = weft.decode(dtype, raw)
    return values.astype(np.longdouble) if dtype == "f64" else values


def allowed_error(dtype, reference, size, roundings):
    """`size`: what is rounded on the way, element by element; never less than the result itself."""
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(size), np.abs(reference)).astype("f8")
        allowed = roundings * ROUNDOFF[dtype] * size + 4 * LEAST[dtype]
        if dtype in ("f16", "bf16"):
            allowed = allowed + 0.51 * weft.ulp(dtype, np.asarray(reference, "f8"))
    return np.where(np.isnan(allowed), 0, allowed)


class Judge:
    """Runs operations and keeps what differs."""

    def __init__(self):
        weft.load()
        self.ctx, self.faults, self.runs = weft.Context(), [], 0

    def compare(self, title, dtype, tensor, definition, roundings):
        self.runs += 1
        reference, size = definition
        reference = np.asarray(reference)
        expectation = (dtype, reference.astype("f8"), allowed_error(dtype, reference, np.broadcast_to(size, reference.shape), roundings))
        text = tape.compare(tensor.dtype, tensor.numpy(), expectation)
        if text:
            self.faults.append(f"{title}: {text}")

    def check(self, op, dtype, operands, definition, roundings=8, title="", gradient=None, to=None, **attrs):
        """`operands`: float64 arrays (rounded to `dtype`), integer and bool arrays as they are, or None. `definition` takes the
        exact operands and gives (reference, size) or a list of them; `gradient` takes them and the cotangent and gives one
        (reference, size) for each float operand."""
        SEEN.add(op)
        attrs = attrs if to is None else {**attrs, "dtype": to}
        raw = [None if x is None else (dtype, weft.encode(dtype, x)) if np.asarray(x).dtype.kind == "f" else (None, np.asarray(x)) for x in operands]
        name = f"{op}({', '.join('-' if r is None else (r[0] or weft.name_of(r[1])) + str(list(r[1].shape)) for r in raw)})"
        name += f" {attrs}" * bool(attrs) + f" {title}"
        given = [None if r is None else exact(dtype, r[1]) if r[0] else r[1] for r in raw]
        tensors = [None if r is None else self.ctx.tensor(r[1], r[0]) for r in raw]
        floats = [t for t, r in zip(tensors, raw) if r is not None and r[0]]
        if gradient:
            for t in floats:
                t.require_grad()
        try:
            results = self.ctx.apply(op, tensors, attrs)
            with np.errstate(all="ignore"):
                wanted = definition(*given)
                wanted = wanted if isinstance(wanted, list) else [wanted]
                for i, (result, want) in enumerate(zip(results, wanted, strict=True)):
                    self.compare(name + f" result {i}" * (len(results) > 1), result.dtype, result, want, roundings)
                if gradient:
                    cotangent = weft.encode(dtype, rng(99).normal(size=results[0].shape))
                    slopes = self.ctx.grad(results[0], floats, self.ctx.tensor(cotangent, dtype))
                    for i, (slope, want) in enumerate(zip(slopes, gradient(*given, exact(dtype, cotangent)))):
                        if want is not None:
                            self.compare(f"{name} gradient {i}", dtype, slope, want, 2 * roundings)
        except weft.WeftError as error:
            self.faults.append(f"{name}: {error}")


def every(dtype):
    """All values of a 16-bit type; of the others their edges, powers of two with their neighbours, and a dense middle."""
    if dtype in ("f16", "bf16"):
        return weft.decode(dtype, np.arange(65536, dtype="u2").view("f2" if dtype == "f16" else "u2"))
    least, top = {"f32": (-149, 127), "f64": (-1074, 1023)}[dtype]
    powers = np.ldexp(1.0, np.arange(least, top + 1))
    near = np.concatenate([powers, powers * 1.5, np.nextafter(powers, 0) if dtype == "f64" else powers * (1 - 2.0 ** -24)])
    middle = np.concatenate([np.linspace(-30, 30, 4001), rng(3).normal(size=2000), np.linspace(80, 110, 500), np.arange(-160, 160)])
    return np.concatenate([near, -near, middle, [0.0, -0.0, INF, -INF, NAN]])


def split(x, positive, negative):
    """positive where x > 0, else negative; NaN where x is."""
    return np.where(np.isnan(x), x, np.where(x > 0, positive, negative))


def erf(x, function=math.erf):
    return np.vectorize(lambda v: function(float(v)), otypes=["f8"])(x)


def erf_inv(y):
    """Newton's method on math.erf, near the ends on math.erfc."""
    sign, a = np.sign(y), np.abs(np.asarray(y, "f8"))
    rest = np.asarray(1 - np.abs(y), "f8")
    tail = np.sqrt(-np.log(np.maximum(rest, 1e-300)))
    x = np.where(a < 0.9, a * 0.9, tail - np.log(tail + 1) / (2 * tail + 1e-9) * 0.5)
    for _ in range(60):
        error = np.where(a < 0.5, erf(x) - a, rest - erf(x, math.erfc))
        x = np.clip(x - error * (math.sqrt(math.pi) / 2) * np.exp(np.minimum(x * x, 700)), 0, 6.5)
    x = np.where(a == 0, 0, x)
    return np.where(a > 1, NAN, np.where(a == 1, INF, x)) * np.where(a == 0, 1, sign) + np.where(a == 0, y, 0)


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def phi_tanh(x):
    """1/2 (1 + tanh u) = sigmoid(2u): no cancellation here."""
    return sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))


def unary(judge):
    """(definition, size of what is rounded): gelu's erf and tanh are near -1 at the left, so |x| is what is rounded there."""
    plain = lambda f: lambda x: (f(x), f(x))
    slope = lambda f, size=None: lambda x, c: [(f(x) * c, (f(x) if size is None else size(x)) * c)]
    table = [
        ("square", {}, plain(np.square), slope(lambda x: 2 * x)),
        ("trunc", {}, plain(np.trunc), None),
        ("relu", {}, plain(lambda x: split(x, x, 0)), slope(lambda x: (x > 0) * 1.0)),
        ("relu6", {}, plain(lambda x: np.where(np.isnan(x), x, np.clip(x, 0, 6))), None),
        ("clip", {"low": -1.5, "high": 3.0}, plain(lambda x: np.where(np.isnan(x), x, np.clip(x, -1.5, 3))), None),
        ("clip", {"high": 0.1}, None, None),
        ("exp2", {}, plain(np.exp2), slope(lambda x: np.exp2(x) * math.log(2))),
        ("log2", {}, plain(np.log2), slope(lambda x: np.where(x < 0, 1, 1) / (x * np.log(np.longdouble(2))))),
        ("erf", {}, plain(erf), slope(lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x), lambda x: 2 * (1 + x * x) * np.exp(-x * x))),
        ("erf_inv", {}, plain(erf_inv), None),
        ("leaky_relu", {}, plain(lambda x: split(x, x, 0.01 * x)), slope(lambda x: split(x, 1, 0.01))),
        ("leaky_relu", {"slope": 0.3}, plain(lambda x: split(x, x, 0.3 * x)), None),
        ("elu", {}, plain(lambda x: split(x, x, np.expm1(x))), slope(lambda x: split(x, 1, np.exp(x)))),
        ("elu", {"alpha": 1.7}, plain(lambda x: split(x, x, 1.7 * np.expm1(x))), None),
        ("softplus", {}, lambda x: (np.where(np.isnan(x), x, np.logaddexp(0, x)),) * 2, slope(sigmoid)),
        # Where e^-x overflows the result is not a normal number, and may be 0.
        ("silu", {}, lambda x: (x * sigmoid(x), np.abs(x * sigmoid(x)) * (1 + np.abs(x) / 8) + NORMAL[dtype] / ROUNDOFF[dtype] * (x < -80)),
         slope(lambda x: sigmoid(x) * (1 + x * sigmoid(-x)), lambda x: sigmoid(x) * (2 + np.abs(x) * (1 + np.abs(x)) * sigmoid(-x))
               + NORMAL[dtype] / ROUNDOFF[dtype] * (x < -80))),
        ("gelu", {}, lambda x: (x * 0.5 * erf(-x / math.sqrt(2), math.erfc), np.minimum(np.abs(x), 8)),
         slope(lambda x: 0.5 * erf(-x / math.sqrt(2), math.erfc) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi), lambda x: 2.0)),
        ("gelu", {"form": "tanh"}, lambda x: (x * phi_tanh(x), np.minimum(np.abs(x), 8)), None),
        ("integer_pow", {"exponent": 3}, plain(lambda x: x ** 3), slope(lambda x: 3 * x * x)),
        ("integer_pow", {"exponent": -2}, plain(lambda x: 1.0 / (x * x)), None),
        ("integer_pow", {"exponent": 0}, plain(lambda x: np.ones_like(x)), None),
    ]
    for dtype in weft.FLOATS:
        x = every(dtype)
        for op, attrs, definition, gradient in table:
            if definition is None:
                bound = float(weft.decode(dtype, weft.encode(dtype, 0.1)))  # a bound is a number of the type
                definition = plain(lambda x, b=bound: np.where(np.isnan(x), x, np.minimum(x, b)))
            v = x
            if op in ("silu", "gelu"):
                v = x[x != -INF]  # -inf times 0: NaN or the limit 0, both are defensible
            if op == "integer_pow" and dtype != "f64":
                v = v[(np.abs(v) == 0) | (np.abs(v) > 1e-12) & (np.abs(v) < 1e12)]  # intermediate powers stay in range
            if op == "integer_pow" and dtype == "f64":
                v = v[(np.abs(v) == 0) | (np.abs(v) > 1e-90) & (np.abs(v) < 1e90)]
            judge.check(op, dtype, [v], definition, **attrs)
            if gradient:
                finite = v[np.isfinite(v) & (np.abs(v) < 1e4) & ((np.abs(v) > 1e-4) | (op not in ("log2",)))]
                finite = finite[finite > 0] if op == "log2" else finite[(np.abs(finite) < 120) | (op != "exp2")]
                judge.check(op, dtype, [finite], definition, title="(slopes)", gradient=gradient, roundings=16, **attrs)
        SEEN.add("is_nan")
        got = judge.ctx.is_nan(judge.ctx.tensor(weft.encode(dtype, x), dtype)).numpy()
        if not np.array_equal(got, np.isnan(weft.decode(dtype, weft.encode(dtype, x)))):
            judge.faults.append(f"is_nan {dtype}")


def families(dtype, big, tiny, rows=3, width=64):
    """Named tables [rows, width] over the range of the type: magnitudes up to `big` and down to `tiny`."""
    r = rng(11)
    shape = (rows, width)
    yield "normal", r.normal(size=shape)
    yield "deviation 30", 30 * r.normal(size=shape)
    yield "1000 off", 1000 + r.normal(size=shape)
    yield "large", big * r.uniform(-1, 1, shape)
    yield "large, one sign", big * r.uniform(0.5, 1, shape)
    yield "tiny", tiny * r.uniform(-1, 1, shape)
    yield "mixed", r.normal(size=shape) * 10.0 ** r.uniform(-3, min(4, math.log10(big)), shape)
    yield "zeros", np.where(r.random(shape) < 0.5, 0.0, -0.0)
    yield "one element", r.normal(size=(rows, 1)) * 5
    yield "long", r.normal(size=(1, 70000))
    yield "long, 3 off", 3 + r.normal(size=(1, 70000))
    yield "long zeros", np.zeros((2, 70000))
    yield "long ones", np.ones((2, 70000))


def keep(x, axis):
    return np.expand_dims(x, axis)


def centred(x):
    """(mean, x - mean, variance, |mean error| a computation makes per rounding) along the last axis, the mean kept."""
    mean = x.mean(-1, keepdims=True)
    d = x - mean
    return mean, d, (d * d).mean(-1, keepdims=True), np.abs(x).mean(-1, keepdims=True)


def reductions(judge):
    def mean(x):
        return x.mean(-1), np.abs(x).mean(-1)

    def var(correction):
        def definition(x):
            n = x.shape[-1]
            _, d, v, slip = centred(x)
            v = (d * d).sum(-1) / (n - correction)
            return v, v + (slip[..., 0] * 2.0 ** -20) ** 2 * 2.0 ** 20
        return definition

    def std(x):
        _, d, v, slip = centred(x)
        s = np.sqrt(v[..., 0])
        return s, s + slip[..., 0] * 2.0 ** -8

    def logsumexp(x):
        top = x.max(-1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0)
        log = np.log(np.exp(x - top).sum(-1))
        return log + top[..., 0], np.abs(log) + np.abs(top[..., 0]) + 1

    for dtype in weft.FLOATS:
        for title, x in families(dtype, BIG[dtype], TINY[dtype]):
            k = 8 + 2 * math.log2(x.shape[-1])  # sums of n numbers are rounded log n times, not n times
            one = lambda c, like: np.broadcast_to(keep(c, -1), like.shape)
            judge.check("mean", dtype, [x], mean, k, title, lambda x, c: [(one(c, x) / x.shape[-1],) * 2], dims=[1])
            judge.check("sum", dtype, [x], lambda x: (x.sum(-1), np.abs(x).sum(-1)), k, title, dims=[1])
            judge.check("logsumexp", dtype, [x], logsumexp, k, title, dims=[1])
            for op, f in (("max", np.max), ("min", np.min)):
                judge.check(op, dtype, [x], lambda x: (f(x, axis=-1), 0), 0, title, dims=[-1])
        for title, x in families(dtype, BIG_SQUARED[dtype], TINY_SQUARED[dtype]):
            k = 8 + 2 * math.log2(x.shape[-1])
            slope = lambda x, c: [(2 * centred(x)[1] * keep(c, -1) / x.shape[-1],
                                   2 * (np.abs(centred(x)[1]) + centred(x)[3] * 2.0) * np.abs(keep(c, -1)) / x.shape[-1])]
            judge.check("var", dtype, [x], var(0), k, title, slope, dims=[1])
            if x.shape[-1] > 1:
                judge.check("var", dtype, [x], var(1), k, title, dims=[1], correction=1)
            judge.check("std", dtype, [x], std, k, title, dims=[1])
        few = rng(12).uniform(0.5, 1.5, (4, 40)) * rng(13).choice([-1, 1], (4, 40))
        judge.check("prod", dtype, [few], lambda x: (x.prod(-1),) * 2, 50, dims=[1])
        mixed = np.array([[NAN, 1, 2], [INF, 1, -INF], [INF, 2, 3], [-INF, -INF, -INF]])
        judge.check("mean", dtype, [mixed], lambda x: (np.array([NAN, NAN, INF, -INF]), 0), title="edges", dims=[1])
        judge.check("logsumexp", dtype, [mixed], lambda x: (np.array([NAN, INF, INF, -INF]), 0), title="edges", dims=[1])


def softmaxes(judge):
    def parts(x):
        z = x - x.max(-1, keepdims=True)
        e = np.exp(z)
        return z, e, e.sum(-1, keepdims=True)

    def softmax(x):
        z, e, s = parts(x)
        return e / s, e / s * (1 + np.where(np.isfinite(z), np.abs(z), 0) / 4)

    def log_softmax(x):
        z, _, s = parts(x)
        return z - np.log(s), np.abs(z) + np.log(s) + 1

    def softmax_slope(x, c):
        y, size = softmax(x)
        inner = (y * c).sum(-1, keepdims=True)
        spread = (size * np.abs(c)).sum(-1, keepdims=True)
        return [(y * (c - inner), size * (np.abs(c) + spread))]

    def log_softmax_slope(x, c):
        y, size = softmax(x)
        total = c.sum(-1, keepdims=True)
        return [(c - y * total, np.abs(c) + size * np.abs(c).sum(-1, keepdims=True))]

    for dtype in weft.FLOATS:
        for title, x in families(dtype, BIG[dtype], TINY[dtype]):
            k = 10 + 2 * math.log2(x.shape[-1])
            judge.check("softmax", dtype, [x], softmax, k, title, softmax_slope)
            judge.check("log_softmax", dtype, [x], log_softmax, k, title, log_softmax_slope)
            rows, classes = x.shape
            labels = rng(14).integers(0, classes, rows)
            for reduction in ("mean", "sum", "none"):
                for smoothing in (0.0, 0.25):
                    def loss(x, labels):
                        logs, size = log_softmax(x)
                        at = np.arange(rows), labels
                        row = -(1 - smoothing) * logs[at] - smoothing * logs.mean(-1)
                        row_size = (1 - smoothing) * size[at] + smoothing * size.mean(-1)
                        how = {"mean": np.mean, "sum": np.sum, "none": np.asarray}[reduction]
                        return how(row), how(row_size)

                    def slope(x, labels, c):
                        y, size = softmax(x)
                        target = smoothing / classes + (1 - smoothing) * (np.arange(classes) == labels[:, None])
                        c = (np.full(rows, c) / (rows if reduction == "mean" else 1) if reduction != "none" else c)[:, None]
                        return [((y - target) * c, (size + target) * np.abs(c))]
                    if smoothing == 0 or title in ("normal", "1000 off"):
                        judge.check("cross_entropy", dtype, [x, labels], loss, k, title, slope, reduction=reduction, label_smoothing=smoothing)
        x = rng(15).normal(size=(2, 5, 3)) * 4
        for axis in (0, 1, -1):
            moved = lambda f: lambda x: tuple(np.moveaxis(v, -1, axis) for v in f(np.moveaxis(x, axis, -1)))
            judge.check("softmax", dtype, [x], moved(softmax), 20, axis=axis)
            judge.check("log_softmax", dtype, [x], moved(log_softmax), 20, axis=axis)
        edges = np.array([[-INF, 0, 0], [-INF, -INF, -INF], [INF, 0, 0], [NAN, 0, 0]])
        judge.check("softmax", dtype, [edges], lambda x: (np.array([[0, 0.5, 0.5], [NAN] * 3, [NAN] * 3, [NAN] * 3]), 0), title="edges")
        safe = lambda x: (np.array([[0, 0.5, 0.5], [0] * 3, [NAN] * 3, [NAN] * 3]), 0)
        slope = lambda x, c: [(np.concatenate([[[0, (c[0, 1] - c[0, 2]) / 4, (c[0, 2] - c[0, 1]) / 4], [0] * 3], np.full((2, 3), NAN)]), np.abs(c))]
        judge.check("softmax", dtype, [edges], safe, title="edges", gradient=slope, safe=True)


def norms(judge):
    def layer(eps):
        def definition(x, scale, offset):
            _, d, v, slip = centred(x)
            r = 1 / np.sqrt(v + eps)
            scale = 1 if scale is None else scale
            offset = 0 if offset is None else offset
            # A mean that is off by a rounding moves every difference.
            return d * r * scale + offset, (np.abs(d) + slip) * r * np.abs(scale) + np.abs(offset)
        return definition

    def layer_slope(eps):
        def gradient(x, scale, offset, c):
            _, d, v, slip = centred(x)
            r = 1 / np.sqrt(v + eps)
            y, g = d * r, c * (1 if scale is None else scale)
            a, b = g.mean(-1, keepdims=True), (g * y).mean(-1, keepdims=True)
            size = (np.abs(d) + slip) * r
            large = np.abs(g) + np.abs(g).mean(-1, keepdims=True) + size * (np.abs(g) * size).mean(-1, keepdims=True)
            out = [(r * (g - a - y * b), r * large * (1 + (slip * r) ** 2))]
            if scale is not None:
                out += [((c * y).sum(0), (np.abs(c) * size).sum(0)), (c.sum(0), np.abs(c).sum(0))]
            return out
        return gradient

    def rms(eps):
        def definition(x, scale):
            y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
            return (y if scale is None else y * scale,) * 2
        return definition

    def rms_slope(eps):
        def gradient(x, scale, c):
            r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
            g = c * (1 if scale is None else scale)
            b = (g * x).mean(-1, keepdims=True)
            out = [(r * (g - x * r * r * b), r * (np.abs(g) + np.abs(x) * r * r * (np.abs(g) * np.abs(x)).mean(-1, keepdims=True)))]
            return out + [((c * x * r).sum(0), np.abs(c * x * r).sum(0))] if scale is not None else out
        return gradient

    for dtype in weft.FLOATS:
        for title, x in families(dtype, BIG_SQUARED[dtype], TINY_SQUARED[dtype]):
            width = x.shape[-1]
            k = 16 + 2 * math.log2(width)
            scale, offset = rng(16).normal(size=width), rng(17).normal(size=width)
            judge.check("layer_norm", dtype, [x, None, None], layer(1e-5), k, title, layer_slope(1e-5))
            judge.check("layer_norm", dtype, [x, scale, offset], layer(1e-3), k, title, layer_slope(1e-3), epsilon=1e-3)
            judge.check("rms_norm", dtype, [x, None], rms(1e-6), k, title, rms_slope(1e-6))
            judge.check("rms_norm", dtype, [x, scale], rms(1e-2), k, title, rms_slope(1e-2), epsilon=1e-2)
            # A batch is the same along the other axis; its mean and variance are results.
            columns = x.T.copy()
            features = columns.shape[-1]
            s, o = rng(18).normal(size=features), rng(19).normal(size=features)

            def batch(x, scale, offset):
                mean, d, v, slip = (a.T for a in centred(x.T))
                y, size = layer(1e-5)(x.T, scale[:, None], offset[:, None])
                return [(y.T, size.T), (mean[0], slip[0]), (v[0], v[0] + (slip[0] * 2.0 ** -20) ** 2 * 2.0 ** 20)]
            judge.check("batch_norm", dtype, [columns, s, o], batch, k, title)

            def known(x, scale, offset, mean, variance):
                r = scale / np.sqrt(variance + 1e-5)
                return (x - mean) * r + offset, (np.abs(x) + np.abs(mean)) * np.abs(r) + np.abs(offset)
            judge.check("batch_norm_inference", dtype, [columns, s, o, columns.mean(0), np.abs(s) * 3], known, 12, title)
        x = rng(20).normal(size=(2, 3, 4, 5)) * 3 + 1

        def along_one(x, scale, offset):
            moved = np.moveaxis(x, 1, -1).reshape(-1, 3)
            y, size = batch(moved, scale, offset)[0]
            back = lambda v: np.moveaxis(v.reshape(2, 4, 5, 3), -1, 1)
            return [(back(y), back(size)), *batch(moved, scale, offset)[1:]]
        judge.check("batch_norm", dtype, [x, rng(21).normal(size=3), rng(22).normal(size=3)], along_one, 30, axis=1)


def losses(judge):
    for dtype in weft.FLOATS:
        for title, x in families(dtype, BIG_SQUARED[dtype], TINY_SQUARED[dtype]):
            y = x[:, ::-1] * 0.5
            for reduction, how in (("mean", np.mean), ("sum", np.sum), ("none", np.asarray)):
                d = lambda x, y: (how((x - y) ** 2),) * 2
                over = x.size if reduction == "mean" else 1
                judge.check("mse", dtype, [x, y], d, 10 + 2 * math.log2(x.size), title,
                            lambda x, y, c: [(2 * (x - y) * c / over,) * 2, (-2 * (x - y) * c / over,) * 2], reduction=reduction)


def products(judge):
    for dtype in weft.FLOATS:
        for title, big in (("", 3.0), ("large", math.sqrt(BIG_SQUARED[dtype])), ("tiny", 1e-3)):
            x, w, b = (rng(30 + i).normal(size=s) * big for i, s in enumerate(((5, 70), (70, 9), (9,))))

            def linear(x, w, b):
                b = 0 if b is None else b
                return x @ w + b, np.abs(x) @ np.abs(w) + np.abs(b)

            def slope(x, w, b, c):
                out = [(c @ w.T, np.abs(c) @ np.abs(w.T)), (x.T @ c, np.abs(x.T) @ np.abs(c))]
                return out + [(c.sum(0), np.abs(c).sum(0))] if b is not None else out
            judge.check("linear", dtype, [x, w, b], linear, 16, title, slope)
            judge.check("linear", dtype, [x, w, None], linear, 16, title, slope)
            judge.check("matmul", dtype, [x, w], lambda x, w: linear(x, w, None), 16, title, lambda x, w, c: slope(x, w, None, c))
        r = rng(40)
        for title, reach, causal, scale, masks in (("", 1, False, None, None), ("causal", 1, True, None, None), ("scores past 65,504", 300, False, None, None),
                                                   ("sharp", 30, True, 0.5, None), ("bool mask", 2, False, None, "bool"), ("float mask", 2, False, None, "f"),
                                                   ("more keys", 1, True, None, "longer"), ("many keys", 3, True, None, "many"),
                                                   ("more queries", 1, True, None, "shorter"), ("no key, bool", 1, False, None, "unseen bool"),
                                                   ("no key, float", 1, True, None, "unseen f"), ("no key, lower right", 1, "lower_right", None, "shorter"),
                                                   ("a cache", 1, "lower_right", None, "longer"),
                                                   ("many keys, all seen", 3, False, None, "all"),
                                                   ("few queries", 3, False, None, "few")):
            queries, keys = {"longer": (6, 9), "shorter": (9, 6), "many": (530, 600), "all": (130, 1100), "few": (3, 400)}.get(masks, (6, 6))
            q, k, v = (r.normal(size=(2, 3, n, 8)) * reach for n in (queries, keys, keys))
            mask = None
            if masks in ("bool", "unseen bool"):
                mask = r.random((6, keys)) < 0.6
                mask[:, 0] = True
                mask[2] = masks == "bool"
            elif masks in ("f", "unseen f"):
                mask = r.normal(size=(6, keys)) * 4
                mask[2] = mask[2] if masks == "f" else -INF

            factor = 1 / math.sqrt(8) if scale is None else scale

            def weights(q, k, mask):
                s = q @ np.swapaxes(k, -1, -2) * factor
                slip = np.abs(q) @ np.swapaxes(np.abs(k), -1, -2) * factor
                if mask is not None:
                    s = np.where(mask, s, -INF) if mask.dtype == bool else s + mask
                    slip = slip if mask.dtype == bool else slip + np.abs(np.where(np.isinf(mask), 0, mask))
                if causal:
                    lead = s.shape[-1] - s.shape[-2] if causal == "lower_right" else 0
                    s = np.where(np.tri(*s.shape[-2:], lead, dtype=bool), s, -INF)
                top = s.max(-1, keepdims=True)
                e = np.exp(s - np.where(top == -INF, 0, top))
                p = e / np.where(top == -INF, 1, e.sum(-1, keepdims=True))
                # A score that is off by d changes its weight by the factor e^d.
                return p, p * (1 + np.where(p > 0, slip, 0) + (p * np.where(p > 0, slip, 0)).sum(-1, keepdims=True))

            def attention(q, k, v, mask):
                p, unsure = weights(q, k, mask)
                return p @ v, unsure @ np.abs(v)

            def attention_slope(q, k, v, mask, c):
                def turned(x):
                    return np.swapaxes(x, -1, -2)
                p, unsure = weights(q, k, mask)
                dp, size = c @ turned(v), np.abs(c) @ turned(np.abs(v))
                ds = p * (dp - (p * dp).sum(-1, keepdims=True))
                unsure_ds = unsure * (size + (p * size).sum(-1, keepdims=True)) + p * (unsure * size).sum(-1, keepdims=True)
                out = [(ds @ k * factor, unsure_ds @ np.abs(k) * abs(factor)), (turned(ds) @ q * factor, turned(unsure_ds) @ np.abs(q) * abs(factor)),
                       (turned(p) @ c, turned(unsure) @ np.abs(c))]
                return out if mask is None or mask.dtype == bool else out + [(ds.sum((0, 1)), unsure_ds.sum((0, 1)))]
            judge.check("scaled_dot_product_attention", dtype, [q, k, v, mask], attention, 8, title, attention_slope, scale=scale,
                        **({"causal_alignment": causal} if isinstance(causal, str) else {"causal": causal}))


def windows(size, window, stride, padding, dilation=1):
    """(low padding, outputs) along one dimension by the definitions of valid, same and explicit."""
    reach = (window - 1) * dilation + 1
    if padding == "valid":
        return 0, (size - reach) // stride + 1
    if padding == "same":
        out = -(-size // stride)
        return max((out - 1) * stride + reach - size, 0) // 2, out
    low, high = padding
    return low, (size + low + high - reach) // stride + 1


def gathered(x, window, strides, paddings, dilations, fill):
    """[n, out…, window…, c] with `fill` where a window hangs over, from channels-last data: index arithmetic, no convolution."""
    n = len(window)
    index, inside = [], []
    for d in range(n):
        low, out = windows(x.shape[1 + d], window[d], strides[d], paddings[d], dilations[d])
        at = np.arange(out)[:, None] * strides[d] + np.arange(window[d]) * dilations[d] - low
        shape = [1] * (2 * n)
        shape[d], shape[n + d] = out, window[d]
        index.append(np.clip(at, 0, x.shape[1 + d] - 1).reshape(shape))
        inside.append(((at >= 0) & (at < x.shape[1 + d])).reshape(shape))
    picked = x[(slice(None), *index)]
    mask = np.ones(1, bool)
    for m in inside:
        mask = mask & m
    return np.where(mask[None, ..., None], picked, fill), mask


def convolutions(judge):
    for dtype in weft.FLOATS:
        for number, (spatial, kernel, c_in, c_out, strides, padding, pads, dilation, groups) in enumerate((
                ((9, 8), (3, 3), 4, 6, (1, 1), "same", None, (1, 1), 1), ((9, 8), (3, 2), 4, 6, (2, 3), "same", None, (1, 1), 2),
                ((9, 8), (4, 3), 3, 6, (1, 2), "same", None, (2, 1), 3), ((9, 8), (3, 3), 4, 4, (2, 2), "explicit", (1, 0, 2, 1), (1, 1), 1),
                ((10, 7), (2, 3), 8, 8, (1, 1), "valid", None, (3, 2), 8), ((11,), (4,), 3, 5, (2,), "same", None, (1,), 1),
                ((5, 6, 4), (2, 3, 2), 2, 4, (2, 1, 1), "same", None, (1, 1, 2), 2), ((7, 7), (1, 1), 16, 20, (2, 2), "valid", None, (1, 1), 1),
                ((6, 6), (5, 5), 3, 4, (1, 1), "explicit", (4, 4, 4, 4), (1, 1), 1), ((8, 8), (3, 3), 32, 64, (1, 1), "same", None, (1, 1), 32))):
            n = len(spatial)
            paddings = [padding if padding != "explicit" else pads[2 * d:2 * d + 2] for d in range(n)]
            for title, big in (("", 1.0), ("large", math.sqrt(BIG_SQUARED[dtype]) / 8)):
                if title and number > 1:
                    continue
                x = rng(50 + number).normal(size=(2, *spatial, c_in)) * big
                w = rng(70 + number).normal(size=(*kernel, c_in // groups, c_out)) * big

                def conv(x, w):
                    def total(x, w):
                        picked, _ = gathered(x, kernel, strides, paddings, dilation, 0)
                        out = []
                        for g in range(groups):
                            a, b = c_in // groups, c_out // groups
                            part = picked[..., g * a:(g + 1) * a]
                            out.append(part.reshape(*part.shape[:1 + n], -1) @ w[..., g * b:(g + 1) * b].reshape(-1, b))
                        return np.concatenate(out, -1)
                    return total(x, w), total(np.abs(x), np.abs(w))
                judge.check("conv", dtype, [x, w], conv, 16, title, strides=strides, padding=padding, pads=pads, dilation=dilation, groups=groups)
        for number, (spatial, window, strides, padding, pads) in enumerate((
                ((9, 8), (2, 2), None, "valid", None), ((9, 8), (3, 3), (2, 2), "same", None), ((9, 8), (3, 2), (1, 1), "same", None),
                ((9, 8), (4, 3), (3, 2), "explicit", (1, 2, 0, 1)), ((11,), (4,), (3,), "same", None), ((5, 6, 4), (2, 3, 2), (2, 1, 1), "same", None),
                ((12, 12), (5, 5), (1, 1), "valid", None), ((7, 300), (7, 300), None, "valid", None))):
            n = len(spatial)
            steps = strides or window
            paddings = [padding if padding != "explicit" else pads[2 * d:2 * d + 2] for d in range(n)]
            for title, big in (("", 1.0), ("large", BIG[dtype]), ("tiny", TINY[dtype])):
                if title and number not in (0, 1, 7):
                    continue
                x = rng(90 + number).uniform(-1, 1, (2, *spatial, 3)) * big
                axes = tuple(range(1 + n, 1 + 2 * n))

                def largest(x):
                    return gathered(x, window, steps, paddings, [1] * n, -INF)[0].max(axes), 0

                def average(x):
                    picked, mask = gathered(x, window, steps, paddings, [1] * n, 0)
                    count = mask.reshape(*mask.shape[:n], -1).sum(-1)[None, ..., None]
                    return picked.sum(axes) / count, np.abs(picked).sum(axes) / count
                judge.check("max_pool", dtype, [x], largest, 0, title, window=window, strides=strides, padding=padding, pads=pads)
                judge.check("avg_pool", dtype, [x], average, 8 + 2 * math.log2(math.prod(window)), title, window=window, strides=strides,
                            padding=padding, pads=pads)


def lookups(judge):
    for dtype in weft.FLOATS:
        table = rng(60).uniform(-1, 1, (7, 4)) * BIG[dtype]
        ids = np.array([[0, 6, 3], [3, -2, 99]], "i4")
        row = np.clip(ids, 0, 6)

        def slope(table, ids, c):
            total, size = np.zeros(table.shape, table.dtype), np.zeros(table.shape, table.dtype)
            np.add.at(total, row, c)
            np.add.at(size, row, np.abs(c))
            return [(total, size)]
        judge.check("embedding", dtype, [table, ids], lambda t, i: (t[row], 0), 8, gradient=slope)
        labels = np.array([0, 3, 4, -1, 2], "i8")
        judge.check("one_hot", dtype, [labels], lambda i: (np.eye(5)[[0, 3, 4, 4, 2]][:, :4] * [[1], [1], [0], [0], [1]], 0), depth=4, to=dtype)


class Definitions(unittest.TestCase):
    """One part a test, so that what differs is told apart."""

    def judge(self, part):
        judge = Judge()
        part(judge)
        print(f"{part.__name__}: {judge.runs} comparisons, {len(judge.faults)} differ")
        for fault in judge.faults[:int(os.environ.get("WEFT_SHOW_FAULTS", "12"))]:
            print("  " + fault)
        self.assertGreater(judge.runs, 0)
        self.assertEqual(0, len(judge.faults))


for _part in (unary, reductions, softmaxes, norms, losses, products, convolutions, lookups):
    setattr(Definitions, f"test_{_part.__name__}", lambda self, part=_part: self.judge(part))


# What the parts above judge; tests/ops/numpy_test.py asks of every operation that somebody does.
JUDGED = frozenset("""
    avg_pool batch_norm batch_norm_inference clip conv cross_entropy elu embedding erf erf_inv exp2 gelu integer_pow is_nan layer_norm
    leaky_relu linear log2 log_softmax logsumexp matmul max max_pool mean min mse one_hot prod relu relu6 rms_norm
    scaled_dot_product_attention silu softmax softplus square std sum trunc var""".split())


def tearDownModule():
    if SEEN != JUDGED and len(sys.argv) == 1:
        raise AssertionError(f"JUDGED is not what was judged: {sorted(SEEN ^ JUDGED)}")


class TheJudgeItself(unittest.TestCase):
    def test_what_is_off_by_more_than_it_may_is_seen(self):
        judge = Judge()
        x = np.array([1.0, 2.0, 3.0])
        for dtype, off in (("f16", 2.0 ** -10), ("bf16", 2.0 ** -7), ("f32", 2.0 ** -20), ("f64", 2.0 ** -49)):
            judge.check("square", dtype, [x], lambda v: (v * v, v * v))
            self.assertEqual([], judge.faults)
            judge.check("square", dtype, [x], lambda v: (v * v * (1 + off),) * 2)
            judge.check("square", dtype, [x], lambda v: (v * v,) * 2, gradient=lambda v, c: [(-2 * v * c, 0)])
            judge.check("square", dtype, [x], lambda v: (np.array([1, 4, NAN]), 0))
            judge.check("square", dtype, [x], lambda v: ((v * v)[:2], 0))
            self.assertEqual(4, len(judge.faults), judge.faults)
            judge.faults.clear()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
