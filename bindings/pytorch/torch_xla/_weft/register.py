"""Registration: from the table's rows to kernels of torch's at the key of the device."""

import ctypes
import functools
import threading
import warnings

import torch
from torch._decomp import decomposition_table

from . import host, runtime
from .runtime import C
from .table import CALLABLE, COMPUTING, LAYERS, LOWERINGS, NATIVE, inplace_name

_library = torch.library.Library("aten", "IMPL")
_rest = torch.library.Library("_", "IMPL")
registered = {}  # overload: "native", "callable", "python", "in place" or "out"
decomposed = set()  # overloads that a decomposition of torch's computed so far
_not_decomposed = set()


def overload_of(name):
    packet, _, rest = name.partition(".")
    packet = getattr(torch.ops.aten, packet, None)
    return getattr(packet, rest or "default", None) if packet is not None else None


def _register(name, kernel, kind):
    if name in registered or overload_of(name) is None:
        return
    _library.impl(name, kernel, "PrivateUse1")
    registered[name] = kind


def _register_native():
    """Kernels in C. Before 2.14 torch gives them no tensors of Python's, and calls those that compute as functions."""
    ready, known = C.native_ready(), _known_operations()
    for name, (kind, flags, operation) in NATIVE.items():
        if overload_of(name) is None or (operation and operation not in known):
            continue
        if kind in COMPUTING and not ready:
            _register(name, C.kernel(kind, flags, operation), "callable")
            continue
        C.register(name, kind, flags, operation)
        registered[name] = "native"


def _output(target, result):
    """Writes a result into `out`, which grows as torch's do."""
    if target.shape != result.shape:
        if target.numel() != 0:
            warnings.warn(
                f"An output with one or more elements was resized since it had shape {list(target.shape)}, which does "
                f"not match the required output shape {list(result.shape)}."
            )
        target.resize_(result.shape)
    C.write(target, C.read(result))
    return target


def _in_place(function):
    @functools.wraps(function)
    def kernel(self, *args, **kwargs):
        result = function(self, *args, **kwargs)
        C.write(self, C.read(result))
        return self

    return kernel


def _with_out(function, names):
    @functools.wraps(function)
    def kernel(*args, **kwargs):
        outs = [kwargs.pop(name) for name in names]
        results = function(*args, **kwargs)
        results = results if isinstance(results, (tuple, list)) else (results,)
        written = tuple(_output(out, result) for out, result in zip(outs, results))
        return written[0] if len(written) == 1 else written

    return kernel


def _functional_arguments(schema):
    return [argument.name for argument in schema.arguments if not argument.is_out]


def _register_derived(name, function):
    """In-place and out overloads of a functional one."""
    functional = overload_of(name)
    wanted = _functional_arguments(functional._schema)
    if functional._schema.is_mutable or any(value.alias_info is not None for value in functional._schema.returns):
        return
    other = overload_of(inplace_name(name))
    if other is not None and _functional_arguments(other._schema) == wanted and len(functional._schema.returns) == 1:
        _register(inplace_name(name), _in_place(function), "in place")
    packet = getattr(torch.ops.aten, name.partition(".")[0])
    for overload in packet.overloads():
        schema = getattr(packet, overload)._schema
        outs = [argument.name for argument in schema.arguments if argument.is_out]
        full = name.partition(".")[0] + ("" if overload == "default" else "." + overload)
        base = [argument for argument in wanted if argument not in ("dtype", "layout", "device", "pin_memory")]
        if outs and _functional_arguments(schema) in (wanted, base) and len(outs) == len(functional._schema.returns):
            _register(full, _with_out(function, outs), "out")


_active = threading.local()


@functools.cache
def _functional_of(op):
    """For an overload with `out`: the functional one, and the names of what it writes to. A decomposition for `out` is not
    asked, since some of torch's write to a converted copy of it.
    """
    schema = op._schema
    outs = tuple(argument.name for argument in schema.arguments if argument.is_out)
    packet = getattr(torch.ops.aten, schema.name.partition("::")[2], None)
    for overload in packet.overloads() if outs and packet is not None else ():
        other = getattr(packet, overload)
        if not other._schema.is_mutable and _functional_arguments(other._schema) == _functional_arguments(schema):
            return other, outs
    return None, outs


def _decompose(op, args, kwargs):
    """What a decomposition of torch's gives, or NotImplemented. One that comes back to the same operation is none."""
    running = _active.__dict__.setdefault("operations", [])
    if op in running:
        _not_decomposed.add(op)
        return NotImplemented
    if op not in decomposition_table or op in _not_decomposed:
        return NotImplemented
    running.append(op)
    try:
        result = decomposition_table[op](*args, **kwargs)
    finally:
        running.pop()
    if result is not NotImplemented and op not in _not_decomposed:
        decomposed.add(op)
    return result


def _fallback(op, *args, **kwargs):
    """What no row of the table is for: a decomposition of torch's, else the host."""
    if op._schema.name.startswith("aten::"):
        functional, outs = _functional_of(op)
        if functional is not None:
            inputs = {name: value for name, value in kwargs.items() if name not in outs}
            results = _decompose(functional, args, inputs)
            if results is not NotImplemented:
                results = results if isinstance(results, (tuple, list)) else (results,)
                written = tuple(_output(kwargs[name], result) for name, result in zip(outs, results))
                return written[0] if len(written) == 1 else written
        elif not outs:
            result = _decompose(op, args, kwargs)
            if result is not NotImplemented:
                return result
    return host.run(op, args, kwargs)


def _known_operations():
    """The operations of the library that is loaded, which may be older than the table."""
    count = ctypes.c_size_t()
    runtime.call("weft_op_list", None, ctypes.c_size_t(0), ctypes.byref(count))
    names = (ctypes.c_char_p * count.value)()
    runtime.call("weft_op_list", names, count, ctypes.byref(count))
    return {name.decode() for name in names}


def install():
    _register_native()
    for name, (kind, flags, operation) in CALLABLE.items():
        _register(name, C.kernel(kind, flags, operation), "callable")
    for name, function in LOWERINGS.items():
        _register(name, function, "python")
    for name in list(NATIVE) + list(CALLABLE):
        if name in registered:
            _register_derived(name, overload_of(name))
    for name, function in LOWERINGS.items():
        if overload_of(name) is not None and not name.startswith("_foreach_"):  # those give out lists
            _register_derived(name, function)
    for name, function in LAYERS.items():
        _library.impl(name, function, "AutogradPrivateUse1")
        _library.impl(name, function, "PrivateUse1")
        registered[name] = "layer"
    _rest.fallback(_fallback, "PrivateUse1")
