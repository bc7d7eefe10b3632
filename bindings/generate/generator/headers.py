"""The core headers weft_<subject>.h, the umbrella weft.h, and the table weft_table.h."""
from . import options
from .model import comment, declarator, wrap

PREAMBLE = """\
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define WEFT_API __attribute__((visibility("default")))
#define WEFT_MUST_USE __attribute__((warn_unused_result))
#else
#define WEFT_API
#define WEFT_MUST_USE
#endif
#if defined(__cplusplus)
#define WEFT_NOEXCEPT noexcept
#else
#define WEFT_NOEXCEPT
#endif

#define WEFT_ABI_MAJOR %d
#define WEFT_ABI_MINOR %d
"""


def params_text(params):
    if not params:
        return "void"
    return ", ".join(declarator(p["type"], p["name"]) for p in params)


def fill(head, params, tail, width=120):
    """`head(params)tail`, broken after commas and aligned with the parenthesis."""
    line = head + "("
    indent = " " * (len(line) if len(line) < 44 else 4)
    out = []
    for i, p in enumerate(params or ["void"]):
        piece = p + ("," if i + 1 < len(params) else ")" + tail)
        if len(line) + len(piece) + 1 > width:
            out.append(line.rstrip())
            line = indent
        line += piece + " "
    out.append(line.rstrip())
    return "\n".join(out) + "\n"


def notes_of(p):
    """What the comment says of one parameter."""
    notes = ["may be NULL"] if p.get("nullable") else []
    length = p.get("length")
    if length and p.get("direction") != "inout" and not (p.get("direction") == "out" and length["param"].startswith("out_")):
        notes.append("%s %s" % (length["param"], "bytes" if length["unit"] == "bytes" else "entries"))
    if p.get("ownership") == "own":
        notes.append("each yours: release them" if length else "yours: release it")
    if p.get("ownership") == "take":
        notes.append("your reference is taken over")
    return notes + ([p["doc"]] if p.get("doc") else [])


def thread_words(f):
    return "exclusive: " + f["thread"]["param"] if f["thread"]["param"] else f["thread"]["rule"]


def error_words(f):
    return ", ".join(f["errors"]["codes"] + (["any"] if f["errors"]["any"] else []))


def function_doc(f, handles):
    lines = [f["doc"]]
    for p in f["params"]:
        notes = notes_of(p)
        if notes:
            lines.append("  %s: %s" % (p["name"], "; ".join(notes)))
    if f["returns"].get("ownership") == "borrow":
        lines.append("  returns: borrowed")
    facts = ["Errors: %s." % error_words(f)] if error_words(f) else []
    facts.append("Threads: %s." % thread_words(f))
    if f["blocking"]:
        facts.append("May block.")
    if f["may_call_back"]:
        facts.append("May call hooks.")
    facts.append("Since %s." % f["since"])
    return "\n".join(lines + [" ".join(facts)])


def block(text):
    body = []
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        body += wrap(line.strip(), indent=" * " + " " * indent)
    return "/*" + body[0][2:] + "\n" + "".join(b + "\n" for b in body[1:]) + " */\n"


def declaration(f):
    ctype = f["returns"]["type"]
    must = "WEFT_MUST_USE " if ctype == "weft_error*" else ""
    params = [declarator(p["type"], p["name"]) for p in f["params"]]
    return fill("WEFT_API %s%s %s" % (must, ctype, f["name"]), params, " WEFT_NOEXCEPT;")


def enum_text(e):
    out = comment(e["doc"]) + "typedef enum %s {\n" % e["name"]
    for v in e["values"]:
        number = "0x%X" % v["value"] if v["value"] > 255 else "%d" % v["value"]
        doc = " /* %s */" % v["doc"] if v["doc"] else ""
        out += "  %s = %s,%s\n" % (v["name"], number, doc)
    return out + "  %s = 0x%X\n} %s;\n\n" % (e["padding"]["name"], e["padding"]["value"], e["name"])


def zero(field, api):
    kind = api.types[field["type"]]["kind"]
    if kind in ("pointer", "callback"):
        return "NULL"
    if "count" in field:
        return "{0}"
    return "(%s)0" % field["type"] if kind == "enum" else "0"


def struct_text(s, api):
    out = comment(s["doc"] + " Since %s." % s["since"]) + "typedef struct %s {\n" % s["name"]
    for f in s["fields"]:
        array = "[%d]" % f["count"] if "count" in f else ""
        notes = [f["doc"]] if f.get("doc") else ["NULL"] if f["role"] == "next" else []
        if "length" in f and not s["operation"]:
            notes.insert(0, "%s %s" % (f["length"]["param"], "bytes" if f["length"]["unit"] == "bytes" else "entries"))
        out += "  %s%s;%s\n" % (declarator(f["type"], f["name"]), array, " /* %s */" % "; ".join(notes) if notes else "")
    out += "} %s;\n" % s["name"]
    if s["versioned"]:
        zeros = ", ".join(zero(f, api) for f in s["fields"][1:])
        out += "#define %s_INIT {sizeof(%s), %s}\n" % (s["name"].upper(), s["name"], zeros)
        out += "WEFT_API void %s(void* options, size_t size) WEFT_NOEXCEPT;\n" % s["init"]
    return out + "\n"


