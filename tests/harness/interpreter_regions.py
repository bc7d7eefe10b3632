"""Programs of operations with bodies for interpreter_test.py: reductions, windows, scatters, sorts, maps and control flow."""
from interpreter_values import COMPLEX, FLOATS, INTEGERS, SIGNED, Program, array, drawn, edges, filled, some, tensor, type_of

NUMBERS = INTEGERS + FLOATS
# What a body computes of %x and %y into %z, of elements {e}; associative and commutative for the numbers that it is given. With the
# neutral element of each type.
BODIES = {
    "add": ("%z = stablehlo.add %x, %y : {e}", lambda kind: 0),
    "multiply": ("%z = stablehlo.multiply %x, %y : {e}", lambda kind: 1),
    "maximum": ("%z = stablehlo.maximum %x, %y : {e}", lambda kind: lowest(kind)),
    "minimum": ("%z = stablehlo.minimum %x, %y : {e}", lambda kind: -lowest(kind) if kind in FLOATS else 2 ** (int(kind.strip("ui")) - (kind in SIGNED)) - 1),
    "and": ("%z = stablehlo.and %x, %y : {e}", lambda kind: -1 if kind != "i1" else True),
    "or": ("%z = stablehlo.or %x, %y : {e}", lambda kind: 0),
    "xor": ("%z = stablehlo.xor %x, %y : {e}", lambda kind: 0),
    "sum with product": ("%p = stablehlo.multiply %x, %y : {e}\n    %q = stablehlo.add %x, %y : {e}\n    %z = stablehlo.add %p, %q : {e}", lambda kind: 0),
    "or of both ends": ("%p = stablehlo.maximum %x, %y : {e}\n    %q = stablehlo.minimum %x, %y : {e}\n    %z = stablehlo.or %p, %q : {e}", lambda kind: 0),
}
TYPES = {"and": ("i1",) + INTEGERS, "or": ("i1",) + INTEGERS, "xor": ("i1",) + INTEGERS, "add": ("i1",) + NUMBERS + COMPLEX, "multiply": ("i1",) + NUMBERS + COMPLEX,
         "sum with product": INTEGERS + ("complex<f64>",), "or of both ends": ("i1", "i8", "ui16", "i64")}


def lowest(kind):
    return float("-inf") if kind in FLOATS else -2 ** (int(kind[1:]) - 1) if kind in SIGNED else 0


def body_of(name, kind, returned="stablehlo.return"):
    e = tensor((), kind)
    return f"({{\n  ^bb0(%x: {e}, %y: {e}):\n    {filled(BODIES[name][0], e=e)}\n    {returned} %z : {e}\n  }})"


def reduced(name):
    """(kind, whether small whole numbers are wanted) for a few types: what floats round would depend on the order."""
    for kind in TYPES.get(name, NUMBERS):
        yield kind, kind in FLOATS + COMPLEX and name in ("add", "multiply", "sum with product")


