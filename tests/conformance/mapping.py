"""How PyTorch's OpInfo operators are said in Weft: one entry a name, a function that writes the call onto a tape.

A mapping translates arguments (dims, dtypes, NCHW to channels last) and nothing else: what Weft has no argument for is
refused by a name of REFUSALS, so that the list of what is missing stays closed and counted. Where PyTorch promotes types,
the tape converts; where Weft counts indices in i32 and PyTorch in i64, the runner compares the numbers. Products,
convolutions, pools and networks are in mapping_networks.py; what goes along an axis or over positions in mapping_sequences.py.
"""
import numpy as np
import torch

import tape as tapes
import weft

# The closed list of reasons why a sample is not compared.
REFUSALS = {
    "dtype": "complex numbers of 16-bit parts",
    "random": "PyTorch's generator gives other numbers, and no operation here has its results",
    "max_norm": "rows normalised in place",
    "scale_grad_by_freq": "gradients scaled by frequency",
    "weight": "mse weighted by element",
    "scale": "elu with scale or input_scale",
    "view of bytes": "views of the same bytes as other elements",
    "out of range": "numbers outside an integer's range: PyTorch leaves open what they become",
    "storage": "elements of the storage that the tensor does not have: strided views as values",
    "running statistics": "instance_norm by statistics that are given",
    "center": "exponential windows about another place than their middle",
    "slices": "masked indices of some dimensions",
    "batches of vectors": "errors instead of values",
    "batches that broadcast": "equations of triangles whose leading dimensions broadcast",
    "tolerances as tensors": "tolerances of pinv one by one",
    "pivots": "factors without exchanges of rows",
    "empty results": "results that are left empty where they are not asked for",
    "correction": "a correction above the number of elements, of which the operation gives inf and PyTorch what it computes",
    "complex": "norms of complex numbers under a mask, of negative order",
    "own distances": "distances that the caller's function measures",
    "four dimensions": "transforms over more than three dimensions",
    "fixed point": "bytes of images resized cubically, which PyTorch cuts to bytes after each axis; local means of integers, which it cuts off",
}


class Refused(Exception):
    """`reason` is a key of REFUSALS."""

    def __init__(self, reason):
        super().__init__(REFUSALS[reason])
        self.reason = reason


NAMES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64", torch.bool: "i1",
         torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "ui8", torch.uint16: "ui16",
         torch.uint32: "ui32", torch.uint64: "ui64", torch.complex64: "complex<f32>", torch.complex128: "complex<f64>"}
PREDICATES = ("is_inf", "is_pos_inf", "is_neg_inf", "signbit", "logical_and", "logical_or", "logical_xor", "logical_not", "isclose", "allclose")
# What these tests call a few dtypes, and what the API calls them.
_API = {"i1": "bool", "ui8": "u8", "ui16": "u16", "ui32": "u32", "ui64": "u64", "complex<f32>": "c64", "complex<f64>": "c128"}
# Operations with real results of complex operands: which results, None for all; and those with complex ones of real operands.
REAL = {"abs": None, "real": None, "imag": None, "angle": None, "norm": None, "var": None, "std": None, "matrix_norm": None, "svdvals": None, "l1": None, "triplet_margin": None, "pairwise_distance": None,
        "eigvalsh": None, "cond": None, "view_as_real": None, "slogdet": (1,), "svd": (1,), "eigh": (0,), "var_mean": (0,), "std_mean": (0,)}
COMPLEX = ("complex", "polar", "eig", "eigvals", "view_as_complex")


def raw(tensor):
    """A tensor's elements in NumPy, bf16 as its bits."""
    t = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return t.view(torch.uint16).numpy() if t.dtype == torch.bfloat16 else t.numpy()


