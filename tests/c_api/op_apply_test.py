"""weft_op_apply against the typed functions: every value type of every attribute of every operation.

Calls come from the operations' samples (weft_dump_samples), values to try from the description. Whatever is said in one of the
ways that weft_base.h documents must have the outcome of the typed function that was given the same: equal bits, or the
same error. What is said in another way is refused, with the operation and the attribute in the text.
"""
import ctypes as c
import json
import math
import os
import subprocess
import sys
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
GENERATOR = os.path.join(SOURCE, "bindings", "generate")
sys.path.insert(0, GENERATOR)
from generator import model  # noqa: E402

os.environ.update(WEFT_CACHE_MODE="off", WEFT_PLATFORM="reference")
LIB = c.CDLL(os.environ["WEFT_LIB"])
API = model.load(os.path.join(GENERATOR, "api.json"), os.path.join(SOURCE, "include", "c_api", "ops.json"))
OPS = {op.c_name: op for op in API.ops}
NONE, INT, DOUBLE, BOOL, ENUM, DTYPE, INTS, DOUBLES, TEXT = range(9)
# What each kind of attribute may come as; weft_base.h.
TAKES = {"int": {INT}, "double": {DOUBLE, INT}, "bool": {BOOL, INT}, "enum": {ENUM, INT, TEXT}, "dtype": {DTYPE, INT},
         "ints": {INTS}, "doubles": {DOUBLES}, "string": {TEXT}}
KINDS = {"int": "an integer", "double": "a number", "bool": "0 or 1", "enum": "an enumerator", "dtype": "a dtype",
         "ints": "integers", "doubles": "numbers", "string": "text"}
F16, BF16, F32, F64, I8, I32, I64, U8, B1 = 0x11002, 0x11004, 0x12002, 0x14002, 0x10800, 0x12000, 0x14000, 0x10801, 0x10806
C_TYPES = {"int64_t": c.c_int64, "uint64_t": c.c_uint64, "size_t": c.c_size_t, "int32_t": c.c_int32, "weft_dtype": c.c_uint32,
           "double": c.c_double, "const int64_t*": c.c_void_p, "const double*": c.c_void_p, "const void*": c.c_void_p, "weft_device*": c.c_void_p}
STRLEN = c.c_size_t(-1).value
LIB.weft_error_message.restype = c.c_void_p
LIB.weft_error_message.argtypes = [c.c_void_p, c.c_void_p]
LIB.weft_error_code.argtypes = [c.c_void_p]
LIB.weft_error_release.argtypes = [c.c_void_p]
LIB.weft_tensor_release.argtypes = [c.c_void_p]
INVALID_ARGUMENT = 3
GIVEN = {INT: "an integer (WEFT_VALUE_INT)", DOUBLE: "a number (WEFT_VALUE_DOUBLE)", BOOL: "a truth value (WEFT_VALUE_BOOL)",
         ENUM: "an enumerator (WEFT_VALUE_ENUM)", DTYPE: "a dtype (WEFT_VALUE_DTYPE)", INTS: "integers (WEFT_VALUE_INTS)",
         DOUBLES: "numbers (WEFT_VALUE_DOUBLES)", TEXT: "text (WEFT_VALUE_TEXT)"}


class Attr(c.Structure):
    _fields_ = [("name", c.c_char_p), ("name_length", c.c_size_t), ("type", c.c_int32), ("reserved", c.c_int32),
                ("i", c.c_int64), ("d", c.c_double), ("data", c.c_void_p), ("count", c.c_size_t)]


def failure(name, *args):
    """Calls a function of the library: None, or (code, text)."""
    function = getattr(LIB, name)
    function.restype = c.c_void_p
    error = function(*args)
    if not error:
        return None
    length = c.c_size_t()
    text = LIB.weft_error_message(error, c.byref(length))
    said = (LIB.weft_error_code(error), c.string_at(text, length.value).decode())
    LIB.weft_error_release(error)
    return said


def must(name, *args):
    said = failure(name, *args)
    assert said is None, (name, said)


CTX = c.c_void_p()
must("weft_context_create", None, c.byref(CTX))


