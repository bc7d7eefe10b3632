"""Collectives of tensors between processes: what core.xla_model gives under PyTorch/XLA's names, for one group.

A collective works on values: it launches what is recorded, waits for the others, and gives a new tensor without a gradient
(core.functions has those with one). Many tensors go through a few exchanges: those of a dtype lie behind each other in
buckets of at most BUCKET_BYTES. A group of one process computes nothing.
"""
import threading

import torch

from . import _weft

BUCKET_BYTES = 25 << 20

_job = _weft.job
_REDUCTIONS = {"sum": _job.SUM, "mul": _job.PRODUCT, "and": _job.AND, "or": _job.OR, "min": _job.MIN, "max": _job.MAX}
REDUCES = tuple(_REDUCTIONS)
_OPERATIONS = {_job.SUM: "add", _job.PRODUCT: "mul", _job.AND: "bitwise_and", _job.OR: "bitwise_or", _job.MIN: "minimum",
               _job.MAX: "maximum"}


def buckets(tensors, most=None):
    """Lists of tensors of one dtype and device, in order, each of at most `most` bytes or of one tensor."""
    most = BUCKET_BYTES if most is None else most
    open_ones, out = {}, []
    for tensor in tensors:
        key, size = (tensor.dtype, tensor.device), tensor.numel() * tensor.element_size()
        bucket, filled = open_ones.get(key, (None, 0))
        if bucket is None or filled + size > most:
            bucket, filled = [], 0
            out.append(bucket)
        bucket.append(tensor)
        open_ones[key] = (bucket, filled + size)
    return out


class ThreadJob:
    """What a job is between processes, between threads of this one that each drive a device; `rank` is the thread's own.

    Each shows its value, and makes its result of all of them on its own device. `meeting` and `shown` are those of the group.
    """

    def __init__(self, rank, meeting, shown):
        self._rank, self._meeting, self._shown = rank, meeting, shown

    @classmethod
    def group(cls, size):
        """The jobs of a group, by rank, and what ends them all when one has failed: the others' waits are then errors."""
        meeting, shown = threading.Barrier(size, timeout=300), [None] * size
        return [cls(rank, meeting, shown) for rank in range(size)], meeting.abort

    def _all(self, value):
        """Values of all threads, copied to this one's device."""
        try:
            self._shown[self._rank] = value
            self._meeting.wait()
            found = [one if rank == self._rank else _weft.copy_value(one, value.device) for rank, one in enumerate(self._shown)]
            self._meeting.wait()
        except threading.BrokenBarrierError:
            raise RuntimeError("another thread of the group has failed, or did not come within 300 seconds") from None
        return found

    def all_reduce(self, value, reduction):
        first, *rest = self._all(value)
        for one in rest:
            first = _weft.value_op(_OPERATIONS[reduction], first, one)
        return first

    def all_gather(self, value):
        return _weft.value_op("concatenate", *self._all(value), dimension=0)

    def reduce_scatter(self, value, reduction):
        return self._part(self.all_reduce(value, reduction))

    def all_to_all(self, value):
        return _weft.value_op("concatenate", *map(self._part, self._all(value)), dimension=0)

    def broadcast(self, value, root):
        return self._all(value)[root]

    def _part(self, value):
        count = value.shape[0] // len(self._shown)
        start = (self._rank * count,) + (0,) * (value.ndim - 1)
        limit = (start[0] + count,) + tuple(value.shape[1:])
        return _weft.value_op("slice", value, start_indices=start, limit_indices=limit, strides=(1,) * value.ndim)


def _through(function, tensor, *arguments):
    return _weft.of_value(function(_weft.value_of(tensor), *arguments))


def _in_place(tensors, exchange):
    """Writes to each tensor its part of what `exchange` makes of its bucket."""
    with torch.no_grad():
        # Views show one memory: what is exchanged is read from all of it before any of it is written.
        lists = buckets([tensor for tensor in tensors if tensor.numel()])
        flat = [torch.cat([tensor.detach().reshape(-1) for tensor in one]) for one in lists]
        for index in {tensor.device.index for tensor in flat}:
            _weft.sync(index)  # Everything alive in one program: a part alone would be computed twice.
        for bucket, whole in zip(lists, flat):
            _weft.write_parts(exchange(whole), [tensor.detach() for tensor in bucket])


def _scaled(tensor, scale):
    return tensor if scale == 1.0 else tensor * scale


def all_reduce_in_place(group, reduce_type, tensors, scale):
    job, size, _ = group
    if size == 1:
        if scale != 1.0:
            with torch.no_grad():
                for tensor in tensors:
                    tensor.mul_(scale)
        return
    reduction = _REDUCTIONS[reduce_type]
    _in_place(tensors, lambda whole: _scaled(_through(job.all_reduce, whole, reduction), scale))


def all_reduce(group, reduce_type, tensor, scale):
    job, size, _ = group
    if size == 1:
        return tensor.clone() if scale == 1.0 else tensor * scale
    return _scaled(_through(job.all_reduce, tensor, _REDUCTIONS[reduce_type]), scale)


def broadcast_in_place(group, tensors, root):
    """`root` is a rank of the group."""
    job, size, _ = group
    if size > 1:
        _in_place(tensors, lambda whole: _through(job.broadcast, whole, root))


def all_gather(group, tensor, dim):
    job, size, _ = group
    if size == 1:
        return tensor.clone()
    moved = tensor.detach().movedim(dim, 0).contiguous()
    return _through(job.all_gather, moved).movedim(0, dim).contiguous()


def reduce_scatter(group, reduce_type, tensor, scale, dim):
    job, size, _ = group
    if size == 1:
        return tensor.clone() if scale == 1.0 else tensor * scale
    moved = tensor.detach().movedim(dim, 0).contiguous()
    return _scaled(_through(job.reduce_scatter, moved, _REDUCTIONS[reduce_type]).movedim(0, dim).contiguous(), scale)


def all_to_all(group, tensor, split_dim, concat_dim):
    """Part k along `split_dim` goes to process k; what comes is joined along `concat_dim`."""
    job, size, _ = group
    if size == 1:
        return tensor.clone()
    moved = tensor.detach().movedim(split_dim, 0).contiguous()
    come = _through(job.all_to_all, moved).movedim(0, split_dim)
    return torch.cat(come.chunk(size, split_dim), concat_dim)

