"""Checkpoints: nested dicts and lists of tensors, numbers and text in one file, checked and written whole or not at all."""

import contextlib
import ctypes
import os

from . import _call, _device, _wait
from ._abi import STRUCTS
from ._call import (
    Handle,
    bind,
    byref,
    c_double,
    c_int64,
    c_size_t,
    c_void_p,
    check,
    done,
    handle_class,
    now,
    quick,
    struct_of,
    text_of,
)
from ._context import start
from ._dtypes import of_number
from ._errors import InvalidType
from ._wait import blocking

_PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int32, c_void_p, ctypes.c_uint64, ctypes.c_uint64)
_create = quick("weft_tree_create")
_adders = {
    "dict": quick("weft_tree_add_dict"),
    "list": quick("weft_tree_add_list"),
    "none": quick("weft_tree_add_none"),
    "tensor": quick("weft_tree_add_tensor"),
    "bool": quick("weft_tree_add_bool"),
    "i64": quick("weft_tree_add_i64"),
    "f64": quick("weft_tree_add_f64"),
    "text": quick("weft_tree_add_text"),
    "bytes": quick("weft_tree_add_bytes"),
    "tree": quick("weft_tree_add_tree"),
}
_kind = quick("weft_tree_kind")
_size = quick("weft_tree_size")
_child = quick("weft_tree_child")
_key = quick("weft_tree_key")
_get = {
    "tensor": quick("weft_tree_get_tensor"),
    "bool": quick("weft_tree_get_bool"),
    "i64": quick("weft_tree_get_i64"),
    "f64": quick("weft_tree_get_f64"),
    "data": quick("weft_tree_get_data"),
}
_event_wait = bind("weft_event_wait")
_save = bind("weft_checkpoint_save")
_load = bind("weft_checkpoint_load")
_open = bind("weft_checkpoint_reader_open_with")
_reader_box = bind("weft_checkpoint_reader_load_box")
_into = bind("weft_checkpoint_load_into")
_reader_count = quick("weft_checkpoint_reader_count")
_reader_entry = quick("weft_checkpoint_reader_entry")
_reader_load = bind("weft_checkpoint_reader_load")
_reader_info = quick("weft_checkpoint_reader_info")
_reader_metadata = quick("weft_checkpoint_reader_metadata")
Tree = handle_class("TreeHandle", quick("weft_tree_release", None))
_Reader = handle_class("ReaderHandle", bind("weft_checkpoint_reader_release", None))
_NONE, _DICT, _LIST, _TUPLE, _TENSOR, _BOOL, _I64, _F64, _TEXT, _BYTES, _ALIAS = range(11)


def new_tree():
    tree = Tree()
    check(_create(byref(tree)))
    return tree


def add(tree, parent, key, value):
    """Adds a nested value below a node; gives its node."""
    node = ctypes.c_uint32()
    where = (tree, ctypes.c_uint32(parent), *((None, c_size_t(0)) if key is None else text_of(_name(key))))
    if hasattr(value, "_weft_tree"):
        inner = value._weft_tree()
        check(_adders["tree"](*where, inner, byref(node)))
        return node.value
    if hasattr(value, "state_dict"):
        value = nested(value.state_dict())
    if isinstance(value, dict):
        check(_adders["dict"](*where, byref(node)))
        for k, v in value.items():
            add(tree, node.value, k, v)
    elif isinstance(value, (list, tuple)):
        check(_adders["list"](*where, byref(node)))
        for v in value:
            add(tree, node.value, None, v)
    elif value is None:
        check(_adders["none"](*where, byref(node)))
    elif isinstance(value, bool):
        check(_adders["bool"](*where, ctypes.c_int32(value), byref(node)))
    elif isinstance(value, int):
        check(_adders["i64"](*where, _call.int64(value, "save", key or "an item"), byref(node)))
    elif isinstance(value, float):
        check(_adders["f64"](*where, c_double(value), byref(node)))
    elif isinstance(value, (str, bytes)):
        check(_adders["text" if isinstance(value, str) else "bytes"](*where, *text_of(value), byref(node)))
    else:
        if not isinstance(value, _call.Tensor):
            from ._convert import tensor

            try:
                value = tensor(value)
            except InvalidType:
                raise InvalidType(
                    "save: %r is of type %s, which a checkpoint cannot hold" % (key, type(value).__name__)
                ) from None
        check(_adders["tensor"](*where, value._h, byref(node)))
    return node.value