class Writer:
    """A tape with PyTorch's tensors as inputs: each becomes an input once."""

    def __init__(self):
        self.tape = tapes.Tape()
        self.sources = []  # the PyTorch tensor of each input, or None
        self.no_gradient = False
        self.no_second = False
        self.off = 0.0  # by how much PyTorch's own integers may be off
        self.loose = 0.0  # a relative error that PyTorch's own f64 has
        self.skipped = None  # where nothing is compared: poles
        self.no_values = False  # the numbers are a generator's own, or nobody's: shape and type are compared
        self._seen = {}

    def __call__(self, x, dtype=None):
        """The value of a PyTorch tensor (converted to `dtype`), or of a number in `dtype`."""
        if not isinstance(x, torch.Tensor):
            value = self.tape.input(NAMES[dtype], raw(torch.tensor(x, dtype=dtype)))
            value.dtype = NAMES[dtype]
            self.sources.append(None)
            return value
        if id(x) not in self._seen:
            value = self.tape.input(NAMES[x.dtype], raw(x))
            value.dtype = NAMES[x.dtype]
            self.sources.append(x)
            self._seen[id(x)] = value
        value = self._seen[id(x)]
        return value if dtype in (None, x.dtype) else self.convert(value, dtype)

    def grad(self, y, x, cotangent):
        """The slope of y along x, one of the inputs, by what is known of y's."""
        result = self.tape.op("grad", y, x, cotangent)
        result.dtype = x.dtype
        return result

    def constant(self, array):
        value = self.tape.input(weft.name_of(array), array)
        value.dtype = weft.name_of(array)
        self.sources.append(None)
        return value

    def convert(self, value, dtype):
        name = NAMES[dtype] if isinstance(dtype, torch.dtype) else dtype
        if value.dtype in weft.PARTS and name not in weft.PARTS:
            value = self.op("real", value)
        return value if value.dtype == name else self.op("convert", value, dtype=name)

    def op(self, name, *operands, **attrs):
        declared = weft.OPS[name]["operands"]
        flat = [(min(i, len(declared) - 1), x) for i, o in enumerate(operands) for x in (o if isinstance(o, (list, tuple)) else [o])]
        for i, x in flat:
            if x is not None and _API.get(x.dtype, x.dtype) not in declared[i]["dtypes"]:
                raise Refused("dtype")
        result = self.tape.op(name, *operands, **attrs)
        first = next((x for i, x in flat if x is not None and declared[i]["dtypes"] != ["bool"]), None)
        dtype = attrs.get("dtype") or (first.dtype if first else "f32" if name != "iota" else "i32")
        if name in ("eq", "ne", "lt", "le", "gt", "ge", "compare", "is_nan", "is_finite", "all", "any") + PREDICATES:
            dtype = "i1"
        if name in ("argmax", "argmin"):
            dtype = "i32"
        if name in ("sum", "prod", "cumsum", "cumprod") and dtype == "i1":
            dtype = "i64"
        to_complex = {part: name for name, part in weft.PARTS.items()}
        for i, r in enumerate(result if isinstance(result, list) else [result]):
            real = name in REAL and (REAL[name] is None or i in REAL[name])
            r.dtype = weft.PARTS.get(dtype, dtype) if real else to_complex.get(dtype, dtype) if name in COMPLEX else dtype
        return result


PROCESSED = set()  # names whose results are compared as OpInfo makes them unique (absolute values of vectors with a free sign)
OF_TYPES = {"nextafter"}  # names that mean something else in each type
# Names whose integers become f32: what is right is of the same integers in f64.
WIDENED = {"sinc", "special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1", "special.airy_ai", "special.ndtr"}
MAPPED = {}  # name -> function(writer, sample) -> values
SUMS = set()  # names whose results are sums of products: cancellation is judged against the largest element


def maps(*names, sums=False):
    def add(function):
        for name in names:
            assert name not in MAPPED, name
            MAPPED[name] = function
            if sums:
                SUMS.add(name)
        return function
    return add


def axis_of(dim, rank):
    """A tensor without dimensions is as one element in a row: its axes 0 and -1 are that row's."""
    return int(dim) % max(1, rank)


def shaped(t, s, value, result=None):
    """In the shape of PyTorch's result, where ours is a row of one element, or a result of elements read as a row."""
    return t.op("reshape", value, shape=list((s.result if result is None else result).shape))


def argument(s, place, name, default=None):
    """A PyTorch argument that may come by position (0 is the first after the input) or by name."""
    return s.args[place] if len(s.args) > place else s.kwargs.get(name, default)


# --- elementwise -----------------------------------------------------------------------------------------------------

