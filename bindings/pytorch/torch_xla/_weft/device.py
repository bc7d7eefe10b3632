"""The device `xla`: torch's PrivateUse1 under that name, with the module, the hooks and the guard that torch asks for."""
import copy
import functools
import itertools
import os
import threading
import types

import torch

from . import generator, runtime, storage


def _seed_all(seed):
    if not runtime.context_made():
        try:
            runtime.configure(seed=seed & 0x7FFFFFFFFFFFFFFF)
            return
        except RuntimeError:
            if not runtime.context_made():
                raise
            # Another thread made the context in between.
    runtime.seed(seed)


def rng_state(device=None):
    """The random state as torch wants it: bytes on the CPU."""
    runtime.index_of(device)
    return generator.bytes_of(runtime.random_state())


def set_rng_state(state, device=None):
    runtime.index_of(device)
    runtime.set_random_state(*generator.state_of(state))


def _rng_states():
    return [rng_state(index) for index in range(runtime.device_count())]


def _initial_seed():
    return runtime.random_state()[0]


def synchronize(device=None):
    """The barrier, and a wait for what it launched."""
    runtime.C.sync(runtime.index_of(device), True)


class _DeviceContext:
    def __init__(self, device):
        self.index = runtime.index_of(device)

    def __enter__(self):
        self.before = runtime.current_device()
        runtime.set_current_device(self.index)
        return self

    def __exit__(self, *_):
        runtime.set_current_device(self.before)
        return False


def _module():
    module = types.ModuleType("torch.xla", "The device xla, computed by Weft.")
    members = {
        "is_available": lambda: True, "is_initialized": lambda: True, "_is_in_bad_fork": runtime.of_a_parent,
        "_initialized": True,  # without it torch's checkpointing would not keep the random state
        "device_count": runtime.device_count, "current_device": runtime.current_device,
        "set_device": _set_device, "device": _DeviceContext,
        "get_device_name": lambda device=None: runtime.device_description(runtime.index_of(device)),
        "synchronize": synchronize, "manual_seed": _seed_all, "manual_seed_all": _seed_all,
        "initial_seed": _initial_seed, "seed": lambda: _seed_all(int.from_bytes(os.urandom(7), "little")),
        "seed_all": lambda: _seed_all(int.from_bytes(os.urandom(7), "little")),
        "get_rng_state": rng_state, "set_rng_state": set_rng_state,
        "get_rng_state_all": _rng_states,
        "set_rng_state_all": lambda states: [set_rng_state(state, i) for i, state in enumerate(states)][:0],
        "get_amp_supported_dtype": lambda: [torch.bfloat16, torch.float16],
        "is_bf16_supported": lambda *_, **__: True, "empty_cache": lambda: None, "_lazy_init": lambda: None,
        "memory_allocated": lambda device=None: runtime.memory(runtime.index_of(device))[0],
        "max_memory_allocated": lambda device=None: runtime.memory(runtime.index_of(device))[1],
        "default_generators": generator.DefaultGenerators()}
    module.__dict__.update(members)
    return module


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    def is_available(self):
        return True

    def has_primary_context(self, index):
        return True

    def is_built(self):
        return True


class _Guard(torch._C._acc.DeviceGuard):
    # torch asks this several times an operation. What answers is a method without Python code that gives the same thing for
    # ever; pybind11 takes a plain function in C for one that is not there.
    type_ = itertools.repeat(torch._C._autograd.DeviceType.PrivateUse1).__next__


def _tensor_xla(self, device=None, non_blocking=False, **options):
    """The tensor on the device."""
    return self.to(device=torch.device("xla", runtime.index_of(device)), non_blocking=non_blocking, **options)


def _module_xla(self, device=None):
    """Moves parameters and buffers to the device."""
    return self._apply(lambda tensor: tensor.xla(device))


def _pin_memory(original):
    def pin_memory(self, device=None):
        """CPU tensors stay as they are: the device copies what it is given and needs no pinned memory."""
        if self.device.type == "cpu" and (device is None or torch.device(device).type == "xla"):
            return self
        return original(self, device)

    return pin_memory


def _is_pinned(original):
    def is_pinned(self, device=None):
        if self.device.type in ("cpu", "xla") and (device is None or torch.device(device).type == "xla"):
            return False
        return original(self, device)

    return is_pinned


_applying = threading.local()


def _ties_kept(original):
    """Module._apply that keeps tied parameters tied: torch makes new ones when they move to a device of another kind."""

    def _apply(self, fn, recurse=True):
        if getattr(_applying, "now", False):
            return original(self, fn, recurse)
        places = {}
        for module in self.modules():
            for key, parameter in module._parameters.items():
                if parameter is not None:
                    places.setdefault(id(parameter), []).append((module, key))
        _applying.now = True
        try:
            result = original(self, fn, recurse)
        finally:
            _applying.now = False
        for (module, key), *others in places.values():
            moved = module._parameters[key]
            for other, name in others:
                if other._parameters[name] is not moved:
                    other._parameters[name] = moved
        return result

    return _apply


