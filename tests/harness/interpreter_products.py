"""Programs of the remaining operations for interpreter_test.py: products, transforms, norms, random bits, calls, structures and what
means little on one device."""
from interpreter_regions import body_of, ints
from interpreter_values import ALL, COMPLEX, FLOATS, INTEGERS, Program, array, drawn, filled, some, tensor, type_of


def of_type(operation, kind, name, shapes, result, text, whole=True, **how):
    """As `moved` has it: {a}, {b}, … are the operands' types, {r} the result's."""
    rng = drawn(f"{operation} {kind} {name}")
    inputs = [some(rng, kind, shape, whole) if isinstance(shape, tuple) else shape for shape in shapes]
    types = {chr(97 + i): type_of(x) for i, x in enumerate(inputs)}
    results = [tensor(r, kind) if isinstance(r, tuple) else r for r in (result if isinstance(result, list) else [result])]
    return Program(f"{operation} {kind} {name}", inputs, results, filled(text, **{**types, "r": results[0]}), **how)


DOTS = {
    "of matrices": ((3, 4), (4, 2), (3, 2), "contracting_dims = [1] x [0]"),
    "of vectors": ((5,), (5,), (), "contracting_dims = [0] x [0]"),
    "of batches": ((2, 3, 4), (2, 4, 5), (2, 3, 5), "batching_dims = [0] x [0], contracting_dims = [2] x [1]"),
    "over two": ((2, 3, 4), (4, 2, 5), (3, 5), "contracting_dims = [0, 2] x [1, 0]"),
    "outer": ((2,), (3,), (2, 3), "contracting_dims = [] x []"),
    "of nothing": ((2, 0), (0, 3), (2, 3), "contracting_dims = [1] x [0]"),
}


def products():
    for name, (x, y, r, dims) in DOTS.items():
        for kind in INTEGERS + FLOATS + COMPLEX:
            if name in ("of matrices", "of batches") or kind in ("f32", "i8", "complex<f32>", "bf16"):
                yield of_type("dot_general", kind, name, [x, y], r, f"%0 = stablehlo.dot_general %a, %b, {dims}, precision = [DEFAULT, HIGHEST] : ({{a}}, {{b}}) -> {{r}}")
    for kind in ("f32", "f64", "f16"):
        yield of_type("dot_general", kind, "of fractions", [(7, 33), (33, 5)], (7, 5), "%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({a}, {b}) -> {r}",
                      False, share=1)
    for source, result in (("i8", "i32"), ("f16", "f32"), ("bf16", "f32"), ("ui8", "ui32")):
        yield of_type("dot_general", source, f"into {result}", [(3, 4), (4, 2)], tensor((3, 2), result),
                      f"%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({{a}}, {{b}}) -> {tensor((3, 2), result)}")
    for kind in ("f32", "i32", "complex<f64>", "bf16"):
        for x, y, r in (((3, 4), (4, 2), (3, 2)), ((3, 4), (4,), (3,)), ((4,), (4,), ())):
            yield of_type("dot", kind, f"{x} {y}", [x, y], r, "%0 = stablehlo.dot %a, %b : ({a}, {b}) -> {r}")
        for config, x, y, r in (("ab,bc->ac", (2, 3), (3, 4), (2, 4)), ("abc,acd->adb", (2, 3, 4), (2, 4, 2), (2, 2, 3)), ("ab,ab->", (2, 3), (2, 3), ()), ("a,b->ba", (2,), (3,), (3, 2)),
                                ("ab,bc->c", (2, 3), (3, 4), (4,))):
            yield of_type("einsum", kind, config, [x, y], r, f'%0 = stablehlo.einsum %a, %b, config = "{config}" : ({{a}}, {{b}}) -> {{r}}')
        for config, x, r in (("ab->ba", (2, 3), (3, 2)), ("abc->b", (2, 3, 4), (3,)), ("ab->", (2, 3), ())):
            yield of_type("unary_einsum", kind, config, [x], r, f'%0 = stablehlo.unary_einsum %a, config = "{config}" : ({{a}}) -> {{r}}')


