#!/usr/bin/env python3
"""Writes vectors.json: calls of the C ABI with what must come of them, for replayers in any language.

A vector is a list of calls, each a function and its arguments in the order of C. An argument is
  5, 1.5, null               a number, NULL
  "WEFT_F32"                 a constant or enumerator
  "$x"                       the register x: what an out parameter of an earlier call gave
  {"u64": "18446…"}          a number that a double cannot hold
  {"text": "abc"}            a pointer to UTF-8; {tmp} stands for a folder of the replayer's
  {"f32": [1, 2]}            a pointer to such elements (f32, f64, i32, i64, u8)
  {"handles": ["$x", null], "type": "weft_tensor"}      a pointer to handles
  {"out": "x", "type": "weft_tensor*"}                  a pointer to a zero of that type, which becomes the register x
  {"outs": "x", "type": "int64_t", "count": 4}          a pointer to as many; the register is the list
  {"struct": "weft_sum_opts", "fields": {…}, "out": "x"}  a pointer to a struct, emptied by its init function if it has one
  {"structs": "weft_setting", "items": [{…}]}           a pointer to structs
  {"callback": "log", "type": "weft_log_fn"}            a function that counts its calls and adds up its user_data
  {"address": 77}            a pointer that is this number (user_data, a handle that is none), {"type": …} if it is a handle's
After a call: "error" is what a fallible function must give (absent: NULL), "returns" what another one does (a number,
{"text": …}, or {"not_null": true}); "expect" lists what registers hold: {"reg", "is"} a number or list, {"reg", "length", "is"} a text of
that length, {"blob", "is" or "has"} the text of a blob, {"tensor", "dtype", "is"} elements on the host, {"reg", "field", "is"} a field
of a struct, {"counter", "calls" or "at_least", "user_data"} what a callback saw. A vector with "any_thread" has a callback that may come from
a thread of the library's.
"""
import json
import os
import sys

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors.json")
RELEASE = {t: t + "_release" for t in ("weft_tensor", "weft_context", "weft_device", "weft_event", "weft_tree", "weft_blob", "weft_cache",
                                       "weft_optimizer", "weft_checkpoint_reader", "weft_error")}
VECTORS = []
STRLEN = "WEFT_STRLEN"


class Vector:
    """One vector; what comes out of its calls is released at its end, unless a call took it over."""

    def __init__(self, name, settings=None, context=True, **more):
        self.entry = {"name": name, **more, "calls": []}
        self.owned = []
        VECTORS.append(self)
        if context:
            self("weft_context_create", options(settings or QUIET), out("ctx", "weft_context*"))

    def __call__(self, function, *args, **after):
        call = {"call": function, "args": list(args)}
        call.update(after)
        self.entry["calls"].append(call)
        for a in args if "error" not in after else ():
            if isinstance(a, dict) and ("out" in a or "outs" in a) and a.get("type", "")[:-1] in RELEASE and not after.get("lent"):
                names = [a["out"]] if "out" in a else ["%s[%d]" % (a["outs"], i) for i in range(a["count"])]
                self.owned += [(a["type"][:-1], n) for n in names]
        call.pop("lent", None)
        return self

    def gone(self, name):
        """A handle that a call ended or took over."""
        self.owned = [o for o in self.owned if o[1] != name]
        return self

    def tensor(self, name, dtype, dims, values):
        size = {"f32": 4, "f64": 8, "i32": 4, "i64": 8, "u8": 1}
        kind = "u8" if dtype == "bool" else dtype
        return self("weft_tensor_from_host", "$ctx", None, "WEFT_" + dtype.upper(), {"i64": dims}, len(dims), {kind: values},
                    size[kind] * len(values), out(name, "weft_tensor*"))

    def gives(self, name, dtype, dims, values):
        """The tensor has this dtype, these dims and these elements."""
        self("weft_tensor_dtype", "$" + name, out("dtype", "weft_dtype"), expect=[{"reg": "dtype", "is": "WEFT_" + dtype.upper()}])
        self("weft_tensor_dims", "$" + name, outs("dims", "int64_t", 4), 4, out("rank", "size_t"),
             expect=[{"reg": "rank", "is": len(dims)}, {"reg": "dims", "is": (dims + [0] * 4)[:4]},
                     {"tensor": name, "dtype": "u8" if dtype == "bool" else dtype, "is": values}])
        return self

    def finished(self):
        for kind, name in reversed(self.owned):
            self.entry["calls"].append({"call": RELEASE[kind], "args": ["$" + name]})
        self.entry["calls"] += self.entry.pop("last", [])
        return self.entry


def out(name, ctype):
    return {"out": name, "type": ctype}


def outs(name, ctype, count):
    return {"outs": name, "type": ctype, "count": count}


def text(s):
    return {"text": s}


def struct(name, **fields):
    return {"struct": name, "fields": fields}


