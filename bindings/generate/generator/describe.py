"""Joins api.json (by hand, small) and ops.json (from the operation table) into the complete description: a value that
says everything by itself, in plain data. include/c_api/weft_api.json is this value as text; weft_api.schema.json says its
form. Everything else is generated from that text alone."""
from . import lookup, roles
from .operations import variants

POINTER_BITS = 64  # sizes and offsets are those of the 64-bit targets (LP64, little endian) that Weft is built for
PLAIN = {"void": {"kind": "void"}, "char": {"kind": "character", "bits": 8},
         "int32_t": {"kind": "integer", "bits": 32, "signed": True}, "int64_t": {"kind": "integer", "bits": 64, "signed": True},
         "uint32_t": {"kind": "integer", "bits": 32, "signed": False},
         "uint64_t": {"kind": "integer", "bits": 64, "signed": False},
         "size_t": {"kind": "integer", "bits": POINTER_BITS, "signed": False}, "double": {"kind": "float", "bits": 64}}


KEYWORDS = {"while", "for", "if", "case"}  # of C: no names of fields


def field_name(function):
    """What the table calls a function."""
    name = function[len("weft_"):]
    return name + "_" if name in KEYWORDS else name


def spelled(ctype):
    return ctype.replace("*const*", "* const*")


class Types:
    """Every C type that occurs, taken apart: name -> kind, size and what it points to."""

    def __init__(self, core, op_enums, structs):
        self.kinds = {name: "handle" for name in (h["name"] for h in core["handles"])}
        self.kinds.update({e["name"]: "enum" for e in core["enums"] + op_enums})
        self.kinds.update({c["name"]: "callback" for c in core["callbacks"]})
        self.kinds.update({"struct " + o["name"]: "opaque" for o in core["opaque"]})
        self.kinds.update({s: "struct" for s in structs})
        self.found = {}

    def of(self, ctype):
        """The entry of a type, made with all that it points to."""
        if ctype in self.found:
            return self.found[ctype]
        if ctype.endswith("*"):
            to, const = ctype[:-1].rstrip(), False
            if to.endswith(" const"):
                to, const = to[:-len(" const")], True
            elif to.startswith("const ") and "*" not in to:
                to, const = to[len("const "):], True
            entry = {"kind": "pointer", "to": to, "const": const, "bits": POINTER_BITS}
            self.of(to)
        elif ctype in PLAIN:
            entry = dict(PLAIN[ctype])
        else:
            entry = {"kind": self.kinds[ctype]}
            entry.update({"enum": {"bits": 32, "signed": False}, "callback": {"bits": POINTER_BITS}}.get(entry["kind"], {}))
        self.found[ctype] = entry
        return entry

    def base(self, ctype):
        """What a pointer to a pointer … in the end points to, and how far it is."""
        depth = 0
        while self.of(ctype)["kind"] == "pointer":
            ctype, depth = self.of(ctype)["to"], depth + 1
        return ctype, depth


def dtypes(core, computable):
    """The element types, by the names that texts use, from DLPack's numbers."""
    classes = {0: "signed integer", 1: "unsigned integer", 5: "complex", 6: "bool"}
    out = []
    for v in next(e for e in core["enums"] if e["name"] == "weft_dtype")["values"]:
        name, code = v["name"][len("WEFT_"):].lower(), v["value"] & 0xFF
        if v["value"]:
            out.append({"name": name, "enumerator": v["name"], "value": v["value"], "bits": v["value"] >> 8 & 0xFF,
                        "class": classes.get(code, "float"), "computable": name in computable, "doc": v["doc"]})
    return out


def handle(h, functions):
    release, retain = h.get("release", h["name"] + "_release"), h["name"] + "_retain"
    assert release in functions, release
    return {"name": h["name"], "header": h["header"], "since": h["since"], "release": release,
            "retain": retain if retain in functions else None, "parent": h.get("parent"),
            "exclusive": h.get("exclusive", False), "doc": h["doc"]}


