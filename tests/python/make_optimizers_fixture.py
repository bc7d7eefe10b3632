"""PyTorch's and optax's parameters after the steps of optimizer_cases.py, for optimizers_test.py: no registry has a small PyTorch.

    python tests/python/make_optimizers_fixture.py tests/python/optimizers_fixture.npz

with a Python that has PyTorch 2.9 (Muon) and, for lion and lamb, optax. Muon is PyTorch's own formula in f64 by NumPy: PyTorch's makes
matrices orthogonal in bf16."""
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from optimizer_cases import CASES, STEPS, gradients, start  # noqa: E402


def by_torch(case, name, settings, dtype):
    parameters = [torch.nn.Parameter(torch.tensor(x, dtype=dtype)) for x in start(case)]
    optimizer = getattr(torch.optim, name)(parameters, **settings)
    for step in range(STEPS):
        for p, g in zip(parameters, gradients(case, step)):
            p.grad = torch.tensor(g, dtype=dtype)
        optimizer.step()
    return [p.detach().numpy() for p in parameters]


def by_optax(case, name, settings, dtype):
    import jax
    import optax

    jax.config.update("jax_enable_x64", True)
    kind = "f8" if dtype == torch.float64 else "f4"
    parameters = [jax.numpy.asarray(x.astype(kind)) for x in start(case)]
    rule = getattr(optax, name.lower())(**settings)
    state = rule.init(parameters)
    for step in range(STEPS):
        grads = [jax.numpy.asarray(g.astype(kind)) for g in gradients(case, step)]
        updates, state = rule.update(grads, state, parameters)
        parameters = optax.apply_updates(parameters, updates)
    return [np.asarray(p) for p in parameters]


def muon(case, lr, weight_decay=0.1, momentum=0.95, nesterov=True, eps=1e-7):
    parameters = start(case)
    kept = [np.zeros_like(p) for p in parameters]
    for step in range(STEPS):
        for i, g in enumerate(gradients(case, step)):
            kept[i] = momentum * kept[i] + (1 - momentum) * g
            x = (1 - momentum) * g + momentum * kept[i] if nesterov else kept[i]
            tall = x.shape[0] > x.shape[1]
            x = x.T if tall else x
            x = x / max(np.linalg.norm(x), eps)
            for _ in range(5):
                square = x @ x.T
                x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
            x = x.T if tall else x
            parameters[i] = parameters[i] * (1 - lr * weight_decay) - lr * max(1, x.shape[0] / x.shape[1]) ** 0.5 * x
    return parameters


def main():
    kept = {}
    for case, (name, _, settings) in CASES.items():
        for kind, dtype in (("f4", torch.float32), ("f8", torch.float64)):
            judge = by_optax if name in ("Lion", "LAMB") else by_torch
            found = muon(case, **settings) if name == "Muon" else judge(case, name, settings, dtype)
            for i, p in enumerate(found):
                kept["%s/%s/%d" % (case, kind, i)] = p.astype(kind)
    np.savez_compressed(sys.argv[1], **kept)
    print("%d cases, PyTorch %s" % (len(CASES), torch.__version__))


main()
