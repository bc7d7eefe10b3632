"""Gradients of decompositions and solutions beside JAX's, in f64 and c128.
Vectors have a sign, or a factor of modulus 1, that is LAPACK's to choose, so functions here do not depend on it; hermitian matrices are
made so first, since JAX differentiates by both triangles and Weft by the one that is read. JAX comes into a virtual environment of
the build tree; without the registry the test is SKIPPED and says so."""
import os
import sys
import unittest
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "harness"), os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "conformance"), HERE]
import outcomes  # noqa: E402

outcomes.enter(__file__)
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import weft  # noqa: E402

jax.config.update("jax_enable_x64", True)
CTX = None


class Weft:
    """Operations by name: one result, or a list."""

    def __getattr__(self, op):
        def call(*inputs, **attrs):
            found = CTX.apply(op, [CTX.tensor(x) if isinstance(x, np.ndarray) else x for x in inputs], attrs)
            return found[0] if len(found) == 1 else found
        return call

    def H(self, x):
        order = list(range(len(x.shape)))
        order[-2:] = order[:-3:-1]
        y = self.transpose(x, permutation=order)
        return self.conj(y) if "complex" in x.dtype else y


class Jax:
    """The same names on JAX."""
    add, mul, sub, abs, matmul, conj = jnp.add, jnp.multiply, jnp.subtract, jnp.abs, jnp.matmul, jnp.conj
    inv, det, slogdet, eigvalsh, pinv = jnp.linalg.inv, jnp.linalg.det, jnp.linalg.slogdet, jnp.linalg.eigvalsh, jnp.linalg.pinv
    eigvals, matrix_exp, lu = jnp.linalg.eigvals, jax.scipy.linalg.expm, jax.lax.linalg.lu
    H = staticmethod(lambda x: jnp.conj(jnp.swapaxes(x, -1, -2)))
    solve = staticmethod(lambda a, b: jnp.linalg.solve(a, b))

    @staticmethod
    def householder_product(v, tau):  # whose own has no rule
        m, n = v.shape
        q = jnp.eye(m)
        for i in range(n):
            column = jnp.where(jnp.arange(m) > i, v[:, i], jnp.arange(m) == i)[:, None]
            q = q @ (jnp.eye(m) - tau[i] * column @ jnp.conj(column.T))
        return q[:, :n]

    eigh = staticmethod(lambda x: jnp.linalg.eigh(x, symmetrize_input=False))
    svd = staticmethod(lambda x: jnp.linalg.svd(x, full_matrices=False))
    svdvals = staticmethod(lambda x: jnp.linalg.svd(x, compute_uv=False))
    qr = staticmethod(lambda x: jnp.linalg.qr(x))
    cholesky = staticmethod(lambda x, lower: jnp.linalg.cholesky(x))
    triangular_solve = staticmethod(lambda a, b, lower, transpose_a: jax.lax.linalg.triangular_solve(
        a, b, left_side=True, lower=lower, transpose_a=transpose_a != "NO_TRANSPOSE", conjugate_a=transpose_a == "ADJOINT"))


def draws(name, *shapes, complex):
    random = np.random.default_rng(zlib.crc32(name.encode()))
    made = [random.normal(size=(2, *shape)) for shape in shapes]
    return [x[0] + 1j * x[1] if complex else x[0] for x in made]


# name: (function of a library, shapes). What it gives is one array or several.
def hermitian(m, x):
    return m.add(x, m.H(x))


def eigh(m, x):
    w, v = m.eigh(hermitian(m, x))
    return w, m.abs(v)


def projector(m, x):
    u, s, vh = m.svd(x)
    return s, m.abs(u), m.abs(vh), m.matmul(u, vh)


