"""The optimizers that optimizers_test.py holds to PyTorch and optax: label -> class, settings, and the judge's class and settings."""
import numpy as np

STEPS = 100
SHAPES = ((3, 4), (5,), (2, 3, 2))
MATRICES = ((3, 4), (4, 2))  # what Muon takes

# Settings that judges spell in another way.
_THEIRS = {"epsilon": "eps", "decoupled": "decoupled_weight_decay", "initial": "initial_accumulator_value"}


def _pair(ours, settings, **more):
    """PyTorch's settings for ours: betas, etas, step sizes and factors are pairs there."""
    theirs = {_THEIRS.get(k, k): v for k, v in settings.items()}
    for pair, parts in (("betas", ("beta1", "beta2")), ("etas", ("eta_minus", "eta_plus")), ("step_sizes", ("step_min", "step_max"))):
        if any(p in theirs for p in parts):
            usual = {"beta1": 0.9, "beta2": 0.999, "eta_minus": 0.5, "eta_plus": 1.2, "step_min": 1e-6, "step_max": 50.0}
            theirs[pair] = tuple(theirs.pop(p, usual[p]) for p in parts)
    return ours, settings, {**theirs, **more}


CASES = {
    "sgd": _pair("SGD", {"lr": 0.05}),
    "sgd momentum": _pair("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    "sgd nesterov": _pair("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "maximize": True}),
    "adam": _pair("Adam", {"lr": 0.02, "weight_decay": 0.1, "beta1": 0.8}),
    "adam amsgrad": _pair("Adam", {"lr": 0.02, "amsgrad": True, "maximize": True, "beta2": 0.9}),
    "adamw": _pair("AdamW", {"lr": 0.02, "weight_decay": 0.1, "amsgrad": True}),
    "adamax": _pair("Adamax", {"lr": 0.02, "weight_decay": 0.1}),
    "nadam": _pair("NAdam", {"lr": 0.02, "weight_decay": 0.1}),
    "nadam decoupled": _pair("NAdam", {"lr": 0.02, "weight_decay": 0.1, "decoupled": True, "momentum_decay": 0.02}),
    "radam": _pair("RAdam", {"lr": 0.02, "weight_decay": 0.1}),
    "radam decoupled": _pair("RAdam", {"lr": 0.02, "weight_decay": 0.1, "decoupled": True, "maximize": True}),
    "rmsprop": _pair("RMSprop", {"lr": 0.01, "weight_decay": 0.1}),
    "rmsprop centered": _pair("RMSprop", {"lr": 0.01, "momentum": 0.7, "centered": True, "alpha": 0.9, "epsilon": 1e-3}),
    "adagrad": _pair("Adagrad", {"lr": 0.05, "lr_decay": 0.01, "weight_decay": 0.1, "initial": 0.2}),
    "adadelta": _pair("Adadelta", {"lr": 0.9, "weight_decay": 0.1, "rho": 0.8}),
    "rprop": _pair("Rprop", {"lr": 0.01, "eta_plus": 1.3}),
    "asgd": _pair("ASGD", {"lr": 0.05, "t0": 20.0, "weight_decay": 0.1, "lambd": 1e-2}),
    "adafactor": ("Adafactor", {"lr": 0.05, "weight_decay": 0.1}, {"lr": 0.05, "weight_decay": 0.1}),
    "adafactor clip": ("Adafactor", {"lr": 0.05, "clip": 1.5, "epsilon2": 1e-2}, {"lr": 0.05, "d": 1.5, "eps": (None, 1e-2)}),
    "lion": ("Lion", {"lr": 0.01, "weight_decay": 0.1}, {"learning_rate": 0.01, "weight_decay": 0.1}),
    "lamb": ("LAMB", {"lr": 0.01, "weight_decay": 0.1}, {"learning_rate": 0.01, "weight_decay": 0.1}),
    "muon": ("Muon", {"lr": 0.02, "weight_decay": 0.1}, {"lr": 0.02, "weight_decay": 0.1}),
    "muon plain": ("Muon", {"lr": 0.02, "nesterov": False, "weight_decay": 0.0}, {"lr": 0.02, "nesterov": False, "weight_decay": 0.0}),
}


def shapes(case):
    return MATRICES if case.startswith("muon") else SHAPES


def start(case):
    return [np.sin(1.0 + 0.7 * np.arange(np.prod(s))).reshape(s) for s in shapes(case)]


def gradients(case, step):
    """Far from 0, so that signs are the same in every precision, but never the same twice."""
    out = []
    for number, s in enumerate(shapes(case)):
        wave = np.sin(0.37 * step + 1.3 * np.arange(np.prod(s)) + number)
        out.append((wave + np.copysign(0.05, wave)).reshape(s))
    return out
