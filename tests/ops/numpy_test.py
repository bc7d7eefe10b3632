"""Operations against NumPy in float64, through the C API (weft_op_apply) alone.

Values, and the edges where mistakes live: NaN, infinities, -0, integers that overflow, division by zero, the least
integer by -1, empty tensors and rank 0. Where NumPy and StableHLO differ, the case says so. NumPy comes into a
virtual environment of the build tree; without the registry the test is SKIPPED and says so.
"""
import itertools
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "conformance"))
import numpy as np  # noqa: E402
import definitions_test  # noqa: E402
import numpy_judge  # noqa: E402
import tape  # noqa: E402
import weft  # noqa: E402
import numpy_draws  # noqa: E402
import numpy_formulas  # noqa: E402
import numpy_images  # noqa: E402
import numpy_linalg  # noqa: E402
import numpy_networks  # noqa: E402
import numpy_places  # noqa: E402
import numpy_products  # noqa: E402
import numpy_special  # noqa: E402
from numpy_axes import axes  # noqa: E402
from numpy_judge import EDGES, FAILURES, INF, INTS, NAN, SEEN, away, expect, limits, rng, sigmoid, softplus  # noqa: E402
from numpy_positions import cumulative, different, long_running, order, rearranged, sizes  # noqa: E402
from numpy_random import categories, distributions, philox  # noqa: E402


def unary():
    x = (rng(60).normal(size=4001) * np.exp(rng(61).uniform(-9, 9, 4001))).astype("f4")
    half = x.astype("f2").astype("f4")  # whose subnormal numbers are zeros
    expect("reduce_precision", [x], np.where(np.abs(half) < 2.0**-14, 0 * half, half), exponent_bits=5, mantissa_bits=10)
    bits = x.view("u4")
    expect("reduce_precision", [x], ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype("u4").view("f4"), exponent_bits=8, mantissa_bits=7)
    f4, f8 = EDGES.astype("f4"), EDGES
    table = {
        "abs": np.abs, "ceil": np.ceil, "floor": np.floor, "trunc": np.trunc, "round": np.rint, "round_away": away,
        "neg": np.negative, "sqrt": np.sqrt, "square": np.square, "sign": np.sign,
    }
    for op, f in table.items():
        for x in (f4, f8):
            # StableHLO's sign keeps the sign of zero, NumPy's loses it.
            expect(op, [x], f(x.astype("f8")), tolerance=0, exact_sign=op != "sign")
    smooth = {
        "cbrt": np.cbrt, "cos": np.cos, "sin": np.sin, "tan": np.tan, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
        "log": np.log, "log1p": np.log1p, "log2": np.log2, "tanh": np.tanh, "sigmoid": sigmoid,
        "rsqrt": lambda x: 1 / np.sqrt(x), "relu": lambda x: np.where(np.isnan(x), x, np.maximum(x, 0)),
        "silu": lambda x: np.where(x == -INF, NAN, x * sigmoid(x)), "softplus": softplus,
    }
    for op, f in smooth.items():
        for x in (f4, f8):
            w = f(x.astype("f8"))
            if op == "silu":  # -inf times 0: either NaN or its limit 0 is defensible, so it is not tested
                x, w = x[x != -INF], w[x != -INF]
            expect(op, [x], w)
    for op, f in {"is_finite": np.isfinite, "is_nan": np.isnan}.items():
        for x in (f4, f8, EDGES.astype("f2")):
            expect(op, [x], f(x))
    for d in INTS:
        x = limits(d)
        expect("neg", [x], np.negative(x))  # wraps
        expect("square", [x], x * x)
        expect("bitwise_not", [x], ~x)
        expect("popcount", [x], np.array([bin(int(v) & (2 ** (8 * x.itemsize) - 1)).count("1") for v in x], d))
        if d[0] == "i":
            expect("sign", [x], np.sign(x))
            expect("abs", [x], np.abs(x))  # the least integer stays itself
    expect("bitwise_not", [np.array([True, False])], np.array([False, True]))
    # Empty and rank 0.
    for op in ("exp", "neg", "tanh", "sigmoid"):
        expect(op, [np.zeros((0, 3), "f4")], np.zeros((0, 3)))
    expect("exp", [np.float32(1)], np.exp(1.0))