def nested(state):
    """A dict of names with dots as dicts within dicts, as programs of C write them."""
    out = {}
    for name, value in state.items():
        inner, rest = out, name.split(".")
        for part in rest[:-1]:
            inner = inner.setdefault(part, {})
        inner[rest[-1]] = value
    return out


def flat(state, prefix=""):
    """Names with dots again."""
    out = {}
    for name, value in state.items():
        if isinstance(value, dict):
            out.update(flat(value, "%s%s." % (prefix, name)))
        else:
            out[prefix + name] = value
    return out


def _name(key):
    if not isinstance(key, str):
        raise InvalidType("save: the keys of a dict are text, and one is %r" % (key,))
    return key


def value_of(tree, node=0):
    """The nested value at a node."""
    kind = ctypes.c_uint32()
    check(_kind(tree, ctypes.c_uint32(node), byref(kind)))
    if kind.value == _ALIAS:
        for guess in ("tensor", "bool", "i64", "f64"):
            try:
                return _leaf(tree, node, guess)
            except _call._errors.Error:
                continue
        return bytes(_data(tree, node)).decode()
    if kind.value in (_DICT, _LIST, _TUPLE):
        count, out = ctypes.c_uint32(), []
        check(_size(tree, ctypes.c_uint32(node), byref(count)))
        for i in range(count.value):
            child = ctypes.c_uint32()
            check(_child(tree, ctypes.c_uint32(node), ctypes.c_uint32(i), byref(child)))
            out.append((_key_of(tree, child.value) if kind.value == _DICT else None, value_of(tree, child.value)))
        return dict(out) if kind.value == _DICT else [v for _, v in out]
    if kind.value == _NONE:
        return None
    if kind.value in (_TEXT, _BYTES):
        data = _data(tree, node)
        return data.decode() if kind.value == _TEXT else data
    return _leaf(tree, node, {_TENSOR: "tensor", _BOOL: "bool", _I64: "i64", _F64: "f64"}[kind.value])


def _leaf(tree, node, kind):
    out = {"tensor": Handle, "bool": ctypes.c_int32, "i64": c_int64, "f64": c_double}[kind]()
    check(_get[kind](tree, ctypes.c_uint32(node), byref(out)))
    return done(out) if kind == "tensor" else bool(out.value) if kind == "bool" else out.value


def _data(tree, node):
    where, size = c_void_p(), c_size_t()
    check(_get["data"](tree, ctypes.c_uint32(node), byref(where), byref(size)))
    return ctypes.string_at(where, size.value) if size.value else b""


def _key_of(tree, node):
    where, size = c_void_p(), c_size_t()
    check(_key(tree, ctypes.c_uint32(node), byref(where), byref(size)))
    return ctypes.string_at(where, size.value).decode()


class Saving:
    """A file that is being written behind the program's back."""

    def __init__(self, path, event, context, told=None):
        self.path, self._event, self._context, self._told = path, event, context, told

    @property
    def done(self):
        return _wait.done(self._event)

    def wait(self, timeout=None):
        """Waits until the file is there; raises what went wrong."""
        with _raised(self._told):
            _wait.wait(self._event, timeout)

    def __await__(self):
        return _wait.awaited(self._event).__await__()


class _Told:
    """A caller's function that hears how far a save is. What it raises ends the save and comes out of it."""

    def __init__(self, progress):
        self.raised = None

        def tell(_, done, total):
            try:
                return 1 if progress(done, total) is True else 0
            except BaseException as error:
                self.raised = error
                return 1

        self.function = _PROGRESS(tell)
        self.address = ctypes.cast(self.function, c_void_p).value


@contextlib.contextmanager
def _raised(told):
    try:
        yield
    except _call._errors.Error:
        if told is None or told.raised is None:
            raise
        raise told.raised from None


# weft_file_format by suffix; any other name is a checkpoint's.
_FORMATS = {".safetensors": 1, ".npy": 2, ".npz": 3}


