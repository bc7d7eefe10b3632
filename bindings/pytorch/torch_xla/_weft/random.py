"""Random numbers: Philox in the library, one stream for all devices of the context."""
import torch

from . import runtime
from .factory import converted, dtype_number
from .nn import keep_mask
from .runtime import C, F32, F64, FLOATS, I64
from .table import lower

op = C.op


def _own_generator(generator):
    if generator is not None:
        raise NotImplementedError("a generator of its own is not there on the device xla: torch.manual_seed sets the stream")


def _drawn(kind, self):
    dtype = dtype_number(self.dtype)
    if dtype not in FLOATS:
        raise NotImplementedError(f"{kind} draws floating-point numbers alone, not {self.dtype} (docs/pytorch.md)")
    return op(kind, shape=tuple(self.shape), dtype=dtype, device=self.device.index)


@lower("uniform_")
def uniform_(self, from_=0, to=1, *, generator=None, **renamed):
    _own_generator(generator)
    low, high = renamed.get("from", from_), to
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    drawn = _drawn("uniform", self)
    if (low, high) != (0, 1):
        span = C.scalar(drawn.dtype, float(high) - float(low), drawn.device)
        drawn = op("add", op("mul", drawn, span), C.scalar(drawn.dtype, float(low), drawn.device))
    C.write(self, drawn)
    return self


@lower("normal_")
def normal_(self, mean=0, std=1, *, generator=None):
    _own_generator(generator)
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    drawn = _drawn("normal", self)
    if std != 1:
        drawn = op("mul", drawn, C.scalar(drawn.dtype, float(std), drawn.device))
    if mean != 0:
        drawn = op("add", drawn, C.scalar(drawn.dtype, float(mean), drawn.device))
    C.write(self, drawn)
    return self


@lower("normal.Tensor_Tensor")
def normal_tensors(mean, std, *, generator=None):
    out = torch.empty(torch.broadcast_shapes(mean.shape, std.shape), dtype=mean.dtype, device=mean.device)
    return normal_(out, generator=generator).mul_(std).add_(mean)


@lower("bernoulli_.float")
def bernoulli_float(self, p=0.5, *, generator=None):
    _own_generator(generator)
    C.write(self, converted(keep_mask(self.shape, p, self.device.index), dtype_number(self.dtype)))
    return self


@lower("bernoulli")
def bernoulli(self, *, generator=None):
    _own_generator(generator)
    x = C.read(self)
    wide = converted(x, F32)
    drawn = op("uniform", shape=tuple(x.shape), dtype=F32, device=x.device)
    return C.wrap(converted(op("lt", drawn, wide), x.dtype))


@lower("bernoulli_.Tensor")
def bernoulli_tensor(self, p, *, generator=None):
    _own_generator(generator)
    drawn = op("uniform", shape=tuple(self.shape), dtype=F32, device=self.device.index)
    C.write(self, converted(op("lt", drawn, converted(C.read(p), F32)), dtype_number(self.dtype)))
    return self


@lower("exponential_")
def exponential_(self, lambd=1, *, generator=None):
    _own_generator(generator)
    drawn = op("neg", op("log1p", op("neg", _drawn("uniform", self))))
    C.write(self, op("div", drawn, C.scalar(drawn.dtype, float(lambd), drawn.device)))
    return self


def _whole(self, low, high):
    drawn = op("uniform", shape=tuple(self.shape), dtype=F64, device=self.device.index)
    span = C.scalar(F64, float(high - low), drawn.device)
    whole = converted(op("floor", op("mul", drawn, span)), I64)
    whole = op("add", op("minimum", whole, C.scalar(I64, high - low - 1, drawn.device)), C.scalar(I64, low, drawn.device))
    C.write(self, converted(whole, dtype_number(self.dtype)))
    return self


@lower("random_.from")
def random_from(self, from_=0, to=None, *, generator=None, **renamed):
    _own_generator(generator)
    low = renamed.get("from", from_)
    high = to if to is not None else _largest(self.dtype) + 1
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    return _whole(self, low, high)


@lower("random_.to")
def random_to(self, to, *, generator=None):
    return random_from(self, 0, to, generator=generator)


@lower("random_")
def random_(self, *, generator=None):
    return random_from(self, 0, None, generator=generator)


def _largest(dtype):
    if dtype.is_floating_point:
        return {torch.float64: 2 ** 53, torch.float32: 2 ** 24, torch.float16: 2 ** 11, torch.bfloat16: 2 ** 8}[dtype]
    return 1 if dtype == torch.bool else min(torch.iinfo(dtype).max, 2 ** 53)


@lower("randperm")
def randperm(n, dtype=torch.int64, layout=None, device=None, pin_memory=None):
    index = runtime.index_of(device)
    drawn = op("uniform", shape=(n,), dtype=F64, device=index)
    return C.wrap(converted(op("argsort", drawn, axis=0), dtype_number(dtype or torch.int64)))


@lower("randperm.generator_out")
def randperm_out(n, *, generator=None, out):
    _own_generator(generator)
    result = randperm(n, out.dtype, device=out.device)
    if out.shape != result.shape:
        out.resize_(result.shape)
    C.write(out, C.read(result))
    return out


@lower("multinomial")
def multinomial(self, num_samples, replacement=False, *, generator=None):
    _own_generator(generator)
    x = C.read(self)
    weights = converted(x, F32)
    shape = tuple(x.shape)
    if replacement:
        total = op("cumsum", weights, axis=-1)
        last = op("slice_in_dim", total, axis=len(shape) - 1, start=shape[-1] - 1, limit=shape[-1])
        drawn = op("mul", op("uniform", shape=shape[:-1] + (num_samples,), dtype=F32, device=x.device), last)
        wide = op("expand_dims", drawn, dims=(len(shape),))
        below = op("le", op("expand_dims", total, dims=(len(shape) - 1,)), wide)
        places = op("sum", converted(below, I64), dims=(len(shape),), keepdims=False)
        return C.wrap(op("minimum", places, C.scalar(I64, shape[-1] - 1, x.device)))
    drawn = op("neg", op("log1p", op("neg", op("uniform", shape=shape, dtype=F32, device=x.device))))
    _, places = op("top_k", op("div", weights, drawn), k=num_samples, axis=len(shape) - 1)
    return C.wrap(converted(places, I64))


