"""One operation of ops.json and its C spelling: function, options struct, enumerations, present bits."""
import re

from . import groups
from .names import ATTR_C, safe

LENGTHS = {"ints": "count", "doubles": "count", "string": "length"}
# Operations whose first option came when their C function was there already: it stays as it was, another one has the options.
OPTIONS_LATER = {"linear"}


def variants(o, common):
    """The C functions of one operation."""
    if o["c_name"] not in OPTIONS_LATER:
        return [Operation(o, common)]
    return [Operation(o, common, with_options="weft_%s_with" % o["c_name"]), Operation(o, common, "_with")]


class Operation:
    def __init__(self, o, common, suffix="", with_options=None):
        self.o, self.common, self.with_options = o, common, with_options
        self.c_name, self.header, self.since = o["c_name"], common["header"], o["since"]
        self.function = "weft_" + self.c_name + suffix
        # The generator state of a random operation comes from the context.
        self.operands = [x for x in o["operands"] if not x.get("supplied")]
        self.attrs = [a for a in o["attrs"] if a["required"] or not with_options]
        self.results = [r["name"] for r in o["results"]]
        self.optional = [a for a in self.attrs if not a["required"]]
        # Nothing says where it is recorded: the options do.
        self.placed = not self.operands
        assert self.optional or not self.placed, "without operands and options nothing says where %s is" % self.c_name
        # Two tensors of one kind broadcast, one of which a binding may be given as a number.
        self.takes_number = bool(o.get("broadcast")) and len(self.operands) == 2 and not o["attrs"] and len(self.results) == 1 \
            and len({x["group"] for x in self.operands}) == 1

    def takes(self, call):
        """Whether it has all the attributes of a sample's call."""
        return {token.split("=")[0] for token in call.split() if "=" in token} <= {a["name"] for a in self.attrs}

    def enum_name(self, a):
        return "weft_%s_%s" % (self.c_name, a["name"].removeprefix(self.c_name + "_"))

    def enumerator(self, a, text):
        return "%s_%s" % (self.enum_name(a).upper(), re.sub(r"\W", "_", text).upper())

    def enums(self):
        """(attribute, enumeration in the form of api.json)"""
        return [(a, {"name": self.enum_name(a), "doc": "Values of attribute %s of %s." % (a["name"], self.function),
                     "values": [{"name": self.enumerator(a, v), "value": i, "doc": ""} for i, v in enumerate(a["enumerators"])]})
                for a in self.attrs if a["type"] == "enum"]

    def present(self, a):
        return {"constant": "WEFT_%s_HAS_%s" % (self.c_name.upper(), a["name"].upper()), "bit": self.optional.index(a)}

    def attribute_members(self, a, count_type):
        """The attribute as parameters or fields: one for a scalar, pointer and count for a list or text."""
        ctype = self.enum_name(a) if a["type"] == "enum" else ATTR_C[a["type"]]
        member = {"name": safe(a["name"]), "type": ctype, "truth": a["type"] == "bool"}
        if a["type"] not in LENGTHS:
            return [member]
        length = "%s_%s" % (a["name"], LENGTHS[a["type"]])
        return [dict(member, len=length, nullable=True), {"name": length, "type": count_type}]

    def opts_struct(self):
        fields = [{"name": "present", "type": "uint64_t", "role": "present"}]
        small = 0  # 4-byte fields come in pairs, so that no hidden padding appears on any 64-bit target
        for a in self.optional:
            for i, m in enumerate(self.attribute_members(a, "uint64_t")):
                if a["type"] in ("bool", "dtype", "enum"):
                    small ^= 1
                elif small:
                    fields.append({"name": "reserved_" + a["name"], "type": "int32_t"})
                    small = 0
                fields.append(dict(m, present=self.present(a)) if i == 0 else m)
        if small:
            fields.append({"name": "reserved", "type": "int32_t"})
        if self.placed:
            fields.append({"name": "device", "type": "weft_device*", "nullable": True,
                           "doc": "where the result is; NULL = the context's default"})
        return {"name": self.function + "_opts", "header": self.header, "since": self.since, "versioned": True, "fields": fields,
                "operation": self.c_name, "doc": "Optional attributes of %s. A bit in present says that a field counts; others "
                "keep their defaults." % self.function}

    def result(self, i):
        return "out" if len(self.results) == 1 else "out_" + self.results[i]

    def function_entry(self):
        """In the form of api.json."""
        p = [{"name": "ctx", "type": "weft_context*"}]
        for x in self.operands:
            if x["variadic"]:
                p.append({"name": safe(x["name"]), "type": "weft_tensor* const*", "len": x["name"] + "_count", "nullable": x["optional"]})
                p.append({"name": x["name"] + "_count", "type": "size_t"})
            else:
                p.append({"name": safe(x["name"]), "type": "weft_tensor*", "nullable": x["optional"]})
        for a in self.attrs:
            if a["required"]:
                p += self.attribute_members(a, "size_t")
        if self.optional:
            p.append({"name": "opts", "type": "const %s_opts*" % self.function, "nullable": True})
        # A call may leave out results that it does not want, where there are several.
        p += [{"name": self.result(i), "type": "weft_tensor**", "dir": "out", "own": "own", "nullable": len(self.results) > 1}
              for i in range(len(self.results))]
        return dict(self.common, name=self.function, since=self.since, returns="weft_error*", returns_own="own", doc=self.o["doc"],
                    errors=self.o.get("errors", self.common["errors"]), params=p)

    def entry(self, names):
        attributes = []
        for a in self.attrs:
            value, *length = [m["name"] for m in self.attribute_members(a, "size_t")]
            attributes.append({
                "name": a["name"], "type": a["type"], "required": a["required"], "default": a["default"],
                "enum": self.enum_name(a) if a["type"] == "enum" else None,
                "enumerators": [{"text": v, "enumerator": self.enumerator(a, v)} for v in a["enumerators"]],
                "place": "param" if a["required"] else "opts", "member": value, "length": length[0] if length else None,
                "present": None if a["required"] else self.present(a), "doc": a["doc"]})
        return {"name": self.o["name"], "c_name": self.c_name, "function": self.function, "kind": self.o["kind"],
                "group": groups.of(self.c_name), "gradient": any(x["gradient"] for x in self.operands),
                "names": names.get(self.c_name, {}), "random": self.o["random"], "since": self.since, "doc": self.o["doc"], "example": self.o["example"],
                "opts": self.function + "_opts" if self.optional else None, "with_options": self.with_options,
                "placed": self.placed, "takes_number": self.takes_number,
                "supplied": len(self.o["operands"]) - len(self.operands),
                "samples": [s for s in self.o["samples"] if self.takes(s["call"])],
                "operands": [{"name": x["name"], "param": safe(x["name"]), "count": x["name"] + "_count" if x["variadic"] else None,
                              "dtypes": x["dtypes"], "group": x["group"] or None, "optional": x["optional"],
                              "variadic": x["variadic"], "gradient": x["gradient"], "doc": x["doc"]} for x in self.operands],
                "attributes": attributes,
                "results": [{"name": r["name"], "param": self.result(i), "dtype": r["dtype"]} for i, r in enumerate(self.o["results"])]}
