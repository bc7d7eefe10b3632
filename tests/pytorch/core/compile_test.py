"""torch.compile's front end, which walks over the attributes of torch's classes: the device's must not stop it."""

import unittest

from common import DEVICE
import torch


class Compile(unittest.TestCase):
    def test_eager_back_end(self):
        """Programs of the CPU, and of the device."""
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        x = torch.randn(5, 6)
        expected = model(x) + 2.5
        for device in ("cpu", DEVICE):
            with self.subTest(device):
                moved = torch.nn.Sequential(*model).to(device)
                compiled = torch.compile(lambda x: moved(x) + 2.5, backend="eager", fullgraph=True)
                torch.testing.assert_close(compiled(x.to(device)).cpu(), expected, rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
