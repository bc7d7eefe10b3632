"""mapping.py's entries for factors of matrices: what PyTorch's samples make unique of them (absolute values of vectors), permutations and solutions by
factors, and norms. See there."""
import torch

from mapping import NAMES, PROCESSED, Refused, argument, maps
from mapping_linalg import square

PROCESSED |= {"linalg.eig", "linalg.eigh", "linalg.svd", "svd"}


def typed(value, dtype):
    value.dtype = dtype
    return value


@maps("linalg.eigh", sums=True)
def eigh(t, s):
    t.no_gradient = True  # ours is that of the triangle which is read, PyTorch's that of both
    values, vectors = t.op("eigh", t(s.input), lower=argument(s, 0, "UPLO", "L") in "lL")
    return [values, t.op("abs", vectors)]


@maps("linalg.eigvals", "linalg.eig", sums=True)
def eig(t, s):
    """In LAPACK's order, which is that of both."""
    if s.name == "linalg.eigvals":
        return t.op("eigvals", t(s.input))
    values, vectors = t.op("eig", t(s.input))
    return [values, t.op("abs", vectors)]


@maps("linalg.svd", "svd", sums=True)
def svd(t, s):
    full = s.kwargs.get("full_matrices", True) if s.name == "linalg.svd" else not argument(s, 0, "some", True)
    u, values, vh = t.op("svd", t(s.input), full_matrices=bool(full))
    rank, k = s.input.ndim, min(s.input.shape[-2:])
    gaps = torch.linalg.svdvals(s.input.detach()).diff(dim=-1)
    free = full and s.input.shape[-1] != s.input.shape[-2]  # vectors of no singular value, which may turn: no slopes
    t.no_gradient = free or bool((gaps.abs() < 0.3).any())  # slopes go with one over the gaps
    u, vh = (t.op("slice_in_dim", x, axis=axis, start=0, limit=k) for x, axis in ((u, rank - 1), (vh, rank - 2)))
    return {"fn_U": lambda: t.op("abs", u), "fn_S": lambda: values, "fn_Vh": lambda: [values, t.op("abs", vh)],
            "fn_UVh": lambda: [t.op("matmul", u, vh), values]}[s.process.__name__]()


# --- triangles -------------------------------------------------------------------------------------------------------

@maps("linalg.cholesky_ex", sums=True)
def cholesky_ex(t, s):
    t.no_gradient = True  # ours is that of the triangle which is read, PyTorch's that of both
    if s.kwargs.get("check_errors"):
        raise Refused("batches of vectors")
    return [t.op("cholesky", t(s.input), lower=not s.kwargs.get("upper", False)), t.constant(s.result[1].numpy())]


def pivoted(s):
    if not argument(s, 0, "pivot", True):
        raise Refused("pivots")


@maps("linalg.lu_factor", "linalg.lu_factor_ex", "lu", sums=True)
def lu_factor(t, s):
    pivoted(s)
    lu, pivots, _ = t.op("lu", t(s.input))
    counted = t.op("add", typed(pivots, "i32"), t(1, torch.int32))
    return [lu, counted] + [t.constant(r.numpy()) for r in s.result[2:]]


def triangles(t, lu, shape, dtype):
    rows, columns = shape[-2:]
    k, rank = min(rows, columns), len(shape)
    cut = lambda x, axis: t.op("slice_in_dim", x, axis=axis, start=0, limit=k)
    lower = t.op("add", t.op("tril", cut(lu, rank - 1), diagonal=-1), t.op("eye", rows=rows, columns=k, dtype=NAMES[dtype]))
    return lower, t.op("triu", cut(lu, rank - 2))


def permutation_matrix(t, permutation, size, rank, dtype):
    rows = t.op("one_hot", permutation, depth=size, dtype=NAMES[torch.float64 if dtype in (torch.complex128, torch.float64) else torch.float32])
    order = [*range(rank - 2), rank - 1, rank - 2]
    return t.convert(t.op("transpose", rows, permutation=order), dtype)


@maps("linalg.lu", sums=True)
def lu(t, s):
    pivoted(s)
    x, rank = s.input, s.input.ndim
    values, _, permutation = t.op("lu", t(x))
    lower, upper = triangles(t, values, list(x.shape), x.dtype)
    return [permutation_matrix(t, typed(permutation, "i32"), x.shape[-2], rank, x.dtype), lower, upper]


def permutation_of(pivots, rows):
    """Rows after the exchanges that LAPACK counts from 1."""
    flat = pivots.reshape(pivots.shape[:-1].numel(), pivots.shape[-1])
    order = torch.arange(rows).repeat(len(flat), 1)
    for row, exchanges in zip(order, flat):
        for i, j in enumerate(exchanges.tolist()):
            row[[i, j - 1]] = row[[j - 1, i]]
    return order.reshape(*pivots.shape[:-1], rows).to(torch.int32)


@maps("lu_unpack", sums=True)
def lu_unpack(t, s):
    x, rank = s.input, s.input.ndim
    data, pivots = argument(s, 1, "unpack_data", True), argument(s, 2, "unpack_pivots", True)
    if not data or not pivots:
        raise Refused("empty results")
    lower, upper = triangles(t, t(x), list(x.shape), x.dtype)
    order = t.constant(permutation_of(s.args[0], x.shape[-2]).numpy())
    return [permutation_matrix(t, order, x.shape[-2], rank, x.dtype), lower, upper]


