"""Training steps compiled for TPUs by the real libtpu, on a machine that has none: what is handed over, and what comes back."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compiling  # noqa: E402


class Compiled(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        compiling.listener(cls.temporary.name)

    def one_program(self, name, topology="v5e:1x1", precision="highest", deadline=120):
        programs, end = compiling.step(name, self.temporary.name, deadline, topology, precision)
        self.assertEqual(1, len(programs), "two equal steps are one program")
        text, figures = programs[0]
        compiling.check_text(name, text, precision.upper())
        for figure in compiling.FIGURES:
            self.assertGreater(figures[figure], 0, figure)
        self.assertEqual([0, 0], end["losses"])
        return text, figures, end

    def test_mlp(self):
        _, figures, end = self.one_program("mlp")
        self.assertEqual(["tpu:0"], end["devices"])
        # 2 x 64 rows x 3 products of each weight but the first layer's, whose input wants no gradient.
        products = 2 * 64 * (2 * 784 * 512 + 3 * 512 * 256 + 3 * 256 * 10)
        self.assertLess(abs(figures["flops"] / products - 1), 0.02)

    def test_block_of_a_transformer_with_dropout(self):
        text, _, _ = self.one_program("block-small")
        self.assertIn("ui32", text)

    def test_what_cannot_be_compiled_says_so_and_the_deadline_ends_it(self):
        broken = os.path.join(self.temporary.name, "broken.mlir")
        with open(broken, "w", encoding="utf-8") as out:
            out.write("no program")
        whole = os.path.join(self.temporary.name, "whole.mlir")
        with open(whole, "w", encoding="utf-8") as out:
            out.write("module @m { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> } }")
        refused, taken = compiling.compile_texts([broken, whole], 60)
        self.assertIn("PJRT_Compile: ", refused["error"])
        self.assertNotIn("died", refused)
        self.assertIn("code_bytes", taken)
        late, = compiling.compile_texts([whole], 0.01)
        self.assertEqual("no answer within 0.01 s", late["error"])
        with self.assertRaisesRegex(AssertionError, "mlp for v6e:1x1: not compiled within 0.1 s"):
            self.one_program("mlp", "v6e:1x1", deadline=0.1)

    def test_the_check_of_a_text_can_fail(self):
        text, _, _ = self.one_program("mlp", "v5e:2x2", "high")
        for one, other in (("precision HIGH>", "precision DEFAULT>"), ("tf.aliasing_output = 0 : i32", "a = 0 : i32"),
                           ("tf.aliasing_output = 0 :", "tf.aliasing_output = 2 :")):
            self.assertIn(one, text)
            with self.assertRaises(AssertionError):
                compiling.check_text("mlp", text.replace(one, other, 1), "HIGH")


if __name__ == "__main__":
    compiling.enter(os.path.abspath(__file__))
    unittest.main(argv=sys.argv[:1], verbosity=2)
