"""Element types: one object each, `wf.f32`, equal to its name and to NumPy's type of the same meaning."""

from ._abi import DTYPES
from ._errors import InvalidType

# NumPy's and Python's words for the same types; struct's letters for elements on the host.
_OTHER_NAMES = {
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "single": "f32",
    "bfloat16": "bf16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "int": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool_": "bool",
    "complex64": "c64",
    "complex128": "c128",
    "complex": "c64",
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e4m3": "f8e4m3",
    "float8_e3m4": "f8e3m4",
    "float8_e4m3b11fnuz": "f8e4m3b11fnuz",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
    "int4": "i4",
    "uint4": "u4",
    "int2": "i2",
    "uint2": "u2",
}
_NUMPY = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
_LETTERS = {
    "f16": "e",
    "f32": "f",
    "f64": "d",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "bool": "?",
}


class DType:
    """An element type. It equals its own name as text (`wf.f32 == "f32"`)."""

    __slots__ = ("name", "number", "kind", "bits", "computable", "is_float", "is_complex", "is_integer")

    def __init__(self, name):
        self.name = name
        self.number, self.kind, self.bits, self.computable = DTYPES[name]
        self.is_float, self.is_complex, self.is_integer = (
            self.kind == "float",
            self.kind == "complex",
            self.kind.endswith("integer"),
        )

    def __eq__(self, other):
        return self is other or (isinstance(other, str) and _cache.get(other) is self)

    def __hash__(self):
        return hash(self.name)

    def __str__(self):
        return self.name

    def __repr__(self):
        return "libweft." + self.name

    def __reduce__(self):
        return dtype, (self.name,)

    @property
    def itemsize(self):
        """Bytes of an element on the host."""
        return max(self.bits // 8, 1)

    @property
    def letter(self):
        """The letter of `struct`, `array` and `memoryview` for an element, or None."""
        return _LETTERS.get(self.name)

    @property
    def numpy(self):
        """NumPy's type of the same meaning; types that NumPy lacks need the package ml_dtypes."""
        import numpy

        name = _NUMPY.get(self.name)
        if name is not None:
            return numpy.dtype(name)
        try:
            import ml_dtypes
        except ImportError:
            raise InvalidType("NumPy has no %s: install ml_dtypes, or convert first: x.astype('f32')" % self) from None
        back = {v: k for k, v in _OTHER_NAMES.items()}
        return numpy.dtype(getattr(ml_dtypes, back[self.name]))


BY_NAME = {name: DType(name) for name in DTYPES}
BY_NUMBER = {d.number: d for d in BY_NAME.values()}
_cache = dict(BY_NAME)
_cache.update({other: BY_NAME[name] for other, name in _OTHER_NAMES.items()})
_cache.update({float: BY_NAME["f32"], int: BY_NAME["i64"], bool: BY_NAME["bool"], complex: BY_NAME["c64"]})


def dtype(word):
    """The element type for a name, a type of Python's or one of NumPy's."""
    try:
        return _cache[word]
    except (KeyError, TypeError):
        pass
    name = getattr(word, "name", None) or getattr(word, "__name__", None)
    if isinstance(name, str) and name in _cache:
        return _cache[name]
    raise InvalidType("%r is no element type; there are %s" % (word, ", ".join(n for n, d in BY_NAME.items() if d.computable)))


def number(word):
    """The number of an element type in C."""
    return dtype(word).number


def of_number(value):
    return BY_NUMBER[value]


def promoted(a, b):
    """The type that holds values of both: integers as in NumPy, an integer and a float give the float, as in PyTorch and
    JAX."""
    if a is b:
        return a
    order = ("bool", "integer", "float", "complex")
    ranks = [order.index(d.kind.split()[-1]) for d in (a, b)]
    low, high = (a, b) if ranks[0] <= ranks[1] else (b, a)
    if ranks[0] == ranks[1]:
        return _of_one_kind(low, high)
    if high.is_complex and low.is_float:
        return BY_NAME["c128"] if low.bits > 32 or high.bits > 64 else BY_NAME["c64"]
    return high


def _of_one_kind(a, b):
    small, large = sorted((a, b), key=lambda d: d.bits)
    if a.kind == b.kind:
        return BY_NAME["f32"] if a.bits == b.bits else large
    signed, unsigned = (a, b) if a.kind.startswith("signed") else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return BY_NAME["f64"] if unsigned.bits == 64 else BY_NAME["i%d" % (unsigned.bits * 2)]
