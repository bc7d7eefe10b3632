"""Texts of valid StableHLO that Weft refuses, for interpreter_test.py, each with words of the message. One that is read fails the test:
programs that compare must take its place."""
from interpreter_values import tensor

# Types that are not there.
ABSENT = ("f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "tf32")


def main(arguments, results, body, returned="%0"):
    return f"func.func public @main({arguments}) -> {results} {{\n  {body}\n  return {returned} : {results}\n}}\n"


def unary(operation, kind, tail=""):
    t = tensor((2, 2), kind)
    return main(f"%a: {t}", t, f"%0 = stablehlo.{operation} %a{tail} : {t}")


def refused():
    """(name, text, words)"""
    for kind in ABSENT:
        yield f"negate {kind}", unary("negate", kind), kind
        yield f"convert from {kind}", main(f"%a: {tensor((2,), kind)}", "tensor<2xf32>", f"%0 = stablehlo.convert %a : ({tensor((2,), kind)}) -> tensor<2xf32>"), kind
    f, token = "tensor<2xf32>", "!stablehlo.token"
    channel = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true"
    yield "a size that is not known", main("%a: tensor<?xf32>", "tensor<?xf32>", "%0 = stablehlo.negate %a : tensor<?xf32>"), "tensor<?xf32>"
    yield "infeed", main(f"%a: {f}", f, f'%k = stablehlo.create_token : {token}\n  %0, %1 = "stablehlo.infeed"(%k) <{{infeed_config = ""}}> : ({token}) -> ({f}, {token})'), "stablehlo.infeed"
    yield "outfeed", main(f"%a: {f}", f, f'%k = stablehlo.create_token : {token}\n  %1 = "stablehlo.outfeed"(%a, %k) <{{outfeed_config = ""}}> : ({f}, {token}) -> {token}', "%a"), "stablehlo.outfeed"
    yield "send", main(f"%a: {f}", f, f'%k = stablehlo.create_token : {token}\n  %1 = "stablehlo.send"(%a, %k) <{{{channel}}}> : ({f}, {token}) -> {token}', "%a"), "stablehlo.send"
    yield "recv", main(f"%a: {f}", f, f'%k = stablehlo.create_token : {token}\n  %0, %1 = "stablehlo.recv"(%k) <{{{channel}}}> : ({token}) -> ({f}, {token})'), "stablehlo.recv"
    yield "set_dimension_size", main(f"%a: {f}, %n: tensor<i32>", "tensor<?xf32, #stablehlo.bounds<2>>",
                                     f"%0 = stablehlo.set_dimension_size %a, %n, dim = 0 : ({f}, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<2>>"), "stablehlo.set_dimension_size"
    yield "custom_call", main(f"%a: {f}", f, f"%0 = stablehlo.custom_call @somebody(%a) : ({f}) -> {f}"), "stablehlo.custom_call @somebody"
