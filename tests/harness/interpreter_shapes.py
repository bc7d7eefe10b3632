"""Programs of one operation that moves elements, for interpreter_test.py: shapes, attributes and indices, out of range too."""
from interpreter_values import ALL, COMPLEX, ELEMENTS, FLOATS, INTEGERS, Program, array, drawn, dtype_of, edges, filled, scalars, some, tensor, type_of


def kinds_for(name, count=4, among=ALL):
    """Some of the element types, others for each name."""
    return [among[i] for i in sorted(drawn(name).permutation(len(among))[:count])]


def moved(operation, name, shape, result, text, more=(), among=ALL, count=4, values=some, **how):
    """The operation on an operand %a of several element types; `text` has {a} and {r} for the types of operand and result, {e} for the
    element, {b}, {c}, … for those of `more`, which are given as arrays or made of the element."""
    for kind in kinds_for(operation + name, count, among):
        rng = drawn(f"{operation} {kind} {name}")
        inputs = [values(rng, kind, shape)] + [m(rng, kind) if callable(m) else m for m in more]
        results = [tensor(s, kind) for s in result] if isinstance(result, list) else tensor(result, kind)
        first = results[0] if isinstance(results, list) else results
        types = {chr(97 + i): type_of(x) for i, x in enumerate(inputs)}
        yield Program(f"{operation} {kind} {name}", inputs, results, filled(text, r=first, **types), exact=True, **how)


def of(shape):
    return lambda rng, kind: some(rng, kind, shape)


def structure():
    for name, shape, result, dims in (("a scalar", (), (2, 3), []), ("a row", (3,), (2, 3), [1]), ("a column", (2,), (2, 3), [0]),
                                      ("ones repeated", (2, 1, 3), (2, 4, 3), [0, 1, 2]), ("turned", (2, 3), (3, 2, 2), [2, 0]), ("nothing", (0,), (2, 0), [1])):
        yield from moved("broadcast_in_dim", name, shape, result, f"%0 = stablehlo.broadcast_in_dim %a, dims = {dims} : ({{a}}) -> {{r}}")
        size = array(result, "i32")
        yield from moved("dynamic_broadcast_in_dim", name, shape, result, f"%s = stablehlo.constant dense<{list(result)}> : tensor<{len(result)}xi32>\n"
                         f"  %0 = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = {dims} : ({{a}}, {type_of(size)}) -> {{r}}", count=2)
    for name, shape, sizes in (("a scalar", (), [2, 3]), ("a row", (3,), [2]), ("nothing", (2,), [0, 1])):
        yield from moved("broadcast", name, shape, (*sizes, *shape), f"%0 = stablehlo.broadcast %a, sizes = {sizes} : ({{a}}) -> {{r}}")
    for name, shape, result in (("to a row", (2, 3), (6,)), ("to more", (4, 3), (2, 2, 1, 3)), ("of one", (1, 1), ()), ("of nothing", (0, 3), (3, 0, 2))):
        yield from moved("reshape", name, shape, result, "%0 = stablehlo.reshape %a : ({a}) -> {r}")
        yield from moved("dynamic_reshape", name, shape, result, f"%s = stablehlo.constant dense<{list(result)}> : tensor<{len(result)}xi64>\n"
                         f"  %0 = stablehlo.dynamic_reshape %a, %s : ({{a}}, tensor<{len(result)}xi64>) -> {{r}}", count=2)
    for name, shape, dims in (("of a matrix", (2, 3), [1, 0]), ("of rank 4", (2, 3, 1, 4), [3, 1, 0, 2]), ("of nothing", (0, 2), [1, 0]), ("of a scalar", (), [])):
        yield from moved("transpose", name, shape, tuple(shape[d] for d in dims), f"%0 = stablehlo.transpose %a, dims = {dims} : ({{a}}) -> {{r}}")
        yield from moved("reverse", name, shape, shape, f"%0 = stablehlo.reverse %a, dims = {dims[:1]} : {{a}}")
    for name, shape, at, result in (("strided", (5, 7), "1:5:2, 0:7:3", (2, 3)), ("empty", (3, 2), "1:1, 0:2", (0, 2)), ("whole", (4,), "0:4", (4,)), ("of a scalar", (), "", ())):
        yield from moved("slice", name, shape, result, f"%0 = stablehlo.slice %a [{at}] : ({{a}}) -> {{r}}")
    for name, shape, start, limit, stride, result in (("strided", (5, 7), [1, 0], [5, 7], [2, 3], (2, 3)), ("empty", (3,), [2], [2], [1], (0,))):
        index = f"tensor<{len(start)}xi32>"
        yield from moved("real_dynamic_slice", name, shape, result, f"%s = stablehlo.constant dense<{start}> : {index}\n  %l = stablehlo.constant dense<{limit}> : {index}\n"
                         f"  %t = stablehlo.constant dense<{stride}> : {index}\n  %0 = stablehlo.real_dynamic_slice %a, %s, %l, %t : ({{a}}, {index}, {index}, {index}) -> {{r}}")
    for name, low, high, interior, result in (("with edges", [1, 0], [0, 2], [0, 0], (3, 5)), ("between", [0, 1], [1, 0], [2, 1], (5, 6)),
                                              ("cut", [-1, 0], [0, -2], [0, 0], (1, 1)), ("between and cut", [0, -1], [-1, 0], [1, 2], (2, 6))):
        yield from moved("pad", name, (2, 3), result, f"%0 = stablehlo.pad %a, %b, low = {low}, high = {high}, interior = {interior} : ({{a}}, {{b}}) -> {{r}}", [of(())])
        sizes = [f"%{n} = stablehlo.constant dense<{v}> : tensor<2xi64>\n  " for n, v in (("l", low), ("h", high), ("i", interior))]
        yield from moved("dynamic_pad", name, (2, 3), result, "".join(sizes) + "%0 = stablehlo.dynamic_pad %a, %b, %l, %h, %i : ({a}, {b}, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> {r}",
                         [of(())], count=2)
    yield from moved("concatenate", "of three", (2, 3), (2, 6), "%0 = stablehlo.concatenate %a, %b, %c, dim = 1 : ({a}, {b}, {c}) -> {r}", [of((2, 0)), of((2, 3))], count=8)
    yield from moved("concatenate", "of one", (4,), (4,), "%0 = stablehlo.concatenate %a, dim = 0 : ({a}) -> {r}")
    for shape, dim in (((7,), 0), ((2, 300), 1), ((3, 2, 2), 0), ((0, 2), 1)):
        for kind in kinds_for(f"iota {shape}", 5, INTEGERS + FLOATS + COMPLEX):
            yield Program(f"iota {kind} {shape} along {dim}", [], tensor(shape, kind), f"%0 = stablehlo.iota dim = {dim} : {tensor(shape, kind)}", exact=True)
            yield Program(f"dynamic_iota {kind} {shape} along {dim}", [], tensor(shape, kind), f"%s = stablehlo.constant dense<{list(shape)}> : tensor<{len(shape)}xi64>\n"
                          f"  %0 = stablehlo.dynamic_iota %s, dim = {dim} : (tensor<{len(shape)}xi64>) -> {tensor(shape, kind)}", exact=True)
    yield from moved("get_dimension_size", "of two", (4, 0), (4, 0), "%1 = stablehlo.get_dimension_size %a, dim = 0 : ({a}) -> tensor<i32>\n  %0 = stablehlo.convert %1 : (tensor<i32>) -> tensor<i32>",
                     returns="%a")
    for dim in (0, 1):
        yield Program(f"get_dimension_size {dim}", [array([[1, 2, 3]], "f32")], "tensor<i32>",
                      f"%0 = stablehlo.get_dimension_size %a, dim = {dim} : (tensor<1x3xf32>) -> tensor<i32>")