def binary():
    x, y = (a.ravel() for a in np.meshgrid(EDGES, EDGES))
    exact = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    for op, f in exact.items():
        for d in ("f4", "f8"):
            a, b = x.astype(d), y.astype(d)
            expect(op, [a, b], f(a, b), tolerance=0, exact_sign=True)
    for d in ("f4", "f8"):
        a, b = x.astype(d), y.astype(d)
        expect("maximum", [a, b], np.maximum(a, b), tolerance=0)  # both hand NaN on
        expect("minimum", [a, b], np.minimum(a, b), tolerance=0)
        expect("rem", [a, b], np.fmod(a, b), tolerance=0)  # the dividend's sign: fmod, not NumPy's remainder
        expect("pow", [a, b], np.power(a.astype("f8"), b.astype("f8")).astype(d))
        expect("atan2", [a, b], np.arctan2(a.astype("f8"), b.astype("f8")), exact_sign=True)
        for op, f in {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
                      "ge": np.greater_equal}.items():
            expect(op, [a, b], f(a, b))
    for d in INTS:
        a, b = (v.ravel() for v in np.meshgrid(limits(d), limits(d)))
        for op, f in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
                      "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}.items():
            expect(op, [a, b], f(a, b))
        for op, f in {"lt": np.less, "ge": np.greater_equal, "eq": np.equal}.items():
            expect(op, [a, b], f(a, b))
        # By zero NumPy gives 0 and a warning; ours is all ones, as XLA:CPU's. Division truncates, NumPy's // floors.
        least, ones = np.iinfo(d).min, np.array(-1).astype(d)
        quotient = [ones if q == 0 else np.array(int(p)).astype(d) if d[0] == "i" and p == least and q == -1
                    else np.array(abs(int(p)) // abs(int(q)) * (1 if (p < 0) == (q < 0) else -1)).astype(d) for p, q in zip(a, b)]
        remainder = [p if q == 0 else np.array(abs(int(p)) % abs(int(q)) * (-1 if p < 0 else 1)).astype(d) for p, q in zip(a, b)]
        expect("div", [a, b], np.array(quotient, d), note="by zero and least / -1")
        expect("rem", [a, b], np.array(remainder, d), note="by zero and least % -1")
        # Shifts by the width or more give 0 (arithmetic: the sign), where C leaves them open.
        bits = 8 * np.dtype(d).itemsize
        by = np.array([0, 1, bits - 1, bits, bits, 3, 2, 1], d)
        v, mask = limits(d), 2 ** bits - 1
        expect("shift_left", [v, by], np.array([(int(p) << int(s)) & mask if s < bits else 0 for p, s in zip(v, by)], "u8").astype(d))
        expect("shift_right_logical", [v, by], np.array([(int(p) & mask) >> int(s) for p, s in zip(v, by)], "u8").astype(d))
    expect("add", [np.float32(2), np.ones((2, 3), "f4")], np.full((2, 3), 3.0))
    expect("mul", [np.ones((0, 3), "f4"), np.ones((3,), "f4")], np.ones((0, 3)))


def shapes():
    x = np.arange(24, dtype="i4").reshape(2, 3, 4)
    expect("transpose", [x], x.transpose(2, 0, 1), permutation=[2, 0, 1])
    expect("reshape", [x], x.reshape(4, 6), shape=[4, 6])
    expect("reverse", [x], x[::-1, :, ::-1], dimensions=[0, 2])
    expect("slice", [x], x[0:2, 1:3, 0:4:2], start_indices=[0, 1, 0], limit_indices=[2, 3, 4], strides=[1, 1, 2])
    expect("concatenate", [x, x[:, :1]], np.concatenate([x, x[:, :1]], 1), dimension=1)
    expect("concatenate", [x[:, :0], x], x, dimension=1, note="an empty one")
    expect("stack", [x, x], np.stack([x, x], 1), axis=1)
    expect("expand_dims", [x], x[:, None], dims=[1])
    expect("squeeze", [x[:, :1]], x[:, 0], dims=[1])
    expect("broadcast_to", [x[:, :1]], np.broadcast_to(x[:, :1], (5, 2, 3, 4)), shape=[5, 2, 3, 4])
    expect("take", [x, np.array([2, 0, 1, 1])], x[:, [2, 0, 1, 1]], axis=1)
    # Indices outside are held to the ends (np.take's mode "clip"); NumPy's default raises.
    expect("take", [x, np.array([-5, 9])], np.take(x, [-5, 9], 1, mode="clip"), axis=1)
    expect("pad", [x, np.int32(7)], np.pad(x, ((0, 0), (1, 2), (0, 1)), constant_values=7), edge_padding_low=[0, 1, 0],
           edge_padding_high=[0, 2, 1], interior_padding=[0, 0, 0])
    expect("where", [x % 2 == 0, x, -x], np.where(x % 2 == 0, x, -x))
    expect("iota", [], np.broadcast_to(np.arange(4)[None, :], (3, 4)).astype("i4"), shape=[3, 4], dimension=1, dtype="i4")
    expect("one_hot", [np.array([0, 3, 9, -1])], np.eye(4, dtype="f4")[[0, 3, 0, 0]] * [[1], [1], [0], [0]], depth=4)
    expect("dynamic_slice", [x, np.int32(1), np.int32(9), np.int32(-3)], x[1:2, 1:3, 0:2], slice_sizes=[1, 2, 2],
           note=" (starts are held inside)")
    for d in ("f4", "f8"):
        values = np.array([0.0, 0.9, -0.9, 1.5, -1.5, 1e10, -1e10, NAN, INF, -INF, 255, 256, 300.7], d)
        for to in ("i1", "u1", "i4", "i8", "u4"):
            # Out of range saturates and NaN is 0; C and NumPy leave both open.
            info = np.iinfo(to)
            wanted = [0 if np.isnan(v) else info.min if v <= info.min else info.max if v >= info.max else int(v) for v in values]
            expect("convert", [values], np.array(wanted, to), dtype=to)
        expect("convert", [values], values != 0, dtype="b1")
    for d in INTS:
        for to in INTS:
            expect("convert", [limits(d)], limits(d).astype(to), dtype=to)  # wraps
        expect("convert", [limits(d)], limits(d).astype("f4"), tolerance=0, dtype="f4")
        expect("convert", [limits(d)], limits(d).astype("f8"), tolerance=0, dtype="f8")
    halves = np.array([1.0009765625 + 2 ** -11, 1 + 2 ** -11, 65519, 65520, -65520, 2 ** -25, 2 ** -24, 6e-8, 1e-8, NAN], "f4")
    with np.errstate(over="ignore"):
        expect("convert", [halves], halves.astype("f2"), tolerance=0, dtype="f2", note=" (ties to even, overflow, denormals)")


def complex_numbers():
    for d, part in (("c8", "f4"), ("c16", "f8")):
        x, y = ((rng(s).normal(size=(3, 37)) + 1j * rng(s + 1).normal(size=(3, 37))).astype(d) for s in (50, 52))
        wide = x.astype("c16")
        expect("complex", [x.real, x.imag], x, tolerance=0)
        expect("complex", [x.real, np.array(2, part)], (x.real + 2j).astype(d), tolerance=0, note=" (broadcast)")
        expect("real", [x], x.real, tolerance=0)
        expect("imag", [x], x.imag, tolerance=0)
        expect("conj", [x], x.conj(), tolerance=0)
        expect("conj", [x.real], x.real, tolerance=0)
        expect("real", [x.real], x.real, tolerance=0)
        expect("imag", [x.real], 0 * x.real, tolerance=0)
        for op, f in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power}.items():
            expect(op, [x, y], f(wide, y.astype("c16")).astype(d))
        for op, f in {"exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
                      "tan": np.tan, "tanh": np.tanh, "neg": np.negative, "square": np.square, "sigmoid": sigmoid,
                      "sign": lambda v: v / np.abs(v), "rsqrt": lambda v: 1 / np.sqrt(v)}.items():
            expect(op, [x], f(wide).astype(d), floor=1e-1)
        expect("abs", [x], np.abs(wide).astype(part))
        expect("eq", [x, np.where(x.real > 0, x, y)], x.real > 0)
        expect("ne", [x, x.real + 1j * y.imag.astype(d)], np.full(x.shape, True))
        # What a formula without care would overflow, lose or make NaN.
        large, small = (1e38, 1e-38) if d == "c8" else (1e308, 1e-308)
        hard = np.array([large * (1 + 1j), small * (1 - 1j), large, -large, 1j * large, 3e3 + 4e3j, 0, 1, -1, 1j, -1j], d)
        expect("abs", [hard], np.abs(hard.astype("c16") / 4).astype(part) * np.array(4, part), floor=0)
        expect("div", [hard, hard * np.array(0.5, d)], np.where(hard == 0, NAN, 2).astype(d))
        expect("sqrt", [hard], np.sqrt(hard.astype("c16")).astype(d), floor=0)
        expect("log", [hard[hard != 0]], np.log(hard[hard != 0].astype("c16")).astype(d))
        expect("sign", [hard], np.where(hard == 0, 0, hard / np.maximum(np.abs(hard / 4) * 4, np.finfo(part).smallest_subnormal)).astype(d))
        expect("div", [np.array([1, 1j, 2 - 1j], d), np.zeros(3, d)], np.array([INF, INF, INF], d), note=" (by zero: infinite)")
        expect("div", [np.array([1 + 2j], d), np.array([complex(INF, 1)], d)], np.array([0], d))
        expect("pow", [np.zeros(2, d), np.array([0, 2], d)], np.array([1, 0], d))
        # What moves and chooses.
        expect("transpose", [x], x.T, tolerance=0, permutation=[1, 0])
        expect("concatenate", [x, y], np.concatenate([x, y], 1), tolerance=0, dimension=1)
        expect("pad", [x, np.array(1 - 2j, d)], np.pad(x, ((1, 0), (0, 2)), constant_values=np.array(1 - 2j, d)), tolerance=0,
               edge_padding_low=[1, 0], edge_padding_high=[0, 2], interior_padding=[0, 0])
        expect("where", [x.real > 0, x, y], np.where(x.real > 0, x, y), tolerance=0)
        expect("take", [x, np.array([2, 0, 1, 1])], x[:, [2, 0, 1, 1]], tolerance=0, axis=1)
        expect("full", [], np.full((2, 3), 1.5, d), tolerance=0, shape=[2, 3], value=1.5, dtype=d)
        expect("iota", [], np.arange(5).astype(d), tolerance=0, shape=[5], dimension=0, dtype=d)
        # Sums and products.
        for op, f in {"sum": np.sum, "prod": np.prod, "mean": np.mean}.items():
            for axis in (0, 1):
                expect(op, [x], f(wide, axis).astype(d), dims=[axis], floor=1)
        expect("matmul", [x, y.T.copy()], (wide @ y.T.astype("c16")).astype(d), floor=8)
        # Spectra: short, of one factor and many, prime, long and prime; over one to three dimensions.
        tolerance = {"c8": 2e-6, "c16": 4e-15}[d]
        for n in (1, 2, 3, 8, 37, 60, 67, 96, 257, 263, 1000, 1024, 4099):
            v = (rng(n).normal(size=(2, n)) + 1j * rng(n + 1).normal(size=(2, n))).astype(d)
            w, scale = v.astype("c16"), np.sqrt(n)
            real = v.real.astype(part)
            near = {"tolerance": tolerance * (1 + np.log2(n)), "note": f" ({n})"}
            expect("fft", [v], np.fft.fft(w).astype(d), floor=scale, fft_type="FFT", fft_length=[n], **near)
            expect("fft", [v], np.fft.ifft(w).astype(d), floor=1 / scale, fft_type="IFFT", fft_length=[n], **near)
            expect("fft", [real], np.fft.rfft(real.astype("f8")).astype(d), floor=scale, fft_type="RFFT", fft_length=[n], **near)
            half = v[:, : n // 2 + 1]
            expect("fft", [half.copy()], np.fft.irfft(half.astype("c16"), n).astype(part), floor=1 / scale, fft_type="IRFFT",
                   fft_length=[n], **near)
        for shape in ((2, 3, 5), (4, 1, 6), (6, 35, 70)):
            v = (rng(60).normal(size=shape) + 1j * rng(61).normal(size=shape)).astype(d)
            for axes in ((-2, -1), (-3, -2, -1)):
                lengths = [shape[axis] for axis in axes]
                scale = np.sqrt(np.prod(lengths))
                near = {"tolerance": 10 * tolerance, "note": f" ({lengths})"}
                expect("fft", [v], np.fft.fftn(v.astype("c16"), axes=axes).astype(d), floor=scale, fft_type="FFT", fft_length=lengths, **near)
                expect("fft", [v], np.fft.ifftn(v.astype("c16"), axes=axes).astype(d), floor=1 / scale, fft_type="IFFT", fft_length=lengths, **near)
                expect("fft", [v.real.astype(part)], np.fft.rfftn(v.real.astype("f8"), axes=axes).astype(d), floor=scale, fft_type="RFFT",
                       fft_length=lengths, **near)
                lengths = [*lengths[:-1], 2 * lengths[-1] - 2]
                if lengths[-1] > 0:
                    expect("fft", [v], np.fft.irfftn(v.astype("c16"), s=lengths, axes=axes).astype(part), floor=1 / scale,
                           fft_type="IRFFT", fft_length=lengths, **near)
        # Between types.
        expect("convert", [x], x.astype("c8"), tolerance=0, dtype="c8")
        expect("convert", [x], x.astype("c16"), tolerance=0, dtype="c16")
        expect("convert", [x.real], x.real.astype(d), tolerance=0, dtype=d)
        expect("convert", [np.array([-3, 7], "i4")], np.array([-3, 7], d), tolerance=0, dtype=d)
        expect("convert", [x], x.real.astype("f4"), tolerance=0, dtype="f4")
        expect("convert", [np.array([0, 1j, 2], d)], np.array([False, True, True]), dtype="b1")
        expect("add", [np.zeros((0, 3), d), np.ones(3, d)], np.zeros((0, 3), d))
        expect("neg", [np.array(1 - 2j, d)], np.array(-1 + 2j, d), tolerance=0, note=" (rank 0)")


def reductions():
    x = rng(1).normal(size=(3, 4, 5))
    for axes in (None, [0], [1], [2], [0, 2], [0, 1, 2], [-1]):
        axis = None if axes is None else tuple(axes)
        attrs = {} if axes is None else {"dims": axes}
        for d in ("f4", "f8"):
            v = x.astype(d)
            for op, f in {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod, "var": np.var,
                          "std": np.std}.items():
                expect(op, [v], f(v.astype("f8"), axis=axis), **attrs)
            expect("logsumexp", [v], np.log(np.sum(np.exp(v.astype("f8")), axis=axis)), **attrs)
            expect("sum", [v], np.sum(v.astype("f8"), axis=axis, keepdims=True), keepdims=True, **attrs)
        b = x > 0.3
        expect("all", [b], np.all(b, axis=axis), **attrs)
        expect("any", [b], np.any(b, axis=axis), **attrs)
    expect("var", [x], np.var(x, axis=1, ddof=1), dims=[1], correction=1)
    for d in INTS:
        v = limits(d).reshape(2, 4)
        expect("sum", [v], np.sum(v, axis=0, dtype=d), dims=[0])  # wraps in its own type, NumPy's default widens
        expect("max", [v], np.max(v, axis=1), dims=[1])
        expect("min", [v], np.min(v))
        expect("argmax", [v], np.argmax(v, 1).astype("i4"), axis=1)
        expect("argmin", [v], np.argmin(v, 0).astype("i4"), axis=0)
    edged = np.array([[1.0, NAN, 3.0], [INF, -INF, 0.0], [2.0, 2.0, 2.0]])
    for op, f in {"sum": np.sum, "max": np.max, "min": np.min, "mean": np.mean}.items():
        with np.errstate(invalid="ignore"):
            expect(op, [edged], f(edged, axis=1), dims=[1])
    expect("argmax", [edged], np.argmax(edged, 1).astype("i4"), axis=1, note=" (NaN is the largest, the first of equals)")
    expect("argmin", [edged], np.argmin(edged, 1).astype("i4"), axis=1)
    expect("logsumexp", [np.array([1000.0, 1000.0])], 1000 + np.log(2))
    empty = np.zeros((0, 3))
    expect("sum", [empty], np.zeros(3), dims=[0])
    expect("prod", [empty], np.ones(3), dims=[0])
    # Over nothing NumPy raises for max and min; ours are the identities.
    expect("max", [empty], np.full(3, -INF), dims=[0])
    expect("min", [empty], np.full(3, INF), dims=[0])
    expect("sum", [np.zeros((3, 0))], np.zeros((0,)), dims=[0])
    expect("sum", [np.float32(5)], 5.0)


def products():
    for a, b in (((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 1, 3, 4), (5, 4, 2)), ((0, 4), (4, 3)),
                 ((3, 0), (0, 2)), ((1, 130), (130, 67))):
        for d in ("f4", "f8"):
            x, y = rng(2).normal(size=a).astype(d), rng(3).normal(size=b).astype(d)
            expect("matmul", [x, y], np.matmul(x.astype("f8"), y.astype("f8")), tolerance=4e-6 if d == "f4" else 1e-14, floor=10)
    x, y = rng(4).integers(-9, 9, (3, 4)).astype("i4"), rng(5).integers(-9, 9, (4, 2)).astype("i4")
    expect("matmul", [x, y], x @ y)
    x, w, o = rng(6).normal(size=(5, 4)), rng(7).normal(size=(4, 3)), rng(8).normal(size=3)
    expect("linear", [x, w, o], x @ w + o)
    # dtype: narrow factors, wide sums; products of two halves are exact in f32.
    x, w, o = (a.astype("f2") for a in (rng(6).normal(size=(5, 40)), rng(7).normal(size=(40, 3)), rng(8).normal(size=3)))
    want = x.astype("f8") @ w.astype("f8") + o.astype("f8")
    expect("linear", [x, w, o], want, tolerance=4e-6, floor=10, dtype="f4")
    expect("linear", [x, w, None], want - o.astype("f8"), tolerance=4e-6, floor=10, dtype="f4")
    x, w, o = (a.astype("f4") for a in (x, w, o))
    expect("linear", [x, w, o], want, tolerance=1e-14, floor=10, dtype="f8")
    expect("linear", [x, w, o], want, tolerance=2e-3, floor=1, dtype="f2")
    for d, tolerance in (("f4", 2e-5), ("f8", 1e-12)):
        for n, batch in ((1, ()), (5, (2,)), (70, ())):  # more than a block of 64
            f = rng(40).normal(size=(*batch, n, n))
            a = (f @ np.swapaxes(f, -1, -2) + n * np.eye(n)).astype(d)
            factor = np.linalg.cholesky(a.astype("f8"))
            expect("cholesky", [a], factor, tolerance=tolerance, floor=1, lower=True)
            expect("cholesky", [a], np.swapaxes(factor, -1, -2), tolerance=tolerance, floor=1)
            b = rng(41).normal(size=(*batch, n, 3)).astype(d)
            wide = (f + 3 * n * np.eye(n)).astype(d)
            for lower, part in ((True, np.tril), (False, np.triu)):
                t = part(wide.astype("f8"))
                expect("triangular_solve", [wide, b], np.linalg.solve(t, b.astype("f8")), tolerance=tolerance, floor=0.1, lower=lower)
                expect("triangular_solve", [wide, b], np.linalg.solve(np.swapaxes(t, -1, -2), b.astype("f8")), tolerance=tolerance,
                       floor=0.1, lower=lower, transpose_a="TRANSPOSE")
    # Convolution as the sum over taps of shifted matrix products.
    x, k = rng(9).normal(size=(2, 7, 6, 3)), rng(10).normal(size=(3, 2, 3, 4))
    for stride, dilation in ((1, 1), (2, 1), (1, 2)):
        oh = (7 - (3 - 1) * dilation - 1) // stride + 1
        ow = (6 - (2 - 1) * dilation - 1) // stride + 1
        want = sum(x[:, i * dilation:i * dilation + stride * (oh - 1) + 1:stride,
                     j * dilation:j * dilation + stride * (ow - 1) + 1:stride] @ k[i, j] for i in range(3) for j in range(2))
        for d in ("f4", "f8"):
            expect("conv", [x.astype(d), k.astype(d)], want, tolerance=4e-6 if d == "f4" else 1e-14, floor=10, strides=[stride, stride],
                   dilation=[dilation, dilation])
    grouped = rng(11).normal(size=(3, 3, 1, 6))
    x = rng(12).normal(size=(1, 5, 5, 3))
    want = np.concatenate([sum(x[:, i:i + 3, j:j + 3, g:g + 1] @ grouped[i, j, :, 2 * g:2 * g + 2]
                               for i in range(3) for j in range(3)) for g in range(3)], -1)
    expect("conv", [x, grouped], want, tolerance=1e-12, groups=3)
    # A transposed one adds each pixel's window to the result: NumPy's own sum over pixels, by groups.
    x, k = rng(14).normal(size=(2, 4, 3, 6)), rng(15).normal(size=(3, 2, 3, 8))
    for stride, dilation, more, groups, pads in (((2, 2), (1, 1), (0, 0), 2, (0, 0, 0, 0)), ((1, 3), (2, 1), (1, 2), 2, (1, 0, 0, 1)),
                                                 ((3, 2), (1, 2), (2, 1), 2, (2, 1, -1, 3))):
        size = [(x.shape[1 + d] - 1) * stride[d] + dilation[d] * (k.shape[d] - 1) + 1 + more[d] for d in range(2)]
        want = np.zeros((2, *size, 8))
        for i, j, u, v, g in itertools.product(range(4), range(3), range(3), range(2), range(groups)):
            want[:, i * stride[0] + u * dilation[0], j * stride[1] + v * dilation[1], 4 * g:4 * g + 4] += x[:, i, j, 3 * g:3 * g + 3] @ k[u, v, :, 4 * g:4 * g + 4]
        grown = np.pad(want, ((0, 0), (0, 0), (max(0, -pads[2]), 0), (0, 0)))  # negative pads add zeros
        want = grown[:, pads[0]:size[0] - pads[1], max(0, pads[2]):grown.shape[2] - pads[3]]
        for d in ("f4", "f8"):
            expect("conv_transpose", [x.astype(d), k.astype(d)], want, tolerance=4e-6 if d == "f4" else 1e-14, floor=10, strides=list(stride),
                   dilation=list(dilation), output_padding=list(more), groups=groups, pads=list(pads))
    x = rng(13).normal(size=(2, 6, 4, 3))
    blocks = x.reshape(2, 3, 2, 2, 2, 3)
    expect("max_pool", [x], blocks.max((2, 4)), window=[2, 2])
    expect("avg_pool", [x], blocks.mean((2, 4)), window=[2, 2])


def networks():
    # StableHLO's batch normalisation: statistics over all axes but one.
    x, scale, offset, g = (rng(50 + i).normal(size=z) for i, z in enumerate(((4, 3, 5), (3,), (3,), (4, 3, 5))))
    over, back = (0, 2), (None, slice(None), None)
    mean, var, eps = x.mean(over), x.var(over), 2.0**-10
    normal = (x - mean[back]) / np.sqrt(var[back] + eps)
    expect("batch_norm_training", [x, scale, offset], [normal * scale[back] + offset[back], mean, var], tolerance=1e-12, floor=1,
           epsilon=eps, feature_index=1)
    n, shift = 20, (g * normal).sum(over)
    want = (scale / np.sqrt(var + eps))[back] / n * (n * g - g.sum(over)[back] - normal * shift[back])
    expect("batch_norm_grad", [x, scale, mean, var, g], [want, shift, g.sum(over)], tolerance=1e-12, floor=1, epsilon=eps, feature_index=1)
    x = rng(20).normal(size=(4, 7)) * 3
    soft = np.exp(x - x.max(-1, keepdims=True))
    soft /= soft.sum(-1, keepdims=True)
    for d in ("f4", "f8"):
        v = x.astype(d)
        expect("softmax", [v], soft, tolerance=None if d == "f8" else 1e-5)
        expect("log_softmax", [v], np.log(soft), tolerance=None if d == "f8" else 1e-5)
    expect("softmax", [np.array([[1000.0, 1000.0, -INF]])], np.array([[0.5, 0.5, 0.0]]))
    labels = np.array([0, 6, 3, 3])
    rows = -np.log(soft)[np.arange(4), labels]
    expect("cross_entropy", [x, labels], rows.mean(), tolerance=1e-12)
    expect("cross_entropy", [x, labels], rows, tolerance=1e-12, reduction="none")
    smooth = 0.9 * rows + 0.1 * -np.log(soft).mean(-1)
    expect("cross_entropy", [x, labels], smooth.sum(), tolerance=1e-12, reduction="sum", label_smoothing=0.1)
    y = rng(21).normal(size=(4, 7))
    expect("mse", [x, y], np.mean((x - y) ** 2), tolerance=1e-12)
    s, o = rng(22).normal(size=7), rng(23).normal(size=7)
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    expect("layer_norm", [x, s, o], normal * s + o, tolerance=1e-12)
    expect("rms_norm", [x, s], x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * s, tolerance=1e-12, epsilon=1e-6)
    batch = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) * s + o
    expect("batch_norm", [x, s, o], [batch, x.mean(0), x.var(0)], tolerance=1e-12)
    expect("batch_norm_inference", [x, s, o, o, s * s], (x - o) / np.sqrt(s * s + 1e-5) * s + o, tolerance=1e-12)
    expect("embedding", [x, np.array([[3, 0], [1, 1]])], x[[[3, 0], [1, 1]]])
    expect("gelu", [x], 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3))), tolerance=1e-12, form="tanh")
    expect("leaky_relu", [x], np.where(x > 0, x, 0.01 * x), tolerance=1e-12)
    expect("elu", [x], np.where(x > 0, x, np.expm1(x)), tolerance=1e-12)
    expect("relu6", [x], np.clip(x, 0, 6))
    expect("clip", [x], np.clip(x, -1, 2), low=-1.0, high=2.0)
    q, k, v = (rng(30 + i).normal(size=(2, 3, 4, 5)) for i in range(3))
    for causal in (False, True):
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(5)
        if causal:
            scores = np.where(np.tri(4, dtype=bool), scores, -INF)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        expect("scaled_dot_product_attention", [q, k, v], weights @ v, tolerance=1e-12, causal=causal)
    many, few, values = (rng(35 + i).normal(size=size) for i, size in enumerate([(2, 6, 4, 5), (2, 2, 7, 5), (2, 2, 7, 3)]))
    scores = many @ few.repeat(3, 1).swapaxes(-1, -2) / np.sqrt(5)
    for seen, told in ((4 * [7], {}), ((1, 2, 3, 4), {"causal": True}), ((4, 5, 6, 7), {"causal_alignment": "lower_right"})):
        weights = np.where(np.arange(7) < np.array(seen)[:, None], np.exp(scores), 0)
        weights /= weights.sum(-1, keepdims=True)
        expect("scaled_dot_product_attention", [many, few, values], weights @ values.repeat(3, 1), tolerance=1e-12, enable_gqa=True, **told)
    q2, k2, v2 = (a.astype("f2") for a in (q, k, v))
    scores = q2.astype("f8") @ k2.astype("f8").swapaxes(-1, -2) / np.sqrt(5)
    weights = np.exp(scores)
    want = weights / weights.sum(-1, keepdims=True) @ v2.astype("f8")
    expect("scaled_dot_product_attention", [q2, k2, v2], want, tolerance=1e-5, floor=0.1, dtype="f4")
    expect("scaled_dot_product_attention", [a.astype("f4") for a in (q2, k2, v2)], want, tolerance=1e-12, dtype="f8")
    expect("scaled_dot_product_attention", [a.astype("f4") for a in (q2, k2, v2)], want, tolerance=1e-3, floor=0.1, dtype="f2")
    mask = rng(34).random((4, 4)) < 0.7
    mask[:, 0] = True
    weights = np.where(mask, np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(5)), 0)
    expect("scaled_dot_product_attention", [q, k, v, mask], weights / weights.sum(-1, keepdims=True) @ v, tolerance=1e-12)


