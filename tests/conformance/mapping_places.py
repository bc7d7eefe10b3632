"""mapping.py's entries for elements at computed places, diagonals, windows, strides, and what turns or joins tensors. See there."""
import math

import numpy as np
import torch

from mapping import NAMES, Refused, argument, maps


def axis(dim, x):
    """Of a tensor without dimensions as of a row of one element."""
    return int(dim) % max(1, x.ndim)


def counting(dtype):
    """PyTorch's sums of bools are whether any is true, its products whether all are: those of integers, as bools."""
    return torch.int32 if dtype == torch.bool else dtype


# --- along an axis ---------------------------------------------------------------------------------------------------

@maps("gather", "take_along_dim")
def gather(t, s):
    x, (dim, index) = s.input, s.args if s.name == "gather" else (argument(s, 1, "dim"), s.args[0])
    if dim is None:
        return t.op("take_along_axis", t.op("reshape", t(x), shape=[x.numel()]), t(index.reshape(-1)), axis=0)
    if s.name == "take_along_dim":
        shape = list(torch.broadcast_shapes(*[[1 if d == axis(dim, x) else n for d, n in enumerate(v.shape)] for v in (x, index)]))
        wide = lambda v: [v.shape[d] if d == axis(dim, x) else n for d, n in enumerate(shape)]
        index = torch.where(index < 0, index + x.shape[dim], index).expand(wide(index)).contiguous()
        return t.op("take_along_axis", t.op("broadcast_to", t(x), shape=wide(x)), t(index), axis=axis(dim, x))
    if index.ndim == x.ndim:
        return t.op("take_along_axis", t(x), t(index), axis=axis(dim, x))
    row = t.op("take", t.op("reshape", t(x), shape=[x.numel()]), t(index.reshape(-1)))  # of one element, or nothing of anything
    return t.op("reshape", row, shape=list(index.shape))


@maps("scatter", "scatter_add", "scatter_reduce/sum", "scatter_reduce/prod", "scatter_reduce/mean", "scatter_reduce/amax", "scatter_reduce/amin")
def scatter(t, s):
    dim, index = s.args[:2]
    source = argument(s, 2, "src", s.kwargs.get("value"))
    how = {"scatter": {"add": "sum", "multiply": "prod"}.get(s.kwargs.get("reduce"), "set"), "scatter_add": "sum"}.get(
        s.name, s.variant.replace("am", "m"))
    if not isinstance(source, torch.Tensor):
        source = torch.full(index.shape, source, dtype=s.input.dtype)
    t.no_gradient = s.name == "scatter" and "reduce" in s.kwargs
    up = counting(s.input.dtype)
    return t.convert(t.op("scatter_reduce", t(s.input, up), t(index), t(source, up), reducer=how, axis=axis(dim, s.input),
                          include_self=s.kwargs.get("include_self", True)), s.input.dtype)


@maps("index_add", "index_copy", "index_fill", "index_reduce/prod", "index_reduce/mean", "index_reduce/amax", "index_reduce/amin")
def index_into(t, s):
    dim, index, source = s.args[:3]
    if not isinstance(source, torch.Tensor):
        source = torch.tensor(source, dtype=s.input.dtype)
    more = {"alpha": float(s.kwargs["alpha"])} if "alpha" in s.kwargs else {}
    if s.name == "index_reduce":
        more = {"reducer": s.variant.replace("am", "m"), "include_self": s.kwargs.get("include_self", True)}
    up = counting(s.input.dtype)
    return t.convert(t.op(s.name, t(s.input, up), t(index), t(source, up), axis=axis(dim, s.input), **more), s.input.dtype)


# --- any place -------------------------------------------------------------------------------------------------------

@maps("index_put")
def index_put(t, s):
    places, values = s.args[:2]
    if any(i.dtype == torch.bool for i in places):
        places = [j for i in places for j in (i.nonzero(as_tuple=True) if i.dtype == torch.bool else (i,))]
    up = counting(s.input.dtype)
    return t.convert(t.op("index_put", t(s.input, up), t(values, up), [t(i) for i in places], dims=list(range(len(places))),
                          accumulate=bool(argument(s, 2, "accumulate", False))), s.input.dtype)


