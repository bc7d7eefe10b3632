"""Joining, picking and placing: cat, where, gather, scatter, indexing, masks, triangles, flips."""

import math

import torch


from .factory import converted, dtype_number, number
from .nn import like
from .reduce import axis_of, dims_of
from .runtime import BOOL, C, I64
from .table import lower

op = C.op


@lower("cat")
def cat(tensors, dim=0):
    kept = [t for t in tensors if t.dim() != 1 or t.shape[0] != 0] or list(tensors[:1])
    dtype = tensors[0].dtype
    for t in tensors[1:]:
        dtype = torch.promote_types(dtype, t.dtype)
    if kept[0].dim() == 0:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    values = [converted(C.read(t), dtype_number(dtype)) for t in kept]
    while len(values) > 60:  # more operands than one call takes
        values = [
            op("concatenate", *values[i : i + 60], dimension=axis_of(dim, values[0].ndim)) for i in range(0, len(values), 60)
        ]
    return C.wrap(op("concatenate", *values, dimension=axis_of(dim, values[0].ndim)))


def on_device(value):
    return isinstance(value, torch.Tensor) and value.device.type == "xla"


def device_of(*operands):
    """The number of the device that the first tensor of ours is on."""
    return next((t.device.index for t in operands if on_device(t)), 0)


def value_of(operand, dtype, index):
    """An operand, which torch may give as a number or as a CPU tensor without dimensions, as a value of a type."""
    if on_device(operand):
        return converted(C.read(operand), dtype)
    if isinstance(operand, torch.Tensor) and operand.dim() > 0:
        raise RuntimeError(f"Input tensor is not an XLA tensor: {operand.type()}")
    return number(operand, dtype, index)


def common_values(self, other):
    """Values of two operands in torch's common type."""
    dtype, index = dtype_number(torch.result_type(self, other)), device_of(self, other)
    return [value_of(self, dtype, index), value_of(other, dtype, index)]


@lower("where.self")
def where(condition, self, other):
    place, dtype = device_of(condition, self, other), dtype_number(torch.result_type(self, other))
    return C.wrap(op("where", value_of(condition, BOOL, place), value_of(self, dtype, place), value_of(other, dtype, place)))


def _fill_value(self, value):
    return value_of(value, dtype_number(self.dtype), self.device.index)