def constant(c):
    return {"name": c["name"], "header": c["header"], "since": c["since"], "type": c["type"], "value": c["value"],
            "hex": "0x%X" % (c["value"] % 2**64), "doc": c["doc"]}


def enum(e, header, since, operation=None, attribute=None):
    return {"name": e["name"], "header": header, "since": since, "bits": 32, "operation": operation, "attribute": attribute,
            "doc": e["doc"], "values": [{"name": v["name"], "value": v["value"], "since": v.get("since", since), "doc": v["doc"]}
                                        for v in e["values"]],
            "padding": {"name": e["name"].upper() + "_FORCE32", "value": 0x7FFFFFFF}}


def callback(c, types):
    return {"name": c["name"], "header": c["header"], "since": c["since"], "doc": c["doc"], "thread": c["thread"],
            "may_call_weft": c["may_call_weft"],
            "returns": {"type": spelled(c["returns"]), "role": "truth" if c.get("returns_truth") else
                        {"void*": "bytes", "weft_error*": "error"}.get(c["returns"], "none")},
            "params": roles.members(c["params"], types, from_weft=True)}


def struct(s, types, filled):
    """A struct with the place of each field; hidden padding is an error."""
    fields = list(s["fields"])
    if s["versioned"]:
        fields = [{"name": "struct_size", "type": "size_t", "role": "struct_size"},
                  {"name": "next", "type": "const void*", "nullable": True, "role": "next"}] + fields
    out, at = roles.members(fields, types, from_weft=s["name"] in filled), 0
    for f, given in zip(out, fields):
        size = types.of(f["type"])["bits"] // 8
        assert at % size == 0, "hidden padding before %s.%s" % (s["name"], f["name"])
        count = given.get("array")
        f.update(roles.said({"offset": at, "count": count, "present": given.get("present")}, "offset"))
        at += size * (count or 1)
    assert at % 8 == 0, "hidden padding at the end of " + s["name"]
    return {"name": s["name"], "header": s["header"], "since": s["since"], "versioned": s["versioned"],
            "init": s["name"] + "_init" if s["versioned"] else None, "operation": s.get("operation"), "size": at, "align": 8,
            "doc": s["doc"], "fields": out}


def recorded(f, names):
    """What a core function that records tensors says of itself: the keys of an operation."""
    if "group" not in f:
        return None
    return {"group": f["group"], "gradient": f["gradient"], "names": names.get(f["name"], {})}


def function(f, kind, types, operation=None, struct_name=None, names={}):
    exclusive = f["thread"].startswith("exclusive: ")
    return {"name": f["name"], "kind": kind, "header": f["header"], "since": f["since"], "slot": f.get("slot"),
            "operation": operation, "struct": struct_name, "recorded": recorded(f, names), "doc": f["doc"],
            "thread": {"rule": "exclusive" if exclusive else f["thread"], "param": f["thread"].split(": ")[1] if exclusive else None},
            "blocking": f["blocking"], "may_call_back": f["may_call_back"],
            "errors": {"codes": [e for e in f["errors"] if e != "any"], "any": "any" in f["errors"]},
            "returns": roles.returned(f, types), "params": roles.members(f["params"], types)}


def init_function(s, types):
    return function({"name": s["name"] + "_init", "header": s["header"], "since": s["since"], "thread": "any", "blocking": False,
                     "may_call_back": False, "errors": [], "returns": "void",
                     "doc": "Empties a %s: zero, but for struct_size, which becomes size." % s["name"],
                     "params": [{"name": "options", "type": "void*", "dir": "out", "nullable": True, "len": "size"},
                                {"name": "size", "type": "size_t"}]}, "init", types, struct_name=s["name"])


