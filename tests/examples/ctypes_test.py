"""The Python example trains through dlopen alone: a short epoch of the real images reaches a floor of accuracy."""
import gzip
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))


PATH = os.path.join(os.environ["WEFT_SOURCE"], "examples", "python", "train_fashion_mnist.py")


def the_example():
    spec = importlib.util.spec_from_file_location("train_fashion_mnist", PATH)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


class Ctypes(unittest.TestCase):
    def test_the_example_learns(self):
        if not os.path.exists("/usr/share/datasets/fashion-mnist"):
            self.skipTest("dataset-fashion-mnist is not installed")
        sys.argv = [PATH, "--library", os.environ["WEFT_LIB"], "--limit", "40"]
        self.assertGreater(the_example().main(), 0.6)

    def test_enumerators_go_by_name(self):
        import numpy as np
        example = the_example()
        w = example.Weft(os.environ["WEFT_LIB"])
        x = w.tensor(np.array([3, 7, 5], np.float32))
        losses = {kind: w.op("mse", x, w.op("mul", x, w.scalar(0)), reduction=kind) for kind in ("mean", "sum")}
        self.assertAlmostEqual(83 / 3, losses["mean"].item(), 5)
        self.assertEqual(83, losses["sum"].item())
        with self.assertRaisesRegex(example.WeftError, "reduction is 'bogus'; there are mean, sum, none"):
            w.op("mse", x, x, reduction="bogus")

    def run_it(self, *options):
        done = subprocess.run([sys.executable, PATH, "--library", os.environ["WEFT_LIB"], *options], capture_output=True, text=True, timeout=120)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stderr.strip().splitlines()[-1] if done.stderr else done.stdout

    def test_what_is_wrong_is_said_in_a_line(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        missing = os.path.join(folder.name, "missing")
        for options, code, text in ((["--library", missing], 1, f"{missing}: cannot open shared object file"),
                                    (["--data", missing], 1, "the images come from Debian's package dataset-fashion-mnist"),
                                    (["--epochs", "0"], 2, "argument --epochs: 0 is less than 1"), (["--seed", "-1"], 2, "-1 is less than 0"),
                                    (["--limit", "few"], 2, "argument --limit: invalid"), (["--fast"], 2, "unrecognized arguments: --fast")):
            with self.subTest(options=options):
                rc, said = self.run_it(*options)
                self.assertEqual(code, rc, said)
                self.assertIn(text, said)

    def test_a_damaged_data_set_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "train-images-idx3-ubyte.gz")
            for data, text in ((b"junk", "the train half cannot be read"), (gzip.compress(b""), "the train half cannot be read"),
                               (gzip.compress(bytes((0, 0, 8, 1, 0, 0, 0, 1, 7))), "the train half")):
                for name in (path, path.replace("images-idx3", "labels-idx1")):
                    with open(name, "wb") as f:
                        f.write(data)
                rc, said = self.run_it("--data", folder)
                self.assertEqual(1, rc)
                self.assertIn(f"{folder}: {text}", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