# Operand, kernel, result, dimension numbers, window, groups.
CONVOLUTIONS = {
    "plain": ((2, 5, 6, 3), (2, 3, 3, 4), (2, 4, 4, 4), "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", "stride = [1, 1]", (1, 1)),
    "strided and padded": ((1, 3, 7, 5), (4, 3, 3, 2), (1, 4, 4, 3), "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]", "stride = [2, 3], pad = [[1, 1], [0, 3]]", (1, 1)),
    "dilated": ((1, 4, 5, 2), (2, 2, 2, 3), (1, 4, 7, 3), "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", "pad = [[0, -1], [0, 0]], lhs_dilate = [2, 2], rhs_dilate = [2, 2]", (1, 1)),
    "reversed": ((1, 5, 2), (3, 2, 2), (1, 3, 2), "[b, 0, f]x[0, i, o]->[b, 0, f]", "reverse = [true]", (1, 1)),
    "of feature groups": ((1, 4, 4, 4), (2, 2, 2, 6), (1, 3, 3, 6), "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", "stride = [1, 1]", (1, 2)),
    "of batch groups": ((4, 4, 4, 2), (2, 2, 2, 6), (2, 3, 3, 6), "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", "stride = [1, 1]", (2, 1)),
    "without space": ((3, 4), (4, 2), (3, 2), "[b, f]x[i, o]->[b, f]", "", (1, 1)),
    "of three dimensions": ((1, 3, 3, 3, 1), (2, 2, 2, 1, 2), (1, 2, 2, 2, 2), "[b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f]", "stride = [1, 1, 1]", (1, 1)),
    "exchanged": ((5, 1, 2, 6), (2, 3, 2, 2), (4, 4, 1, 2), "[0, b, f, 1]x[i, 1, o, 0]->[0, 1, b, f]", "stride = [1, 1]", (1, 1)),
}


def convolutions():
    for name, (x, k, r, numbers, window, (batches, features)) in CONVOLUTIONS.items():
        for kind in ("f32", "f64", "bf16", "i8", "i32", "ui16", "complex<f32>")[:None if name in ("plain", "dilated") else 4]:
            yield of_type("convolution", kind, name, [x, k], r, f"%0 = stablehlo.convolution(%a, %b) dim_numbers = {numbers}, window = {{{window}}} "
                          f"{{batch_group_count = {batches} : i64, feature_group_count = {features} : i64}} : ({{a}}, {{b}}) -> {{r}}")
    for kind in ("f32", "i32"):
        for pad, r in (([[0, 0]], (1, 3, 2)), ([[2, 1]], (1, 6, 2))):
            yield of_type("dynamic_conv", kind, f"padded by {pad}", [(1, 5, 2), (3, 2, 2)], r, f"%p = stablehlo.constant dense<{pad}> : tensor<1x2xi32>\n"
                          '  %0 = "stablehlo.dynamic_conv"(%a, %b, %p) <{batch_group_count = 1 : i64, feature_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>}> : '
                          "({a}, {b}, tensor<1x2xi32>) -> {r}")