def callback_text(c):
    return comment(c["doc"] + " Since %s." % c["since"]) + "typedef %s (*%s)(%s);\n\n" % (
        c["returns"]["type"], c["name"], params_text(c["params"]))


def guard(h, body):
    macro = "WEFT_%s_H" % h["name"].upper()
    text = comment("%s Generated by bindings/generate: edit api.json, not this file." % h["title"])
    text += "#ifndef %s\n#define %s\n\n" % (macro, macro)
    for i in h["includes"]:
        text += '#include "weft_%s.h"\n' % i
    if h["includes"]:
        text += "\n"
    return text + body + "\n#endif /* %s */\n" % macro


def extern_c(body):
    return "#if defined(__cplusplus)\nextern \"C\" {\n#endif\n\n%s#if defined(__cplusplus)\n}\n#endif\n" % body


def constant_text(c, api):
    """-1 and the greatest number of a type are written so that they fit whatever its width."""
    bits = api.types[c["type"]]["bits"]
    value = "-1" if c["value"] == 2 ** bits - 1 else "%d" % c["value"]
    return comment(c["doc"]) + "#define %s ((%s)%s)\n\n" % (c["name"], c["type"], value)


def opaque_text(api, name):
    found = [o for o in api.opaque if o["header"] == name]
    if not found:
        return ""
    text = "/* DLPack's own structs, from its dlpack.h; only pointers to them pass here. */\n"
    return text + "".join("struct %s;\n" % o["name"] for o in found) + "\n"


def header(api, h):
    body, name = "", h["name"]
    if name == "base":
        for x in api.handles:
            body += comment(x["doc"] + " Since %s." % x["since"]) + "typedef struct %s %s;\n" % (x["name"], x["name"])
        body += "/* The table of weft_table.h. */\ntypedef struct %s %s;\n\n" % (api.table["name"], api.table["name"])
    for c in api.constants:
        if c["header"] == name and not c["name"].startswith("WEFT_ABI_"):  # those are plain numbers of the preamble
            body += constant_text(c, api)
    for e in api.enums:
        if e["header"] == name:
            body += enum_text(e)
    callbacks = [c for c in api.callbacks if c["header"] == name]
    early = [s for s in api.structs_of_callbacks()[0] if s["header"] == name and any(
        api.base(p["type"]) == s["name"] for c in callbacks for p in c["params"])]
    for s in early:
        body += struct_text(s, api)
    for c in callbacks:
        body += callback_text(c)
    for s in api.structs:
        if s["header"] != name or s in early:
            continue
        if s["name"] == "weft_setting":
            body += options.header_comment(api) + "\n"
        body += struct_text(s, api)
    body += opaque_text(api, name)
    for f in api.functions:
        if f["header"] == name:
            body += block(function_doc(f, api.handles)) + declaration(f) + "\n"
    body = extern_c(body)
    if name == "base":
        body = PREAMBLE % (api.major, api.minor) + "\n" + body
    return guard(h, body)


def table(api, h):
    body = block("The core functions. Grows at its end only: a slot exists if it lies inside struct_size and is not NULL.")
    body += "struct %s {\n  size_t struct_size;\n" % api.table["name"]
    for slot in api.table["fields"][1:]:
        f = api.function[slot["function"]]
        body += "  %s (*%s)(%s);\n" % (f["returns"]["type"], slot["name"], params_text(f["params"]))
    body += "};\n\n"
    for f in api.functions:
        if f["header"] == h["name"]:
            body += block(function_doc(f, api.handles)) + declaration(f) + "\n"
    return guard(h, extern_c(body))


def umbrella(api):
    text = block("\n\n".join(api.manual) + "\n\nGenerated by bindings/generate.")
    text += "#ifndef WEFT_H\n#define WEFT_H\n\n"
    for h in api.headers:
        text += '#include "%s"\n' % h["file"]
    return text + "\n#endif /* WEFT_H */\n"


def files(api):
    from . import ops  # which needs the functions above
    writers = {"ops": ops.header, "table": table}
    out = {"include/c_api/weft.h": umbrella(api)}
    for h in api.headers:
        out["include/c_api/" + h["file"]] = writers.get(h["name"], header)(api, h)
    return out
