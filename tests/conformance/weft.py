"""A thin Python client of libweft.so: ctypes and NumPy, every signature, code, dtype and operation read from
bindings/generate/api.json and ops.json when this module is loaded. For outside judges (PyTorch's samples, NumPy
definitions, random programs); not a binding: no operators, no broadcasting rules of its own.

    ctx = weft.Context()                       # WEFT_LIB or weft.load(path) says which library
    x = ctx.tensor(np.float32([1, 2]))         # dtype from the array; bf16: ctx.tensor(weft.encode("bf16", values), "bf16")
    y = ctx.softmax(x, axis=0)                 # every exported operation; operands first, attributes by name
    y.numpy(), y.values()                      # raw elements (bf16 as uint16), and as float64 where they are floats
"""
import ctypes
import json
import os
import pathlib

import numpy as np

SOURCE = pathlib.Path(os.environ.get("WEFT_SOURCE") or pathlib.Path(__file__).resolve().parents[2])
API = json.loads((SOURCE / "bindings" / "generate" / "api.json").read_text(encoding="utf-8"))
OPS = {op["c_name"]: op for op in json.loads((SOURCE / "include" / "c_api" / "ops.json").read_text(encoding="utf-8"))["ops"]
       if op["exported"]}

_ENUMS = {e["name"]: {v["name"]: v["value"] for v in e["values"]} for e in API["enums"]}
CODES = {value: name.removeprefix("WEFT_") for name, value in _ENUMS["weft_code"].items()}
_VALUE = {name.removeprefix("WEFT_VALUE_").lower(): value for name, value in _ENUMS["weft_value_type"].items()}
# Names as StableHLO spells them ("ui8"), and NumPy's type of the same bytes; bf16 has none of its own.
_STORAGE = {"i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "ui8": "u1", "ui16": "u2", "ui32": "u4", "ui64": "u8",
            "f16": "f2", "f32": "f4", "f64": "f8", "bf16": "u2", "i1": "?", "complex<f32>": "c8", "complex<f64>": "c16"}
_C_NAME = {"ui8": "U8", "ui16": "U16", "ui32": "U32", "ui64": "U64", "i1": "BOOL",
           "complex<f32>": "C64", "complex<f64>": "C128"}
DTYPES = {name: _ENUMS["weft_dtype"]["WEFT_" + _C_NAME.get(name, name.upper())] for name in _STORAGE}
_DTYPE_NAMES = {code: name for name, code in DTYPES.items()}
_OF_NUMPY = {np.dtype(storage): name for name, storage in _STORAGE.items() if name != "bf16"}
FLOATS = ("f16", "bf16", "f32", "f64")
PARTS = {"complex<f32>": "f32", "complex<f64>": "f64"}  # complex types, and those of their parts
# Bits of the significand with the hidden one, and the exponent of the smallest normal number.
_FORMAT = {"f16": (11, -14), "bf16": (8, -126), "f32": (24, -126), "f64": (53, -1022)}


class WeftError(Exception):
    """An error of the library: `code` is its name ("INVALID_ARGUMENT"), the text what weft_error_message says."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


def storage(dtype):
    return np.dtype(_STORAGE[dtype])


def name_of(array):
    """The dtype's name for a NumPy array (never bf16, which NumPy lacks)."""
    return _OF_NUMPY[np.asarray(array).dtype.newbyteorder("=")]


def encode(dtype, values):
    """float64 values rounded once, to nearest even, as the raw elements of `dtype`."""
    with np.errstate(all="ignore"):
        if dtype != "bf16":
            return np.asarray(values).astype(_STORAGE[dtype])
        # By way of f32 rounded to odd, so that the second rounding cannot see a tie the first one made.
        x = np.asarray(values, "f8")
        near = x.astype("f4")
        bits = near.view("u4") - (np.abs(near.astype("f8")) > np.abs(x)).astype("u4")  # towards 0; inf becomes the largest
        bits = np.where((near.astype("f8") != x) & ~np.isnan(x), bits | np.uint32(1), near.view("u4"))
        rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype("u2")
        return np.where(np.isnan(x), np.uint16(0x7FC0), rounded).astype("u2")