def linear():
    import numpy
    for kind in ("f32", "f64", "complex<f32>", "complex<f64>"):
        for shape in ((3, 3), (2, 4, 4), (1, 1), (0, 0)):
            x = some(drawn(f"cholesky {kind} {shape}"), kind, shape)
            x = (x @ numpy.conj(numpy.swapaxes(x, -1, -2)) + 3 * numpy.eye(shape[-1])).astype(x.dtype)
            for lower in ("true", "false"):
                half = numpy.tril(numpy.ones(shape, bool)) if lower == "true" else numpy.triu(numpy.ones(shape, bool))
                yield Program(f"cholesky {kind} {shape} lower {lower}", [x, half, numpy.zeros(shape, x.dtype)], type_of(x), f"%1 = stablehlo.cholesky %a, lower = {lower} : {type_of(x)}\n"
                              f"  %0 = stablehlo.select %b, %1, %c : {type_of(half)}, {type_of(x)}", share=1)
        a = (some(drawn(f"triangular {kind}"), kind, (3, 3)) + 4 * numpy.eye(3)).astype(x.dtype)
        for left, lower, unit, transpose in (("true", "true", "false", "NO_TRANSPOSE"), ("false", "true", "true", "TRANSPOSE"), ("true", "false", "false", "ADJOINT"), ("false", "false", "true", "NO_TRANSPOSE")):
            b = some(drawn(f"solved {kind} {left}"), kind, (3, 2) if left == "true" else (2, 3))
            yield Program(f"triangular_solve {kind} {left} {lower} {unit} {transpose}", [a, b], type_of(b),
                          f'%0 = "stablehlo.triangular_solve"(%a, %b) <{{left_side = {left}, lower = {lower}, unit_diagonal = {unit}, transpose_a = #stablehlo<transpose {transpose}>}}> : '
                          f"({type_of(a)}, {type_of(b)}) -> {type_of(b)}", share=1, slack=4)
    for real, whole in (("f32", "complex<f32>"), ("f64", "complex<f64>")):
        for n in (1, 4, 6, 7, 16):  # of an odd IRFFT the interpreter reads what is not there
            for form, kind, shape, result in (("FFT", whole, (2, n), tensor((2, n), whole)), ("IFFT", whole, (2, n), tensor((2, n), whole)),
                                              ("RFFT", real, (2, n), tensor((2, n // 2 + 1), whole)), ("IRFFT", whole, (2, n // 2 + 1), tensor((2, n), real))):
                if (form, n) != ("IRFFT", 7):
                    yield of_type("fft", kind, f"{form} {n}", [shape], result, f"%0 = stablehlo.fft %a, type = {form}, length = [{n}] : ({{a}}) -> {{r}}", False, share=1)
        yield of_type("fft", whole, "of two dimensions", [(3, 4)], (3, 4), "%0 = stablehlo.fft %a, type = FFT, length = [3, 4] : ({a}) -> {r}", False, share=1)


def norms():
    import numpy
    for kind in FLOATS:
        for shape, axis in (((2, 3, 4), 2), ((4, 3), 1), ((3, 2, 2, 2), 0)):
            rng, n = drawn(f"norm {kind} {shape}"), shape[axis]
            x, g = some(rng, kind, shape), some(rng, kind, shape)
            scale, offset, mean = (some(rng, kind, (n,)) for _ in range(3))
            variance = numpy.abs(some(rng, kind, (n,))) + scale.dtype.type(0.5)
            tail = f"<{{epsilon = 1.000000e-03 : f32, feature_index = {axis} : i64}}>"
            t, v = type_of(x), type_of(scale)
            how = {"share": 1, "slack": 4}
            yield Program(f"batch_norm_inference {kind} {shape}", [x, scale, offset, mean, variance], t,
                          f'%0 = "stablehlo.batch_norm_inference"(%a, %b, %c, %d, %e) {tail} : ({t}, {v}, {v}, {v}, {v}) -> {t}', **how)
            yield Program(f"batch_norm_training {kind} {shape}", [x, scale, offset], [t, v, v],
                          f'%0:3 = "stablehlo.batch_norm_training"(%a, %b, %c) {tail} : ({t}, {v}, {v}) -> ({t}, {v}, {v})', "%0#0, %0#1, %0#2", **how)
            yield Program(f"batch_norm_grad {kind} {shape}", [x, scale, mean, variance, g], [t, v, v],
                          f'%0:3 = "stablehlo.batch_norm_grad"(%a, %b, %c, %d, %e) {tail} : ({t}, {v}, {v}, {v}, {t}) -> ({t}, {v}, {v})', "%0#0, %0#1, %0#2", **how)


def random_bits():
    for algorithm, words in (("THREE_FRY", (2,)), ("PHILOX", (2, 3)), ("DEFAULT", (3,))):
        for size in words:
            for kind, shape in (("ui32", (5,)), ("ui64", (2, 3)), ("ui8", (7,)), ("ui16", (3, 3)), ("ui32", (0,)), ("ui32", ())):
                state = some(drawn(f"bits {algorithm} {kind}"), "ui64", (size,))
                result = tensor(shape, kind)
                yield Program(f"rng_bit_generator {algorithm} {size} {kind} {shape}", [state], [type_of(state), result],
                              f"%0, %1 = stablehlo.rng_bit_generator %a, algorithm = {algorithm} : ({type_of(state)}) -> ({type_of(state)}, {result})", "%0, %1")


def collectives():
    one, device = "replica_groups = dense<0> : tensor<1x1xi64>", "channel_handle = #stablehlo.channel_handle<handle = 0, type = 0>"
    for kind in ("f32", "i8", "ui64", "bf16", "i1"):
        x = some(drawn(f"collective {kind}"), kind, (2, 3))
        t = type_of(x)
        add = body_of("add", kind)
        for name, attributes, body in (("all_gather", f"all_gather_dim = 1 : i64, {one}", ""), ("all_reduce", one, add),
                                       ("all_to_all", f"split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 1 : i64, {one}", ""), ("collective_broadcast", one, ""),
                                       ("collective_permute", "source_target_pairs = dense<0> : tensor<1x2xi64>", ""), ("reduce_scatter", f"scatter_dimension = 0 : i64, {one}", add)):
            yield Program(f"{name} {kind}", [x], t, f'%0 = "stablehlo.{name}"(%a) <{{{attributes}}}> {body} : ({t}) -> {t}', exact=True, expected=[x])
    yield Program("collective_permute f32 from nowhere", [x.astype("f4")], tensor((2, 3), "f32"),
                  '%0 = "stablehlo.collective_permute"(%a) <{source_target_pairs = dense<> : tensor<0x2xi64>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>')
    yield Program("all_reduce f32 across the process", [x.astype("f4")], tensor((2, 3), "f32"),
                  f'%0 = "stablehlo.all_reduce"(%a) <{{{one}, {device.replace("handle = 0", "handle = 1")}, use_global_device_ids}}> {body_of("maximum", "f32")} : (tensor<2x3xf32>) -> tensor<2x3xf32>')
    for name in ("replica_id", "partition_id"):
        yield Program(name, [], "tensor<ui32>", f"%0 = stablehlo.{name} : tensor<ui32>")


def structures():
    for kind in ALL:
        x = some(drawn(f"call {kind}"), kind, (2, 2))
        t = type_of(x)
        twice = f"func.func private @f(%x: {t}, %y: {t}) -> ({t}, {t}) {{\n  %z = stablehlo.reverse %y, dims = [0] : {t}\n  return %z, %x : {t}, {t}\n}}\n"
        yield Program(f"func.call {kind}", [x], [t, t], f"%1:2 = call @f(%a, %a) : ({t}, {t}) -> ({t}, {t})\n  %0:2 = func.call @f(%1#1, %1#0) : ({t}, {t}) -> ({t}, {t})", "%0#0, %0#1", twice, exact=True)
        yield Program(f"composite {kind}", [x], [t, t], f'%0:2 = stablehlo.composite "my.op" %a, %a {{composite_attributes = {{k = 3 : i64}}, decomposition = @f, version = 1 : i32}} : '
                      f"({t}, {t}) -> ({t}, {t})", "%0#0, %0#1", twice, exact=True)
    t = "tensor<2xf32>"
    x, y = array([1.5, -0.0], "f32"), array([3, 4], "i32")
    pair = f"tuple<{t}, tensor<2xi32>>"
    make = f"%t = stablehlo.tuple %a, %b : {pair}\n  %u = stablehlo.tuple %t, %a : tuple<{pair}, {t}>\n"
    for subject in ("tuple", "get_tuple_element"):
        yield Program(f"{subject} within another", [x, y], ["tensor<2xi32>", t], make + f"  %v = stablehlo.get_tuple_element %u[0] : (tuple<{pair}, {t}>) -> {pair}\n"
                      f"  %0 = stablehlo.get_tuple_element %v[1] : ({pair}) -> tensor<2xi32>\n  %1 = stablehlo.get_tuple_element %u[1] : (tuple<{pair}, {t}>) -> {t}", "%0, %1")
    token = "!stablehlo.token"
    yield Program("after_all", [x], t, f"%k = stablehlo.after_all : {token}\n  %l = stablehlo.after_all %k, %k : {token}\n  %0 = stablehlo.negate %a : {t}")
    yield Program("create_token", [x], t, f"%k = stablehlo.create_token : {token}\n  %l = stablehlo.after_all %k : {token}\n  %0 = stablehlo.negate %a : {t}")
    yield Program("optimization_barrier of two", [x, y], [t, "tensor<2xi32>"], f"%0:2 = stablehlo.optimization_barrier %a, %b : {t}, tensor<2xi32>", "%0#0, %0#1")
    for target in ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "xla.sdy.FuncResultSharding"):
        yield Program(f"stablehlo.custom_call @{target}", [x], t, f'%0 = stablehlo.custom_call @{target}(%a) {{mhlo.sharding = "{{replicated}}"}} : ({t}) -> {t}', expected=[x])
    mesh = 'sdy.mesh @mesh = <["x"=1]>\n'
    yield Program("sdy.sharding_constraint", [x], t, f'%0 = sdy.sharding_constraint %a <@mesh, [{{"x"}}]> : {t}', more=mesh)
    yield Program("sdy.manual_computation", [x], t, '%0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}]>] out_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"} '
                  f"(%x: {t}) {{\n    %z = stablehlo.add %x, %x : {t}\n    sdy.return %z : {t}\n  }} : ({t}) -> {t}", more=mesh, expected=[x + x])
    q = "tensor<5x!quant.uniform<i8:f32, 0.5:3>>"
    z = array([-1.25, 0.75, 1e9, -1e9, 0.2], "f32")
    yield Program("uniform_quantize", [z], q, f"%0 = stablehlo.uniform_quantize %a : ({type_of(z)}) -> {q}")
    yield Program("uniform_dequantize", [z], type_of(z), f"%1 = stablehlo.uniform_quantize %a : ({type_of(z)}) -> {q}\n  %0 = stablehlo.uniform_dequantize %1 : ({q}) -> {type_of(z)}")


def largest():
    import numpy
    for kind in FLOATS + INTEGERS:
        x = some(drawn(f"top_k {kind}"), kind, (2, 9))
        r = [tensor((2, 4), kind), "tensor<2x4xi32>"]
        yield Program(f"chlo.top_k {kind}", [x], r, f"%0, %1 = chlo.top_k(%a, k = 4) : {type_of(x)} -> ({r[0]}, {r[1]})", "%0, %1", exact=True)
    for kind in ("f32", "bf16"):
        x = array([[1, numpy.nan, -0.0, 0.0, numpy.inf, -numpy.inf, 1]], kind)
        r = [tensor((1, 7), kind), "tensor<1x7xi32>"]
        yield Program(f"chlo.top_k {kind} edges", [x], r, f"%0, %1 = chlo.top_k(%a, k = 7) : {type_of(x)} -> ({r[0]}, {r[1]})", "%0, %1", exact=True)


def approximate():
    """As jax.lax.approx_max_k has it; with a recall of one, a sort."""
    x, i = some(drawn("approximate"), "f32", (16,)), array(range(16), "i32")
    names = "tensor<f32>", "tensor<i32>"
    yield Program("stablehlo.custom_call @ApproxTopK", [x, i, array(float("-inf"), "f32"), array(-1, "i32")], ["tensor<4xf32>", "tensor<4xi32>"],
                  "%0:2 = stablehlo.custom_call @ApproxTopK(%a, %b, %c, %d) {called_computations = [@first], mhlo.backend_config = {aggregate_to_topk = true, is_fallback = true, "
                  "recall_target = 1.0 : f32, reduction_dim = 0 : i64, reduction_input_size_override = -1 : i64, top_k = 4 : i64}} : "
                  f"({type_of(x)}, {type_of(i)}, {names[0]}, {names[1]}) -> (tensor<4xf32>, tensor<4xi32>)", "%0#0, %0#1",
                  f"func.func private @first(%x: {names[0]}, %y: {names[0]}, %k: {names[1]}, %l: {names[1]}) -> tensor<i1> {{\n"
                  f"  %z = stablehlo.compare GT, %x, %y : ({names[0]}, {names[0]}) -> tensor<i1>\n  return %z : tensor<i1>\n}}\n")


def programs():
    for make in (products, convolutions, linear, norms, random_bits, collectives, structures, largest, approximate):
        yield from make()
