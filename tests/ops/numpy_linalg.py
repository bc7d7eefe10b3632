"""Part of numpy_test.py: decompositions and solutions. NumPy's are LAPACK's, too, so factors are judged by what they are for: they
multiply to the matrix, are orthonormal, sorted, of the form that is asked for."""
import numpy as np
import weft
from numpy_judge import CTX, FAILURES, INF, NAN, SEEN, apply, expect, refused, rng

TYPES = {"f4": 3e-5, "f8": 1e-12, "c8": 3e-5, "c16": 1e-12}
SHAPES = ((1, 1), (4, 4), (5, 3), (3, 5), (2, 4, 4), (2, 3, 5, 2), (0, 3, 3), (0, 3), (3, 0), (0, 0), (70, 40), (40, 70))


def matrices(shape, dtype, seed=60):
    x = rng(seed).normal(size=shape)
    return (x + 1j * rng(seed + 1).normal(size=shape) if dtype[0] == "c" else x).astype(dtype)


def H(x):
    return np.conj(np.swapaxes(x, -1, -2))


def to(x, dtype):
    """A complex result in the type of the operands, whose imaginary part is rounding where they are real."""
    return (x if dtype[0] == "c" else np.real(x)).astype(dtype)


def holds(title, got, want, tolerance):
    got, want = np.asarray(got, "c16"), np.asarray(want, "c16")
    if got.shape != want.shape:
        FAILURES.append(f"{title}: shape {got.shape}, not {want.shape}")
    elif got.size and not np.max(np.abs(got - want)) <= tolerance * max(1, np.max(np.abs(want))):
        FAILURES.append(f"{title}: off by {np.max(np.abs(got - want))}")


def eye(*shape):
    return np.broadcast_to(np.eye(shape[-1]), (*shape, shape[-1]))


