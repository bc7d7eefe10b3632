"""Programs of StableHLO with quantised types, run by Weft: the integers must be those that NumPy gives by the specification's
formulas. What StableHLO's own interpreter computes (jaxlib's eval_module, after the pass that writes quantised operations as
dequantise, compute, quantise) is compared too, for every second program that it
can run (signed integers for f32, no axis), each in a process of its own. What is written of a program
must be read to the same program.

    python tests/harness/quantized_test.py [--only PART]

Wants WEFT_SOURCE, WEFT_BUILD and WEFT_LIB in the environment; installs jax into <build>/venv-harness.
"""
import argparse
import os
import pickle
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from outcomes import Runner, enter  # noqa: E402
from round_trip import Reader, same_results  # noqa: E402

STORAGE = {"i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32", "u32": "uint32"}
EXPRESSED = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


class Q:
    """A quantised type: of storage integers (within bounds) for expressed floats, by one scale or one for each index of an axis."""

    def __init__(self, storage, expressed, scales, zero_points=0, axis=None, bounds=None):
        import numpy
        import ml_dtypes  # noqa: F401: bfloat16 by name
        self.storage, self.expressed = numpy.dtype(STORAGE[storage]), numpy.dtype(EXPRESSED[expressed])
        self.names, self.axis, self.given = (storage, expressed), axis, bounds
        self.scales = scales if axis is not None else [scales]
        self.zero_points = zero_points if axis is not None else [zero_points]
        info = numpy.iinfo(self.storage)
        self.bounds = bounds or (int(info.min), int(info.max))

    def __str__(self):
        each = ", ".join(f"{float(s)!r}:{z}" for s, z in zip(self.scales, self.zero_points, strict=True))
        bounds = "<%d:%d>" % self.given if self.given else ""
        storage, expressed = self.names
        return f"!quant.uniform<{storage}{bounds}:{expressed}{'' if self.axis is None else f':{self.axis}'}, " + \
            (each if self.axis is None else "{" + each + "}") + ">"

    def along(self, values, dtype, rank):
        """One of the values for each index of the axis, to be broadcast."""
        import numpy
        return numpy.array(values, "f8").astype(dtype).reshape([-1 if d == self.axis else 1 for d in range(rank)] if self.axis is not None else [])

    def dequantize(self, x):
        import numpy
        wide = x.astype("i8") - self.along(self.zero_points, "i8", x.ndim)
        with numpy.errstate(over="ignore"):
            return (wide.astype(self.expressed) * self.along(self.scales, self.expressed, x.ndim)).astype(self.expressed)

    def quantize(self, x):
        import numpy
        assert x.dtype == self.expressed, x.dtype
        with numpy.errstate(over="ignore", invalid="ignore"):
            low, high = (numpy.array(bound, "f8").astype(self.expressed) for bound in self.bounds)
            scaled = (x / self.along(self.scales, self.expressed, x.ndim)).astype(self.expressed)
            scaled = (scaled + self.along(self.zero_points, self.expressed, x.ndim)).astype(self.expressed)
            whole = numpy.rint(numpy.minimum(numpy.maximum(scaled, low), high)).astype("f8")
        info = numpy.iinfo(self.storage)
        return numpy.clip(whole, info.min, info.max).astype("i8").astype(self.storage)


def tensor(shape, element):
    return f"tensor<{''.join(f'{d}x' for d in shape)}{element}>"


class Program:
    """A function of tensors, its inputs and what must come out. `judged`: jaxlib's interpreter can run it."""

    def __init__(self, name, arguments, inputs, result, body, expected, judged=False):
        names = ", ".join(f"%{chr(97 + i)}: {t}" for i, t in enumerate(arguments))
        self.name, self.inputs, self.results, self.judged = name, inputs, [expected], judged
        self.text = f"func.func public @main({names}) -> {result} {{\n  {body}\n  return %0 : {result}\n}}\n"

    def case(self):
        return {"text": self.text, "inputs": self.inputs, "results": self.results}


def integers(rng, q, shape):
    """Of all the range where that is small; both ends are among them."""
    low, high = max(q.bounds[0], -30000), min(q.bounds[1], 30000)
    x = rng.integers(low, high, shape, dtype="i8", endpoint=True)
    x.flat[0], x.flat[-1] = low, high
    return x.astype(q.storage)