@lower("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(self, mask, value):
    if mask.dtype not in (torch.bool, torch.uint8):
        raise RuntimeError(f"masked_fill only supports boolean masks, but got mask with dtype {mask.dtype}")
    x = C.read(self)
    out = op("where", converted(C.read(mask), BOOL), _fill_value(self, value), x)
    return C.wrap(out)


@lower("masked_select")
def masked_select(self, mask):
    keep = torch.broadcast_to(mask, torch.broadcast_shapes(self.shape, mask.shape))
    x = torch.broadcast_to(self, keep.shape)
    return index(x, [keep])


def _wrapped(ids, size):
    """Indices with negative ones counted from the end."""
    zero, wide = C.scalar(ids.dtype, 0, ids.device), C.scalar(ids.dtype, size, ids.device)
    return op("where", op("lt", ids, zero), op("add", ids, wide), ids)


@lower("index_select")
def index_select(self, dim, index):  # noqa: A002
    x, ids = C.read(self), C.read(index)
    if x.ndim == 0:
        return C.wrap(op("reshape", x, shape=()))
    ids = op("reshape", ids, shape=(1,)) if ids.ndim == 0 else ids
    return C.wrap(op("take", x, ids, axis=axis_of(dim, x.ndim)))


def nonzero_places(mask):
    """torch's nonzero of a tensor: how many there are is read first."""
    x = C.read(mask)
    flags = converted(x, BOOL) if x.dtype != BOOL else x
    count = int(item_of(op("sum", converted(flags, I64), keepdims=False)))
    if x.ndim == 0:
        return C.empty(I64, [count, 0], x.device)
    if count == 0:
        return C.empty(I64, [0, x.ndim], x.device)
    found, _ = op("nonzero_static", flags, size=count)
    return C.wrap(converted(found, I64))


def item_of(value):
    from .factory import download

    return download(value).item()


@lower("nonzero")
def nonzero(self):
    return nonzero_places(self)


def _index_values(self, indices):
    """Index tensors with masks turned into places, by the dimension they index."""
    out, dim = [], 0
    for one in indices:
        if one is None:
            out.append(None)
            dim += 1
            continue
        if one.device.type != "xla":
            one = one.to(self.device)
        if one.dtype in (torch.bool, torch.uint8):
            for i, n in enumerate(one.shape):
                if self.shape[dim + i] != n:
                    raise IndexError(
                        f"The shape of the mask {list(one.shape)} at index {i} does not match the shape of the "
                        f"indexed tensor {list(self.shape)} at index {dim + i}"
                    )
            places = nonzero_places(one)
            for i in range(one.dim()):
                out.append(C.read(places.select(1, i)))
            dim += one.dim()
            continue
        out.append(C.read(one))
        dim += 1
    if len(out) > self.dim():
        raise IndexError(f"too many indices for tensor of dimension {self.dim()}")
    return out + [None] * (self.dim() - len(out))


def _index_plan(self, indices):
    """Broadcast indices, the dimensions they index, and where their dimensions go in the result."""
    values = _index_values(self, indices)
    dims = [d for d, value in enumerate(values) if value is not None]
    shape = torch.broadcast_shapes(*(tuple(values[d].shape) for d in dims))
    columns = []
    for d in dims:
        ids = converted(values[d], I64)
        ids = _wrapped(ids, self.shape[d])
        columns.append(op("broadcast_to", ids, shape=tuple(shape)) if tuple(ids.shape) != tuple(shape) else ids)
    together = dims == list(range(dims[0], dims[0] + len(dims)))
    return columns, dims, tuple(shape), dims[0] if together else 0


def _starts(columns, shape):
    return op("stack", *columns, axis=len(shape)) if len(columns) > 1 else op("expand_dims", columns[0], dims=(len(shape),))


@lower("index.Tensor")
def index(self, indices):
    columns, dims, shape, at = _index_plan(self, indices)
    x = C.read(self)
    if len(dims) == 1:
        return C.wrap(op("take", x, columns[0], axis=dims[0]))
    rest = [d for d in range(x.ndim) if d not in dims]
    offset = tuple(range(at)) + tuple(range(at + len(shape), len(shape) + len(rest)))
    sizes = tuple(1 if d in dims else x.shape[d] for d in range(x.ndim))
    out_shape = tuple(x.shape[d] for d in rest[:at]) + shape + tuple(x.shape[d] for d in rest[at:])
    if math.prod(out_shape) == 0:
        return C.empty(x.dtype, out_shape, x.device)
    return C.wrap(
        op(
            "gather",
            x,
            _starts(columns, shape),
            offset_dims=offset,
            collapsed_slice_dims=tuple(dims),
            start_index_map=tuple(dims),
            index_vector_dim=len(shape),
            slice_sizes=sizes,
        )
    )


def _put(self, indices, values, accumulate):
    columns, dims, shape, at = _index_plan(self, indices)
    x = C.read(self)
    rest = [d for d in range(x.ndim) if d not in dims]
    full = tuple(x.shape[d] for d in rest[:at]) + shape + tuple(x.shape[d] for d in rest[at:])
    if math.prod(full) == 0:
        return x
    updates = value_of(values, x.dtype, x.device)
    updates = op("broadcast_to", updates, shape=full)
    window = tuple(range(at)) + tuple(range(at + len(shape), len(full)))
    add = "or" if x.dtype == BOOL else "sum"
    return op(
        "scatter",
        x,
        _starts(columns, shape),
        updates,
        update_window_dims=window,
        inserted_window_dims=tuple(dims),
        scatter_dims_to_operand_dims=tuple(dims),
        index_vector_dim=len(shape),
        reducer=add if accumulate else "set",
    )


@lower("index_put")
def index_put(self, indices, values, accumulate=False):
    return C.wrap(_put(self, indices, values, accumulate))


@lower("index_put_", "_index_put_impl_")
def index_put_(self, indices, values, accumulate=False, unsafe=False):
    C.write(self, _put(self, indices, values, accumulate))
    return self


def _along(x, index, dim):
    """Start indices [..., rank] of the elements that `index` names along one dimension, and a scatter's or gather's rest."""
    ids = converted(C.read(index), I64)
    columns = []
    for d in range(x.ndim):
        columns.append(ids if d == dim else op("iota", shape=tuple(ids.shape), dimension=d, dtype=I64, device=x.device))
    return ids, op("stack", *columns, axis=x.ndim)


@lower("gather")
def gather(self, dim, index, *, sparse_grad=False):  # noqa: A002
    x = C.read(self)
    if x.ndim == 0:
        return C.wrap(op("broadcast_to", x, shape=tuple(index.shape)))
    if index.numel() == 0:
        return C.empty(x.dtype, index.shape, x.device)
    if index.dim() == 0:
        return C.wrap(op("reshape", op("take", x, C.read(index), axis=0), shape=()))
    _, starts = _along(x, index, axis_of(dim, x.ndim))
    every = tuple(range(x.ndim))
    return C.wrap(
        op(
            "gather",
            x,
            starts,
            offset_dims=(),
            collapsed_slice_dims=every,
            start_index_map=every,
            index_vector_dim=x.ndim,
            slice_sizes=(1,) * x.ndim,
        )
    )


def _scatter(self, dim, index, src, reducer):
    x = C.read(self)
    if index.numel() == 0:
        return C.wrap(op("reshape", x, shape=tuple(x.shape)))
    if x.ndim == 0:
        flat = _scatter_values(op("reshape", x, shape=(1,)), 0, index.reshape(1), src.reshape(1), reducer)
        return C.wrap(op("reshape", flat, shape=()))
    return C.wrap(_scatter_values(x, axis_of(dim, x.ndim), index, src, reducer))


def _scatter_values(x, dim, index, src, reducer):
    ids, starts = _along(x, index, dim)
    if isinstance(src, torch.Tensor):
        values = C.read(src)
        if tuple(values.shape) != tuple(ids.shape):
            values = op("slice", values, start_indices=(0,) * x.ndim, limit_indices=tuple(ids.shape), strides=(1,) * x.ndim)
        values = converted(values, x.dtype)
    else:
        values = op("broadcast_to", number(src, x.dtype, x.device), shape=tuple(ids.shape))
    every = tuple(range(x.ndim))
    return op(
        "scatter",
        x,
        starts,
        values,
        update_window_dims=(),
        inserted_window_dims=every,
        scatter_dims_to_operand_dims=every,
        index_vector_dim=x.ndim,
        reducer=reducer,
    )


@lower("scatter.src")
def scatter_src(self, dim, index, src):  # noqa: A002
    return _scatter(self, dim, index, src, "set")


@lower("scatter.value")
def scatter_value(self, dim, index, value):  # noqa: A002
    return _scatter(self, dim, index, value, "set")


@lower("scatter_add")
def scatter_add(self, dim, index, src):  # noqa: A002
    return _scatter(self, dim, index, src, "or" if self.dtype == torch.bool else "sum")


_REDUCERS = {"add": "sum", "multiply": "prod", "sum": "sum", "prod": "prod", "amax": "max", "amin": "min"}


@lower("scatter.reduce")
def scatter_reduce(self, dim, index, src, *, reduce):  # noqa: A002
    return _scatter(self, dim, index, src, _REDUCERS[reduce])


@lower("scatter.value_reduce")
def scatter_value_reduce(self, dim, index, value, *, reduce):  # noqa: A002
    return _scatter(self, dim, index, value, _REDUCERS[reduce])


def _index_rows(self, dim, index, source, alpha, reducer):
    x, ids = C.read(self), converted(C.read(index), I64)
    dim = axis_of(dim, x.ndim)
    values = converted(C.read(source), x.dtype)
    if alpha != 1:
        values = op("mul", values, like(alpha, values))
    if x.ndim == 0:
        return op("add", x, op("reshape", values, shape=())) if reducer == "sum" else op("reshape", values, shape=())
    ids = op("reshape", ids, shape=(index.numel(), 1))
    window = tuple(d for d in range(x.ndim) if d != dim)
    return op(
        "scatter",
        x,
        _wrapped(ids, x.shape[dim]),
        values,
        update_window_dims=window,
        inserted_window_dims=(dim,),
        scatter_dims_to_operand_dims=(dim,),
        index_vector_dim=1,
        reducer=reducer,
    )


@lower("index_add")
def index_add(self, dim, index, source, *, alpha=1):  # noqa: A002
    return C.wrap(_index_rows(self, dim, index, source, alpha, "sum"))


@lower("index_copy")
def index_copy(self, dim, index, source):  # noqa: A002
    return C.wrap(_index_rows(self, dim, index, source, 1, "set"))


@lower("index_fill.int_Scalar")
def index_fill(self, dim, index, value):  # noqa: A002
    shape = list(self.shape)
    if shape:
        shape[axis_of(dim, self.dim())] = index.numel()
    filled = torch.full(shape, value, dtype=self.dtype, device=self.device)
    return C.wrap(_index_rows(self, dim, index, filled, 1, "set"))


@lower("take")
def take(self, index):  # noqa: A002
    x = C.read(self)
    return C.wrap(op("take", op("reshape", x, shape=(self.numel(),)), _wrapped(C.read(index), self.numel()), axis=0))


def _triangle(name):
    def function(self, diagonal=0):
        return C.wrap(op(name, C.read(self), diagonal=int(diagonal)))

    return function


lower("tril")(_triangle("tril"))
lower("triu")(_triangle("triu"))


@lower("flip")
def flip(self, dims):
    x = C.read(self)
    if x.ndim == 0 or len(dims) == 0:
        return C.wrap(op("reshape", x, shape=tuple(x.shape)))
    return C.wrap(op("reverse", x, dimensions=dims_of(dims, x.ndim)))


@lower("roll")
def roll(self, shifts, dims=()):
    x = C.read(self)
    if len(dims) == 0:
        flat = op("roll", op("reshape", x, shape=(self.numel(),)), shifts=tuple(shifts), dims=(0,))
        return C.wrap(op("reshape", flat, shape=tuple(x.shape)))
    return C.wrap(op("roll", x, shifts=tuple(shifts), dims=tuple(d % x.ndim for d in dims)))


@lower("repeat")
def repeat(self, repeats):
    x = C.read(self)
    shape = (1,) * (len(repeats) - x.ndim) + tuple(x.shape)
    return C.wrap(op("tile", op("reshape", x, shape=shape), reps=tuple(repeats)))


@lower("constant_pad_nd")
def constant_pad_nd(self, pad, value=0):
    x = C.read(self)
    low, high = [0] * x.ndim, [0] * x.ndim
    for i in range(len(pad) // 2):
        low[x.ndim - 1 - i], high[x.ndim - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return C.wrap(
        op(
            "pad",
            x,
            number(value, x.dtype, x.device),
            edge_padding_low=tuple(low),
            edge_padding_high=tuple(high),
            interior_padding=(0,) * x.ndim,
        )
    )


def _scattered_view(view):
    """The gradient of a view: zeros, into whose view the gradient is written."""

    def function(grad_output, input_sizes, *args):
        out = torch.zeros(input_sizes, dtype=grad_output.dtype, device=grad_output.device)
        view(out, *args).copy_(grad_output)
        return out

    return function


lower("select_backward")(C.select_backward)
lower("slice_backward")(C.slice_backward)
lower("diagonal_backward")(_scattered_view(lambda t, offset, d1, d2: torch.ops.aten.diagonal(t, offset, d1, d2)))


@lower("masked_scatter")
def masked_scatter(self, mask, source):
    x = C.read(self)
    flags = op("broadcast_to", converted(C.read(mask), BOOL), shape=tuple(x.shape))
    flat = op("reshape", flags, shape=(self.numel(),))
    places = op("sub", op("cumsum", converted(flat, I64), axis=0), C.scalar(I64, 1, x.device))
    taken = op("take", op("reshape", C.read(source), shape=(source.numel(),)), places, axis=0)
    return C.wrap(op("where", flags, op("reshape", taken, shape=tuple(x.shape)), x))


_IDENTITIES = {"sum": 0, "prod": 1}


@lower("scatter_reduce.two")
def scatter_reduce_two(self, dim, index, src, reduce, *, include_self=True):  # noqa: A002
    if reduce == "mean" or (self.dim() == 0) or (not include_self and reduce not in _IDENTITIES):
        return _scatter_mean(self, dim, index, src, reduce, include_self)
    base = self
    if not include_self:
        base = scatter_value(self, dim, index, _IDENTITIES[reduce])
    return _scatter(base, dim, index, src, _REDUCERS[reduce])


def _scatter_mean(self, dim, index, src, reduce, include_self):  # noqa: A002
    if reduce == "mean":
        ones = torch.ones_like(self) if include_self else torch.zeros_like(self)
        counts = scatter_add(ones, dim, index, torch.ones_like(src)).clamp_min(1)
        base = self if include_self else scatter_value(self, dim, index, 0)
        total = _scatter(base, dim, index, src, "sum")
        return total / counts if self.is_floating_point() else torch.div(total, counts, rounding_mode="floor")
    base = self
    if not include_self:
        limit = torch.finfo(self.dtype) if self.is_floating_point() else torch.iinfo(self.dtype)
        infinite = self.is_floating_point() and reduce in ("amax", "amin")
        low, high = (float("-inf"), float("inf")) if infinite else (limit.min, limit.max)
        base = scatter_value(self, dim, index, _IDENTITIES.get(reduce, low if reduce == "amax" else high))
    return _scatter(base, dim, index, src, _REDUCERS[reduce])
