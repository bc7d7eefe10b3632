"""The table of lowerings: what each overload of torch's is in Weft's operations.

Three kinds of rows. `NATIVE`: kernels in C that torch calls without Python; before torch 2.14, which cannot give them
tensors of Python's, those that compute are callable ones. `CALLABLE`: kernels in C that take numbers,
which torch's C interface cannot pass, so that torch calls them as Python's. `LOWERINGS`: Python functions that put
several operations together; other modules add theirs with `lower`. In-place overloads and overloads with `out` are made
from the functional ones by their schemas (register.py).
"""
import torch

UNARY, BINARY, MATMUL, AS_STRIDED, VIEW, RESHAPE_ALIAS, UNFOLD = range(7)
COMPUTING = (UNARY, BINARY, MATMUL)  # these are also kinds of callable kernels, by the same numbers
CALL_BINARY, CALL_ADDMM, CALL_ADDC, CALL_LERP, CALL_THRESHOLD = 1, 3, 4, 5, 6
FLOAT, COMPARE, INPLACE, SWAP, ALPHA, BOOL, INT, OUT = (1 << bit for bit in range(8))

# overload: (kind, flags, operation)
NATIVE = {
    "as_strided": (AS_STRIDED, 0, ""), "view": (VIEW, 0, ""), "_reshape_alias": (RESHAPE_ALIAS, 0, ""),
    "unfold": (UNFOLD, 0, ""), "mm": (MATMUL, 0, "matmul"), "bmm": (MATMUL, 0, "matmul"), "mv": (MATMUL, 0, "matmul"),
    "dot": (MATMUL, 0, "matmul")}
# overload: (kind, flags, operation)
CALLABLE = {
    "add.Tensor": (CALL_BINARY, ALPHA | BOOL, "add"), "sub.Tensor": (CALL_BINARY, ALPHA, "sub"),
    "rsub.Scalar": (CALL_BINARY, ALPHA | SWAP, "sub"), "rsub.Tensor": (CALL_BINARY, ALPHA | SWAP, "sub"),
    "addmm": (CALL_ADDMM, 0, ""), "addmv": (CALL_ADDMM, 0, ""), "baddbmm": (CALL_ADDMM, 0, ""),
    "addcmul": (CALL_ADDC, 0, "mul"), "addcdiv": (CALL_ADDC, 0, "div"), "lerp.Scalar": (CALL_LERP, 0, ""),
    "threshold_backward": (CALL_THRESHOLD, 0, ""), "pow.Scalar": (CALL_BINARY, 0, "pow")}
# overload: Python function
LOWERINGS = {}
# overload that torch puts together from others: Python function that does so before autograd, with fewer of them
LAYERS = {}

_FLOAT_UNARY = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log1p": "log1p", "sqrt": "sqrt",
    "rsqrt": "rsqrt", "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh", "sigmoid": "sigmoid", "erf": "erf",
    "erfinv": "erf_inv", "sinh": "sinh", "cosh": "cosh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh",
    "asin": "asin", "acos": "acos", "atan": "atan", "erfc": "erfc", "lgamma": "lgamma", "digamma": "digamma",
    "i0": "bessel_i0", "special_i1": "bessel_i1", "special_i0e": "bessel_i0e", "special_i1e": "bessel_i1e",
    "special_modified_bessel_i0": "bessel_i0", "special_modified_bessel_i1": "bessel_i1",
    "special_modified_bessel_k0": "bessel_k0", "special_modified_bessel_k1": "bessel_k1",
    "special_scaled_modified_bessel_k0": "bessel_k0e", "special_scaled_modified_bessel_k1": "bessel_k1e",
    "special_bessel_j0": "bessel_j0", "special_bessel_j1": "bessel_j1", "special_bessel_y0": "bessel_y0",
    "special_bessel_y1": "bessel_y1", "special_airy_ai": "airy_ai", "special_erfcx": "erfcx", "special_ndtri": "ndtri"}
_UNARY = {"relu": "relu", "neg": "neg", "abs": "abs", "bitwise_not": "bitwise_not"}
_ROUNDING = {"floor": "floor", "ceil": "ceil", "round": "round", "trunc": "trunc"}
for _name, _operation in _FLOAT_UNARY.items():
    NATIVE[_name] = (UNARY, FLOAT, _operation)
for _name, _operation in _UNARY.items():
    NATIVE[_name] = (UNARY, 0, _operation)
for _name, _operation in _ROUNDING.items():
    NATIVE[_name] = (UNARY, INT, _operation)

_BINARY = {
    "mul.Tensor": (BOOL, "mul"), "div.Tensor": (FLOAT, "div"), "maximum": (BOOL, "maximum"), "minimum": (BOOL, "minimum"),
    "atan2": (FLOAT, "atan2"), "bitwise_and.Tensor": (BOOL, "bitwise_and"), "bitwise_or.Tensor": (BOOL, "bitwise_or"),
    "bitwise_xor.Tensor": (BOOL, "bitwise_xor"), "fmod.Tensor": (0, "rem"), "pow.Tensor_Tensor": (0, "pow"),
    "igamma": (0, "igamma"), "igammac": (0, "igammac"), "nextafter": (0, "nextafter"),
    "bitwise_left_shift.Tensor": (0, "shift_left"), "bitwise_right_shift.Tensor": (0, "shift_right_arithmetic")}
for _name, (_flags, _operation) in _BINARY.items():
    NATIVE[_name] = (BINARY, _flags, _operation)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    NATIVE[_name + ".Tensor"] = (BINARY, COMPARE | BOOL, _name)
    CALLABLE[_name + ".Scalar"] = (CALL_BINARY, COMPARE | BOOL, _name)


def inplace_name(overload):
    name, dot, rest = overload.partition(".")
    return name + "_" + dot + rest


def _functional(schema):
    return [argument.name for argument in schema.arguments if not argument.is_out]


def out_name(overload):
    """The overload with `out` that takes what a functional one takes, or None."""
    name, _, rest = overload.partition(".")
    packet = getattr(torch.ops.aten, name)
    wanted = _functional(getattr(packet, rest or "default")._schema)
    for other in packet.overloads():
        schema = getattr(packet, other)._schema
        if len(schema.arguments) == len(wanted) + 1 and schema.arguments[-1].is_out and _functional(schema) == wanted:
            return name + "." + other
    return None


def _exists(overload):
    name, _, rest = overload.partition(".")
    packet = getattr(torch.ops.aten, name, None)
    return packet is not None and (rest or "default") in packet.overloads()


for _rows in (NATIVE, CALLABLE):
    for _name, (_kind, _flags, _operation) in list(_rows.items()):
        if not _exists(_name) or (_rows is NATIVE and _kind not in COMPUTING):
            continue
        if out_name(_name) is not None:
            _rows[out_name(_name)] = (_kind, _flags | OUT, _operation)
        if _exists(inplace_name(_name)):
            _rows[inplace_name(_name)] = (_kind, _flags | INPLACE, _operation)


def lower(*overloads):
    """Registers a Python lowering for overloads, named without `aten::`; `.default` is left out."""

    def decorate(function):
        for overload in overloads:
            LOWERINGS[overload] = function
        return function

    return decorate


def layer(overload):
    """Registers how an overload is put together, instead of torch's own way."""

    def decorate(function):
        LAYERS[overload] = function
        return function

    return decorate