def opts(op, present, **fields):
    return struct("weft_%s_opts" % op, present=["WEFT_%s_HAS_%s" % (op.upper(), p.upper()) for p in present], **fields)


def settings(pairs):
    return {"structs": "weft_setting", "items": [
        {"name": text(k), "name_length": STRLEN, "value": text(v), "value_length": len(v)} for k, v in pairs]}


def options(pairs, **more):
    return struct("weft_context_options", settings=settings(pairs), setting_count=len(pairs), **more)


def wrong(code, message):
    return {"code": "WEFT_" + code, "message": message}


def handles(*names):
    return {"handles": ["$" + n if n else None for n in names], "type": "weft_tensor"}


QUIET = [("platform", "reference"), ("cache_mode", "off")]
INVALID = "INVALID_ARGUMENT"


def creation():
    v = Vector("a tensor from the host comes back")
    v.tensor("x", "f32", [2, 3], [1, 2, 3, 4, 5, 6.5]).gives("x", "f32", [2, 3], [1, 2, 3, 4, 5, 6.5])
    v("weft_tensor_count", "$x", out("n", "int64_t"), expect=[{"reg": "n", "is": 6}])
    v("weft_tensor_size", "$x", out("bytes", "uint64_t"), expect=[{"reg": "bytes", "is": 24}])
    v = Vector("a tensor without dimensions")
    v.tensor("x", "f64", [], [0.1]).gives("x", "f64", [], [0.1])
    v = Vector("truth, bytes and integers")
    v.tensor("b", "bool", [3], [1, 0, 1]).gives("b", "bool", [3], [1, 0, 1])
    v.tensor("u", "u8", [2], [0, 255]).gives("u", "u8", [2], [0, 255])
    v.tensor("i", "i64", [2], [-1, 1 << 40]).gives("i", "i64", [2], [-1, 1 << 40])
    v = Vector("scalars of floats, integers and unsigned integers")
    v("weft_tensor_from_f64", "$ctx", "WEFT_F32", 2.5, out("f", "weft_tensor*"))
    v("weft_tensor_item_f64", "$f", out("d", "double"), expect=[{"reg": "d", "is": 2.5}])
    v("weft_tensor_from_i64", "$ctx", "WEFT_I8", -5, out("i", "weft_tensor*"))
    v("weft_tensor_item_i64", "$i", out("n", "int64_t"), expect=[{"reg": "n", "is": -5}])
    v("weft_tensor_from_u64", "$ctx", "WEFT_U64", {"u64": "18446744073709551615"}, out("u", "weft_tensor*"))
    v("weft_tensor_item_u64", "$u", out("m", "uint64_t"), expect=[{"reg": "m", "is": {"u64": "18446744073709551615"}}])
    v = Vector("a size that does not fit the shape")
    v("weft_tensor_from_host", "$ctx", None, "WEFT_F32", {"i64": [2, 2]}, 2, {"f32": [1, 2, 3]}, 12, out("x", "weft_tensor*"),
      error=wrong(INVALID, "weft_tensor_from_host: f32[2, 2] has 16 bytes; size is 12"), expect=[{"reg": "x", "is": 0}])
    v = Vector("a number that does not fit its dtype")
    v("weft_tensor_from_i64", "$ctx", "WEFT_I8", 300, out("x", "weft_tensor*"), error=wrong(INVALID, "weft_tensor_from_i64: 300 does not fit i8"))
    v = Vector("a number that is rounded to a narrow float")
    v("weft_tensor_from_f64", "$ctx", "WEFT_F8E5M2", 1.2, out("x", "weft_tensor*"))
    v("weft_tensor_item_f64", "$x", out("d", "double"), expect=[{"reg": "d", "is": 1.25}])
    v("weft_tensor_release", "$x")
    v = Vector("nowhere to write the result")
    v("weft_tensor_from_f64", "$ctx", "WEFT_F32", 1.0, None, error=wrong(INVALID, "weft_tensor_from_f64: out is NULL"))
    v = Vector("an item of a tensor that has several")
    v.tensor("x", "f32", [2], [1, 2])
    v("weft_tensor_item_f64", "$x", out("d", "double"), error=wrong(INVALID, "weft_tensor_item_f64: the tensor has shape [2]; it must have exactly one element"))


