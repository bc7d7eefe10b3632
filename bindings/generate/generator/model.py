"""The complete description as the generators use it, and the texts that C comments are made of."""
import json
import re
import textwrap

from . import describe


class Api:
    """What weft_api.json says, with the core's own functions and structs apart from those of operations."""

    def __init__(self, description):
        d = self.description = description
        self.major, self.minor = d["abi"]["major"], d["abi"]["minor"]
        self.manual, self.headers, self.table = d["manual"], d["headers"], d["table"]
        self.handles, self.constants, self.enums, self.callbacks = d["handles"], d["constants"], d["enums"], d["callbacks"]
        self.structs, self.options, self.types, self.opaque = d["structs"], d["options"], d["types"], d["opaque"]
        self.dtypes = d["dtypes"]
        self.every_function = d["functions"]
        self.function = {f["name"]: f for f in d["functions"]}
        self.struct = {s["name"]: s for s in d["structs"]}
        self.functions = [f for f in d["functions"] if f["kind"] == "core"]
        self.ops = [Op(o, self) for o in d["operations"]]

    def structs_of_callbacks(self):
        """Those that a language must know before its callbacks; they have none themselves. The others come after."""
        taken = {p["type"].replace("const ", "").rstrip("*").strip() for x in self.callbacks for p in x["params"]}
        early = [s for s in self.structs if s["name"] in taken]
        return early, [s for s in self.structs if s not in early]

    def versioned_structs(self):
        return [s for s in self.structs if s["versioned"]]

    def symbols(self):
        """Every exported function as (name, since)."""
        return sorted((f["name"], f["since"]) for f in self.every_function)

    def exports(self):
        """symbols(), and what debuggers find by its name in a process, which no header declares."""
        return sorted(self.symbols() + [("__jit_debug_descriptor", "1.2"), ("__jit_debug_register_code", "1.2"),
                                        ("weft_thread_table", "1.2")])

    def slots(self):
        return sorted((f for f in self.functions if f["slot"] is not None), key=lambda f: f["slot"])

    def base(self, ctype):
        """What a pointer in the end points to."""
        while self.types[ctype]["kind"] == "pointer":
            ctype = self.types[ctype]["to"]
        return ctype

    def dtype_words(self, names):
        """A set of element types in words."""
        by_class = {}
        for d in self.dtypes:
            if d["computable"]:
                by_class.setdefault(d["class"], set()).add(d["name"])
        order = ["float", "signed integer", "unsigned integer", "bool", "complex"]
        kinds = [kind for kind in order if by_class[kind] <= set(names)]
        if set().union(*(by_class[kind] for kind in kinds)) != set(names):
            return ", ".join(names)
        short = {5: "any type", 4: "any type but complex", 3: "any real number"}
        return short[len(kinds)] if len(kinds) >= 3 and kinds == order[:len(kinds)] else ", ".join(kinds)


class Op:
    """One exported operation and its C spelling."""

    def __init__(self, o, api):
        self.o = o
        self.c_name, self.name, self.function, self.since = o["c_name"], o["name"], o["function"], o["since"]
        self.doc, self.example = o["doc"], o["example"]
        self.operands, self.attrs = o["operands"], [
            dict(a, index=i, enumerators=[e["text"] for e in a["enumerators"]]) for i, a in enumerate(o["attributes"])]
        self.results = [r["name"] for r in o["results"]]
        self.required = [a for a in self.attrs if a["required"]]
        self.optional = [a for a in self.attrs if not a["required"]]
        self.with_options, self.placed, self.takes_number = o["with_options"], o["placed"], o["takes_number"]
        self.entry = api.function[self.function]
        self.opts = api.struct[o["opts"]] if o["opts"] else None
        self.types = {m["name"]: m["type"] for m in self.entry["params"]}
        self.field_types = {m["name"]: m["type"] for m in self.opts["fields"]} if self.opts else {}

    def attr_enum(self, a):
        return a["enum"]

    def attr_fields(self, a):
        """The attribute as C parameters or fields: one for a scalar, pointer and size_t for a list or text."""
        types = self.types if a["place"] == "param" else self.field_types
        return [(types[a["member"]], a["member"])] + ([("size_t", a["length"])] if a["length"] else [])

    def operand_fields(self, x):
        return [(self.types[n], n) for n in (x["param"], x["count"]) if n]

    def out_name(self, i):
        return self.o["results"][i]["param"]

    def params(self):
        return [(p["type"], p["name"]) for p in self.entry["params"]]

    def present_bit(self, a):
        return a["present"]["constant"]