def factors():
    SEEN.update(("lu", "qr", "svd", "eigh", "eig"))
    for dtype, tolerance in TYPES.items():
        for shape in SHAPES:
            a, title = matrices(shape, dtype), f"{dtype}{list(shape)}"
            near = tolerance * max(4, *shape[-2:])
            m, n = shape[-2:]
            k, batch = min(m, n), shape[:-2]
            lu, pivots, order = apply("lu", [a], {})
            lower = np.tril(lu, -1)[..., :k] + np.eye(m, k)
            holds(f"lu {title}", lower @ np.triu(lu[..., :k, :]), np.take_along_axis(a, order[..., None], -2), near)
            if lower.size and np.max(np.abs(lower)) > (1 if dtype[0] == "f" else 2**0.5) + near:  # LAPACK measures complex pivots by |re| + |im|
                FAILURES.append(f"lu {title}: pivots are not the largest")
            moved = np.broadcast_to(np.arange(m), (*batch, m)).copy()
            for at in np.ndindex(*batch):
                for i, p in enumerate(pivots[at]):
                    moved[at][[i, p]] = moved[at][[p, i]]
            if not np.array_equal(moved, order):
                FAILURES.append(f"lu {title}: pivots and permutation say different orders")
            for full in (False, True):
                q, r = apply("qr", [a], {"full_matrices": full})
                holds(f"qr {title}", q @ r, a, near)
                holds(f"qr {title}: q", H(q) @ q, eye(*batch, m if full else k), near)
                holds(f"qr {title}: r", np.tril(r, -1), np.zeros(r.shape), 0)
                u, s, vh = apply("svd", [a], {"full_matrices": full})
                holds(f"svd {title}", (u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, near)
                holds(f"svd {title}: u", H(u) @ u, eye(*batch, m if full else k), near)
                holds(f"svd {title}: vh", vh @ H(vh), eye(*batch, n if full else k), near)
                want = np.linalg.svd(a.astype("c16"), compute_uv=False) if k else np.zeros((*batch, 0))
                holds(f"svd {title}: s", s, want, near)
                expect("svdvals", [a], want.astype(a.real.dtype), tolerance=near, floor=10)
            if m != n:
                continue
            hermitian = a + H(a)
            for low in (True, False):
                read = np.tril(hermitian) if low else np.triu(hermitian)
                w, v = apply("eigh", [read], {"lower": low})
                holds(f"eigh {title}", hermitian @ v, v * w[..., None, :], near)
                holds(f"eigh {title}: v", H(v) @ v, eye(*batch, n), near)
                if not np.all(np.diff(w) >= 0):
                    FAILURES.append(f"eigh {title}: {w} does not ascend")
                expect("eigvalsh", [read], np.linalg.eigvalsh(hermitian.astype("c16")) if n else np.zeros(w.shape), tolerance=near, floor=10, lower=low)
            w, v = apply("eig", [a], {})
            holds(f"eig {title}", a @ v, v * w[..., None, :], 10 * near)
            holds(f"eig {title}: lengths", np.sum(np.abs(v) ** 2, -2), np.ones(w.shape), near)
            (values,) = apply("eigvals", [a], {})
            SEEN.add("eigvals")
            want = np.linalg.eigvals(a.astype("c16")) if n else np.zeros(w.shape)
            sort = lambda x: np.sort_complex(np.round(x, 9 if a.dtype.itemsize > 8 or dtype == "f8" else 2))
            if n <= 5:
                holds(f"eigvals {title}", sort(values.astype("c16")), sort(want), 20 * near)


def solutions():
    for dtype, tolerance in TYPES.items():
        for shape, sides in (((3, 3), ((3,), (3, 2), (2, 3, 1))), ((2, 4, 4), ((4,), (4, 3), (2, 4, 2))), ((65, 65), ((65, 3),)), ((0, 0), ((0,), (0, 2)))):
            a = matrices(shape, dtype) + 2 * shape[-1] * np.eye(shape[-1], dtype=dtype)
            wide = a.astype("c16")
            for side in sides:
                b = matrices(side, dtype, 63)
                column = b[..., None] if b.ndim == 1 else b
                want = np.linalg.solve(wide, np.broadcast_to(column, np.broadcast_shapes(shape[:-2], column.shape[:-2]) + column.shape[-2:]))
                expect("solve", [a, b], to(want[..., 0] if b.ndim == 1 else want, dtype), tolerance=tolerance, floor=1)
                row = H(column) if b.ndim > 1 else b
                got = apply("solve", [a, row], {"left_side": False})[0]
                got = got if b.ndim > 1 else got[..., None, :]
                holds(f"solve {dtype}{shape} on the right", got @ wide, np.broadcast_to(row, got.shape[:-1] + row.shape[-1:]), 10 * tolerance)
            expect("inv", [a], to(np.linalg.inv(wide), dtype), tolerance=tolerance, floor=0.1)
            expect("det", [a], to(np.linalg.det(wide), dtype), tolerance=100 * tolerance, floor=1) if shape[-1] < 9 else None
            sign, log = np.linalg.slogdet(wide)
            expect("slogdet", [a], [to(sign, dtype), log.astype(a.real.dtype)], tolerance=20 * tolerance, floor=1)
            if shape[-1] < 9 and a.size:
                definite = a @ H(a)
                b = matrices((*shape[:-2], shape[-1], 2), dtype, 64)
                for low in (False, True):
                    factor = np.linalg.cholesky(definite)
                    factor = factor if low else H(factor)
                    expect("cholesky", [definite], factor, tolerance=100 * tolerance, floor=1, lower=low)
                    expect("cholesky_solve", [factor, b], to(np.linalg.solve(definite.astype("c16"), b), dtype), tolerance=100 * tolerance, floor=1, lower=low)
                    one = matrices((shape[-1], 2), dtype, 65)  # for all of a batch; as a vector, too
                    expect("cholesky_solve", [factor, one], to(np.linalg.solve(definite.astype("c16"), one), dtype), tolerance=100 * tolerance, floor=1, lower=low)
                    expect("cholesky_solve", [factor, one[:, 0]], to(np.linalg.solve(definite.astype("c16"), one)[..., 0], dtype), tolerance=100 * tolerance, floor=1, lower=low)
                    expect("cholesky_inverse", [factor], to(np.linalg.inv(definite.astype("c16")), dtype), tolerance=100 * tolerance, floor=1, lower=low)
                    for op, turned in (("NO_TRANSPOSE", lambda t: t), ("TRANSPOSE", lambda t: np.swapaxes(t, -1, -2)), ("ADJOINT", H)):
                        want = to(np.linalg.solve(turned(factor).astype("c16"), b), dtype)
                        expect("triangular_solve", [factor, b], want, tolerance=100 * tolerance, floor=1, lower=low, transpose_a=op)
        for shape in ((4, 2), (2, 4), (2, 3, 3), (0, 2), (2, 0)):
            a = matrices(shape, dtype, 65)
            expect("pinv", [a], to(np.linalg.pinv(a.astype("c16")), dtype), tolerance=100 * tolerance, floor=1)
            b = matrices((shape[-2], 3), dtype, 66)
            if a.ndim > 2 or not a.size:
                continue
            x, squares, rank, s = (np.asarray(v) for v in np.linalg.lstsq(a.astype("c16"), b, rcond=None))
            squares = np.sum(np.abs(a.astype("c16") @ x - b) ** 2, 0)
            expect("lstsq", [a, b], [to(x, dtype), squares.astype(a.real.dtype), rank.astype("i4"), s.astype(a.real.dtype)], tolerance=100 * tolerance, floor=1)
    low = np.outer([1.0, 2, 3], [1.0, -1]) @ np.ones((2, 4)) + np.outer([1.0, 0, 1], [1.0, 2, 3, 4])
    expect("pinv", [low], np.linalg.pinv(low), tolerance=1e-12, floor=1)
    expect("matrix_rank", [low], np.int32(np.linalg.matrix_rank(low)))
    expect("matrix_rank", [np.stack([np.eye(3), np.zeros((3, 3)), np.diag([1, 1e-3, 0])])], np.array([3, 0, 1], "i4"), atol=1e-2)
    expect("matrix_rank", [np.diag([2.0, -1, 1e-20])], np.int32(2), hermitian=True)
    a, b = rng(67).normal(size=(2, 3, 6)), rng(68).normal(size=(2, 3))
    expect("tensorsolve", [a, b], np.linalg.tensorsolve(a, b), tolerance=1e-11, floor=1)
    expect("tensorinv", [a], np.linalg.tensorinv(a, 2), tolerance=1e-11, floor=1)
    expect("tensorinv", [a.reshape(6, 2, 3)], np.linalg.tensorinv(a.reshape(6, 2, 3), 1), tolerance=1e-11, floor=1, ind=1)


def numbers():
    a = rng(69).normal(size=(2, 4, 4))
    for p in (1, 2, INF, -1, -2, -INF):
        expect("matrix_norm", [a], np.linalg.norm(a, p, (-2, -1)), tolerance=1e-12, kind="p", p=float(p))
        expect("cond", [a], np.linalg.cond(a, p), tolerance=1e-10, p=float(p))
    for kind in ("fro", "nuc"):
        expect("matrix_norm", [a[:, :3]], np.linalg.norm(a[:, :3], kind, (-2, -1)), tolerance=1e-12, kind=kind)
        expect("cond", [a], np.linalg.cond(a, kind), tolerance=1e-10, kind=kind)
    for shape, some in (((2, 5, 0), (1, 2, INF, -INF)), ((2, 0, 5), (1, 2, INF, -1)), ((2, 0, 0), (1, 2, INF))):
        for p in some:
            expect("matrix_norm", [np.zeros(shape)], np.zeros(2), tolerance=0, kind="p", p=float(p))
    refused("matrix_norm", [np.zeros((0, 5))], "there is no smallest number for a norm of degree -inf", kind="p", p=-INF)
    refused("matrix_norm", [np.zeros((5, 0))], "there is no smallest number for a norm of degree -1", kind="p", p=-1.0)
    expect("cond", [a[:, :3]], np.linalg.cond(a[:, :3]), tolerance=1e-11)
    # By the eigenvalues of a matrix that is not nearly defective, and of a triangle that Taylor's series is exact for.
    for scale in (1e-3, 1.0, 30.0, 1000.0):
        w, v = np.linalg.eigh(a[0] + a[0].T)
        expect("matrix_exp", [v @ np.diag(-np.abs(w) * scale) @ v.T], v @ np.diag(np.exp(-np.abs(w) * scale)) @ v.T, tolerance=1e-10, floor=1)
    up = np.triu(np.ones((3, 3)), 1)
    expect("matrix_exp", [up * 100], np.eye(3) + 100 * up + 5000 * up @ up, tolerance=1e-12, floor=1)
    turn = np.array([[0, -1], [1, 0]]) * 1.0
    expect("matrix_exp", [(turn * 0.5).astype("f4")], np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]]), tolerance=1e-6, floor=1)
    expect("matrix_exp", [np.array([[1j * np.pi]])], np.array([[-1 + 0j]]), tolerance=1e-13, floor=1)
    expect("matrix_exp", [np.full((2, 2), 1e9)], np.full((2, 2), NAN))
    for dtype in ("f8", "c16"):
        v, tau = matrices((2, 5, 3), dtype, 70), matrices((2, 2), dtype, 72)
        want = eye(2, 5).astype(dtype)
        for i in range(2):
            column = np.where(np.arange(5) > i, v[:, :, i], np.arange(5) == i)[..., None]
            want = want @ (np.eye(5) - tau[:, i, None, None] * (column @ H(column)))
        expect("householder_product", [v, tau], want[..., :3], tolerance=1e-12, floor=1)


