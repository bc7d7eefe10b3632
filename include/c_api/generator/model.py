"""Reads api.json and ops.json, checks them, and joins them into one list of functions and structs."""
import json
import re
import textwrap

HEADERS = ["base", "device", "event", "tensor", "ops", "autodiff", "compile", "checkpoint", "cache", "metrics", "data", "table"]
KEYWORDS = set("""auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while alignas alignof
and asm bitand bitor bool catch class compl concept constexpr delete explicit export false friend mutable namespace new not
operator or private protected public requires template this throw true try typeid typename using virtual wchar_t xor""".split())
ATTR_C = {"int": "int64_t", "double": "double", "bool": "int32_t", "dtype": "weft_dtype"}


class Api:
    """What was read. Operations' functions and options stand in `functions` and `structs` beside the core's."""

    def __init__(self, core, ops):
        self.major = core["abi"]["major"]
        self.minor = core["abi"]["minor"]
        self.handles = core["handles"]
        self.constants = core["constants"]
        self.enums = core["enums"]
        self.callbacks = core["callbacks"]
        self.structs = core["structs"]
        self.options = core["options"]
        self.functions = core["functions"]
        self.all_ops = ops
        self.ops = [op for o in ops if o["exported"] for op in variants(o)]

    def core_structs(self):
        return [s for s in self.structs]

    def versioned_structs(self):
        return [s for s in self.structs if s["versioned"]] + [op.opts_struct() for op in self.ops if op.optional]

    def symbols(self):
        """Every exported function as (name, since)."""
        names = [(f["name"], f["since"]) for f in self.functions]
        names += [(s["name"] + "_init", s["since"]) for s in self.versioned_structs()]
        names += [(op.function, op.since) for op in self.ops]
        return sorted(names)

    def slots(self):
        return sorted((f for f in self.functions if "slot" in f), key=lambda f: f["slot"])


def safe(name):
    return name + "_" if name in KEYWORDS else name


# Operations whose first option came when their C function was there already: it stays as it was, another one has the options.
OPTIONS_LATER = {"linear"}


def variants(o):
    """The C functions of one operation."""
    return [Op(o, plain=True), Op(o, "_with")] if o["c_name"] in OPTIONS_LATER else [Op(o)]


