"""weft_ops.h: one C function per operation, its attribute enums and options struct, beside the core's operation functions."""
from . import headers
from .model import comment, declarator


def operand_note(x):
    note = x["types"]
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
        note += "; default %s" % a["default"] if a["default"] else "; absent unless given"
    return note


def doc(op):
    lines = [op.doc]
    lines += [operand_note(x) for x in op.operands]
    lines += [attr_note(op, a) for a in op.attrs]
    if op.example:
        lines += ["Fluent: " + " ".join(op.example.split("\n"))]
    lines += ["StableHLO: %s. Errors: %s. Threads: any. Since %s." % (op.name, ", ".join(op.o["errors"]), op.since)]
    return "\n".join(lines)


def opts(op, api):
    if not op.optional:
        return ""
    text = ""
    for i, a in enumerate(op.optional):
        text += "#define %s ((uint64_t)1 << %d)\n" % (op.present_bit(a), i)
    return text + headers.struct_text(op.opts_struct(), api)


def prototype(op):
    params = [declarator(t, n) for t, n in op.params()]
    return headers.fill("WEFT_API WEFT_MUST_USE weft_error* %s" % op.function, params, " WEFT_NOEXCEPT;")


def files(api):
    body = ""
    for s in api.structs:
        if s["header"] == "ops":
            body += headers.struct_text(s, api)
    for f in api.functions:
        if f["header"] == "ops":
            body += headers.block(headers.function_doc(f, api.handles)) + headers.declaration(f) + "\n"
    for op in api.ops:
        for e in op.enums():
            body += headers.enum_text(e)
        body += opts(op, api)
        body += headers.block(doc(op)) + prototype(op) + "\n"
    title = ("Weft, operations: each records and returns at once; shapes and dtypes are checked here. Where an automatic cut is due "
             "(max_pending_nodes and its kin), and in the modes eager and debug, it waits and fails as weft_eval does.")
    return {"include/c_api/weft_ops.h": headers.guard("ops", title, headers.extern_c(body), ["tensor"])}
