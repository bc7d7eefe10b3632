"""The core headers weft_<subject>.h, the umbrella weft.h, and the table weft_table.h."""
import re

from . import options
from .model import HEADERS, comment, declarator, wrap

TITLES = {
    "base": "Weft, the base: version, errors, blobs, contexts, options, hooks.",
    "device": "Weft, devices of a context.",
    "event": "Weft, events: something that will have happened. Waiting or polling is always enough.",
    "tensor": "Weft, tensors and scopes: values in and out, shapes, printing, ownership in bulk.",
    "autodiff": "Weft, gradients and the optimizers that use them.",
    "compile": "Weft, barriers: when recorded work is compiled and run.",
    "checkpoint": "Weft, trees of tensors and their files.",
    "cache": "Weft, the compile cache.",
    "metrics": "Weft, counters of what happened.",
    "data": "Weft, data sets in files.",
    "table": "Weft, the table of the core functions, for loaders that look up one symbol.",
}
INCLUDES = {"base": [], "device": ["base"], "event": ["base"], "tensor": ["base"], "autodiff": ["tensor"],
            "compile": ["tensor", "event"], "checkpoint": ["tensor", "event"], "cache": ["base"], "metrics": ["base"], "data": ["tensor"]}

MANUAL = """\
Weft: tensor programs recorded lazily, differentiated, compiled and run inside one library.

LIFE CYCLE. weft_context_create, then tensors (weft_tensor_from_host), then operations (weft_ops.h), which only record. Work
runs when something needs it: weft_sync (the barrier of a training step), weft_eval, or a read (weft_tensor_to_host,
weft_tensor_item_f64, weft_tensor_to_string). Reading computes once. Release what you own; release the context last.

OWNERSHIP. A handle that comes out through an out-parameter carries one reference that is yours: _release it. Handles that go in
are borrowed for the call. A tensor keeps what it needs; releasing a context while its tensors live is allowed, after it they can only be released. A
handle is a number in disguise, never to be followed: stale, foreign and twice-released ones give WEFT_INVALID_ARGUMENT. A call
keeps what it was given: another thread, say a finalizer's, may release it meanwhile. The call goes through if it began before the
release, and gives WEFT_INVALID_ARGUMENT if it did not. Memory that is borrowed from a handle lives no longer than the handle.
In C use a scope (weft_scope_begin, or weft_fluent.h, where operations nest): it owns every intermediate until it ends.

ERRORS. Fallible functions return weft_error*, NULL = success, owned by the caller. After an error no out-parameter has been
written and nothing needs cleaning. There is no last-error state, the library never prints, and it never ends the process.

THREADS. Each function says `any` (call it from any thread) or `exclusive: p` (one thread at a time for that object; a second one
harms nothing, but waits for its turn, or gets WEFT_FAILED_PRECONDITION from an optimizer, and borrowed memory may move). Releases
may come from any thread at any time. Recording from several threads into one context is allowed; the order of their calls is
the program's. After fork() use a new context.

STRINGS are UTF-8: in as pointer and length (WEFT_STRLEN = up to the NUL), out borrowed for the handle's life or as a blob.

OPTIONS STRUCTS begin with struct_size and next; start from WEFT_X_INIT or weft_x_init(&x, sizeof x); zero is the default.

VERSIONS. weft_abi_version() = major << 16 | minor. Within a major, functions and fields are only added. `Since` is the ABI
version that brought a function. Enumerations may grow: tolerate values you do not know.

LOADING WITHOUT LINKING: dlopen libweft.so.1, look up weft_get_api, check slots against struct_size, call through the table; or
weft_get_proc for any function by name. The header files include only <stddef.h> and <stdint.h>."""

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


def function_doc(f, handles):
    lines = [f["doc"]]
    for p in f["params"]:
        notes = []
        if p.get("nullable"):
            notes.append("may be NULL")
        if "len" in p:
            unit = "bytes" if p["type"].replace("const ", "").startswith(("void", "char")) else "entries"
            notes.append("%s %s" % (p["len"], unit))
        if p.get("own") == "own":
            notes.append("yours: release it" if "len" not in p else "each yours: release them")
        if p.get("own") == "take":
            notes.append("your reference is taken over")
        if p.get("doc"):
            notes.append(p["doc"])
        if notes:
            lines.append("  %s: %s" % (p["name"], "; ".join(notes)))
    if f.get("returns_own") == "borrow":
        lines.append("  returns: borrowed")
    facts = []
    if f["errors"]:
        facts.append("Errors: %s." % ", ".join(e if e == "any" else e for e in f["errors"]))
    facts.append("Threads: %s." % f["thread"])
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
    must = "WEFT_MUST_USE " if f["returns"] == "weft_error*" else ""
    params = [declarator(p["type"], p["name"]) for p in f["params"]]
    return fill("WEFT_API %s%s %s" % (must, f["returns"], f["name"]), params, " WEFT_NOEXCEPT;")