class Op:
    """One exported operation and its C spelling."""

    def __init__(self, o, suffix="", plain=False):
        self.o = o
        self.plain = plain  # another function of the operation has the options
        self.c_name = o["c_name"]
        self.name = o["name"]
        self.function = "weft_" + self.c_name + suffix
        self.since = "1.%d" % o["since"]
        self.doc = o["doc"]
        self.example = o["example"]
        # The generator state of a random operation comes from the context.
        self.operands = [x for x in o["operands"] if not x.get("supplied")]
        self.results = o["results"]
        self.attrs = o["attrs"]
        for i, a in enumerate(self.attrs):
            a["index"] = i
        self.required = [a for a in self.attrs if a["required"]]
        self.optional = [a for a in self.attrs if not a["required"] and not plain]
        # Nothing says where it is recorded: the options do.
        self.placed = not self.operands
        assert self.optional or not self.placed, "without operands and options nothing says where %s is" % self.c_name
        # Two tensors of one kind broadcast, one of which may be a number in the fluent layer.
        self.takes_number = bool(o.get("broadcast")) and len(self.operands) == 2 and not self.attrs and len(self.results) == 1 \
            and len({x["group"] for x in self.operands}) == 1

    def attr_enum(self, a):
        return "weft_%s_%s" % (self.c_name, a["name"])

    def attr_type(self, a):
        if a["type"] == "enum":
            return self.attr_enum(a)
        return ATTR_C[a["type"]]

    def enums(self):
        """Enumerations of the operation's attributes, in the form of api.json."""
        found = []
        for a in self.attrs:
            if a["type"] != "enum":
                continue
            name = self.attr_enum(a)
            values = [{"name": "%s_%s" % (name.upper(), re.sub(r"\W", "_", v).upper()), "value": i, "doc": ""}
                      for i, v in enumerate(a["enumerators"])]
            found.append({"name": name, "doc": "Values of attribute %s of %s." % (a["name"], self.function),
                          "values": values})
        return found

    def attr_fields(self, a):
        """The attribute as C parameters or fields: one for a scalar, pointer and count for a list or text."""
        n = safe(a["name"])
        if a["type"] == "ints":
            return [("const int64_t*", n), ("size_t", a["name"] + "_count")]
        if a["type"] == "doubles":
            return [("const double*", n), ("size_t", a["name"] + "_count")]
        if a["type"] == "string":
            return [("const char*", n), ("size_t", a["name"] + "_length")]
        return [(self.attr_type(a), n)]

    def operand_fields(self, x):
        n = safe(x["name"])
        if x["variadic"]:
            return [("weft_tensor* const*", n), ("size_t", x["name"] + "_count")]
        return [("weft_tensor*", n)]

    def out_name(self, i):
        return "out" if len(self.results) == 1 else "out_" + self.results[i]

    def params(self):
        p = [("weft_context*", "ctx")]
        for x in self.operands:
            p += self.operand_fields(x)
        for a in self.required:
            p += self.attr_fields(a)
        if self.optional:
            p.append(("const %s_opts*" % self.function, "opts"))
        p += [("weft_tensor**", self.out_name(i)) for i in range(len(self.results))]
        return p

    def present_bit(self, a):
        return "WEFT_%s_HAS_%s" % (self.c_name.upper(), a["name"].upper())

    def opts_struct(self):
        fields = [{"name": "present", "type": "uint64_t"}]
        small = 0  # 4-byte fields come in pairs, so that no hidden padding appears on any 64-bit target
        for a in self.optional:
            for t, n in self.attr_fields(a):
                if t in ("int32_t", "weft_dtype") or a["type"] == "enum":
                    small ^= 1
                elif small:
                    fields.append({"name": "reserved_" + a["name"], "type": "int32_t"})
                    small = 0
                fields.append({"name": n, "type": "uint64_t" if t == "size_t" else t})
        if small:
            fields.append({"name": "reserved", "type": "int32_t"})
        if self.placed:
            fields.append({"name": "device", "type": "weft_device*", "doc": "where the result is; NULL = the context's default"})
        return {"name": self.function + "_opts", "header": "ops", "since": self.since, "versioned": True, "fields": fields,
                "doc": "Optional attributes of %s. A bit in present says that a field counts; others keep their defaults."
                       % self.function}


def load(api_path, ops_path):
    with open(api_path, encoding="utf-8") as f:
        core = json.load(f)
    with open(ops_path, encoding="utf-8") as f:
        ops = json.load(f)["ops"]
    api = Api(core, ops)
    check(api)
    return api


def check(api):
    names = [n for n, _ in api.symbols()]
    twice = {n for n in names if names.count(n) > 1}
    assert not twice, "declared twice: %s" % sorted(twice)
    for name in names:
        assert re.fullmatch(r"weft_[a-z0-9_]+", name), name
    slots = [f["slot"] for f in api.slots()]
    assert slots == list(range(len(slots))), "slots of the table must be 0, 1, 2, … without holes"
    for o in api.options:
        assert re.fullmatch(r"[a-z][a-z_]*", o["name"]) and o["doc"] and re.fullmatch(r"\d+\.\d+", o["since"]), o
        assert not set(o) - {"name", "type", "default", "doc", "since", "choices", "most", "deprecated"}, o
        assert o["type"] in ("int", "bool", "text") and ("most" not in o or o["type"] == "int"), o
        assert "choices" not in o or o["type"] == "text" and o["default"] in o["choices"] + [""], o
    assert len({o["name"] for o in api.options}) == len(api.options)
    known = {h["name"] for h in api.handles}
    for f in api.functions:
        assert f["header"] in HEADERS, f["name"]
        assert re.fullmatch(r"any|once|exclusive: \w+", f["thread"]), f["name"]
        lengths = {p["name"] for p in f["params"]}
        for p in f["params"]:
            assert "len" not in p or p["len"] in lengths, (f["name"], p)
            base = p["type"].replace("const", "").replace("*", "").strip()
            if base in known and p.get("dir") == "out":
                assert p.get("own") == "own", (f["name"], p["name"], "handles come out with a reference")
            assert p["type"].split()[-1] not in ("bool", "long", "short", "int", "float"), (f["name"], p)
        if f["thread"].startswith("exclusive"):
            assert f["thread"].split(": ")[1] in lengths, f["name"]
    for op in api.ops:
        for a in op.attrs:
            assert a["type"] in list(ATTR_C) + ["enum", "ints", "doubles", "string"], (op.c_name, a)
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
