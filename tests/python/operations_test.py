"""Every operation by its name, with keywords: the samples of the operation table give the bits of weft_op_apply, which
goes by text."""

import ctypes
import inspect
import json
import os
import struct
import subprocess
import unittest

import support

import libweft as wf
from libweft import _call, _convert, _dtypes

API = support.description()
SAMPLES = os.path.join(support.BUILD, "bin", "weft_dump_samples")
# Their slope is 0 wherever they have one, which the description calls no gradient.
STEPS = {"angle", "binomial", "ceil", "floor", "geometric", "poisson", "round", "round_away", "round_decimals", "trunc"}
FLOATS = ("float", "complex")
KIND = {"int": 1, "double": 2, "bool": 3, "enum": 4, "dtype": 5, "ints": 6, "doubles": 7, "string": 8}


def operations():
    return {o["c_name"]: o for o in API["operations"] if not o["with_options"]}


class ByText:
    """An operation by weft_op_apply: nothing of the generated functions is in it."""

    def __init__(self):
        self.apply = _call.bind("weft_op_apply")

    def __call__(self, name, tensors, attrs, count):
        kept, rows = [], b""
        kinds = {a["name"]: a for a in operations()[name]["attributes"]}
        for key, value in attrs.items():
            kind, text = kinds[key]["type"], key.encode()
            letter = {"ints": "q", "doubles": "d"}.get(kind)
            data = value.encode() if kind == "string" else struct.pack(f"{len(value)}{letter}", *value) if letter else None
            kept += [text, data]
            rows += struct.pack(
                "PQIiqdPQ",
                _call.address(text),
                len(text),
                KIND[kind],
                0,
                int(value) if kind in ("int", "bool", "enum", "dtype") else 0,
                value if kind == "double" else 0.0,
                _call.address(data) if data else 0,
                len(value) if data is not None else 0,
            )
        inputs, size = _call.handles(tensors)
        outputs, given = (ctypes.c_void_p * count)(), ctypes.c_size_t()
        _call.check(
            self.apply(
                _call.now.context,
                *_call.text_of(name),
                inputs,
                size,
                rows or None,
                ctypes.c_size_t(len(attrs)),
                outputs,
                ctypes.c_size_t(count),
                ctypes.byref(given),
            )
        )
        return [_call.done(_call.Handle(h)) for h in outputs[: given.value]]


def tensor(x):
    if x is None:
        return None
    return _convert.from_bytes(bytes.fromhex(x["bytes"]), tuple(x["dims"]), _dtypes.of_number(x["dtype"]))


def outcome(call):
    """Types, shapes and bits of what a call gives, or the text of its error."""
    wf.seed(7)
    try:
        given = call()
        return [(t.dtype, t.shape, t.tobytes()) for t in (given if isinstance(given, (tuple, list)) else [given])]
    except wf.Error as error:
        return str(error)


def tensor_that_requires(x):
    x = x.copy()
    x.require_grad()
    return x


def depends(y, x):
    """Whether a gradient flows from y to x."""
    try:
        wf.gradients(y, x, cotangent=y.detach())
        return True
    except wf.Error as error:
        if error.code not in ("FAILED_PRECONDITION", "UNIMPLEMENTED"):
            raise
        return False


def given_or_none(call):
    """What a call gives; nothing where the sample is one that is refused."""
    try:
        return call()
    except wf.Error:
        return []