def operations():
    v = Vector("addition broadcasts")
    v.tensor("x", "f32", [2, 2], [1, 2, 3, 4]).tensor("y", "f32", [2], [10, 20])
    v("weft_add", "$ctx", "$x", "$y", out("z", "weft_tensor*")).gives("z", "f32", [2, 2], [11, 22, 13, 24])
    v = Vector("shapes that do not broadcast")
    v.tensor("x", "f32", [2, 2], [1, 2, 3, 4]).tensor("y", "f32", [3], [1, 2, 3])
    v("weft_add", "$ctx", "$x", "$y", out("z", "weft_tensor*"), error=wrong(INVALID, "add(f32[2, 2], f32[3]): shapes [2, 2] and [3] do not broadcast: dimension -1 is 2 and 3; sizes must be equal or 1"))
    v = Vector("dtypes do not mix")
    v.tensor("x", "f32", [1], [1]).tensor("y", "i32", [1], [1])
    v("weft_mul", "$ctx", "$x", "$y", out("z", "weft_tensor*"), error=wrong(INVALID, "mul(f32[1], i32[1]): operands x and y have dtypes f32 and i32; they must agree (convert one of them)"))
    v = Vector("a product of matrices")
    v.tensor("x", "f32", [2, 2], [1, 2, 3, 4]).tensor("y", "f32", [2, 1], [1, -1])
    v("weft_matmul", "$ctx", "$x", "$y", None, out("z", "weft_tensor*")).gives("z", "f32", [2, 1], [-1, -1])
    v = Vector("a product of matrices that do not fit")
    v.tensor("x", "f32", [2, 2], [1, 2, 3, 4])
    v.tensor("y", "f32", [3, 1], [1, 2, 3])
    v("weft_matmul", "$ctx", "$x", "$y", None, out("z", "weft_tensor*"), error=wrong(INVALID, "matmul(f32[2, 2], f32[3, 1]): x has 2 columns and y 3 rows; they must be equal"))
    v = Vector("a list as an attribute")
    v.tensor("x", "i32", [2, 3], [1, 2, 3, 4, 5, 6])
    v("weft_reshape", "$ctx", "$x", {"i64": [3, -1]}, 2, out("z", "weft_tensor*")).gives("z", "i32", [3, 2], [1, 2, 3, 4, 5, 6])
    v("weft_transpose", "$ctx", "$x", {"i64": [1, 0]}, 2, out("t", "weft_tensor*")).gives("t", "i32", [3, 2], [1, 4, 2, 5, 3, 6])
    v("weft_reshape", "$ctx", "$x", {"i64": [4]}, 1, out("bad", "weft_tensor*"), error=wrong(INVALID, "reshape(i32[2, 3]): shape [4] does not hold the 6 elements of [2, 3]"))
    v = Vector("an enumerator as an attribute")
    v.tensor("x", "f32", [3], [1, 2, 3]).tensor("y", "f32", [3], [2, 2, 2])
    v("weft_compare", "$ctx", "$x", "$y", "WEFT_COMPARE_DIRECTION_GE", out("z", "weft_tensor*")).gives("z", "bool", [3], [0, 1, 1])
    v("weft_compare", "$ctx", "$x", "$y", 99, out("bad", "weft_tensor*"), error=wrong(INVALID, "compare: attribute direction is 99; there are 0 to 5"))
    v = Vector("a dtype as an attribute")
    v.tensor("x", "f32", [3], [1.9, -1.9, 300])
    v("weft_convert", "$ctx", "$x", "WEFT_U8", out("z", "weft_tensor*")).gives("z", "u8", [3], [1, 0, 255])
    v("weft_convert", "$ctx", "$x", 12345, out("bad", "weft_tensor*"), error=wrong(INVALID, "convert: dtype 0x3039 is not one that Weft knows"))
    v = Vector("operands in a list")
    v.tensor("x", "i32", [1, 2], [1, 2]).tensor("y", "i32", [2, 2], [3, 4, 5, 6])
    v("weft_concatenate", "$ctx", handles("x", "y"), 2, None, out("z", "weft_tensor*")).gives("z", "i32", [3, 2], [1, 2, 3, 4, 5, 6])
    v("weft_concatenate", "$ctx", handles("x", "x"), 2, opts("concatenate", ["dimension"], dimension=-1), out("w", "weft_tensor*"))
    v.gives("w", "i32", [1, 4], [1, 2, 1, 2])
    v = Vector("an empty list of operands, and one with a hole")
    v.tensor("x", "i32", [1], [1])
    v("weft_concatenate", "$ctx", None, 0, None, out("z", "weft_tensor*"), error=wrong(INVALID, "concatenate: inputs needs at least one tensor"))
    v("weft_concatenate", "$ctx", handles("x", None), 2, None, out("z", "weft_tensor*"), error=wrong(INVALID, "concatenate: operand is NULL; a weft_tensor is needed"))
    v = Vector("several results")
    v.tensor("x", "f32", [2, 1], [1, 3]).tensor("one", "f32", [1], [1]).tensor("zero", "f32", [1], [0])
    v("weft_batch_norm", "$ctx", "$x", "$one", "$zero", opts("batch_norm", ["epsilon"], epsilon=0.0), out("y", "weft_tensor*"),
      out("mean", "weft_tensor*"), out("variance", "weft_tensor*"))
    v.gives("y", "f32", [2, 1], [-1, 1]).gives("mean", "f32", [1], [2]).gives("variance", "f32", [1], [1])
    v = Vector("random numbers follow the seed")
    v("weft_random_seed", "$ctx", 7)
    v("weft_random_get_state", "$ctx", out("key", "uint64_t"), out("low", "uint64_t"), out("high", "uint64_t"),
      expect=[{"reg": "key", "is": 7}, {"reg": "low", "is": 0}, {"reg": "high", "is": 0}])
    v("weft_random_set_state", "$ctx", 9, 5, {"u64": "9007199254740993"})
    v("weft_random_get_state", "$ctx", out("key", "uint64_t"), out("low", "uint64_t"), out("high", "uint64_t"),
      expect=[{"reg": "key", "is": 9}, {"reg": "low", "is": 5}, {"reg": "high", "is": {"u64": "9007199254740993"}}])


