"""Files of tensors through the C ABI, for judges that have their own readers: what is in a file as plain Python, and writing one.

    with files.Reader(ctx, path) as r: r.format, r.entries, r.load("w"), r.tree(), r.metadata()
    files.save(ctx, path, {"a": array, ...}, format="safetensors")
"""
import ctypes
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conformance"))
import weft  # noqa: E402

LIB = weft.load()
DTYPES = {v["value"]: v["name"].removeprefix("WEFT_").lower()
          for e in weft.API["enums"] if e["name"] == "weft_dtype" for v in e["values"]}
CODES = {name: code for code, name in DTYPES.items()}
FORMATS = {v["value"]: v["name"].removeprefix("WEFT_FORMAT_").lower()
           for e in weft.API["enums"] if e["name"] == "weft_file_format" for v in e["values"]}
KINDS = {v["value"]: v["name"].removeprefix("WEFT_NODE_").lower()
         for e in weft.API["enums"] if e["name"] == "weft_node_kind" for v in e["values"]}


def struct(name):
    """A versioned struct of the description, with its size filled in."""
    declared = next(s for s in weft.API["structs"] if s["name"] == name)
    fields = [("struct_size", ctypes.c_size_t), ("next", ctypes.c_void_p)]
    for f in declared["fields"]:
        kind = weft._ctype(f["type"])
        fields.append((f["name"], kind * f["array"] if "array" in f else kind))
    made = type(name, (ctypes.Structure,), {"_fields_": fields})()
    made.struct_size = ctypes.sizeof(made)
    return made


