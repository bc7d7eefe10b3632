"""A network that PyTorch wrote, as safetensors and as its own file, goes on in examples/python/fine_tuning.py: the same numbers, then
another question."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "facade"))
import numpy  # noqa: E402
import support  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

EXAMPLES = os.path.join(support.ROOT, "examples", "python")
BUILD = os.environ.get("WEFT_BUILD") or os.path.join(support.ROOT, "build", "release")
DATA = "/usr/share/datasets/fashion-mnist"
OURS = """
import sys, fine_tuning, libweft as wf
model = fine_tuning.from_file(sys.argv[1], 1)
model.eval()
x = wf.transpose(wf.load(sys.argv[2])["x"], (0, 2, 3, 1))
y = model.norm(model.conv(x)).relu()
for block in model.blocks:
    y = block(y)
wf.save(sys.argv[3], {"y": y.mean(axis=(1, 2))})
"""


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.stride, self.more = stride, outputs - inputs

    def forward(self, x):
        y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        x = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
        return (x + y).relu()


class ResNet(nn.Module):
    """ResNet-8, as examples/python/resnet.py has it."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.blocks = nn.ModuleList([Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)])
        self.head = nn.Linear(64, 10)

    def features(self, x):
        x = self.norm(self.conv(x)).relu()
        for block in self.blocks:
            x = block(x)
        return x.mean((2, 3))


class FineTuning(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(work.cleanup)
        cls.work = work.name
        torch.manual_seed(3)
        cls.model = ResNet()
        with torch.no_grad():
            for _ in range(3):  # running statistics of its own
                cls.model.features(torch.randn(8, 1, 32, 32) * 2 + 1)
        cls.model.eval()

    def run_it(self, *command):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.join(BUILD, "generated", "bindings", "python"), EXAMPLES]),
               "LIBWEFT_PATH": os.environ.get("WEFT_LIB") or os.path.join(BUILD, "lib")}
        done = subprocess.run([sys.executable, *command], cwd=self.work, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=300, check=False)
        self.assertEqual(0, done.returncode, done.stderr[-3000:])
        return done.stdout

    def files(self):
        torch.save(self.model.state_dict(), os.path.join(self.work, "model.pt"))
        yield "model.pt"
        try:
            from safetensors.torch import save_file
        except ImportError:
            return
        save_file(self.model.state_dict(), os.path.join(self.work, "model.safetensors"))
        yield "model.safetensors"

    def test_its_features_are_pytorchs_and_it_learns_another_question(self):
        x = torch.randn(4, 1, 32, 32)
        torch.save({"x": x}, os.path.join(self.work, "x.pt"))
        with torch.no_grad():
            wanted = self.model.features(x).numpy()
        seen = []
        for file in self.files():
            self.run_it("-c", OURS, file, "x.pt", "y.npz")
            found = numpy.load(os.path.join(self.work, "y.npz"))["y"]
            numpy.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
            seen.append(file)
            if os.path.isdir(DATA):
                out = self.run_it(os.path.join(EXAMPLES, "fine_tuning.py"), "--file", file, "--blocks", "1", "--steps", "8", "--images", "200")
                first, _, last = map(float, re.search(r"loss (\S+) to (\S+) to (\S+)", out).groups())
                self.assertLess(last, first)
        self.assertEqual(["model.pt", "model.safetensors"][: len(seen)], seen)


if __name__ == "__main__":
    unittest.main()