def tensor(x):
    if x is None:
        return None
    data, handle = bytes.fromhex(x["bytes"]), c.c_void_p()
    must("weft_tensor_from_host", CTX, None, c.c_uint32(x["dtype"]), (c.c_int64 * len(x["dims"]))(*x["dims"]),
         c.c_size_t(len(x["dims"])), data, c.c_size_t(len(data)), c.byref(handle))
    return handle


def contents(handle):
    """(dtype, dims, bytes, None if too many), or why they cannot be had. Releases the handle."""
    dtype, rank, size, dims = c.c_uint32(), c.c_size_t(), c.c_uint64(), (c.c_int64 * 32)()
    must("weft_tensor_dtype", handle, c.byref(dtype))
    must("weft_tensor_dims", handle, dims, c.c_size_t(32), c.byref(rank))
    must("weft_tensor_size", handle, c.byref(size))
    data = None
    if size.value < 1 << 24:
        buffer = c.create_string_buffer(max(size.value, 1))
        data = failure("weft_tensor_to_host", handle, buffer, c.c_size_t(size.value)) or buffer.raw[:size.value]
    LIB.weft_tensor_release(handle)
    return dtype.value, tuple(dims[:rank.value]), data


def ints(values):
    return (c.c_int64 * max(len(values), 1))(*values)


class Call:
    """One sample: its tensors, and both ways to call the operation with them."""

    def __init__(self, sample):
        self.op = OPS[sample["op"]]
        self.attrs = {n: v.encode() if isinstance(v, str) else v for n, v in sample["attrs"].items()}
        self.inputs = [tensor(x) for x in sample["inputs"]]

    def release(self):
        for handle in self.inputs:
            if handle is not None:
                LIB.weft_tensor_release(handle)

    def typed(self, attrs):
        """The outcome of the C function of the operation; attrs: {name: plain value}."""
        op, keep, args, inputs = self.op, [], [CTX], list(self.inputs)
        for x in op.operands:
            if x["variadic"]:
                args += [(c.c_void_p * len(inputs))(*inputs), c.c_size_t(len(inputs))]
            else:
                args.append(inputs.pop(0) if inputs else None)
        for a in op.required:
            value = attrs[a["name"]]
            if a["type"] == "ints":
                args += [ints(value), c.c_size_t(len(value))]
            elif a["type"] == "string":
                args += [value, c.c_size_t(len(value))]
            else:
                args.append(C_TYPES.get(op.types[a["member"]], c.c_int32)(value))
        if op.optional:
            fields = [(f["name"], C_TYPES.get(f["type"], c.c_int32)) for f in op.opts["fields"]]
            opts = type("Opts", (c.Structure,), {"_fields_": fields})()
            opts.struct_size = c.sizeof(opts)
            for a in op.optional:
                if a["name"] not in attrs:
                    continue
                opts.present |= 1 << a["present"]["bit"]
                value = attrs[a["name"]]
                if a["type"] in ("ints", "doubles"):
                    keep.append(ints(value) if a["type"] == "ints" else (c.c_double * max(len(value), 1))(*value))
                    setattr(opts, a["member"], c.cast(keep[-1], c.c_void_p))
                    setattr(opts, a["length"], len(value))
                else:
                    setattr(opts, a["member"], value)
            args.append(c.byref(opts))
        outs = [c.c_void_p() for _ in op.results]
        must("weft_random_seed", CTX, c.c_uint64(7))
        said = failure(op.function, *args, *[c.byref(out) for out in outs])
        return said or [contents(out) for out in outs]

    def applied(self, attrs):
        """The outcome of weft_op_apply; attrs: [(name, weft_value_type, value)]."""
        keep, given = [], (Attr * max(len(attrs), 1))()
        for slot, (name, kind, value) in zip(given, attrs):
            keep.append(name.encode())
            slot.name, slot.name_length, slot.type = keep[-1], len(name), kind
            if isinstance(value, bytes):
                keep.append(c.create_string_buffer(value))
                slot.data, slot.count = c.cast(keep[-1], c.c_void_p), len(value)
            elif isinstance(value, list):
                keep.append((c.c_double * max(len(value), 1))(*value) if kind == DOUBLES else ints(value))
                slot.data, slot.count = c.cast(keep[-1], c.c_void_p), len(value)
            elif isinstance(value, float):
                slot.d = value
            elif value is not None:
                slot.i = value
        inputs = (c.c_void_p * max(len(self.inputs), 1))(*self.inputs)
        outs, count = (c.c_void_p * 8)(), c.c_size_t()
        must("weft_random_seed", CTX, c.c_uint64(7))
        said = failure("weft_op_apply", CTX, self.op.c_name.encode(), c.c_size_t(STRLEN), inputs, c.c_size_t(len(self.inputs)),
                       given, c.c_size_t(len(attrs)), outs, c.c_size_t(8), c.byref(count))
        return said or [contents(c.c_void_p(outs[i])) for i in range(count.value)]

    def said(self, name, value):
        """The attribute in its own weft_value_type."""
        kind = next(a for a in self.op.attrs if a["name"] == name)["type"]
        own = {"int": INT, "double": DOUBLE, "bool": BOOL, "enum": ENUM, "dtype": DTYPE, "ints": INTS, "doubles": DOUBLES, "string": TEXT}[kind]
        return name, own, float(value) if own == DOUBLE else value

    def others(self, but):
        return [self.said(name, value) for name, value in self.attrs.items() if name != but]


