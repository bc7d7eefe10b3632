"""Complex values and gradients (complex_cases.py) beside PyTorch's, which complex_fixture.npz keeps, and beside JAX's, whose gradients
are the conjugates. JAX comes into a virtual environment of the build tree; without the registry the test is SKIPPED and says so."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "harness"), os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "conformance"), HERE]
import outcomes  # noqa: E402

outcomes.enter(__file__)
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import weft  # noqa: E402
from complex_cases import CASES  # noqa: E402

jax.config.update("jax_enable_x64", True)
CTX = None
# All of them in both precisions beside both judges take a minute.
ALL = bool(os.environ.get("WEFT_COMPLEX_ALL"))
# Relative to the largest element: rounding, and for the last digits of sums their order.
TOLERANCE = {"float32": 2e-5, "float64": 2e-13}


class Weft:
    """The names of complex_cases.py; what is not here is the operation of that name."""

    def __getattr__(self, op):
        return lambda *inputs, **attrs: CTX.apply(op, list(inputs), attrs)[0]

    def to_complex(self, x):
        return self.convert(x, dtype=f"complex<{x.dtype}>")

    def to_real(self, z):
        return self.convert(z, dtype=z.dtype.removeprefix("complex<").removesuffix(">"))

    def abs_as_complex(self, z):
        return self.to_complex(self.abs(z))

    def where(self, mask, a, b):
        return CTX.apply("where", [CTX.tensor(mask), a, b], {})[0]

    def transpose(self, z, order):
        return CTX.apply("transpose", [z], {"permutation": order})[0]

    def reshape(self, z, shape):
        return CTX.apply("reshape", [z], {"shape": shape})[0]

    def broadcast_to(self, z, shape):
        return CTX.apply("broadcast_to", [z], {"shape": shape})[0]

    def slice(self, z, low, high, step):
        return CTX.apply("slice", [z], {"start_indices": low, "limit_indices": high, "strides": step})[0]

    def reverse(self, z, axes):
        return CTX.apply("reverse", [z], {"dimensions": axes})[0]

    def concatenate(self, parts, axis):
        return CTX.apply("concatenate", parts, {"dimension": axis})[0]

    def stack(self, parts, axis):
        return CTX.apply("stack", parts, {"axis": axis})[0]

    def pad(self, z, low, high):
        fill = CTX.tensor(np.zeros((), weft.storage(z.dtype)))
        return CTX.apply("pad", [z, fill], {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": [0] * len(low)})[0]

    def roll(self, z, by, axis):
        return CTX.apply("roll", [z], {"shifts": [by], "dims": [axis]})[0]

    def tile(self, z, reps):
        return CTX.apply("tile", [z], {"reps": reps})[0]

    def take(self, z, at, axis):
        return CTX.apply("take", [z, CTX.tensor(at)], {"axis": axis})[0]

    def _scatter(self, z, at, u, reducer):
        return CTX.apply("scatter", [z, CTX.tensor(at[:, None]), u],
                         {"update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0],
                          "index_vector_dim": 1, "reducer": reducer})[0]

    def put(self, z, at, u):
        return self._scatter(z, at, u, "set")

    def put_add(self, z, at, u):
        return self._scatter(z, at, u, "sum")

    def dynamic_slice(self, z, at, size):
        return CTX.apply("dynamic_slice", [z, *(CTX.tensor(np.int32(a)) for a in at)], {"slice_sizes": size})[0]

    def dynamic_update_slice(self, z, u, at):
        return CTX.apply("dynamic_update_slice", [z, u, *(CTX.tensor(np.int32(a)) for a in at)], {})[0]

    def sum(self, z, axes):
        return CTX.apply("sum", [z], {"dims": axes})[0]

    def prod(self, z, axes):
        return CTX.apply("prod", [z], {"dims": axes})[0]

    def mean(self, z, axes):
        return CTX.apply("mean", [z], {"dims": axes})[0]

    def cumsum(self, z, axis):
        return CTX.apply("cumsum", [z], {"axis": axis})[0]

    def cumprod(self, z, axis):
        return CTX.apply("cumprod", [z], {"axis": axis})[0]

    def window_sum(self, z, size, stride):
        return CTX.apply("reduce_window", [z], {"window_dimensions": [size], "reducer": "sum", "window_strides": [stride],
                                                "base_dilations": [1], "window_dilations": [1], "padding": [0, 0]})[0]

    def convolution(self, x, w, stride, pad):
        return CTX.apply("convolution", [x, w], {"window_strides": [stride], "padding": [pad, pad], "lhs_dilation": [1], "rhs_dilation": [1],
                                                 "input_dimensions": [0, 1, 2], "kernel_dimensions": [1, 0, 2], "output_dimensions": [0, 1, 2]})[0]

    def fft(self, z, lengths):
        return CTX.apply("fft", [z], {"fft_type": "FFT", "fft_length": lengths})[0]

    def ifft(self, z, lengths):
        return CTX.apply("fft", [z], {"fft_type": "IFFT", "fft_length": lengths})[0]

    def rfft(self, x, lengths):
        return CTX.apply("fft", [x], {"fft_type": "RFFT", "fft_length": lengths})[0]

    def irfft(self, z, lengths):
        return CTX.apply("fft", [z], {"fft_type": "IRFFT", "fft_length": lengths})[0]


def jax_names():
    lax = jax.lax
    wide = lambda x: x.astype("c16" if x.dtype == np.float64 else "c8")
    axes = lambda f: lambda z, over: f(z, axis=tuple(over))
    m = {"add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "div": jnp.divide, "pow": jnp.power, "neg": jnp.negative, "sigmoid": jax.nn.sigmoid,
         "complex": lambda a, b: lax.complex(*jnp.broadcast_arrays(a, b)), "to_complex": wide, "to_real": jnp.real,
         "abs_as_complex": lambda z: wide(jnp.abs(z)), "reverse": jnp.flip, "take": lambda z, at, axis: jnp.take(z, at, axis=axis),
         "slice": lambda z, low, high, step: lax.slice(z, low, high, step), "pad": lambda z, low, high: jnp.pad(z, list(zip(low, high))),
         "put": lambda z, at, u: z.at[at].set(u), "put_add": lambda z, at, u: z.at[at].add(u),
         "dynamic_slice": lax.dynamic_slice, "dynamic_update_slice": lax.dynamic_update_slice, "rsqrt": lax.rsqrt,
         "cumsum": lambda z, axis: jnp.cumsum(z, axis=axis), "cumprod": lambda z, axis: jnp.cumprod(z, axis=axis),
         "sum": axes(jnp.sum), "prod": axes(jnp.prod), "mean": axes(jnp.mean),
         "window_sum": lambda z, size, stride: jnp.stack([jnp.sum(z[a:a + size]) for a in range(0, z.shape[0] - size + 1, stride)]),
         "convolution": lambda x, w, stride, pad: lax.conv_general_dilated(x, w, [stride], [(pad, pad)], dimension_numbers=("NCH", "OIH", "NCH"))}
    for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "tanh", "square", "abs", "sign", "real", "imag", "conj", "matmul",
                 "where", "transpose", "reshape", "broadcast_to", "concatenate", "stack", "roll", "tile", "tril", "diff"):
        m[name] = getattr(jnp, name)
    for name in ("fft", "ifft", "rfft", "irfft"):
        m[name] = lambda z, lengths, f=getattr(jnp.fft, name + "n"): f(z, s=lengths, axes=tuple(range(-len(lengths), 0)))
    return type("Jax", (), {name: staticmethod(f) for name, f in m.items()})


def grid(dtype, far):
    """Every pair of the parts that are special."""
    ends = np.finfo(dtype)
    parts = np.array([0.0, -0.0, 1, -1, 0.5, np.inf, -np.inf, np.nan, far, -far, 1 / far, -1 / far, ends.max, ends.smallest_subnormal, 3], ends.dtype)
    z = np.empty(len(parts)**2, dtype)
    z.real, z.imag = np.repeat(parts, len(parts)), np.tile(parts, len(parts))
    return z


def off(found, right):
    """"" where an array is right, else what is wrong."""
    if found.shape != right.shape or found.dtype != right.dtype:
        return f"{found.dtype}{list(found.shape)}, not {right.dtype}{list(right.shape)}"
    with np.errstate(all="ignore"):
        size = np.abs(right[np.isfinite(right)])
        near = np.abs(found - right) <= TOLERANCE[right.real.dtype.name] * (1 + (size.max() if size.size else 0))
    bad = ~(near | (found == right) | (np.isnan(found) & np.isnan(right)) | (np.isinf(found) & np.isinf(right)))
    return f"{found[bad][:3]}, not {right[bad][:3]}" if bad.any() else ""


class Complex(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        global CTX
        weft.load()
        CTX = weft.Context()
        cls.fixture = np.load(os.path.join(HERE, "complex_fixture.npz"))

    def ours(self, case, bits):
        """Inputs, value, cotangent, gradients."""
        arrays, draw = case.arrays(bits)
        inputs = [CTX.tensor(array) for array in arrays]
        for x in inputs:
            x.require_grad()
        y = case.function(Weft(), *inputs)
        cotangent = draw(weft.storage(y.dtype).str[1:], tuple(y.shape))
        slopes = CTX.grad(y, inputs, CTX.tensor(cotangent))
        return arrays, y.numpy(), cotangent, [slope.numpy() for slope in slopes]

    def judge(self, right_of, cases, every):
        faults, judged = [], 0
        for number, case in enumerate(cases):
            for bits in (64, 128):
                if not ALL and (bits == 64 or every > 3) and number % every:
                    continue
                judged += 1
                try:
                    arrays, value, cotangent, slopes = self.ours(case, bits)
                except weft.WeftError as error:
                    faults.append(f"{case.name} c{bits}: {error}")
                    continue
                right = right_of(case, bits, arrays, cotangent)
                for what, found, wanted in zip(["value", *(f"gradient {i}" for i in range(len(slopes)))], [value, *slopes], right, strict=True):
                    text = off(found, np.asarray(wanted))
                    if text:
                        faults.append(f"{case.name} c{bits} {what}: {text}")
        print(f"{judged} functions, {len(faults)} faults", *faults, sep="\n")
        self.assertEqual([], faults)

    def test_they_are_pytorchs(self):
        kept = self.fixture
        self.judge(lambda case, bits, arrays, _: [kept[f"{case.name}/{bits}"], *(kept[f"{case.name}/{bits}/{i}"] for i in range(len(arrays)))], CASES, 3)

    def test_gradients_are_the_conjugates_of_jaxs(self):
        m = jax_names()

        def right(case, _, arrays, cotangent):
            value, back = jax.vjp(lambda *xs: case.function(m, *xs), *arrays)
            return [value, *(np.conj(slope) for slope in back(np.conj(cotangent)))]

        self.judge(right, [case for case in CASES if not case.jax], 8)


    def test_special_values_are_numpys(self):
        """Infinities, NaN, zeros of either sign, the smallest and the largest numbers, in both parts: where C99 says what comes out, and
        NumPy does as it says. The sign of a zero counts for roots, logarithms and lengths, whose cuts it chooses the side of."""
        for z, far in ((grid("c8", 1e37), 1e37), (grid("c16", 1e300), 1e300)):
            finite = np.isfinite(z)
            moderate = finite & (np.abs(z.real) < far / 2) & (np.abs(z.imag) < far / 2)
            for name, f, among, signs in (("abs", np.abs, z == z, True), ("abs", np.abs, z != z, True), ("log", np.log, z == z, True),
                                          ("sqrt", np.sqrt, z == z, True), ("log", np.log, z != z, True), ("sqrt", np.sqrt, z != z, True),
                                          ("neg", np.negative, z == z, True), ("exp", np.exp, z == z, False), ("exp", np.exp, z != z, False),
                                          ("sin", np.sin, moderate, False), ("cos", np.cos, moderate, False), ("tan", np.tan, moderate, False),
                                          ("tanh", np.tanh, moderate, False),
                                          ("square", np.square, moderate, False)):
                x = z[among]
                with np.errstate(all="ignore"):
                    right = f(x)
                found = CTX.apply(name, [CTX.tensor(x)], {})[0].numpy()
                for part in ("real", "imag")[:2 if np.iscomplexobj(right) else 1]:
                    with np.errstate(all="ignore"):
                        self.same_part(name, x, getattr(found, part), getattr(right, part), np.abs(right), signs)

    def same_part(self, name, x, found, right, size, signs):
        near = np.abs(found - right) <= TOLERANCE[found.dtype.name] * size
        same = (found == right) | (np.isnan(found) & np.isnan(right)) | (np.isfinite(found) & np.isfinite(right) & near)
        if signs:
            same &= (np.signbit(found) == np.signbit(right)) | np.isnan(right) | (right != 0)
        self.assertEqual([], [(name, *each) for each in zip(x[~same], found[~same], right[~same])])

    def test_sizes_and_quotients_of_the_largest_and_smallest_numbers(self):
        """Where NumPy itself overflows on the way: known exactly, because all are powers of two times small numbers."""
        for d, large, small in (("c8", 2.0**126, 2.0**-126), ("c16", 2.0**1022, 2.0**-1022)):
            whole = np.array([3 + 4j, -3 - 4j, 1 + 1j, 1j, -2], "c16")
            for by, to in ((large / 8, large / 8), (small, small), (large / 8, 1), (small, 1), (1, small), (1, large / 8)):
                x, y = (whole * by).astype(d), (whole[::-1] * to).astype(d)
                with np.errstate(over="ignore"):
                    right = (whole / whole[::-1]) * (by / to)
                got = CTX.apply("div", [CTX.tensor(x), CTX.tensor(y)], {})[0].numpy().astype("c16")
                fits = np.abs(right) < 0.4 * float(np.finfo(d).max)
                error = np.abs(got[fits] - right[fits])
                self.assertTrue(np.all(error <= np.finfo(d).eps * 4 * np.abs(right)[fits] + 4 * float(np.finfo(d).smallest_subnormal)), (d, by, to, got, right))
                length = CTX.apply("abs", [CTX.tensor(x)], {})[0].numpy()
                np.testing.assert_allclose(length / by, np.abs(whole), rtol=4 * np.finfo(d).eps)
                unit = CTX.apply("sign", [CTX.tensor(x)], {})[0].numpy()
                np.testing.assert_allclose(unit, whole / np.abs(whole), rtol=8 * np.finfo(d).eps)


if __name__ == "__main__":
    unittest.main()
