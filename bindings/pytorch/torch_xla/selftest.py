"""python -m torch_xla.selftest: whether this installation works, in a minute or two.

Each check computes on the device and compares with PyTorch's CPU, or uses one part of the package from end to end. It
ends with 0 where all is right, with 1 where something is not, and with 2 where the command line is wrong.
"""
import argparse
import json
import copy
import os
import sys
import tempfile
import time
import traceback

import torch

import torch_xla
from torch_xla import amp
from torch_xla.core import xla_model as xm
from torch_xla.debug import metrics as met
from torch_xla.amp import syncfree
from torch_xla.distributed import parallel_loader as pl
from torch_xla.distributed import xla_multiprocessing as xmp
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


def sorting_indexing_and_convolutions(device):
    a, index = torch.rand(6, 5), torch.tensor([4, 0, 4])
    image, kernel = torch.rand(2, 3, 9, 9), torch.rand(4, 3, 3, 3)
    there = [tensor.to(device) for tensor in (a, index, image, kernel)]
    functional = torch.nn.functional
    for check in (lambda a, index, image, kernel: a.sort(1).values, lambda a, index, image, kernel: a.topk(2).indices,
                  lambda a, index, image, kernel: a[index], lambda a, index, image, kernel: a.cumsum(0),
                  lambda a, index, image, kernel: functional.embedding(index, a),
                  lambda a, index, image, kernel: torch.where(a > 0.5, a, -a),
                  lambda a, index, image, kernel: functional.conv2d(image, kernel, stride=2, padding=1),
                  lambda a, index, image, kernel: functional.max_pool2d(image, 3, 2),
                  lambda a, index, image, kernel: functional.interpolate(image, scale_factor=2)):
        _close(check(*there), check(a, index, image, kernel))


def views_and_writes_through_them(device):
    host = torch.arange(60.0).reshape(3, 4, 5)
    there = host.to(device)
    views = (lambda x: x.transpose(0, 2), lambda x: x[1], lambda x: x[:, ::2], lambda x: x.diagonal(dim1=0, dim2=1),
             lambda x: x.permute(2, 0, 1)[1:], lambda x: x.view(-1)[3:40:3], lambda x: x.unfold(2, 2, 3),
             lambda x: x.split(2, 1)[1], lambda x: x.unsqueeze(1).squeeze(), lambda x: x.as_strided((3, 3), (7, 2), 1))
    for number, view in enumerate(views):
        for whole in (host, there):
            view(whole).mul_(2).sub_(number)
        _close(there, host, 0)
        _close(view(there).reshape(-1), view(host).reshape(-1), 0)


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


def a_transformer_and_an_lstm(device):
    torch.manual_seed(2)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    for host in (layer, torch.nn.LSTM(16, 8, batch_first=True)):
        there, x = copy.deepcopy(host).to(device), torch.randn(2, 5, 16)
        for model, inputs in ((host, x), (there, x.to(device))):
            out = model(inputs)
            (out[0] if isinstance(out, tuple) else out).square().mean().backward()
        for parameter, other in zip(there.parameters(), host.parameters(), strict=True):
            _close(parameter.grad, other.grad, 1e-3)


def mixed_precision(device):
    weight = torch.nn.Parameter(torch.ones(8, 8, device=device))
    optimizer, scaler = syncfree.SGD([weight], lr=0.5), amp.GradScaler(init_scale=4.0)
    for factor, expected in ((1.0, 0.5), (float("inf"), 0.5)):  # The second step overflows, and is not taken.
        optimizer.zero_grad()
        with amp.autocast(device):
            product = torch.eye(8, device=device) @ weight
        assert product.dtype == torch.bfloat16
        scaler.scale((product.float() * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        _close(weight.detach(), torch.full((8, 8), expected))


class _Squares(torch.utils.data.Dataset):

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.tensor(float(index)), index * index


def data_loaders(device):
    for workers in (0, 2):
        loader = torch.utils.data.DataLoader(_Squares(), batch_size=3, num_workers=workers)
        for wrapped in (pl.MpDeviceLoader(loader, device), pl.ParallelLoader(loader, [device]).per_device_loader(device)):
            seen = [(x.device.type, x.cpu().tolist(), y.cpu().tolist()) for x, y in wrapped]
            assert seen == [("xla", [float(i) for i in part], [i * i for i in part]) for part in
                            (range(0, 3), range(3, 6), range(6, 9), range(9, 12))], seen


def spawn_and_collectives(device):
    ran = []

    def body(index, text):
        total = xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=xm.xla_device()))
        xm.rendezvous("selftest")
        ran.append((index, text, total.cpu().tolist()))

    xmp.spawn(body, args=("x",), nprocs=1)
    torch_xla.launch(body, args=("y",), debug_single_process=True)
    assert ran == [(0, "x", [1.0, 1.0]), (0, "y", [1.0, 1.0])], ran


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


CHECKS = (elementwise_and_types, products_and_reductions, sorting_indexing_and_convolutions,
          views_and_writes_through_them, training_step_for_step, a_transformer_and_an_lstm, mixed_precision, random_numbers,
          data_loaders, spawn_and_collectives, checkpoints, errors_and_what_comes_after_them, report)


def _run(check, device):
    """What a check did: its name, seconds, and the error where there is one."""
    begin = time.monotonic()
    try:
        check(device)
        error = None
    except Exception:  # The other checks are still worth running.
        error = traceback.format_exc()
    seconds = round(time.monotonic() - begin, 3)
    return {"name": check.__name__.replace("_", " "), "seconds": seconds, "ok": error is None, "error": error}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m torch_xla.selftest", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the result as JSON; progress goes to the error output")
    parser.add_argument("--list", action="store_true", help="only the names of the checks")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(check.__name__.replace("_", " ") for check in CHECKS))
        return 0
    progress = sys.stderr if options.json else sys.stdout
    about = {"torch_xla": torch_xla.__version__, "torch": torch.__version__, "devices": xm.xla_real_devices()}
    print(f"torch_xla {about['torch_xla']}, torch {about['torch']}, {', '.join(about['devices'])}", file=progress, flush=True)
    met.clear_all()
    device, done = xm.xla_device(), []
    for number, check in enumerate(CHECKS):
        print(f"{number + 1:2}/{len(CHECKS)} {check.__name__.replace('_', ' '):36}", end="", file=progress, flush=True)
        done.append(_run(check, device))
        print(f"{done[-1]['seconds']:6.1f} s  {'ok' if done[-1]['ok'] else 'FAILED'}", file=progress, flush=True)
        if done[-1]["error"]:
            print(done[-1]["error"], file=progress, flush=True)
    on_host, right = met.executed_fallback_ops(), sum(one["ok"] for one in done)
    if on_host:
        print("computed on the host:", ", ".join(on_host), file=progress)
    print(f"{right} of {len(CHECKS)} are right", file=progress)
    if options.json:
        print(json.dumps({**about, "checks": done, "computed_on_host": on_host, "right": right, "of": len(CHECKS)}, indent=2))
    return 0 if right == len(CHECKS) else 1


if __name__ == "__main__":
    sys.exit(main())
