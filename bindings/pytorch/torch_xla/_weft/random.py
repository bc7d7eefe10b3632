"""Random numbers: Philox in the library. Without a generator they are of the context's stream, one for all devices, and with
one of the device of its own. For one of the CPU the host draws them, as in PyTorch/XLA.
"""
import functools

import torch

from . import host, runtime
from .factory import converted, dtype_number
from .generator import draw, is_own
from .nn import keep_mask
from .runtime import C, F32, F64, FLOATS, I64
from .table import lower

op = C.op


def lower_random(name):
    """`lower` for an overload that takes a generator: one of the CPU draws on the CPU."""

    def decorate(function):
        @functools.wraps(function)
        def kernel(*args, generator=None, **kwargs):
            if generator is None or is_own(generator):
                return function(*args, generator=generator, **kwargs)
            packet, _, overload = name.partition(".")
            return host.run(getattr(getattr(torch.ops.aten, packet), overload or "default"), args,
                            {**kwargs, "generator": generator})

        lower(name)(kernel)
        return function

    return decorate


def _drawn(kind, self, generator):
    dtype = dtype_number(self.dtype)
    if dtype not in FLOATS:
        raise NotImplementedError(f"{kind} draws floating-point numbers alone, not {self.dtype} (docs/pytorch.md)")
    return draw(kind, generator, shape=tuple(self.shape), dtype=dtype, device=self.device.index)


@lower_random("uniform_")
def uniform_(self, from_=0, to=1, *, generator=None, **renamed):
    low, high = renamed.get("from", from_), to
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    drawn = _drawn("uniform", self, generator)
    if (low, high) != (0, 1):
        span = C.scalar(drawn.dtype, float(high) - float(low), drawn.device)
        drawn = op("add", op("mul", drawn, span), C.scalar(drawn.dtype, float(low), drawn.device))
    C.write(self, drawn)
    return self


@lower_random("normal_")
def normal_(self, mean=0, std=1, *, generator=None):
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    drawn = _drawn("normal", self, generator)
    if std != 1:
        drawn = op("mul", drawn, C.scalar(drawn.dtype, float(std), drawn.device))
    if mean != 0:
        drawn = op("add", drawn, C.scalar(drawn.dtype, float(mean), drawn.device))
    C.write(self, drawn)
    return self


@lower_random("normal.Tensor_Tensor")
def normal_tensors(mean, std, *, generator=None):
    out = torch.empty(torch.broadcast_shapes(mean.shape, std.shape), dtype=mean.dtype, device=mean.device)
    return normal_(out, generator=generator).mul_(std).add_(mean)


@lower_random("bernoulli_.float")
def bernoulli_float(self, p=0.5, *, generator=None):
    C.write(self, converted(keep_mask(self.shape, p, self.device.index, generator), dtype_number(self.dtype)))
    return self


@lower_random("bernoulli")
def bernoulli(self, *, generator=None):
    x = C.read(self)
    wide = converted(x, F32)
    drawn = draw("uniform", generator, shape=tuple(x.shape), dtype=F32, device=x.device)
    return C.wrap(converted(op("lt", drawn, wide), x.dtype))


@lower_random("bernoulli_.Tensor")
def bernoulli_tensor(self, p, *, generator=None):
    drawn = draw("uniform", generator, shape=tuple(self.shape), dtype=F32, device=self.device.index)
    C.write(self, converted(op("lt", drawn, converted(C.read(p), F32)), dtype_number(self.dtype)))
    return self


@lower_random("exponential_")
def exponential_(self, lambd=1, *, generator=None):
    drawn = op("neg", op("log1p", op("neg", _drawn("uniform", self, generator))))
    C.write(self, op("div", drawn, C.scalar(drawn.dtype, float(lambd), drawn.device)))
    return self


def _whole(self, low, high, generator):
    drawn = draw("uniform", generator, shape=tuple(self.shape), dtype=F64, device=self.device.index)
    span = C.scalar(F64, float(high - low), drawn.device)
    whole = converted(op("floor", op("mul", drawn, span)), I64)
    whole = op("add", op("minimum", whole, C.scalar(I64, high - low - 1, drawn.device)), C.scalar(I64, low, drawn.device))
    C.write(self, converted(whole, dtype_number(self.dtype)))
    return self


@lower_random("random_.from")
def random_from(self, from_=0, to=None, *, generator=None, **renamed):
    low = renamed.get("from", from_)
    high = to if to is not None else _largest(self.dtype) + 1
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    return _whole(self, low, high, generator)


@lower_random("random_.to")
def random_to(self, to, *, generator=None):
    return random_from(self, 0, to, generator=generator)


@lower_random("random_")
def random_(self, *, generator=None):
    return random_from(self, 0, None, generator=generator)


def _largest(dtype):
    if dtype.is_floating_point:
        return {torch.float64: 2 ** 53, torch.float32: 2 ** 24, torch.float16: 2 ** 11, torch.bfloat16: 2 ** 8}[dtype]
    return 1 if dtype == torch.bool else min(torch.iinfo(dtype).max, 2 ** 53)


@lower("randperm")
def randperm(n, dtype=torch.int64, layout=None, device=None, pin_memory=None):
    return _permutation(n, dtype, runtime.index_of(device), None)


def _permutation(n, dtype, index, generator):
    drawn = draw("uniform", generator, shape=(n,), dtype=F64, device=index)
    return C.wrap(converted(op("argsort", drawn, axis=0), dtype_number(dtype or torch.int64)))


@lower_random("randperm.generator_out")
def randperm_out(n, *, generator=None, out):
    result = _permutation(n, out.dtype, out.device.index, generator)
    if out.shape != result.shape:
        out.resize_(result.shape)
    C.write(out, C.read(result))
    return out


@lower_random("multinomial")
def multinomial(self, num_samples, replacement=False, *, generator=None):
    x = C.read(self)
    weights = converted(x, F32)
    shape = tuple(x.shape)
    if replacement:
        total = op("cumsum", weights, axis=-1)
        last = op("slice_in_dim", total, axis=len(shape) - 1, start=shape[-1] - 1, limit=shape[-1])
        drawn = op("mul", draw("uniform", generator, shape=shape[:-1] + (num_samples,), dtype=F32, device=x.device), last)
        wide = op("expand_dims", drawn, dims=(len(shape),))
        below = op("le", op("expand_dims", total, dims=(len(shape) - 1,)), wide)
        places = op("sum", converted(below, I64), dims=(len(shape),), keepdims=False)
        return C.wrap(op("minimum", places, C.scalar(I64, shape[-1] - 1, x.device)))
    drawn = op("neg", op("log1p", op("neg", draw("uniform", generator, shape=shape, dtype=F32, device=x.device))))
    _, places = op("top_k", op("div", weights, drawn), k=num_samples, axis=len(shape) - 1)
    return C.wrap(converted(places, I64))


