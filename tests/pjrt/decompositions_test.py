"""Decompositions on a plugin, which has none: the host computes them between two programs. The plugin is the fake one over the reference
interpreter."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "conformance")]
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))
import numpy as np  # noqa: E402
import weft  # noqa: E402

FAKE = os.environ["WEFT_PJRT_FAKE"]


class Decompositions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        weft.load()
        cls.ctx = weft.Context(platform="pjrt", plugin=FAKE)
        cls.cpu = weft.Context()

    def test_results_are_those_of_the_cpu(self):
        random = np.random.default_rng(1)
        a, b = random.normal(size=(2, 4, 4)), random.normal(size=(4, 3))
        for dtype in ("f4", "f8", "c8", "c16"):
            x, y = ((v + 1j * v[..., ::-1] if dtype[0] == "c" else v).astype(dtype) for v in (a, b))
            for op, inputs in (("lu", [x]), ("qr", [x]), ("svdvals", [x]), ("eigvalsh", [x]), ("solve", [x, y]), ("inv", [x]), ("det", [x]), ("slogdet", [x]),
                               ("pinv", [x]), ("eigvals", [x]), ("matrix_exp", [x]), ("geqrf", [x]), ("ldl", [x])):
                found, wanted = ([r.numpy() for r in ctx.apply(op, [ctx.tensor(v) for v in inputs], {})] for ctx in (self.ctx, self.cpu))
                for got, want in zip(found, wanted, strict=True):
                    self.assertLess(np.max(np.abs(got - want)), (2e-4 if dtype in ("f4", "c8") else 1e-11) * (1 + np.max(np.abs(want))), f"{op} {dtype}")

    def test_what_surrounds_them_is_the_plugins(self):
        a = np.random.default_rng(2).normal(size=(3, 3))
        for ctx in (self.ctx, self.cpu):
            x = ctx.tensor(a)
            x.require_grad()
            y = ctx.apply("mul", [x, x], {})[0]
            s = ctx.apply("svd", [y], {})[1]
            loss = ctx.apply("sum", [ctx.apply("mul", [s, s], {})[0]], {})[0]
            (g,) = ctx.grad(loss, [x])
            np.testing.assert_allclose(g.numpy(), 4 * a**3, rtol=1e-9)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
