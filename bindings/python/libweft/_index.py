"""NumPy's indexing: integers, slices, None, `...`, arrays of integers and of truth values, and assignment to all of them."""

import math

from . import _ops
from ._convert import tensor
from ._dtypes import BY_NAME
from ._errors import InvalidArgument, InvalidType, OutOfRange
from ._more import argwhere, boolean_mask, unstack
from ._tensor import Tensor

_bool = BY_NAME["bool"]


def _items(x, key):
    """The key as a list with one item for each axis (and None for new ones); lists and arrays become tensors."""
    key = list(key) if isinstance(key, tuple) else [key]
    for i, item in enumerate(key):
        if isinstance(item, (list, range)) or hasattr(item, "__array_interface__") and getattr(item, "shape", ()):
            key[i] = _checked(item)
        elif isinstance(item, bool):
            key[i] = tensor(item)
        elif isinstance(item, tuple):
            key[i] = _checked(list(item))
        elif not (item is None or item is Ellipsis or isinstance(item, slice) or hasattr(item, "__index__")):
            raise OutOfRange("%r is no index: integers, slices, None, ..., and arrays of integers and truth values are" % (item,))
    taken = sum(_axes_of(item) for item in key if item is not Ellipsis)
    if sum(item is Ellipsis for item in key) > 1:
        raise OutOfRange("an index may have one '...' only")
    if taken > x.ndim:
        raise OutOfRange("an index of %d axes is too many: the shape is %s" % (taken, list(x.shape)))
    rest = [slice(None)] * (x.ndim - taken)
    where = next((i for i, item in enumerate(key) if item is Ellipsis), None)
    return key + rest if where is None else key[:where] + rest + key[where + 1 :]


class _Known:
    """An index from the host, whose range can be checked before anything runs."""

    def __init__(self, value, low, high):
        self.value, self.low, self.high = value, low, high


def _checked(item):
    made = tensor(item if not isinstance(item, list) or item else [], None if item is None or len(item) else "i64")
    if made.dtype == _bool:
        return made
    if not made.dtype.is_integer:
        raise OutOfRange("an array of %s is no index: integers and truth values are" % made.dtype)
    if not made.size:
        return _Known(made, 0, -1)
    if isinstance(item, (list, range)):
        flat = []
        stack = [item]
        while stack:
            for v in stack.pop():
                stack.append(v) if isinstance(v, (list, tuple)) else flat.append(v)
        if any(isinstance(v, Tensor) for v in flat):
            return made
        return _Known(made, min(flat), max(flat))
    return _Known(made, int(item.min()), int(item.max()))


def _axes_of(item):
    if item is None:
        return 0
    return item.ndim if isinstance(item, Tensor) and item.dtype == _bool else 1


def _basic(item):
    return item is None or isinstance(item, slice) or (hasattr(item, "__index__") and not isinstance(item, Tensor))


def get(x, key):
    """x[key]"""
    items = _items(x, key)
    if all(_basic(item) for item in items):
        return _slices(x, items)
    masks = [i for i, item in enumerate(items) if isinstance(item, Tensor) and item.dtype == _bool]
    if len(masks) == 1 and all(
        isinstance(item, slice) and item == slice(None) for i, item in enumerate(items) if i != masks[0]
    ):
        mask = _fitting(x, items[masks[0]], masks[0])
        if mask.shape:
            return boolean_mask(x, mask, masks[0])
        if masks[0] == 0:  # One truth value: everything as the only row, or no row.
            return boolean_mask(x.reshape(1, *x.shape), mask.reshape(1), 0)
    return _arrays(x, items)


def _fitting(x, mask, axis):
    """The mask. An axis of no elements fits any, as in NumPy: nothing is chosen."""
    shape = x.shape[axis : axis + mask.ndim]
    if mask.shape == shape:
        return mask
    if len(shape) == mask.ndim and all(m in (0, n) for m, n in zip(mask.shape, shape)):
        return _ops.full(shape, False, dtype=_bool)
    raise OutOfRange(
        "a mask of shape %s does not fit axes %d to %d of shape %s"
        % (list(mask.shape), axis, axis + mask.ndim - 1, list(x.shape))
    )


