"""What the programs of interpreter_test.py are made of: element types, special values and the frame of a program."""
import re
import zlib

SHOWN = 2000  # letters of a program that are printed

SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("ui8", "ui16", "ui32", "ui64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("f16", "bf16", "f32", "f64")
COMPLEX = ("complex<f32>", "complex<f64>")
ALL = ("i1",) + INTEGERS + FLOATS + COMPLEX
NUMPY = {"i1": "bool", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "complex<f32>": "complex64", "complex<f64>": "complex128",
         **{k: "int" + k[1:] for k in SIGNED}, **{k: "uint" + k[2:] for k in UNSIGNED}}
ELEMENTS = {theirs: ours for ours, theirs in NUMPY.items()}


def dtype_of(kind):
    import numpy
    import ml_dtypes  # noqa: F401: bfloat16 by name
    return numpy.dtype(NUMPY[kind])


def tensor(shape, kind):
    return f"tensor<{''.join(f'{d}x' for d in shape)}{kind}>"


def type_of(x):
    return tensor(x.shape, ELEMENTS[x.dtype.name])


def array(values, kind):
    """Of numbers as Python writes them; integers wrap."""
    import numpy
    dtype = dtype_of(kind)
    if dtype.kind in "iu":
        wide = numpy.array([int(v) % 2 ** (8 * dtype.itemsize) for v in numpy.ravel(numpy.array(values, "O"))], "u8")
        return wide.astype(f"u{dtype.itemsize}").view(dtype).reshape(numpy.shape(values))
    with numpy.errstate(all="ignore"):
        return numpy.array(values).astype(dtype)


def edges(kind):
    """Values at which something special happens."""
    import numpy
    import ml_dtypes
    dtype = dtype_of(kind)
    if kind == "i1":
        return numpy.array([False, True])
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        half = 1 << (bits - 1)
        return array([0, 1, 2, 3, 7, 8, bits - 1, bits, bits + 1, 100, half - 1, half, half + 1, -1, -2, -3, -7, -100], kind)
    if dtype.kind == "c":
        parts = [0.0, -0.0, 1.0, -1.0, 0.5, -2.25, 3.0]
        return numpy.array([complex(a, b) for a in parts for b in parts]).astype(dtype)
    info = ml_dtypes.finfo(dtype)
    return array([numpy.nan, 0.0, -0.0, numpy.inf, -numpy.inf, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3, 0.25, -0.75, 7.5, -100, 1 + 2 ** -7, 0.3,
                  float(info.max), float(info.min), float(info.tiny), -float(info.tiny), float(info.smallest_subnormal), float(info.eps)], kind)


def pairs(kind):
    """Every two of the special values."""
    import numpy
    x = edges(kind)
    return numpy.repeat(x, len(x)), numpy.tile(x, len(x))


def some(rng, kind, shape, whole=False):
    """Values drawn by chance: of integers the whole range; floats near 1, complex ones too. `whole`: small whole numbers."""
    dtype = dtype_of(kind)
    if kind == "i1":
        return rng.integers(0, 2, shape).astype(bool)
    if whole or dtype.kind in "iu" and whole is None:
        low = 0 if dtype.kind == "u" else -4
        x = rng.integers(low, 5, shape)
        return (x + 1j * rng.integers(-4, 5, shape)).astype(dtype) if dtype.kind == "c" else x.astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0, 256, (*shape, dtype.itemsize), "u1").view(dtype).reshape(shape)
    x = rng.standard_normal(shape) * 2
    return (x + 1j * rng.standard_normal(shape)).astype(dtype) if dtype.kind == "c" else x.astype(dtype)


def scalars(*numbers, kind="i32"):
    """Arrays without dimensions, of indices for example."""
    return [array(n, kind) for n in numbers]


def filled(text, **words):
    """The text with {a} in it replaced by the word of that name; other braces stay."""
    return re.sub(r"\{([a-z])\}", lambda found: str(words[found[1]]), text)


class Program:
    """A function `main` of the inputs %a, %b, …, whose results are %0 (or `returns`). The first word of its name is the operation that
    it is about, with "stablehlo." left away. `exact`: floats must be equal, the signs of zeros too; else within `slack` times the
    bound of their type, of the element (`share`: and of this share of the largest). `expected`: the results,
    where nobody else can say them."""

    def __init__(self, name, inputs, results, body, returns="%0", more="", exact=False, slack=1, share=0, expected=None):
        subject = name if " @" in name else name.split(" ")[0]
        self.name, self.operation = name, subject if "." in subject else f"stablehlo.{subject}"
        self.inputs, self.exact, self.slack, self.share, self.expected = inputs, exact, slack, share, expected
        self.results = [results] if isinstance(results, str) else list(results)
        arguments = ", ".join(f"%{chr(97 + i)}: {x if isinstance(x, str) else type_of(x)}" for i, x in enumerate(inputs))
        self.inputs = [x for x in inputs if not isinstance(x, str)]
        kinds = ", ".join(self.results)
        self.text = f"func.func public @main({arguments}) -> ({kinds}) {{\n  {body}\n  return {returns} : {kinds}\n}}\n{more}"

    @property
    def seed(self):
        return zlib.crc32(self.name.encode())


def drawn(name):
    """A generator of its own for each name, so that a new program changes no other."""
    import numpy
    return numpy.random.default_rng(zlib.crc32(name.encode()))