def option_structs():
    v = Vector("no options are all defaults")
    v.tensor("x", "f32", [2, 2], [1, 2, 3, 4])
    v("weft_sum", "$ctx", "$x", None, out("z", "weft_tensor*")).gives("z", "f32", [], [10])
    v = Vector("options that are present count")
    v.tensor("x", "f32", [2, 2], [1, 2, 3, 4])
    v("weft_sum", "$ctx", "$x", opts("sum", ["dims", "keepdims"], dims={"i64": [-1]}, dims_count=1, keepdims=1), out("z", "weft_tensor*"))
    v.gives("z", "f32", [2, 1], [3, 7])
    v("weft_sum", "$ctx", "$x", opts("sum", ["keepdims"], dims={"i64": [-1]}, dims_count=1, keepdims=1), out("w", "weft_tensor*"))
    v.gives("w", "f32", [1, 1], [10])
    v = Vector("one bound of two")
    v.tensor("x", "f32", [3], [-5, 0.5, 5])
    v("weft_clip", "$ctx", "$x", opts("clip", ["low"], low=-1.0, high=-7.0), out("z", "weft_tensor*")).gives("z", "f32", [3], [-1, 0.5, 5])
    v = Vector("a bit that nobody knows")
    v.tensor("x", "f32", [1], [1])
    v("weft_sum", "$ctx", "$x", struct("weft_sum_opts", present=1 << 40), out("z", "weft_tensor*"), error=wrong("UNIMPLEMENTED", "sum: opts->present has bits (0x10000000000) that this version does not know"))
    v = Vector("a dimension that is not there")
    v.tensor("x", "f32", [2], [1, 2])
    v("weft_sum", "$ctx", "$x", opts("sum", ["dims"], dims={"i64": [1]}, dims_count=1), out("z", "weft_tensor*"), error=wrong(INVALID, "sum(f32[2]): dims is 1; a tensor of rank 1 has axes -1 to 0"))
    v = Vector("a struct that is too small to be one")
    v.tensor("x", "f32", [1], [1])
    v("weft_sum", "$ctx", "$x", struct("weft_sum_opts", struct_size=4), out("z", "weft_tensor*"), error=wrong(INVALID, "weft_sum_opts.struct_size is 4; start from its _INIT macro or its _init function"))
    v = Vector("attributes by name")
    v.tensor("x", "f32", [2, 2], [1, 2, 3, 4])
    attrs = {"structs": "weft_attr", "items": [
        {"name": text("dims"), "name_length": STRLEN, "type": "WEFT_VALUE_INTS", "data": {"i64": [0]}, "count": 1},
        {"name": text("keepdims"), "name_length": 8, "type": "WEFT_VALUE_BOOL", "i": 1}]}
    v("weft_op_apply", "$ctx", text("sum"), STRLEN, handles("x"), 1, attrs, 2, outs("z", "weft_tensor*", 1), 1, out("n", "size_t"),
      expect=[{"reg": "n", "is": 1}])
    v.gives("z[0]", "f32", [1, 2], [4, 6])
    v = Vector("an operation, an attribute and a type that do not exist")
    v.tensor("x", "f32", [1], [1])
    nothing = ("$ctx", handles("x"), outs("z", "weft_tensor*", 1), out("n", "size_t"))
    v("weft_op_apply", nothing[0], text("matmull"), STRLEN, nothing[1], 1, None, 0, nothing[2], 1, nothing[3], error=wrong("NOT_FOUND", "weft_op_apply: there is no operation 'matmull'; did you mean 'matmul'? weft_op_list names all"))
    bad = {"structs": "weft_attr", "items": [{"name": text("axes"), "name_length": STRLEN, "type": "WEFT_VALUE_INT", "i": 1}]}
    v("weft_op_apply", nothing[0], text("sum"), STRLEN, nothing[1], 1, bad, 1, nothing[2], 1, nothing[3], error=wrong(INVALID, "sum: there is no attribute 'axes'; there are dims, keepdims"))
    bad = {"structs": "weft_attr", "items": [{"name": text("dims"), "name_length": STRLEN, "type": "WEFT_VALUE_INT", "i": 1}]}
    v("weft_op_apply", nothing[0], text("sum"), STRLEN, nothing[1], 1, bad, 1, nothing[2], 1, nothing[3], error=wrong(INVALID, "sum: attribute dims takes integers, not an integer (WEFT_VALUE_INT)"))
    v = Vector("options of a context", context=False)
    create = out("ctx", "weft_context*")
    v("weft_context_create", options(QUIET + [("threads", "2")]), create)
    v("weft_context_option", "$ctx", text("threads"), STRLEN, out("b", "weft_blob*"), expect=[{"blob": "b", "is": "2"}])
    v("weft_context_option_source", "$ctx", text("threads"), STRLEN, out("who", "weft_option_source"),
      expect=[{"reg": "who", "is": "WEFT_OPTION_FROM_CALLER"}])
    v("weft_context_option", "$ctx", text("thread"), STRLEN, out("b", "weft_blob*"), error=wrong("NOT_FOUND", "weft_context_option: there is no option 'thread'; did you mean 'threads'? weft_option_list names all"))
    v = Vector("options that no context takes", context=False)
    v("weft_context_create", options([("platform", "npu")]), create, error=wrong("INVALID_ARGUMENT", "weft_context_create: option platform: 'npu' is not one of cpu, reference, pjrt, tpu, gpu, cuda, rocm"))
    v("weft_context_create", options([("threads", "many")]), create, error=wrong("INVALID_ARGUMENT", "weft_context_create: option threads: 'many' is not a number of 0 to 1024"))


