"""Programs of CHLO's scan and ragged_dot for interpreter_test.py: bodies along a dimension, and products of groups of rows."""
from interpreter_values import Program, array, drawn, some, tensor, type_of


def running(kind, e, form):
    """(what a body computes of a slice %x and of what is carried, %y; how its result is called)"""
    return {"sum": f"%z = stablehlo.add %y, %x : {e}", "difference": f"%z = stablehlo.subtract %x, %y : {e}",
            "product": f"%z = stablehlo.multiply %y, %x : {e}"}[form]


def scans():
    import numpy
    for kind in ("f32", "i32", "ui8", "f64", "bf16"):
        for shape, dimension in (((4,), 0), ((2, 3), 1), ((3, 2, 2), 1), ((1, 2), 0)):
            for form, reverse in (("sum", False), ("difference", True), ("product", False)):
                slice_of = tuple(n for d, n in enumerate(shape) if d != dimension)
                x, v, e = some(drawn(f"scan {kind} {shape} {form}"), kind, shape, True), array(numpy.full(slice_of, 2), kind), tensor(slice_of, kind)
                more = " attributes {is_reverse = true}" if reverse else ""
                types = f"({type_of(x)}, {e}) -> ({type_of(x)}, {e})"
                rows, last = expected_scan(x, v, dimension, form, reverse)
                yield Program(f"chlo.scan {kind} {shape} {form} along {dimension}", [x, v], [type_of(x), e],
                              f"%0:2 = chlo.scan(%a) inits(%b) dimension={dimension}{more} {{\n  ^bb0(%x: {e}, %y: {e}):\n    {running(kind, e, form)}\n"
                              f"    stablehlo.return %z, %z : {e}, {e}\n  }} : {types}", "%0#0, %0#1", exact=kind not in ("bf16",), expected=[rows, last])
    # Two inputs and two carried values; the outputs come before what is carried.
    x, i = array([3, 1, 4, 1, 5], "i32"), array([0, 1, 2, 3, 4], "i32")
    e, t = "tensor<i32>", "tensor<5xi32>"
    best = numpy.maximum.accumulate(x + 10)
    place = numpy.array([numpy.flatnonzero(x[:k + 1] == x[:k + 1].max())[-1] for k in range(5)], "i4")
    yield Program("chlo.scan i32 of two inputs", [x, i, array(-2 ** 31, "i32"), array(0, "i32")], [t, t, e, e],
                  f'%0:4 = "chlo.scan"(%a, %b, %c, %d) <{{dimension = 0 : i64, is_reverse = false, operandSegmentSizes = array<i32: 2, 2>, resultSegmentSizes = array<i32: 2, 2>}}> ({{\n'
                  f"  ^bb0(%v: {e}, %j: {e}, %w: {e}, %k: {e}):\n    %e = stablehlo.constant dense<10> : {e}\n    %u = stablehlo.add %v, %e : {e}\n    %m = stablehlo.maximum %u, %w : {e}\n"
                  f"    %g = stablehlo.compare GT, %w, %u : ({e}, {e}) -> tensor<i1>\n    %n = stablehlo.select %g, %k, %j : tensor<i1>, {e}\n"
                  f"    stablehlo.return %m, %n, %m, %n : {e}, {e}, {e}, {e}\n  }}) : ({t}, {t}, {e}, {e}) -> ({t}, {t}, {e}, {e})", "%0#0, %0#1, %0#2, %0#3", exact=True,
                  expected=[best.astype("i4"), place, best[-1].astype("i4"), place[-1]])


def expected_scan(x, carried, dimension, form, reverse):
    import numpy
    rows = numpy.moveaxis(x, dimension, 0)
    found = numpy.empty_like(rows)
    for at in range(len(rows))[::-1 if reverse else 1]:
        step = {"sum": lambda r, c: c + r, "difference": lambda r, c: r - c, "product": lambda r, c: c * r}[form]
        carried = step(rows[at], carried).astype(x.dtype)
        found[at] = carried
    return numpy.ascontiguousarray(numpy.moveaxis(found, 0, dimension)), carried


# Shapes of lhs, rhs and sizes; dimension numbers: batching, contracting, ragged, groups; shape of the result.
RAGGED = {
    "rows": ((7, 3), (3, 3, 2), (3,), ([], []), ([1], [1]), [0], [0], (7, 2)),
    "rows turned": ((3, 7), (2, 3, 3), (3,), ([], []), ([0], [2]), [1], [1], (7, 2)),
    "rows of a batch": ((2, 7, 3), (3, 2, 3, 4), (3,), ([0], [1]), ([2], [2]), [1], [0], (2, 7, 4)),
    "rows of a batch with sizes": ((2, 7, 3), (3, 2, 3, 4), (2, 3), ([0], [1]), ([2], [2]), [1], [0], (2, 7, 4)),
    "parts of a sum": ((5, 7), (7, 2), (3,), ([], []), ([1], [0]), [1], [], (3, 5, 2)),
    "parts of a sum in a batch": ((2, 5, 7), (2, 7, 3), (2, 3), ([0], [0]), ([2], [1]), [2], [], (3, 2, 5, 3)),
    "a batch": ((4, 2, 3), (4, 3, 2), (2,), ([0], [0]), ([2], [1]), [0], [], (4, 2, 2)),
}


def ragged():
    import numpy
    for name, (left, right, sizes, batch, sums, along, group, result) in RAGGED.items():
        for kind in ("f32", "f64", "i32"):
            rng = drawn(f"ragged {name} {kind}")
            x, y = some(rng, kind, left, True), some(rng, kind, right, True)
            counts = rng.integers(0, 4, sizes).astype("i8")
            numbers = {"lhs_batching_dimensions": batch[0], "rhs_batching_dimensions": batch[1], "lhs_contracting_dimensions": sums[0],
                       "rhs_contracting_dimensions": sums[1], "lhs_ragged_dimensions": along, "rhs_group_dimensions": group}
            said = ", ".join(f"{key} = {value}" for key, value in numbers.items())
            yield Program(f"chlo.ragged_dot {kind} of {name}", [x, y, counts], tensor(result, kind),
                          f'%0 = "chlo.ragged_dot"(%a, %b, %c) <{{precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>], ragged_dot_dimension_numbers = #chlo.ragged_dot<{said}>}}> : '
                          f"({type_of(x)}, {type_of(y)}, {type_of(counts)}) -> {tensor(result, kind)}", expected=[expected_ragged(x, y, counts, numbers, result)])


def expected_ragged(x, y, counts, numbers, result):
    """Element by element, over all places of both operands."""
    import numpy
    found = numpy.zeros(result, x.dtype)
    lb, rb, ls, rs, (along,), group = numbers.values()
    free = lambda rank, *taken: [d for d in range(rank) if not any(d in t for t in taken)]
    left, right = free(x.ndim, lb, ls), free(y.ndim, rb, rs, group)
    for at in numpy.ndindex(*x.shape):
        size = counts[tuple(at[d] for d in lb)] if counts.ndim > 1 else counts
        ends = numpy.cumsum(size)
        owner = int(numpy.searchsorted(ends, at[along], side="right"))
        if along not in lb and owner == len(ends):
            continue
        for other in numpy.ndindex(*y.shape):
            if any(at[i] != other[j] for i, j in zip(lb + ls, rb + rs)) or (group and other[group[0]] != owner):
                continue
            place = [at[d] for d in lb] + [at[d] for d in left] + [other[d] for d in right]
            found[tuple(([owner] if along in ls else []) + place)] += x[at] * y[other]
    return found


def programs():
    yield from scans()
    yield from ragged()