def reductions():
    import numpy
    for name in BODIES:
        for kind, whole in reduced(name):
            rng = drawn(f"reduce {name} {kind}")
            for shape, dims, result in (((3, 4), [1], (3,)), ((2, 3, 2), [0, 2], (3,)), ((2, 0), [1], (2,)), ((5,), [0], ()), ((3, 2), [], (3, 2)))[:3 if kind in COMPLEX else None]:
                if shape != (3, 4) and kind not in ("i1", "i8", "ui32", "f32", "bf16", "complex<f64>"):
                    continue
                x, v = some(rng, kind, shape, whole), array(BODIES[name][1](kind), kind)
                if kind in FLOATS and not whole and x.size > 4:
                    x.flat[1], x.flat[3] = numpy.nan, -numpy.inf
                yield Program(f"reduce {kind} {name} {shape} over {dims}", [x, v], tensor(result, kind),
                              f'%0 = "stablehlo.reduce"(%a, %b) <{{dimensions = array<i64{": " if dims else ""}{", ".join(map(str, dims))}>}}> {body_of(name, kind)} : '
                              f"({type_of(x)}, {type_of(v)}) -> {tensor(result, kind)}")
    for kind in ("f32", "i32", "bf16"):
        x, v = some(drawn(f"pretty {kind}"), kind, (3, 4), True), array(0, kind)
        yield Program(f"reduce {kind} in short", [x, v], tensor((4,), kind), "%0 = stablehlo.reduce(%a init: %b) applies stablehlo.add across dimensions = [0] : "
                      f"({type_of(x)}, {type_of(v)}) -> {tensor((4,), kind)}")
        # The first of the largest, with its index; ties and NaN among them.
        i = array([[0, 1, 2, 3]] * 3, "i32")
        if kind != "i32":
            x[1, 2] = numpy.nan
        e = tensor((), kind)
        yield Program(f"reduce {kind} of two operands", [x, i, array(lowest(kind), kind), array(0, "i32")], [tensor((3,), kind), "tensor<3xi32>"],
                      f'%0:2 = stablehlo.reduce(%a init: %c), (%b init: %d) across dimensions = [1] : ({type_of(x)}, {type_of(i)}, {e}, tensor<i32>) -> ({tensor((3,), kind)}, tensor<3xi32>)\n'
                      f"   reducer(%x: {e}, %y: {e}) (%j: tensor<i32>, %k: tensor<i32>) {{\n"
                      f"    %g = stablehlo.compare GT, %x, %y : ({e}, {e}) -> tensor<i1>\n    %n = stablehlo.compare NE, %x, %x : ({e}, {e}) -> tensor<i1>\n"
                      f"    %o = stablehlo.or %g, %n : tensor<i1>\n    %q = stablehlo.compare EQ, %x, %y : ({e}, {e}) -> tensor<i1>\n"
                      f"    %l = stablehlo.compare LT, %j, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>\n    %t = stablehlo.and %q, %l : tensor<i1>\n"
                      f"    %p = stablehlo.or %o, %t : tensor<i1>\n    %z = stablehlo.select %o, %x, %y : tensor<i1>, {e}\n"
                      f"    %w = stablehlo.select %p, %j, %k : tensor<i1>, tensor<i32>\n    stablehlo.return %z, %w : {e}, tensor<i32>\n  }}", "%0#0, %0#1")


# Operand, window, strides, dilations of base and window, padding, result.
WINDOWS = {
    "plain": ((6,), [3], [1], [1], [1], [[0, 0]], (4,)),
    "strided and padded": ((5, 6), [2, 3], [2, 1], [1, 1], [1, 1], [[1, 0], [2, 1]], (3, 7)),
    "dilated": ((4, 5), [2, 2], [1, 2], [2, 1], [1, 3], [[0, 0], [1, 1]], (6, 2)),
    "cut": ((6, 3), [2, 1], [1, 1], [1, 1], [2, 1], [[-1, 0], [0, -1]], (3, 2)),
    "cumulative": ((5,), [5], [1], [1], [1], [[4, 0]], (5,)),
    "of nothing": ((0, 2), [1, 2], [1, 1], [1, 1], [1, 1], [[0, 0], [0, 0]], (0, 1)),
}


def ints(values):
    return f"array<i64: {', '.join(map(str, values))}>"


def windows():
    for name, (shape, size, strides, base, window, padding, result) in WINDOWS.items():
        for body in BODIES:
            kinds = sorted(reduced(body))
            for kind, whole in [kinds[i] for i in drawn(f"window {name} {body}").permutation(len(kinds))[:2]]:
                x, v = some(drawn(f"{name} {body} {kind}"), kind, shape, whole), array(BODIES[body][1](kind), kind)
                yield Program(f"reduce_window {kind} {body} {name}", [x, v], tensor(result, kind),
                              f'%0 = "stablehlo.reduce_window"(%a, %b) <{{window_dimensions = {ints(size)}, window_strides = {ints(strides)}, base_dilations = {ints(base)}, '
                              f"window_dilations = {ints(window)}, padding = dense<{padding}> : tensor<{len(shape)}x2xi64>}}> {body_of(body, kind)} : "
                              f"({type_of(x)}, {type_of(v)}) -> {tensor(result, kind)}")
    for kind in ("f32", "f64", "i32", "ui8", "bf16"):
        for padding, result in (([[0, 0], [0, 0]], (2, 2)), ([[1, 0], [0, 1]], (2, 3))):
            rng = drawn(f"select_and_scatter {kind} {padding}")
            x, source, v = some(rng, kind, (4, 5), True), some(rng, kind, result, True), array(0, kind)
            e = tensor((), kind)
            for order in ("GE", "LT"):
                yield Program(f"select_and_scatter {kind} {order} {padding}", [x, source, v], type_of(x),
                              f'%0 = "stablehlo.select_and_scatter"(%a, %b, %c) <{{window_dimensions = {ints([2, 2])}, window_strides = {ints([2, 2])}, padding = dense<{padding}> : tensor<2x2xi64>}}> '
                              f"({{\n  ^bb0(%x: {e}, %y: {e}):\n    %z = stablehlo.compare {order}, %x, %y : ({e}, {e}) -> tensor<i1>\n    stablehlo.return %z : tensor<i1>\n  }}, {body_of('add', kind)[1:-1]}) : "
                              f"({type_of(x)}, {type_of(source)}, {e}) -> {type_of(x)}")


