"""libweft.linalg and libweft.fft beside numpy.linalg and numpy.fft, name by name, in f64, c128 and f32, of single matrices and batches. Vectors have a sign or a
phase to choose: they are compared by what they rebuild."""

import os
import unittest

import support

try:
    import numpy
except ImportError:
    if "WEFT_BUILD" not in os.environ:
        raise unittest.SkipTest("NumPy is not installed") from None
    from support_env import enter_checkers

    enter_checkers(os.path.abspath(__file__))

import libweft  # noqa: E402

# m: matrices, s: square ones, h: positive definite ones, v: vectors. With `back` a decomposition becomes what it decomposes.
LINES = """
cholesky(h) cholesky(h, upper=True) det(s) inv(s) eigvalsh(h) eigvalsh(h, UPLO="U") svdvals(m) pinv(m) pinv(m, rtol=0.3)
cond(s) cond(s, 1) cond(s, -1) cond(s, "fro") cond(s, np.inf) cond(s, "nuc") cond(m, -2)
matrix_rank(m) matrix_rank(m, 1e3) matrix_rank(m, rtol=0.5) matrix_power(s, 3) matrix_power(s, -2)
matrix_norm(m) matrix_norm(m, ord="nuc") matrix_norm(m, ord=1) matrix_norm(m, ord=-1) matrix_norm(m, ord=2, keepdims=True)
norm(m) norm(v) norm(v, 1, axis=-1) norm(m, axis=0) norm(m, np.inf, axis=(-1,-2)) norm(m, 1, axis=(-2,-1), keepdims=True)
norm(m, "nuc", axis=(0,-1)) norm(v, 0, axis=-1) norm(v, -np.inf, axis=-1, keepdims=True)
vector_norm(m) vector_norm(m, axis=-1, ord=3) vector_norm(m, axis=(0,1), keepdims=True) vector_norm(v, ord=np.inf)
solve(s, s) solve(s, m[...,:2]) diagonal(m) diagonal(m, offset=1) trace(m) trace(m, offset=-1) matrix_transpose(m)
vecdot(m, m) vecdot(m, m, axis=0) matmul(s, m) slogdet(s)[0] slogdet(s)[1] slogdet(s).sign qr(m, mode="r").shape
back(eigh(h)) back(eigh(h, UPLO="U")) back(svd(m)) back(svd(m, full_matrices=False)) svd(m, compute_uv=False) back(qr(m))
back(qr(m, mode="complete")) qr(m).Q.shape svd(m).Vh.shape svd(m).U.shape
np.sort(np.abs(eigvals(s))) np.sort(np.abs(eig(s).eigenvalues))
""".split("\n")
SINGLE = """
lstsq(m, m[:,0])[0] lstsq(m, m[:,:2])[0] lstsq(m, m[:,:2])[2] lstsq(m, m[:,:2])[3] lstsq(m.T, np.stack([m[0]*m[1],m[1]],1))[1] outer(v, v) cross(v, 2*v-1) tensordot(s, m, axes=1)
tensordot(s, m, axes=((0,),(0,))) multi_dot([s,m,m.T,s]) multi_dot([s,v]) multi_dot([v,s,s,v]) multi_dot([m,m.T])
tensorinv(s.reshape(3,3,1)*np.ones((1,1,1)),1) tensorsolve(s.reshape(3,1,3)*1,v.reshape(3,1)) tensorsolve(s.reshape(3,3),v)
""".split("\n")

# x: numbers [3, 6, 5, 4], real or complex; r: real ones.
TRANSFORMS = """
fft(x) ifft(x) fft(x,4,1) fft(x,9,0) ifft(x,3,norm="ortho") fft(x,axis=-2,norm="forward") ifft(x,norm="forward") fft(r)
fftn(x) ifftn(x) fftn(x,(4,7)) fftn(x,axes=(0,2)) ifftn(x,(2,3,4,5),(3,1,0,2),norm="ortho") fftn(x,(-1,2),(0,1)) fft2(x) ifft2(x,norm="forward") fft2(r,(3,3),(1,0))
rfft(r) rfft(r,7) rfft(r,3,0,"ortho") rfftn(r) rfftn(r,(4,8),(2,1)) rfft2(r,norm="forward")
irfft(x) irfft(x,7) irfft(x,6,1,"ortho") irfft(x,3) irfftn(x) irfftn(x,(5,7),(0,1)) irfft2(x,norm="forward") irfftn(x,axes=(1,),norm="forward")
hfft(x) hfft(x,9,norm="ortho") hfft(x,axis=0,norm="forward") ihfft(r) ihfft(r,4,1,norm="forward")
fftfreq(7) fftfreq(8,d=0.25) rfftfreq(7) rfftfreq(8,d=2.0) fftshift(x) fftshift(x,1) fftshift(x,(0,-1)) ifftshift(x) ifftshift(x,axes=2)
"""


def back(found):
    """What the parts of a decomposition rebuild."""
    names = getattr(found, "_fields", ())
    if names == ("eigenvalues", "eigenvectors"):
        return (found[1] * found[0][..., None, :]) @ found[1].conj().swapaxes(-1, -2)
    if names == ("Q", "R"):
        return found[0] @ found[1]
    k = found[1].shape[-1]
    return (found[0][..., :, :k] * found[1][..., None, :]) @ found[2][..., :k, :]


def operands(dtype, batch):
    rng = numpy.random.default_rng(7)

    def draw(*shape):
        x = rng.normal(size=batch + shape)
        return (x + 1j * rng.normal(size=batch + shape) if dtype == "c16" else x).astype(dtype)

    s = draw(3, 3)
    return {"m": draw(3, 4), "s": s, "h": s @ s.conj().swapaxes(-1, -2) + numpy.eye(3, dtype=dtype), "v": draw(3)}


