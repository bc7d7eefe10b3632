"""Making tensors, copies between host and device, and numbers out of tensors."""
import math

import torch

from . import runtime
from .runtime import C, DTYPES, TORCH_DTYPES
from .table import lower


def dtype_number(dtype):
    number = DTYPES.get(dtype)
    if number is None:
        raise NotImplementedError(f"the device xla has no dtype {dtype}")
    return number


def device_index(device):
    return runtime.index_of(device)


def contiguous_strides(size):
    strides, step = [0] * len(size), 1
    for i in range(len(size) - 1, -1, -1):
        strides[i] = step
        step *= max(int(size[i]), 1)
    return strides


_CHANNELS_LAST = {torch.channels_last: 4, torch.channels_last_3d: 5}


@lower("empty.memory_format")
def empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    if layout not in (None, torch.strided):
        raise NotImplementedError(f"the device xla has no tensors of layout {layout}")
    number = dtype_number(torch.get_default_dtype() if dtype is None else dtype)
    index = device_index(device)
    rank = _CHANNELS_LAST.get(memory_format)
    if rank is not None and len(size) == rank:
        dense = C.empty(number, [size[0], *size[2:], size[1]], index)
        return torch.ops.aten.permute(dense, [0, rank - 1, *range(1, rank - 1)])
    return C.empty(number, size, index)


@lower("empty_strided")
def empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    number = dtype_number(torch.get_default_dtype() if dtype is None else dtype)
    index = device_index(device)
    if list(stride) == contiguous_strides(size) or 0 in size:
        return C.empty(number, size, index)
    count = 1 + sum((n - 1) * step for n, step in zip(size, stride))
    return torch.ops.aten.as_strided(C.empty(number, [count], index), size, stride)


def converted(value, dtype):
    """A value as another element type, the way torch's casts do it; dtype in Weft's number."""
    if value.dtype == dtype:
        return value
    if value.dtype in runtime.COMPLEX and dtype not in runtime.COMPLEX:
        value = C.op("real", value)
    return value if value.dtype == dtype else C.op("convert", value, dtype=dtype)


def upload(tensor, index):
    """A CPU tensor as a value on a device."""
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    size = dense.numel() * dense.element_size()
    return C.upload(dtype_number(dense.dtype), dense.shape, dense.data_ptr() if size else 0, size, index)


def download(value):
    """A value as a CPU tensor."""
    out = torch.empty(value.shape, dtype=TORCH_DTYPES[value.dtype])
    size = out.numel() * out.element_size()
    if size:
        C.download(value, out.data_ptr(), size)
    return out


def plain_value(tensor):
    """The value of a tensor whose negation or conjugation torch may have put off."""
    value = C.read(tensor)
    return C.op("neg", value) if tensor.is_neg() else value


@lower("_copy_from")
def copy_from(self, dst, non_blocking=False):
    if dst.is_conj() or dst.is_neg():
        raise NotImplementedError("writing to a tensor whose conjugation or negation is put off")
    if self.device.type == "xla" and dst.device.type == "xla":
        value = converted(plain_value(self), dtype_number(dst.dtype))
        if self.device.index != dst.device.index:
            value = C.copy_to(value, dst.device.index)
        C.write(dst, value)
    elif dst.device.type == "xla":
        C.write(dst, upload(self if self.dtype == dst.dtype else self.to(dst.dtype), dst.device.index))
    elif self.device.type == "xla":
        dst.copy_(download(plain_value(self)))
    else:
        raise RuntimeError(f"a copy from {self.device} to {dst.device} is not one of the device xla")
    return dst


@lower("copy_")
def copy_(self, src, non_blocking=False):
    copy_from(src, self, non_blocking)
    return self


@lower("_copy_from_and_resize")
def copy_from_and_resize(self, dst):
    if self.shape != dst.shape:
        dst.resize_(self.shape)
    return copy_from(self, dst)


@lower("_local_scalar_dense")
def local_scalar_dense(self):
    return download(C.read(self)).item()


def _other_clone(self, memory_format):
    """A copy of a tensor with gaps or another order, or whose negation torch has put off."""
    value = plain_value(self)
    if memory_format is torch.contiguous_format:
        return C.wrap(value)
    if memory_format in _CHANNELS_LAST or not self.is_contiguous():
        out = torch.empty_like(self, memory_format=memory_format or torch.preserve_format)
        if list(out.stride()) != contiguous_strides(self.shape):
            C.write(out, value)
            return out
    return C.wrap(value)


C.clones(_other_clone, torch.contiguous_format)
lower("clone")(C.clone)


def number(value, dtype, index):
    """A Python number as an argument of the program."""
    if isinstance(value, complex) and dtype == runtime.BOOL:
        value = bool(value)
    elif isinstance(value, complex) and dtype not in runtime.COMPLEX:
        if value.imag != 0:
            raise RuntimeError(f"value cannot be converted to type {TORCH_DTYPES[dtype]} without overflow: it is complex")
        value = value.real
    if isinstance(value, complex):
        part = runtime.F64 if dtype == DTYPES[torch.complex128] else runtime.F32
        return converted(C.op("complex", C.scalar(part, value.real, index), C.scalar(part, value.imag, index)), dtype)
    if isinstance(value, torch.Tensor):
        value = value.item()
    return C.scalar(dtype, value, index)