# Operand, indices, updates, numbers.
SCATTERS = {
    "rows": ((5, 3), [[0], [4], [-1], [7], [0]], (5, 3), "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"),
    "elements": ((4, 6), [[1, 2], [3, 5], [1, 2], [0, 100]], (4,), "inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1"),
    "windows": ((4, 6), [[1, 2], [3, 5], [0, 0]], (3, 2, 2), "update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1"),
    "implicit vector": ((5,), [0, 2, 2, 8], (4,), "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"),
    "batches": ((2, 5), [[[0], [9]], [[4], [1]]], (2, 2),
                "inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2"),
    "nothing": ((3,), [[1]], (1, 0), "update_window_dims = [1], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"),
}


def scatters():
    for n, (name, (shape, indices, updates, numbers)) in enumerate(SCATTERS.items()):
        i = array(indices, ("i32", "i64", "i16", "i8")[n % 4])
        for body in BODIES:
            kinds = sorted(reduced(body))
            for kind, whole in [kinds[k] for k in drawn(f"scatter {name} {body}").permutation(len(kinds))[:2]]:
                rng = drawn(f"scatter {name} {body} {kind}")
                x, y = some(rng, kind, shape, whole), some(rng, kind, updates, whole)
                yield Program(f"scatter {kind} {body} {name}", [x, i, y], type_of(x),
                              f'%0 = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, indices_are_sorted = false, unique_indices = false}}> '
                              f"{body_of(body, kind)} : ({type_of(x)}, {type_of(i)}, {type_of(y)}) -> {type_of(x)}")
    for kind in ("f32", "i8", "i1", "complex<f32>"):  # the update replaces, at places of its own
        rng, e = drawn(f"replace {kind}"), tensor((), kind)
        x, i, y = some(rng, kind, (6, 2)), array([[3], [0], [9]], "i32"), some(rng, kind, (3, 2))
        yield Program(f"scatter {kind} in place of", [x, i, y], type_of(x), '%0 = "stablehlo.scatter"(%a, %b, %c) <{scatter_dimension_numbers = #stablehlo.scatter<'
                      "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> "
                      f"({{\n  ^bb0(%x: {e}, %y: {e}):\n    stablehlo.return %y : {e}\n  }}) : ({type_of(x)}, {type_of(i)}, {type_of(y)}) -> {type_of(x)}", exact=True)
    x, i, y = some(drawn("two"), "f32", (5,), True), array([[1], [1], [4]], "i32"), some(drawn("three"), "f32", (3,), True)
    w, z = some(drawn("four"), "i32", (5,), True), some(drawn("five"), "i32", (3,), True)
    yield Program("scatter f32 and i32", [x, w, i, y, z], [type_of(x), type_of(w)], '%0:2 = "stablehlo.scatter"(%a, %b, %c, %d, %e) <{scatter_dimension_numbers = #stablehlo.scatter<'
                  "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({\n  ^bb0(%x: tensor<f32>, %k: tensor<i32>, %y: tensor<f32>, %l: tensor<i32>):\n"
                  "    %s = stablehlo.add %x, %y : tensor<f32>\n    %m = stablehlo.multiply %k, %l : tensor<i32>\n    stablehlo.return %s, %m : tensor<f32>, tensor<i32>\n  }) : "
                  f"({type_of(x)}, {type_of(w)}, {type_of(i)}, {type_of(y)}, {type_of(z)}) -> ({type_of(x)}, {type_of(w)})", "%0#0, %0#1")