def _memory(part):
    """One of the numbers of a device's memory: in use, at its highest, limit."""
    return lambda device=None, /: runtime.memory(runtime.index_of(device))[part]


def _memory_info(device=None, /):
    used, _, limit = runtime.memory(runtime.index_of(device))
    return limit - used, limit


def _memory_stats(device=None, /):
    used, peak, _ = runtime.memory(runtime.index_of(device))
    return {"allocated_bytes.all.current": used, "allocated_bytes.all.peak": peak}


def _missing(name):
    def missing(*_, **__):
        raise NotImplementedError(f"torch.accelerator.{name} is not there for the device xla")

    return missing


class _AcceleratorContext(_DeviceContext):
    """torch.accelerator.device_index: None leaves the device as it is."""

    def __init__(self, device, /):
        self.index = runtime.current_device() if device is None else runtime.index_of(device)


def _set_device(device, /):
    runtime.set_current_device(runtime.index_of(device))


def _deepcopy_with_aliases(original):
    """copy.deepcopy, which torch has clone a tensor of any device named xla: here tensors of one memory get one copy of it."""

    def __deepcopy__(self, memo):
        plain = type(self) is torch.Tensor and self.device.type == "xla" and self.is_leaf and self.numel() > 0
        if not plain or self.is_conj() or self.is_neg() or id(self) in memo:
            return original(self, memo)
        storage = self.untyped_storage()
        count, rest = divmod(storage.nbytes(), self.element_size())
        copies = memo.setdefault("torch", {})
        if rest and storage._cdata not in copies:
            return original(self, memo)
        with torch.no_grad():
            if storage._cdata not in copies:
                whole = torch.ops.aten.as_strided(self.detach(), [count], [1], 0).clone()
                copies[storage._cdata] = whole.untyped_storage()
            new = self.new_empty(0).set_(copies[storage._cdata], self.storage_offset(), self.size(), self.stride())
        new.requires_grad_(self.requires_grad)
        if self.grad is not None:
            new.grad = copy.deepcopy(self.grad, memo)
        new.__dict__ = copy.deepcopy(self.__dict__, memo)
        memo[id(self)] = new
        return new

    return __deepcopy__


def _backward_on_this_thread(original):
    """Autograd's engine. It has a thread for each device that it counts, and counts one where the hooks come from Python. Here the
    caller's thread computes the gradients: several devices have no threads otherwise, and with one device a step of many small
    operations is 6 % cheaper, since nothing has to move to the cache of another core and back.
    """

    @functools.wraps(original)
    def run_backward(*arguments, **options):
        with torch.autograd.set_multithreading_enabled(False):
            return original(*arguments, **options)

    return run_backward


def _install_accelerator():
    """What torch.accelerator asks hooks, guards and allocators that only C++ can give."""
    functions = {
        "synchronize": lambda device=None, /: synchronize(device), "empty_cache": lambda: None,
        "set_device_index": _set_device, "set_device_idx": _set_device, "device_index": _AcceleratorContext,
        "current_device_index": runtime.current_device, "current_device_idx": runtime.current_device,
        "memory_allocated": _memory(0), "memory_reserved": _memory(0), "max_memory_allocated": _memory(1),
        "max_memory_reserved": _memory(1), "get_memory_info": _memory_info, "memory_stats": _memory_stats,
        "reset_peak_memory_stats": _missing("reset_peak_memory_stats"),
        "reset_accumulated_memory_stats": _missing("reset_accumulated_memory_stats"),
        "get_rng_state": lambda device=None, /: rng_state(device), "initial_seed": lambda device=None, /: _initial_seed(),
        "get_rng_state_all": _rng_states}
    parts = [getattr(torch.accelerator, name, None) for name in ("memory", "random")]
    for name, function in functions.items():
        for module in (torch.accelerator, *parts):
            if hasattr(module, name):
                setattr(module, name, function)


def install():
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "xla") or hasattr(torch, "xla"):
        raise ImportError(f"the device of a third party is taken by {name!r}: torch has room for one, and torch_xla needs it")
    torch.utils.rename_privateuse1_backend("xla")
    torch._register_device_module("xla", _module())
    torch._C._acc.register_python_privateuseone_hook(_Hooks())
    torch._C._acc.register_python_privateuseone_device_guard(_Guard())
    torch.Tensor.is_xla = property(lambda self: self.device.type == "xla")
    torch.Tensor.xla = _tensor_xla
    torch.nn.Module.xla = _module_xla
    torch.nn.Module._apply = _ties_kept(torch.nn.Module._apply)
    _install_accelerator()
    torch.autograd.graph._engine_run_backward = _backward_on_this_thread(torch.autograd.graph._engine_run_backward)
    torch.autograd._engine_run_backward = torch.autograd.graph._engine_run_backward
    torch.Tensor.__deepcopy__ = _deepcopy_with_aliases(torch.Tensor.__deepcopy__)
    torch.Tensor.pin_memory = _pin_memory(torch.Tensor.pin_memory)
    torch.Tensor.is_pinned = _is_pinned(torch.Tensor.is_pinned)
    generator.install()
    storage.install()
