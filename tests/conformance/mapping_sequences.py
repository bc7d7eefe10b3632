"""mapping.py's entries for what goes along an axis or over positions: running sums, ranges, triangles, what moves or repeats
elements, sorting and searching, and results as large as the data say. Those are asked for by the size that PyTorch found."""
import torch

from mapping import NAMES, argument, axis_of, maps, shaped


def typed(value, dtype):
    value.dtype = dtype
    return value


# --- along an axis ---------------------------------------------------------------------------------------------------

@maps("cumsum", "cumprod", sums=True)
def running(t, s):
    x, dtype = s.input, s.kwargs.get("dtype")
    if dtype is None and not x.is_floating_point() and not x.is_complex():
        dtype = torch.int64
    return shaped(t, s, t.op(s.name, t(x, dtype), axis=axis_of(argument(s, 0, "dim"), x.ndim)))


@maps("cummax", "cummin")
def running_best(t, s):
    values, indices = t.op(s.name, t(s.input), axis=axis_of(argument(s, 0, "dim"), s.input.ndim))
    return [shaped(t, s, v, s.result[0]) for v in (values, typed(indices, "i32"))]


@maps("diff")
def diff(t, s):
    n, axis = argument(s, 0, "n", 1), axis_of(argument(s, 1, "dim", -1), s.input.ndim)
    around = [argument(s, 2, "prepend"), s.input, argument(s, 3, "append")]
    parts = [t(x) for x in around if x is not None] if n > 0 else [t(s.input)]  # PyTorch leaves them out with n = 0
    return t.op("diff", parts[0] if len(parts) == 1 else t.op("concatenate", parts, dimension=axis), n=n, axis=axis)


# --- ranges and triangles --------------------------------------------------------------------------------------------