def sorts():
    for kind in NUMBERS + ("i1",):
        x = edges(kind)
        x = x[drawn(f"sort {kind}").permutation(len(x))]
        e = tensor((), kind)
        for direction, order in [("LT", ""), ("GT", "")] + [("LT", ", TOTALORDER"), ("GT", ", TOTALORDER")] * (kind in FLOATS):
            y = x if order else x[x == x]
            yield Program(f"sort {kind} {direction}{order}", [y], type_of(y), f'%0 = "stablehlo.sort"(%a) <{{dimension = 0 : i64, is_stable = true}}> ({{\n  ^bb0(%x: {e}, %y: {e}):\n'
                          f"    %z = stablehlo.compare {direction}, %x, %y{order} : ({e}, {e}) -> tensor<i1>\n    stablehlo.return %z : tensor<i1>\n  }}) : ({type_of(y)}) -> {type_of(y)}", exact=True)
    for kind, shape, dim in (("i8", (3, 4), 0), ("f32", (2, 5, 2), 1), ("ui16", (4, 3), -1), ("f64", (2, 0), 1), ("complex<f32>", (6,), 0), ("bf16", (1, 7), 1)):
        rng, e = drawn(f"sorts {kind}"), tensor((), kind)
        x, y = some(rng, kind, shape, True), some(rng, "i32", shape, True)
        keyed = f"%p = stablehlo.real %x : ({e}) -> tensor<f32>\n    %q = stablehlo.real %y : ({e}) -> tensor<f32>\n    %z = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>" \
            if kind in COMPLEX else f"%z = stablehlo.compare LT, %x, %y : ({e}, {e}) -> tensor<i1>"
        yield Program(f"sort {kind} stably along {dim}", [x, y], [type_of(x), type_of(y)], f'%0:2 = "stablehlo.sort"(%a, %b) <{{dimension = {dim} : i64, is_stable = true}}> '
                      f"({{\n  ^bb0(%x: {e}, %y: {e}, %k: tensor<i32>, %l: tensor<i32>):\n    {keyed}\n    stablehlo.return %z : tensor<i1>\n  }}) : "
                      f"({type_of(x)}, {type_of(y)}) -> ({type_of(x)}, {type_of(y)})", "%0#0, %0#1", exact=True)
        if kind in COMPLEX:
            continue
        yield Program(f"sort {kind} by two keys along {dim}", [x, y], [type_of(x), type_of(y)], f'%0:2 = "stablehlo.sort"(%a, %b) <{{dimension = {dim} : i64}}> '
                      f"({{\n  ^bb0(%x: {e}, %y: {e}, %k: tensor<i32>, %l: tensor<i32>):\n    %g = stablehlo.compare GT, %x, %y : ({e}, {e}) -> tensor<i1>\n"
                      f"    %q = stablehlo.compare EQ, %x, %y : ({e}, {e}) -> tensor<i1>\n    %s = stablehlo.compare LT, %k, %l : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
                      f"    %t = stablehlo.and %q, %s : tensor<i1>\n    %z = stablehlo.or %g, %t : tensor<i1>\n    stablehlo.return %z : tensor<i1>\n  }}) : "
                      f"({type_of(x)}, {type_of(y)}) -> ({type_of(x)}, {type_of(y)})", "%0#0, %0#1", exact=True)


def maps():
    for kind in ("f32", "f64", "bf16", "i8", "ui32", "i1", "complex<f32>"):
        for shape in ((2, 3), (), (0, 2)):
            rng, e = drawn(f"map {kind} {shape}"), tensor((), kind)
            x, y = some(rng, kind, shape), some(rng, kind, shape)
            dims = f"array<i64: {', '.join(map(str, range(len(shape))))}>" if shape else "array<i64>"
            yield Program(f"map {kind} {shape}", [x, y], tensor(shape, "i1"), f'%0 = "stablehlo.map"(%a, %b) <{{dimensions = {dims}}}> ({{\n  ^bb0(%x: {e}, %y: {e}):\n'
                          f"    %p = stablehlo.multiply %x, %y : {e}\n    %q = stablehlo.add %p, %x : {e}\n    %z = stablehlo.compare EQ, %q, %x : ({e}, {e}) -> tensor<i1>\n"
                          f"    stablehlo.return %z : tensor<i1>\n  }}) : ({type_of(x)}, {type_of(y)}) -> {tensor(shape, 'i1')}")


