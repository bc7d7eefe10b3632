"""Shapes, types, values and indices that Hypothesis draws, beside NumPy."""

import os
import unittest

import support

try:
    import hypothesis  # noqa: F401
except ImportError:
    if "WEFT_BUILD" not in os.environ:
        raise unittest.SkipTest("Hypothesis is not installed") from None
    from support_env import enter_checkers

    enter_checkers(os.path.abspath(__file__))

import numpy as np  # noqa: E402
from hypothesis import given, settings, strategies as st  # noqa: E402
from hypothesis.extra import numpy as hnp  # noqa: E402

import libweft as wf  # noqa: E402

KINDS = ("f32", "f64", "i8", "i32", "i64", "u8", "bool")
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "lt": np.less,
    "eq": np.equal,
}
UNARY = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "square": np.square,
    "floor": np.floor,
    "exp": np.exp,
    "sin": np.sin,
    "sqrt": np.sqrt,
}
REDUCTIONS = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}
COMPLEX = st.complex_numbers(max_magnitude=20, allow_nan=False, allow_infinity=False)
COMPLEX_NAMES = ("acos", "acosh", "asinh", "atanh", "cosh", "expm1", "sinh", "tanh")
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def arrays(kinds, shape):
    def of(kind):
        dtype = wf.dtype(kind).numpy
        elements = (
            st.floats(-100, 100, width=32)
            if kind in ("f32", "f64")
            else None
            if kind == "bool"
            else st.integers(0 if kind == "u8" else -9, 9)
        )
        return hnp.arrays(dtype, shape, elements=elements)

    return st.sampled_from(kinds).flatmap(of)


@st.composite
def pairs(draw):
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4)).input_shapes
    kind = draw(st.sampled_from(KINDS[:-1]))
    return draw(arrays((kind,), shapes[0])), draw(arrays((kind,), shapes[1]))