def ways(a, value):
    """Every documented way to say the value of the attribute."""
    kind = a["type"]
    if kind == "enum":
        name = a["enumerators"][value].encode()
        return [(ENUM, value), (INT, value), (ENUM, name), (TEXT, name)]
    if kind == "double":
        return [(DOUBLE, float(value))] + ([(INT, int(value))] if math.isfinite(value) and value == int(value) and abs(value) <= 1 << 53 else [])
    return [(way, value) for way in sorted(TAKES[kind])]


def values(a, sample):
    """What to try for the attribute: the sample's own value, and others of its kind, whether or not they fit the operands."""
    tried = {"int": [0, 1, -1, 2, 1 << 40], "double": [0.25, 1.0, -3.0], "bool": [0, 1], "enum": range(len(a["enumerators"])),
             "dtype": [F16, BF16, F32, F64, I8, I32, I64, U8, B1], "ints": [[], [0], [1], [1, 1], [-1], [2, 1, 0]],
             "doubles": [[], [1.0], [0.5, 2.0], [-1.0]], "string": [b"", b"ij->ji", b"ij,jk->ik"]}[a["type"]]
    own = [sample[a["name"]]] if a["name"] in sample else []
    return own + [v for v in tried if v not in own]


def over_samples(check):
    """The test that makes the check with every sample."""
    def test(self):
        for sample in self.samples:
            call = Call(sample)
            with self.subTest(op=sample["op"], attrs=sample["attrs"]):
                check(self, call)
            call.release()
    return test