def degenerate():
    """What has no inverse, equal eigenvalues, and numbers that are none: answers, and soon."""
    a = np.array([[1.0, 2], [2, 4]])
    expect("det", [a], 0.0, tolerance=1e-15)
    expect("slogdet", [np.zeros((2, 2))], [0.0, -INF])
    expect("lu", [np.array([[0.0, 1], [0, 2]])], [np.array([[0.0, 1], [0, 2]]), np.array([0, 1], "i4"), np.array([0, 1], "i4")], tolerance=0)
    (x,) = apply("solve", [a, np.ones(2)], {})
    if np.all(np.isfinite(x)):
        FAILURES.append(f"solve of a matrix without an inverse: {x}")
    w, v = apply("eigh", [np.eye(3) * 2], {})
    holds("eigh of equal eigenvalues", (v * w) @ v.T, np.eye(3) * 2, 1e-15)
    for op, count in (("lu", 3), ("qr", 2), ("svd", 3), ("eigh", 2), ("eig", 2), ("svdvals", 1), ("eigvalsh", 1), ("eigvals", 1)):
        for bad in (NAN, INF, -INF):
            for dtype in ("f4", "f8", "c8", "c16"):
                pair = np.stack([np.eye(3), np.eye(3)]).astype(dtype)
                pair[1, 2, 0] = bad
                found = apply(op, [pair], {})
                if len(found) != count:
                    FAILURES.append(f"{op}: {len(found)} results")
                for i, y in enumerate(found):
                    if y.dtype.kind == "i":
                        continue
                    if not np.all(np.isfinite(y[0])) or not np.all(np.isnan(y[1])):
                        FAILURES.append(f"{op} of {dtype} with {bad}: result {i} is {y}")
    expect("cholesky", [np.array([[1, 2j], [-2j, 1]])], np.full((2, 2), NAN + 1j * NAN), lower=True)