def unary(torch_name, weft_name, floats=False, same=()):
    """`floats`: PyTorch takes integers to f32 first; `same`: the types whose elements stay what they are."""
    @maps(torch_name)
    def call(t, s):
        x = s.input
        if NAMES[x.dtype] in same:
            return shaped(t, s, t(x))
        if floats and not x.is_floating_point() and not x.is_complex():
            return t.op(weft_name, t(x, torch.get_default_dtype()))
        return t.op(weft_name, t(x))


WHOLE = ("i8", "i16", "i32", "i64", "ui8")
for _name in ("neg", "bitwise_not"):
    unary(_name, _name)
unary("abs", "abs", same=("ui8",))
for _name in ("ceil", "floor", "trunc"):
    unary(_name, _name, same=WHOLE)
for _name in ("exp", "exp2", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "tanh", "sqrt", "rsqrt", "sigmoid", "erf"):
    unary(_name, _name, floats=True)
unary("erfinv", "erf_inv", floats=True)
unary("round", "round", same=WHOLE)
unary("round/decimals_0", "round", same=WHOLE)
for _name in ("relu", "silu"):
    unary("nn.functional." + _name, _name)


@maps("square")
def square(t, s):
    return t.convert(t(s.input), torch.int64) if s.input.dtype == torch.bool else t.op("square", t(s.input))


@maps("nn.functional.relu6")
def relu6(t, s):
    return t.op("relu6", t(s.input)) if s.input.is_floating_point() else t.op("clip", t(s.input), low=0.0, high=6.0)


@maps("sign", "sgn")
def sign(t, s):
    """Numbers that are never negative have the sign of whether they are 0."""
    return t.convert(t(s.input, torch.bool), s.input.dtype) if s.input.dtype in (torch.uint8, torch.bool) else t.op("sign", t(s.input))


@maps("isfinite", "isnan")
def is_number(t, s):
    """Integers are numbers."""
    if not s.input.is_floating_point() and not s.input.is_complex():
        return t.op("full", shape=list(s.input.shape), value=float(s.name == "isfinite"), dtype="i1")
    return t.op({"isfinite": "is_finite", "isnan": "is_nan"}[s.name], t(s.input))


@maps("nn.functional.gelu")
def gelu(t, s):
    return t.op("gelu", t(s.input), form="tanh" if s.kwargs.get("approximate") == "tanh" else "erf")


@maps("nn.functional.elu")
def elu(t, s):
    if s.kwargs.get("scale", 1) != 1 or s.kwargs.get("input_scale", 1) != 1:
        raise Refused("scale")
    return t.op("elu", t(s.input), alpha=float(argument(s, 0, "alpha", 1.0)))


@maps("nn.functional.leaky_relu")
def leaky_relu(t, s):
    return t.op("leaky_relu", t(s.input), slope=float(argument(s, 0, "negative_slope", 0.01)))


@maps("nn.functional.softplus")
def softplus(t, s):
    return t.op("softplus_beta", t(s.input), beta=float(s.kwargs.get("beta", 1)), threshold=float(s.kwargs.get("threshold", 20)))


@maps("nn.functional.hardtanh")
def hardtanh(t, s):
    low, high = float(argument(s, 0, "min_val", -1.0)), float(argument(s, 1, "max_val", 1.0))
    if low == high:
        t.no_gradient = True  # PyTorch's is 0 outside an open interval, ours that of min and max
    return t.op("clip", t(s.input), low=low, high=high)


def pair(t, x, y, dtype=None):
    dtype = dtype or torch.result_type(x, y)
    return t(x, dtype), t(y, dtype)


def binary(torch_name, weft_name, swap=False):
    @maps(torch_name)
    def call(t, s):
        x, y = pair(t, s.input, s.args[0])
        alpha = s.kwargs.get("alpha", 1)
        if alpha != 1 and x.dtype in ("i1", "ui8", "i8", "i16", "i32", "i64") or isinstance(alpha, complex):
            factor = t(alpha, s.result.dtype)
            x, y = (t.op("mul", x, factor), y) if swap else (x, t.op("mul", y, factor))
        elif alpha != 1:  # x plus or minus alpha y with one rounding; alpha stands with what is subtracted
            one = t.op("full", shape=[], value=1.0, dtype=x.dtype)
            return t.op("addcmul", *((y, x) if swap else (x, y)), one, value=float(alpha) * (-1 if weft_name == "sub" else 1))
        return t.op(weft_name, *((y, x) if swap else (x, y)))