def _format_of(path):
    return next((number for suffix, number in _FORMATS.items() if path.endswith(suffix)), 0)


def save(
    path,
    tree,
    *,
    metadata=None,
    step=0,
    durable=True,
    wait=True,
    progress=None,
    keep_last=0,
    keep_every=0,
    pointer=None,
    compress=None,
    base=None,
):
    """Writes a dict of tensors, numbers, text, lists, modules and optimizers. Values are those of now.

    The name says the format: .safetensors, .npz and .npy hold tensors only, anything else is a checkpoint.

    With wait=False the writing goes on behind, and what comes back has `wait()`, `done`, and can be awaited. `progress(done, total)` is
    called with bytes by the thread that writes, at most 20 times a second and at the end; True ends the save, and the old file stays.

    With keep_last, "{step}" in the name becomes the step. Once the file is there, older ones of that name go but for the keep_last newest
    and those whose step is a multiple of keep_every; -1 keeps all. `pointer` is the name of a file beside it that then names the new
    one: load(".../latest") loads what it names.

    compress="zstd" makes trained weights a sixth (f32) to a third (bf16) smaller. `base` is the name of a checkpoint beside it, or of a
    pointer to one, whose equal parts of 4 MiB are not written again: the new file needs it, and `weft ckpt convert` makes a whole one."""
    if compress not in (None, "zstd"):
        raise ValueError(f"save: compress is {compress!r}; it is None or 'zstd'")
    path = os.fspath(path)
    made, (words, kept) = tree_of(tree), words_of(metadata)
    told = None if progress is None else _Told(progress)
    options = struct_of(
        "weft_checkpoint_options",
        **words,
        step=step,
        durable=0 if durable else -1,
        format=_format_of(path),
        progress=told.address if told else None,
        keep_last=keep_last,
        keep_every=keep_every,
        pointer=None if pointer is None else pointer.encode(),
        pointer_length=0 if pointer is None else len(pointer.encode()),
        compress=0 if compress is None else 1,
        base=None if base is None else base.encode(),
        base_length=0 if base is None else len(base.encode()),
    )
    options.kept.append(kept)
    context = now.context or start()
    if wait and not _wait.patient():  # Ctrl-C ends the call, what it waits for, and the writing.
        with _raised(told):
            check(blocking(_save, context, *text_of(path), made, options, None), file=True)
        return None
    event = _wait.Event()
    check(blocking(_save, context, *text_of(path), made, options, byref(event)), file=True)
    if not wait:
        return Saving(path, event, context, told)
    with _raised(told):
        _finished(event, context)
    return None


def tree_of(value):
    """What `save` takes, as the C library has it."""
    if not isinstance(value, dict):
        value = nested(value.state_dict()) if hasattr(value, "state_dict") else {"value": value}
    made = new_tree()
    for key, part in value.items():
        add(made, 0, key, part)
    return made


