"""What stands before a document's block when it is run: data and models of ours, and checks that rows use afterwards.

This file's text is put in front of the block, so a block sees these names as a reader's own program would give them.
"""
import io
import os
import sys

import torch
import torch.nn as nn
import torch.optim as optim

_real_stdout = sys.stdout
_printed = io.StringIO()
sys.stdout = _printed

lr = 0.1
momentum = 0.5
num_epochs = 2


class MNIST(nn.Module):
    """A small network for images of 8 by 8 that starts from the same weights each time, and is kept for the checks."""

    made = []

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.conv = nn.Conv2d(1, 4, kernel_size=3)
            self.fc = nn.Linear(4 * 3 * 3, 10)
        MNIST.made.append(self)

    def forward(self, x):
        x = torch.relu(nn.functional.max_pool2d(self.conv(x), 2))
        return torch.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


def _batches():
    generator = torch.Generator().manual_seed(2)
    return [(torch.rand(16, 1, 8, 8, generator=generator), torch.randint(0, 10, (16,), generator=generator)) for _ in range(5)]


train_loader = _batches()


def assert_trained(model, epochs):
    """The parameters are those that PyTorch's CPU comes to by the same steps, and not those of the beginning."""
    expected, begin = MNIST().to("cpu"), MNIST().to("cpu").state_dict()
    optimizer = optim.SGD(expected.parameters(), lr=lr, momentum=momentum)
    for _ in range(epochs):
        for data, target in _batches():
            optimizer.zero_grad()
            nn.NLLLoss()(expected(data), target).backward()
            optimizer.step()
        optimizer = optim.SGD(expected.parameters(), lr=lr, momentum=momentum)
    for name, tensor in model.state_dict().items():
        assert tensor.device.type == "xla", tensor.device
        torch.testing.assert_close(tensor.cpu(), expected.state_dict()[name], rtol=1e-4, atol=1e-5)
        assert not torch.allclose(tensor.cpu(), begin[name], atol=1e-3), name


def shown(tensor):
    """What PyTorch prints for these values on the CPU, with the device's name and the gradient's function."""
    suffix = f", device='{tensor.device}'"
    if tensor.grad_fn is not None:
        suffix += f", grad_fn=<{type(tensor.grad_fn).__name__}>"
    return str(tensor.detach().cpu())[:-1] + suffix + ")"


def assert_printed(*parts):
    """The block printed these, apart from where a long line is broken."""
    got, expected = " ".join(_printed.getvalue().split()), " ".join(" ".join(map(str, parts)).split())
    assert got == expected, f"printed {got!r} and not {expected!r}"
