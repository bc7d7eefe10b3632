"""Operators whose results need not be torch's, or which the device refuses, each with the reason."""

_DRAWN = "random numbers: torch's CPU and the device draw different streams from one seed"
_SPARSE = "sparse tensors are not there on the device"

EXCEPTIONS = {
    "cauchy": _DRAWN,
    "exponential": _DRAWN,
    "geometric": _DRAWN,
    "log_normal": _DRAWN,
    "normal.in_place": _DRAWN,
    "uniform": _DRAWN,
    "randn": _DRAWN,
    "randn_like": _DRAWN,
    "rand_like": _DRAWN,
    "randint": _DRAWN,
    "randint_like": _DRAWN,
    "multinomial": _DRAWN,
    "normal": _DRAWN,
    "normal.number_mean": _DRAWN,
    "bernoulli": _DRAWN,
    "nn.functional.feature_alpha_dropout.with_train": _DRAWN,
    "nn.functional.multi_head_attention_forward": _DRAWN + " (its sample drops out)",
    "sparse.sampled_addmm": _SPARSE,
    "sparse.mm.reduce": _SPARSE,
    "to_sparse": _SPARSE,
    "chalf": "complex32 is not there on the device",
}