def words_of(metadata):
    """Fields of weft_checkpoint_options, and what they point to."""
    kept, rows = [], b""
    for key, value in (metadata or {}).items():
        k, v = str(key).encode(), str(value).encode()
        kept += [k, v]
        rows += struct_of("weft_setting", name=k, name_length=len(k), value=v, value_length=len(v))
    return {"metadata": rows or None, "metadata_count": len(kept) // 2}, kept


def _finished(event, context):
    """Waits for a file; what goes wrong is an error of files."""
    try:
        _wait.interruptible(event, context)
    except _call._errors.Error:
        check(_event_wait(event, c_int64(0)), file=True)
        raise


def load(path, *, device=None):
    """The nested values of a checkpoint, every byte of it checked; or those of a file of safetensors, NumPy, PyTorch or GGUF.

    >>> import tempfile, os
    >>> file = os.path.join(tempfile.mkdtemp(), "state.weft")
    >>> wf.save(file, {"weights": wf.ones((2,)), "epoch": 3})
    >>> wf.load(file)["epoch"]
    3
    """
    path = os.fspath(path)
    tree = Tree()
    check(
        blocking(_load, now.context or start(), *text_of(path), _device.chosen(device), byref(tree)), file=True
    )
    return value_of(tree)


class Reader:
    """An open checkpoint: its table of contents, and single tensors.

    >>> import tempfile, os
    >>> file = os.path.join(tempfile.mkdtemp(), "state.weft")
    >>> wf.save(file, {"weights": wf.ones((2,))}, step=5)
    >>> wf.files.Reader(file).info["step"]
    5
    """

    def __init__(self, path, *, mode="copy", verify="use", memory_budget=0):
        """mode "copy", "map" (the file's own pages; writing to a tensor never changes the file) or "auto" (map local files);
        verify "use" (each tensor when it is read), "all" (and at opening what is between them) or "off"."""
        self._h = _Reader()
        options = struct_of(
            "weft_open_options",
            mode=_one_of(mode, ("copy", "map", "auto"), "mode"),
            verify=_one_of(verify, ("use", "all", "off"), "verify"),
            memory_budget=memory_budget,
        )
        check(blocking(_open, now.context or start(), *text_of(os.fspath(path)), options, byref(self._h)), file=True)

    def __len__(self):
        count = c_size_t()
        check(_reader_count(self._h, byref(count)))
        return count.value

    def entries(self):
        """[(path, element type, shape, bytes)] of the tensors."""
        out, name = [], "weft_checkpoint_entry"
        for i in range(len(self)):
            data = _call.empty_struct(name)
            check(_reader_entry(self._h, c_size_t(i), data))
            dims = _call.field(data, name, "dims")[: _call.field(data, name, "rank")]
            text = ctypes.string_at(_call.field(data, name, "path"), _call.field(data, name, "path_length")).decode()
            out.append((text, of_number(_call.field(data, name, "dtype")), tuple(dims), _call.field(data, name, "size_bytes")))
        return out

    @property
    def info(self):
        """step, created_unix_ns, file_bytes, tensor_bytes, tensors, format, producer."""
        name = "weft_checkpoint_info"
        data = _call.empty_struct(name)
        check(_reader_info(self._h, data))
        out = {
            k: _call.field(data, name, k)
            for k in STRUCTS[name][1]
            if k not in ("struct_size", "next", "producer", "producer_length", "reserved")
        }
        size = _call.field(data, name, "producer_length")
        return {**out, "producer": ctypes.string_at(_call.field(data, name, "producer"), size).decode() if size else ""}

    @property
    def metadata(self):
        tree = Tree()
        check(_reader_metadata(self._h, byref(tree)))
        return value_of(tree)

    def __getitem__(self, path):
        handle = Handle()
        check(blocking(_reader_load, self._h, *text_of(path), None, byref(handle)), file=True)
        return done(handle)

    def box(self, path, starts, sizes):
        """The elements starts[d] to starts[d] + sizes[d] of each dimension; only their rows are read.

        >>> import tempfile, os
        >>> file = os.path.join(tempfile.mkdtemp(), "state.weft")
        >>> wf.save(file, {"weights": wf.ones((5, 2))})
        >>> wf.files.Reader(file).box("weights", (1, 0), (3, 2)).shape
        (3, 2)
        """
        if len(starts) != len(sizes):
            raise _call._errors.InvalidArgument("box: %d starts and %d sizes" % (len(starts), len(sizes)))
        rank, handle = len(starts), Handle()
        arrays = [(c_int64 * max(rank, 1))(*numbers) for numbers in (starts, sizes)]
        check(blocking(_reader_box, self._h, *text_of(path), *arrays, c_size_t(rank), None, byref(handle)), file=True)
        return done(handle)

    def into(self, tree, *, convert=False, partial=False):
        """Gives the tensors of a dict, a module or an optimizer the values that the file has under their names.

        What comes back are lists of names: "missing", "unexpected", "shape_differs", empty unless `partial` lets them be."""
        if not isinstance(tree, dict):
            tree = nested(tree.state_dict())
        made, report = new_tree(), Tree()
        for key, value in tree.items():
            add(made, 0, key, value)
        options = struct_of("weft_load_options", convert=int(convert), partial=int(partial))
        check(blocking(_into, self._h, made, options, byref(report)), file=True)
        return value_of(report)


def _one_of(value, words, what):
    if value not in words:
        raise _call._errors.InvalidArgument("%s is %r; it is one of %s" % (what, value, ", ".join(words)))
    return words.index(value)