CASES = {
    "solve": (lambda m, a, b: m.solve(a, b), (4, 4), (4, 3)),
    "solve of a batch": (lambda m, a, b: m.solve(a, b), (2, 3, 3), (2, 3, 1)),
    "inv": (lambda m, a: m.inv(a), (2, 3, 3)),
    "det": (lambda m, a: m.det(a), (2, 4, 4)),
    "slogdet": (lambda m, a: m.slogdet(a)[1], (3, 3)),
    "lu": (lambda m, a: m.lu(a)[0], (4, 4)),
    "lu of a tall one": (lambda m, a: m.lu(a)[0], (2, 5, 3)),
    "lu of a wide one": (lambda m, a: m.lu(a)[0], (3, 5)),
    "qr": (lambda m, a: m.qr(a), (4, 4)),
    "qr of a tall one": (lambda m, a: m.qr(a), (2, 5, 3)),
    "eigh": (eigh, (4, 4)),
    "eigh of a batch": (eigh, (2, 3, 3)),
    "eigvalsh": (lambda m, a: m.eigvalsh(hermitian(m, a)), (4, 4)),
    "svd": (projector, (4, 4)),
    "svd of a tall one": (projector, (2, 5, 3)),
    "svd of a wide one": (projector, (3, 5)),
    "svdvals": (lambda m, a: m.svdvals(a), (4, 3)),
    "eigvals": (lambda m, a: m.abs(m.eigvals(a)), (4, 4)),
    "pinv of a tall one": (lambda m, a: m.pinv(a), (5, 3)),
    "pinv of a wide one": (lambda m, a: m.pinv(a), (2, 3, 4)),
    "matrix_exp": (lambda m, a: m.matrix_exp(a), (3, 3)),
    "cholesky": (lambda m, a: m.cholesky(m.matmul(a, m.H(a)), lower=True), (2, 3, 3)),
    "householder_product": (lambda m, v, tau: m.householder_product(v, tau), (5, 3), (3,)),
    **{f"triangular_solve {op} {lower}": (lambda m, a, b, op=op, lower=lower: m.triangular_solve(a, b, lower=lower, transpose_a=op), (3, 3), (3, 2))
       for op in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT") for lower in (False, True)},
}

def leaf(array):
    x = CTX.tensor(array)
    x.require_grad()
    return x


def several(x):
    return list(x) if isinstance(x, (list, tuple)) else [x]


class Gradients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        global CTX
        weft.load()
        CTX = weft.Context()

    def near(self, title, found, right):
        right = np.asarray(right)
        self.assertEqual(found.shape, right.shape, title)
        scale = 1 + np.max(np.abs(right), initial=0)
        self.assertLess(np.max(np.abs(found - right), initial=0) / scale, 1e-9, title)

    def test_reverse_mode_is_jaxs(self):
        compared = 0
        for name, (function, *shapes) in CASES.items():
            for complex in (False, True):
                title = f"{name}, {'c128' if complex else 'f64'}"
                arrays = draws(name, *shapes, complex=complex)
                values, pullback = jax.vjp(lambda *x: tuple(several(function(Jax, *x))), *map(jnp.asarray, arrays))
                tensors = [leaf(x) for x in arrays]
                results = several(function(Weft(), *tensors))
                for got, want in zip(results, values, strict=True):
                    self.near(f"{title}: values", got.numpy(), want)
                random = np.random.default_rng(7)
                cotangents = []
                for want in values:
                    c = random.normal(size=(2, *want.shape))
                    cotangents.append(c[0] + 1j * c[1] if np.iscomplexobj(want) else c[0])
                # JAX's convention is the conjugate of PyTorch's.
                right = [np.conj(x) for x in pullback(tuple(jnp.asarray(np.conj(c)) for c in cotangents))]
                total = [np.zeros_like(x) for x in arrays]
                for result, c in zip(results, cotangents):
                    for i, g in enumerate(CTX.grad(result, tensors, CTX.tensor(c))):
                        total[i] = total[i] + g.numpy()
                for i, want in enumerate(right):
                    self.near(f"{title}: gradient by input {i}", total[i], want)
                    compared += 1
        self.assertGreater(compared, 60)

    def test_a_gradient_of_a_singular_determinant_is_its_cofactors(self):
        for rows in ([[1.0, 2], [2, 4]], [[1.0, 2, 3], [2, 4, 6], [1, 0, 1]], np.ones((3, 3)), np.zeros((2, 2))):
            a = np.array(rows)
            x = leaf(a)
            (got,) = CTX.grad(Weft().det(x), [x], CTX.tensor(np.array(1.0)))
            n = len(a)
            minors = [[np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) * (-1) ** (i + j) if n > 1 else 1 for j in range(n)] for i in range(n)]
            self.near(f"det of {rows}", got.numpy(), np.array(minors))

    def test_eigenvectors_of_any_matrix_agree_with_differences(self):
        """Lengths of elements do not depend on the factors of modulus 1."""
        for complex in (False, True):
            (a,) = draws("eig", (4, 4), complex=complex)
            weights = np.random.default_rng(8).normal(size=(4, 4))

            def loss(x):
                w, v = np.linalg.eig(x)
                order = np.lexsort((w.imag, w.real))
                return float(np.sum(weights * np.abs(v[:, order]) ** 2))

            x = leaf(a)
            w, v = Weft().eig(x)
            order = np.lexsort((w.numpy().imag, w.numpy().real))
            placed = np.empty((4, 4))
            placed[:, order] = weights
            y = Weft().sum(Weft().mul(Weft().square(Weft().abs(v)), placed))
            (got,) = CTX.grad(y, [x])
            step = draws("step", (4, 4), complex=complex)[0]
            h = 1e-5
            slope = (8 * (loss(a + h * step) - loss(a - h * step)) - (loss(a + 2 * h * step) - loss(a - 2 * h * step))) / (12 * h)
            self.assertAlmostEqual(float(np.sum(np.real(np.conj(got.numpy()) * step))), slope, delta=1e-6 * (1 + abs(slope)))

    def test_what_does_not_exist_is_refused_by_name(self):
        for op, shape, result in (("svd", (4, 2), 0), ("qr", (4, 2), 0)):
            x = leaf(np.ones(shape))
            y = CTX.apply(op, [x], {"full_matrices": True})[result]
            with self.assertRaisesRegex(weft.WeftError, "free to turn"):
                CTX.grad(Weft().sum(y), [x])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
