"""lookup.json: what users of PyTorch, JAX and NumPy write, and what they write here. Names of operations and functions in the
description come from its rows, and the look-up table of docs/concepts.md is made from them."""
import json
import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "..", "lookup.json")
PAGE = "docs/concepts.md"
START, END = "<!-- The table is made by bindings/generate from lookup.json. -->\n", "<!-- The table ends here. -->\n"
# The names that rows have for modules.
MODULES = {"F": "torch.nn.functional", "jnp": "jax.numpy", "np": "numpy", "xm": "torch_xla.core.xla_model"}
LIBRARIES = {"torch": "pytorch", "torch_xla": "pytorch", "jax": "jax", "optax": "jax", "orbax": "jax", "numpy": "numpy"}
# Functions of jax.numpy that NumPy has not under that name.
JAX_ALONE = {"float32"}
METHOD = {"a": "torch.Tensor", "t": "torch.Tensor", "y": "torch.Tensor", "optimizer": "torch.optim.Optimizer"}


def sections():
    with open(PATH, encoding="utf-8") as f:
        return json.load(f)["sections"]


def plain(cell):
    """A cell without its marks of code."""
    return cell[1:-1] if cell.startswith("`") and cell.endswith("`") and cell.count("`") == 2 else cell


def called(code):
    """The dotted name of what an expression calls in the end, or nothing where it is a formula."""
    found = re.match(r"([A-Za-z_][\w.]*)\(", code)
    if not found:
        return None
    depth = 0
    for i, c in enumerate(code):
        depth += (c in "([{") - (c in ")]}")
        if depth == 0 and c in ")]}":
            return found[1] if i == len(code) - 1 and "." in found[1] else None
    return None


def whole(name, theirs):
    """A name with its module: F.relu is torch.nn.functional.relu."""
    first, _, rest = name.partition(".")
    if first in METHOD and theirs == "pytorch":
        return METHOD[first] + "." + rest
    full = MODULES.get(first, first) + "." + rest
    return full if full.split(".")[0] in LIBRARIES else None


def names_of(row):
    """{library: name} of a row. A fourth cell says them where the expressions do not."""
    if len(row) > 3:
        return row[3]
    out = {}
    for cell, theirs in ((row[0], "pytorch"), (row[1], "jax")):
        name = called(plain(cell))
        full = name and whole(name, theirs)
        if not full:
            continue
        out[LIBRARIES[full.split(".")[0]]] = full
        short = full.removeprefix("jax.numpy.")
        if short != full and short.split(".")[0] not in JAX_ALONE:
            out["numpy"] = "numpy." + short
    return out


def subject(line):
    """What a line of C is about: ("operation", "matmul") or ("function", "weft_sync"); nothing where it is prose."""
    line = plain(line)
    for pattern, kind in ((r"wf_try\(s, (weft_\w+)\(", "function"), (r"(?:\w+ = )?wf_(\w+)\(", "operation")):
        found = re.match(pattern, line)
        if found:
            return kind, found[1]
    return None


def names(operations, functions):
    """({c_name: names}, {function: names}), each {library: [names]}, in the order of the rows."""
    by_operation, by_function = {}, {}
    for row in (row for section in sections() for row in section["rows"]):
        about = subject(row[2])
        if about is None:
            continue
        kind, name = about
        if kind == "operation":
            for end in ("", "_n", "_arg"):  # with a number in the place of an operand
                if name.removesuffix(end) in operations:
                    name = name.removesuffix(end)
                    break
            else:
                kind, name = "function", "weft_" + ("function_call" if name == "call" else name)
        if kind == "function" and name not in functions:
            continue
        into = (by_operation if kind == "operation" else by_function).setdefault(name, {})
        for library, theirs in names_of(row).items():
            if theirs not in into.setdefault(library, []):
                into[library].append(theirs)
    return by_operation, by_function


def table():
    """The tables of docs/concepts.md."""
    out = []
    for section in sections():
        out.append("### %s\n\n| PyTorch | JAX, NumPy | Weft |\n|---|---|---|\n" % section["title"])
        out[-1] += "".join("| %s |\n" % " | ".join(cell.replace("|", "\\|") for cell in row[:3]) for row in section["rows"])
    return "\n".join(out)


def files(root):
    with open(os.path.join(root, PAGE), encoding="utf-8") as f:
        page = f.read()
    start, end = page.index(START) + len(START), page.index(END)
    return {PAGE: page[:start] + "\n" + table() + "\n" + page[end:]}
