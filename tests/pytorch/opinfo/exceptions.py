"""Operators whose results need not be torch's, or which the device refuses, each with the reason."""

_DRAWN = "random numbers: torch's CPU and the device draw different streams from one seed"
_OLD = "memory to which nothing was written: zeros here, what was there before on torch's CPU"
_SPARSE = "sparse tensors are not there on the device"

# Results that may be equal by chance.
CHANCE = {
    **dict.fromkeys(
        ("cauchy", "exponential", "geometric", "log_normal", "normal.in_place", "uniform", "randn", "randn_like", "rand_like", "randint",
         "randint_like", "multinomial", "normal", "normal.number_mean", "bernoulli", "nn.functional.feature_alpha_dropout.with_train"),
        _DRAWN),
    **dict.fromkeys(("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"), _OLD),
    "nn.functional.multi_head_attention_forward": _DRAWN + "; its sample drops out",
    "nn.functional.fractional_max_pool3d": _DRAWN + "; where the windows lie is drawn",
}
# What stays as it is until the device can do it; an entry that is right after all fails the run.
REFUSED = {
    "sparse.sampled_addmm": _SPARSE,
    "sparse.mm.reduce": _SPARSE,
    "to_sparse": _SPARSE,
    "chalf": "complex32 is not there on the device",
    "tensor_split": "torch itself wants the indices as a tensor on the CPU",
    "as_strided.partial_views": "the sample reads memory around its view, which a copy to the device does not take along",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": "an operation of torch's CPU; torch's decomposition of it has another "
    "second result",
}
EXCEPTIONS = {**CHANCE, **REFUSED}