def elementwise(rng):
    """Every pair of types through the conversions, and arithmetic of one element."""
    import numpy
    shape = (3, 4)
    types = [Q(storage, expressed, 0.1 if storage[1:] == "8" else 0.003, 5, None) for storage in STORAGE for expressed in EXPRESSED
             if not (expressed in ("f16", "bf16") and storage in ("i32", "u32"))]
    types += [Q("i8", "f32", [0.1, 0.2, 0.05], [0, 3, -128], 0), Q("u8", "f32", [0.1, 0.2, 0.05, 4], [0, 3, 128, 255], 1),
              Q("i8", "f32", 0.25, 1, None, (-8, 7)), Q("u8", "bf16", 0.5, 1, None, (1, 15)), Q("i16", "f64", 1 / 3, -7, None, (-1000, 999))]
    for q in types:
        floats = (rng.standard_normal(shape) * 300 * q.scales[0]).astype(q.expressed)
        floats.flat[:4] = [1e30 if q.names[1] != "f16" else 6e4, -6e4, 0, -0.0]
        plain, quantised = tensor(shape, q.names[1]), tensor(shape, q)
        judged = q.names[0] in ("i8", "i16") and q.names[1] == "f32" and q.axis is None  # what the interpreter takes as it is meant
        yield Program(f"quantize {q}", [plain], [floats], quantised, f"%0 = stablehlo.uniform_quantize %a : ({plain}) -> {quantised}",
                      q.quantize(floats), judged)
        x, y = integers(rng, q, shape), integers(rng, q, shape)
        yield Program(f"dequantize {q}", [quantised], [x], plain, f"%0 = stablehlo.uniform_dequantize %a : ({quantised}) -> {plain}",
                      q.dequantize(x), judged)
        for op, compute in (("add", numpy.add), ("multiply", numpy.multiply)):
            with numpy.errstate(over="ignore"):
                expected = q.quantize(compute(q.dequantize(x), q.dequantize(y)).astype(q.expressed))
            yield Program(f"{op} {q}", [quantised, quantised], [x, y], quantised, f"%0 = stablehlo.{op} %a, %b : {quantised}", expected, judged)
    # Values whose quotient is at a half, which the zero point makes even or odd.
    for zero_point in (0, 1):
        q = Q("i8", "f32", 0.5, zero_point)
        halves = ((numpy.arange(-12, 12) + 0.5) * 0.5).astype("f4")
        yield Program(f"half values {zero_point}", [tensor((24,), "f32")], [halves], tensor((24,), q),
                      f"%0 = stablehlo.uniform_quantize %a : ({tensor((24,), 'f32')}) -> {tensor((24,), q)}", q.quantize(halves), True)


def between_types(rng):
    """Requantisation, operations whose operands and result differ, and comparisons."""
    import numpy
    shape = (2, 3)
    a, b, c = Q("i8", "f32", 0.1, 5), Q("u8", "f32", 0.07, 100), Q("i16", "f32", 0.001, -3)
    axis = Q("i8", "f32", [0.1, 0.02, 0.3], [0, -5, 7], 1)
    for x, y in ((a, b), (b, a), (a, c), (c, axis), (axis, a)):
        value = integers(rng, x, shape)
        yield Program(f"requantize {x} to {y}", [tensor(shape, x)], [value], tensor(shape, y),
                      f"%0 = stablehlo.uniform_quantize %a : ({tensor(shape, x)}) -> {tensor(shape, y)}", y.quantize(x.dequantize(value)))
    x, y = integers(rng, a, shape), integers(rng, b, shape)
    types = f"({tensor(shape, a)}, {tensor(shape, b)})"
    for op, compute in (("subtract", numpy.subtract), ("maximum", numpy.maximum), ("minimum", numpy.minimum)):
        yield Program(f"{op} of two types", [tensor(shape, a), tensor(shape, b)], [x, y], tensor(shape, c),
                      f"%0 = stablehlo.{op} %a, %b : {types} -> {tensor(shape, c)}", c.quantize(compute(a.dequantize(x), b.dequantize(y))))
    yield Program("compare", [tensor(shape, a), tensor(shape, b)], [x, y], tensor(shape, "i1"),
                  f"%0 = stablehlo.compare LT, %a, %b : {types} -> {tensor(shape, 'i1')}", a.dequantize(x) < b.dequantize(y))
    for op, compute in (("negate", numpy.negative), ("abs", numpy.abs), ("floor", numpy.floor), ("sign", numpy.sign)):
        yield Program(op, [tensor(shape, a)], [x], tensor(shape, a), f"%0 = stablehlo.{op} %a : {tensor(shape, a)}",
                      a.quantize(compute(a.dequantize(x))), True)
    tanh = Q("i8", "f32", 1 / 128, 0)  # no result is near a half
    yield Program("tanh", [tensor(shape, a)], [x], tensor(shape, tanh), f"%0 = stablehlo.tanh %a : ({tensor(shape, a)}) -> {tensor(shape, tanh)}",
                  tanh.quantize(numpy.tanh(a.dequantize(x))))
    yield Program("iota", [], [], tensor((6,), a), f"%0 = stablehlo.iota dim = 0 : {tensor((6,), a)}", a.quantize(numpy.arange(6, dtype="f4")))