def constants():
    for kind in ALL:
        x = edges(kind)
        for name, raw in (("by its bytes", x.tobytes()), ("of equal elements", None)):
            if raw is None:
                value = {"i1": "true"}.get(kind, "(1.5,-0.0)" if kind in COMPLEX else "-1.5" if kind in FLOATS else "7")
                shape = (2, 3)
            elif kind == "i1":
                continue  # bits, by other rules
            else:
                value, shape = f'"0x{raw.hex().upper()}"', x.shape
            yield Program(f"constant {kind} {name}", [], tensor(shape, kind), f"%0 = stablehlo.constant dense<{value}> : {tensor(shape, kind)}", exact=True)
    for kind, listed in (("f32", "[[0x7FC00000, 1.0], [-0.0, 0xFF800000]]"), ("f16", "[[1.0, 65504.0], [-0.0, 0x7C00]]"), ("i8", "[[-128, 127], [0, 1]]"),
                         ("ui64", "[[18446744073709551615, 0], [1, 2]]"), ("i1", "[[true, false], [false, true]]"), ("complex<f32>", "[[(1.0,-0.0), (0x7F800000,2.0)], [(0.0,0.0), (1.0,1.0)]]")):
        yield Program(f"constant {kind} listed", [], tensor((2, 2), kind), f"%0 = stablehlo.constant dense<{listed}> : {tensor((2, 2), kind)}", exact=True)
    yield Program("constant f32 empty", [], "tensor<0x2xf32>", "%0 = stablehlo.constant dense<> : tensor<0x2xf32>", exact=True)
    # The same bits under other types: of the same width, of smaller elements in a last dimension, and back.
    for source, target in (("f32", "i32"), ("f32", "ui32"), ("bf16", "f16"), ("i64", "f64"), ("ui8", "i8"), ("f16", "i16"), ("f64", "ui64"), ("complex<f64>", "complex<f64>")):
        x = edges(source)
        yield Program(f"bitcast_convert {source} to {target}", [x], tensor(x.shape, target), f"%0 = stablehlo.bitcast_convert %a : ({type_of(x)}) -> {tensor(x.shape, target)}", exact=True)
    for wide, narrow in (("i32", "i8"), ("f32", "ui16"), ("f64", "f32"), ("ui64", "bf16"), ("i16", "ui8"), ("f64", "ui8")):
        x = some(drawn(f"bits {wide}"), wide, (3, 2))
        parts = x.dtype.itemsize // dtype_of(narrow).itemsize
        small, large = tensor((3, 2, parts), narrow), type_of(x)
        yield Program(f"bitcast_convert {wide} to smaller {narrow}", [x], small, f"%0 = stablehlo.bitcast_convert %a : ({large}) -> {small}", exact=True)
        yield Program(f"bitcast_convert {narrow} to larger {wide}", [x], large,
                      f"%1 = stablehlo.bitcast_convert %a : ({large}) -> {small}\n  %0 = stablehlo.bitcast_convert %1 : ({small}) -> {large}", exact=True)


