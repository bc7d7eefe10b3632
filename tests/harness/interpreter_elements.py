"""Programs of one elementwise operation for interpreter_test.py: every element type that the operation takes, special values."""
from interpreter_values import ALL, COMPLEX, FLOATS, INTEGERS, SIGNED, UNSIGNED, Program, array, drawn, edges, pairs, some, tensor, type_of

# By operation: types whose floats must be equal, and types within a bound.
UNARY = {
    "abs": (SIGNED + FLOATS, COMPLEX),
    "negate": (INTEGERS + FLOATS + COMPLEX, ()),
    "sign": (SIGNED + FLOATS, COMPLEX),
    "ceil": (FLOATS, ()),
    "floor": (FLOATS, ()),
    "round_nearest_afz": (FLOATS, ()),
    "round_nearest_even": (FLOATS, ()),
    "is_finite": (FLOATS, ()),
    "not": (("i1",) + INTEGERS, ()),
    "popcnt": (INTEGERS, ()),
    "count_leading_zeros": (INTEGERS, ()),
    "sqrt": (FLOATS, COMPLEX),
    "rsqrt": ((), FLOATS + COMPLEX),
    "cbrt": ((), FLOATS + COMPLEX),
    "cosine": ((), FLOATS + COMPLEX),
    "sine": ((), FLOATS + COMPLEX),
    "tan": ((), FLOATS + COMPLEX),
    "tanh": ((), FLOATS + COMPLEX),
    "exponential": ((), FLOATS + COMPLEX),
    "exponential_minus_one": ((), FLOATS + COMPLEX),
    "log": ((), FLOATS + COMPLEX),
    "log_plus_one": ((), FLOATS + COMPLEX),
    "logistic": ((), FLOATS + COMPLEX),
    "real": (FLOATS + COMPLEX, ()),
    "imag": (FLOATS + COMPLEX, ()),
    "optimization_barrier": (ALL, ()),
    "chlo.acos": ((), FLOATS + COMPLEX),
    "chlo.acosh": ((), FLOATS + COMPLEX),
    "chlo.asin": ((), FLOATS + COMPLEX),
    "chlo.asinh": ((), FLOATS + COMPLEX),
    "chlo.atan": ((), FLOATS + COMPLEX),
    "chlo.atanh": ((), FLOATS + COMPLEX),
    "chlo.bessel_i1e": ((), FLOATS),
    "chlo.conj": (COMPLEX, ()),
    "chlo.cosh": ((), FLOATS + COMPLEX),
    "chlo.digamma": ((), FLOATS),
    "chlo.erf": ((), FLOATS),
    "chlo.erf_inv": ((), ("f32", "f64")),
    "chlo.erfc": ((), FLOATS),
    "chlo.is_inf": (FLOATS, ()),
    "chlo.lgamma": ((), FLOATS),
    "chlo.sinh": ((), FLOATS + COMPLEX),
    "chlo.square": (FLOATS, COMPLEX),
    "chlo.tan": ((), FLOATS + COMPLEX),
}
BINARY = {
    "add": (("i1",) + INTEGERS + FLOATS + COMPLEX, ()),
    "subtract": (INTEGERS + FLOATS + COMPLEX, ()),
    "multiply": (("i1",) + INTEGERS + FLOATS, COMPLEX),
    "divide": (INTEGERS + FLOATS, COMPLEX),
    "remainder": (INTEGERS + FLOATS, ()),
    "maximum": (("i1",) + INTEGERS + FLOATS + COMPLEX, ()),
    "minimum": (("i1",) + INTEGERS + FLOATS + COMPLEX, ()),
    "power": (INTEGERS, FLOATS + COMPLEX),
    "atan2": ((), FLOATS + COMPLEX),
    "and": (("i1",) + INTEGERS, ()),
    "or": (("i1",) + INTEGERS, ()),
    "xor": (("i1",) + INTEGERS, ()),
    "shift_left": (INTEGERS, ()),
    "shift_right_arithmetic": (INTEGERS, ()),
    "shift_right_logical": (INTEGERS, ()),
    "complex": (("f32", "f64"), ()),
    "chlo.mulhi": (("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"), ()),
    "chlo.next_after": (FLOATS, ()),
    "chlo.polygamma": ((), ("f32", "f64")),
    "chlo.zeta": ((), ("f32", "f64")),
}
PART = {"complex<f32>": "f32", "complex<f64>": "f64"}
RESULT = {"is_finite": lambda t: "i1", "chlo.is_inf": lambda t: "i1", "complex": "complex<{}>".format, "abs": lambda t: PART.get(t, t),
          "real": lambda t: PART.get(t, t), "imag": lambda t: PART.get(t, t)}


