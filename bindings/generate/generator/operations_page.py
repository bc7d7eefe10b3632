"""docs/operations.md: a line for each operation, from the operation table."""
from . import groups

INTRO = """# Operations

Each operation in a line: operands; settings with their defaults behind the semicolon; element types of the first operand; the operands that a gradient
flows to; how [`vmap`](transforms.md) runs it; the error that tests allow, relative, in f32 and f64 (0: equal bits), against the operation's reference;
a call. The [reference](reference.md) has the sentences, [accuracy](accuracy.md) what was measured, [conformance](conformance.md) what
PyTorch's database of operators says. Made by `bindings/generate` from `include/c_api/ops.json`.

A setting has one name everywhere: `dims` for several dimensions, `axis` for one, `shape` for a result's sizes, `size` for spatial ones. Where StableHLO has a name
of its own for a primitive's (`dimension`, `dimensions`, `permutation`), that name stays.

"""
KINDS = (("floats", {"f16", "f32", "f64", "bf16"}), ("f8", {"f8e3m4", "f8e4m3", "f8e4m3b11fnuz", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu"}),
         ("integers", {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}), ("signed", {"i8", "i16", "i32", "i64"}),
         ("unsigned", {"u8", "u16", "u32", "u64"}), ("complex", {"c64", "c128"}), ("bool", {"bool"}))


def types(dtypes):
    """Sets of element types in a few words."""
    left, words = set(dtypes), []
    if len(left) > 20:
        return "every type"
    for word, members in KINDS:
        if members <= left:
            words.append(word)
            left -= members
    return ", ".join(words + sorted(left))


def call(op):
    operands = [x["name"] + ("…" if x["variadic"] else "") + ("?" if x["optional"] else "") for x in op["operands"] if not x.get("supplied")]
    settings = [a["name"] if a["required"] else a["name"] + ("?" if a["default"] is None else "=%s" % str(a["default"]).lower()) for a in op["attrs"]]
    return "%s(%s)" % (op["c_name"], "; ".join(part for part in (", ".join(operands), ", ".join(settings)) if part))


def row(op):
    first = op["operands"][0]["dtypes"] if op["operands"] else []
    flows = [x["name"] for x in op["operands"] if x["gradient"]]
    near = op["tolerance"]
    allowed = "random" if op["random"] else "%g, %g" % (near["f32"], near["f64"])
    example = op["example"].replace("\n", " ").replace("|", "\\|")
    return "| [%s](reference.md#weft_%s) | `%s` | %s | %s | %s | %s | `%s` |\n" % (
        op["c_name"], op["c_name"], call(op).replace("|", "\\|"), types(first), ", ".join(flows), op["batching"], allowed, example)


def files(ops):
    shown = [op for op in ops if op["exported"]]
    by_group = {}
    for op in shown:
        by_group.setdefault(groups.of(op["c_name"]), []).append(op)
    text = INTRO + "%d operations.\n" % len(shown)
    for group, members in by_group.items():
        text += "\n## %s\n\n| operation | call | types | gradient | vmap | error | example |\n|---|---|---|---|---|---|---|\n" % group.capitalize()
        text += "".join(map(row, members))
    return {"docs/operations.md": text}