def decode(dtype, raw):
    """Raw elements as float64 where they are floats, else as they are."""
    if dtype == "bf16":
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return (np.asarray(raw, "u2").astype("u4") << np.uint32(16)).view("f4").astype("f8")
    return np.asarray(raw).astype("f8") if dtype in FLOATS else np.asarray(raw)


def ulp(dtype, values):
    """The distance of neighbours of `dtype` at each value, as float64; at and beyond the largest that of the largest."""
    digits, least = _FORMAT[dtype]
    top = {"f16": 15, "f64": 1023}.get(dtype, 127)
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.abs(np.where(np.isfinite(values), values, 2.0 ** top)))[1] - 1
    return np.ldexp(1.0, np.clip(np.where(values == 0, least, exponent), least, top) - (digits - 1))


_PLAIN = {"void": None, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint32_t": ctypes.c_uint32,
          "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t, "double": ctypes.c_double}


def _ctype(text, result=False):
    if result and text == "const char*":
        return ctypes.c_char_p
    if text.endswith("*") or "*" in text or text in {c["name"] for c in API["callbacks"]}:
        return ctypes.c_void_p
    return ctypes.c_int32 if text in _ENUMS else _PLAIN[text]


def _struct(name):
    declared = next(s for s in API["structs"] if s["name"] == name)
    return type(name, (ctypes.Structure,), {"_fields_": [(f["name"], _ctype(f["type"])) for f in declared["fields"]]})


Attr = _struct("weft_attr")


class _Library:
    """The functions of api.json; those that return an error raise it instead."""

    def __init__(self, path):
        self.path, self._dll = path, ctypes.CDLL(path)
        for f in API["functions"]:
            function = getattr(self._dll, f["name"])
            function.argtypes = [_ctype(p["type"]) for p in f["params"]]
            function.restype = _ctype(f["returns"], result=True)
            fails = f["returns"] == "weft_error*" and not f["name"].startswith("weft_error_new")
            setattr(self, f["name"].removeprefix("weft_"), self._raising(function) if fails else function)

    def _raising(self, function):
        def call(*arguments):
            error = function(*arguments)
            if error:
                code, text = self.error_code(error), self.error_message(error, None).decode()
                self.error_release(error)
                raise WeftError(CODES.get(code, str(code)), text)
        return call


_library = None


def load(path=None):
    """The library (WEFT_LIB where no path is given); one a process."""
    global _library
    path = os.path.realpath(path or os.environ["WEFT_LIB"])
    if _library is None:
        _library = _Library(path)
    assert _library.path == path, f"{_library.path} is loaded already"
    return _library


class Tensor:
    """Owns one handle."""

    def __init__(self, ctx, handle):
        self.ctx, self.handle = ctx, handle

    def __del__(self):
        _library.tensor_release(self.handle)

    @property
    def dtype(self):
        code = ctypes.c_int32()
        _library.tensor_dtype(self.handle, ctypes.byref(code))
        return _DTYPE_NAMES[code.value]

    @property
    def shape(self):
        rank = ctypes.c_size_t()
        _library.tensor_rank(self.handle, ctypes.byref(rank))
        dims = (ctypes.c_int64 * max(rank.value, 1))()
        _library.tensor_dims(self.handle, dims, rank, ctypes.byref(rank))
        return tuple(dims[:rank.value])

    def numpy(self):
        array = np.empty(self.shape, storage(self.dtype))
        _library.tensor_to_host(self.handle, array.ctypes.data, array.nbytes)
        return array

    def values(self):
        return decode(self.dtype, self.numpy())

    def require_grad(self, on=True):
        _library.tensor_require_grad(self.handle, int(on))
        return self


def _handles(tensors):
    return (ctypes.c_void_p * max(len(tensors), 1))(*[t.handle if t is not None else None for t in tensors])


class Context:
    """One context. Options as in weft_option_list: Context(mode="eager", cache_mode="off")."""

    def __init__(self, **options):
        load(_library.path if _library else None)
        setting = _struct("weft_setting")
        fields = [("struct_size", ctypes.c_size_t), ("next", ctypes.c_void_p)] + list(_struct("weft_context_options")._fields_)
        struct = type("weft_context_options", (ctypes.Structure,), {"_fields_": fields})(ctypes.sizeof(ctypes.c_size_t))
        texts = [(k.encode(), str(v).encode()) for k, v in {"cache_mode": "off", **options}.items()]
        keep = [ctypes.create_string_buffer(t) for pair in texts for t in pair]
        list_ = (setting * len(texts))(*[setting(ctypes.addressof(keep[2 * i]), len(k), ctypes.addressof(keep[2 * i + 1]), len(v))
                                         for i, (k, v) in enumerate(texts)])
        struct.struct_size, struct.settings, struct.setting_count = ctypes.sizeof(struct), ctypes.addressof(list_), len(texts)
        struct.min_log_level = _ENUMS["weft_log_level"]["WEFT_LOG_OFF"]
        self.handle = ctypes.c_void_p()
        _library.context_create(ctypes.addressof(struct), ctypes.byref(self.handle))

    def __del__(self):
        if getattr(self, "handle", None):
            _library.context_release(self.handle)

    def tensor(self, array, dtype=None):
        """A tensor of the array's elements, bit for bit. `dtype` is needed for bf16, whose raw elements are uint16."""
        array = np.asarray(array, order="C")
        dtype = dtype or name_of(array)
        assert array.dtype == storage(dtype), f"{array.dtype} elements are not those of {dtype}"
        dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        handle = ctypes.c_void_p()
        _library.tensor_from_host(self.handle, None, DTYPES[dtype], dims, array.ndim, array.ctypes.data, array.nbytes,
                                  ctypes.byref(handle))
        return Tensor(self, handle)

    def apply(self, op, inputs, attrs):
        """One operation by name: a list of its results. Enumerators and dtypes by name; attributes that are None are absent."""
        keep, given = [], []
        for name, value in attrs.items():
            if value is not None:
                given.append(_attribute(op, name, value, keep))
        results, count = (ctypes.c_void_p * 8)(), ctypes.c_size_t()
        _library.op_apply(self.handle, op.encode(), len(op), _handles(inputs), len(inputs), (Attr * max(len(given), 1))(*given),
                          len(given), results, len(results), ctypes.byref(count))
        return [Tensor(self, ctypes.c_void_p(results[i])) for i in range(count.value)]

    def grad(self, y, xs, cotangent=None):
        out = (ctypes.c_void_p * max(len(xs), 1))()
        _library.grad(self.handle, y.handle, cotangent.handle if cotangent is not None else None, _handles(xs), len(xs), out)
        return [Tensor(self, ctypes.c_void_p(h)) for h in out[:len(xs)]]

    def sync(self):
        _library.sync(self.handle, None, None)

    def eval(self, tensors):
        _library.eval(self.handle, _handles(tensors), len(tensors), None)

    def seed(self, value):
        _library.random_seed(self.handle, value)

    def random_state(self):
        state = [ctypes.c_uint64() for _ in range(3)]
        _library.random_get_state(self.handle, *map(ctypes.byref, state))
        return tuple(v.value for v in state)


class _Info(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int32), ("rank", ctypes.c_uint32), ("dims", ctypes.c_int64 * 32)]


