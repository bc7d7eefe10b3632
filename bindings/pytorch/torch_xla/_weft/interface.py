"""What the facade asks of the core: devices, barriers, transfers, random state, counters, texts, checkpoints."""

import torch

from . import counters as _counters
from . import factory as _factory
from . import register as _register
from . import runtime as _runtime
from . import job
from .checkpoint import checkpoint_load, checkpoint_save

_C = _runtime.C

configure = _runtime.configure
context_made = _runtime.context_made
device_count = _runtime.device_count
release_unused = _runtime.release_unused


def device_kind():
    """What computes: 'CPU', 'TPU' or 'GPU'."""
    platform = _runtime.option("platform")
    if platform in ("cpu", "reference"):
        return "CPU"
    if platform in ("gpu", "cuda", "rocm"):
        return "GPU"
    if platform == "tpu":
        return "TPU"
    text = (_runtime.device_name(0) + " " + _runtime.device_description(0)).lower()
    return (
        "TPU" if "tpu" in text else "GPU" if any(word in text for word in ("gpu", "cuda", "nvidia", "rocm", "amd")) else "CPU"
    )


def device_attributes(index=0):
    """What is known of a device."""
    index = _runtime.index_of(index)
    return {
        "name": _runtime.device_name(index),
        "kind": _runtime.device_description(index),
        "platform": _runtime.option("platform"),
        "ordinal": index,
    }


def sync(index=None, wait=False):
    """The barrier: computes what is alive on the device; with `wait` until it is done."""
    _C.sync(_runtime.index_of(index), bool(wait))


def wait(index=None):
    """Until what was launched is done."""
    _C.sync(_runtime.index_of(index), True)


def end():
    """Ends the context of a process that does not end as the interpreter does: the compile cache is written."""
    _runtime._end()


def _values(tensors):
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "xla":
            kind = tensor.type() if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise RuntimeError(f"Input tensor is not an XLA tensor: {kind}")
    return tuple(_C.read(tensor) for tensor in tensors)


def materialize(tensors, wait=False):
    """Computes these tensors only."""
    values = _values(tensors)
    if values:
        _C.evaluate(values, bool(wait))


def value_of(tensor):
    """The value of a tensor of the device."""
    return _values([tensor])[0]


def of_value(value):
    """A new tensor of a value."""
    return _C.wrap(value)


def value_op(name, *values, **attributes):
    """An operation of Weft's on values."""
    return _C.op(name, *values, **attributes)


def copy_value(value, index):
    """A value on another device."""
    return _C.copy_to(value, index)


def write_parts(whole, tensors):
    """Writes the elements of a tensor with one dimension to tensors, in their order, as many to each as it has."""
    value, at = value_of(whole), 0
    for tensor in tensors:
        part = _C.op("slice", value, start_indices=(at,), limit_indices=(at + tensor.numel(),), strides=(1,))
        _C.write(tensor, part if tensor.dim() == 1 else _C.op("reshape", part, shape=tuple(tensor.shape)))
        at += tensor.numel()


def upload(tensors, index=None):
    """CPU tensors on the device, in the order given."""
    index = _runtime.index_of(index)
    out = []
    for tensor in tensors:
        moved = _C.wrap(_factory.upload(tensor, index))
        out.append(moved.requires_grad_() if tensor.requires_grad and tensor.is_leaf else moved)
    return out


def download(tensors):
    """CPU copies of tensors on the device; they are computed together first."""
    values = _values(tensors)
    if values:
        _C.evaluate(values, False)
    return [_factory.download(value) for value in values]


def tensor_id(tensor):
    """A number of the tensor's memory, the same for all its views; 0 for a tensor without elements."""
    number = _C.identity(tensor)
    if number is None:
        raise RuntimeError(f"Input tensor is not an XLA tensor: {tensor.type()}")
    return number


def memory_info(index=None):
    used, peak, limit = _runtime.memory(_runtime.index_of(index))
    return {"bytes_used": used, "bytes_limit": limit, "peak_bytes_used": peak}


_WORD = (1 << 64) - 1


def set_rng_state(seed, index=None):
    """Starts the random stream of a seed, or goes on from what get_rng_state gave."""
    _runtime.index_of(index)
    seed = int(seed)
    if 0 <= seed <= _WORD:
        _runtime.seed(seed)
    elif seed > 0 and seed >> 192 == 1:
        _runtime.set_random_state(seed & _WORD, (seed >> 64) & _WORD, (seed >> 128) & _WORD)
    else:
        raise ValueError(f"{seed} is neither a seed (0 to 2**64 - 1) nor a random state")


def get_rng_state(index=None):
    """The seed, or, where numbers were drawn, a longer number from which set_rng_state goes on."""
    _runtime.index_of(index)
    key, low, high = _runtime.random_state()
    return key if (low, high) == (0, 0) else key | low << 64 | high << 128 | 1 << 192


metrics = _counters
counters = _counters.counters
add_counter = _counters.add
clear_counters = _counters.clear


def weft_metrics_json():
    _runtime.ensure()
    return _counters.render(_counters.JSON)


_FORMATS = {"weft": 0, "stablehlo": 1}


def program_text(tensors, format="weft"):  # noqa: A002
    """The program that computing these tensors would run: 'weft' or 'stablehlo'."""
    if format not in _FORMATS:
        raise ValueError(f"a program's text is one of {', '.join(_FORMATS)}, not {format!r}")
    return _runtime.program_text(_values(tensors), _FORMATS[format])


def registered():
    """Overloads with a kernel, and of which kind; and those that torch's decompositions computed so far."""
    return dict(_register.registered), sorted(str(op) for op in _register.decomposed)


__all__ = [
    "configure",
    "context_made",
    "device_count",
    "release_unused",
    "device_kind",
    "device_attributes",
    "sync",
    "end",
    "job",
    "wait",
    "materialize",
    "value_of",
    "of_value",
    "value_op",
    "copy_value",
    "write_parts",
    "upload",
    "download",
    "tensor_id",
    "memory_info",
    "set_rng_state",
    "get_rng_state",
    "metrics",
    "counters",
    "add_counter",
    "clear_counters",
    "weft_metrics_json",
    "program_text",
    "registered",
    "checkpoint_save",
    "checkpoint_load",
]
