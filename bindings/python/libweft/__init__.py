"""Weft in Python: lazy tensors that are compiled.

    import libweft as wf

    x = wf.tensor([[1.0, 2.0], [3.0, 4.0]])
    y = (x @ x.T).sum()       # recorded; nothing is computed yet
    print(float(y))           # a read computes: one program

Everything is here: tensors and operations (wf.exp, x.sum()), steps (wf.step), functions (wf.function, wf.grad, wf.vmap),
wf.linalg, wf.fft, wf.nn, wf.optim, wf.random, wf.data, wf.job, wf.metrics, files (wf.save, wf.load). Importing opens the library and starts nothing.
"""

import sys as _sys

if _sys.version_info < (3, 9):
    raise ImportError("libweft needs Python 3.9 or later, and this is %d.%d" % _sys.version_info[:2])

from . import _call, _errors, _ops as ops  # noqa: E402
from ._context import Context, configure, context, device, devices, evaluate, seed, step, sync  # noqa: E402
from ._convert import argument, from_dlpack, tensor  # noqa: E402
from ._device import Device  # noqa: E402
from ._dtypes import BY_NAME as _DTYPES, DType, dtype, promoted as promote_types  # noqa: E402
from ._errors import Error  # noqa: E402
from ._library import LibraryError  # noqa: E402
from ._tensor import Parameter, Tensor, set_printoptions  # noqa: E402
from ._ops import *  # noqa: E402, F401, F403
from ._more import *  # noqa: E402, F401, F403

_errors.named_functions(globals(), ("argument", "evaluate", "from_dlpack", "seed", "set_printoptions", "sync", "tensor"))
globals().update(_DTYPES)
bool_ = _DTYPES["bool"]
float16, float32, float64, bfloat16 = _DTYPES["f16"], _DTYPES["f32"], _DTYPES["f64"], _DTYPES["bf16"]
int8, int16, int32, int64 = (_DTYPES[n] for n in ("i8", "i16", "i32", "i64"))
uint8, uint16, uint32, uint64 = (_DTYPES[n] for n in ("u8", "u16", "u32", "u64"))
complex64, complex128 = _DTYPES["c64"], _DTYPES["c128"]
pi, e, inf, nan, newaxis = 3.141592653589793, 2.718281828459045, float("inf"), float("nan"), None
asarray = array = tensor

# Parts that are read when they are first used, so that the import stays short.
_LATE = {
    name: module
    for module, names in {
        "_function": "Function function jit grad value_and_grad vmap jvp vjp checkpoint gradients custom_gradient "
        "from_stablehlo",
        "_control": "scan while_loop fori_loop cond switch custom_op",
        "_numpy": "array_split column_stack dstack flip fromfunction histogram hsplit hstack identity inner isfinite "
        "isinf isnan ix_ meshgrid ravel repeat vdot vsplit vstack",
        "files": "save load",
        "progress": "bar",
    }.items()
    for name in names.split()
}
# These names win over operations': cond branches, and linalg.cond is of matrices; fft is a module; NumPy's histogram makes its
# edges. The operations are in wf.ops.
for _name in ("cond", "fft", "histogram", "meshgrid"):
    del globals()[_name]
_MODULES = ("array_api", "data", "fft", "files", "job", "linalg", "metrics", "nn", "optim", "plot", "progress", "random")


def __getattr__(name):
    import importlib

    if name in _MODULES:
        return importlib.import_module("." + name, __name__)
    if name in _LATE:
        module = vars(importlib.import_module("." + _LATE[name], __name__))
        _errors.named_functions(module, [name])
        globals()[name] = module[name]
        return module[name]
    if name == "__version__":
        return _call.bind("weft_release_version", _call.ctypes.c_char_p)().decode()
    raise AttributeError("libweft has no %r%s" % (name, _nearest(name)))


def _nearest(name):
    import difflib

    close = difflib.get_close_matches(name, [*globals(), *_LATE, *_MODULES], 1)
    return "; did you mean %r?" % close[0] if close else ""


def __dir__():
    return sorted({*(n for n in globals() if not n.startswith("_")), *_LATE, *_MODULES})


def library_path():
    """The path of the C library that is open."""
    return _call.path


del _name, _sys