def texts_and_lists():
    v = Vector("values as text")
    v.tensor("x", "f32", [2, 2], [1, 2.5, -3, 4])
    v("weft_tensor_to_string", "$x", None, out("b", "weft_blob*"), expect=[{"blob": "b", "is": "[[ 1.   2.5]\n [-3.   4. ]]"}])
    v("weft_tensor_to_string", "$x", struct("weft_print_options", precision=1, header=1), out("c", "weft_blob*"), expect=[{"blob": "c", "is": "f32[2, 2] on reference:0\n[[ 1.   2.5]\n [-3.   4. ]]"}])
    v = Vector("a program as text")
    v.tensor("x", "f32", [2], [1, 2])
    v("weft_exp", "$ctx", "$x", out("y", "weft_tensor*"))
    v("weft_program_text", "$ctx", handles("y"), 1, "WEFT_TEXT_STABLEHLO", out("b", "weft_blob*"),
      expect=[{"blob": "b", "has": "stablehlo.exponential"}])
    v = Vector("text that a handle lends")
    v("weft_device_by_name", "$ctx", text("reference"), 9, out("d", "weft_device*"))
    v("weft_device_name", "$d", out("name", "const char*"), out("n", "size_t"), expect=[{"reg": "name", "length": "n", "is": "reference:0"}])
    v("weft_device_dlpack", "$d", out("kind", "int32_t"), out("id", "int32_t"), expect=[{"reg": "kind", "is": 1}, {"reg": "id", "is": 0}])
    v("weft_device_by_name", "$ctx", text("npu"), STRLEN, out("e", "weft_device*"), error=wrong("NOT_FOUND", "weft_device_by_name: there is no device 'npu' here; there are: reference:0"))
    v = Vector("text that is static", context=False)
    v("weft_option_detail", text("platform"), STRLEN, text("choices"), STRLEN, returns={"text": "cpu|reference|pjrt|tpu|gpu|cuda|rocm"})
    v("weft_option_detail", text("platform"), STRLEN, text("nonsense"), STRLEN, returns=None)
    v("weft_abi_version", returns=1 << 16 | 2)
    v("weft_api_json", out("n", "size_t"), returns={"not_null": True})
    v("weft_get_proc", text("weft_add"), STRLEN, returns={"not_null": True})
    v("weft_get_proc", text("weft_ad"), STRLEN, returns=None)
    v = Vector("a list shorter than what there is")
    v.tensor("x", "f32", [1, 1, 2], [1, 2])
    v("weft_tensor_dims", "$x", outs("dims", "int64_t", 2), 2, out("rank", "size_t"),
      expect=[{"reg": "rank", "is": 3}, {"reg": "dims", "is": [1, 1]}])
    v("weft_tensor_dims", "$x", None, 0, out("rank", "size_t"), expect=[{"reg": "rank", "is": 3}])
    v("weft_device_count", "$ctx", out("n", "size_t"), expect=[{"reg": "n", "is": 1}])
    v("weft_device_at", "$ctx", 1, out("d", "weft_device*"), error=wrong("OUT_OF_RANGE", "weft_device_at: device 1 of a context that has 1"))
    v = Vector("results have no room")
    v.tensor("x", "f32", [1], [1])
    v("weft_op_apply", "$ctx", text("exp"), 3, handles("x"), 1, None, 0, outs("z", "weft_tensor*", 1), 0, out("n", "size_t"), error=wrong("OUT_OF_RANGE", "weft_op_apply: exp has 1 results; capacity is 0"))