class Properties(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.own = wf.Context(platform="reference")
        cls.own.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.own.__exit__()

    @SETTINGS
    @given(pairs(), st.sampled_from(sorted(BINARY)))
    def test_two_operands(self, operands, name):
        a, b = operands
        with np.errstate(all="ignore"):
            wanted = BINARY[name](a, b)
        mine = getattr(wf, name)(wf.tensor(a), wf.tensor(b)).numpy()
        self.assertEqual((wanted.shape, wanted.dtype), (mine.shape, mine.dtype))
        np.testing.assert_array_equal(wanted, mine)

    @SETTINGS
    @given(arrays(("f32", "f64"), hnp.array_shapes(min_dims=0, min_side=0, max_side=5)), st.sampled_from(sorted(UNARY)))
    def test_one_operand(self, a, name):
        with np.errstate(all="ignore"):
            wanted = UNARY[name](a)
        np.testing.assert_allclose(
            getattr(wf.tensor(a), name)().numpy(), wanted, rtol=4e-6 if a.dtype == np.float32 else 1e-13
        )

    @SETTINGS
    @given(hnp.arrays(np.complex128, 4, elements=COMPLEX), st.sampled_from(COMPLEX_NAMES))
    def test_complex_functions_of_the_array_api(self, a, name):
        from libweft import array_api

        with np.errstate(all="ignore"):
            wanted = getattr(np, {"acos": "arccos"}.get(name, name.replace("a", "arc", 1) if name[0] == "a" else name))(a)
        np.testing.assert_allclose(getattr(array_api, name)(wf.tensor(a)).numpy(), wanted, rtol=1e-11, atol=1e-11)

    def test_expm1_of_what_has_no_angle_is_no_number(self):
        from libweft import array_api

        for real in (-1000.0, -1.0, 0.0, 1.0, 1000.0):
            for angle in (np.nan, np.inf, -np.inf):
                made = array_api.expm1(wf.tensor(complex(real, angle), "c128")).item()
                self.assertTrue(np.isnan(made.real) and np.isnan(made.imag), (real, angle, made))

    @SETTINGS
    @given(arrays(("f64", "i32"), hnp.array_shapes(max_dims=3, max_side=4)), st.sampled_from(sorted(REDUCTIONS)), st.data())
    def test_reductions(self, a, name, data):
        axes = data.draw(st.one_of(st.none(), hnp.valid_tuple_axes(a.ndim)))
        keep = data.draw(st.booleans())
        with np.errstate(all="ignore"):
            wanted = (
                REDUCTIONS[name](a, axis=axes, keepdims=keep, dtype=a.dtype)
                if name in ("sum", "prod")
                else REDUCTIONS[name](a, axis=axes, keepdims=keep)
            )
        mine = getattr(wf.tensor(a), name)(axis=axes, keepdims=keep)
        self.assertEqual(wanted.shape, mine.shape)
        np.testing.assert_allclose(mine.numpy(), wanted, rtol=1e-12, atol=1e-9)

    @SETTINGS
    @given(st.data())
    def test_indexing_and_assignment(self, data):
        a = data.draw(arrays(("f64", "i32"), hnp.array_shapes(max_dims=3, max_side=5)))
        key = data.draw(
            st.one_of(hnp.basic_indices(a.shape, allow_newaxis=True), hnp.integer_array_indices(a.shape, dtype=np.int64))
        )
        x = wf.tensor(a)
        wanted = a[key]
        mine = x[key]
        self.assertEqual(np.shape(wanted), mine.shape)
        np.testing.assert_array_equal(wanted, mine.numpy())
        a[key] = 3
        x[key] = 3
        np.testing.assert_array_equal(a, x.numpy())

    @SETTINGS
    @given(arrays(KINDS, hnp.array_shapes(min_dims=0, min_side=0, max_side=4)), st.sampled_from(KINDS))
    def test_types_and_lists(self, a, kind):
        x = wf.tensor(a)
        self.assertEqual(a.tolist(), x.tolist())
        np.testing.assert_array_equal(wf.tensor(a.tolist(), x.dtype).numpy(), a.reshape(np.shape(a.tolist())))
        if a.dtype.kind == "f" and kind not in ("f32", "f64", "bool"):
            a = np.trunc(np.clip(a, 0, 100))
            x = wf.tensor(a)
        np.testing.assert_array_equal(x.astype(kind).numpy(), a.astype(wf.dtype(kind).numpy))


class FunctionsOfC(unittest.TestCase):
    """custom_op of a function that ctypes or cffi has, of its address, and of a callback of each."""

    def value(self, function, signature="double(double, double)"):
        return wf.custom_op("of_c", signature, function=function)(wf.tensor(3.0, "f64"), wf.tensor(4.0, "f64")).item()

    def test_of_ctypes(self):
        import ctypes

        kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)
        hypot = kind(("hypot", ctypes.CDLL("libm.so.6")))
        for function, wanted in ((hypot, 5.0), (ctypes.cast(hypot, ctypes.c_void_p).value, 5.0), (kind(lambda a, b: a - b), -1.0)):
            with wf.Context(platform="reference"):
                self.assertEqual(wanted, self.value(function))

    def test_of_cffi(self):
        try:
            import cffi
        except ImportError:
            self.skipTest("cffi is not installed")
        ffi = cffi.FFI()
        ffi.cdef("double hypot(double, double);")
        for function, wanted in (
            (ffi.dlopen("libm.so.6").hypot, 5.0),
            (ffi.callback("double(double, double)", lambda a, b: a * b), 12.0),
        ):
            with wf.Context(platform="reference"):
                self.assertEqual(wanted, self.value(function))
        with self.assertRaisesRegex(TypeError, "of cffi is no function pointer"):
            self.value(ffi.new("struct { int a; } *")[0])

    def test_what_is_no_function_is_refused(self):
        for kind, text, call in (
            (TypeError, "a function of C needs a signature", lambda: wf.custom_op("of_c", function=4096)),
            (ValueError, "-1 is no address of a function", lambda: self.value(-1)),
            (TypeError, "a function of ctypes or cffi, or operands and results", lambda: self.value("hypot")),
        ):
            with self.assertRaisesRegex(kind, text) as caught:
                call()
            self.assertIsInstance(caught.exception, wf.Error)


if __name__ == "__main__":
    unittest.main()
