"""mapping.py's entries for decompositions and solutions. What has a sign of its own to choose (eigenvectors, singular vectors) is judged by
tests/ops/numpy_linalg.py and linalg_gradient_test.py."""
import torch

from mapping import Refused, argument, maps


def square(s):
    """PyTorch takes a vector only where b has one dimension fewer than a, and all of a's but the last."""
    a, b = s.input, s.args[0]
    return b.ndim > 1 and a.ndim - 1 == b.ndim and b.shape == a.shape[:-1]


@maps("linalg.solve", "linalg.solve_ex", sums=True)
def solve(t, s):
    b, vectors, last = t(s.args[0]), square(s), s.args[0].ndim
    x = t.op("solve", t(s.input), t.op("expand_dims", b, dims=[last]) if vectors else b, left_side=bool(s.kwargs.get("left", True)))
    x = t.op("squeeze", x, dims=[last]) if vectors else x
    return [x, t.constant(s.result[1].numpy())] if s.name == "linalg.solve_ex" else x


@maps("linalg.inv", "linalg.inv_ex", sums=True)
def inv(t, s):
    x = t.op("inv", t(s.input))
    return [x, t.constant(s.result[1].numpy())] if s.name == "linalg.inv_ex" else x


@maps("linalg.det", sums=True)
def det(t, s):
    return t.op("det", t(s.input))


@maps("linalg.slogdet", sums=True)
def slogdet(t, s):
    return t.op("slogdet", t(s.input))


@maps("logdet", sums=True)
def logdet(t, s):
    return t.op("logdet", t(s.input))


@maps("linalg.cholesky", sums=True)
def cholesky(t, s):
    t.no_gradient = True  # ours is that of the triangle which is read, PyTorch's that of both
    return t.op("cholesky", t(s.input), lower=not argument(s, 0, "upper", False))


@maps("cholesky_solve", sums=True)
def cholesky_solve(t, s):
    t.no_gradient = True  # PyTorch's has numbers for elements that are not read
    return t.op("cholesky_solve", t(s.args[0]), t(s.input), lower=not argument(s, 1, "upper", False))


@maps("cholesky_inverse", sums=True)
def cholesky_inverse(t, s):
    t.no_gradient = True  # PyTorch's has numbers for elements that are not read
    return t.op("cholesky_inverse", t(s.input), lower=not argument(s, 0, "upper", False))


@maps("linalg.solve_triangular", sums=True)
def solve_triangular(t, s):
    a, b = s.input, s.args[0]
    if a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2]:
        raise Refused("batches that broadcast")
    return t.op("triangular_solve", t(a), t(b), lower=not s.kwargs["upper"], left_side=bool(s.kwargs.get("left", True)), unit_diagonal=bool(s.kwargs.get("unitriangular", False)))


@maps("linalg.qr", sums=True)
def qr(t, s):
    mode = argument(s, 0, "mode", "reduced")
    if mode == "r":  # q is left empty
        return [t.constant(s.result[0].detach().numpy()), t.op("qr", t(s.input))[1]]
    return t.op("qr", t(s.input), full_matrices=mode == "complete")


@maps("linalg.svdvals", sums=True)
def svdvals(t, s):
    return t.op("svdvals", t(s.input))


@maps("linalg.eigvalsh", sums=True)
def eigvalsh(t, s):
    t.no_gradient = True  # ours is that of the triangle which is read, PyTorch's that of both
    return t.op("eigvalsh", t(s.input), lower=argument(s, 0, "UPLO", "L") in "lL")


@maps("linalg.pinv", "linalg.pinv/hermitian", "pinverse", sums=True)
def pinv(t, s):
    given = {"rtol": s.kwargs.get("rtol", s.kwargs.get("rcond", s.args[0] if s.args else None)), "atol": s.kwargs.get("atol")}
    if any(getattr(x, "shape", ()) for x in given.values()):
        raise Refused("tolerances as tensors")
    t.no_gradient = bool(s.kwargs.get("hermitian"))  # ours is that of the triangle which is read
    return t.op("pinv", t(s.input), hermitian=bool(s.kwargs.get("hermitian")), **{k: float(x) for k, x in given.items() if x is not None})