def load_description(path):
    with open(path, encoding="utf-8") as f:
        return Api(json.load(f))


def load(api_path, ops_path):
    """From the two texts that the complete description is made of."""
    with open(api_path, encoding="utf-8") as f:
        core = json.load(f)
    with open(ops_path, encoding="utf-8") as f:
        ops = json.load(f)
    check_core(core)
    api = Api(describe.complete(core, ops))
    check(api)
    return api


def check_core(core):
    for o in core["options"]:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", o["name"]) and o["doc"] and re.fullmatch(r"\d+\.\d+", o["since"]), o
        assert not set(o) - {"name", "type", "default", "doc", "since", "choices", "most", "least", "also", "deprecated", "field"}, o
        assert o.get("field", "engine") in ("program", "compiler", "engine"), o
        assert o["type"] in ("int", "bool", "text") and (o["type"] == "int" or not {"most", "least"} & set(o)), o
        assert "choices" not in o or o["type"] == "text" and o["default"] in o["choices"] + [""], o
    assert len({o["name"] for o in core["options"]}) == len(core["options"])
    for f in core["functions"]:
        names = {p["name"] for p in f["params"]}
        for p in f["params"]:
            assert "len" not in p or p["len"] in names, (f["name"], p)


def check(api):
    names = [n for n, _ in api.symbols()]
    twice = {n for n in names if names.count(n) > 1}
    assert not twice, "declared twice: %s" % sorted(twice)
    for name in names:
        assert re.fullmatch(r"weft_[a-z0-9_]+", name), name
    slots = [f["slot"] for f in api.slots()]
    assert slots == list(range(len(slots))), "slots of the table must be 0, 1, 2, … without holes"
    headers = {h["name"] for h in api.headers}
    for f in api.every_function:
        assert f["header"] in headers, f["name"]
        assert f["thread"]["rule"] in ("any", "once") or f["thread"]["param"] in {p["name"] for p in f["params"]}, f["name"]
        for p in f["params"]:
            if api.types[api.base(p["type"])]["kind"] == "handle" and p.get("direction") == "out":
                assert p.get("ownership") == "own", (f["name"], p["name"], "handles come out with a reference")
    for op in api.ops:
        for a in op.attrs:
            assert a["name"] not in ("present", "struct_size", "next", "ctx", "out", "opts"), (op.c_name, a)


def wrap(text, indent=" * ", width=120):
    lines = []
    for paragraph in text.split("\n"):
        lines += textwrap.wrap(paragraph, width - len(indent), break_long_words=False, break_on_hyphens=False) or [""]
    return [(indent + line).rstrip() for line in lines]


def comment(text):
    """A C comment block."""
    assert "*/" not in text, text
    body = wrap(text)
    one = "/* %s */" % text
    if len(one) <= 120 and "\n" not in text:
        return one + "\n"
    body[0] = "/*" + body[0][2:]
    return "\n".join(body) + "\n */\n"


def block_of_lines(lines):
    """A C comment of lines that stand for themselves; what begins with blanks is set off and its later lines further."""
    body = []
    for line in lines:
        text = line.lstrip()
        indent = " " * (len(line) - len(text))
        first, *rest = wrap(text, indent=" * " + indent)
        body += [first] + ["" .join((" * ", indent, "  ", more[3 + len(indent):])) for more in rest]
    return "/*" + body[0][2:] + "\n" + "".join(b + "\n" for b in body[1:]) + " */\n"


def declarator(ctype, name):
    """`const char*` + `name`, with arrays and function pointers left to their own callers."""
    return "%s %s" % (ctype.replace("*const*", "* const*"), name)
