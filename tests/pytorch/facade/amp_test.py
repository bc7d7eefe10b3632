"""autocast and GradScaler on the device, against torch's own on the CPU where it has the same."""
import unittest

import support  # noqa: F401
import torch
from torch_xla import amp

DEVICE = torch.device("xla", 0)


class Autocast(unittest.TestCase):

    def test_products_become_narrow_and_others_do_not(self):
        a, b = torch.rand(4, 4, device=DEVICE), torch.rand(4, 4, device=DEVICE)
        with amp.autocast(DEVICE):
            self.assertEqual((a @ b).dtype, torch.bfloat16)
            self.assertEqual((a + b).dtype, torch.float32)
            self.assertEqual(torch.softmax((a @ b), dim=-1).dtype, torch.float32)
        with amp.autocast("xla", dtype=torch.float16):
            self.assertEqual((a @ b).dtype, torch.float16)
        with amp.autocast(DEVICE, enabled=False):
            self.assertEqual((a @ b).dtype, torch.float32)
        self.assertEqual((a @ b).dtype, torch.float32)

    def test_values(self):
        a, b = torch.rand(16, 16), torch.rand(16, 16)
        with amp.autocast(DEVICE):
            got = a.to(DEVICE) @ b.to(DEVICE)
        expected = a.bfloat16().float() @ b.bfloat16().float()
        torch.testing.assert_close(got.float().cpu(), expected, rtol=1e-2, atol=1e-2)

    def test_gradients_have_the_parameters_type(self):
        model = torch.nn.Linear(4, 4).to(DEVICE)
        with amp.autocast(DEVICE):
            loss = model(torch.rand(2, 4, device=DEVICE)).float().sum()
        loss.backward()
        self.assertEqual(model.weight.grad.dtype, torch.float32)

    def test_other_devices_are_refused(self):
        with self.assertRaisesRegex(ValueError, r"'cpu' is not an XLA device; torch.autocast\('cpu'\) serves it"):
            amp.autocast("cpu")


class Scaler(unittest.TestCase):

    def _step(self, scaler, factor):
        weight = torch.nn.Parameter(torch.ones(2, device=DEVICE))
        optimizer = torch.optim.SGD([weight], lr=0.5)
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return weight.detach().cpu().tolist(), scaler.get_scale()

    def test_a_good_step_is_taken_and_the_scale_grows(self):
        self.assertEqual(self._step(amp.GradScaler(init_scale=8.0, growth_interval=1), 1.0), ([0.5, 0.5], 16.0))

    def test_an_overflow_is_skipped_and_the_scale_falls(self):
        for zero in (False, True):
            scaler = amp.GradScaler(init_scale=8.0, use_zero_grad=zero)
            self.assertEqual(self._step(scaler, float("inf")), ([1.0, 1.0], 4.0), zero)

    def test_without_effect_when_disabled(self):
        self.assertEqual(self._step(amp.GradScaler(enabled=False), 1.0), ([0.5, 0.5], 1.0))


if __name__ == "__main__":
    unittest.main()
