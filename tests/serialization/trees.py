"""Trees to save, as plain Python, random ones too: (kind, value) with ("dict", [(key, node) …]), ("list", [node …]),
("tensor", (dtype, shape, bytes)), ("alias", path), ("int64", 7) …"""
import ctypes
import os
import random
import struct as packing

import files
from files import LIB, weft

CLASSES = {"inside": 40, "packed": 3000, "large": 70_000, "huge": 1_100_000}  # bytes, about


def dtypes():
    """Every element type that a tensor can have: {name: bits}."""
    return {name: code >> 8 & 0xFF for name, code in files.CODES.items() if code and name != "force32"}


def value(dtype, bits, elements, seed):
    size = (elements * bits + 7) // 8
    if dtype == "bool":
        return bytes((i * 7 + seed) % 3 % 2 for i in range(size))
    raw = bytearray((i * 31 + i // 64 + seed) % 251 for i in range(min(size, 251 * 64)))
    raw = (raw * (size // max(len(raw), 1) + 1))[:size]
    spare = size * 8 - elements * bits
    if spare:
        raw[-1] &= (1 << 8 - spare) - 1
    return bytes(raw)


def escape(key):
    return key.replace("\\", "\\\\").replace(".", "\\.")


class Builder:
    """A weft_tree of a model. Aliases of what comes later are added last, so they are the last of their containers."""

    def __init__(self, ctx, model):
        self.ctx, self.handle, self.nodes, self.later = ctx, ctypes.c_void_p(), {"": 0}, []
        LIB.tree_create(ctypes.byref(self.handle))
        self.children(0, "", model)
        for parent, key, target in self.later:
            self.add("alias", parent, key, self.nodes[target])

    def add(self, what, parent, key, *args):
        out, raw = ctypes.c_uint32(), None if key is None else key.encode()
        getattr(LIB, "tree_add_" + what)(self.handle, parent, raw, len(raw or b""), *args, ctypes.byref(out))
        return out.value

    def children(self, parent, path, node):
        kind, inner = node
        for i, child in enumerate(inner):
            key, child = child if kind == "dict" else (None, child)
            name = (path + "." if parent else "") + (escape(key) if key is not None else str(i))
            self.node(parent, key, name, child)

    def node(self, parent, key, path, node):
        kind, value_ = node
        if kind == "alias":
            if value_ in self.nodes:
                self.add("alias", parent, key, self.nodes[value_])
            else:
                self.later.append((parent, key, value_))
            return
        if kind == "tensor":
            handle = files.tensor(self.ctx, *value_)
            made = self.add("tensor", parent, key, handle)
            LIB.tensor_release(handle)
        elif kind in ("dict", "list", "none"):
            made = self.add(kind, parent, key)
        elif kind in ("text", "bytes"):
            raw = value_.encode() if kind == "text" else value_
            made = self.add(kind, parent, key, raw, len(raw))
        else:
            made = self.add({"int64": "i64", "float64": "f64", "bool": "bool"}[kind], parent, key,
                            ctypes.c_double(value_) if kind == "float64" else value_)
        self.nodes[path] = made
        if kind in ("dict", "list"):
            self.children(made, path, node)

    def save(self, path, step=0):
        options, raw = files.struct("weft_checkpoint_options"), os.fsencode(path)
        options.step, options.durable = step, -1
        LIB.checkpoint_save(self.ctx.handle, raw, len(raw), self.handle, ctypes.addressof(options), None)

    def release(self):
        LIB.tree_release(self.handle)


def expected(model):
    """(tree, tensors) as independent_reader.Checkpoint has them."""
    tensors = {}

    def walk(node, path):
        kind, inner = node
        if kind in ("dict", "list"):
            out = []
            for i, child in enumerate(inner):
                key, child = child if kind == "dict" else (None, child)
                name = (path + "." if path is not None else "") + (escape(key) if key is not None else str(i))
                out.append((key, walk(child, name)))
            return kind, out
        if kind == "tensor":
            dtype = {"bool": "bool8"}.get(inner[0], inner[0])
            tensors[path] = dtype, dtype, tuple(inner[1]), bytes(inner[2])
            return kind, path
        return kind, inner

    return walk(model, None), tensors


def random_tree(seed):
    draw = random.Random(seed)
    types = list(dtypes().items())
    paths = []  # of tensors, for aliases
    later = []

    def leaf(path):
        kind = draw.choice(["tensor"] * 6 + ["int64", "float64", "bool", "none", "text", "bytes", "alias"])
        if kind == "alias" and paths:
            return kind, draw.choice(paths)
        if kind in ("tensor", "alias"):
            dtype, bits = draw.choice(types)
            size = draw.choice([0, 1, 8, 40, 64, 65, 300, 5000] + [66_000] * (draw.random() < 0.2))
            rank = draw.randrange(4)
            count = max(size * 8 // bits, 0)
            shape = [count] if rank == 1 else [2, count // 2] if rank == 2 else [1, count, 1] if rank else []
            elements = 1
            for dim in shape:
                elements *= dim
            paths.append(path)
            return "tensor", (dtype, shape, value(dtype, bits, elements, draw.randrange(251)))
        if kind == "int64":
            return kind, draw.randrange(-2**63, 2**63)
        if kind == "float64":
            return kind, packing.unpack("<d", packing.pack("<q", draw.randrange(-2**62, 2**62)))[0]
        if kind == "bool":
            return kind, draw.random() < 0.5
        if kind == "text":
            return kind, "".join(draw.choice("aé.\\漢𝄞 ") for _ in range(draw.randrange(20)))
        return kind, draw.randbytes(draw.randrange(20)) if kind == "bytes" else 0

    def container(path, depth):
        kind = "dict" if path is None or draw.random() < 0.6 else "list"
        inner = []
        for i in range(draw.randrange(1, 6)):
            key = "".join(draw.choice("abé.\\_") for _ in range(draw.randrange(8))) + str(i)
            name = (path + "." if path is not None else "") + (escape(key) if kind == "dict" else str(i))
            made = container(name, depth + 1) if depth < 4 and draw.random() < 0.3 else leaf(name)
            inner.append((key, made) if kind == "dict" else made)
        if draw.random() < 0.2:
            later.append((kind, inner))
        return kind, inner

    model = container(None, 0)
    for kind, inner in later:
        if paths:
            node = ("alias", draw.choice(paths))
            inner.append(("zz", node) if kind == "dict" else node)
    return model


__all__ = ["Builder", "CLASSES", "dtypes", "escape", "expected", "random_tree", "value", "weft"]