def branches():
    import numpy
    for kind in ("f32", "i8", "ui64", "i1", "bf16", "complex<f64>"):
        x, y = some(drawn(f"case {kind}"), kind, (2, 3)), some(drawn(f"if {kind}"), kind, (2, 3))
        t = type_of(x)
        returns = "    stablehlo.return {} : " + t
        for index in (0, 1, 2, 3, -1, 2 ** 31 - 1, -2 ** 31):
            yield Program(f"case {kind} {index}", [array(index, "i32"), x, y], t, '%0 = "stablehlo.case"(%a) ({\n' + returns.format("%b") + "\n  }, {\n    %m = stablehlo.add %b, %c : " + t + "\n"
                          + returns.format("%m") + "\n  }, {\n" + returns.format("%c") + f"\n  }}) : (tensor<i32>) -> {t}", exact=True)
        for truth in (True, False):
            yield Program(f"if {kind} {truth}", [numpy.array(truth), x, y], [t, t], '%0:2 = "stablehlo.if"(%a) ({\n    stablehlo.return %b, %c : ' + f"{t}, {t}\n  }}, {{\n"
                          f"    %m = stablehlo.multiply %b, %c : {t}\n    stablehlo.return %m, %b : {t}, {t}\n  }}) : (tensor<i1>) -> ({t}, {t})", "%0#0, %0#1")
    for kind in ("f32", "i32"):
        x, t = some(drawn(f"nested {kind}"), kind, (4,), True), tensor((4,), kind)
        inner = f'"stablehlo.if"(%c) ({{\n      %m = stablehlo.add %v, %a : {t}\n      stablehlo.return %m : {t}\n    }}, {{\n      stablehlo.return %v : {t}\n    }}) : (tensor<i1>) -> {t}'
        for count in (0, 1, 5):
            yield Program(f"while {kind} {count} rounds with an if", [x, array(count, "i32")], [t, "tensor<i32>"],
                          f"%i = stablehlo.constant dense<0> : tensor<i32>\n  %k = stablehlo.constant dense<1> : tensor<i32>\n  %0:2 = stablehlo.while(%v = %a, %j = %i) : {t}, tensor<i32>\n"
                          "  cond {\n    %c = stablehlo.compare LT, %j, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>\n    stablehlo.return %c : tensor<i1>\n  } do {\n"
                          f"    %o = stablehlo.and %j, %k : tensor<i32>\n    %c = stablehlo.compare EQ, %o, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>\n    %w = {inner}\n"
                          f"    %n = stablehlo.add %j, %k : tensor<i32>\n    stablehlo.return %w, %n : {t}, tensor<i32>\n  }}", "%0#0, %0#1")
        yield Program(f"while {kind} within a while", [x], t, f"%i = stablehlo.constant dense<0> : tensor<i32>\n  %k = stablehlo.constant dense<1> : tensor<i32>\n"
                      f"  %l = stablehlo.constant dense<3> : tensor<i32>\n  %1:2 = stablehlo.while(%j = %i, %v = %a) : tensor<i32>, {t}\n"
                      "  cond {\n    %c = stablehlo.compare LT, %j, %l : (tensor<i32>, tensor<i32>) -> tensor<i1>\n    stablehlo.return %c : tensor<i1>\n  } do {\n"
                      f"    %2:2 = stablehlo.while(%g = %i, %w = %v) : tensor<i32>, {t}\n    cond {{\n      %c = stablehlo.compare LE, %g, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
                      f"      stablehlo.return %c : tensor<i1>\n    }} do {{\n      %h = stablehlo.add %g, %k : tensor<i32>\n      %s = stablehlo.add %w, %v : {t}\n"
                      f"      stablehlo.return %h, %s : tensor<i32>, {t}\n    }}\n    %n = stablehlo.add %j, %k : tensor<i32>\n    stablehlo.return %n, %2#1 : tensor<i32>, {t}\n  }}\n"
                      f"  %0 = stablehlo.negate %1#1 : {t}")


def programs():
    for make in (reductions, windows, scatters, sorts, maps, branches):
        yield from make()