class Body:
    """Where a function of inputs [(dtype, shape)] is recorded: `context` and `parameters`, then end(results) is the function."""

    def __init__(self, ctx, inputs):
        infos = (_Info * max(len(inputs), 1))()
        for info, (dtype, shape) in zip(infos, inputs):
            info.dtype, info.rank, info.dims[:len(shape)] = DTYPES[dtype], len(shape), shape
        handle, parameters = ctypes.c_void_p(), (ctypes.c_void_p * max(len(inputs), 1))()
        _library.function_begin(ctx.handle, b"f", 1, ctypes.addressof(infos), len(inputs), ctypes.byref(handle), parameters)
        self.ctx, self.context = ctx, Context.__new__(Context)
        self.context.handle = handle
        self.parameters = [Tensor(self.context, ctypes.c_void_p(p)) for p in parameters[:len(inputs)]]

    def end(self, results):
        out = ctypes.c_void_p()
        _library.function_end(self.context.handle, _handles(results), len(results), ctypes.byref(out))
        return Function(self.ctx, out)


class Function:
    """Owns one handle; a call gives a list of results."""

    def __init__(self, ctx, handle):
        self.ctx, self.handle = ctx, handle

    def __del__(self):
        _library.function_release(self.handle)

    def __call__(self, *inputs):
        outs, count = (ctypes.c_void_p * 64)(), ctypes.c_size_t()
        _library.function_call(self.ctx.handle, self.handle, _handles(inputs), len(inputs), outs, len(outs), ctypes.byref(count))
        return [Tensor(self.ctx, ctypes.c_void_p(o)) for o in outs[:count.value]]

    def _made(self, maker, *arguments):
        out = ctypes.c_void_p()
        maker(self.ctx.handle, self.handle, *arguments, None, ctypes.byref(out))
        return Function(self.ctx, out)

    def vmap(self, size):
        return self._made(_library.function_vmap, size, None, 0, None, 0)

    def grad(self):
        return self._made(_library.function_grad, None, 0)

    def stats(self):
        """weft_program_stats by name; compiles."""
        declared = _struct("weft_program_stats")
        fields = [("struct_size", ctypes.c_size_t), ("next", ctypes.c_void_p)] + list(declared._fields_)
        stats = type("weft_program_stats", (ctypes.Structure,), {"_fields_": fields})()
        stats.struct_size = ctypes.sizeof(stats)
        _library.function_stats(self.ctx.handle, self.handle, None, None, 0, ctypes.addressof(stats))
        return {name: getattr(stats, name) for name, _ in declared._fields_}


