"""Values of Python and of other libraries as tensors."""

from typing import Any

from ._device import Device
from ._ops import _DType
from ._tensor import Tensor

def tensor(data: Any, dtype: _DType | type | None = ..., device: Device | str | None = ...) -> Tensor: ...
def argument(value: float, dtype: _DType) -> Tensor: ...
def from_dlpack(data: Any) -> Tensor: ...