def filled(size, value, dtype, index):
    scalar = number(value, dtype, index)
    return C.op("broadcast_to", scalar, shape=tuple(size)) if len(size) else scalar


def _once(self):
    """The tensor with every element shown once: filling an expanded one is allowed, as in torch."""
    if not self.is_contiguous() and any(step == 0 and n > 1 for n, step in zip(self.shape, self.stride())):
        sizes = [1 if step == 0 else n for n, step in zip(self.shape, self.stride())]
        return torch.ops.aten.as_strided(self, sizes, self.stride(), self.storage_offset())
    return self


@lower("zero_")
def zero_(self):
    whole, self = self, _once(self)
    C.write(self, C.op("full", shape=tuple(self.shape), value=0.0, dtype=dtype_number(self.dtype), device=self.device.index))
    return whole


@lower("fill_.Scalar", "fill_.Tensor")
def fill_(self, value):
    whole, self = self, _once(self)
    if isinstance(value, torch.Tensor) and value.device.type == "xla":
        copy_(self, value)
        return whole
    C.write(self, filled(self.shape, value, dtype_number(self.dtype), self.device.index))
    return whole


def _made(size, value, dtype, layout, device):
    """A tensor of one number everywhere; zero and one are part of the program, other numbers its arguments."""
    if layout not in (None, torch.strided):
        raise NotImplementedError(f"the device xla has no tensors of layout {layout}")
    kind, index = dtype_number(torch.get_default_dtype() if dtype is None else dtype), device_index(device)
    if value in (0.0, 1.0):
        return C.wrap(C.op("full", shape=tuple(size), value=value, dtype=kind, device=index))
    return C.wrap(filled(size, value, kind, index))


@lower("zeros")
def zeros(size, dtype=None, layout=None, device=None, pin_memory=None):
    return _made(size, 0.0, dtype, layout, device)


@lower("ones")
def ones(size, dtype=None, layout=None, device=None, pin_memory=None):
    return _made(size, 1.0, dtype, layout, device)


@lower("fill.Scalar", "fill.Tensor")
def fill(self, value):
    return fill_(C.empty(dtype_number(self.dtype), self.shape, self.device.index), value)


def _range_dtype(dtype, *numbers):
    if dtype is not None:
        return dtype
    return torch.int64 if all(isinstance(n, int) for n in numbers) else torch.get_default_dtype()


@lower("arange.start_step")
def arange(start, end, step=1, dtype=None, layout=None, device=None, pin_memory=None):
    dtype = _range_dtype(dtype, start, end, step)
    if step == 0 or (end - start) * step < 0:
        raise RuntimeError("step must be nonzero" if step == 0
                           else "upper bound and lower bound inconsistent with step sign")
    count = max(0, math.ceil((end - start) / step))
    index = device_index(device)
    work = torch.float64 if dtype.is_floating_point else torch.int64  # rounded once, as torch's
    steps = C.op("iota", shape=(count,), dimension=0, dtype=DTYPES[work], device=index)
    scaled = C.op("mul", steps, C.scalar(DTYPES[work], step, index))
    return C.wrap(converted(C.op("add", scaled, C.scalar(DTYPES[work], start, index)), dtype_number(dtype)))


@lower("arange.start")
def arange_start(start, end, dtype=None, layout=None, device=None, pin_memory=None):
    return arange(start, end, 1, dtype, layout, device, pin_memory)


@lower("arange")
def arange_end(end, dtype=None, layout=None, device=None, pin_memory=None):
    return arange(0, end, 1, dtype, layout, device, pin_memory)


@lower("arange.start_out")
def arange_out(start, end, step=1, *, out):
    result = arange(start, end, step, dtype=out.dtype, device=out.device)
    if out.shape != result.shape:
        out.resize_(result.shape)
    return copy_(out, result)


@lower("linspace")
def linspace(start, end, steps, dtype=None, layout=None, device=None, pin_memory=None):
    return torch.linspace(start, end, steps, dtype=dtype).to(torch.device("xla", device_index(device)))


@lower("linspace.out")
def linspace_out(start, end, steps, *, out):
    if out.numel() != steps:
        out.resize_([steps])
    return copy_(out, torch.linspace(start, end, steps, dtype=out.dtype))


@lower("eye.m_out")
def eye_out(n, m, *, out):
    if list(out.shape) != [n, m]:
        out.resize_([n, m])
    rows, columns = (C.op("iota", shape=(n, m), dimension=d, dtype=runtime.I32, device=out.device.index) for d in (0, 1))
    C.write(out, converted(C.op("eq", rows, columns), dtype_number(out.dtype)))
    return out


@lower("eye.out")
def eye_square_out(n, *, out):
    return eye_out(n, n, out=out)


@lower("is_set_to")
def is_set_to(self, tensor):
    return (self.data_ptr() == tensor.data_ptr() and self.shape == tensor.shape and self.stride() == tensor.stride())


@lower("equal")
def equal(self, other):
    if self.shape != other.shape:
        return False
    return bool(torch.ops.aten.eq.Tensor(self, other).all().item())