@maps("arange")
def arange(t, s):
    numbers = [s.input, *s.args, *([s.kwargs["end"]] if "end" in s.kwargs else [])]
    start, stop, step = (0, *numbers, 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    if not s.result.is_floating_point():  # start and step are cut off, after they have been counted by
        start, step, count = int(start), int(step), len(s.result)
        row = t.op("mul", t.op("iota", shape=[count], dimension=0, dtype="i64"), t(step, torch.int64))
        return t.convert(t.op("add", row, t(start, torch.int64)), s.result.dtype)
    return t.op("arange", start=float(start), stop=float(stop), step=float(step), dtype=NAMES[s.result.dtype])


def whole_ends(t, start, stop, count):
    """PyTorch's places between integers: in f64, counted from the nearer end."""
    of = lambda x: t(float(x), torch.float64)
    if count == 1:
        return t.op("full", shape=[1], value=float(start), dtype="f64")
    row, step = t.op("iota", shape=[count], dimension=0, dtype="f64"), of((stop - start) / (count - 1) if count else 0)
    up, down = t.op("add", of(start), t.op("mul", step, row)), t.op("sub", of(stop), t.op("mul", step, t.op("sub", of(count - 1), row)))
    return t.op("where", t.op("lt", row, of(count // 2)), up, down)


@maps("linspace", "linspace/tensor_overload")
def linspace(t, s):
    start, stop = complex(s.input), complex(s.args[0])
    if not s.result.is_floating_point() and not s.result.is_complex():
        return t.convert(whole_ends(t, int(start.real), int(stop.real), s.args[1]), s.result.dtype)
    ends = {"start_imaginary": start.imag, "stop_imaginary": stop.imag} if s.result.is_complex() else {}
    return t.op("linspace", start=start.real, stop=stop.real, count=s.args[1], dtype=NAMES[s.result.dtype], **ends)


@maps("tril", "triu")
def triangle(t, s):
    return t.op(s.name, t(s.input), diagonal=argument(s, 0, "diagonal", 0))


# --- moved and repeated ----------------------------------------------------------------------------------------------

def many(x):
    return [x] if isinstance(x, int) else list(x)


@maps("roll")
def roll(t, s):
    dims = argument(s, 1, "dims")
    return t.op("roll", t(s.input), shifts=many(argument(s, 0, "shifts")), dims=many(dims) if dims not in (None, ()) else None)


@maps("tile", "repeat")
def tile(t, s):
    return t.op("tile", t(s.input), reps=many(s.args[0] if len(s.args) == 1 else s.args))


@maps("repeat_interleave")
def repeat_interleave(t, s):
    repeats, axis, x = argument(s, 0, "repeats"), argument(s, 1, "dim"), t(s.input)
    if isinstance(repeats, torch.Tensor):
        if repeats.numel() != 1:
            x = x if axis is not None else t.op("reshape", x, shape=[s.input.numel()])
            return t.op("repeat_interleave_static", x, t(repeats), total=int(repeats.sum()), axis=0 if axis is None else axis_of(axis, s.input.ndim))
        repeats = int(repeats)
    if axis is None:
        return t.op("repeat_interleave", t.op("reshape", x, shape=[s.input.numel()]), repeats=repeats, axis=0)
    return t.op("repeat_interleave", x, repeats=repeats, axis=axis_of(axis, s.input.ndim))


# --- sorting and searching -------------------------------------------------------------------------------------------

def any_equal(x, axis):
    x = x.sort(axis)[0].movedim(axis, 0) if x.ndim else x.reshape(1)
    return bool((x[1:] == x[:-1]).any())


def elements_at(t, s, indices, axis):
    """PyTorch leaves open which of equal elements comes first: the elements at the places stand for the places, and must be the values."""
    t.no_gradient = True
    s.process = (lambda r: s.input.gather(axis, r)) if s.name == "argsort" else lambda r: [r[0], r[0]]
    return t.op("take_along_axis", t(s.input), typed(indices, "i32"), axis=axis)


@maps("sort", "argsort", "msort")
def sort(t, s):
    x, axis = s.input, axis_of(argument(s, 0, "dim", 0 if s.name == "msort" else -1), s.input.ndim)
    how = {"axis": axis, "descending": bool(argument(s, 1, "descending", False))}
    values, indices = t.op("sort", t(x), **how), shaped(t, s, typed(t.op("argsort", t(x), **how), "i32"), x)
    if s.name == "msort":
        t.no_gradient = any_equal(x, axis)
    elif not s.kwargs.get("stable") and any_equal(x, axis):
        indices = elements_at(t, s, indices, axis)
    return {"sort": [values, indices], "argsort": [indices], "msort": [values]}[s.name]


@maps("topk")
def topk(t, s):
    axis = axis_of(argument(s, 1, "dim", -1), s.input.ndim)
    values, indices = t.op("top_k", t(s.input), k=s.args[0], axis=axis, largest=bool(argument(s, 2, "largest", True)))
    return [values, elements_at(t, s, indices, axis) if any_equal(s.input, axis) else typed(indices, "i32")]


@maps("searchsorted")
def searchsorted(t, s):
    row, values = s.input, s.args[0]
    if s.kwargs.get("sorter") is not None:
        row = row.take_along_dim(s.kwargs["sorter"], -1)
    right = s.kwargs.get("right", False) or s.kwargs.get("side") == "right"
    return typed(t.op("searchsorted", t(row), t(values, row.dtype), right=right), "i32")


@maps("isin")
def isin(t, s):
    dtype = torch.result_type(s.input, s.args[0])
    found = typed(t.op("isin", t(s.input, dtype), t(s.args[0], dtype)), "i1")
    return t.op("bitwise_not", found) if s.kwargs.get("invert") else found


@maps("bincount", sums=True)
def bincount(t, s):
    weights = argument(s, 0, "weights")
    counts = t.op("bincount", t(s.input), t(weights, s.result.dtype) if weights is not None else None, length=len(s.result))
    return typed(counts, "i32" if weights is None else NAMES[s.result.dtype])


# --- as large as the data say ----------------------------------------------------------------------------------------

@maps("nonzero", "nonzero_static", "argwhere")
def nonzero(t, s):
    rank, apart = s.input.ndim, bool(s.kwargs.get("as_tuple"))
    x, rank = (t(s.input), rank) if rank or not apart else (t.op("reshape", t(s.input), shape=[1]), 1)
    size = (s.result if not isinstance(s.result, list) else s.result[0]).shape[0]
    found = typed(t.op("nonzero_static", x, size=size, fill=s.kwargs.get("fill_value", -1))[0], "i32")
    if not apart:
        return found
    return [t.op("reshape", t.op("slice_in_dim", found, axis=1, start=i, limit=i + 1), shape=[size]) for i in range(rank)]


@maps("masked_select")
def masked_select(t, s):
    return t.op("masked_select_static", t(s.input), t(s.args[0]), size=s.result.numel())[0]


@maps("unique", "unique_consecutive")
def unique(t, s):
    """As many as PyTorch found: elements, or slices along an axis."""
    dim, found = s.kwargs.get("dim"), s.result[0] if isinstance(s.result, list) else s.result
    size, more = found.numel() if dim is None else found.shape[dim], {"equal_nan": False} if s.name == "unique" else {}
    values, _, inverse, counts, *_ = t.op(s.name + "_static", t(s.input), size=size, axis=dim, **more)
    wanted = [values]
    wanted += [typed(inverse, "i32")] if s.kwargs.get("return_inverse") else []
    return wanted + ([typed(counts, "i32")] if s.kwargs.get("return_counts") else [])