def on_every_instruction_set():
    a = rng(73).normal(size=(3, 33, 33)).astype("f4")
    for ctx in (CTX, weft.Context(isa="portable"), weft.Context(isa="avx2"), weft.Context(platform="reference")):
        (x,) = apply("inv", [a], {}, ctx)
        holds("inv on another path", x @ a, np.broadcast_to(np.eye(33), a.shape), 1e-2)
        u, s, vh = apply("svd", [a], {}, ctx)
        holds("svd on another path", (u * s[:, None]) @ vh, a, 1e-4)


def refusals_of_matrices():
    x = np.zeros((4, 5))
    for op, inputs, attrs, text in (
            ("solve", [x, x], {}, "a is f64[4, 5]; its last two dimensions must be equal, those of square matrices"),
            ("solve", [x[:, :4], x[:3]], {}, "a has 4 rows, and b, f64[3, 5], has 3; they must be equal"),
            ("solve", [x[:, :4], np.float64(1)], {}, "b is f64[]; a vector or matrices are needed"),
            ("inv", [x], {}, "its last two dimensions must be equal"),
            ("det", [x[0]], {}, "its last two dimensions must be equal"),
            ("lu", [x[0]], {}, "x is f64[5]; it must have at least 2 dimensions, those of matrices"),
            ("eigh", [x], {}, "its last two dimensions must be equal"),
            ("eig", [x.astype("i4")], {}, "i32"),
            ("svd", [x[0]], {}, "x is f64[5]; it must have at least 2 dimensions, those of matrices"),
            ("pinv", [x], {"rtol": -1.0}, "rtol is -1; it must be at least 0"),
            ("matrix_rank", [x], {"hermitian": True}, "its last two dimensions must be equal"),
            ("matrix_norm", [x], {"kind": "p", "p": 3.0}, "p is 3; it must be 1, 2, inf, -1, -2 or -inf"),
            ("cond", [x[:0]], {}, "it must have elements"),
            ("cholesky_solve", [x[:, :4], x[:3]], {}, "factor has 4 rows, and b, f64[3, 5], has 3; they must be equal"),
            ("lstsq", [x, x[:3]], {}, "a has 4 rows, and b, f64[3, 5], has 3; they must be equal"),
            ("householder_product", [x, x[0]], {}, "it must have as many rows as columns at least"),
            ("tensorinv", [x], {"ind": 0}, "ind is 0; of a with 2 dimensions it is 1 to 1"),
            ("tensorinv", [x], {"ind": 1}, "a has 4 rows and 5 columns; they must be equal"),
            ("tensorsolve", [x, x], {}, "a begins with b's dimensions and has others behind them")):
        refused(op, inputs, text, **attrs)