for _name in ("add", "sub", "mul", "fmod", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and",
              "bitwise_or", "bitwise_xor"):
    binary(_name, {"fmod": "rem"}.get(_name, _name))
binary("max/binary", "maximum")
binary("min/binary", "minimum")
binary("clamp_min", "maximum")
binary("clamp_max", "minimum")
binary("bitwise_left_shift", "shift_left")
binary("bitwise_right_shift", "shift_right_arithmetic")
binary("rsub", "sub", swap=True)
binary("__radd__", "add", swap=True)
binary("__rsub__", "sub", swap=True)
binary("__rmul__", "mul", swap=True)
binary("__rand__", "bitwise_and", swap=True)
binary("__ror__", "bitwise_or", swap=True)
binary("__rxor__", "bitwise_xor", swap=True)


@maps("div/no_rounding_mode", "true_divide", "__rdiv__", "atan2")
def of_floats(t, s):
    """PyTorch takes integers to f32 first."""
    dtype = torch.result_type(s.input, s.args[0])
    x, y = pair(t, s.input, s.args[0], dtype if dtype.is_floating_point or dtype.is_complex else torch.float32)
    return t.op("atan2", x, y) if s.name == "atan2" else t.op("div", *((y, x) if s.name == "__rdiv__" else (x, y)))


@maps("pow", "__rpow__")
def power(t, s):
    x, y = s.input, s.args[0]
    if s.name == "__rpow__":
        x, y = y, x
    return t.op("pow", *pair(t, x, y))


@maps("clamp")
def clamp(t, s):
    low, high = argument(s, 0, "min"), argument(s, 1, "max")
    dtype = s.input.dtype
    for bound in (low, high):
        if bound is not None:
            dtype = torch.promote_types(dtype, torch.result_type(s.input, bound))
    x = t(s.input, dtype)
    if low is not None and high is not None and all(torch.as_tensor(b).shape in ((), s.input.shape) for b in (low, high)):
        return t.op("clamp", t(low, dtype), x, t(high, dtype))
    x = x if low is None else t.op("maximum", x, t(low, dtype))
    return x if high is None else t.op("minimum", x, t(high, dtype))


@maps("where")
def where(t, s):
    dtype = torch.result_type(s.input, s.args[1])
    return t.op("where", t(s.args[0]), t(s.input, dtype), t(s.args[1], dtype))


