"""Programs in NumPy's way of writing, each run twice, by NumPy and with `import libweft as np`: what its quickstart shows, section
by section, in programs of our own. Values and shapes are NumPy's; floats are f32 and NumPy's f64, unless a type is said."""

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

SECTIONS = {
    "the basics": """
m = np.arange(24).reshape(4, 6)
show(m, m.shape, m.ndim, m.itemsize, m.size, m.nbytes, len(m))
show(np.array([4, 1, 9]), np.asarray([4, 1, 9]))
""",
    "making arrays": """
show(np.array([1.25, 2.5]), np.array([(0.5, 1), (2, 3)]), np.array([[True], [False]]))
show(np.array([[1, 0], [2, 5]], dtype=complex), np.array([1, 2], dtype=float), np.array([1.5, 2.5], dtype=int))
show(np.zeros((2, 5)), np.ones((2, 1, 3), dtype=np.int16), np.empty((3, 2)).shape, np.full((2, 2), 7.5), np.eye(3), np.identity(2))
show(np.arange(7), np.arange(3, 17, 4), np.arange(0, 1, 0.25), np.linspace(-1, 1, 7), np.linspace(0, np.pi, 11).size)
show(np.zeros_like(np.arange(3)), np.ones_like(np.array([1.5])), np.full_like(np.array([1, 2]), 4), np.zeros(4))
show(np.fromfunction(lambda i, j: 2 * i + j, (3, 2), dtype=int))
""",
    "printing": """
say(np.arange(5))
say(np.arange(6).reshape(2, 3))
say(np.arange(8).reshape(2, 2, 2))
say(np.arange(5000))
say(np.array([True, False]))
""",
    "arithmetic": """
p, q = np.array([12, 24, 36, 48]), np.arange(4)
show(p - q, q**3, 5 * np.cos(p), p < 30, p // 5, p % 7, -p, abs(q - 2), p / 8, 2**q, p * q + 1)
A, B = np.array([[1, 2], [0, 1]]), np.array([[3, 0], [1, 5]])
show(A * B, A @ B, A.dot(B), np.dot(A, B), np.inner(A, B), np.outer(q, q), np.vdot(A, B))
c = np.ones((2, 2), dtype=int)
c *= 4
c += A
show(c)
d = np.array([0.5, 1.5])
d += np.array([1, 2])
show(d)
s = np.ones(3, dtype=np.int32) + np.linspace(0, 2, 3)
show(s, np.exp(s * 1j).real, np.exp(s * 1j).imag, np.array([1, 2]) + 0.5, np.array([True, False]) + 1)
""",
    "sums and such": """
t = np.array([[0.5, 2.0, 1.0], [3.0, -1.0, 4.0]])
show(t.sum(), t.min(), t.max(), t.mean(), t.prod(), t.std(), t.var(), t.argmax(axis=1), t.argmin(axis=0))
u = np.arange(20).reshape(4, 5)
show(u.sum(axis=0), u.min(axis=1), u.cumsum(axis=1), u.max(axis=(0, 1)), u.sum(axis=1, keepdims=True), u.argmax(axis=0))
show((u > 3).any(), (u > 3).all(axis=0), np.any(u > 18), np.all(u >= 0), np.sort(t), np.argsort(t[0]), np.cumprod(t[0]))
""",
    "functions of each element": """
v = np.arange(4)
show(np.exp(v), np.sqrt(v), np.sin(v), np.add(v, np.array([2.0, -1.0, 4.0, 0.5])), np.log(v + 1), np.floor(v / 3), np.ceil(v / 3))
show(np.maximum(v, 2), np.minimum(v, 2), np.where(v > 1, v, -v), np.clip(v, 1, 2), np.sign(v - 1), np.square(v), np.isnan(v / 1.0))
show(np.round(np.array([0.5, 1.5, 2.4])), np.conj(np.array([1j])), np.tanh(v))
""",
    "indices, slices, loops": """
w = np.arange(9) ** 2
show(w[3], w[2:6], w[-1], w[::-1], w[1:8:3])
w[:6:2] = -5
show(w)
show([float(k) ** 2 for k in w])
g = np.fromfunction(lambda r, c: 10 * r + c, (4, 3), dtype=int)
show(g[2, 1], g[0:4, 1], g[:, 1], g[1:3, :], g[-1], g[..., 0], g[2, ...])
h = np.arange(12).reshape(2, 2, 3)
show(h.shape, h[1, ...], h[..., 2], h[:, :, 1:], h[:, None, 0].shape, h[:, np.newaxis].shape)
for row in g:
    show(row)
show([int(k) for k in g.flat])
""",
    "shapes": """
x = np.arange(12).reshape(3, 4)
show(x.ravel(), x.reshape(6, 2), x.T, x.T.shape, x.reshape(2, -1), x.reshape((-1, 2, 3)).shape, x.flatten(), np.ravel(x))
show(np.transpose(x), x.swapaxes(0, 1), np.moveaxis(x, 0, 1), np.squeeze(x[None]), np.expand_dims(x, 0).shape, np.repeat(x, 2, 0), np.flip(x, 1))
show(x.diagonal(), np.trace(x), np.tril(x), np.tile(np.arange(2), (3,)))
""",
    "stacking and splitting": """
a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 6.0], [7.0, 8.0]])
show(np.vstack((a, b)), np.hstack((a, b)), np.column_stack((a, b)), np.dstack((a, b)), np.stack((a, b), axis=1), np.concatenate((a, b), 1))
e, f = np.array([4.0, 2.0]), np.array([3.0, 8.0])
show(np.column_stack((e, f)), np.hstack((e, f)), np.vstack([e, f]), e[:, np.newaxis], np.hstack((e[:, None], f[:, None])))
k = np.arange(24).reshape(2, 12)
show(*np.hsplit(k, 3), *np.hsplit(k, (3, 4)), *np.vsplit(k, 2), *np.array_split(k, 5, axis=1), *np.array_split(np.arange(7), [2, 5]))
""",
    "copies": """
a = np.arange(6)
b = a
show(b is a)
c = a.copy()
c[0] = 99
show(a, c, c is a)
""",
    "arrays of indices": """
a = np.arange(10) ** 2
show(a[np.array([1, 1, 4, 7])], a[np.array([[2, 3], [9, 0]])], a[[5, 0]])
palette, picture = np.array([[0, 0, 0], [9, 0, 0], [0, 9, 0]]), np.array([[0, 2], [1, 1]])
show(palette[picture])
m = np.arange(12).reshape(3, 4)
i, j = np.array([[0, 1], [2, 2]]), np.array([[3, 1], [0, 3]])
show(m[i, j], m[i, 2], m[:, j], m[(i, j)], m[tuple(np.stack([i, j]))])
data = np.array([[0.5, -1.0], [2.0, 0.25], [1.0, 4.0]])
best = data.argmax(axis=0)
show(best, np.array([10.0, 20.0, 30.0])[best], data[best, range(data.shape[1])], np.all(data[best, range(2)] == data.max(axis=0)))
v = np.arange(6)
v[[1, 4]] = 0
show(v)
v[[0, 0, 2]] = [7, 8, 9]
show(v[2])
v = np.arange(4)
v[[0, 0, 2]] += 1
show(v)
""",
    "arrays of truth values": """
a = np.arange(12).reshape(3, 4)
b = a > 6
show(b, a[b])
a[b] = -1
show(a)
x, y = np.meshgrid(np.linspace(-2, 1, 7), np.linspace(-1, 1, 5))
c = x + y * 1j
z = np.zeros_like(c)
count = np.zeros(z.shape, dtype=int)
for i in range(4):
    z = z * z + c
    far = abs(z) > 2
    count[far & (count == 0)] = i + 1
    z[far] = 2
show(count)
a = np.arange(12).reshape(3, 4)
rows, columns = np.array([False, True, True]), np.array([True, False, True, False])
show(a[rows, :], a[rows], a[:, columns], a[rows, columns])
""",
    "all combinations": """
a, b, c = np.array([2, 3]), np.array([8, 5, 4]), np.array([5, 4, 6, 8])
ax, bx, cx = np.ix_(a, b, c)
show(ax, bx, cx, ax + bx * cx, (ax + bx * cx)[1, 2, 3], a[1] + b[2] * c[3])
total = 0
for v in np.ix_(a, b, c):
    total = np.add(total, v)
show(total, np.arange(12).reshape(3, 4)[np.ix_(np.array([0, 2]), np.array([True, False, True, False]))])
""",
    "histograms": """
v = np.array([0.1, 0.4, 0.45, 0.9, 1.0, 0.0, 0.55, 0.3])
show(*np.histogram(v, bins=4), *np.histogram(v, bins=5, density=True), *np.histogram(v, bins=3, range=(0.15, 0.85)))
""",
}
# What the quickstart shows and has no meaning here, with the reason; each is absent by name or refuses.
WITHOUT_MEANING = {
    "x.view()": "tensors are values: nothing shares elements with them",
    "x.base": "as view",
    "x.flags": "how elements lie is the compiler's",
    "x.data": "as flags",
    "x.resize((2, 3))": "the shape of a tensor does not change; reshape gives another",
    "wf.random.default_rng(1)": "another generator's numbers; wf.seed and wf.random draw Philox's",
    "wf.r_": "indices as a language of their own; concat and arange say it",
    "wf.c_": "as r_",
    "wf.add.identity": "operations are functions, no ufuncs",
    "wf.array(1, 2, 3, 4)": "an error in NumPy, too",
}


