"""What the documents say of PyTorch/XLA's tensors and is otherwise here: strides are PyTorch's, and half() works.

The documents say that a tensor always looks contiguous. A program that was written for that must get the same numbers from
tensors that say what their strides are.
"""
import unittest

import support  # noqa: F401
import torch
from torch_xla.core import xla_model as xm

DEVICE = xm.xla_device()

# Other layouts of the same numbers: (how a dense host tensor becomes it, its inverse's name in the messages).
LAYOUTS = {
    "transposed": lambda dense: dense.transpose(-1, -2).contiguous().transpose(-1, -2),
    "every second": lambda dense: torch.stack((dense, dense + 100), -1).flatten(-2)[..., ::2],
    "with an offset": lambda dense: torch.cat((dense.new_zeros(1), dense.flatten()))[1:].view(dense.shape),
    "permuted": lambda dense: dense.permute(*range(dense.dim() - 1, -1, -1)).contiguous().permute(
        *range(dense.dim() - 1, -1, -1)),
    "a view of wider memory": lambda dense: torch.nn.functional.pad(dense, (2, 3))[..., 2:-3],
}
OPERATIONS = {
    "add": lambda x: x + 1, "exp": torch.exp, "sum": lambda x: x.sum(-1), "mean of the first": lambda x: x.mean(0),
    "max": lambda x: x.max(-1).values, "argmax": lambda x: x.argmax(-1), "sort": lambda x: x.sort(-1).values,
    "cumsum": lambda x: x.cumsum(-1), "softmax": lambda x: x.softmax(-1), "matmul": lambda x: x @ x.transpose(-1, -2),
    "reshape": lambda x: x.reshape(-1), "flatten": lambda x: torch.flatten(x), "cat": lambda x: torch.cat((x, x), 0),
    "stack": lambda x: torch.stack((x, x), 1), "index": lambda x: x[..., [0, 2, 1]], "mask": lambda x: x[x > 0.5],
    "gather": lambda x: x.gather(-1, torch.zeros_like(x, dtype=torch.int64)), "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(1, 0), "pad": lambda x: torch.nn.functional.pad(x, (1, 1)), "where": lambda x: torch.where(x > 0, x, -x),
    "clone": lambda x: x.clone(), "contiguous": lambda x: x.contiguous(), "to float16": lambda x: x.to(torch.float16),
    "topk": lambda x: x.topk(2, -1).values, "layer norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
}


def same_numbers(case, got, expected, message):
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5, msg=lambda text: f"{message}: {text}")


class Strides(unittest.TestCase):

    def _dense(self):
        return torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(3))

    def test_no_result_depends_on_them(self):
        dense = self._dense()
        for layout, make in LAYOUTS.items():
            host, ours = make(dense), make(dense.to(DEVICE))
            self.assertEqual(ours.stride(), host.stride(), layout)
            self.assertTrue(torch.equal(ours.cpu(), dense), layout)
            for name, operation in OPERATIONS.items():
                with self.subTest(layout, operation=name):
                    same_numbers(self, operation(ours), operation(dense), f"{name} of {layout}")

    def test_writing_does_not_depend_on_them(self):
        writes = {"add_": lambda x: x.add_(2), "copy_": lambda x: x.copy_(torch.arange(60.0, device=x.device).view(3, 4, 5)),
                  "fill of a part": lambda x: x[1].fill_(7), "mul_ of a column": lambda x: x[..., 2].mul_(3),
                  "masked_fill_": lambda x: x.masked_fill_(x > 0.5, -1), "index_add_": lambda x: x.index_add_(
                      0, torch.tensor([0, 2], device=x.device), torch.ones(2, 4, 5, device=x.device))}
        for layout, make in LAYOUTS.items():
            for name, write in writes.items():
                with self.subTest(layout, operation=name):
                    dense = self._dense()
                    ours = make(dense.to(DEVICE))
                    write(ours)
                    write(dense)
                    same_numbers(self, ours, dense, f"{name} to {layout}")

    def test_gradients_do_not_depend_on_them(self):
        for layout, make in LAYOUTS.items():
            gradients = []
            for device in ("cpu", DEVICE):
                leaf = self._dense().to(device).requires_grad_()
                (make(leaf) ** 2).cumsum(1).sum().backward()
                gradients.append(leaf.grad.cpu())
            same_numbers(self, gradients[1], gradients[0], layout)

    def test_programs_that_ask_are_answered_as_pytorch_answers(self):
        """`is_contiguous` and what follows from it, such as `view` being refused, are those of PyTorch's CPU."""
        dense = self._dense()
        for layout, make in LAYOUTS.items():
            self.assertEqual(make(dense.to(DEVICE)).is_contiguous(), make(dense).is_contiguous(), layout)
        with self.assertRaisesRegex(RuntimeError, "view size is not compatible"):
            dense.to(DEVICE).transpose(0, 1).view(-1)


class Half(unittest.TestCase):
    """The documents of 2019 say that half() is unsupported."""

    def test_tensors(self):
        host = torch.linspace(-3, 3, 24).reshape(4, 6)
        ours = host.to(DEVICE).half()
        self.assertEqual(ours.dtype, torch.float16)
        self.assertTrue(torch.equal(ours.cpu(), host.half()))
        for name, operation in (("add", lambda x: x + x), ("mul", lambda x: x * 0.5), ("exp", torch.exp),
                                ("matmul", lambda x: x @ x.t()), ("sum", lambda x: x.sum()), ("softmax", lambda x: x.softmax(1))):
            got, expected = operation(ours), operation(host.half())
            self.assertEqual(got.dtype, torch.float16, name)
            torch.testing.assert_close(got.cpu(), expected, rtol=2e-3, atol=2e-3, msg=name)

    def test_a_model_is_trained(self):
        losses = []
        for device in ("cpu", DEVICE):
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).half().to(device)
            data = torch.linspace(-1, 1, 30).reshape(5, 6).half().to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(5):
                optimizer.zero_grad()
                loss = ((model(data) - 1) ** 2).mean()
                loss.backward()
                optimizer.step()
                xm.mark_step()
            self.assertEqual({p.dtype for p in model.parameters()}, {torch.float16})
            losses.append(loss.item())
        self.assertLess(losses[1], 0.9)
        self.assertAlmostEqual(losses[0], losses[1], delta=5e-3)


if __name__ == "__main__":
    unittest.main()
