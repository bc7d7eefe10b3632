"""Weft's checkpoints of dictionaries of tensors."""
import ctypes
import json

import torch

from . import factory, runtime
from .runtime import C, call, context, library

_SIZE = ctypes.c_size_t
# From here on a tensor is not copied where the device's memory is the host's: the host would have room for it twice.
_LENT_BYTES = 32 << 20


class _Options(ctypes.Structure):
    _fields_ = [("struct_size", _SIZE), ("next", ctypes.c_void_p), ("metadata", ctypes.c_void_p), ("count", ctypes.c_uint64),
                ("step", ctypes.c_int64), ("durable", ctypes.c_int32), ("reserved", ctypes.c_int32)]


def _text(value):
    data = value.encode()
    return data, _SIZE(len(data))


def _value_of(tensor):
    if tensor.device.type == "xla":
        return C.read(tensor)
    return factory.upload(tensor, runtime.current_device())


def checkpoint_save(path, tensors, metadata=b""):
    """Writes a dictionary of tensors, of any device, and bytes of the caller's into one file of Weft's."""
    runtime.ensure()
    tree = ctypes.c_void_p()
    call("weft_tree_create", ctypes.byref(tree))
    try:
        node = ctypes.c_uint32()
        call("weft_tree_add_dict", tree, ctypes.c_uint32(0), *_text("tensors"), ctypes.byref(node))
        parent = ctypes.c_uint32(node.value)
        for name, tensor in tensors.items():
            value = _value_of(tensor)
            call("weft_tree_add_tensor", tree, parent, *_text(name), ctypes.c_void_p(value.handle), ctypes.byref(node))
        names = json.dumps(list(tensors)).encode()
        call("weft_tree_add_bytes", tree, ctypes.c_uint32(0), *_text("names"), names, _SIZE(len(names)), ctypes.byref(node))
        call("weft_tree_add_bytes", tree, ctypes.c_uint32(0), *_text("metadata"), bytes(metadata), _SIZE(len(metadata)),
             ctypes.byref(node))
        options = _Options(struct_size=ctypes.sizeof(_Options))
        call("weft_checkpoint_save", context(), *_text(str(path)), tree, ctypes.byref(options), None)
    finally:
        library.weft_tree_release(tree)


def _bytes_of(tree, name):
    node, data, size = ctypes.c_uint32(), ctypes.c_void_p(), _SIZE()
    call("weft_tree_find", tree, ctypes.c_uint32(0), *_text(name), ctypes.byref(node))
    call("weft_tree_get_data", tree, node, ctypes.byref(data), ctypes.byref(size))
    return ctypes.string_at(data, size.value)


def _lent(handle):
    """A CPU tensor that shows the memory of a tensor of Weft's, which is given back with it; None where others cannot read it.

    Nobody else has the tensor, so writing to its memory changes nothing of the device's.
    """
    managed = ctypes.c_void_p()
    try:
        call("weft_tensor_to_dlpack_legacy", handle, ctypes.byref(managed))
    except RuntimeError:
        return None
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return torch.utils.dlpack.from_dlpack(capsule(managed, b"dltensor", None))


def _download(handle):
    dtype, rank, dims = ctypes.c_int(), _SIZE(), (ctypes.c_int64 * 32)()
    call("weft_tensor_dtype", handle, ctypes.byref(dtype))
    call("weft_tensor_dims", handle, dims, _SIZE(32), ctypes.byref(rank))
    out = torch.empty(list(dims[:rank.value]), dtype=runtime.TORCH_DTYPES[dtype.value])
    size = out.numel() * out.element_size()
    lent = _lent(handle) if size >= _LENT_BYTES else None
    if lent is not None:
        return lent
    if size:
        call("weft_tensor_to_host", handle, ctypes.c_void_p(out.data_ptr()), _SIZE(size))
    return out


def checkpoint_load(path):
    """The dictionary of CPU tensors and the bytes that checkpoint_save wrote; one tensor after the other is read."""
    runtime.ensure()
    reader, tree = ctypes.c_void_p(), ctypes.c_void_p()
    call("weft_checkpoint_reader_open", context(), *_text(str(path)), ctypes.byref(reader))
    try:
        call("weft_checkpoint_reader_structure", reader, ctypes.byref(tree))
        names, metadata = json.loads(_bytes_of(tree, "names")), _bytes_of(tree, "metadata")
        out = {}
        for name in names:
            tensor = ctypes.c_void_p()
            place = "tensors." + name.replace("\\", "\\\\").replace(".", "\\.")
            call("weft_checkpoint_reader_load", reader, *_text(place), None, ctypes.byref(tensor))
            try:
                out[name] = _download(tensor)
            finally:
                library.weft_tensor_release(tensor)
        return out, metadata
    finally:
        if tree:
            library.weft_tree_release(tree)
        library.weft_checkpoint_reader_release(reader)
