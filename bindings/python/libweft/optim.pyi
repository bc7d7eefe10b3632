"""Optimizers, schedules, clipping and moving averages."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from ._tensor import Parameter, Tensor
from .files import Reader
from .job import Job
from .nn import Module

_Rate = float | Callable[[int], float]
_Params = Module | Sequence[Tensor] | Sequence[Mapping[str, Any]] | Mapping[str, Any]
_Grads = TypeVar("_Grads", bound=Sequence[Tensor] | Mapping[str, Tensor])

class Optimizer:
    lr: _Rate
    count: int
    job: Job | None
    params: list[Tensor]
    @property
    def rate(self) -> float: ...
    @overload
    def step(
        self, of: Tensor | Sequence[Tensor | None] | Mapping[str, Tensor], lr: _Rate | None = ..., max_norm: None = ...
    ) -> None: ...
    @overload
    def step(
        self, of: Tensor | Sequence[Tensor | None] | Mapping[str, Tensor], lr: _Rate | None = ..., *, max_norm: float
    ) -> Tensor: ...
    def state_dict(self) -> dict[str, Any]: ...
    def whole_state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
    def load_from(self, reader: Reader, path: str = ...) -> None: ...

class SGD(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate,
        momentum: float = ...,
        weight_decay: float = ...,
        nesterov: bool = ...,
        dampening: float = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

class Adam(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate = ...,
        beta1: float = ...,
        beta2: float = ...,
        epsilon: float = ...,
        weight_decay: float = ...,
        amsgrad: bool = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

class AdamW(Adam): ...

class Adamax(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate = ...,
        beta1: float = ...,
        beta2: float = ...,
        epsilon: float = ...,
        weight_decay: float = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

class NAdam(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate = ...,
        beta1: float = ...,
        beta2: float = ...,
        epsilon: float = ...,
        weight_decay: float = ...,
        momentum_decay: float = ...,
        decoupled: bool = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

class RAdam(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate = ...,
        beta1: float = ...,
        beta2: float = ...,
        epsilon: float = ...,
        weight_decay: float = ...,
        decoupled: bool = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

class RMSprop(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate = ...,
        alpha: float = ...,
        epsilon: float = ...,
        weight_decay: float = ...,
        momentum: float = ...,
        centered: bool = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

class Adagrad(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate = ...,
        lr_decay: float = ...,
        weight_decay: float = ...,
        initial: float = ...,
        epsilon: float = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

class Adadelta(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate = ...,
        rho: float = ...,
        epsilon: float = ...,
        weight_decay: float = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

class Lion(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate = ...,
        beta1: float = ...,
        beta2: float = ...,
        weight_decay: float = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

class Rprop(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate = ...,
        eta_minus: float = ...,
        eta_plus: float = ...,
        step_min: float = ...,
        step_max: float = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

class ASGD(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate = ...,
        lambd: float = ...,
        alpha: float = ...,
        t0: float = ...,
        weight_decay: float = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

class LAMB(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate = ...,
        beta1: float = ...,
        beta2: float = ...,
        epsilon: float = ...,
        weight_decay: float = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

class Adafactor(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate = ...,
        beta2_decay: float = ...,
        epsilon1: float = ...,
        epsilon2: float = ...,
        clip: float = ...,
        weight_decay: float = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

class Muon(Optimizer):
    def __init__(
        self,
        params: _Params,
        lr: _Rate = ...,
        momentum: float = ...,
        nesterov: bool = ...,
        epsilon: float = ...,
        weight_decay: float = ...,
        maximize: bool = ...,
        *,
        job: Job | None = ...,
        shard_state: bool = ...,
    ) -> None: ...

def warmup(schedule: _Rate, steps: int) -> Callable[[int], float]: ...
def cosine(rate: float, steps: int, warmup: int = ..., end: float = ...) -> Callable[[int], float]: ...
def linear(rate: float, steps: int, warmup: int = ..., end: float = ...) -> Callable[[int], float]: ...
def step_decay(rate: float, every: int, factor: float = ..., warmup: int = ...) -> Callable[[int], float]: ...
def exponential(rate: float, factor: float, warmup: int = ...) -> Callable[[int], float]: ...
def one_cycle(
    rate: float, steps: int, start: float = ..., divide: float = ..., final: float = ...
) -> Callable[[int], float]: ...
def clip_by_global_norm(grads: _Grads, max_norm: float) -> tuple[_Grads, Tensor]: ...

def clip_by_value(grads: _Grads, limit: float) -> _Grads: ...

class GradScaler:
    value: Parameter
    def __init__(
        self, scale: float = ..., growth_factor: float = ..., backoff_factor: float = ..., growth_interval: int = ...
    ) -> None: ...
    def scale(self, loss: Tensor) -> Tensor: ...
    def unscale(self, grads: _Grads) -> tuple[_Grads, Tensor]: ...
    def step(
        self, optimizer: Optimizer, of: Tensor | Sequence[Tensor] | Mapping[str, Tensor], lr: float | None = ..., found: Tensor | None = ...
    ) -> None: ...
    def state_dict(self) -> dict[str, Tensor]: ...
    def load_state_dict(self, state: dict[str, Tensor]) -> None: ...

class EMA:
    decay: float
    averages: list[Parameter]
    def __init__(self, module: Module, decay: float = ...) -> None: ...
    def update(self) -> None: ...
    def state_dict(self) -> dict[str, Tensor]: ...
    def swap(self) -> None: ...