class Operations(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.own = wf.Context(platform="reference")
        cls.own.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.own.__exit__()

    def call(self, o, tensors, attrs):
        """The same call by name and keywords."""
        keywords, left = {}, list(tensors)
        for i, x in enumerate(o["operands"]):
            if x["variadic"]:
                rest = len(o["operands"]) - i - 1
                keywords[x["name"]] = left[: len(left) - rest]
                left = left[len(left) - rest :]
            elif left:
                value = left.pop(0)
                if value is not None or not x["optional"]:
                    keywords[x["name"]] = value
        values = {v["name"]: v["value"] for e in API["enums"] for v in e["values"]}
        for a in o["attributes"]:
            if a["name"] not in attrs:
                continue
            value = attrs[a["name"]]
            if a["type"] == "enum":
                value = next(e["text"] for e in a["enumerators"] if values[e["enumerator"]] == value)
            elif a["type"] == "dtype":
                value = _dtypes.of_number(value)
            elif a["type"] == "bool":
                value = bool(value)
            keywords[a["name"]] = value
        return getattr(wf._ops, o["c_name"])(**keywords)

    def samples(self):
        """(the operation, its inputs as tensors, attributes) of each sample."""
        for sample in json.loads(subprocess.run([SAMPLES], check=True, stdout=subprocess.PIPE).stdout):
            yield operations()[sample["op"]], [tensor(x) for x in sample["inputs"]], sample["attrs"]

    @staticmethod
    def operand(o, i, count):
        """The operand that input i of so many belongs to."""
        variadic = next((k for k, x in enumerate(o["operands"]) if x["variadic"]), len(o["operands"]))
        more = count - len(o["operands"])
        return o["operands"][i if i <= variadic else max(variadic, i - more)]

    def followed(self, rule, o, tensors, attrs):
        """The type that a rule of the description gives; None where it does not say."""
        if rule is None:
            return None
        named = {}
        for i, t in enumerate(tensors):
            named.setdefault(self.operand(o, i, len(tensors))["name"], t)
        if "attribute" in rule:
            if rule["attribute"] in attrs:
                return _dtypes.of_number(attrs[rule["attribute"]]).name
            return self.followed(rule["else"], o, tensors, attrs)
        if "is" in rule:
            return rule["is"]
        own = named[rule.get("as") or rule.get("part_of") or rule.get("of")].dtype.name
        if "by" in rule:
            return rule["by"][own]
        return {"c64": "f32", "c128": "f64"}.get(own, own) if "part_of" in rule else own

    @unittest.skipUnless(os.path.exists(SAMPLES), "weft_dump_samples is not built")
    def test_results_have_the_types_that_the_description_says(self):
        by_text, said = ByText(), 0
        for o, tensors, attrs in self.samples():
            given = given_or_none(lambda: by_text(o["c_name"], tensors, attrs, len(o["results"])))
            for result, made in zip(o["results"], given):
                wanted = self.followed(result["dtype"], o, tensors, attrs)
                if wanted is not None:
                    self.assertEqual(wanted, made.dtype.name, (o["c_name"], result["name"], attrs))
                    said += 1
        self.assertGreater(said, 1000)

    @unittest.skipUnless(os.path.exists(SAMPLES), "weft_dump_samples is not built")
    def test_gradients_flow_where_the_description_says(self):
        by_text, flows = ByText(), {}
        for o, tensors, attrs in self.samples():
            for i, x in enumerate(tensors):
                of = (o["c_name"], self.operand(o, i, len(tensors))["name"])
                if x is None or x.dtype.kind not in FLOATS or flows.setdefault(of, False):
                    continue
                wanted = tensor_that_requires(x)
                inputs = [*tensors[:i], wanted, *tensors[i + 1 :]]
                for y in given_or_none(lambda: by_text(o["c_name"], inputs, attrs, len(o["results"]))):
                    if y.dtype.kind in FLOATS and not flows[of]:
                        flows[of] = depends(y, wanted)
        said = {(name, x["name"]): x["gradient"] for name, o in operations().items() for x in o["operands"]}
        self.assertEqual(STEPS, {name for (name, x), flow in flows.items() if said[name, x] != flow})
        self.assertFalse(any(operations()[name]["gradient"] for name in STEPS))
        for name, o in operations().items():
            self.assertEqual(o["gradient"], any(x["gradient"] for x in o["operands"]), name)
        self.assertGreater(sum(flows.values()), 220)

    @unittest.skipUnless(os.path.exists(SAMPLES), "weft_dump_samples is not built")
    def test_samples_by_keywords_have_the_bits_of_the_call_by_text(self):
        samples = json.loads(subprocess.run([SAMPLES], check=True, stdout=subprocess.PIPE).stdout)
        by_text, table, seen = ByText(), operations(), set()
        for sample in samples:
            o = table[sample["op"]]
            tensors = [tensor(x) for x in sample["inputs"]]
            mine = outcome(lambda: self.call(o, tensors, sample["attrs"]))
            theirs = outcome(lambda: by_text(sample["op"], tensors, sample["attrs"], len(o["results"])))
            self.assertEqual(theirs, mine, sample["op"] + str(sample["attrs"]))
            seen.add(sample["op"])
        self.assertEqual(set(), set(table) - seen)

    def test_signatures_say_the_defaults_of_c(self):
        for name, o in operations().items():
            parameters = inspect.signature(getattr(wf._ops, name)).parameters
            for a in o["attributes"]:
                default = parameters[a["name"]].default
                if a["required"]:
                    self.assertIs(default, inspect.Parameter.empty, (name, a["name"]))
                else:
                    wanted = tuple(a["default"]) if isinstance(a["default"], list) else a["default"]
                    self.assertEqual(wanted, default, (name, a["name"]))
            self.assertEqual("device" in parameters, o["placed"], name)
            for x in o["operands"]:
                self.assertEqual(None if x["optional"] else inspect.Parameter.empty, parameters[x["name"]].default, name)

    def test_a_default_that_is_said_is_the_default(self):
        x = wf.tensor([[3.0, 1.0], [2.0, 5.0]])
        self.assertEqual(x.softmax().tolist(), x.softmax(axis=-1, safe=False).tolist())
        self.assertEqual(wf.sum(x).item(), wf.sum(x, dims=None, keepdims=False).item())

    def test_zeros_of_both_signs_are_two_values_of_an_option(self):
        x, mask = wf.tensor([1.0]), wf.tensor([False])
        for fill in (0.0, -0.0, 0, -0.0, 0.0):
            values = wf.masked_select_static(x, mask, size=1, fill=fill)[0]
            self.assertEqual(struct.pack("f", fill), values.tobytes())

    def test_docstrings_run(self):
        import doctest

        finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(verbose=False)
        count = 0
        for name in wf._ops.__all__:
            for test in finder.find(getattr(wf._ops, name), name, globs={"wf": wf}):
                runner.run(test)
                count += len(test.examples)
        self.assertEqual(0, runner.failures)
        self.assertGreater(count, 200)

    def test_every_operation_is_in_the_package(self):
        self.assertEqual(set(operations()), set(wf._ops.__all__))


if __name__ == "__main__":
    unittest.main()