@maps("linalg.matrix_rank", sums=True)
def matrix_rank(t, s):
    given = {name: s.kwargs.get(name) for name in ("rtol", "atol")}
    if any(hasattr(v, "shape") for v in given.values()):
        return rank_within(t, s, **given)
    return t.op("convert", t.op("matrix_rank", t(s.input), hermitian=bool(s.kwargs.get("hermitian")), **{k: float(v) for k, v in given.items() if v is not None}), dtype="i64")


def rank_within(t, s, rtol, atol):
    """Tolerances of each matrix: as many singular values as exceed both."""
    part, count = s.input.real.dtype, max(s.input.shape[-2:])
    atol = torch.as_tensor(0.0 if atol is None else atol, dtype=part)
    usual = torch.where(atol > 0, 0.0, torch.finfo(part).eps * count).to(part)
    rtol = usual if rtol is None else torch.as_tensor(rtol, dtype=part)
    last = s.input.ndim - 2
    x = t.op("abs", t.op("eigvalsh", t(s.input))) if s.kwargs.get("hermitian") else t.op("svdvals", t(s.input))
    if min(s.input.shape[-2:]) == 0:
        return t.op("full", shape=list(s.result.shape), value=0.0, dtype="i64")
    most = t.op("max", x, dims=[last], keepdims=True)
    least = t.op("maximum", t(atol.unsqueeze(-1)), t.op("mul", t(rtol.unsqueeze(-1)), most))
    return t.convert(t.op("sum", t.convert(t.op("gt", x, least), torch.int64), dims=[last]), torch.int64)


@maps("linalg.cond", sums=True)
def cond(t, s):
    p = argument(s, 0, "p")
    return t.op("cond", t(s.input), **({"kind": p} if p in ("fro", "nuc") else {"p": float(2 if p is None else p)}))


@maps("matrix_exp", sums=True)
def matrix_exp(t, s):
    return t.op("matrix_exp", t(s.input))


@maps("linalg.householder_product", sums=True)
def householder_product(t, s):
    t.no_gradient = s.input.dtype == torch.complex128  # the samples' reflectors are long: large terms cancel
    return t.op("householder_product", t(s.input), t(s.args[0]))


@maps("linalg.tensorsolve", sums=True)
def tensorsolve(t, s):
    dims = [d % s.input.ndim for d in argument(s, 1, "dims") or ()]  # these go last
    order = [d for d in range(s.input.ndim) if d not in dims] + dims
    b = t.op("reshape", t(s.args[0]), shape=[s.input.shape[d] for d in order[:s.args[0].ndim]])  # PyTorch's is read as a row
    return t.op("tensorsolve", t.op("transpose", t(s.input), permutation=order), b)


@maps("linalg.tensorinv", sums=True)
def tensorinv(t, s):
    return t.op("tensorinv", t(s.input), ind=int(argument(s, 0, "ind", 2)))


@maps("linalg.polar", sums=True)
def polar(t, s):
    """By singular values: u vh, and v s vh."""
    t.no_gradient, rank = True, s.input.ndim
    u, values, vh = t.op("svd", t(s.input), full_matrices=False)
    v = t.op("transpose", t.op("conj", vh) if s.input.is_complex() else vh, permutation=[*range(rank - 2), rank - 1, rank - 2])
    scaled = t.op("mul", v, t.convert(t.op("expand_dims", values, dims=[rank - 2]), s.input.dtype))
    return [t.op("matmul", u, vh), t.op("matmul", scaled, vh)]


@maps("linalg.matrix_sqrth", sums=True)
def matrix_sqrth(t, s):
    """By eigenvalues."""
    t.no_gradient, rank = True, s.input.ndim
    values, v = t.op("eigh", t(s.input), lower=True)
    turned = t.op("transpose", t.op("conj", v) if s.input.is_complex() else v, permutation=[*range(rank - 2), rank - 1, rank - 2])
    roots = t.convert(t.op("expand_dims", t.op("sqrt", values), dims=[rank - 2]), s.input.dtype)
    return t.op("matmul", t.op("mul", v, roots), turned)