@maps("__getitem__")
def getitem(t, s):
    """Slices, None and integers one after the other; tensors of places together, a mask as the places where it is true."""
    keys = s.args[0] if isinstance(s.args[0], tuple) else (s.args[0],)
    keys = [torch.tensor(k) if isinstance(k, list) else k for k in keys]
    used = sum(k.ndim if isinstance(k, torch.Tensor) and k.dtype == torch.bool else k is not None and k is not Ellipsis for k in keys)
    at = next((i for i, k in enumerate(keys) if k is Ellipsis), len(keys))
    keys = [*keys[:at], *[slice(None)] * (s.input.ndim - used), *keys[at + 1:]]
    x, shape, dim, places, dims, integers = t(s.input), list(s.input.shape), 0, [], [], []
    for k in keys:
        if k is None:
            x, shape = t.op("expand_dims", x, dims=[dim]), [*shape[:dim], 1, *shape[dim:]]
        elif isinstance(k, slice):
            start, stop, step = k.indices(shape[dim])
            x = t.op("slice", x, start_indices=[start if d == dim else 0 for d in range(len(shape))], strides=[step if d == dim else 1 for d in range(len(shape))],
                     limit_indices=[max(start, stop) if d == dim else n for d, n in enumerate(shape)])
            shape[dim] = len(range(start, stop, step))
        elif isinstance(k, torch.Tensor) and k.dtype == torch.bool:
            found = k.nonzero(as_tuple=True)
            places, dims, dim = [*places, *found], [*dims, *range(dim, dim + k.ndim)], dim + k.ndim - 1
        else:
            integers += [] if isinstance(k, torch.Tensor) else [dim]
            places, dims = [*places, torch.as_tensor(k)], [*dims, dim]
        dim += 1
    return t.op("index", x, [t(i) for i in places], dims=dims) if places else x


@maps("put")
def put(t, s):
    up = counting(s.input.dtype)
    return t.convert(t.op("put", t(s.input, up), t(s.args[0]), t(s.args[1], up), accumulate=bool(argument(s, 2, "accumulate", False))), s.input.dtype)


@maps("masked_scatter")
def masked_scatter(t, s):
    shape = list(torch.broadcast_shapes(s.input.shape, s.args[0].shape))
    return t.op("masked_scatter", t.op("broadcast_to", t(s.input), shape=shape), t(s.args[0]), t(s.args[1]))


# --- diagonals, slices, windows --------------------------------------------------------------------------------------

@maps("diag", "diagflat")
def diag(t, s):
    x = t(s.input) if s.name == "diag" else t.op("reshape", t(s.input), shape=[s.input.numel()])
    return t.op("diag", x, offset=argument(s, 0, "offset" if s.name == "diagflat" else "diagonal", 0))


@maps("diagonal", "diagonal_copy", "linalg.diagonal", "diag_embed", "diagonal_scatter")
def diagonal(t, s):
    first, name = int(s.name == "diagonal_scatter"), s.name.replace("_copy", "").replace("linalg.", "")
    ends = (-2, -1) if s.name in ("linalg.diagonal", "diag_embed") else (0, 1)
    where = [argument(s, first + i, n, d) for i, (n, d) in enumerate((("offset", 0), ("dim1", ends[0]), ("dim2", ends[1])))]
    return t.op(name, t(s.input), *([t(s.args[0])] if first else []), offset=where[0], axis1=where[1], axis2=where[2])


@maps("select_scatter", "slice_scatter")
def slices(t, s):
    if s.name == "select_scatter":
        return t.op(s.name, t(s.input), t(s.args[0]), axis=argument(s, 1, "dim"), index=argument(s, 2, "index"))
    given = {own: argument(s, i + 1, name) for i, (own, name) in enumerate((("axis", "dim"), ("start", "start"), ("limit", "end"), ("step", "step")))}
    return t.op(s.name, t(s.input), t(s.args[0]), **given)


@maps("as_strided", "as_strided_copy", "as_strided_scatter", "as_strided/partial_views")
def strided(t, s):
    first = int(s.name == "as_strided_scatter")
    if s.input.storage_offset() or not s.input.is_contiguous() or s.input.untyped_storage().nbytes() != s.input.nbytes:
        raise Refused("storage")
    t.no_gradient = bool(first)  # PyTorch's of x is that of what is overwritten
    size, stride = ([n] if isinstance(n, int) else list(n) for n in s.args[first:first + 2])
    operands = [t(s.input), *([t(s.args[0])] if first else [])]
    return t.op("as_strided_scatter" if first else "as_strided", *operands, shape=size, strides=stride, offset=argument(s, first + 2, "storage_offset") or 0)