def width(dtype):
    """Bytes of an element in memory; sub-byte ones have one."""
    bits = CODES[dtype] >> 8 & 0xFF
    return max(bits // 8, 1)


def elements(handle):
    """(dtype, dims, bytes) of a tensor, which goes."""
    code, rank, dims = ctypes.c_int32(), ctypes.c_size_t(), (ctypes.c_int64 * 32)()
    LIB.tensor_dtype(handle, ctypes.byref(code))
    LIB.tensor_dims(handle, dims, 32, ctypes.byref(rank))
    dtype, shape = DTYPES[code.value], tuple(dims[:rank.value])
    array = np.empty(int(np.prod(shape, dtype=object)) * width(dtype), "u1")
    LIB.tensor_to_host(handle, array.ctypes.data, array.nbytes)
    LIB.tensor_release(handle)
    return dtype, shape, array.tobytes()


class Reader:
    def __init__(self, ctx, path):
        self.handle, self.ctx = ctypes.c_void_p(), ctx
        raw = os.fsencode(path)
        LIB.checkpoint_reader_open(ctx.handle, raw, len(raw), ctypes.byref(self.handle))
        info, count = struct("weft_checkpoint_info"), ctypes.c_size_t()
        LIB.checkpoint_reader_info(self.handle, ctypes.addressof(info))
        LIB.checkpoint_reader_count(self.handle, ctypes.byref(count))
        self.format, self.step, self.file_bytes, self.entries = FORMATS[info.format], info.step, info.file_bytes, {}
        for i in range(count.value):
            e = struct("weft_checkpoint_entry")
            LIB.checkpoint_reader_entry(self.handle, i, ctypes.addressof(e))
            name = ctypes.string_at(e.path, e.path_length).decode()
            assert name not in self.entries, name
            self.entries[name] = (DTYPES[e.dtype], tuple(e.dims[:e.rank]), ctypes.string_at(e.encoding, e.encoding_length).decode(),
                                  bool(e.loadable))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        LIB.checkpoint_reader_release(self.handle)

    def load(self, name, dtype=None):
        """(dtype, dims, bytes); with dtype by weft_checkpoint_reader_load_as."""
        out, raw = ctypes.c_void_p(), name.encode()
        if dtype is None:
            LIB.checkpoint_reader_load(self.handle, raw, len(raw), None, ctypes.byref(out))
        else:
            LIB.checkpoint_reader_load_as(self.handle, raw, len(raw), CODES[dtype], None, ctypes.byref(out))
        return elements(out)

    def metadata(self):
        tree = ctypes.c_void_p()
        LIB.checkpoint_reader_metadata(self.handle, ctypes.byref(tree))
        try:
            return plain(tree)
        finally:
            LIB.tree_release(tree)

    def tree(self):
        tree = ctypes.c_void_p()
        LIB.checkpoint_reader_tree(self.handle, None, ctypes.byref(tree))
        try:
            return plain(tree)
        finally:
            LIB.tree_release(tree)


def plain(tree, node=0):
    """A tree as dicts, lists, tuples, numbers, texts, bytes; tensors as elements() gives them, an alias as ("alias", what)."""
    kind, count = ctypes.c_int32(), ctypes.c_uint32()
    LIB.tree_kind(tree, node, ctypes.byref(kind))
    kind = KINDS[kind.value]
    if kind in ("dict", "list", "tuple"):
        LIB.tree_size(tree, node, ctypes.byref(count))
        children = []
        for i in range(count.value):
            child, key, length = ctypes.c_uint32(), ctypes.c_void_p(), ctypes.c_size_t()
            LIB.tree_child(tree, node, i, ctypes.byref(child))
            LIB.tree_key(tree, child, ctypes.byref(key), ctypes.byref(length))
            children.append((ctypes.string_at(key, length.value).decode() if key else "", plain(tree, child.value)))
        return dict(children) if kind == "dict" else (list if kind == "list" else tuple)(v for _, v in children)
    if kind in ("tensor", "alias"):
        handle = ctypes.c_void_p()
        try:
            LIB.tree_get_tensor(tree, node, ctypes.byref(handle))
        except weft.WeftError:
            return ("alias",)  # of a container
        return elements(handle) if kind == "tensor" else ("alias", elements(handle))
    if kind == "none":
        return None
    if kind in ("text", "bytes"):
        data, length = ctypes.c_void_p(), ctypes.c_size_t()
        LIB.tree_get_data(tree, node, ctypes.byref(data), ctypes.byref(length))
        raw = ctypes.string_at(data, length.value)
        return raw.decode() if kind == "text" else raw
    value = {"bool": ctypes.c_int32, "i64": ctypes.c_int64, "f64": ctypes.c_double}[kind]()
    getattr(LIB, "tree_get_" + kind)(tree, node, ctypes.byref(value))
    return bool(value.value) if kind == "bool" else value.value


def tensor(ctx, dtype, dims, data):
    handle, shape = ctypes.c_void_p(), (ctypes.c_int64 * max(len(dims), 1))(*dims)
    keep = np.frombuffer(bytes(data) or b"\0", "u1")
    LIB.tensor_from_host(ctx.handle, None, CODES[dtype], shape, len(dims), keep.ctypes.data, len(data), ctypes.byref(handle))
    return handle


def save(ctx, path, tensors, format="weft", tied=0, metadata=None, step=0, aliases=None, compress=0, base=None):
    """Tensors are (dtype, dims, bytes) or dicts of such; aliases are pairs of top-level names."""
    tree, out, nodes = ctypes.c_void_p(), ctypes.c_uint32(), {}
    LIB.tree_create(ctypes.byref(tree))

    def add(parent, values):
        for name, value in values.items():
            key = name.encode()
            if isinstance(value, dict):
                LIB.tree_add_dict(tree, parent, key, len(key), ctypes.byref(out))
                add(out.value, value)
                continue
            handle = tensor(ctx, *value)
            LIB.tree_add_tensor(tree, parent, key, len(key), handle, ctypes.byref(out))
            LIB.tensor_release(handle)
            nodes[name] = out.value

    try:
        add(0, tensors)
        for name, target in (aliases or {}).items():
            LIB.tree_add_alias(tree, 0, name.encode(), len(name.encode()), nodes[target], ctypes.byref(out))
        options = struct("weft_checkpoint_options")
        options.format, options.tied, options.step = {v: k for k, v in FORMATS.items()}[format], tied, step
        options.compress, named = compress, ctypes.create_string_buffer((base or "").encode())
        if base:
            options.base, options.base_length = ctypes.addressof(named), len(named.value)
        setting = weft._struct("weft_setting")
        words = [(k.encode(), v.encode()) for k, v in (metadata or {}).items()]
        buffers = [ctypes.create_string_buffer(t) for pair in words for t in pair]
        list_ = (setting * max(len(words), 1))(*[
            setting(ctypes.addressof(buffers[2 * i]), len(k), ctypes.addressof(buffers[2 * i + 1]), len(v))
            for i, (k, v) in enumerate(words)])
        options.metadata, options.metadata_count = ctypes.addressof(list_), len(words)
        raw = os.fsencode(path)
        LIB.checkpoint_save(ctx.handle, raw, len(raw), tree, ctypes.addressof(options), None)
    finally:
        LIB.tree_release(tree)