def errors_and_handles():
    v = Vector("an error of the caller's own", context=False)
    v("weft_error_new", "WEFT_NOT_FOUND", text("none of these"), STRLEN, returns={"reg": "e"})
    v("weft_error_code", "$e", returns="WEFT_NOT_FOUND")
    v("weft_error_message", "$e", out("n", "size_t"), returns={"text": "none of these"}, expect=[{"reg": "n", "is": 13}])
    v("weft_error_release", "$e")
    v("weft_error_code", None, returns="WEFT_OK")
    v("weft_error_code", "$e", returns="WEFT_INVALID_ARGUMENT")
    v = Vector("a handle that was released")
    v.tensor("x", "f32", [1], [1])
    v("weft_tensor_retain", "$x")
    v("weft_tensor_release", "$x")
    v("weft_relu", "$ctx", "$x", out("y", "weft_tensor*"))
    v("weft_tensor_release", "$x").gone("x")
    v("weft_relu", "$ctx", "$x", out("z", "weft_tensor*"), error=wrong(INVALID, "relu: x is a weft_tensor that has been released"))
    v("weft_tensor_rank", "$x", out("n", "size_t"), error=wrong(INVALID, "weft_tensor_rank: tensor is a weft_tensor that has been released"))
    v("weft_tensor_release", "$x")
    v = Vector("a handle that never was one, one of another type, and none")
    v.tensor("x", "f32", [1], [1])
    v("weft_tensor_rank", {"address": 4096, "type": "weft_tensor"}, out("n", "size_t"), error=wrong(INVALID, "weft_tensor_rank: tensor is no handle of this library; a weft_tensor is needed"))
    v("weft_exp", "$ctx", {"address": 12345, "type": "weft_tensor"}, out("y", "weft_tensor*"), error=wrong(INVALID, "exp: x is no handle of this library; a weft_tensor is needed"))
    v("weft_exp", "$ctx", None, out("y", "weft_tensor*"), error=wrong(INVALID, "exp: x is NULL; a weft_tensor is needed"))
    v("weft_exp", None, "$x", out("y", "weft_tensor*"), error=wrong(INVALID, "exp: ctx is NULL; a weft_context is needed"))
    v("weft_tensor_release", None)
    v("weft_blob_size", None, returns=0)
    v = Vector("a scope keeps its first error")
    v("weft_scope_begin", "$ctx", out("s", "weft_scope*"))
    v("weft_scope_mark", "$s", text("model.x"), 12, returns={"reg": "borrowed"})
    v("weft_error_new", "WEFT_ABORTED", text("by hand"), 7, returns={"reg": "e"})
    v("weft_scope_adopt", "$s", "$e", None, returns={"reg": "poisoned"})
    v("weft_exp", "$borrowed", "$poisoned", out("y", "weft_tensor*"), error=wrong("ABORTED", "model.x:12: by hand"))
    v("weft_scope_end", "$s", error=wrong("ABORTED", "model.x:12: by hand"))
    v("weft_scope_end", "$s", error=wrong(INVALID, "weft_scope_end: scope is a weft_scope that has been released"))


def work():
    v = Vector("gradients and an optimizer")
    v.tensor("w", "f64", [2], [3, -4])
    v("weft_tensor_require_grad", "$w", 1)
    v("weft_square", "$ctx", "$w", out("q", "weft_tensor*"))
    v("weft_sum", "$ctx", "$q", None, out("loss", "weft_tensor*"))
    v("weft_grad", "$ctx", "$loss", None, handles("w"), 1, outs("g", "weft_tensor*", 1)).gives("g[0]", "f64", [2], [6, -8])
    v("weft_sgd_create", "$ctx", handles("w"), 1, struct("weft_sgd_options", momentum=0.5), out("o", "weft_optimizer*"))
    v("weft_optimizer_step", "$o", handles("g[0]"), 1, 0.25).gives("w", "f64", [2], [1.5, -2])
    v("weft_optimizer_step", "$o", handles("g[0]", "g[0]"), 2, 0.25, error=wrong(INVALID, "weft_optimizer_step: 2 gradients for 1 parameters"))
    v = Vector("a gradient of what requires none")
    v.tensor("x", "f32", [], [3])
    v("weft_square", "$ctx", "$x", out("y", "weft_tensor*"))
    v("weft_grad", "$ctx", "$y", None, handles("x"), 1, outs("g", "weft_tensor*", 1), error=wrong("FAILED_PRECONDITION", "weft_grad: xs[0] does not require a gradient; call weft_tensor_require_grad on it before it is used"))
    v = Vector("a barrier and its event")
    v.tensor("x", "f32", [2], [1, 2])
    v("weft_exp", "$ctx", "$x", out("y", "weft_tensor*"))
    v("weft_sync", "$ctx", None, out("e", "weft_event*"))
    v("weft_event_wait", "$e", "WEFT_WAIT_FOREVER")
    v("weft_event_poll", "$e", out("done", "int32_t"), expect=[{"reg": "done", "is": 1}])
    v("weft_event_error", "$e")
    v = Vector("a wait that is cancelled")
    v.tensor("x", "f32", [1], [1])
    v("weft_exp", "$ctx", "$x", out("y", "weft_tensor*"))
    v("weft_cancel", "$ctx")
    v("weft_sync", "$ctx", None, None, error=wrong("CANCELLED", "weft_sync: cancelled by weft_cancel; nothing of it was launched: what was assigned shows its new value, "
                                                  "which the next barrier or read computes, or its old one where a "
                                                  "launch before was ended, too"))
    v("weft_sync", "$ctx", None, None)