def products(rng):
    """Sums of products that floats hold exactly, so that no order of adding matters."""
    import numpy
    for storage in ("i8", "u8", "i16"):
        for expressed in ("f32", "f64"):
            lhs, rhs, out = Q(storage, expressed, 0.5, 3), Q("i8", expressed, 0.25, -1), Q("i32", expressed, 0.125, 0)
            small = Q("i8", expressed, 4.0, 2)
            x, y = integers(rng, lhs, (3, 5)) % 50, integers(rng, rhs, (5, 4))
            product = lhs.dequantize(x) @ rhs.dequantize(y)
            for result in (out, small):
                yield Program(f"dot_general {lhs} to {result}", [tensor((3, 5), lhs), tensor((5, 4), rhs)], [x, y], tensor((3, 4), result),
                              "%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : "
                              f"({tensor((3, 5), lhs)}, {tensor((5, 4), rhs)}) -> {tensor((3, 4), result)}", result.quantize(product))
    # Weights with a scale for each output; floats on the other side.
    weights = Q("i8", "f32", [0.5, 0.25, 2.0, 1.0], [0, 0, 0, 0], 1)
    x, y = rng.integers(-20, 20, (3, 5)).astype("f4"), integers(rng, weights, (5, 4))
    yield Program("hybrid dot_general", [tensor((3, 5), "f32"), tensor((5, 4), weights)], [x, y], tensor((3, 4), "f32"),
                  f"%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({tensor((3, 5), 'f32')}, {tensor((5, 4), weights)}) -> "
                  f"{tensor((3, 4), 'f32')}", x @ weights.dequantize(y))
    image, kernel, out = Q("i8", "f32", 0.5, 1), Q("i8", "f32", [0.5, 2.0], [0, 0], 3), Q("i8", "f32", 8.0, -2)
    x, y = integers(rng, image, (1, 5, 5, 2)), integers(rng, kernel, (3, 3, 2, 2))
    fx, fy = image.dequantize(x).astype("f8"), kernel.dequantize(y).astype("f8")
    conv = numpy.zeros((1, 3, 3, 2))
    for i in range(3):
        for j in range(3):
            conv[0, i, j] = numpy.tensordot(fx[0, i:i + 3, j:j + 3], fy, 3)
    yield Program("convolution", [tensor(x.shape, image), tensor(y.shape, kernel)], [x, y], tensor((1, 3, 3, 2), out),
                  "%0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1]} "
                  "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
                  f"({tensor(x.shape, image)}, {tensor(y.shape, kernel)}) -> {tensor((1, 3, 3, 2), out)}", out.quantize(conv.astype("f4")))


