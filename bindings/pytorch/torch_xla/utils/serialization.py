"""torch_xla.utils.serialization: checkpoints that need little memory beside the tensors.

`save` writes one Weft checkpoint: the tensors as entries, and as its metadata the containers around them with a
numbered reference in each tensor's place. `load` also reads what PyTorch/XLA's own `save` wrote: the containers at
`path`, and each tensor in a file of the folder `path.tensors`.
"""
import functools
import io
import os

import torch

from .. import _later, _weft, _world
from ..core import xla_model as xm
from . import utils as _xu


class TensorReference:
    """Stands for a tensor in what is pickled. PyTorch/XLA's files name this class, so it keeps its name."""

    def __init__(self, tid):
        self.tid = tid


def save(data, path, master_only=True, global_master=False):
    """Writes nested containers with tensors. What is the same memory in two places is written once, and loaded as one.

    With `master_only` the first process writes. All processes call it, and it returns when all have: then the file is there.
    """
    writes = not master_only or xm.is_master_ordinal(local=not global_master)
    _world.together("save", functools.partial(_write, data, path) if writes else None)


def _write(data, path):
    tensors = []
    rebuild = _xu.take_apart(data, lambda value: isinstance(value, torch.Tensor), tensors)
    numbers = {}
    at = [numbers.setdefault(_identity(tensor), len(numbers)) for tensor in tensors]
    structure = io.BytesIO()
    torch.save(rebuild([TensorReference(number) for number in at]), structure)
    named = {f"tensor_{number}": tensor.detach() for number, tensor in zip(at, tensors)}
    _weft.checkpoint_save(os.fspath(path), named, structure.getvalue())


def _identity(tensor):
    """What two tensors have in common that show the same elements of the same memory: tied weights do."""
    return (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)


def _unpickle(file):
    """The containers, by PyTorch's unpickler that makes no foreign objects."""
    with torch.serialization.safe_globals([TensorReference]):
        return torch.load(file, map_location="cpu", weights_only=True)


def _restore(structure, tensor_of):
    """The containers with tensors in the references' places; each tensor is read once."""
    references, tensors = [], {}
    rebuild = _xu.take_apart(structure, lambda value: isinstance(value, TensorReference), references)
    for reference in references:
        if reference.tid not in tensors:
            tensors[reference.tid] = tensor_of(reference.tid)
    return rebuild([tensors[reference.tid] for reference in references])


def load(path):
    """What `save` wrote, with its tensors on the CPU."""
    path = os.fspath(path)
    if _is_pickled(path):
        return _load_torch_xla(path)
    named, metadata = _weft.checkpoint_load(path)
    return _restore(_unpickle(io.BytesIO(metadata)), lambda tid: named[f"tensor_{tid}"])


def _is_pickled(path):
    """Whether torch.save wrote the file, as zip or, before PyTorch 1.6, as bare pickle."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        begin = file.read(2)
    return begin == b"PK" or begin[:1] == b"\x80"


def _load_torch_xla(path):
    """PyTorch/XLA's layout. A file that is missing is an error that names it."""

    def tensor_of(tid):
        return torch.load(os.path.join(path + ".tensors", f"tensor_{int(tid)}.pt"), map_location="cpu", weights_only=True)

    return _restore(_unpickle(path), tensor_of)


def __getattr__(name):
    raise _later.missing(__name__, name)