def callbacks():
    released = {"callback": "released", "type": "weft_release_fn"}
    v = Vector("a hook is released when another takes its place, and the last with the context")
    v("weft_context_set_log", "$ctx", "WEFT_LOG_ERROR", None, {"address": 5}, released, expect=[{"counter": "released", "calls": 0, "user_data": 0}])
    v("weft_context_set_log", "$ctx", "WEFT_LOG_ERROR", None, {"address": 7}, released, expect=[{"counter": "released", "calls": 1, "user_data": 5}])
    v("weft_context_release", "$ctx", expect=[{"counter": "released", "calls": 2, "user_data": 12}]).gone("ctx")
    v = Vector("a hook is released if a context cannot be made", context=False)
    v("weft_context_create", options([("platform", "npu")], log_user_data={"address": 9}, log_release=released, pressure_user_data={"address": 2},
                                     pressure_release=released), out("ctx", "weft_context*"), error=wrong("INVALID_ARGUMENT", "weft_context_create: option platform: 'npu' is not one of cpu, reference, pjrt, tpu, gpu, cuda, rocm"),
      expect=[{"counter": "released", "calls": 2, "user_data": 11}])
    v = Vector("a hook gets records", context=False, any_thread=True)
    v("weft_context_create", options([("cache_mode", "off")], log={"callback": "log", "type": "weft_log_fn"}, log_user_data={"address": 1},
                                     log_release=released, min_log_level="WEFT_LOG_DEBUG"), out("ctx", "weft_context*"))
    v.tensor("x", "f32", [2], [1, 2])
    v("weft_exp", "$ctx", "$x", out("y", "weft_tensor*"))
    v("weft_sync", "$ctx", None, None, expect=[{"counter": "log", "at_least": 1}, {"counter": "released", "calls": 0, "user_data": 0}])
    v("weft_tensor_release", "$y").gone("y")
    v("weft_tensor_release", "$x").gone("x")
    v("weft_context_release", "$ctx", expect=[{"counter": "released", "calls": 1, "user_data": 1}]).gone("ctx")


def trees():
    v = Vector("a tree of everything")
    tree, root, key = "$t", "WEFT_TREE_ROOT", lambda s: (text(s), STRLEN)
    v("weft_tree_create", out("t", "weft_tree*"))
    v("weft_tree_add_list", tree, root, *key("list"), out("l", "uint32_t"))
    v("weft_tree_add_i64", tree, "$l", None, 0, -3, out("i", "uint32_t"))
    v("weft_tree_add_f64", tree, "$l", None, 0, 0.1, None)
    v("weft_tree_add_bool", tree, root, *key("flag"), 1, out("b", "uint32_t"))
    v("weft_tree_add_text", tree, root, *key("name"), text("häuslich"), STRLEN, None)
    v("weft_tree_add_bytes", tree, root, *key("raw"), {"u8": [0, 255, 1]}, 3, None)
    v("weft_tree_add_none", tree, root, *key("nothing"), None)
    v("weft_tree_add_alias", tree, root, *key("again"), "$i", None)
    v("weft_tree_size", tree, root, out("n", "uint32_t"), expect=[{"reg": "n", "is": 6}])
    v("weft_tree_find", tree, root, text("list.1"), STRLEN, out("f", "uint32_t"))
    v("weft_tree_get_f64", tree, "$f", out("d", "double"), expect=[{"reg": "d", "is": 0.1}])
    v("weft_tree_find", tree, root, text("again"), 5, out("a", "uint32_t"))
    v("weft_tree_get_i64", tree, "$a", out("k", "int64_t"), expect=[{"reg": "k", "is": -3}])
    v("weft_tree_get_bool", tree, "$b", out("truth", "int32_t"), expect=[{"reg": "truth", "is": 1}])
    v("weft_tree_key", tree, "$b", out("name", "const char*"), out("length", "size_t"), expect=[{"reg": "name", "length": "length", "is": "flag"}])
    v("weft_tree_child", tree, root, 2, out("c", "uint32_t"))
    v("weft_tree_kind", tree, "$c", out("kind", "weft_node_kind"), expect=[{"reg": "kind", "is": "WEFT_NODE_TEXT"}])
    v("weft_tree_get_data", tree, "$c", out("data", "const void*"), out("length", "size_t"),
      expect=[{"reg": "data", "length": "length", "is": "häuslich"}])
    v = Vector("what a tree refuses")
    v("weft_tree_create", out("t", "weft_tree*"))
    v("weft_tree_add_i64", tree, root, *key("a"), 1, out("i", "uint32_t"))
    v("weft_tree_add_i64", tree, root, *key("a"), 2, None, error=wrong("ALREADY_EXISTS", "weft_tree_add_i64: tree node '' has the key 'a' already"))
    v("weft_tree_find", tree, root, text("b"), STRLEN, out("f", "uint32_t"), error=wrong("NOT_FOUND", "weft_tree_find: the tree has no 'b'"))
    v("weft_tree_get_tensor", tree, "$i", out("x", "weft_tensor*"), error=wrong("FAILED_PRECONDITION", "weft_tree_get_tensor: node 'a' is int64, not a tensor"))
    v("weft_tree_child", tree, root, 5, out("c", "uint32_t"), error=wrong("OUT_OF_RANGE", "weft_tree_child: child 5 of '', which has 1"))
    v("weft_tree_kind", tree, 99, out("kind", "weft_node_kind"), error=wrong("OUT_OF_RANGE", "weft_tree_kind: node 99 of a tree of 2 nodes"))