def _slices(x, items):
    """Integers, slices and new axes alone."""
    starts, limits, strides, turned, shape, axis, whole = [], [], [], [], [], 0, True
    for item in items:
        if item is None:
            shape.append(1)
            continue
        length = x.shape[axis]
        if isinstance(item, slice):
            start, stop, stride = item.indices(length)
            count = len(range(start, stop, stride))
            if stride < 0:
                turned.append(axis)
                start, stride = start + (count - 1) * stride if count else 0, -stride
            starts.append(start if count else 0)
            limits.append(start + (count - 1) * stride + 1 if count else 0)
            strides.append(stride)
            shape.append(count)
            whole = whole and count == length
        else:
            at = item.__index__()
            if not -length <= at < length:
                raise OutOfRange("index %d is out of range: axis %d has %d elements" % (at, axis, length))
            at %= length
            starts.append(at)
            limits.append(at + 1)
            strides.append(1)
            whole = False
        axis += 1
    if not whole:
        x = _ops.slice(x, starts, limits, strides)
    if turned:
        x = _ops.reverse(x, turned)
    return x if tuple(shape) == x.shape and not turned and not whole else _shaped(x, shape)


def _shaped(x, shape):
    return x if x.shape == tuple(shape) else _ops.reshape(x, tuple(shape))


def _spread(x, items):
    """Masks as the integer indices of their true elements; integers beside arrays as arrays. [(item, axis)]"""
    out, axis = [], 0
    for item in items:
        if isinstance(item, Tensor) and item.dtype == _bool:
            item = _fitting(x, item, axis)
            rows = argwhere(item)
            if not item.shape:
                raise InvalidArgument("a scalar truth value is no index here; use where()")
            out += [(part, axis + i) for i, part in enumerate(unstack(rows, 1))]
            axis += item.ndim
            continue
        if isinstance(item, _Known):
            length = x.shape[axis]
            if item.high >= length or item.low < -length:
                raise OutOfRange(
                    "index %d is out of range: axis %d has %d elements"
                    % (item.high if item.high >= length else item.low, axis, length)
                )
            item = item.value
        if isinstance(item, Tensor) and not item.dtype.is_integer:
            raise OutOfRange("a tensor of %s is no index: integers and truth values are" % item.dtype)
        if hasattr(item, "__index__") and not isinstance(item, Tensor):
            length = x.shape[axis]
            if not -length <= item.__index__() < length:
                raise OutOfRange("index %d is out of range: axis %d has %d elements" % (item.__index__(), axis, length))
            item = tensor(item.__index__() % length)
        out.append((item, axis))
        axis += item is not None
    return out


def _arrays(x, items):
    """Arrays of integers, perhaps beside slices: the axes that they index become one, along which rows are taken."""
    spread = _spread(x, items)
    arrays = [(item.astype("i64"), axis) for item, axis in spread if isinstance(item, Tensor)]
    basic = [slice(None) if isinstance(item, Tensor) else item for item, _ in spread]
    # Slices and new axes first; `place` says where each axis of x is afterwards.
    y = _slices(x, basic)
    places = [i for i, (item, _) in enumerate(spread) if isinstance(item, Tensor)]
    together = all(b - a == 1 for a, b in zip(places, places[1:]))
    rest = [i for i in range(y.ndim) if i not in places]
    front = places[0] if together else 0
    lengths = [y.shape[p] for p in places]
    indices = _broadcast([item for item, _ in arrays])
    flat = None
    for index, length in zip(indices, lengths):
        index = _ops.where(_ops.lt(index, 0), index + length, index)
        flat = index if flat is None else flat * length + index
    y = _ops.transpose(y, places + rest)
    y = _ops.reshape(y, (math.prod(lengths), *y.shape[len(places) :]))
    shape = indices[0].shape
    taken = _ops.take(y, flat.reshape(-1))
    taken = _ops.reshape(taken, (*shape, *taken.shape[1:]))
    if front == 0:
        return taken
    order = list(range(len(shape), len(shape) + front)) + list(range(len(shape))) + list(range(len(shape) + front, taken.ndim))
    return _ops.transpose(taken, order)


