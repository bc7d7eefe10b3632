"""Layers."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from .._ops import bce as bce, bce_with_logits as bce_with_logits, cross_entropy as cross_entropy, elu as elu
from .._ops import (
    gaussian_nll as gaussian_nll,
    gelu as gelu,
    hinge_embedding as hinge_embedding,
    huber as huber,
    kl_div as kl_div,
    l1 as l1,
)
from .._ops import (
    leaky_relu as leaky_relu,
    log_softmax as log_softmax,
    mse as mse,
    one_hot as one_hot,
    poisson_nll as poisson_nll,
)
from .._ops import relu as relu, scaled_dot_product_attention as scaled_dot_product_attention, sigmoid as sigmoid, silu as silu
from .._ops import (
    smooth_l1 as smooth_l1,
    softmax as softmax,
    softplus as softplus,
    tanh as tanh,
    triplet_margin as triplet_margin,
)
from .._tensor import Parameter as Parameter, Tensor
from . import init as init

_M = TypeVar("_M", bound="Module")
_Pair = int | tuple[int, int]

class Module:
    training: bool
    def forward(self, *args: Any, **kwargs: Any) -> Any: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def named_tensors(self) -> list[tuple[str, Tensor]]: ...
    def named_parameters(self) -> list[tuple[str, Parameter]]: ...
    def parameters(self) -> list[Parameter]: ...
    def modules(self) -> list[Module]: ...
    def train(self: _M, on: bool = ...) -> _M: ...
    def eval(self: _M) -> _M: ...
    def state_dict(self) -> dict[str, Tensor]: ...
    def load_state_dict(self, state: Mapping[str, Any], strict: bool = ...) -> None: ...

class Linear(Module):
    w: Parameter
    b: Parameter | None
    def __init__(self, inputs: int, outputs: int, bias: bool = ..., dtype: str = ...) -> None: ...

class Conv2d(Module):
    w: Parameter
    b: Parameter | None
    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: _Pair,
        stride: _Pair = ...,
        padding: Literal["valid", "same"] | _Pair = ...,
        dilation: _Pair = ...,
        groups: int = ...,
        bias: bool = ...,
        dtype: str = ...,
    ) -> None: ...

class MaxPool2d(Module):
    def __init__(self, window: _Pair, stride: _Pair | None = ...) -> None: ...

class AvgPool2d(MaxPool2d): ...
class Flatten(Module): ...

class Embedding(Module):
    table: Parameter
    def __init__(self, count: int, size: int, deviation: float = ..., dtype: str = ...) -> None: ...

class LayerNorm(Module):
    scale: Parameter
    offset: Parameter
    def __init__(self, size: int, epsilon: float = ..., dtype: str = ...) -> None: ...

class RMSNorm(Module):
    scale: Parameter
    def __init__(self, size: int, epsilon: float = ..., dtype: str = ...) -> None: ...

class BatchNorm(Module):
    scale: Parameter
    offset: Parameter
    mean: Parameter
    variance: Parameter
    def __init__(self, size: int, epsilon: float = ..., momentum: float = ..., dtype: str = ...) -> None: ...

class Dropout(Module):
    rate: float
    def __init__(self, rate: float = ...) -> None: ...

class Sequential(Module):
    layers: list[Any]
    def __init__(self, *layers: Module | Callable[[Any], Any]) -> None: ...
    def __getitem__(self, index: int) -> Any: ...
    def __len__(self) -> int: ...

class MultiHeadAttention(Module):
    def __init__(self, size: int, heads: int, causal: bool = ..., bias: bool = ..., dtype: str = ...) -> None: ...

class LSTM(Module):
    w: Parameter
    u: Parameter
    b: Parameter
    def __init__(self, inputs: int, size: int, dtype: str = ...) -> None: ...

class RNN(Module):
    weights: list[Parameter]
    def __init__(
        self,
        inputs: int,
        size: int,
        layers: int = ...,
        bidirectional: bool = ...,
        bias: bool = ...,
        activation: Literal["tanh", "relu"] = ...,
        dtype: str = ...,
    ) -> None: ...

class GRU(Module):
    weights: list[Parameter]
    def __init__(
        self, inputs: int, size: int, layers: int = ..., bidirectional: bool = ..., bias: bool = ..., dtype: str = ...
    ) -> None: ...