def checkpoints():
    path = (text("{tmp}/a.weft"), STRLEN)
    v = Vector("a checkpoint is written and read")
    v.tensor("x", "f32", [2], [1, 2])
    v("weft_tree_create", out("t", "weft_tree*"))
    v("weft_tree_add_dict", "$t", "WEFT_TREE_ROOT", text("model"), 5, out("m", "uint32_t"))
    v("weft_tree_add_tensor", "$t", "$m", text("w"), 1, "$x", None)
    v("weft_tree_add_tensor", "$t", "$m", text("tied"), 4, "$x", None)
    v("weft_checkpoint_save", "$ctx", *path, "$t", struct("weft_checkpoint_options", metadata=settings([("note", "first")]), metadata_count=1,
                                                          step=42, durable=-1), None)
    v("weft_checkpoint_reader_open", "$ctx", *path, out("r", "weft_checkpoint_reader*"))
    v("weft_checkpoint_reader_count", "$r", out("n", "size_t"), expect=[{"reg": "n", "is": 1}])
    v("weft_checkpoint_reader_entry", "$r", 0, dict(struct("weft_checkpoint_entry"), out="entry"), expect=[
        {"reg": "entry", "field": "dtype", "is": "WEFT_F32"}, {"reg": "entry", "field": "rank", "is": 1},
        {"reg": "entry", "field": "path", "length": "path_length", "is": "model.w"}, {"reg": "entry", "field": "size_bytes", "is": 8}])
    v("weft_checkpoint_reader_info", "$r", dict(struct("weft_checkpoint_info"), out="info"), expect=[{"reg": "info", "field": "step", "is": 42}])
    v("weft_checkpoint_reader_load", "$r", text("model.tied"), STRLEN, None, out("y", "weft_tensor*")).gives("y", "f32", [2], [1, 2])
    v("weft_checkpoint_reader_entry", "$r", 1, dict(struct("weft_checkpoint_entry"), out="entry"), error=wrong("OUT_OF_RANGE", "weft_checkpoint_reader_entry: entry 1 of a checkpoint with 1 tensors"))
    v("weft_checkpoint_load", "$ctx", *path, None, out("all", "weft_tree*"))
    v("weft_tree_find", "$all", "WEFT_TREE_ROOT", text("model.w"), STRLEN, out("node", "uint32_t"))
    v("weft_tree_get_tensor", "$all", "$node", out("z", "weft_tensor*")).gives("z", "f32", [2], [1, 2])
    v = Vector("a checkpoint that is not there")
    v("weft_checkpoint_load", "$ctx", text("{tmp}/none.weft"), STRLEN, None, out("t", "weft_tree*"), error=wrong("NOT_FOUND", "weft_checkpoint_load: cannot open '{tmp}/none.weft': No such file or directory (ENOENT)"))
    v("weft_checkpoint_load", "$ctx", None, 0, None, out("t", "weft_tree*"), error=wrong(INVALID, "weft_checkpoint_load: path is NULL"))


def document():
    del VECTORS[:]
    for part in (creation, operations, option_structs, texts_and_lists, errors_and_handles, work, callbacks, trees, checkpoints):
        part()
    vectors = [v.finished() for v in VECTORS]
    return "{\"vectors\": [\n" + ",\n".join(
        json.dumps({k: x for k, x in v.items() if k != "calls"}, ensure_ascii=False)[:-1] + ', "calls": [\n  '
        + ",\n  ".join(json.dumps(c, ensure_ascii=False) for c in v["calls"]) + "]}" for v in vectors) + "\n]}\n"


if __name__ == "__main__":
    sys.stdout.write(document())
