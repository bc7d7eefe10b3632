"""torch_xla.core.functions: collectives that have a gradient, that of the sum of what all processes differentiate."""
import torch

from .. import _collectives, _later, _world
from . import xla_model as xm


class _AllReduce(torch.autograd.Function):

    @staticmethod
    def forward(ctx, value, reduce_type, scale, groups):
        ctx.reduce_type, ctx.scale, ctx.groups = reduce_type, scale, groups
        reduced = xm.all_reduce(reduce_type, value, groups=groups)
        if reduce_type in (xm.REDUCE_MIN, xm.REDUCE_MAX):
            ctx.save_for_backward(value == reduced)
        return reduced if scale == 1.0 else reduced * scale

    @staticmethod
    def backward(ctx, gradient):
        # Each process's value is in the result of all: their gradients add up.
        own = xm.all_reduce(xm.REDUCE_SUM, gradient.contiguous(), scale=ctx.scale, groups=ctx.groups)
        if ctx.reduce_type != xm.REDUCE_SUM:
            own = own * ctx.saved_tensors[0]
        return own, None, None, None


class _AllGather(torch.autograd.Function):

    @staticmethod
    def forward(ctx, value, dim, groups):
        ctx.dim, ctx.groups = dim, groups
        return xm.all_gather(value, dim=dim, groups=groups)

    @staticmethod
    def backward(ctx, gradient):
        group = _world.group(ctx.groups, "all_gather")
        return _collectives.reduce_scatter(group, xm.REDUCE_SUM, gradient, 1.0, ctx.dim % gradient.dim()), None, None


def all_reduce(reduce_type, value, scale=1.0, groups=None):
    """xm.all_reduce of a tensor, with a gradient: of sum, min and max. Where several have the least or the greatest value,
    each gets the whole gradient.
    """
    if reduce_type not in (xm.REDUCE_SUM, xm.REDUCE_MIN, xm.REDUCE_MAX):
        raise ValueError(f"all_reduce: '{reduce_type}' has no gradient here; sum, min and max have one (xm.all_reduce has none)")
    return _AllReduce.apply(value, reduce_type, scale, groups)


def all_gather(value, dim=0, groups=None):
    """xm.all_gather of a tensor, with a gradient: each process gets, added up, what all have for its part."""
    return _AllGather.apply(value, dim, groups)


def __getattr__(name):
    raise _later.missing(__name__, name)