@maps("linalg.lu_solve", "lu_solve", sums=True)
def lu_solve(t, s):
    b, lu_values, pivots = (s.args[1], s.input, s.args[0]) if s.name == "linalg.lu_solve" else (s.input, s.args[0], s.args[1])
    lead, n, left, adjoint = torch.broadcast_shapes(lu_values.shape[:-2], b.shape[:-2]), lu_values.shape[-1], s.kwargs.get("left", True), s.kwargs.get("adjoint")
    order = t.constant(permutation_of(pivots, n).expand(*lead, n).contiguous().numpy())
    a, right = (t.op("broadcast_to", t(x), shape=[*lead, *x.shape[-2:]]) for x in (lu_values, b))
    turn = lambda x: t.op("transpose", x, permutation=[*range(len(lead)), len(lead) + 1, len(lead)])
    conj = lambda x: t.op("conj", x) if b.is_complex() and adjoint else x
    how = "ADJOINT" if adjoint else "NO_TRANSPOSE"
    if left:
        return t.op("lu_solve", a, order, right, transpose_a=how)
    return conj(turn(t.op("lu_solve", a, order, conj(turn(right)), transpose_a="NO_TRANSPOSE" if adjoint else "TRANSPOSE")))  # xA = b: Aᵀxᵀ = bᵀ


@maps("linalg.ldl_factor", "linalg.ldl_factor_ex", sums=True)
def ldl_factor(t, s):
    ld, pivots = t.op("ldl", t(s.input), hermitian=bool(argument(s, 0, "hermitian", False)))
    return [ld, typed(pivots, "i32")] + [t.constant(r.numpy()) for r in s.result[2:]]


@maps("linalg.ldl_solve", sums=True)
def ldl_solve(t, s):
    ld, pivots, b = s.input, *s.args[:2]
    lead = torch.broadcast_shapes(ld.shape[:-2], b.shape[:-2])
    spread = lambda x, own: t.op("broadcast_to", t(x), shape=[*lead, *x.shape[len(x.shape) - own:]])
    return t.op("ldl_solve", spread(ld, 2), spread(pivots, 1), spread(b, 2), hermitian=bool(argument(s, 2, "hermitian", False)))


@maps("triangular_solve", sums=True)
def triangular_solve(t, s):
    b, a = s.input, s.args[0]
    if a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2]:
        raise Refused("batches that broadcast")
    upper, transposed, unit = (s.kwargs.get(name, d) for name, d in (("upper", True), ("transpose", False), ("unitriangular", False)))
    t.no_gradient = True  # PyTorch's second result is a copy of a
    x = t.op("triangular_solve", t(a), t(b), lower=not upper, unit_diagonal=bool(unit), transpose_a="TRANSPOSE" if transposed else "NO_TRANSPOSE")
    return [x, t(a)]


@maps("ormqr", sums=True)
def ormqr(t, s):
    a, tau, c = s.input, *s.args[:2]
    left, transposed = argument(s, 2, "left", True), argument(s, 3, "transpose", False)
    return t.op("ormqr", t(a), t(tau), t(c), left_side=bool(left), adjoint=bool(transposed))


@maps("geqrf", sums=True)
def geqrf(t, s):
    return t.op("geqrf", t(s.input))


# --- solutions and norms ---------------------------------------------------------------------------------------------

@maps("linalg.lstsq", "linalg.lstsq/grad_oriented", sums=True)
def lstsq(t, s):
    """Drivers other than gelsd leave results empty: the solution is compared."""
    a, b = s.input, s.args[0]
    if square(s) or a.shape[:-2] != b.shape[:-2]:
        raise Refused("batches of vectors")
    solution = t.op("lstsq", t(a), t(b))[0]
    return [solution] + [t.constant(r.detach().numpy()) for r in s.result[1:]]


@maps("linalg.matrix_rank/hermitian", sums=True)
def matrix_rank(t, s):
    return t.op("convert", t.op("matrix_rank", t(s.input), hermitian=True), dtype="i64")


@maps("linalg.pinv/singular", sums=True)
def pinv(t, s):
    t.no_gradient = True  # PyTorch multiplies the samples' two factors first
    return t.op("pinv", t(s.input.detach() @ s.args[0].detach().mT))


@maps("linalg.matrix_norm", "norm/nuc", sums=True)
def matrix_norm(t, s):
    p, dims, keep = argument(s, 0, "ord", "fro"), argument(s, 1, "dim", (-2, -1)), bool(argument(s, 2, "keepdim", False))
    return of_matrices(t, s, p, dims, keep)


def of_matrices(t, s, p, dims, keep):
    rank = s.input.ndim
    dims = [d % rank for d in (dims if dims is not None else range(rank))]
    x = t(s.input, s.kwargs.get("dtype"))
    order = [d for d in range(rank) if d not in dims] + dims
    x = x if order == list(range(rank)) else t.op("transpose", x, permutation=order)
    y = t.op("matrix_norm", x, **({"kind": p} if p in ("fro", "nuc") else {"p": float(p), "kind": "p"}))
    return t.op("reshape", y, shape=list(s.result.shape)) if keep else y


@maps("linalg.norm", "linalg.norm/subgradients_at_zero", "norm", sums=True)
def norm(t, s):
    p, dims, keep = argument(s, 0, "ord" if s.name != "norm" else "p"), argument(s, 1, "dim"), bool(argument(s, 2, "keepdim", False))
    t.no_second = s.variant == "subgradients_at_zero"  # PyTorch's are NaN there
    pair = (s.input.ndim if dims is None else 1 if isinstance(dims, int) else len(dims)) == 2
    if s.name == "linalg.norm" and p is not None and pair:
        return of_matrices(t, s, p, dims, keep)
    dims = None if dims is None else [d % max(1, s.input.ndim) for d in ([dims] if isinstance(dims, int) else dims)]
    return t.op("norm", t(s.input, s.kwargs.get("dtype")), p=float(2 if p in (None, "fro") else p), dims=dims or None, keepdims=keep)