def _broadcast(tensors):
    shape = broadcast_shape([t.shape for t in tensors])
    return [t if t.shape == shape else _ops.broadcast_to(t, shape) for t in tensors]


def broadcast_shape(shapes):
    """The shape that all can be broadcast to."""
    rank = max(map(len, shapes))
    out = []
    for axis in range(rank):
        sizes = {s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0} - {1}
        if len(sizes) > 1:
            raise OutOfRange("shapes %s cannot be broadcast together" % ", ".join(str(list(s)) for s in shapes))
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


def put(x, key, value):
    """x[key] = value: the tensor takes a new value, of which some elements are others. Gradients flow through."""
    if not isinstance(value, Tensor):
        # Numbers take x's type at once: by way of another they would lose digits.
        exact = isinstance(value, (bool, int, float, list, tuple, range)) or (isinstance(value, complex) and x.dtype.is_complex)
        value = tensor(value, x.dtype) if exact else tensor(value)
    if value.dtype.is_complex and not x.dtype.is_complex:
        raise InvalidType("a complex value cannot be assigned to elements of %s: take its real part" % x.dtype)
    value = value.astype(x.dtype)
    items = _items(x, key)
    if (
        len(items)
        and isinstance(items[0], Tensor)
        and items[0].dtype == _bool
        and value.ndim == 0
        and all(isinstance(item, slice) and item == slice(None) for item in items[1:])
    ):
        mask = items[0]
        mask = _fitting(x, mask, 0)
        mask = mask.reshape(*mask.shape, *[1] * (x.ndim - mask.ndim))
        x.copy_from(_ops.where(mask, value, x))
        return
    if all(_basic(item) for item in items) and all(item.step in (None, 1) for item in items if isinstance(item, slice)):
        _put_box(x, items, value)
        return
    places = get(_ops.reshape(_ops.iota((x.size,), 0, dtype="i64"), x.shape), key)
    try:
        value = value if value.shape == places.shape else _ops.broadcast_to(value, places.shape)
    except InvalidArgument:
        raise InvalidArgument(
            "a value of shape %s cannot be assigned to %s elements" % (list(value.shape), list(places.shape))
        ) from None
    flat = _ops.scatter(
        x.reshape(-1),
        places.reshape(-1, 1),
        value.reshape(-1),
        update_window_dims=[],
        inserted_window_dims=[0],
        scatter_dims_to_operand_dims=[0],
        index_vector_dim=1,
        reducer="set",
    )
    x.copy_from(flat.reshape(x.shape))


def _put_box(x, items, value):
    """Assignment to a box of neighbouring elements."""
    starts, box, shown, axis = [], [], [], 0
    for item in items:
        if item is None:
            shown.append(1)
            continue
        length = x.shape[axis]
        if isinstance(item, slice):
            start, stop, _ = item.indices(length)
            starts.append(start)
            box.append(max(stop - start, 0))
            shown.append(box[-1])
        else:
            at = item.__index__()
            if not -length <= at < length:
                raise OutOfRange("index %d is out of range: axis %d has %d elements" % (at, axis, length))
            starts.append(at % length)
            box.append(1)
        axis += 1
    if value.shape != tuple(shown):
        while value.ndim > len(shown) and value.shape[0] == 1:
            value = value.reshape(value.shape[1:])
        try:
            value = _ops.broadcast_to(value, shown)
        except InvalidArgument:
            raise InvalidArgument(
                "a value of shape %s cannot be assigned to %s elements" % (list(value.shape), shown)
            ) from None
    value = _shaped(value, box)
    if 0 in box:
        return
    if tuple(box) == x.shape:
        x.copy_from(value)
        return
    x.copy_from(_ops.dynamic_update_slice(x, value, [tensor(s, "i32") for s in starts]))
