"""python -m torch_xla.selftest: whether this installation works, in a minute or two. It ends with 0 where all is right.

Each check computes on the device and compares with PyTorch's CPU, or uses one part of the package from end to end.
"""
import copy
import os
import sys
import tempfile
import time
import traceback

import torch

import torch_xla
from torch_xla.core import xla_model as xm
from torch_xla.debug import metrics as met
from torch_xla.distributed import parallel_loader as pl
from torch_xla.utils import serialization as xser


def _close(got, expected, tolerance=1e-4):
    torch.testing.assert_close(got.cpu(), expected, rtol=tolerance, atol=tolerance)


def elementwise_and_types(device):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64):
        a, b = torch.arange(24).reshape(4, 6).to(dtype) - 9, torch.arange(6).to(dtype) + 1
        _close((a.to(device) * b.to(device) + 3).abs(), (a * b + 3).abs())
    flags = torch.tensor([True, False])
    _close(flags.to(device).logical_not(), flags.logical_not())


def products_and_reductions(device):
    a, b = torch.rand(33, 17), torch.rand(17, 9)
    x, y = a.to(device), b.to(device)
    _close(x @ y, a @ b)
    _close(x.sum(0), a.sum(0))
    _close(x.softmax(1), a.softmax(1))
    _close(x.max(1).values, a.max(1).values)


def views_and_writes_through_them(device):
    host = torch.arange(20.0).reshape(4, 5)
    there = host.to(device)
    for one in (host, there):
        one.t()[1].add_(100)
        one[::2, 1:3] = -1
    _close(there, host)
    _close(there.t().reshape(-1), host.t().reshape(-1))


def _network():
    # A bias before the normalisation would have a gradient that is rounding alone, and Adam would make steps of it.
    return torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, bias=False), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
                               torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.LayerNorm(36), torch.nn.Linear(36, 10),
                               torch.nn.LogSoftmax(1))


def training_step_for_step(device):
    torch.manual_seed(1)
    host = _network()
    there = copy.deepcopy(host).to(device)
    batches = [(torch.rand(8, 1, 8, 8), torch.randint(0, 10, (8,))) for _ in range(5)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in (host, there)]
    for (data, target), (data_there, target_there) in zip(batches, pl.MpDeviceLoader(batches, device), strict=True):
        for model, optimizer, x, y in ((host, optimizers[0], data, target), (there, optimizers[1], data_there, target_there)):
            optimizer.zero_grad()
            torch.nn.functional.nll_loss(model(x), y).backward()
            optimizer.step()
    for name, tensor in there.state_dict().items():
        _close(tensor, host.state_dict()[name], 1e-3)


def random_numbers(device):
    torch_xla.manual_seed(5)
    first = torch.randn(1000, device=device).cpu()
    torch_xla.manual_seed(5)
    assert torch.equal(torch.randn(1000, device=device).cpu(), first)
    assert abs(first.mean()) < 0.2 and 0.8 < first.std() < 1.2


def checkpoints(device):
    state = _network().to(device).state_dict()
    with tempfile.TemporaryDirectory() as folder:
        xser.save(state, os.path.join(folder, "streamed"))
        xm.save(state, os.path.join(folder, "whole"))
        for loaded in (xser.load(os.path.join(folder, "streamed")), torch.load(os.path.join(folder, "whole"))):
            assert list(loaded) == list(state)
            for name, tensor in state.items():
                assert torch.equal(loaded[name], tensor.cpu()), name


def errors_and_what_comes_after_them(device):
    x = torch.ones(3, device=device)
    for wrong in (lambda: x @ torch.ones(3), lambda: x + torch.ones(4, device=device), lambda: xm.xla_device(99)):
        try:
            wrong()
        except RuntimeError:
            continue
        raise AssertionError("an error was not raised")
    _close(x + 1, torch.full((3,), 2.0))


def report(device):
    (torch.ones(3, device=device) * 2).cpu()
    text = torch_xla._XLAC._xla_metrics_report()
    assert "Metric: " in text and "Counter: " in text, text


CHECKS = (elementwise_and_types, products_and_reductions, views_and_writes_through_them, training_step_for_step,
          random_numbers, checkpoints, errors_and_what_comes_after_them, report)


def main():
    print(f"torch_xla {torch_xla.__version__}, torch {torch.__version__}, {', '.join(xm.xla_real_devices())}")
    device = xm.xla_device()
    failed = 0
    for check in CHECKS:
        begin = time.monotonic()
        try:
            check(device)
            outcome = "ok"
        except Exception:  # The other checks are still worth running.
            failed += 1
            outcome = "FAILED\n" + traceback.format_exc()
        print(f"{check.__name__.replace('_', ' '):40} {time.monotonic() - begin:6.1f} s  {outcome}", flush=True)
    on_host = met.executed_fallback_ops()
    if on_host:
        print("computed on the host:", ", ".join(on_host))
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} are right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