def spelled(operation):
    return operation if "." in operation else f"stablehlo.{operation}"


# What the interpreter computes by series, in the type of the operand.
SLACK = dict.fromkeys(("chlo.bessel_i1e", "chlo.digamma", "chlo.lgamma", "chlo.polygamma", "chlo.zeta"), 4)


def operands(operation, kind):
    """(name, two operands) of the special values."""
    import numpy
    x, y = pairs(kind)
    if operation == "power" and kind in COMPLEX:
        zeros = (x == 0) & (y == 0)
        yield "zeros", [x[zeros], y[zeros]]
        yield "edges", [x[~zeros], y[~zeros]]
    elif operation in ("divide", "remainder") and kind in INTEGERS:
        low = edges(kind).min()
        safe = (y != 0) & ~((x == low) & (y + y.dtype.type(1) == 0))  # the interpreter aborts on the others
        yield "edges", [x[safe], y[safe]]
        yield "by zero and past the range", [x[~safe], y[~safe]]
    elif operation in ("chlo.polygamma", "chlo.zeta"):
        with numpy.errstate(invalid="ignore"):
            small = ~(abs(x) > 1e30) & ~(abs(y) > 1e30)  # of others what comes out is where a series overflows
        yield "edges", [x[small], y[small]]
    else:
        yield "edges", [x, y]


def one(operation, kind, inputs, name, exact, form="pretty"):
    """A program of the operation alone, in the pretty or the generic form."""
    result = tensor(inputs[0].shape, RESULT.get(operation, lambda t: t)(kind))
    names = ", ".join(f"%{chr(97 + i)}" for i in range(len(inputs)))
    types = ", ".join(type_of(x) for x in inputs)
    if form == "generic":
        body = f'%0 = "{spelled(operation)}"({names}) : ({types}) -> {result}'
    elif operation == "complex":
        body = f"%0 = stablehlo.complex {names} : {result}"
    elif operation == "optimization_barrier":
        body = f"%0 = stablehlo.optimization_barrier {names} : {types}"
    elif operation.startswith("chlo."):
        body = f"%0 = {operation} {names} : {types} -> {result}"
    else:
        body = f"%0 = {spelled(operation)} {names} : ({types}) -> {result}"
    return Program(f"{operation} {kind} {name}", inputs, result, body, exact=exact, slack=SLACK.get(operation, 1))


def unary():
    for operation, (exact, bounded) in UNARY.items():
        for kind in exact + bounded:
            yield one(operation, kind, [edges(kind)], "edges", kind in exact)
        for kind, shape in zip((exact + bounded) * 3, ((), (0, 3), (2, 1, 3))):
            rng = drawn(f"{operation} {kind} {shape}")
            yield one(operation, kind, [some(rng, kind, shape)], f"of rank {len(shape)}", kind in exact, "generic")


def binary():
    for operation, (exact, bounded) in BINARY.items():
        for kind in exact + bounded:
            for name, inputs in operands(operation, kind):
                yield one(operation, kind, inputs, name, kind in exact)
        for kind, shape in zip((exact + bounded) * 3, ((), (3, 0), (4, 1, 2))):
            rng = drawn(f"{operation} {kind} {shape}")
            yield one(operation, kind, [some(rng, kind, shape), some(rng, kind, shape)], f"of rank {len(shape)}", kind in exact, "generic")