def plain(value):
    """A value as NumPy's, without its name or width of type."""
    return numpy.array(value.numpy() if isinstance(value, libweft.Tensor) else value)


def outcome(code, np):
    shown, said = [], []
    exec(code, {"np": np, "show": lambda *values: shown.extend(map(plain, values)), "say": lambda value: said.append(str(value))})
    return shown, said


class NumpyStyle(unittest.TestCase):
    def test_sections_give_numpys_values(self):
        for name, code in SECTIONS.items():
            with self.subTest(name), libweft.Context(platform="reference"):
                (wanted, text), (mine, my_text) = outcome(code, numpy), outcome(code, libweft)
                self.assertEqual(text, my_text)
                self.assertEqual(len(wanted), len(mine))
                for n, (a, b) in enumerate(zip(wanted, mine)):
                    self.assertEqual(a.shape, b.shape, (name, n, a, b))
                    self.assertEqual(*[{"u": "i"}.get(v.dtype.kind, v.dtype.kind) for v in (a, b)], (name, n, a, b))
                    numpy.testing.assert_allclose(b, a, rtol=2e-6, atol=2e-6, err_msg="%s, value %d" % (name, n))

    def test_what_has_no_meaning_is_refused(self):
        for code, why in WITHOUT_MEANING.items():
            with self.subTest(code, why=why), self.assertRaises((AttributeError, TypeError, ValueError)):
                eval(code, {"wf": libweft, "x": libweft.arange(6)})


if __name__ == "__main__":
    unittest.main()
