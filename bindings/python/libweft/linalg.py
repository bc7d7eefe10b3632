"""Linear algebra by the names of numpy.linalg and of the array API standard's extension, over the operations of this package.

A matrix is the last two axes of a tensor, the axes before them are a batch. Nothing raises because of a matrix's elements, which are
not known when an operation is recorded: a singular matrix has an infinite or NaN inverse, and a decomposition of elements that are not
finite is NaN everywhere.
"""

import math as _math

from . import _ops, array_api as _array_api
from ._call import results as _results
from ._errors import InvalidArgument as _Invalid, named_functions as _named_functions
from ._more import as_tensor as _as, common as _common, moveaxis as _moveaxis, outer as _outer
from ._ops import det, eigvals, inv, matrix_exp, matrix_power, svdvals, tensorinv  # noqa: F401
from .array_api import matmul, matrix_transpose, tensordot, vecdot  # noqa: F401

__all__ = (
    "cholesky cond cross det diagonal eig eigh eigvals eigvalsh inv lstsq matmul matrix_exp matrix_norm matrix_power matrix_rank "
    "matrix_transpose multi_dot norm outer pinv qr slogdet solve svd svdvals tensordot tensorinv tensorsolve trace vecdot vector_norm"
).split()
_Eig = _results("eig", ("eigenvalues", "eigenvectors"))
_Eigh = _results("eigh", ("eigenvalues", "eigenvectors"))
_Qr = _results("qr", ("Q", "R"))
_Slogdet = _results("slogdet", ("sign", "logabsdet"))
_Svd = _results("svd", ("U", "S", "Vh"))


def cholesky(x, /, *, upper=False):
    """The triangle l with l l* = x, or with upper the triangle u with u* u = x, of positive definite matrices."""
    return _ops.cholesky(x, lower=not upper)


def cond(x, p=None):
    """The condition numbers of matrices by a norm of matrix_norm; None is 2."""
    return _ops.cond(x, **_degree(2 if p is None else p))


def cross(x1, x2, /, *, axis=-1):
    """The cross products of vectors of three elements along an axis."""
    return _ops.cross(*_pair(x1, x2), axis=axis)


def diagonal(x, /, *, offset=0):
    """The diagonals of matrices; a positive offset is above the main one."""
    return _ops.diagonal(x, offset=offset)


def eig(x, /):
    """(eigenvalues, eigenvectors), both complex; vectors are columns."""
    return _Eig(*_ops.eig(x))


def eigh(x, /, UPLO="L"):
    """(eigenvalues, eigenvectors) of symmetric or hermitian matrices of which one triangle is read; values ascend."""
    return _Eigh(*_ops.eigh(x, lower=_lower(UPLO)))


def eigvalsh(x, /, UPLO="L"):
    """The eigenvalues of eigh without the vectors."""
    return _ops.eigvalsh(x, lower=_lower(UPLO))


def lstsq(a, b, rcond=None):
    """(solution, residuals, rank, singular values) of a x = b by least squares. Unlike NumPy's, the residuals are there whatever
    the rank, which is not known when the operation is recorded."""
    return _ops.lstsq(*_pair(a, b), rtol=rcond)


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """Norms of matrices: 'fro', 'nuc', 1, -1, 2, -2, inf or -inf."""
    norms = _ops.matrix_norm(x, **_degree(ord))
    return norms.reshape(*norms.shape, 1, 1) if keepdims else norms


def matrix_rank(x, /, tol=None, hermitian=False, *, rtol=None):
    """How many singular values are above tol, or above rtol times the largest one. A tensor of rtol has one for each matrix."""
    if _is_scalar(rtol):
        return _ops.matrix_rank(x, rtol=rtol, atol=tol or 0, hermitian=hermitian)
    values = _ops.svdvals(x)
    return _ops.count_nonzero(values > _as(rtol)[..., None] * _ops.max(values, dims=-1, keepdims=True), dims=-1)


def multi_dot(arrays):
    """The product of a chain of matrices, the first and the last of which may be vectors, in the order of fewest multiplications."""
    arrays = [_as(x) for x in arrays]
    if len(arrays) < 2 or any(x.ndim != 2 for x in arrays[1:-1]) or any(x.ndim not in (1, 2) for x in arrays):
        raise _Invalid("multi_dot: two or more matrices are needed; the first and the last may be vectors")
    sizes = [1 if arrays[0].ndim == 1 else arrays[0].shape[0], *(x.shape[0] for x in arrays[1:])]
    sizes.append(1 if arrays[-1].ndim == 1 else arrays[-1].shape[1])
    best = {(i, i): (0, i) for i in range(len(arrays))}  # of a part of the chain: multiplications, and where it is split
    for length in range(1, len(arrays)):
        for i in range(len(arrays) - length):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def product(i, j):
        k = best[i, j][1]
        return arrays[i] if i == j else _ops.matmul(product(i, k), product(k + 1, j))

    return product(0, len(arrays) - 1)