def dynamic_indices():
    for name, starts, index in (("inside", (1, 2), "i32"), ("past the end", (9, 3), "i64"), ("before the beginning", (-5, -1), "i8"), ("beyond a signed range", (255, 1), "ui8"),
                                ("beyond every size", (2 ** 63 - 1, 0), "i64"), ("beyond every unsigned size", (2 ** 64 - 1, 1), "ui64")):
        i, j = scalars(*starts, kind=index)
        types = f"{{a}}, {type_of(i)}, {type_of(j)}"
        yield from moved("dynamic_slice", name, (3, 5), (2, 3), f"%0 = stablehlo.dynamic_slice %a, %b, %c, sizes = [2, 3] : ({types}) -> {{r}}", [i, j])
        yield from moved("dynamic_update_slice", name, (3, 5), (3, 5), f"%0 = stablehlo.dynamic_update_slice %a, %b, %c, %d : ({{a}}, {{b}}, {{c}}, {{d}}) -> {{r}}", [of((2, 3)), i, j])
    yield from moved("dynamic_update_slice", "with nothing", (3,), (3,), "%0 = stablehlo.dynamic_update_slice %a, %b, %c : ({a}, {b}, {c}) -> {r}", [of((0,)), array(1, "i32")])


# Operand, indices, attributes in words, slice sizes, result.
GATHERS = {
    "rows": ((5, 3), [[0], [4], [-1], [7], [2]], "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1", [1, 3], (5, 3)),
    "windows": ((4, 6), [[1, 2], [3, 5], [-4, 9]], "offset_dims = [1, 2], start_index_map = [0, 1], index_vector_dim = 1", [2, 3], (3, 2, 3)),
    "elements": ((4, 6), [[1, 2], [3, 5], [0, 100]], "collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1", [1, 1], (3,)),
    "exchanged": ((4, 6), [[5, 2], [0, 3]], "offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [1, 0], index_vector_dim = 1", [1, 2], (2, 2)),
    "implicit vector": ((5, 3), [0, 2, 2, 8], "offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1", [1, 2], (2, 4)),
    "indices first": ((5, 3), [[0, 3], [1, 1]], "offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0, 1], index_vector_dim = 0", [1, 2], (2, 2)),
    "batches": ((2, 5, 3), [[[0], [9]], [[4], [1]]],
                "offset_dims = [2], collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2", [1, 1, 3], (2, 2, 3)),
    "nothing": ((5, 3), [[0]], "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1", [1, 0], (1, 0)),
}


def gathers():
    for n, (name, (shape, indices, numbers, sizes, result)) in enumerate(GATHERS.items()):
        i = array(indices, ("i32", "i64", "i16", "i8")[n % 4])
        yield from moved("gather", name, shape, result, f'%0 = "stablehlo.gather"(%a, %b) <{{dimension_numbers = #stablehlo.gather<{numbers}>, '
                         f"slice_sizes = array<i64: {', '.join(map(str, sizes))}>, indices_are_sorted = false}}> : ({{a}}, {{b}}) -> {{r}}", [i], count=5)
        yield from moved("dynamic_gather", name, shape, result, f"%s = stablehlo.constant dense<{sizes}> : tensor<{len(sizes)}xi32>\n"
                         f'  %0 = "stablehlo.dynamic_gather"(%a, %b, %s) <{{dimension_numbers = #stablehlo.gather<{numbers}>, '
                         f"indices_are_sorted = false}}> : ({{a}}, {{b}}, tensor<{len(sizes)}xi32>) -> {{r}}", [i], count=2)
    for name, shape, indices, dim, batch, result in (("of rows", (4, 3), [2, 0, 3], 0, 0, (3, 3)), ("of columns", (4, 3), [2, 0], 1, 0, (4, 2)), ("of batches", (2, 3), [[2, 0], [1, 1]], 1, 1, (2, 2))):
        yield from moved("torch_index_select", name, shape, result, f'%0 = "stablehlo.torch_index_select"(%a, %b) <{{dim = {dim} : i64, batch_dims = {batch} : i64}}> : ({{a}}, {{b}}) -> {{r}}',
                         [array(indices, "i32")])


def programs():
    for make in (structure, constants, dynamic_indices, gathers):
        yield from make()
