"""The Python example trains through dlopen alone: a short epoch of the real images reaches a floor of accuracy."""
import importlib.util
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))


class Ctypes(unittest.TestCase):
    def test_the_example_learns(self):
        if not os.path.exists("/usr/share/datasets/fashion-mnist"):
            self.skipTest("dataset-fashion-mnist is not installed")
        path = os.path.join(os.environ["WEFT_SOURCE"], "examples", "python", "train_fashion_mnist.py")
        spec = importlib.util.spec_from_file_location("train_fashion_mnist", path)
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        sys.argv = [path, "--library", os.environ["WEFT_LIB"], "--limit", "40"]
        self.assertGreater(example.main(), 0.6)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