class OpApply(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program = os.path.join(os.environ["WEFT_BUILD"], "bin", "weft_dump_samples")
        cls.samples = json.loads(subprocess.run([program], stdout=subprocess.PIPE, check=True, text=True).stdout)

    def refused(self, call, attrs, text):
        code, said = call.applied(attrs)
        self.assertEqual((INVALID_ARGUMENT, text), (code, said))

    def test_the_samples_name_every_operation_and_every_attribute(self):
        self.assertEqual(set(OPS), {s["op"] for s in self.samples})
        for op in API.ops:
            for a in op.attrs:
                self.assertIn(a["type"], TAKES, (op.c_name, a["name"]))

    def test_every_way_to_say_an_attribute_has_the_outcome_of_the_typed_function(self):
        worked, refusals = set(), []

        @over_samples
        def compare(self, call):
            self.assertEqual(call.typed(call.attrs), call.applied([call.said(*item) for item in call.attrs.items()]))
            for a in call.op.attrs:
                name = a["name"]
                for value in values(a, call.attrs):
                    expected = call.typed({**call.attrs, name: value})
                    if isinstance(expected, tuple):
                        refusals.append(expected)
                    else:
                        worked.add((call.op.c_name, name, value if a["type"] == "enum" else None))
                    for way in ways(a, value):
                        with self.subTest(attribute=name, way=way):
                            self.assertEqual(expected, call.applied(call.others(name) + [(name, *way)]))
                if not a["required"]:
                    absent = {k: v for k, v in call.attrs.items() if k != name}
                    self.assertEqual(call.typed(absent), call.applied(call.others(name) + [(name, NONE, None)]), name)

        compare(self)
        self.assertGreater(len(refusals), 100)
        # Nothing was compared by its errors alone.
        wanted = {(op.c_name, a["name"], e) for op in API.ops for a in op.attrs
                  for e in (range(len(a["enumerators"])) if a["type"] == "enum" else [None])}
        self.assertEqual(set(), wanted - worked)

    @over_samples
    def test_what_is_said_in_another_way_is_refused(self, call):
        plain = {INT: 1, DOUBLE: 1.0, BOOL: 1, ENUM: 1, DTYPE: F32, INTS: [1], DOUBLES: [1.0], TEXT: b"sum", 9: 1, -1: 1, 99: 1}
        for a in call.op.attrs:
            for way, value in plain.items():
                if way not in TAKES[a["type"]]:
                    self.refused(call, call.others(a["name"]) + [(a["name"], way, value)],
                                 "%s: attribute %s takes %s, not %s" % (call.op.c_name, a["name"], KINDS[a["type"]],
                                                                        GIVEN.get(way, "the unknown weft_value_type %d" % way)))

    @over_samples
    def test_values_outside_are_refused(self, call):
        for a in call.op.attrs:
            name, kind = a["name"], a["type"]
            begin = "%s: attribute %s " % (call.op.c_name, name)
            wrong = []
            if kind == "enum":
                last = len(a["enumerators"]) - 1
                for way in (ENUM, INT):
                    wrong += [(way, n, begin + "is %d; there are 0 to %d" % (n, last)) for n in (-1, last + 1, 1 << 32, -1 << 63)]
                for way in (ENUM, TEXT):
                    wrong += [(way, text, begin + "is '%s'; there are %s" % (text.decode().replace("\0", "\\0"), ", ".join(a["enumerators"])))
                              for text in (b"bogus", b"", a["enumerators"][0].swapcase().encode(), a["enumerators"][0][:-1].encode(),
                                           a["enumerators"][0].encode() + b" ", a["enumerators"][0].encode() + b"\0")]
                    wrong.append((way, b"\xff", "%s: %s is not UTF-8" % (call.op.c_name, name)))
            elif kind == "bool":
                wrong = [(way, n, begin + "is %d; it takes 0 or 1" % n) for way in (BOOL, INT) for n in (-1, 2, 1 << 32)]
            elif kind == "dtype":
                wrong = [(way, n, begin + "is 0x%x, which is no dtype" % (n & (1 << 64) - 1))
                         for way in (DTYPE, INT) for n in (-1, 1 << 32 | F32)]
            elif kind == "ints":
                wrong = [(INTS, [1] * 4097, begin + "has 4097 entries; 4096 are allowed")]
            for way, value, text in wrong:
                with self.subTest(attribute=name, way=way, value=str(value)[:20]):
                    self.refused(call, call.others(name) + [(name, way, value)], text)

    @over_samples
    def test_names_are_exact_and_said_once_and_what_is_required_is_there(self, call):
        known = [a["name"] for a in call.op.attrs]
        tail = "there are " + ", ".join(known) if known else "it takes none"
        for name in ["", "bogus"] + [n.upper() for n in known] + [n + "s" for n in known]:
            if name not in known:
                self.refused(call, [(name, INT, 1)], "%s: there is no attribute '%s'; %s" % (call.op.c_name, name, tail))
        for item in call.attrs.items():
            self.refused(call, [call.said(*item)] * 2, "%s: attribute %s is given twice" % (call.op.c_name, item[0]))
        for a in call.op.required:
            code, said = call.applied(call.others(a["name"]))
            self.assertEqual(INVALID_ARGUMENT, code, said)
            self.assertRegex(said, r"^%s\(.*\): attribute %s is required$" % (call.op.c_name, a["name"]))


if __name__ == "__main__":
    unittest.main()