@maps("float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "cfloat", "cdouble", "to")
def convert(t, s):
    names = {"float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16, "int": torch.int32,
             "long": torch.int64, "short": torch.int16, "char": torch.int8, "byte": torch.uint8, "bool": torch.bool, "cfloat": torch.complex64, "cdouble": torch.complex128}
    dtype = names.get(s.name)
    if dtype is None:
        dtype = next((a.dtype if isinstance(a, torch.Tensor) else a for a in s.args if isinstance(a, (torch.dtype, torch.Tensor))),
                     s.kwargs.get("dtype", s.input.dtype))
    if s.input.is_complex() and not dtype.is_complex:
        return t.op("convert", t.op("real", t(s.input)), dtype=NAMES[dtype])
    if s.input.is_floating_point() and dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        info = torch.iinfo(dtype)
        whole = s.input.double().trunc()
        if not bool(((whole >= info.min) & (whole <= info.max)).all()):
            raise Refused("out of range")
    return t.op("convert", t(s.input), dtype=NAMES[dtype])


# --- filled tensors --------------------------------------------------------------------------------------------------

@maps("full", "zeros", "ones", "full_like", "zeros_like", "ones_like", "new_full", "new_zeros", "new_ones")
def filled(t, s):
    """No inputs: the number is part of the program."""
    like = isinstance(s.input, torch.Tensor)
    if s.name.endswith("_like"):
        shape, rest = s.input.shape, s.args
    else:
        shape, rest = (s.args[0], s.args[1:]) if like else (s.input, s.args)
    value = float(s.name.startswith(("ones", "new_ones"))) if "full" not in s.name else rest[0] if rest else s.kwargs["fill_value"]
    dtype = s.kwargs.get("dtype") or (s.input.dtype if like else torch.get_default_dtype() if "full" not in s.name
                                      else torch.tensor(value).dtype)
    shape = [shape] if isinstance(shape, int) else list(shape)
    if dtype.is_complex:
        value = complex(value)
        return t.op("full", shape=shape, value=value.real, imaginary=value.imag, dtype=NAMES[dtype])
    value = float(bool(value)) if dtype == torch.bool else float(value)
    value = value % 256 if dtype == torch.uint8 else value  # PyTorch's numbers below 0
    return t.op("full", shape=shape, value=value, dtype=NAMES[dtype])


# --- shapes ----------------------------------------------------------------------------------------------------------

@maps("reshape", "view", "reshape_as", "view_as", "view_copy", "ravel", "unflatten", "atleast_1d", "atleast_2d", "atleast_3d")
def reshape(t, s):
    """The result's shape is PyTorch's own; which elements come where is compared."""
    xs = s.input if isinstance(s.input, (list, tuple)) else [s.input, *[a for a in s.args if s.name.startswith("atleast")]]
    shapes = [list(r.shape) for r in (s.result if isinstance(s.result, (list, tuple)) else [s.result])]
    if s.name == "view" and s.args and isinstance(s.args[0], torch.dtype):
        raise Refused("view of bytes")
    return [t.op("reshape", t(x), shape=shape) for x, shape in zip(xs, shapes)]


@maps("expand", "expand_as", "expand_copy", "broadcast_to")
def expand(t, s):
    return t.op("broadcast_to", t(s.input), shape=list(s.result.shape))


@maps("broadcast_tensors")
def broadcast_tensors(t, s):
    xs = [s.input, *s.args] if isinstance(s.input, torch.Tensor) else list(s.input)
    return [t.op("broadcast_to", t(x), shape=list(r.shape)) for x, r in zip(xs, s.result)]


@maps("transpose", "transpose_copy", "t", "t_copy", "T", "H", "mT", "mH", "permute", "permute_copy", "movedim")
def transpose(t, s):
    x = s.input
    order = list(range(x.ndim))
    if s.name in ("transpose", "transpose_copy"):
        if x.ndim:
            a, b = (d % x.ndim for d in s.args)
            order[a], order[b] = order[b], order[a]
    elif s.name in ("t", "t_copy", "T", "H"):
        order = order[::-1]
    elif s.name in ("mT", "mH"):
        order[-2:] = order[-2:][::-1]
    elif s.name == "movedim":
        source, target = ([a] if isinstance(a, int) else list(a) for a in s.args)
        order = [d for d in order if d not in [d % x.ndim for d in source]]
        for to, of in sorted((b % x.ndim, a % x.ndim) for a, b in zip(source, target)):
            order.insert(to, of)
    else:
        dims = s.args[0] if isinstance(s.args[0], (list, tuple)) else s.args
        order = [d % x.ndim for d in dims]
    y = t.op("transpose", t(x), permutation=order)
    return t.op("conj", y) if x.is_complex() and s.name in ("H", "mH") else y


@maps("flip", "fliplr", "flipud")
def flip(t, s):
    dims = {"fliplr": [1], "flipud": [0]}.get(s.name) or argument(s, 0, "dims", [])
    return t.op("reverse", t(s.input), dimensions=[d % s.input.ndim for d in dims])


@maps("unsqueeze", "unsqueeze_copy")
def unsqueeze(t, s):
    return t.op("expand_dims", t(s.input), dims=[s.args[0] % (s.input.ndim + 1)])


@maps("squeeze", "squeeze/multiple", "squeeze_copy")
def squeeze(t, s):
    x = s.input
    dims = argument(s, 0, "dim")
    if dims is None:
        return t.op("squeeze", t(x))
    dims = [axis_of(d, x.ndim) for d in (dims if isinstance(dims, (list, tuple)) else [dims])]
    return t.op("squeeze", t(x), dims=[d for d in dims if x.ndim == 0 or x.shape[d] == 1])  # PyTorch leaves the others alone


@maps("cat")
def cat(t, s):
    xs = [x for x in s.input if x.shape != (0,) or s.result.shape == (0,)]  # PyTorch skips an empty vector
    dtype = s.result.dtype
    return t.op("concatenate", [t(x, dtype) for x in xs], dimension=argument(s, 0, "dim", 0) % xs[0].ndim)


@maps("hstack", "vstack", "dstack", "column_stack")
def joined(t, s):
    at_least = {"hstack": torch.atleast_1d, "vstack": torch.atleast_2d, "dstack": torch.atleast_3d,
                "column_stack": lambda x: x.reshape(-1, 1) if x.ndim < 2 else x}[s.name]
    axis = {"hstack": min(1, at_least(s.input[0]).ndim - 1), "vstack": 0, "dstack": 2, "column_stack": 1}[s.name]
    return t.op("concatenate", [t.op("reshape", t(x, s.result.dtype), shape=list(at_least(x).shape)) for x in s.input], dimension=axis)


@maps("stack")
def stack(t, s):
    return t.op("stack", [t(x, s.result.dtype) for x in s.input], axis=argument(s, 0, "dim", 0) % s.result.ndim)


@maps("split", "split/list_args", "unsafe_split", "split_with_sizes", "split_with_sizes_copy", "chunk", "unsafe_chunk", "tensor_split",
      "hsplit", "vsplit", "dsplit")
def split(t, s):
    rank = s.input.ndim
    axis = {"hsplit": 0 if rank == 1 else 1, "vsplit": 0, "dsplit": 2}.get(s.name)
    if axis is None:
        axis = argument(s, 1, "dim", 0) % rank
    values, start = [], 0
    for piece in s.result:
        values.append(t.op("slice_in_dim", t(s.input), axis=axis, start=start, limit=start + piece.shape[axis]))
        start += piece.shape[axis]
    return values


@maps("unbind", "unbind_copy")
def unbind(t, s):
    axis = axis_of(argument(s, 0, "dim", 0), s.input.ndim)
    return [t.op("squeeze", t.op("slice_in_dim", t(s.input), axis=axis, start=i, limit=i + 1), dims=[axis])
            for i in range(s.input.shape[axis])]


@maps("narrow", "narrow_copy")
def narrow(t, s):
    axis, start, length = s.args[0] % s.input.ndim, int(s.args[1]), s.args[2]
    start += s.input.shape[axis] if start < 0 else 0
    return t.op("slice_in_dim", t(s.input), axis=axis, start=start, limit=start + length)


@maps("slice")
def slice_(t, s):
    axis = argument(s, 0, "dim", 0) % s.input.ndim
    start, end, step = slice(argument(s, 1, "start"), argument(s, 2, "end"), argument(s, 3, "step", 1)).indices(s.input.shape[axis])
    return t.op("slice_in_dim", t(s.input), axis=axis, start=start, limit=max(start, end), step=step)


@maps("select")
def select(t, s):
    axis = s.args[0] % s.input.ndim
    at = s.args[1] % s.input.shape[axis]
    return t.op("squeeze", t.op("slice_in_dim", t(s.input), axis=axis, start=at, limit=at + 1), dims=[axis])


@maps("index_select")
def index_select(t, s):
    return shaped(t, s, t.op("take", t(s.input), t(s.args[1]), axis=axis_of(s.args[0], s.input.ndim)))


@maps("take")
def take(t, s):
    index = torch.where(s.args[0] < 0, s.args[0] + s.input.numel(), s.args[0])
    return t.op("take", t.op("reshape", t(s.input), shape=[s.input.numel()]), t(index), axis=0)


@maps("constant_pad_nd", "nn.functional.pad/constant")
def pad(t, s):
    pads, value = argument(s, 0, "pad"), argument(s, 1 if s.name == "constant_pad_nd" else 2, "value", 0)
    rank = s.input.ndim
    low, high = [0] * rank, [0] * rank
    for i in range(len(pads) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = pads[2 * i], pads[2 * i + 1]
    return t.op("pad", t(s.input), t(0 if value is None else value, s.input.dtype), edge_padding_low=low, edge_padding_high=high,
                interior_padding=[0] * rank)


# --- reductions ------------------------------------------------------------------------------------------------------

def axes_of(s, place=0):
    """Weft's dims for PyTorch's dim: None is all, and so is []."""
    dim = argument(s, place, "dim")
    if dim is None or dim == [] or dim == ():
        return None
    dims = list(dim) if isinstance(dim, (list, tuple)) else [dim]
    return [d % s.input.ndim for d in dims] if s.input.ndim else None


@maps("sum", "mean", "prod", "amax", "amin", "all", "any", sums=True)
def reduction(t, s):
    x, dtype = s.input, s.kwargs.get("dtype")
    if s.name in ("all", "any") + PREDICATES:
        dtype = torch.bool
    if dtype is None and s.name in ("sum", "prod") and not x.is_floating_point() and not x.is_complex():
        dtype = torch.int64
    y = t.op({"amax": "max", "amin": "min"}.get(s.name, s.name), t(x, dtype), dims=axes_of(s), keepdims=bool(argument(s, 1, "keepdim", False)))
    return t.convert(y, s.result.dtype)


@maps("max/reduction_no_dim", "min/reduction_no_dim")
def largest(t, s):
    return t.op(s.name, t(s.input))


@maps("max/reduction_with_dim", "min/reduction_with_dim")
def largest_and_place(t, s):
    dim, keep = argument(s, 0, "dim"), bool(argument(s, 1, "keepdim", False))
    axis = axis_of(dim, s.input.ndim)
    best = s.result[0] if keep or s.input.ndim == 0 else s.result[0].unsqueeze(axis)
    if bool(((s.input == best).sum(axis) > 1).any()):
        t.no_gradient = True  # equal largest elements share ours, PyTorch's goes to one
    x = t(s.input)
    numbers = t(s.input, torch.uint8 if s.input.dtype == torch.bool else None)
    return [t.op(s.name, x, dims=[axis], keepdims=keep), t.op("arg" + s.name, numbers, axis=axis, keepdims=keep)]


@maps("argmax", "argmin")
def place(t, s):
    dim, keep = argument(s, 0, "dim"), bool(argument(s, 1, "keepdim", False))
    x = t(s.input)
    if dim is None:
        return t.op(s.name, t.op("reshape", x, shape=[s.input.numel()]), axis=0)
    return t.op(s.name, x, axis=axis_of(dim, s.input.ndim), keepdims=keep)


@maps("var", "std", "var_mean", "std_mean", "var/unbiased", "std/unbiased", "var_mean/unbiased", "std_mean/unbiased", sums=True)
def variance(t, s):
    x = s.input
    if s.variant == "unbiased":
        dims, keep, correction = None, False, int(s.args[0])
    else:
        dims, keep = axes_of(s), s.kwargs.get("keepdim", False)
        correction = s.kwargs.get("correction", int(s.kwargs.get("unbiased", True)))
        correction = 1 if correction is None else correction
    count = int(np.prod([x.shape[d] for d in (dims if dims is not None else range(x.ndim))], dtype="i8"))
    if correction > count:
        raise Refused("correction")
    parts, whole = s.name.split("_"), int(correction // 1)
    values = [t.op(parts[0], t(x), dims=dims, keepdims=keep, correction=whole, fraction=float(correction) - whole)]
    return values + [t.op("mean", t(x), dims=dims, keepdims=keep)] if len(parts) == 2 else values


def far(x):
    """Whether differences of elements lose digits that no formula gives back."""
    return x.dtype != torch.bool and bool((x.detach().abs() > 1e3).any())


@maps("logsumexp", sums=True)
def logsumexp(t, s):
    x = s.input
    t.no_gradient = far(x)
    return t.op("logsumexp", t(x, None if x.is_floating_point() or x.is_complex() else torch.float32), dims=axes_of(s),
                keepdims=bool(argument(s, 1, "keepdim", False)))


@maps("softmax", "softmax/with_dtype", "log_softmax", "log_softmax/with_dtype", sums=True)
def softmax(t, s):
    x = t(s.input, s.kwargs.get("dtype"))
    return t.op(s.name, x, axis=axis_of(s.args[0], s.input.ndim))
