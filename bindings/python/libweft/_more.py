"""Functions that give tensors and are no operations: parts, results whose size depends on the data, and NumPy's short
forms."""

from . import _call, _ops
from ._call import Handle, bind, byref, c_int64, c_size_t, c_void_p, check, done
from ._convert import tensor
from ._dtypes import dtype as dtype_of
from ._errors import InvalidArgument, OutOfRange, named_functions
from ._wait import blocking

__all__ = [
    "arange",
    "argwhere",
    "boolean_mask",
    "chunk",
    "concat",
    "dot",
    "empty",
    "empty_like",
    "eye",
    "full_like",
    "masked_select",
    "moveaxis",
    "nonzero",
    "ones",
    "ones_like",
    "outer",
    "reshape",
    "split",
    "stack",
    "swapaxes",
    "transpose",
    "unique",
    "unstack",
    "zeros",
    "zeros_like",
]

_split = bind("weft_split")
_chunk = bind("weft_chunk")
_unstack = bind("weft_unstack")
_nonzero = bind("weft_nonzero")
_masked_select = bind("weft_masked_select")
_boolean_mask = bind("weft_boolean_mask")
_unique = bind("weft_unique")
_unique_results = _call.results("unique", ("values", "inverse", "counts", "indices"))


def as_tensor(x, dtype=None):
    """The tensor itself if it is one, else a new one."""
    if isinstance(x, _call.Tensor):
        return x if dtype is None else x.astype(dtype)
    return tensor(x, dtype)


def owned(addresses):
    return tuple(done(Handle(a)) for a in addresses)


def axis_of(x, axis, operation, name="axis"):
    """An axis of x, counted from the front."""
    number, rank = _call.whole(axis, operation, name), x.ndim
    if not -rank <= number < rank:
        raise OutOfRange("%s: %s is %d, and the shape is %s" % (operation, name, number, list(x.shape)), operation)
    return number % rank


