"""Nested arguments: dicts, lists, tuples and modules of tensors as one flat list, and back."""

from . import _call
from ._errors import InvalidType


class Leaf:
    """The place of a tensor."""

    __slots__ = ()

    def __repr__(self):
        return "*"


LEAF = Leaf()


class Fixed:
    """A value that is part of the program: text, whole numbers, truth values, None. Two are equal if type and value are."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(other) is Fixed and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self):
        return hash((type(self.value), self.value))

    def __repr__(self):
        return repr(self.value)


def flatten(tree, numbers=True):
    """(leaves, structure). Floats and complex numbers are tensors too, unless `numbers` is False."""
    leaves = []
    return leaves, _flatten(tree, leaves, numbers)


def _flatten(tree, leaves, numbers):
    if isinstance(tree, _call.Tensor):
        leaves.append(tree)
        return LEAF
    if isinstance(tree, dict):
        return (type(tree), tuple(tree), tuple(_flatten(v, leaves, numbers) for v in tree.values()))
    if isinstance(tree, (list, tuple)):
        return (type(tree), None, tuple(_flatten(v, leaves, numbers) for v in tree))
    if hasattr(tree, "_weft_children"):
        names, values = tree._weft_children()
        return (
            tree._weft_rebuild,
            (type(tree), names),
            tuple(_flatten(v, leaves, False) for v in values),
        )  # Its numbers are settings.
    if isinstance(tree, (float, complex)) and numbers or hasattr(tree, "__array_interface__") or hasattr(tree, "__dlpack__"):
        from ._convert import tensor

        leaves.append(tensor(tree))
        return LEAF
    try:
        hash(tree)
    except TypeError:
        raise InvalidType(
            "%s is neither a tensor, a list, tuple, dict or module of them, nor a value that can be part of a program "
            "(hashable)" % type(tree).__name__
        ) from None
    return Fixed(tree)


def unflatten(structure, leaves):
    """The nested values again, with other leaves."""
    return _unflatten(structure, iter(leaves))


def _unflatten(structure, leaves):
    if structure is LEAF:
        return next(leaves)
    if type(structure) is Fixed:
        return structure.value
    kind, keys, children = structure
    values = [_unflatten(child, leaves) for child in children]
    if not isinstance(kind, type):
        return kind(keys[1], values)
    if issubclass(kind, dict):
        return dict(zip(keys, values)) if kind is dict else kind(zip(keys, values))
    if kind in (list, tuple):
        return kind(values)
    return kind(*values)  # A named tuple.


def map_leaves(function, tree):
    leaves, structure = flatten(tree, numbers=False)
    return unflatten(structure, [function(leaf) for leaf in leaves])


def signature(structure, leaves):
    """Two calls of a function with one signature are the same program."""
    return key(structure), tuple((t.dtype, t.shape) for t in leaves)


def key(structure):
    """The structure as something that can be compared: modules by what they consist of."""
    if structure is LEAF or type(structure) is Fixed:
        return structure
    kind, keys, children = structure
    return (kind if isinstance(kind, type) else "module", keys, tuple(map(key, children)))


def count(structure):
    if structure is LEAF:
        return 1
    return 0 if type(structure) is Fixed else sum(map(count, structure[2]))
