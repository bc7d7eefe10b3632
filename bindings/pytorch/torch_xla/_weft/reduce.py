"""Reductions, scans, sorting and searching."""

import torch

from . import runtime
from .factory import converted, dtype_number, number
from .runtime import BOOL, C, COMPLEX, DTYPES, F32, FLOATS, I32, I64, U8
from .table import lower

op = C.op


def dims_of(dim, rank, all_if_empty=True):
    """Dimensions as torch gives them: None, a number or a list; sorted and not negative."""
    if dim is None or (isinstance(dim, (list, tuple)) and len(dim) == 0 and all_if_empty):
        return tuple(range(rank))
    given = dim if isinstance(dim, (list, tuple)) else [dim]
    out = []
    for d in given:
        if not -max(rank, 1) <= d < max(rank, 1):
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-max(rank, 1)}, {max(rank, 1) - 1}], but got {d})"
            )
        out.append(d + max(rank, 1) if d < 0 else d)
    if len(set(out)) != len(out):
        raise RuntimeError(f"dim {out[-1]} appears multiple times in the list of dims")
    return tuple(sorted(out)) if rank > 0 else ()


def axis_of(dim, rank):
    return dims_of(dim, rank)[0] if rank > 0 else (dims_of(dim, rank) or (0,))[0]


def reduced(name, x, dims, keepdim, **attributes):
    """A reduction of Weft's; over no dimension it is the value itself."""
    if len(dims) == 0 and x.ndim == 0:
        x, dims, shape = op("reshape", x, shape=(1,)), (0,), ()
        return op("reshape", op(name, x, dims=dims, keepdims=False, **attributes), shape=shape)
    return op(name, x, dims=dims, keepdims=keepdim, **attributes)


def summable(x, dtype):
    """The element type in which torch adds up: that of `dtype`, else i64 for integers."""
    wanted = DTYPES[dtype] if dtype is not None else x.dtype if x.dtype in FLOATS + COMPLEX else I64
    return converted(x, wanted)


@lower("sum.dim_IntList", "sum")
def sum_(self, dim=None, keepdim=False, *, dtype=None):
    x = summable(C.read(self), dtype)
    return C.wrap(reduced("sum", x, dims_of(dim, x.ndim), keepdim))


def _overload_with_dtype(name):
    def function(self, *, dtype=None):
        x = summable(C.read(self), dtype)
        return C.wrap(reduced(name, x, dims_of(None, x.ndim), False))

    return function


lower("sum")(_overload_with_dtype("sum"))
lower("prod")(_overload_with_dtype("prod"))


@lower("prod.dim_int")
def prod(self, dim, keepdim=False, *, dtype=None):
    x = summable(C.read(self), dtype)
    return C.wrap(reduced("prod", x, dims_of(dim, x.ndim), keepdim))


def float_of(x, dtype=None, name="mean"):
    if dtype is not None:
        return converted(x, DTYPES[dtype])
    if x.dtype not in FLOATS + COMPLEX:
        raise RuntimeError(
            f"{name}(): could not infer output dtype. Input dtype must be either a floating point or complex "
            f"dtype. Got: {runtime.TORCH_DTYPES[x.dtype]}"
        )
    return x


def count_of(shape, dims):
    n = 1
    for d in dims:
        n *= shape[d]
    return n


@lower("mean.dim")
def mean_dim(self, dim=None, keepdim=False, *, dtype=None):
    x = float_of(C.read(self), dtype)
    dims = dims_of(dim, x.ndim)
    if x.dtype in COMPLEX:
        total = reduced("sum", x, dims, keepdim)
        return C.wrap(op("div", total, number(float(count_of(x.shape, dims)), x.dtype, x.device)))
    return C.wrap(reduced("mean", x, dims, keepdim))


@lower("mean")
def mean(self, *, dtype=None):
    return mean_dim(self, None, False, dtype=dtype)


def extreme(name):
    def function(self, dim=(), keepdim=False):
        x = C.read(self)
        return C.wrap(reduced(name, x, dims_of(dim, x.ndim), keepdim))

    return function


