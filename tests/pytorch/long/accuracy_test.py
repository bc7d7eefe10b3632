"""The training scripts learn as much as PyTorch's own CPU does by the same program: `--num_cores=0` runs it there."""
import os
import re
import sys
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(_HERE, "..", "examples"), os.path.join(_HERE, "..", "facade")]
import scripts_test  # noqa: E402
import support  # noqa: E402

POINTS = 2.0  # of a hundred, as far as two runs with other rounding are apart


@unittest.skipUnless(os.path.isdir(scripts_test.DATA), f"{scripts_test.DATA} is not there")
class Accuracy(unittest.TestCase):

    def _reached(self, script, *arguments):
        text = support.check(self, scripts_test.run(script, *arguments))
        found = re.findall(r"(?:Mean|Max) Accuracy: ([\d.]+)%", text)
        print(script, *arguments, found[-1], flush=True)
        return float(found[-1])

    def test_mnist(self):
        arguments = ("--samples=20000", "--num_epochs=2", "--batch_size=64", "--lr=0.05", "--log_steps=100")
        ours = self._reached("test_train_mnist.py", *arguments)
        theirs = self._reached("test_train_mnist.py", *arguments, "--num_cores=0")
        processes = self._reached("test_train_mp_mnist.py", *arguments)
        self.assertGreater(theirs, 80)
        self.assertGreater(ours, theirs - POINTS)
        self.assertGreater(processes, theirs - POINTS)


if __name__ == "__main__":
    unittest.main()
