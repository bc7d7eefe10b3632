"""Weft in Python."""

from . import array_api as array_api, data as data, files as files, job as job, linalg as linalg, metrics as metrics
from . import _ops, nn as nn, optim as optim, plot as plot, progress as progress, random as random
from ._context import Context as Context, configure as configure, context as context, device as device, devices as devices
from ._context import evaluate as evaluate, seed as seed, step as step, sync as sync
from ._convert import argument as argument, from_dlpack as from_dlpack, tensor as tensor
from ._device import Device as Device
from ._dtypes import DType as DType, dtype as dtype, promoted
from ._errors import Error as Error
from ._function import Function as Function, checkpoint as checkpoint, custom_gradient as custom_gradient
from ._function import (
    from_stablehlo as from_stablehlo,
    function as function,
    grad as grad,
    gradients as gradients,
    jit as jit,
    jvp as jvp,
)
from ._function import value_and_grad as value_and_grad, vjp as vjp, vmap as vmap
from ._ops import *
from ._more import *  # type: ignore[assignment]
from ._numpy import *  # type: ignore[assignment]
from ._control import (  # type: ignore[assignment]
    cond as cond,
    custom_op as custom_op,
    fori_loop as fori_loop,
    scan as scan,
    switch as switch,
    while_loop as while_loop,
)
from . import fft as fft  # type: ignore[assignment]
from ._tensor import Parameter as Parameter, Tensor as Tensor, set_printoptions as set_printoptions
from .files import load as load, save as save
from .progress import bar as bar

__version__: str
ops = _ops
promote_types = promoted
asarray = tensor
array = tensor
i2: DType
i4: DType
i8: DType
i16: DType
i32: DType
i64: DType
u2: DType
u4: DType
u8: DType
u16: DType
u32: DType
u64: DType
f16: DType
bf16: DType
f32: DType
f64: DType
c64: DType
c128: DType
bool_: DType
float16: DType
bfloat16: DType
float32: DType
float64: DType
int8: DType
int16: DType
int32: DType
int64: DType
uint8: DType
uint16: DType
uint32: DType
uint64: DType
complex64: DType
complex128: DType
pi: float
e: float
inf: float
nan: float
newaxis: None

class LibraryError(ImportError): ...

def library_path() -> str: ...