def kept_factors():
    SEEN.update(("geqrf", "ormqr", "lu_solve"))
    for dtype, tolerance in TYPES.items():
        for shape in ((4, 4), (5, 3), (2, 5, 3), (3, 5), (0, 3)):
            a, title, m, k = matrices(shape, dtype), f"{dtype}{list(shape)}", shape[-2], min(shape[-2:])
            reflectors, tau = apply("geqrf", [a], {})
            for left in (True, False):
                for adjoint in (False, True):
                    x = matrices((*shape[:-2], m, 2) if left else (*shape[:-2], 2, m), dtype, 62)
                    y, = apply("ormqr", [reflectors, tau, x], {"left_side": left, "adjoint": adjoint})
                    q, = apply("ormqr", [reflectors, tau, np.broadcast_to(np.eye(m, dtype=dtype), (*shape[:-2], m, m))], {})
                    q = H(q) if adjoint else q
                    holds(f"ormqr {title}", y, q @ x if left else x @ q, 10 * tolerance)
            holds(f"ormqr {title}: q r", q if not k else H(q)[..., :k] @ np.triu(reflectors)[..., :k, :], q if not k else a, 10 * tolerance)
        a, b = matrices((2, 4, 4), dtype), matrices((2, 4, 3), dtype, 64)
        lu, _, order = apply("lu", [a], {})
        for form, of in (("NO_TRANSPOSE", a), ("TRANSPOSE", np.swapaxes(a, -1, -2)), ("ADJOINT", H(a))):
            x, = apply("lu_solve", [lu, order, b], {"transpose_a": form})
            holds(f"lu_solve {dtype} {form}", of @ x, b, 100 * tolerance)
    a = matrices((3, 4, 4), "f8")
    sign, log = np.linalg.slogdet(a)
    expect("logdet", [a], np.where(sign > 0, log, NAN), tolerance=1e-12)
    z = matrices((2, 3, 3), "c16")
    expect("logdet", [z], np.log(np.linalg.det(z)), tolerance=1e-12, floor=1)
    low = matrices((4, 2), "c16")
    h = low @ H(low)
    expect("pinv", [h + np.triu(np.full((4, 4), 9.0), 1)], np.linalg.pinv(h, hermitian=True), tolerance=1e-10, floor=1, hermitian=True, rtol=1e-10)
    values = np.array([3.0, 0.5, 0.05])
    q = np.linalg.qr(matrices((3, 3), "f8"))[0]
    expect("pinv", [q * values @ q.T], q * np.array([1 / 3, 2, 0]) @ q.T, tolerance=1e-12, floor=1, atol=0.1)
    refused("pinv", [a], "atol is -1; it must be at least 0", atol=-1.0)
    refused("pinv", [a[:, :3]], "square", hermitian=True)
    refused("lu_solve", [lu, order[:, :3], b], "permutation is i32[2, 3]")
    refused("ormqr", [a, a[..., 0], a[:2]], "their leading dimensions must be equal")


def product_of_ldl(ld, pivots, turned):
    """The matrix of one decomposition: l is a product of exchanges and of columns, d of blocks."""
    n, k = len(pivots), 0
    lower, blocks = np.eye(n, dtype=ld.dtype), np.zeros_like(ld)
    while k < n:
        end = k + (1 if pivots[k] > 0 else 2)
        exchange, step = np.eye(n), np.eye(n, dtype=ld.dtype)
        exchange[[end - 1, abs(pivots[k]) - 1]] = exchange[[abs(pivots[k]) - 1, end - 1]]
        step[end:, k:end] = ld[end:, k:end]
        lower = lower @ exchange @ step
        block = np.tril(ld[k:end, k:end])
        blocks[k:end, k:end] = block + turned(np.tril(block, -1))
        k = end
    return lower @ blocks @ turned(lower)