def _attribute(op, name, value, keep):
    declared = next((a for a in OPS[op]["attrs"] if a["name"] == name), None) if op in OPS else None
    # What the table does not know is sent by its Python type, so that the library's own refusal is seen.
    kind = declared["type"] if declared else {bool: "bool", int: "int", float: "double", str: "text"}.get(type(value), "ints")
    kind = "text" if kind == "string" else kind
    key = ctypes.create_string_buffer(name.encode())
    keep.append(key)
    attr = Attr(name=ctypes.addressof(key), name_length=len(name), type=_VALUE.get(kind, 0))
    if kind in ("int", "bool"):
        attr.i = int(value)
    elif kind == "double":
        attr.d = value
    elif kind == "dtype":
        attr.i = DTYPES[value]
    elif kind == "enum" and value in declared["enumerators"]:
        attr.i = declared["enumerators"].index(value)
    elif kind in ("ints", "doubles"):
        array = ((ctypes.c_int64 if kind == "ints" else ctypes.c_double) * max(len(value), 1))(*value)
        keep.append(array)
        attr.data, attr.count = ctypes.addressof(array), len(value)
    elif kind in ("text", "enum"):
        text = ctypes.create_string_buffer(value.encode())
        keep.append(text)
        attr.data, attr.count = ctypes.addressof(text), len(value.encode())
    else:
        raise TypeError(f"{op}: an attribute of type {kind} cannot be given")
    return attr


def _method(op):
    def call(self, *operands, **attrs):
        # A variadic operand may come as one list.
        flat = [t for x in operands for t in (x if isinstance(x, (list, tuple)) else [x])]
        results = self.apply(op["c_name"], flat, attrs)
        return results[0] if len(results) == 1 else results
    call.__name__ = op["c_name"]
    call.__doc__ = f"{op['c_name']}({', '.join([o['name'] for o in op['operands']] + [a['name'] + '=' for a in op['attrs']])})\n\n{op['doc']}"
    return call


for _op in OPS.values():
    assert not hasattr(Context, _op["c_name"]), _op["c_name"]
    setattr(Context, _op["c_name"], _method(_op))