def split(x, sizes, axis=0):
    """Parts of x along an axis: a number of equal parts, or a list of their sizes."""
    x = as_tensor(x)
    axis = axis_of(x, axis, "split")
    if not hasattr(sizes, "__iter__"):
        length, sizes = x.shape[axis], _call.whole(sizes, "split", "sizes")
        if sizes <= 0 or length % sizes:
            raise InvalidArgument(
                "split: %d elements along axis %d are not %s equal parts: give a list of sizes" % (length, axis, sizes)
            )
        sizes = [length // sizes] * sizes
    sizes, count = _call.ints(list(sizes), "split", "sizes")
    out = (c_void_p * count.value)()
    check(_split(_call.mark(), x._h, sizes, count, c_int64(axis), out))
    return owned(out)


def chunk(x, chunks, axis=0):
    """At most so many parts of equal size; the last may be smaller."""
    x, chunks = as_tensor(x), _call.int64(chunks, "chunk", "chunks")
    axis = axis_of(x, axis, "chunk")
    out, count = (c_void_p * max(min(chunks.value, x.shape[axis]), 1))(), c_size_t()
    check(_chunk(_call.mark(), x._h, chunks, c_int64(axis), out, c_size_t(len(out)), byref(count)))
    return owned(out[: count.value])


def unstack(x, axis=0):
    """The slices of x along an axis, without it."""
    x = as_tensor(x)
    if not x.shape:
        raise InvalidArgument("unstack: a scalar has no axes")
    axis = axis_of(x, axis, "unstack")
    out, count = (c_void_p * max(x.shape[axis], 1))(), c_size_t()
    check(_unstack(_call.mark(), x._h, c_int64(axis), out, c_size_t(len(out)), byref(count)))
    return owned(out[: count.value])


def _exact(function, *arguments):
    out = Handle()
    check(blocking(function, _call.mark(), *arguments, byref(out)))
    return done(out)


def argwhere(x):
    """The positions of the elements that are not zero, one a row. Waits: how many there are depends on the data."""
    return _exact(_nonzero, as_tensor(x)._h)


def nonzero(x):
    """The positions of the elements that are not zero, one tensor for each axis. Waits."""
    rows = argwhere(x)
    return unstack(rows, 1) if rows.shape[1] else (rows.reshape(-1),)


def masked_select(x, mask):
    """The elements where the mask is true, in their order. Waits; masked_select_static does not."""
    return _exact(_masked_select, as_tensor(x)._h, as_tensor(mask)._h)


def boolean_mask(x, mask, axis=0):
    """The slices where the mask is true: x[mask]. Waits; boolean_mask_static does not."""
    return _exact(_boolean_mask, as_tensor(x)._h, as_tensor(mask)._h, c_int64(axis))


def unique(x, equal_nan=True):
    """(values, inverse, counts, indices): each value once, in order. Waits; unique_static does not."""
    outs = [Handle() for _ in range(4)]
    check(blocking(_unique, _call.mark(), as_tensor(x)._h, 1 if equal_nan else 0, *[byref(out) for out in outs]))
    return _unique_results(*map(done, outs))


def shape_of(shape):
    """A shape from a size or sizes; what is no size is refused by the operation."""
    return tuple(shape) if hasattr(shape, "__iter__") else (shape,)


def zeros(shape, dtype="f32", device=None):
    """Zeros.

    >>> wf.zeros((2, 2)).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    return _ops.full(shape_of(shape), 0, dtype=dtype, device=device)


def ones(shape, dtype="f32", device=None):
    """Ones."""
    return _ops.full(shape_of(shape), 1, dtype=dtype, device=device)


def zeros_like(x, dtype=None):
    """Zeros of x's shape."""
    return zeros(x.shape, x.dtype if dtype is None else dtype)


def ones_like(x, dtype=None):
    """Ones of x's shape."""
    return ones(x.shape, x.dtype if dtype is None else dtype)


def full_like(x, value, dtype=None):
    """One number in x's shape."""
    if isinstance(value, complex) or (type(value) is int and abs(value) > 2**53):
        return _ops.broadcast_to(tensor(value, x.dtype if dtype is None else dtype), x.shape)
    return _ops.full(x.shape, value, dtype=x.dtype if dtype is None else dtype)


empty, empty_like = zeros, zeros_like


def eye(n, m=None, k=0, dtype="f32"):
    """Ones on a diagonal, zeros elsewhere."""
    n, m, k = (_call.whole(v, "eye", name) for name, v in (("n", n), ("m", n if m is None else m), ("k", k)))
    k = max(-n, min(m, k))  # Further off there is nothing of the diagonal left.
    rows, columns = _ops.iota((n, m), 0), _ops.iota((n, m), 1)
    return _ops.eq(rows + k, columns).astype(dtype)


def arange(start, stop=None, step=1, dtype=None, device=None):
    """Evenly spaced numbers: whole ones are i64, others f32.

    >>> wf.arange(2, 8, 3).tolist()
    [2, 5]
    """
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        dtype = "i64" if all(isinstance(v, int) for v in (start, stop, step)) else "f32"
    kind = dtype_of(dtype)
    if all(isinstance(v, int) for v in (start, stop, step)) and max(abs(start), abs(stop), abs(step)) > 2**53:
        if kind.is_integer and step:  # Beyond what a float holds: in the integers' own arithmetic.
            count = max(-((start - stop) // step), 0)
            made = _ops.iota((count,), 0, dtype=kind, device=device)
            made = made * tensor(step, kind, device) if count > 1 else made
            return made + tensor(start, kind, device) if count else made
        start, stop, step = float(start), float(stop), float(step)
    return _ops.arange(start, stop, step=step, dtype=kind, device=device)


def concat(tensors, axis=0):
    """Tensors one after the other along an axis; None: all of them flat. Different types become the one that holds all."""
    tensors = [as_tensor(t) for t in tensors]
    if axis is None:
        tensors, axis = [t.reshape(-1) for t in tensors], 0
    return _ops.concatenate(common(tensors), dimension=axis)


def common(tensors):
    """The tensors in the element type that holds the values of all."""
    from ._dtypes import promoted

    kind = tensors[0].dtype
    for t in tensors[1:]:
        kind = promoted(kind, t.dtype)
    return [t.astype(kind) for t in tensors]


def stack(inputs, axis=0):
    """Tensors of one shape along a new axis."""
    return _ops.stack(common([as_tensor(t) for t in inputs]), axis=axis)


def moveaxis(x, source, destination):
    """Axes at other places."""
    rank = x.ndim
    sources, targets = (
        [axis_of(x, a, "moveaxis", name) for a in (v if hasattr(v, "__iter__") else [v])]
        for name, v in (("source", source), ("destination", destination))
    )
    order = [a for a in range(rank) if a not in sources]
    for target, origin in sorted(zip(targets, sources)):
        order.insert(target, origin)
    return _ops.transpose(x, order)


def swapaxes(x, a, b):
    """Two axes exchanged."""
    order = list(range(x.ndim))
    a, b = axis_of(x, a, "swapaxes", "a"), axis_of(x, b, "swapaxes", "b")
    order[a], order[b] = order[b], order[a]
    return _ops.transpose(x, order)


def transpose(x, axes=None, *, permutation=None):
    """The axes in another order, by default turned around."""
    axes = axes if permutation is None else permutation
    return as_tensor(x).transpose(*(() if axes is None else axes))


def reshape(x, shape):
    """The elements in another shape; one size may be -1."""
    return as_tensor(x).reshape(shape_of(shape))


def outer(x, y):
    """Products of all pairs of elements of two vectors."""
    return as_tensor(x).reshape(-1, 1) * as_tensor(y).reshape(1, -1)


def dot(x, y):
    """The matrix product, and of scalars the product."""
    x, y = as_tensor(x), as_tensor(y)
    return x * y if not x.shape or not y.shape else _ops.matmul(x, y)


named_functions(globals(), __all__)
