"""Generators of the device. torch makes none for a device whose hooks come from Python, so `torch.Generator(device="xla")`
is made here: a torch.Generator with the key and the counter of a Philox stream of its own. Kernels are given torch's
object of it, whose number leads back to ours.
"""
import threading
import weakref

import torch

from . import runtime
from .runtime import C

_Torch = torch._C.Generator
_WORD = 0xFFFFFFFFFFFFFFFF
_own = weakref.WeakValueDictionary()  # by _cdata
_lock = threading.RLock()


def bytes_of(state):
    """Key and counter as torch wants a state: bytes on the CPU."""
    return torch.tensor(list(b"".join(part.to_bytes(8, "little") for part in state)), dtype=torch.uint8, device="cpu")


def state_of(data):
    if not isinstance(data, torch.Tensor) or data.dtype != torch.uint8:
        raise TypeError("RNG state must be a torch.ByteTensor")
    data = bytes(data.cpu().tolist())
    if len(data) != 24:
        raise RuntimeError(f"a random state of the device xla has 24 bytes, not {len(data)}")
    return tuple(int.from_bytes(data[i:i + 8], "little") for i in (0, 8, 16))


class Generator(_Torch):
    """A random stream of the device, beside the one that torch.manual_seed sets."""

    def __new__(cls, index=0):
        return super().__new__(cls)

    def __init__(self, index=0):
        self._device = torch.device("xla", index)
        self._state = (super().initial_seed(), 0, 0)
        _own[self._cdata] = self

    def _get(self):
        return self._state

    def _set(self, state):
        self._state = state

    @property
    def device(self):
        return self._device

    def manual_seed(self, seed):
        """torch's own object is seeded too: it checks the number, and a CPU kernel that is given it draws from it."""
        super().manual_seed(seed)
        with _lock:
            self._set((int(seed) & _WORD, 0, 0))
        return self

    def seed(self):
        seed = super().seed()
        with _lock:
            self._set((seed & _WORD, 0, 0))
        return seed

    def initial_seed(self):
        return self._get()[0]

    def get_state(self):
        with _lock:
            return bytes_of(self._get())

    def set_state(self, new_state):
        with _lock:
            self._set(state_of(new_state))
        return self

    def get_offset(self):
        return self._get()[1]

    def set_offset(self, offset):
        with _lock:
            self._set((self._get()[0], int(offset) & _WORD, 0))
        return self

    def clone_state(self):
        return Generator(self._device.index).set_state(self.get_state())

    graphsafe_get_state = clone_state

    def graphsafe_set_state(self, state):
        return self.set_state(state.get_state())

    def __reduce__(self):
        return _restored, (self._device.index, self._get())


def _restored(index, state):
    generator = Generator(index)
    generator._set(state)
    return generator


class DefaultGenerator(Generator):
    """The stream that torch.manual_seed sets, of the context."""

    def _get(self):
        runtime.ensure()
        return runtime.random_state()

    def _set(self, state):
        runtime.ensure()
        runtime.set_random_state(*state)

    def __reduce__(self):
        raise TypeError("the default generator of a device belongs to the process: pickle its get_state()")


class DefaultGenerators:
    """torch.xla.default_generators: one for each device, all of the context's one stream; made when asked for."""

    def __init__(self):
        self._made = {}

    def __len__(self):
        return runtime.device_count()

    def __getitem__(self, index):
        index = range(len(self))[index]
        with _lock:
            if index not in self._made:
                self._made[index] = DefaultGenerator(index)
            return self._made[index]


def is_own(generator):
    """Whether kernels are given a generator of the device, not one of the CPU."""
    return generator._cdata in _own


def draw(name, generator=None, **attributes):
    """Random numbers by an operation of Weft's, of a generator's stream, or of the context's where there is none."""
    own = None if generator is None else _own.get(generator._cdata)
    if generator is not None and own is None:
        raise NotImplementedError(f"{name} of the device xla draws from no generator of the CPU")
    if own is not None and own.device.index != attributes.get("device", 0):
        raise RuntimeError(f"Expected a generator of xla:{attributes.get('device', 0)} but found one of {own.device}")
    with _lock:
        if own is None or isinstance(own, DefaultGenerator):
            return C.op(name, **attributes)
        before = runtime.random_state()
        runtime.set_random_state(*own._get())
        try:
            return C.op(name, **attributes)
        finally:
            own._set(runtime.random_state())
            runtime.set_random_state(*before)


class _Kind(type(_Torch)):
    """isinstance and issubclass mean torch's own type, of which all generators are."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, _Torch)

    def __subclasscheck__(cls, subclass):
        return issubclass(subclass, _Torch)


def install():
    """torch.Generator, which also makes those of the device; the CPU's are torch's own objects."""

    def new(cls, device="cpu"):
        if torch.device(device).type == "xla":
            return Generator(runtime.index_of(device))
        return _Torch.__new__(cls if cls is not made else _Torch, device)

    made = _Kind("Generator", (_Torch,), {
        "__new__": new, "__module__": "torch", "__doc__": _Torch.__doc__, "__slots__": ()})
    torch.Generator = made