def enum_text(e):
    out = comment(e["doc"]) + "typedef enum %s {\n" % e["name"]
    for v in e["values"]:
        number = "0x%X" % v["value"] if v["value"] > 255 else "%d" % v["value"]
        doc = " /* %s */" % v["doc"] if v["doc"] else ""
        out += "  %s = %s,%s\n" % (v["name"], number, doc)
    return out + "  %s_FORCE32 = 0x7FFFFFFF\n} %s;\n\n" % (e["name"].upper(), e["name"])


def zero(field, api):
    enums = {e["name"] for e in api.enums} | {e["name"] for op in api.ops for e in op.enums()}
    t = field["type"]
    if "*" in t or t.endswith("_fn"):
        return "NULL"
    if "array" in field:
        return "{0}"
    return "(%s)0" % t if t in enums else "0"


def struct_text(s, api):
    out = comment(s["doc"] + " Since %s." % s["since"]) + "typedef struct %s {\n" % s["name"]
    if s["versioned"]:
        out += "  size_t struct_size;\n  const void* next; /* NULL */\n"
    for f in s["fields"]:
        array = "[%d]" % f["array"] if "array" in f else ""
        notes = [f["doc"]] if f.get("doc") else []
        if "len" in f:
            notes.insert(0, "%s entries" % f["len"] if "char" not in f["type"] else "%s bytes" % f["len"])
        out += "  %s%s;%s\n" % (declarator(f["type"], f["name"]), array, " /* %s */" % "; ".join(notes) if notes else "")
    out += "} %s;\n" % s["name"]
    if s["versioned"]:
        zeros = ", ".join(zero(f, api) for f in s["fields"])
        out += "#define %s_INIT {sizeof(%s), NULL, %s}\n" % (s["name"].upper(), s["name"], zeros)
        out += "WEFT_API void %s_init(void* options, size_t size) WEFT_NOEXCEPT;\n" % s["name"]
    return out + "\n"


def callback_text(c):
    return comment(c["doc"] + " Since %s." % c["since"]) + "typedef %s (*%s)(%s);\n\n" % (
        c["returns"], c["name"], params_text(c["params"]))


def guard(name, title, body, includes=(), system=False):
    macro = "WEFT_%s_H" % name.upper()
    text = comment("%s Generated by include/c_api/generate.py: edit api.json, not this file." % title)
    text += "#ifndef %s\n#define %s\n\n" % (macro, macro)
    for i in includes:
        text += '#include "weft_%s.h"\n' % i
    if includes:
        text += "\n"
    return text + body + "\n#endif /* %s */\n" % macro


def extern_c(body):
    return "#if defined(__cplusplus)\nextern \"C\" {\n#endif\n\n%s#if defined(__cplusplus)\n}\n#endif\n" % body


def header(api, name):
    body = ""
    if name == "base":
        for h in api.handles:
            body += comment(h["doc"] + " Since %s." % h["since"]) + "typedef struct %s %s;\n" % (h["name"], h["name"])
        body += "/* The table of weft_table.h. */\ntypedef struct weft_api_v1 weft_api_v1;\n\n"
    for c in api.constants:
        if c["header"] == name:
            body += comment(c["doc"]) + "#define %s %s\n\n" % (c["name"], c["value"])
    for e in api.enums:
        if e["header"] == name:
            body += enum_text(e)
    for c in api.callbacks:
        if c["header"] == name:
            body += callback_text(c)
    for s in api.structs:
        if s["header"] != name:
            continue
        if s["name"] == "weft_setting":
            body += options.header_comment(api) + "\n"
        body += struct_text(s, api)
    if name == "tensor":
        body += ("/* DLPack's own structs, from its dlpack.h; only pointers to them pass here. */\n"
                 "struct DLManagedTensor;\nstruct DLManagedTensorVersioned;\n\n")
    for f in api.functions:
        if f["header"] == name:
            body += block(function_doc(f, api.handles)) + declaration(f) + "\n"
    body = extern_c(body)
    if name == "base":
        body = PREAMBLE % (api.major, api.minor) + "\n" + body
    return guard(name, TITLES[name], body, INCLUDES[name])


def slot_name(f):
    return f["name"][len("weft_"):]


def table(api):
    body = block("The core functions. Grows at its end only: a slot exists if it lies inside struct_size and is not NULL.")
    body += "struct weft_api_v1 {\n  size_t struct_size;\n"
    for f in api.slots():
        body += "  %s (*%s)(%s);\n" % (f["returns"], slot_name(f), params_text(f["params"]))
    body += "};\n\n"
    for f in api.functions:
        if f["header"] == "table":
            body += block(function_doc(f, api.handles)) + declaration(f) + "\n"
    includes = [h for h in HEADERS if h != "table"]
    return guard("table", TITLES["table"], extern_c(body), includes)


def umbrella(api):
    text = block(re.sub(r"(?<!\n)\n(?!\n)", " ", MANUAL) + "\n\nGenerated by include/c_api/generate.py.")
    text += "#ifndef WEFT_H\n#define WEFT_H\n\n"
    for h in HEADERS:
        text += '#include "weft_%s.h"\n' % h
    return text + "\n#endif /* WEFT_H */\n"


def files(api):
    out = {"include/c_api/weft.h": umbrella(api), "include/c_api/weft_table.h": table(api)}
    for name in INCLUDES:
        out["include/c_api/weft_%s.h" % name] = header(api, name)
    return out