def movement(rng):
    """Elements that go elsewhere, types with an axis among them, and functions that see them."""
    import numpy
    q, axis = Q("u8", "f32", 0.1, 7), Q("i8", "f32", [0.1, 0.2, 0.3], [1, 2, 3], 1)
    turned = Q("i8", "f32", [0.1, 0.2, 0.3], [1, 2, 3], 0)
    wide = Q("i8", "f32", [0.1, 0.2, 0.3], [1, 2, 3], 2)
    x, y = integers(rng, q, (2, 3)), integers(rng, axis, (2, 3))
    a, b = tensor((2, 3), q), tensor((2, 3), axis)
    scalar = tensor((), q)

    def one(name, kind, value, result, body, expected):
        return Program(name, [kind], [value], result, body, expected)
    yield one("transpose", b, y, tensor((3, 2), turned), f"%0 = stablehlo.transpose %a, dims = [1, 0] : ({b}) -> {tensor((3, 2), turned)}", y.T)
    yield one("reshape", b, y, tensor((2, 1, 3), wide), f"%0 = stablehlo.reshape %a : ({b}) -> {tensor((2, 1, 3), wide)}", y.reshape(2, 1, 3))
    yield one("broadcast_in_dim", b, y, tensor((4, 2, 3), wide),
              f"%0 = stablehlo.broadcast_in_dim %a, dims = [1, 2] : ({b}) -> {tensor((4, 2, 3), wide)}", numpy.broadcast_to(y, (4, 2, 3)))
    yield one("slice", a, x, tensor((1, 2), q), f"%0 = stablehlo.slice %a [1:2, 0:2] : ({a}) -> {tensor((1, 2), q)}", x[1:2, 0:2])
    yield one("concatenate", a, x, tensor((4, 3), q), f"%0 = stablehlo.concatenate %a, %a, dim = 0 : ({a}, {a}) -> {tensor((4, 3), q)}",
              numpy.concatenate([x, x]))
    yield one("reverse", a, x, a, f"%0 = stablehlo.reverse %a, dims = [1] : {a}", x[:, ::-1])
    yield one("pad with a constant", a, x, tensor((2, 5), q),
              f"%p = stablehlo.constant() <{{value = dense<-56> : tensor<i8>}}> : () -> {scalar}\n"
              f"  %0 = stablehlo.pad %a, %p, low = [0, 1], high = [0, 1], interior = [0, 0] : ({a}, {scalar}) -> {tensor((2, 5), q)}",
              numpy.pad(x, ((0, 0), (1, 1)), constant_values=200))
    yield one("bitcast_convert", a, x, tensor((2, 3), "ui8"), f"%0 = stablehlo.bitcast_convert %a : ({a}) -> {tensor((2, 3), 'ui8')}", x)
    yield one("select", a, x, a, f"%p = stablehlo.compare GT, %a, %a : ({a}, {a}) -> tensor<2x3xi1>\n"
              f"  %0 = stablehlo.select %p, %a, %a : tensor<2x3xi1>, {a}", x)
    largest = Q("i8", "f32", 0.1, 5)
    z = integers(rng, largest, (4, 6))
    init = f"%v = stablehlo.constant() <{{value = dense<-128> : tensor<i8>}}> : () -> {tensor((), largest)}\n"
    yield one("reduce maximum", tensor((4, 6), largest), z, tensor((4,), largest),
              f"{init}  %0 = stablehlo.reduce(%a init: %v) applies stablehlo.maximum across dimensions = [1] : "
              f"({tensor((4, 6), largest)}, {tensor((), largest)}) -> {tensor((4,), largest)}", z.max(1))
    whole = Q("i16", "f32", 0.5, 0)
    w = rng.integers(-100, 100, (4, 6)).astype("i2")
    zero = f"%v = stablehlo.constant() <{{value = dense<0> : tensor<i16>}}> : () -> {tensor((), whole)}\n"
    yield one("reduce add", tensor((4, 6), whole), w, tensor((6,), whole),
              f"{zero}  %0 = stablehlo.reduce(%a init: %v) applies stablehlo.add across dimensions = [0] : "
              f"({tensor((4, 6), whole)}, {tensor((), whole)}) -> {tensor((6,), whole)}", w.sum(0).astype("i2"))
    s = tensor((), largest)
    yield one("sort", tensor((4, 6), largest), z, tensor((4, 6), largest),
              f'%0 = "stablehlo.sort"(%a) <{{dimension = 1 : i64, is_stable = true}}> ({{\n  ^bb0(%x: {s}, %y: {s}):\n'
              f"    %c = stablehlo.compare LT, %x, %y : ({s}, {s}) -> tensor<i1>\n    stablehlo.return %c : tensor<i1>\n"
              f"  }}) : ({tensor((4, 6), largest)}) -> {tensor((4, 6), largest)}", numpy.sort(z, 1))
    count = tensor((), "i32")
    v = integers(rng, largest, (3,))
    kind, value = tensor((3,), largest), v
    for _ in range(3):
        value = largest.quantize(largest.dequantize(value) + largest.dequantize(v))
    yield one("while", kind, v, kind,
              f"%n = stablehlo.constant dense<3> : {count}\n  %i = stablehlo.constant dense<0> : {count}\n  %k = stablehlo.constant dense<1> : {count}\n"
              f"  %l:2 = stablehlo.while(%j = %i, %x = %a) : {count}, {kind}\n  cond {{\n    %c = stablehlo.compare LT, %j, %n : "
              f"({count}, {count}) -> tensor<i1>\n    stablehlo.return %c : tensor<i1>\n  }} do {{\n    %m = stablehlo.add %j, %k : {count}\n"
              f"    %y = stablehlo.add %x, %a : {kind}\n    stablehlo.return %m, %y : {count}, {kind}\n  }}\n"
              f"  %0 = stablehlo.optimization_barrier %l#1 : {kind}", value)