def comparisons():
    for kind in ALL:
        sort = {"i1": ["UNSIGNED"], **dict.fromkeys(SIGNED, ["SIGNED"]), **dict.fromkeys(UNSIGNED, ["UNSIGNED"]),
                **dict.fromkeys(FLOATS, ["FLOAT", "TOTALORDER"]), **dict.fromkeys(COMPLEX, ["FLOAT"])}[kind]
        x, y = pairs(kind)
        directions = ("EQ", "NE") if kind in COMPLEX else ("EQ", "NE", "LT", "LE", "GT", "GE")
        for order in sort:
            result = tensor(x.shape, "i1")
            body = "\n  ".join(f"%{i} = stablehlo.compare {d}, %a, %b, {order} : ({type_of(x)}, {type_of(y)}) -> {result}"
                               for i, d in enumerate(directions))
            yield Program(f"compare {kind} {order}", [x, y], [result] * len(directions), body, ", ".join(f"%{i}" for i in range(len(directions))))


def convertible(source, target):
    """Special values that have a counterpart in the target; what others become is left open."""
    import numpy
    x = edges(source)
    if source in FLOATS + COMPLEX and target in INTEGERS:
        low = 0 if target in UNSIGNED else -100
        real = x.real.astype("f8")
        x = x[numpy.isfinite(real) & (real > low - 1) & (real < 101)]
    return x


def conversions():
    for source in ALL:
        for group, targets in (("bools", ("i1",)), ("integers", INTEGERS), ("floats", FLOATS), ("complex numbers", COMPLEX)):
            x = convertible(source, "ui8" if group == "integers" else targets[0])
            results = [tensor(x.shape, t) for t in targets]
            body = "\n  ".join(f"%{i} = stablehlo.convert %a : ({type_of(x)}) -> {r}" for i, r in enumerate(results))
            yield Program(f"convert {source} to {group}", [x], results, body, ", ".join(f"%{i}" for i in range(len(results))), exact=True)


def precisions():
    formats = ((5, 10), (8, 7), (4, 3), (5, 2), (2, 1), (8, 23), (11, 52), (3, 0))
    for kind in FLOATS:
        x = edges(kind)
        body = "\n  ".join(f"%{i} = stablehlo.reduce_precision %a, format = e{e}m{m} : {type_of(x)}" for i, (e, m) in enumerate(formats))
        yield Program(f"reduce_precision {kind}", [x], [type_of(x)] * len(formats), body, ", ".join(f"%{i}" for i in range(len(formats))), exact=True)


def choices():
    import numpy
    for kind in ALL:
        x, y = pairs(kind)
        p = drawn(f"select {kind}").integers(0, 2, x.shape).astype(bool)
        yield Program(f"select {kind}", [p, x, y], type_of(x), f"%0 = stablehlo.select %a, %b, %c : {type_of(p)}, {type_of(x)}", exact=True)
        if kind in FLOATS[2:] + ("i8", "complex<f32>"):
            yield Program(f"select {kind} by a scalar", [numpy.array(True), x, y], type_of(x),
                          f"%0 = stablehlo.select %a, %b, %c : (tensor<i1>, {type_of(x)}, {type_of(x)}) -> {type_of(x)}", exact=True)
        if kind in COMPLEX:
            continue
        low, high = array(1, kind), array(2, kind)
        scalar = tensor((), kind)
        yield Program(f"clamp {kind} to scalars", [low, x, high], type_of(x),
                      f"%0 = stablehlo.clamp %a, %b, %c : ({scalar}, {type_of(x)}, {scalar}) -> {type_of(x)}", exact=True)
        rng = drawn(f"clamp {kind}")
        low, high = some(rng, kind, x.shape), some(rng, kind, x.shape)
        yield Program(f"clamp {kind}", [low, x, high], type_of(x), f"%0 = stablehlo.clamp %a, %b, %c : {type_of(x)}", exact=True)


def programs():
    for make in (unary, binary, comparisons, conversions, precisions, choices):
        yield from make()
