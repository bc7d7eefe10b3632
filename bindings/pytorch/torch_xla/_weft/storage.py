"""Storages of the device, and what others ask of a tensor's memory. torch has no allocator for a device whose hooks come from
Python: a new storage is that of a new tensor, and one that has to grow is replaced. What only changes sizes and strides is
done by torch's kernels for the CPU, which do not look at the memory.
"""
import math

import torch

from . import runtime
from .factory import contiguous_strides, dtype_number
from .runtime import C, U8
from .table import lower

_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def _flat(tensor, count):
    """All elements of a tensor's storage, or the first of them, in their order."""
    return torch.ops.aten.as_strided(tensor.detach(), [count], [1], 0)


@lower("resize_")
def resize_(self, size, memory_format=None):
    """A storage that is large enough stays, with all its aliases; otherwise its elements go into a new one."""
    size, offset = [int(n) for n in size], self.storage_offset()
    have = self.untyped_storage().nbytes() // self.element_size()
    if list(self.shape) == size and memory_format in (None, torch.preserve_format):
        return self
    wanted = offset + math.prod(size)
    if math.prod(size) == 0 or wanted <= have:
        return torch.ops.aten.resize_.default.redispatch(_CPU, self, size, memory_format=memory_format)
    new = C.empty(dtype_number(self.dtype), [wanted], self.device.index)
    if have > 0:
        _flat(new, have).copy_(_flat(self, have))
    strides = contiguous_strides(size)
    if memory_format not in (None, torch.preserve_format, torch.contiguous_format):
        strides = torch.empty(size, device="meta", memory_format=memory_format).stride()
    self.data = torch.ops.aten.as_strided(new, size, strides, offset)
    return self


@lower("set_.source_Tensor")
def set_source(self, source):
    self.data = source
    return self


@lower("set_")
def set_empty(self):
    self.data = C.empty(dtype_number(self.dtype), [0], self.device.index)
    return self


@lower("set_.source_Storage_storage_offset")
def set_storage_at(self, source, storage_offset, size, stride=()):
    """A storage of our device. torch's kernel checks that the device is the same; that it is large enough is checked here."""
    if source.device.type != "xla":
        raise RuntimeError(f"a tensor of the device xla cannot show a storage of {source.device}")
    stride = list(stride) or contiguous_strides(size)
    last = storage_offset + sum((n - 1) * step for n, step in zip(size, stride)) if 0 not in size else -1
    if (last + 1) * self.element_size() > source.nbytes():
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {stride} and storage offset {storage_offset} require a storage size of "
            f"{(last + 1) * self.element_size()}, which is out of bounds for storage of size {source.nbytes()}")
    return torch.ops.aten.set_.source_Storage_storage_offset.redispatch(_CPU, self, source, storage_offset, size, stride)


@lower("set_.source_Storage")
def set_storage(self, source):
    return set_storage_at(self, source, 0, [source.nbytes() // self.element_size()], [1])


def _new_storage(original):
    def __new__(cls, *args, device=None, **options):
        if device is None or torch.device(device).type != "xla":
            return original(cls, *args, device=device, **options)
        index = runtime.index_of(device)
        if not args or isinstance(args[0], int):
            return C.empty(U8, [args[0] if args else 0], index).untyped_storage()
        return torch.tensor(list(args[0]), dtype=torch.uint8).to(torch.device("xla", index)).untyped_storage()

    return __new__


def _resize_storage(original):
    def resize_(self, size):
        """torch would ask our hooks, which Python cannot give."""
        if self.device.type == "xla" and size != self.nbytes():
            raise RuntimeError("a storage of the device xla cannot be resized: resize_ of its tensor makes a new one")
        return original(self, size)

    return resize_


def _dlpack(original):
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """The device has no memory that others can read: a copy on the CPU, where one is asked for, else a refusal."""
        if self.device.type != "xla":
            return original(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
        if dl_device is None or tuple(dl_device) != (1, 0):
            raise BufferError("a tensor of the device xla has no memory that others can read: use Tensor.cpu() first")
        if copy is False:
            raise BufferError("a tensor of the device xla cannot be exported to the CPU without a copy")
        return original(self.detach().cpu(), max_version=max_version, dl_device=dl_device)

    return __dlpack__


def _dlpack_device(original):
    def __dlpack_device__(self):
        return (12, self.device.index) if self.device.type == "xla" else original(self)  # 12: kDLExtDev

    return __dlpack_device__


def install():
    torch.UntypedStorage.__new__ = _new_storage(torch.UntypedStorage.__new__)
    torch.UntypedStorage.resize_ = _resize_storage(torch.UntypedStorage.resize_)
    torch.Tensor.__dlpack__ = _dlpack(torch.Tensor.__dlpack__)
    torch.Tensor.__dlpack_device__ = _dlpack_device(torch.Tensor.__dlpack_device__)