def indefinite():
    SEEN.update(("ldl", "ldl_solve"))
    twos = 0
    for dtype, tolerance in TYPES.items():
        for shape in ((1, 1), (2, 2), (5, 5), (2, 6, 6), (2, 0, 3, 3), (0, 0), (90, 90)):
            for hermitian in (False, True):
                turned = H if hermitian else lambda x: np.swapaxes(x, -1, -2)
                a, title = matrices(shape, dtype), f"{dtype}{list(shape)} {hermitian}"
                a = a + turned(a)
                if shape[-1] > 1:
                    a[..., 0, 0] = 0  # no pivot of one row is enough
                read = a + np.triu(np.full(shape[-2:], 7), 1)  # the upper triangle is not read
                ld, pivots = apply("ldl", [read.astype(dtype)], {"hermitian": hermitian})
                twos += np.count_nonzero(pivots < 0)
                near = 10 * tolerance * max(4, shape[-1])
                if np.any(np.triu(ld, 1)):
                    FAILURES.append(f"ldl {title}: numbers above the diagonal")
                for at in np.ndindex(*shape[:-2]):
                    holds(f"ldl {title}", product_of_ldl(ld[at], pivots[at], turned), a[at], near)
                b = matrices((*shape[:-1], 3), dtype, 66)
                (x,) = apply("ldl_solve", [ld, pivots, b], {"hermitian": hermitian})
                holds(f"ldl_solve {title}", a @ x, b, 100 * near)
    if twos < 40:
        FAILURES.append(f"ldl: only {twos} rows are in blocks of two")
    a = matrices((3, 3), "f8")
    a += a.T
    ld, pivots = apply("ldl", [a], {})
    for bad in ([0, 1, 2], [1, 2, 4], [1, 2, -3], [-2, -3, 3], [-4, -4, 3], [2**31 - 1, 2, 3]):
        expect("ldl_solve", [ld, np.array(bad, "i4"), np.ones((3, 1))], np.full((3, 1), NAN))
    for bad in (NAN, INF):
        pair = np.stack([np.eye(3), np.eye(3)])
        pair[1, 2, 0], pair[0, 0, 2] = bad, bad
        ld = apply("ldl", [pair], {})[0]
        if not np.all(np.isfinite(ld[0])) or not np.all(np.isnan(ld[1])):
            FAILURES.append(f"ldl with {bad}: {ld}")
    for shape in ((2, 3, 3), (4, 4)):
        z, w, g = (matrices((*shape[:-1], n), "c16", seed) for n, seed in ((shape[-1], 60), (2, 67), (2, 68)))
        for hermitian in (False, True):
            a = z + (H(z) if hermitian else np.swapaxes(z, -1, -2))
            ld, pivots = apply("ldl", [a], {"hermitian": hermitian})
            leaf = CTX.tensor(w).require_grad()
            x = CTX.apply("ldl_solve", [CTX.tensor(ld), CTX.tensor(pivots), leaf], {"hermitian": hermitian})[0]
            (slope,) = CTX.grad(x, [leaf], CTX.tensor(g))
            holds(f"slope of ldl_solve {shape} {hermitian}", slope.numpy(), np.linalg.solve(H(a), g), 1e-11)
    refused("ldl", [np.zeros((2, 3))], "its last two dimensions must be equal")
    refused("ldl_solve", [np.zeros((3, 3)), np.zeros(2, "i4"), np.zeros((3, 1))], "pivots are i32[2]; of ld, f64[3, 3], they have all dimensions but the last")
    refused("ldl_solve", [np.zeros((3, 3)), np.zeros(3, "i4"), np.zeros((2, 1))], "all dimensions but the last must be equal")
    for op, inputs, k, text in (("ldl", [np.eye(2)], 0, "ldl's factors have no gradient"),
                                ("ldl_solve", [np.eye(2), np.array([1, 2], "i4"), np.ones((2, 1))], 0, "ldl_solve has a gradient to b alone")):
        tensors = [CTX.tensor(x) for x in inputs]
        tensors[k].require_grad()
        try:
            CTX.grad(CTX.apply(op, tensors, {})[0], [tensors[k]], CTX.tensor(np.ones_like(inputs[-1] if op == "ldl_solve" else inputs[0])))
            FAILURES.append(f"{op}: a gradient that there is not")
        except weft.WeftError as error:
            if error.code != "UNIMPLEMENTED" or text not in error.message:
                FAILURES.append(f"{op}: {error}")


PARTS = (kept_factors, indefinite, factors, solutions, numbers, degenerate, on_every_instruction_set, refusals_of_matrices)