@maps("unfold", "unfold_copy")
def unfold(t, s):
    return t.op("unfold", t(s.input), axis=axis(s.args[0], s.input), size=s.args[1], step=s.args[2])


# --- turned and joined -----------------------------------------------------------------------------------------------

@maps("rot90")
def rot90(t, s):
    return t.op("rot90", t(s.input), k=argument(s, 0, "k", 1), dims=list(argument(s, 1, "dims", (0, 1))))


@maps("block_diag")
def block_diag(t, s):
    xs = [s.input, *s.args]
    dtype = s.result.dtype
    return t.op("block_diag", [t(x, dtype) for x in xs])


def grid(t, xs, indexing="ij"):
    """Each row along a dimension of its own; "xy" has the first two the other way round."""
    order = [1, 0, *range(2, len(xs))] if indexing == "xy" and len(xs) > 1 else list(range(len(xs)))
    sizes = [max(1, x.numel()) if x.ndim == 0 else x.numel() for x in xs]
    shape = [sizes[d] for d in order]
    return [t.op("broadcast_in_dim", t.op("reshape", t(x), shape=[sizes[i]]), shape=shape, broadcast_dimensions=[order.index(i)]) for i, x in enumerate(xs)]


@maps("meshgrid/list_of_tensors", "meshgrid/variadic_tensors")
def meshgrid(t, s):
    xs = list(s.input) if isinstance(s.input, (list, tuple)) else [s.input, *s.args]
    return grid(t, xs, s.kwargs.get("indexing", "ij"))


@maps("cartesian_prod")
def cartesian_prod(t, s):
    xs = [s.input, *s.args]
    return t.op("cartesian_prod", [t(x) for x in xs]) if len(xs) > 1 else t(s.input)


@maps("flatten", "clone", "contiguous", "positive", "resolve_conj", "resolve_neg", "alias_copy", "conj", "conj_physical", "real", "imag")
def same(t, s):
    """Of real numbers: the elements in their order."""
    if s.input.is_complex() and s.name in ("conj", "conj_physical", "real", "imag"):
        return t.op(s.name.split("_")[0], t(s.input))
    return t.op("reshape", t(s.input), shape=list(s.result.shape))


@maps("sum_to_size", sums=True)
def sum_to_size(t, s):
    shape = list(s.result.shape)
    lead = s.input.ndim - len(shape)
    dims = [d for d in range(s.input.ndim) if d < lead or shape[d - lead] != s.input.shape[d]]
    x = t(s.input, s.result.dtype)
    return t.op("reshape", t.op("sum", x, dims=dims) if dims else x, shape=shape)


@maps("float_power")
def float_power(t, s):
    return t.op("pow", t(s.input, s.result.dtype), t(s.args[0], s.result.dtype))


@maps("isreal")
def isreal(t, s):
    if s.input.is_complex():
        return t.op("eq", t.op("imag", t(s.input)), t(0.0, s.input.real.dtype))
    return t.op("full", shape=list(s.input.shape), value=1.0, dtype=NAMES[torch.bool])


@maps("resize_", "resize_as_")
def resized(t, s):
    if s.result.numel() != s.input.numel():
        raise Refused("storage")
    return t.op("reshape", t(s.input), shape=list(s.result.shape))


@maps("gradient", sums=True)
def gradient(t, s):
    """Differences in the middle, and of first or second order at the ends; one result a dimension."""
    dims, spacing, order = s.kwargs.get("dim"), s.kwargs.get("spacing"), s.kwargs.get("edge_order", 1)
    dims = range(s.input.ndim) if dims is None else [dims] if isinstance(dims, int) else dims
    values, dtype = [], s.result[0].dtype if isinstance(s.result, list) else s.result.dtype
    for i, d in enumerate(dims):
        given = spacing[i] if isinstance(spacing, (list, tuple)) else 1.0 if spacing is None else spacing
        places = given.detach().real.double() if isinstance(given, torch.Tensor) and given.ndim else torch.arange(s.input.shape[d], dtype=torch.float64) * float(given)
        slopes = np.gradient(np.eye(len(places)), places.numpy(), axis=0, edge_order=order)  # what each element gives to each slope
        last = d % s.input.ndim
        moved = [a for a in range(s.input.ndim) if a != last] + [last]
        up = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        y = t.op("matmul", t.op("transpose", t(s.input, up), permutation=moved),
                 t.convert(t.constant(slopes.T), up))
        values.append(t.convert(t.op("transpose", y, permutation=[moved.index(a) for a in range(s.input.ndim)]), dtype))
    return values
