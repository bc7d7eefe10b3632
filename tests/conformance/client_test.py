"""The Python client that the outside judges go through: nothing of it may hide or bend what the library says."""
import fractions
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))
sys.path.insert(0, HERE)
import numpy as np  # noqa: E402
import weft  # noqa: E402


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        weft.load()
        cls.ctx = weft.Context()

    def test_elements_of_every_dtype_come_back_bit_for_bit(self):
        for dtype in weft.DTYPES:
            raw = np.random.default_rng(1).integers(0, 2 if dtype == "i1" else 256, 6 * weft.storage(dtype).itemsize, "u1")
            raw = raw.view(weft.storage(dtype)).reshape(2, 3)
            tensor = self.ctx.tensor(raw, dtype)
            self.assertEqual((dtype, (2, 3)), (tensor.dtype, tensor.shape))
            self.assertEqual(raw.tobytes(), tensor.numpy().tobytes())
            if dtype != "bf16":
                self.assertEqual(dtype, self.ctx.tensor(raw).dtype)
        self.assertEqual((), self.ctx.tensor(np.float32(1)).shape)
        self.assertEqual((0, 3), self.ctx.tensor(np.zeros((0, 3))).numpy().shape)

    def test_operations_attributes_and_gradients(self):
        ctx = self.ctx
        self.assertEqual(set(weft.OPS), {name for name in weft.OPS if callable(getattr(weft.Context, name))})
        x = ctx.tensor(np.float32([1, 2, 3])).require_grad()
        y = ctx.sum(ctx.square(x))
        self.assertEqual([2, 4, 6], ctx.grad(y, [x])[0].numpy().tolist())
        self.assertEqual([6, 12, 18], ctx.grad(y, [x], ctx.tensor(np.float32(3)))[0].numpy().tolist())
        self.assertEqual([[1, 2, 3, 1, 2, 3]], ctx.concatenate([ctx.reshape(x, shape=[1, 3])] * 2, dimension=1).numpy().tolist())
        self.assertEqual("f64", ctx.convert(x, dtype="f64").dtype)
        self.assertEqual(3, len(ctx.batch_norm(ctx.reshape(x, shape=[3, 1]), ctx.full(shape=[1], value=1.0), ctx.full(shape=[1], value=0.0))))
        self.assertEqual([2, 2, 3], ctx.clip(x, low=2.0).numpy().tolist())
        ones = ctx.tensor(np.ones((1, 3, 3, 1), "f4"))
        self.assertEqual((1, 3, 3, 1), ctx.conv(ones, ctx.tensor(np.ones((3, 3, 1, 1), "f4")), padding="same").shape)
        ctx.seed(3)
        self.assertEqual((3, 0, 0), ctx.random_state())
        ctx.sync()

    def test_errors_have_their_code_and_text(self):
        x, y = self.ctx.tensor(np.ones(2)), self.ctx.tensor(np.ones(3))
        for call, code, text in ((lambda: self.ctx.add(x, y), "INVALID_ARGUMENT", "do not broadcast"),
                                 (lambda: self.ctx.softmax(x, axs=1), "INVALID_ARGUMENT", "there is no attribute 'axs'"),
                                 (lambda: self.ctx.apply("nonsense", [x], {}), "NOT_FOUND", "nonsense"),
                                 (lambda: self.ctx.grad(x, [y]), "FAILED_PRECONDITION", "")):
            with self.assertRaises(weft.WeftError) as raised:
                call()
            self.assertEqual(code, raised.exception.code, raised.exception.message)
            self.assertIn(text, raised.exception.message)

    def test_encoding_rounds_once_to_nearest_even(self):
        rng = np.random.default_rng(2)
        for dtype, bits, least, top in (("f16", 11, -14, 15), ("bf16", 8, -126, 127), ("f32", 24, -126, 127)):
            x = rng.normal(size=3000) * 2.0 ** rng.integers(least - bits - 2, top + 2, 3000)
            tie = 1 + 2.0 ** -bits  # and what a first rounding to f32 would take for one
            x[:6] = tie, tie + 2.0 ** -40, tie - 2.0 ** -40, -tie - 2.0 ** -40, 2.0 ** top * (2 - 2.0 ** -bits), 2.0 ** (least - bits)
            got = weft.decode(dtype, weft.encode(dtype, x))
            for value, rounded in zip(x, got):
                value = fractions.Fraction(float(value))
                e = max(abs(value).numerator.bit_length() - abs(value).denominator.bit_length(), least - 1)
                e += fractions.Fraction(2) ** (e + 1) <= abs(value)
                e -= fractions.Fraction(2) ** e > abs(value)
                step = fractions.Fraction(2) ** (max(e, least) - bits + 1)
                want = float(round(value / step) * step)  # Fraction rounds half to even
                if abs(want) >= 2.0 ** (top + 1):
                    want = np.copysign(np.inf, want)
                self.assertEqual(want, rounded, f"{dtype} {float(value)!r}")
        self.assertTrue(np.isnan(weft.decode("bf16", weft.encode("bf16", [np.nan]))[0]))
        for dtype, x, unit in (("f16", 1.5, 2.0 ** -10), ("bf16", 2.0, 2.0 ** -6), ("f32", 0.0, 2.0 ** -149), ("f64", 1e308, 2.0 ** 971),
                               ("f16", np.inf, 2.0 ** 5)):
            self.assertEqual(unit, float(weft.ulp(dtype, np.array(x))))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