def option(o):
    """An option with a default of its own type."""
    read = {"int": int, "bool": lambda text: text == "1", "text": str}[o["type"]]
    return {"name": o["name"], "environment": "WEFT_" + o["name"].upper(), "type": o["type"], "default": read(o["default"]),
            "choices": o.get("choices"), "most": o.get("most"), "least": o.get("least"), "also": o.get("also"), "since": o["since"], "deprecated": o.get("deprecated"),
            "doc": o["doc"]}


def with_fork(f, core):
    """The function; what is given something of a context refuses it in the child of a fork."""
    of_context = {h["name"] for h in core["handles"]} - {"weft_error", "weft_blob"}
    takes = any(p["type"].replace("const", "").replace("*", "").strip() in of_context for p in f["params"] if "dir" not in p)
    if not takes or f["returns"] != "weft_error*" or {"any", "FAILED_PRECONDITION"} & set(f["errors"]):
        return f
    return dict(f, errors=f["errors"] + ["FAILED_PRECONDITION"])


def complete(core, ops):
    exported = [op for o in ops["ops"] if o["exported"] for op in variants(o, core["operations"])]
    op_enums = [(op, a, e) for op in exported for a, e in op.enums()]
    own_structs = core["structs"] + [op.opts_struct() for op in exported if op.optional]
    types = Types(core, [e for _, _, e in op_enums], [s["name"] for s in own_structs] + ["weft_api_v1"])
    filled = {types.base(p["type"])[0] for f in core["functions"] for p in f["params"] if p.get("dir") == "out"}
    structs = [struct(s, types, filled) for s in own_structs]
    for s in structs:
        types.of(s["name"])["size"] = s["size"]
    by_operation, by_function = lookup.names({op.c_name for op in exported}, {f["name"] for f in core["functions"]})
    functions = [function(with_fork(f, core), "core", types, names=by_function) for f in core["functions"]]
    functions += [init_function(s, types) for s in structs if s["versioned"]]
    functions += [function(with_fork(op.function_entry(), core), "operation", types, op.c_name) for op in exported]
    names = {f["name"] for f in functions}
    slots = sorted((f for f in functions if f["slot"] is not None), key=lambda f: f["slot"])
    callbacks = [callback(c, types) for c in core["callbacks"]]
    types.of("weft_api_v1")["size"] = 8 + 8 * len(slots)
    return {
        "format": 1, "abi": core["abi"], "soname": core["soname"],
        "target": {"pointer_bits": POINTER_BITS, "byte_order": "little"},
        "manual": core["manual"],
        "headers": [dict(h, file="weft_%s.h" % h["name"]) for h in core["headers"]],
        "constants": [constant(dict(c, header="base", since="1.0", type="uint32_t")) for c in (
            {"name": "WEFT_ABI_MAJOR", "value": core["abi"]["major"], "doc": "The ABI that this describes; a library of another is refused."},
            {"name": "WEFT_ABI_MINOR", "value": core["abi"]["minor"], "doc": "The newest functions that this describes."})]
        + [constant(c) for c in core["constants"]],
        "dtypes": dtypes(core, ops["computable"]),
        "handles": [handle(h, names) for h in core["handles"]],
        "opaque": core["opaque"],
        "enums": [enum(e, e["header"], e["since"]) for e in core["enums"]]
        + [enum(e, op.header, op.since, op.c_name, a["name"]) for op, a, e in op_enums],
        "callbacks": callbacks,
        "structs": structs,
        "table": {"name": "weft_api_v1", "header": "table", "size": 8 + 8 * len(slots),
                  "fields": [{"name": "struct_size", "function": None, "offset": 0}]
                  + [{"name": field_name(f["name"]), "function": f["name"], "offset": 8 + 8 * f["slot"]} for f in slots]},
        "options": [option(o) for o in core["options"]],
        "functions": functions,
        "operations": [op.entry(by_operation) for op in exported],
        "lookup": [{"title": x["title"], "rows": [dict(zip(("pytorch", "jax", "weft"), map(lookup.plain, row))) for row in x["rows"]]}
                   for x in lookup.sections()],
        "types": dict(sorted(types.found.items())),
    }
