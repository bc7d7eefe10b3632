"""Training steps on the device xla beside torch's eager CPU, in one process of one thread; bench.py starts one for each model.

usage: steps.py MODEL [--rounds N] [--steps N]      prints one JSON object
"""

import argparse
import copy
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings" / "pytorch"))

import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import models  # noqa: E402
import torch_xla  # noqa: E402, F401
import torch_xla._weft as core  # noqa: E402

WARM = 6  # steps before anything is measured; what they compile is counted


class Trainer:
    """A copy of the model on one device, with its optimizer; each step changes the learning rate."""

    def __init__(self, model, data, labels, optimizer, device):
        self.model, self.data, self.labels = copy.deepcopy(model).to(device), data.to(device), labels.to(device)
        self.optimizer, self.ours = optimizer(self.model.parameters()), device == "xla"
        self.rate, self.count = self.optimizer.param_groups[0]["lr"], 0

    def record(self):
        """A step without the barrier at its end."""
        self.count += 1
        self.optimizer.param_groups[0]["lr"] = self.rate * 0.999**self.count
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.data), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def step(self):
        loss = self.record()
        if self.ours:
            core.sync()
        return loss

    def timed(self, steps):
        """CPU seconds a step."""
        began = time.process_time()
        for _ in range(steps):
            self.step()
        if self.ours:
            core.wait()
        return (time.process_time() - began) / steps

    def recorded(self, steps):
        """CPU seconds of recording a step, while the device has nothing to do; autograd's thread counts too."""
        total = 0.0
        for _ in range(steps):
            began = time.process_time()
            self.record()
            total += time.process_time() - began
            core.sync()
            core.wait()
        return total / steps


def counts():
    return json.loads(core.weft_metrics_json())["counters"]


def difference(after, before, name):
    return after.get(name, 0) - before.get(name, 0)


def measure(name, rounds, steps):
    made = models.make(name)
    torch_side, our_side = Trainer(*made, "cpu"), Trainer(*made, "xla")
    core.clear_counters()
    before, compiled, losses = counts(), [], []
    for _ in range(WARM):
        expected, actual = torch_side.step(), our_side.step()
        compiled.append(difference(counts(), before, "programs_compiled"))
        losses.append((expected.item(), actual.item()))
    for _ in range(2):  # without reading the loss
        our_side.step()
    core.wait()
    settled, first, ours, host = counts(), [], [], []
    for _ in range(rounds):
        first.append(torch_side.timed(steps))
        ours.append(our_side.timed(steps))
    after = counts()
    for _ in range(rounds):
        host.append(our_side.recorded(steps))
    return {
        "model": name, "torch_ms": min(first) * 1e3, "weft_ms": min(ours) * 1e3, "host_ms": min(host) * 1e3,
        "ratio": min(ours) / min(first), "median_ratio": statistics.median(a / b for a, b in zip(ours, first)),
        "limit": models.MODELS[name][3], "loss_difference": max(abs(a - b) / max(abs(a), 1e-6) for a, b in losses[:3]),
        "compiled": compiled[-1], "compiled_after_2": difference(after, before, "programs_compiled") - compiled[1],
        "steps": rounds * steps, "replayed": difference(after, settled, "steps_replayed"),
        "donated": difference(after, settled, "buffers_donated") / (rounds * steps),
        "states": sum(1 for _ in our_side.model.parameters()),
        "on_the_host": sorted(key for key in core.counters() if key.startswith("aten::"))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=list(models.MODELS))
    parser.add_argument("--rounds", type=int, default=8, help="times that each side is measured, in turn (8)")
    parser.add_argument("--steps", type=int, default=5, help="steps of each time (5)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(measure(options.model, options.rounds, options.steps)))


if __name__ == "__main__":
    main()
