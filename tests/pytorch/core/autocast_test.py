"""Autocast by pytorch/xla's lists."""

import unittest

from common import DEVICE
import torch


class Autocast(unittest.TestCase):
    def test_lists(self):
        x, w = torch.ones(4, 4, device=DEVICE), torch.ones(4, 4, device=DEVICE, requires_grad=True)
        with torch.autocast("xla", dtype=torch.bfloat16):
            product = x @ w
            self.assertEqual(product.dtype, torch.bfloat16)
            self.assertEqual(torch.nn.functional.linear(x, w).dtype, torch.bfloat16)
            self.assertEqual(torch.softmax(product, -1).dtype, torch.float32)
            self.assertEqual(torch.cat([x, product]).dtype, torch.float32)
            self.assertEqual((product + 1).dtype, torch.bfloat16)
            self.assertEqual((x.double() @ x.double()).dtype, torch.float64)
        self.assertEqual((x @ w).dtype, torch.float32)
        product.float().sum().backward()
        self.assertEqual(w.grad.dtype, torch.float32)
        self.assertEqual(w.grad.cpu().tolist(), [[4.0] * 4] * 4)

    def test_training(self):
        layer = torch.nn.Linear(8, 8).to(DEVICE)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("xla", dtype=torch.bfloat16):
                loss = torch.nn.functional.mse_loss(layer(torch.ones(4, 8, device=DEVICE)), torch.zeros(4, 8, device=DEVICE))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertEqual(loss.dtype, torch.float32)
        self.assertLess(losses[2], losses[0])


if __name__ == "__main__":
    unittest.main()
