"""weft_ops.h: one C function per operation, its attribute enums and options struct, beside the core's operation functions."""
import re

from . import headers
from .model import comment, declarator


def number(value):
    """A default as C and its readers write it: 1e-5, not 1e-05."""
    return re.sub(r"e([+-])0(\d)$", r"e\1\2", "%g" % value)


def default_words(value):
    if isinstance(value, bool):
        return str(value).lower()
    return number(value) if isinstance(value, (int, float)) else value if isinstance(value, str) else str(value)


def operand_note(x, api):
    note = api.dtype_words(x["dtypes"])
    if x["variadic"]:
        note += "; one or more"
    if x["optional"]:
        note += "; may be NULL"
    return "  %s: %s; %s" % (x["name"], x["doc"], note)


def attr_note(op, a):
    kind = {"ints": "list of integers", "doubles": "list of numbers", "string": "text", "int": "integer", "double": "number",
            "bool": "0 or 1", "dtype": "dtype", "enum": "one of " + ", ".join(a["enumerators"])}[a["type"]]
    note = "  %s: %s; %s" % (a["name"], a["doc"], kind)
    if not a["required"]:
        note += "; absent unless given" if a["default"] is None else "; default %s" % default_words(a["default"])
    return note


def doc(op, api):
    lines = [op.doc]
    lines += [operand_note(x, api) for x in op.operands]
    lines += [attr_note(op, a) for a in op.required + op.optional]
    if op.placed:
        lines += ["  device: where the result is; NULL = the context's default"]
    if len(op.results) > 1:
        lines += ["Results that are not wanted may be NULL, but not all of them."]
    if op.with_options:
        lines += ["%s takes options." % op.with_options]
    if op.example:
        lines += ["Fluent: " + " ".join(op.example.split("\n"))]
    lines += ["StableHLO: %s. Errors: %s. Threads: %s. Since %s." % (
        op.name, headers.error_words(op.entry), headers.thread_words(op.entry), op.since)]
    return "\n".join(lines)


def opts(op, api):
    if not op.optional:
        return ""
    text = ""
    for a in op.optional:
        text += "#define %s ((uint64_t)1 << %d)\n" % (op.present_bit(a), a["present"]["bit"])
    return text + headers.struct_text(op.opts, api)


def prototype(op):
    params = [declarator(t, n) for t, n in op.params()]
    return headers.fill("WEFT_API WEFT_MUST_USE weft_error* %s" % op.function, params, " WEFT_NOEXCEPT;")


def header(api, h):
    body = ""
    for s in api.structs:
        if s["header"] == h["name"] and not s["operation"]:
            body += headers.struct_text(s, api)
    for f in api.functions:
        if f["header"] == h["name"]:
            body += headers.block(headers.function_doc(f, api.handles)) + headers.declaration(f) + "\n"
    for op in api.ops:
        for e in api.enums:
            if e["operation"] == op.c_name:
                body += headers.enum_text(e)
        body += opts(op, api)
        body += headers.block(doc(op, api)) + prototype(op) + "\n"
    return headers.guard(h, headers.extern_c(body))