class Linalg(unittest.TestCase):
    def judge(self, lines, dtype, batch):
        bound = {"f4": 2e-4, "f8": 1e-11, "c16": 1e-11}[dtype]
        mine = operands(dtype, batch)
        theirs = {name: libweft.tensor(x) for name, x in mine.items()}
        count = 0
        for call in " ".join(lines).replace(", ", ",").split():
            with self.subTest(call, dtype=dtype, batch=batch):
                wanted = eval(call, {"np": numpy, "back": back, **vars(numpy.linalg), **mine})
                found = eval(call, {"np": libweft, "back": back, **vars(libweft.linalg), **theirs})
                found = found.numpy() if isinstance(found, libweft.Tensor) else numpy.asarray(found)
                self.assertEqual(numpy.shape(wanted), found.shape)
                numpy.testing.assert_allclose(found, wanted, rtol=bound, atol=bound)
                count += 1
        return count

    def test_every_name_gives_numpys_values(self):
        for dtype in ("f8", "c16", "f4"):
            self.assertGreater(self.judge(LINES + SINGLE, dtype, ()), 75)
            self.judge(LINES, dtype, (2, 3))

    def test_transforms_give_numpys_values(self):
        rng, bound = numpy.random.default_rng(8), {"f4": 2e-5, "f8": 1e-12}
        for dtype in ("f4", "f8"):
            r = rng.normal(size=(3, 6, 5, 4)).astype(dtype)
            for x in (r, r + 1j * rng.normal(size=r.shape).astype(dtype)):
                mine = {"x": libweft.tensor(x), "r": libweft.tensor(r)}
                for call in TRANSFORMS.split():
                    with self.subTest(call, dtype=x.dtype):
                        wanted = eval(call, {**vars(numpy.fft), "x": x, "r": r})
                        found = eval(call, {**vars(libweft.fft), **mine}).numpy()
                        self.assertEqual((wanted.shape, wanted.dtype.kind), (found.shape, found.dtype.kind))
                        if "freq" not in call:
                            self.assertEqual(dtype[1], str(found.dtype.itemsize // (2 if found.dtype.kind == "c" else 1)))
                        close = bound["f4" if found.dtype in ("f4", "c8") else "f8"]
                        numpy.testing.assert_allclose(found, wanted, rtol=close, atol=close * 40)
        self.assertEqual({n for n in numpy.fft.__all__}, set(libweft.fft.__all__))
        self.assertEqual([], [n for n in libweft.fft.__all__ if n + "(" not in TRANSFORMS])
        for call, words in (
            (lambda: libweft.fft.fft([1.0], 0), "n is 0"),
            (lambda: libweft.fft.fft([1.0], norm="both"), "norm is 'both'"),
            (lambda: libweft.fft.fft([1.0], axis=1), "axes"),
            (lambda: libweft.fft.fftn(libweft.ones((2, 2)), (2,), (0, 1)), "as many sizes"),
            (lambda: libweft.fft.fftn(libweft.ones((2, 2)), axes=(0, 0)), "each once"),
            (lambda: libweft.fft.fft(1.0), "axes"),
        ):
            with self.assertRaisesRegex((ValueError, IndexError), words):
                call()

    def test_the_names_are_those_of_numpy(self):
        missing = {n for n in numpy.linalg.__all__ if n[0].islower()} - set(libweft.linalg.__all__) - {"linalg"}
        self.assertEqual(set(), missing)
        used = " ".join(LINES + SINGLE)
        self.assertEqual([], [n for n in libweft.linalg.__all__ if n + "(" not in used and n != "matrix_exp"])
        for name in libweft.linalg.__all__:
            self.assertTrue(callable(getattr(libweft.linalg, name)), name)

    def test_a_tensor_of_rtol_has_one_for_each_matrix(self):
        x = numpy.stack([numpy.diag([1.0, 0.5, 0.01])] * 2)
        rtol = numpy.array([0.1, 0.001])
        ranks = libweft.linalg.matrix_rank(x, rtol=rtol)
        self.assertEqual([2, 3], ranks.tolist())
        numpy.testing.assert_allclose(libweft.linalg.pinv(x, rtol=rtol).numpy(), numpy.linalg.pinv(x, rtol=rtol), rtol=1e-12)

    def test_control_flow_keeps_its_name(self):
        self.assertEqual(3.0, float(libweft.cond(True, lambda: libweft.tensor(3.0), lambda: libweft.tensor(4.0))))

    def test_wrong_calls(self):
        m = libweft.ones((2, 3, 4))
        for call, words in (
            (lambda: libweft.linalg.matrix_norm(m, ord=3), "'fro', 'nuc'"),
            (lambda: libweft.linalg.cond(m, "max"), "'fro', 'nuc'"),
            (lambda: libweft.linalg.norm(m, ord=1), "no vector and no matrix"),
            (lambda: libweft.linalg.qr(m, mode="raw"), "mode is 'raw'"),
            (lambda: libweft.linalg.eigh(m, UPLO="X"), "UPLO is 'X'"),
            (lambda: libweft.linalg.multi_dot([m]), "two or more matrices"),
            (lambda: libweft.linalg.det(m), "square"),
            (lambda: libweft.linalg.svd(m, full=True), "full_matrices"),
        ):
            with self.assertRaisesRegex((ValueError, TypeError), words):
                call()


if __name__ == "__main__":
    unittest.main()
