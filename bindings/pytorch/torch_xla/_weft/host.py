"""The host as the last resort: operations that nothing lowers run on CPU tensors and are counted as `aten::name`."""
import torch
from torch.utils import _pytree as pytree

from . import counters, generator


def _to_host(value):
    if isinstance(value, torch.Tensor) and value.device.type == "xla":
        return value.cpu()
    if isinstance(value, torch.device) and value.type == "xla":
        return torch.device("cpu")
    return value


def _first_device(leaves):
    for value in leaves:
        if isinstance(value, torch.Tensor) and value.device.type == "xla":
            return value.device
        if isinstance(value, torch.device) and value.type == "xla":
            return value
    return torch.device("xla", 0)


def run(op, args, kwargs):
    """Runs an overload on the CPU; what it wrote to goes back to the device's tensors."""
    name = op._schema.name
    if any(value.alias_info is not None and not value.alias_info.is_write for value in op._schema.returns):
        raise NotImplementedError(f"{name} shows memory of its operand, which the host cannot, and no kernel is there for it")
    counters.add(name)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    for value in leaves:
        if isinstance(value, torch.Tensor) and value.device.type not in ("xla", "cpu", "meta"):
            raise RuntimeError(f"{name}: tensors on {value.device} and on the device xla")
        if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() > 0:
            raise RuntimeError(f"Input tensor is not an XLA tensor: {value.type()}")
        if isinstance(value, torch._C.Generator) and generator.is_own(value):
            raise NotImplementedError(f"{name} runs on the host, which cannot draw from a generator of the device xla")
    device = _first_device(leaves)
    for value in leaves:
        if isinstance(value, torch.Tensor) and value.device.type == "xla" and value.device != device:
            raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {device} and "
                               f"{value.device}!")
    host_leaves = [_to_host(value) for value in leaves]
    host_args, host_kwargs = pytree.tree_unflatten(host_leaves, spec)
    result = op(*host_args, **host_kwargs)
    _write_back(op, args, kwargs, host_args, host_kwargs)
    ours = {id(host): value for host, value in zip(host_leaves, leaves) if isinstance(value, torch.Tensor)}
    return pytree.tree_map_only(torch.Tensor, lambda t: ours.get(id(t)) if id(t) in ours else t.to(device), result)


def _write_back(op, args, kwargs, host_args, host_kwargs):
    """Copies what the host's operation changed."""
    for position, argument in enumerate(op._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        target = kwargs.get(argument.name) if argument.name in kwargs else args[position] if position < len(args) else None
        source = (host_kwargs.get(argument.name) if argument.name in host_kwargs
                  else host_args[position] if position < len(host_args) else None)
        for one, other in zip(target if isinstance(target, (list, tuple)) else [target],
                              source if isinstance(source, (list, tuple)) else [source]):
            if isinstance(one, torch.Tensor) and one.device.type == "xla":
                if one.shape != other.shape:
                    one.resize_(other.shape)
                one.copy_(other)