lower("amax")(extreme("max"))
lower("amin")(extreme("min"))


@lower("aminmax")
def aminmax(self, *, dim=None, keepdim=False):
    return extreme("min")(self, dim, keepdim), extreme("max")(self, dim, keepdim)


def _not_empty(self, name):
    if self.numel() == 0:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument."
        )


@lower("max")
def max_all(self):
    _not_empty(self, "max")
    return extreme("max")(self)


@lower("min")
def min_all(self):
    _not_empty(self, "min")
    return extreme("min")(self)


def _orderable(x):
    return converted(x, U8) if x.dtype == BOOL else x


def _arg(name, x, axis, keepdim):
    if x.ndim == 0:
        return op("full", shape=(), value=0.0, dtype=I64, device=x.device)
    return converted(op(name, _orderable(x), axis=axis, keepdims=keepdim), I64)


def _with_index(name):
    def function(self, dim, keepdim=False):
        x = C.read(self)
        axis = axis_of(dim, x.ndim)
        if x.ndim > 0 and x.shape[axis] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")
        return (C.wrap(reduced(name, x, (axis,) if x.ndim else (), keepdim)), C.wrap(_arg("arg" + name, x, axis, keepdim)))

    return function


lower("max.dim")(_with_index("max"))
lower("min.dim")(_with_index("min"))


def _argument(name):
    def function(self, dim=None, keepdim=False):
        x = C.read(self)
        if self.numel() == 0:
            raise IndexError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
                "with the 'dim' argument."
            )
        if dim is None:
            flat = op("reshape", x, shape=(self.numel(),))
            out = _arg(name, flat, 0, False)
            return C.wrap(op("reshape", out, shape=(1,) * x.ndim) if keepdim else out)
        return C.wrap(_arg(name, x, axis_of(dim, x.ndim), keepdim))

    return function


lower("argmax")(_argument("argmax"))
lower("argmin")(_argument("argmin"))


def _truth(name):
    def of(self, dim, keepdim):
        x = C.read(self)
        out = reduced(name, converted(x, BOOL) if x.dtype != BOOL else x, dims_of(dim, x.ndim), keepdim)
        return C.wrap(converted(out, U8) if x.dtype == U8 else out)

    return of


def _truth_rows(name):
    of = _truth(name)
    lower(name)(lambda self: of(self, None, False))
    lower(name + ".dim")(lambda self, dim, keepdim=False: of(self, dim, keepdim))
    lower(name + ".dims")(lambda self, dim=None, keepdim=False: of(self, dim, keepdim))


_truth_rows("any")
_truth_rows("all")


def variance(x, dims, correction, keepdim):
    """Mean of squared distances from the mean, by torch's count less the correction."""
    n = count_of(x.shape, dims)
    centre = reduced("mean", x, dims, True) if x.ndim else x
    squares = op("square", op("sub", x, centre))
    total = reduced("sum", squares, dims, keepdim)
    divisor = n - (1 if correction is None else correction)
    return op("div", total, C.scalar(x.dtype, float(max(divisor, 0)), x.device)), centre


@lower("var.correction")
def var(self, dim=None, *, correction=None, keepdim=False):
    x = float_of(C.read(self), None, "var")
    return C.wrap(variance(x, dims_of(dim, x.ndim), correction, keepdim)[0])


@lower("std.correction")
def std(self, dim=None, *, correction=None, keepdim=False):
    x = float_of(C.read(self), None, "std")
    return C.wrap(op("sqrt", variance(x, dims_of(dim, x.ndim), correction, keepdim)[0]))


def _with_mean(root):
    def function(self, dim=None, *, correction=None, keepdim=False):
        x = float_of(C.read(self), None, "var_mean")
        dims = dims_of(dim, x.ndim)
        result, _ = variance(x, dims, correction, keepdim)
        return C.wrap(op("sqrt", result) if root else result), C.wrap(reduced("mean", x, dims, keepdim))

    return function


lower("var_mean.correction")(_with_mean(False))
lower("std_mean.correction")(_with_mean(True))


