"""CPU time of single operations from Python on the device xla, beside torch's own CPU; bench.py starts it.

usage: operations.py [--rounds N]      prints one JSON object

Short slices of all cases take turns and the best slice of each counts, so that a busy machine shifts all of them alike. What is
recorded is dropped before the barrier between rounds: the figures are those of recording.
"""

import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings" / "pytorch"))

import torch  # noqa: E402

import torch_xla  # noqa: E402, F401
import torch_xla._weft as core  # noqa: E402

CALLS = 400  # of one slice
# case: how many times torch's own CPU `mul` of the same size it may take (docs/pytorch.md)
LIMITS = {"mul": 2.6, "mm": 2.6, "relu": 2.6, "mul number": 3.25, "add number": 3.25}


def cases(a, b):
    return {
        "mul": lambda: a * b, "mm": lambda: a @ b, "relu": lambda: a.relu(), "mul number": lambda: a * 2.5, "add": lambda: a + b,
        "add number": lambda: a + 2.5, "add_ alpha": lambda: a.detach().add_(b, alpha=0.5), "view": lambda: a.view(4),
        "sum": lambda: a.sum(0), "softmax": lambda: a.softmax(-1), "cat": lambda: torch.cat((a, b))}


def best(rounds, functions):
    found = {}
    for _ in range(rounds):
        for name, function in functions.items():
            began = time.process_time()
            for _ in range(CALLS):
                function()
            took = (time.process_time() - began) / CALLS
            found[name] = min(found.get(name, took), took)
        core.wait()
    return found


def measure(rounds):
    functions = {}
    for gradients in (False, True):
        for device in ("cpu", "xla"):
            a, b = (torch.ones(2, 2, device=device, requires_grad=gradients) for _ in range(2))
            functions.update({(name, device, gradients): function for name, function in cases(a, b).items()})
    found = best(rounds, functions)
    base = found["mul", "cpu", False]
    return {"operations": [
        {"operation": name, "gradients": gradients, "torch_us": found[name, "cpu", gradients] * 1e6, "weft_us": took * 1e6,
         "ratio_to_mul": took / base, "limit": None if gradients else LIMITS.get(name)}
        for (name, device, gradients), took in found.items() if device == "xla"], "torch_mul_us": base * 1e6}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(measure(options.rounds)))


if __name__ == "__main__":
    main()
