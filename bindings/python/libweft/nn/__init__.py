"""Layers as plain classes: parameters and layers are attributes, and calling is `forward`."""

from .._ops import (
    bce,
    bce_with_logits,
    cross_entropy,
    elu,
    gaussian_nll,
    gelu,
    hinge_embedding,
    huber,
    kl_div,
    l1,
    leaky_relu,  # noqa: F401
    log_softmax,
    mse,
    one_hot,
    poisson_nll,
    relu,
    scaled_dot_product_attention,
    sigmoid,
    silu,
    smooth_l1,
    softmax,
    softplus,
    tanh,
    triplet_margin,
)
from .._tensor import Parameter  # noqa: F401
from . import init  # noqa: F401
from ._layers import (
    AvgPool2d,
    BatchNorm,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    GRU,
    LayerNorm,
    Linear,
    LSTM,
    MaxPool2d,  # noqa: F401
    MultiHeadAttention,
    RMSNorm,
    RNN,
    Sequential,
)
from ._module import Module  # noqa: F401