@lower("logsumexp")
def logsumexp(self, dim, keepdim=False):
    x = C.read(self)
    if x.dtype not in FLOATS:
        x = converted(x, F32)
    return C.wrap(reduced("logsumexp", x, dims_of(dim, x.ndim), keepdim))


@lower("linalg_vector_norm")
def vector_norm(self, ord=2, dim=None, keepdim=False, *, dtype=None):  # noqa: A002
    x = float_of(C.read(self), dtype, "linalg.vector_norm")
    if x.dtype in COMPLEX:
        x = op("abs", x)
    dims = dims_of(dim, x.ndim)
    if ord == 2:
        return C.wrap(op("sqrt", reduced("sum", op("square", x), dims, keepdim)))
    size = op("abs", x)
    if ord == float("inf"):
        return C.wrap(reduced("max", size, dims, keepdim))
    if ord == float("-inf"):
        return C.wrap(reduced("min", size, dims, keepdim))
    if ord == 0:
        return C.wrap(reduced("sum", converted(op("ne", x, number(0.0, x.dtype, x.device)), x.dtype), dims, keepdim))
    if ord == 1:
        return C.wrap(reduced("sum", size, dims, keepdim))
    total = reduced("sum", op("pow", size, number(float(ord), x.dtype, x.device)), dims, keepdim)
    return C.wrap(op("pow", total, number(1.0 / ord, x.dtype, x.device)))


def _scan(name):
    def function(self, dim, *, dtype=None):
        x = summable(C.read(self), dtype)
        if x.ndim == 0:
            return C.wrap(op("reshape", x, shape=()))
        return C.wrap(op(name, x, axis=axis_of(dim, x.ndim)))

    return function


lower("cumsum")(_scan("cumsum"))
lower("cumprod")(_scan("cumprod"))


def _ordered(values, indices, descending, axis):
    return C.wrap(values), C.wrap(converted(indices, I64))


@lower("sort.stable")
def sort_stable(self, *, stable=None, dim=-1, descending=False):
    x = C.read(self)
    if x.ndim == 0:
        return C.wrap(op("reshape", x, shape=())), C.wrap(op("full", shape=(), value=0.0, dtype=I64, device=x.device))
    axis = axis_of(dim, x.ndim)
    ordered = _orderable(x)
    values = op("sort", ordered, axis=axis, descending=bool(descending))
    return _ordered(
        converted(values, x.dtype), op("argsort", ordered, axis=axis, descending=bool(descending)), descending, axis
    )


@lower("sort")
def sort(self, dim=-1, descending=False):
    return sort_stable(self, dim=dim, descending=descending)


@lower("topk")
def topk(self, k, dim=-1, largest=True, sorted=True):  # noqa: A002
    x = C.read(self)
    if x.ndim == 0:
        return sort_stable(self)
    axis = axis_of(dim, x.ndim)
    if not 0 <= k <= x.shape[axis]:
        raise RuntimeError("selected index k out of range")
    if largest:
        values, indices = op("top_k", _orderable(x), k=k, axis=axis)
        return C.wrap(converted(values, x.dtype)), C.wrap(converted(indices, I64))
    values, indices = sort_stable(self, dim=axis)
    return values.narrow(axis, 0, k).contiguous(), indices.narrow(axis, 0, k).contiguous()


@lower("bincount")
def bincount(self, weights=None, minlength=0):
    x = C.read(self)
    length = max(int(self.max().item()) + 1 if self.numel() else 0, minlength)
    if weights is None:
        return C.wrap(converted(op("bincount", x, length=length), I64))
    w = C.read(weights)
    return C.wrap(op("bincount", x, w if w.dtype in FLOATS else converted(w, runtime.F64), length=length))


@lower("histc")
def histc(self, bins=100, min=0, max=0):  # noqa: A002
    """Integers too, as on torch's accelerators; their bins are those of f64."""
    x = C.read(self)
    if x.dtype not in FLOATS and (x.dtype in COMPLEX or x.dtype == BOOL):
        raise NotImplementedError(f"histc of {self.dtype} is not there on the device xla")
    counted = op("histc", x if x.dtype in FLOATS else converted(x, runtime.F64), bins=bins, low=float(min), high=float(max))
    return C.wrap(converted(counted, x.dtype))