def structure():
    """StableHLO's general forms, by index arithmetic."""
    x = rng(40).normal(size=(3, 4, 5))
    for direction, f in {"eq": np.equal, "ne": np.not_equal, "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less}.items():
        a, b = (v.ravel() for v in np.meshgrid(EDGES, EDGES))
        expect("compare", [a, b], f(a, b), direction=direction)
        expect("compare", [limits("u8"), limits("u8")[::-1].copy()], f(limits("u8"), limits("u8")[::-1]), direction=direction)
    low, high = np.float64(-0.5), np.abs(x)
    expect("clamp", [low, x, np.float64(0.25)], np.minimum(np.maximum(x, low), 0.25))
    expect("clamp", [-high, 2 * x, high], np.minimum(np.maximum(2 * x, -high), high))
    expect("clamp", [np.int32(3), np.arange(9, dtype="i4"), np.int32(5)], np.clip(np.arange(9, dtype="i4"), 3, 5))
    expect("broadcast_in_dim", [x[:, 0]], np.broadcast_to(x[:, 0][None, :, None, :], (2, 3, 6, 5)),
           shape=[2, 3, 6, 5], broadcast_dimensions=[1, 3])
    expect("broadcast_in_dim", [x[:, :1, 0]], np.broadcast_to(x[:, :1, 0][:, None, :], (3, 2, 4)), shape=[3, 2, 4], broadcast_dimensions=[0, 2])
    expect("flatten", [x], x.reshape(60))
    expect("flatten", [x], x.reshape(3, 20), start_axis=1)
    expect("flatten", [x], x.reshape(12, 5), start_axis=0, end_axis=1)
    expect("stop_gradient", [x], x)
    for d in INTS:
        bits = 8 * np.dtype(d).itemsize
        expect("clz", [limits(d)], np.array([bits - (int(v) & (2 ** bits - 1)).bit_length() for v in limits(d)], d))
    for d, to in (("f4", "u4"), ("u4", "f4"), ("f8", "i8"), ("f2", "i2"), ("i1", "u1")):
        v = rng(41).integers(0, 120, 16, "u1").view(d)
        expect("bitcast_convert", [v], v.view(to), dtype=to)
    u = rng(42).normal(size=(2, 2, 2))
    for starts in ((0, 1, 2), (1, 2, 3), (-5, 9, 1)):  # held inside
        at = [min(max(s, 0), n - 2) for s, n in zip(starts, x.shape)]
        want = x.copy()
        want[at[0]:at[0] + 2, at[1]:at[1] + 2, at[2]:at[2] + 2] = u
        expect("dynamic_update_slice", [x, u, *map(np.int64, starts)], want)
    whole = rng(43).integers(-9, 9, (3, 4, 5)).astype("i4")
    for reducer, f in {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce}.items():
        cast = {"dtype": "i4"} if reducer in ("sum", "prod") else {}
        want = f(f(whole, axis=2, **cast), axis=0, **cast)
        expect("reduce", [whole], want, dimensions=[0, 2], reducer=reducer)
        if reducer not in ("and", "or"):
            expect("reduce", [x], f(f(x, axis=2), axis=0), dimensions=[0, 2], reducer=reducer)
        # Windows [2, 3] that step by [1, 2], padded by the reducer's neutral element.
        neutral = {"sum": 0, "prod": 1, "max": -INF, "min": INF}.get(reducer)
        if neutral is not None:
            padded = np.pad(x, ((0, 0), (1, 0), (2, 1)), constant_values=neutral)
            want = np.array([[[f(padded[i, j:j + 2, k:k + 3]) for k in range(0, 6, 2)] for j in range(4)] for i in range(3)])
            expect("reduce_window", [x], want, window_dimensions=[1, 2, 3], reducer=reducer, window_strides=[1, 1, 2], padding=[0, 0, 1, 0, 2, 1])
            want = np.array([[f(x[0, j:j + 3:2, k:k + 4:3]) for k in range(2)] for j in range(2)])[None]
            expect("reduce_window", [x[:1]], want, window_dimensions=[1, 2, 2], reducer=reducer, window_dilations=[1, 2, 3])
    wide = np.zeros((1, 7, 5))
    wide[:, ::2] = x[:1]  # elements two apart, zeros between
    expect("reduce_window", [x[:1]], np.array([[wide[0, j:j + 2].sum(0) for j in range(6)]]), window_dimensions=[1, 2, 1], reducer="sum",
           base_dilations=[1, 2, 1])
    source, want = rng(44).normal(size=(3, 3, 2)), np.zeros((3, 4, 5))
    for i in range(3):
        for j in range(3):
            for k in range(2):
                window = x[i, j:j + 2, 2 * k:2 * k + 3]
                a, b = np.unravel_index(np.argmax(window), window.shape)
                want[i, j + a, 2 * k + b] += source[i, j, k]
    expect("select_and_scatter", [x, source], want, window_dimensions=[1, 2, 3], window_strides=[1, 1, 2])
    y = rng(45).normal(size=(4, 5, 2))
    expect("dot_general", [x, y], np.einsum("abc,bcd->bad", x, y), tolerance=1e-13, lhs_batching_dimensions=[1], rhs_batching_dimensions=[0],
           lhs_contracting_dimensions=[2], rhs_contracting_dimensions=[1])
    # General dimension numbers: places [n, 2] of rows and columns, boxes of [1, 2, 3].
    places = np.array([[0, 1], [2, 0], [1, 9]])
    boxes = np.stack([x[r, 1:3, min(c, 2):min(c, 2) + 3] for r, c in places])
    lifted = np.insert(places, 1, 1, 1)
    expect("gather", [x, lifted], boxes, offset_dims=[1, 2], collapsed_slice_dims=[0], start_index_map=[0, 1, 2], index_vector_dim=1,
           slice_sizes=[1, 2, 3])
    for reducer, f in {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}.items():
        want = x.copy()
        updates = rng(46).normal(size=(3, 2, 3))
        for (r, c), update in zip(places, updates):
            if c + 3 <= 5:  # what would fall outside is left out
                want[r, 1:3, c:c + 3] = f(want[r, 1:3, c:c + 3], update)
        expect("scatter", [x, lifted, updates], want, tolerance=1e-14, update_window_dims=[1, 2], inserted_window_dims=[0],
               scatter_dims_to_operand_dims=[0, 1, 2], index_vector_dim=1, reducer=reducer)
    # Features first, the kernel turned around in one direction, the input spread out.
    v, k = rng(47).normal(size=(2, 3, 5, 6)), rng(48).normal(size=(3, 4, 2, 3))
    spread = np.zeros((2, 3, 9, 6))
    spread[:, :, ::2] = v
    spread = np.pad(spread, ((0, 0), (0, 0), (1, 0), (0, 2)))
    turned = k[:, :, ::-1]
    want = sum(np.einsum("nihw,io->nohw", spread[:, :, i:i + 9:3, 2 * j:2 * j + 4], turned[:, :, i, j]) for i in range(2) for j in range(3))
    expect("convolution", [v, k], want, tolerance=1e-13, window_strides=[3, 1], padding=[1, 0, 0, 2], lhs_dilation=[2, 1], rhs_dilation=[1, 2],
           input_dimensions=[0, 1, 2, 3], kernel_dimensions=[0, 1, 2, 3], output_dimensions=[0, 1, 2, 3], window_reversal=[1, 0])


# Operations that no definition judges, each with the reason. Closed: one that is judged after all fails the test.
EXCUSED = {}


def judged():
    """Every operation that a program can call is judged by a definition of its own: in this file, in the wide ranges of
    definitions_test.py, or by PyTorch's samples."""
    fixture = {call[0] for case in tape.load(os.path.join(HERE, "..", "conformance", "fixture.npz")) for call in case.tape.calls} - {"grad"}  # a transform
    anywhere = SEEN | definitions_test.JUDGED | fixture
    for op in sorted(set(weft.OPS) - anywhere - set(EXCUSED)):
        FAILURES.append(f"{op}: no definition judges it; write one here, or say in EXCUSED why none can")
    for op in sorted(set(EXCUSED) & anywhere):
        FAILURES.append(f"{op}: is judged; take it off EXCUSED")
    for op in sorted((anywhere | set(EXCUSED)) - set(weft.OPS)):
        FAILURES.append(f"{op}: is judged, but there is no such operation")
    composites = {name for name, op in weft.OPS.items() if op["kind"] != "primitive"}
    print(f"{len(weft.OPS)} operations: {len(SEEN)} judged here, {len(definitions_test.JUDGED)} over their whole range, {len(fixture)} by PyTorch; "
          f"{len(composites - SEEN - definitions_test.JUDGED)} of {len(composites)} composites by PyTorch alone")


def main():
    with np.errstate(all="ignore"):
        for part in (unary, binary, shapes, complex_numbers, order, cumulative, long_running, sizes, different, rearranged, axes, reductions, products, networks, structure, philox, distributions, categories, *numpy_formulas.PARTS, *numpy_places.PARTS, *numpy_images.PARTS, *numpy_linalg.PARTS, *numpy_products.PARTS, *numpy_networks.PARTS, *numpy_special.PARTS, *numpy_draws.PARTS, judged):
            part()
    # The comparison must be able to fail.
    before = len(FAILURES)
    expect("add", [np.float64(1), np.float64(1)], 2.0 + 1e-9)
    expect("add", [np.int32(1), np.int32(1)], np.int32(3))
    expect("neg", [np.float32(0)], np.float32(0), exact_sign=True)
    if len(FAILURES) != before + 3:
        FAILURES.append("the comparison itself is broken: wrong results passed")
    del FAILURES[before:before + 3]
    for failure in FAILURES[:40]:
        print(failure)
    print(f"{numpy_judge.RUNS} calls of {len(SEEN)} operations against NumPy {np.__version__}, {len(FAILURES)} differences")
    sys.exit(1 if FAILURES else 0)


main()
