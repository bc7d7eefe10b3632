"""Complex numbers beside tensors, as operands and as factors."""

import unittest

from common import DEVICE, core, host_operations
import torch

CASES = {
    "add": lambda x: x + (1 + 2j), "add reversed": lambda x: (1 + 2j) + x, "mul": lambda x: x * 2j, "div": lambda x: x / 2j,
    "pow": lambda x: torch.pow(2j, x), "power": lambda x: x**2j, "alpha": lambda x: torch.add(x, x, alpha=2j),
    "eq": lambda x: x == 1j, "ne": lambda x: x != 1 + 0j, "addcmul": lambda x: torch.addcmul(x, x, x, value=1j),
    "product": lambda x: torch.addmm(x[:1, None], x[:1, None], x[:1, None], alpha=2j, beta=3j),
    "fill": lambda x: x.clone().fill_(1j), "full": lambda x: torch.full((2,), 1j, dtype=x.dtype, device=x.device),
    "in place": lambda x: x.clone().add_(1j), "no dimensions": lambda x: x + torch.tensor(1j),
    "where": lambda x: torch.where(x == 1, x, 1j), "less": lambda x: x < 1j,
}  # fmt: skip


class ComplexNumbers(unittest.TestCase):
    def test_as_torch(self):
        core.clear_counters()
        for dtype in (torch.float32, torch.float64, torch.int64, torch.complex64, torch.complex128):
            host = torch.arange(1, 4).to(dtype)
            for name, function in CASES.items():
                with self.subTest(name, dtype=dtype):
                    try:
                        expected = function(host)
                    except (RuntimeError, NotImplementedError):
                        with self.assertRaises((RuntimeError, NotImplementedError)):
                            function(host.to(DEVICE))
                        continue
                    torch.testing.assert_close(function(host.to(DEVICE)).cpu(), expected, rtol=2e-6, atol=1e-6)
        self.assertEqual(host_operations(), [])

    def test_narrow_ones_are_refused(self):
        x = torch.ones(2, device=DEVICE, dtype=torch.float16)
        for function in (lambda: x + 1j, lambda: x * 1j, lambda: x == 1j):
            with self.assertRaisesRegex((RuntimeError, NotImplementedError), "lacks the common dtype of the operands"):
                function()


if __name__ == "__main__":
    unittest.main()
