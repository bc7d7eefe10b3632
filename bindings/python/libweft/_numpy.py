"""What NumPy's users call by these names: stacking, splitting, grids of indices, histograms."""

from numbers import Integral

from . import _ops
from ._convert import tensor
from ._errors import InvalidArgument
from ._more import arange, as_tensor, concat, eye, full_like, moveaxis, split, zeros

isnan, isinf, isfinite = _ops.is_nan, _ops.is_inf, _ops.is_finite


def _at_least(x, rank):
    """The tensor with axes in front, as many as it lacks."""
    x = as_tensor(x)
    return x.reshape((1,) * (rank - x.ndim) + x.shape)


def vstack(tensors):
    """Rows, or tensors along their first axis, below each other.

    >>> wf.vstack([wf.arange(2), [5, 6]]).tolist()
    [[0, 1], [5, 6]]
    """
    return concat([_at_least(t, 2) for t in tensors], 0)


def hstack(tensors):
    """Tensors beside each other: along the second axis, vectors along their only one."""
    tensors = [_at_least(t, 1) for t in tensors]
    return concat(tensors, 1 if tensors[0].ndim > 1 else 0)


def column_stack(tensors):
    """Vectors as the columns of a matrix, matrices beside each other."""
    tensors = [as_tensor(t) for t in tensors]
    return concat([t if t.ndim > 1 else t.reshape(-1, 1) for t in tensors], 1)


def dstack(tensors):
    """Tensors behind each other, along the third axis."""
    tensors = [_at_least(t, 2) for t in tensors]
    return concat([t if t.ndim > 2 else t.reshape(*t.shape, 1) for t in tensors], 2)


def array_split(x, sections, axis=0):
    """So many parts, the first ones longer by one where they are not equal; or parts that end before each of some indices."""
    x = as_tensor(x)
    length = x.shape[axis]
    if hasattr(sections, "__index__"):
        if sections < 1:
            raise InvalidArgument("array_split: %d parts were asked for; there is at least one" % sections)
        small, more = divmod(length, int(sections))
        sizes = [small + 1] * more + [small] * (int(sections) - more)
    else:
        ends = [min(max(e + length if e < 0 else e, 0), length) for e in sections] + [length]
        sizes = [max(end - begin, 0) for begin, end in zip([0] + ends[:-1], ends)]
    return list(split(x, sizes, axis))


def _split_along(name, x, sections, axis):
    x = as_tensor(x)
    if hasattr(sections, "__index__") and x.shape[axis] % sections:
        raise InvalidArgument("%s: %d elements are not %d equal parts" % (name, x.shape[axis], sections))
    return array_split(x, sections, axis)


def hsplit(x, sections):
    """Equal parts, or parts that end before some indices, along the second axis; of a vector along its only one."""
    return _split_along("hsplit", x, sections, 1 if as_tensor(x).ndim > 1 else 0)


def vsplit(x, sections):
    """Equal parts, or parts that end before some indices, along the first axis."""
    return _split_along("vsplit", x, sections, 0)


def fromfunction(function, shape, dtype="f32"):
    """function of the index along each axis: one call with tensors of this shape.

    >>> wf.fromfunction(lambda i, j: i - j, (2, 2), dtype=int).tolist()
    [[0, -1], [1, 0]]
    """
    made = function(*[_ops.iota(tuple(shape), axis).astype(dtype) for axis in range(len(shape))])
    return made if hasattr(made, "shape") else _ops.broadcast_to(tensor(made), tuple(shape))


def ix_(*vectors):
    """Vectors along one axis each, so that they index, and add up over, all combinations; of truth values the places that
    hold."""
    out = []
    for axis, vector in enumerate(vectors):
        vector = as_tensor(vector)
        if vector.ndim != 1:
            raise InvalidArgument("ix_: vectors are wanted, and one has shape %s" % (list(vector.shape),))
        if vector.dtype == "bool":
            from ._more import nonzero

            (vector,) = nonzero(vector)
        out.append(vector.reshape([-1 if a == axis else 1 for a in range(len(vectors))]))
    return tuple(out)


def meshgrid(*arrays, indexing="xy"):
    """Vectors as the coordinates of a grid's points; "xy" has the first one along the second axis."""
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[:2] = [1, 0]
    shape = tuple(arrays[i].shape[0] for i in order)
    return [
        _ops.broadcast_to(a.reshape([-1 if order[n] == i else 1 for n in range(len(arrays))]), shape)
        for i, a in enumerate(arrays)
    ]


def identity(n, dtype="f32"):
    """The unit matrix."""
    return eye(n, dtype=dtype)


def ravel(x):
    """All elements as a vector."""
    return as_tensor(x).reshape(-1)


def flip(x, axis=None):
    """The elements the other way round along an axis, some, or all."""
    x = as_tensor(x)
    axes = range(x.ndim) if axis is None else (axis,) if hasattr(axis, "__index__") else axis
    axes = [a % x.ndim for a in axes]
    return _ops.reverse(x, axes) if axes else x


def repeat(x, repeats, axis=None):
    """Each element along an axis so many times; without an axis of all of them as a vector.

    >>> wf.repeat(wf.arange(2), 2).tolist()
    [0, 0, 1, 1]
    """
    x = as_tensor(x)
    if axis is None:
        x, axis = x.reshape(-1), 0
    if isinstance(repeats, int):
        return _ops.repeat_interleave(x, repeats, axis=axis)
    counts = _ops.broadcast_to(as_tensor(repeats), (x.shape[axis],)).tolist()
    order = [i for i, n in enumerate(counts) for _ in range(n)]
    if not order:
        axis %= x.ndim
        return _ops.full((*x.shape[:axis], 0, *x.shape[axis + 1 :]), 0, dtype=x.dtype)
    return _ops.take(x, tensor(order, "i64"), axis=axis)


def inner(x, y):
    """Sums of products along the last axis of both."""
    x, y = as_tensor(x), as_tensor(y)
    if not x.shape or not y.shape:
        return x * y
    return _ops.matmul(x, moveaxis(y, -1, -2) if y.ndim > 1 else y)


def vdot(x, y):
    """The sum of products of all elements; complex ones of x are conjugated."""
    x, y = ravel(x), ravel(y)
    return _ops.sum((_ops.conj(x) if x.dtype.is_complex else x) * y)


def histogram(x, bins=10, range=None, density=False, weights=None):
    """(counts, edges): how many elements, or the sum of their weights, lie between edges, the last of which belongs to the last
    interval. bins is how many equally spaced edges there are less one, over the range, by default the elements' own, or the edges.
    Counts are i64, those of weights have their type, and with density their area is 1."""
    x = ravel(x)
    x = x if x.dtype.is_float else x.astype("f32")
    weights = None if weights is None else ravel(weights)
    if not isinstance(bins, Integral):
        edges = as_tensor(bins).astype(x.dtype)
    else:
        low, high = (_ops.min(x), _ops.max(x)) if range is None else (full_like(x[0], float(v)) for v in range)
        half = (low == high).astype(x.dtype) * 0.5  # a range of one number is one wide around it
        low, high = low - half, high + half
        edges = low + (high - low) * (arange(bins + 1).astype(x.dtype) / bins)
    counts = _ops.histogram(x, edges, weights, density=density)
    return counts if density or weights is not None else counts.astype("i64"), edges