@lower("searchsorted.Tensor")
def searchsorted(sorted_sequence, self, *, out_int32=False, right=False, side=None, sorter=None):
    if sorted_sequence.dim() != 1 or sorter is not None:
        raise NotImplementedError("searchsorted of several rows, or with a sorter, is not there on the device xla")
    common = dtype_number(torch.promote_types(sorted_sequence.dtype, self.dtype))
    out = op(
        "searchsorted",
        converted(C.read(sorted_sequence), common),
        converted(C.read(self), common),
        right=bool(right or side == "right"),
    )
    return C.wrap(converted(out, I32 if out_int32 else I64))


def _alone(x):
    """The value and the position of the one element of a scalar."""
    return C.wrap(op("reshape", x, shape=())), C.wrap(op("full", shape=(), value=0.0, dtype=I64, device=x.device))


def _running(name):
    def function(self, dim):
        x = C.read(self)
        if x.ndim == 0:
            return _alone(x)
        values, indices = op(name, _orderable(x), axis=axis_of(dim, x.ndim))
        return C.wrap(converted(values, x.dtype)), C.wrap(converted(indices, I64))

    return function


lower("cummax")(_running("cummax"))
lower("cummin")(_running("cummin"))


@lower("kthvalue")
def kthvalue(self, k, dim=-1, keepdim=False):
    values, indices = sort_stable(self, dim=dim)
    if self.dim() == 0:
        return values, indices
    axis = axis_of(dim, self.dim())
    if not 1 <= k <= self.shape[axis]:
        raise RuntimeError("kthvalue(): selected number k out of range for dimension " + str(axis))
    kept = [t.narrow(axis, k - 1, 1) for t in (values, indices)]
    return tuple(t.contiguous() if keepdim else t.squeeze(axis).contiguous() for t in kept)


def _middle(name, x, axis, keepdim):
    """Values and positions of one of `median`, `nanmedian` and `most_frequent`; a scalar is its own."""
    if x.ndim == 0:
        return _alone(x)
    if x.shape[axis] == 0 and 0 not in x.shape[:axis] + x.shape[axis + 1 :]:
        said = "mode" if name == "most_frequent" else "median"
        raise IndexError(f"{said}(): Expected reduction dim {axis} to have non-zero size.")
    if name == "nanmedian" and x.dtype not in FLOATS:
        name = "median"
    values, indices = op(name, _orderable(x), axis=axis, keepdims=bool(keepdim))
    return C.wrap(converted(values, x.dtype)), C.wrap(converted(indices, I64))


def _of_all(name):
    def function(self):
        x = C.read(self)
        if self.numel() == 0 and x.dtype in FLOATS:
            return C.wrap(number(float("nan"), x.dtype, x.device))
        return _middle(name, op("reshape", x, shape=(self.numel(),)) if x.ndim > 0 else x, 0, False)[0]

    return function


def _along(name):
    def function(self, dim=-1, keepdim=False):
        x = C.read(self)
        return _middle(name, x, axis_of(dim, x.ndim), keepdim)

    return function


for _name in ("median", "nanmedian"):
    lower(_name)(_of_all(_name))
    lower(_name + ".dim")(_along(_name))
lower("mode")(_along("most_frequent"))


def _distances(first, second, p):
    x, y = C.read(first), C.read(second)
    lead = first.dim() - 2
    x = op("expand_dims", x, dims=(lead + 1,))
    y = op("expand_dims", y, dims=(second.dim() - 2,))
    return vector_norm(C.wrap(op("sub", x, y)), p, [-1])


@lower("_cdist_forward")
def cdist_forward(x1, x2, p, compute_mode=None):
    return _distances(x1, x2, p)


@lower("_pdist_forward")
def pdist_forward(self, p=2):
    rows, columns = torch.triu_indices(self.shape[0], self.shape[0], 1).unbind(0)
    return _distances(self, self, p)[rows.to(self.device), columns.to(self.device)]
