"""experimental.custom_kernel.flash_attention against its formula in f64 on the CPU."""
import unittest

import support  # noqa: F401
import torch
from torch_xla.experimental import custom_kernel

DEVICE = torch.device("xla", 0)


def _formula(q, k, v, scale, seen=None, bias=None):
    scores = q.double() @ k.double().transpose(-1, -2) * scale + (0 if bias is None else bias.double())
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf"))
    return (scores.softmax(-1) @ v.double()).float()


class FlashAttention(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(2)
        self.q, self.k, self.v = (torch.randn(2, 3, 8, 4) for _ in range(3))

    def _check(self, expected, **options):
        there = {name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in options.items()}
        got = custom_kernel.flash_attention(self.q.to(DEVICE), self.k.to(DEVICE), self.v.to(DEVICE), **there)
        self.assertEqual(got.device, DEVICE)
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)

    def test_values(self):
        causal = torch.ones(8, 8, dtype=torch.bool).tril()
        bias = torch.randn(2, 3, 8, 8)
        segments = torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 1, 1]])
        same = (segments[:, None, :, None] == segments[:, None, None, :])
        self._check(_formula(self.q, self.k, self.v, 1.0))
        self._check(_formula(self.q, self.k, self.v, 0.5, causal), causal=True, sm_scale=0.5)
        self._check(_formula(self.q, self.k, self.v, 1.0, bias=bias), ab=bias)
        ids = {"q_segment_ids": segments, "kv_segment_ids": segments}
        self._check(_formula(self.q, self.k, self.v, 1.0, same & causal), causal=True, **ids)
        self._check(_formula(self.q, self.k, self.v, 2.0, same, bias), ab=bias, sm_scale=2.0, **ids)

    def test_gradient(self):
        grads = []
        for device in ("cpu", DEVICE):
            q = self.q.to(device).detach().clone().requires_grad_()
            if device == "cpu":
                ((q @ self.k.transpose(-1, -2)).softmax(-1) @ self.v).square().sum().backward()
            else:
                custom_kernel.flash_attention(q, self.k.to(device), self.v.to(device)).square().sum().backward()
            grads.append(q.grad.cpu())
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-4)

    def test_refusals(self):
        with self.assertRaisesRegex(NotImplementedError, "partition_spec and mesh belong to torch_xla.distributed.spmd"):
            custom_kernel.flash_attention(self.q, self.k, self.v, partition_spec=("data", None, None, None))
        with self.assertRaisesRegex(ValueError, "either both q_segment_ids and kv_segment_ids are given, or none"):
            custom_kernel.flash_attention(self.q, self.k, self.v, q_segment_ids=torch.zeros(2, 8))


if __name__ == "__main__":
    unittest.main()