def norm(x, ord=None, axis=None, keepdims=False):
    """A norm of vectors along one axis, or of matrices along two; without an axis that of a vector or a matrix, and without
    either the root of the sum of all squares."""
    x = _as(x)
    if axis is None and (ord is None or x.ndim == 1):
        return vector_norm(x, keepdims=keepdims, ord=2 if ord is None else ord)
    axis = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if len(axis) == 1:
        return vector_norm(x, axis=axis[0], keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axis) != 2:
        raise _Invalid("norm: axes %s are no vector and no matrix" % (axis,))
    norms = matrix_norm(_moveaxis(x, axis, (-2, -1)), ord="fro" if ord is None else ord)
    shape = [1 if i in (axis[0] % x.ndim, axis[1] % x.ndim) else size for i, size in enumerate(x.shape)]
    return norms.reshape(*shape) if keepdims else norms


def outer(x1, x2, /):
    """Products of all pairs of elements of two vectors."""
    return _outer(x1, x2)


def pinv(x, /, rcond=None, *, rtol=None):
    """The pseudo-inverses of matrices; singular values up to rtol (rcond is another name of it) times the largest are zeros. A
    tensor of rtol has one for each matrix."""
    rtol = rcond if rtol is None else rtol
    if _is_scalar(rtol):
        return _ops.pinv(x, rtol=rtol)
    u, s, vh = _ops.svd(x)
    held = s > _as(rtol)[..., None] * _ops.max(s, dims=-1, keepdims=True)
    inverse = _ops.where(held, 1 / _ops.where(held, s, 1), 0)
    turned = _ops.conj if u.dtype.is_complex else _as
    return matrix_transpose(turned(vh)) * inverse[..., None, :] @ matrix_transpose(turned(u))


def qr(x, /, mode="reduced"):
    """(Q, R) with Q's columns orthonormal and R an upper triangle; mode is 'reduced', 'complete' or 'r', which gives R alone."""
    if mode not in ("reduced", "complete", "r"):
        raise _Invalid("qr: mode is %r; 'reduced', 'complete' and 'r' are known" % (mode,))
    q, r = _ops.qr(x, full_matrices=mode == "complete")
    return r if mode == "r" else _Qr(q, r)


def slogdet(x, /):
    """(sign, logabsdet) of determinants, which do not overflow."""
    return _Slogdet(*_ops.slogdet(x))


def solve(a, b, /):
    """The x with a x = b; b has vectors where it has one dimension, else matrices."""
    return _ops.solve(*_pair(a, b))


def svd(x, /, full_matrices=True, compute_uv=True):
    """(U, S, Vh) with x = U diag(S) Vh, or without compute_uv S alone; values descend."""
    return _Svd(*_ops.svd(x, full_matrices=full_matrices)) if compute_uv else _ops.svdvals(x)


def tensorsolve(a, b, axes=None):
    """The x whose sum of products with a over a's last dimensions is b; axes of a are moved behind the others first."""
    a, b = _pair(a, b)
    return _ops.tensorsolve(a if axes is None else _moveaxis(a, axes, range(-len(axes), 0)), b)


def trace(x, /, *, offset=0, dtype=None):
    """The sums of diagonals."""
    return _array_api.sum(_ops.diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """Norms of degree ord along an axis, along several, or of all elements."""
    return _ops.norm(x, dims=axis, keepdims=keepdims, p=ord)


def _degree(ord):
    if isinstance(ord, str) and ord in ("fro", "nuc"):
        return {"kind": ord}
    if not isinstance(ord, str) and ord in (1, -1, 2, -2, _math.inf, -_math.inf):
        return {"kind": "p", "p": float(ord)}
    raise _Invalid("ord is %r; 'fro', 'nuc', 1, -1, 2, -2, inf and -inf are norms of matrices" % (ord,))


def _lower(uplo):
    if uplo not in ("L", "U", "l", "u"):
        raise _Invalid("UPLO is %r; 'L' and 'U' are known" % (uplo,))
    return uplo in "Ll"


def _pair(x, y):
    return _common([_as(x), _as(y)])


def _is_scalar(rtol):
    return rtol is None or isinstance(rtol, (int, float))


_named_functions(globals(), __all__)
