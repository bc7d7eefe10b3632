"""Models train as on torch's CPU, without the host computing anything, replayed and with memory flat."""

import copy
import json
import os
import unittest

from common import DEVICE, core, host_operations
import torch
from torch import nn
from torch.nn import functional as F


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.last = nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=2), nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.last(F.leaky_relu(self.second(x)).flatten(1))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.a, self.na = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.b, self.nb = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.short = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if stride != 1
            else nn.Identity()
        )

    def forward(self, x):
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + self.short(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Block(16, 16), Block(16, 32, 2))
        self.last = nn.Linear(32, 10)

    def forward(self, x):
        return self.last(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, activation="gelu")
        self.table = nn.Embedding(50, 32)
        self.layers, self.last = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 10)

    def forward(self, x):
        return self.last(self.layers(self.table(x)).mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells, self.last = kind(8, 16, batch_first=True), nn.Linear(16, 10)

    def forward(self, x):
        return self.last(self.cells(x)[0][:, -1])


def cases():
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    return {
        "mlp": (nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10)), normal(16, 20)),
        "convolutions": (Convolutions(), normal(8, 1, 28, 28)),
        "residual": (Residual(), normal(4, 3, 32, 32)),
        "encoder": (Encoder(), torch.randint(0, 50, (4, 12), generator=generator)),
        "lstm": (Recurrent(nn.LSTM), normal(4, 6, 8)),
        "gru": (Recurrent(nn.GRU), normal(4, 6, 8)),
    }


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-3),
    "adam_single": lambda p: torch.optim.Adam(p, 1e-3, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3),
}


def train(model, data, labels, optimizer, steps, device):
    model, losses = copy.deepcopy(model).to(device), []
    data, labels, chosen = data.to(device), labels.to(device), optimizer(model.parameters())
    for _ in range(steps):
        chosen.zero_grad()
        loss = F.cross_entropy(model(data), labels)
        loss.backward()
        chosen.step()
        if device == DEVICE:
            core.sync()
        losses.append(loss.item())
    return losses, {name: value.cpu() for name, value in model.state_dict().items()}


class Training(unittest.TestCase):
    def test_as_torch(self):
        for name, (model, data) in cases().items():
            labels = torch.randint(0, 10, (data.shape[0],), generator=torch.Generator().manual_seed(2))
            for how, optimizer in OPTIMIZERS.items():
                if how != "sgd" and name != "mlp":
                    continue
                with self.subTest(name, optimizer=how):
                    core.clear_counters()
                    expected, state = train(model, data, labels, optimizer, 4, "cpu")
                    actual, ours = train(model, data, labels, optimizer, 4, DEVICE)
                    torch.testing.assert_close(torch.tensor(actual), torch.tensor(expected), rtol=2e-6, atol=2e-6)
                    if how == "sgd":  # the others divide by gradients that may be rounding errors
                        for key, value in state.items():
                            torch.testing.assert_close(ours[key], value, rtol=1e-4, atol=1e-6, msg=key)
                    self.assertEqual(host_operations(), [])

    def test_steps_are_replayed_and_donated(self):
        model, data = cases()["mlp"]
        labels = torch.zeros(16, dtype=torch.int64, device=DEVICE)
        model, data = copy.deepcopy(model).to(DEVICE), data.to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

        def step(rate):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            F.cross_entropy(model(data), labels).backward()
            optimizer.step()
            core.sync()

        for i in range(4):
            step(0.1 / (i + 1))
        before = json.loads(core.weft_metrics_json())["counters"]
        for i in range(10):
            step(0.01 / (i + 1))
        after = json.loads(core.weft_metrics_json())["counters"]
        self.assertEqual(after["programs_compiled"], before["programs_compiled"])
        self.assertGreaterEqual(after["steps_replayed"] - before["steps_replayed"], 9)
        self.assertGreaterEqual(after["buffers_donated"] - before["buffers_donated"], 10 * 8)

    def test_steps_of_many_parameters_are_replayed(self):
        """An optimizer's lists of tensors repeat like a loop; the step must not be cut inside."""
        model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(50))).to(DEVICE)
        optimizer, data = torch.optim.AdamW(model.parameters(), 1e-3), torch.ones(4, 8, device=DEVICE)

        def steps(count):
            for _ in range(count):
                optimizer.zero_grad()
                model(data).square().mean().backward()
                optimizer.step()
                core.sync()
            return json.loads(core.weft_metrics_json())["counters"]

        before, after = steps(4), steps(10)
        self.assertGreater(after["nodes_recorded"] - before["nodes_recorded"], 10 * 1000)  # more than the library's own bound
        self.assertEqual(after["cut_repetition"], before["cut_repetition"])
        self.assertGreaterEqual(after["steps_replayed"] - before["steps_replayed"], 9)

    def test_memory_is_flat(self):
        layer = nn.Linear(64, 64).to(DEVICE)
        optimizer = torch.optim.SGD(layer.parameters(), 1e-3, momentum=0.9)
        data = torch.ones(8, 64, device=DEVICE)

        def steps(count):
            for _ in range(count):
                optimizer.zero_grad()
                layer(data).square().mean().backward()
                optimizer.step()
                core.sync()
            core.wait()
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096, core.memory_info()["bytes_used"]

        steps(300)
        first, device_first = steps(100)
        last, device_last = steps(2000)
        if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # which keeps what was freed
            self.assertLess(last - first, 2 << 20)
        self.assertLessEqual(device_last, device_first)

    def test_dropout(self):
        torch.manual_seed(5)
        x = torch.ones(1000, 100, device=DEVICE, requires_grad=True)
        y = F.dropout(x, 0.3)
        y.sum().backward()
        self.assertAlmostEqual((y == 0).float().mean().item(), 0.3, delta=0.01)
        self.assertTrue(torch.equal(x.grad.cpu(), y.detach().cpu()))
        torch.manual_seed(5)
        self.assertTrue(torch.equal(F.dropout(x, 0.3).cpu(), y.cpu()))


if __name__ == "__main__":
    unittest.main()