JUDGE = """
import pickle, sys
import numpy
from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager
stablehlo.register_stablehlo_passes()
text, inputs = pickle.load(sys.stdin.buffer)
with mlir.make_ir_context() as context, ir.Location.unknown():
    # What reads an artifact loads the dialect of quantised types.
    empty = stablehlo.serialize_portable_artifact_str("func.func @f() { return }", stablehlo.get_current_version())
    stablehlo.deserialize_portable_artifact(context, empty)
    module = ir.Module.parse(text)
    PassManager.parse("builtin.module(func.func(stablehlo-legalize-quantized-op-to-qdq))").run(module.operation)
    found = stablehlo.eval_module(module, [ir.DenseElementsAttr.get(x, type=ir.RankedTensorType(t)) if x.dtype.kind == "f"
                                           else ir.DenseElementsAttr.get(x) for x, t in
                                           zip(inputs, module.body.operations[0].type.inputs)])
    sys.stdout.buffer.write(pickle.dumps([numpy.array(r) for r in found]))
"""


def judged(program):
    """What is wrong with the expected result in the eyes of StableHLO's interpreter, or nothing; None where it gave nothing."""
    answer = subprocess.run([sys.executable, "-c", JUDGE], input=pickle.dumps((program.text, program.inputs)), capture_output=True)
    if answer.returncode:
        return None, answer.stderr.decode(errors="replace")[-300:]
    found = pickle.loads(answer.stdout)[0]
    return differs(found.astype(program.results[0].dtype), program.results[0]), ""


def differs(found, expected):
    import numpy
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype}{found.shape} for {expected.dtype}{expected.shape}"
    if expected.dtype.kind in "iub":
        wrong = found != expected
    else:
        wrong = ~((found == expected) | ((found != found) & (expected != expected)))
    at = tuple(int(i) for i in numpy.argwhere(wrong)[0]) if wrong.any() else None
    return "" if at is None else f"{int(wrong.sum())} of {wrong.size} differ, first at {at}: {found[at]!r} for {expected[at]!r}"


def main():
    import numpy
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="programs whose names hold this")
    args = parser.parse_args()
    rng = numpy.random.default_rng(1)
    programs = [p for make in (elementwise, between_types, products, movement) for p in make(rng) if args.only in p.name]
    runner, reader, bad = Runner(), Reader(), 0
    for program in programs:
        stage, found = runner.run(program.case())
        wrong = f"{stage}: {found}" if stage != "ok" else differs(found[0], program.results[0])
        if not wrong:
            outcome, written = reader.run(program.text)
            wrong = f"{outcome}: {written}" if outcome != "read" else same_results(runner, {**program.case(), "text": written}, found)
        if wrong:
            bad += 1
            print(f"{program.name}: {wrong}\n{program.text}", flush=True)
    asked = [p for p in programs if p.judged][::2]
    answered = 0
    for program in asked:
        wrong, said = judged(program)
        answered += wrong is not None
        if wrong or said:
            print(f"{program.name}, by StableHLO's interpreter: {wrong or said}")
        bad += bool(wrong)
    reader.close()
    print(f"{len(programs)} programs, {bad} wrong; {answered} of {len(asked)} judged by StableHLO's interpreter too")
    short = not args.only and (len(programs) < 60 or answered < len(asked))
    return 1 if bad or short else 0


if __name__ == "__main__":
    enter(__file__)
    sys.exit(main())
