"""Functions of complex tensors, each written once on a library's names `m`, with the inputs that it is differentiated at. Weft, JAX
and PyTorch say what the names are (complex_test.py, make_complex_fixture.py)."""
import zlib

import numpy as np

MASK = np.array([[True, False, True], [False, False, True]])


class Case:
    """`inputs`: "z2,3" is complex [2, 3], "x" a real number, or the numbers themselves. `jax` says why JAX is no judge of it."""

    def __init__(self, name, function, *inputs, jax=""):
        self.name, self.function, self.inputs, self.jax = name, function, inputs, jax

    def arrays(self, bits):
        """The inputs, and a function that draws cotangents, of c64 (bits 64) or c128."""
        draws = np.random.default_rng(zlib.crc32(self.name.encode()))
        kinds = {"z": f"c{bits // 8}", "x": f"f{bits // 16}"}

        def draw(kind, shape):
            parts = 4 * draws.random((2, *shape)) - 2
            return (parts[0] + 1j * parts[1] if kind[0] in "zc" else parts[0]).astype(kinds.get(kind, kind))

        made = []
        for text in self.inputs:
            if isinstance(text, str):
                made.append(draw(text[0], tuple(int(n) for n in text[1:].split(",") if n)))
            else:
                made.append(np.asarray(text).astype(kinds["z" if np.iscomplexobj(text) else "x"]))
        return made, draw


def unary(name, *shapes, **more):
    return [Case(f"{name} {shape or 'scalar'}", lambda m, z: getattr(m, name)(z), "z" + shape, **more) for shape in shapes or ("2,3", "", "0,3", "7")]


def binary(name):
    f = lambda m, a, b: getattr(m, name)(a, b)
    return [Case(f"{name} {a} {b}", f, a, b) for a, b in (("z2,3", "z2,3"), ("z4,1", "z3"), ("z", "z5"), ("z0,3", "z3"), ("z", "z"))]


def elementwise():
    for name in ("neg", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "sigmoid", "square", "abs", "real", "imag",
                 "conj", "to_real"):
        yield from unary(name)
    yield from unary("sign", jax="says 0")
    for name in ("add", "sub", "mul", "div", "pow"):
        yield from binary(name)
    for a, b in (("x2,3", "x2,3"), ("x4,1", "x3"), ("x", "x5"), ("x0,3", "x3")):
        yield Case(f"complex {a} {b}", lambda m, a, b: m.complex(a, b), a, b)
    yield Case("to_complex", lambda m, x: m.to_complex(x), "x2,3")
    yield Case("real times complex", lambda m, x, z: m.mul(m.to_complex(x), z), "x2,3", "z3")
    yield Case("complex to a real power", lambda m, z, x: m.pow(z, m.to_complex(x)), "z2,3", "x3")
    yield Case("real divided by complex", lambda m, x, z: m.div(m.to_complex(x), z), "x3", "z2,3")
    yield Case("where", lambda m, a, b: m.where(MASK, a, b), "z2,3", "z2,3")
    # Where rules go wrong.
    zeros = np.array([0, 1j, -1, 3 - 4j])
    yield Case("abs at 0", lambda m, z: m.abs(z), zeros, jax="says NaN")
    yield Case("sign at 0", lambda m, z: m.sign(z), zeros, jax="says 0")
    yield Case("square at 0", lambda m, z: m.square(z), zeros)
    yield Case("pow at 0", lambda m, a, b: m.pow(a, b), np.array([0, 0, 2, 1j]), np.array([2, 3 + 0j, 0, 0]), jax="says NaN")
    yield Case("mul of zeros", lambda m, a, b: m.mul(a, b), zeros, zeros[::-1].copy())
    yield Case("log on the cut", lambda m, z: m.log(z), np.array([-1 + 0j, -2, 1e-3, 1j]))
    yield Case("sqrt on the cut", lambda m, z: m.sqrt(z), np.array([-1 + 0j, -2, 1e-3, 1j]))
    yield Case("far from 0", lambda m, z: m.div(m.exp(z), m.abs_as_complex(z)), np.array([30 + 30j, -30 - 3j, 1e-3j, 20]))


def moves():
    z = "z2,3"
    yield Case("transpose", lambda m, z: m.transpose(z, [1, 0]), z)
    yield Case("reshape", lambda m, z: m.reshape(z, [3, 2]), z)
    yield Case("broadcast_to", lambda m, z: m.broadcast_to(z, [4, 2, 3]), z)
    yield Case("slice", lambda m, z: m.slice(z, [0, 1], [5, 4], [2, 1]), "z5,4")
    yield Case("reverse", lambda m, z: m.reverse(z, [1]), z)
    yield Case("concatenate", lambda m, a, b: m.concatenate([a, b], 1), z, "z2,2")
    yield Case("stack", lambda m, a, b: m.stack([a, b], 1), z, z)
    yield Case("pad", lambda m, z: m.pad(z, [1, 0], [0, 2]), z)
    yield Case("roll", lambda m, z: m.roll(z, 2, 1), z)
    yield Case("tile", lambda m, z: m.tile(z, [2, 3]), z)
    yield Case("tril", lambda m, z: m.tril(z), "z4,4")
    yield Case("diff", lambda m, z: m.diff(z), "z3,5")
    yield Case("take", lambda m, z: m.take(z, np.array([2, 0, 1, 1]), 1), z)
    yield Case("take of nothing", lambda m, z: m.take(z, np.zeros(0, "i4"), 1), z)
    yield Case("put", lambda m, z, u: m.put(z, np.array([2, 0]), u), "z5,3", "z2,3")
    yield Case("put_add", lambda m, z, u: m.put_add(z, np.array([2, 0, 2]), u), "z5,3", "z3,3")
    yield Case("dynamic_slice", lambda m, z: m.dynamic_slice(z, [1, 0], [2, 2]), "z4,3")
    yield Case("dynamic_update_slice", lambda m, z, u: m.dynamic_update_slice(z, u, [1, 0]), "z4,3", "z2,2")


def sums():
    for name in ("sum", "prod", "mean"):
        for shape, axes in (("2,3", [0]), ("2,3", [1]), ("2,3", [0, 1]), ("4,5,3", [0, 2]), ("131", [0]), ("0,3", [1]), ("", [])):
            # Where 131 factors of size about 2 go nobody can tell digits.
            if name != "prod" or shape != "131":
                yield Case(f"{name} {shape} {axes}", lambda m, z, name=name, axes=axes: getattr(m, name)(z, axes), "z" + shape)
    yield Case("sum over nothing", lambda m, z: m.sum(z, [0]), "z0,3")
    yield Case("prod of zeros", lambda m, z: m.prod(z, [1]), np.array([[0, 1j, 2], [0, 0, 1 + 1j], [1, 2, 3j]]))
    for name in ("cumsum", "cumprod"):
        for shape, axis in (("7", 0), ("3,5", 0), ("2,4,3", 1), ("0,3", 1)):
            yield Case(f"{name} {shape}", lambda m, z, name=name, axis=axis: getattr(m, name)(z, axis), "z" + shape)
    yield Case("window sums", lambda m, z: m.window_sum(z, 3, 2), "z9")


def products():
    for a, b in (("4,5", "5,3"), ("5", "5"), ("2,4,5", "2,5,3"), ("2,4,5", "5,3"), ("4,5", "5"), ("0,5", "5,3"), ("3,0", "0,2"), ("33,65", "65,17")):
        yield Case(f"matmul {a} {b}", lambda m, a, b: m.matmul(a, b), "z" + a, "z" + b)
    yield Case("matmul of itself", lambda m, z: m.matmul(z, z), "z4,4")
    yield Case("matmul real complex", lambda m, x, z: m.matmul(m.to_complex(x), z), "x3,4", "z4,2")
    for stride, pad in ((1, 0), (2, 1), (1, 2)):
        yield Case(f"convolution {stride} {pad}", lambda m, x, w, s=stride, p=pad: m.convolution(x, w, s, p), "z2,3,7", "z4,3,3")


def spectra():
    for n in (1, 2, 5, 8, 37, 67, 96):
        yield Case(f"fft {n}", lambda m, z, n=n: m.fft(z, [n]), f"z2,{n}")
        yield Case(f"ifft {n}", lambda m, z, n=n: m.ifft(z, [n]), f"z2,{n}")
        yield Case(f"rfft {n}", lambda m, x, n=n: m.rfft(x, [n]), f"x2,{n}")
        yield Case(f"irfft {n}", lambda m, z, n=n: m.irfft(z, [n]), f"z2,{n // 2 + 1}")
    yield Case("fft of nothing", lambda m, z: m.fft(z, [4]), "z0,4")
    for lengths in ([3, 4], [2, 3, 5], [3, 2, 6]):
        whole = ",".join(map(str, lengths))
        half = ",".join(map(str, [*lengths[:-1], lengths[-1] // 2 + 1]))
        for name in ("fft", "ifft", "rfft", "irfft"):
            given = {"rfft": f"x2,{whole}", "irfft": f"z2,{half}"}.get(name, f"z2,{whole}")
            yield Case(f"{name} {lengths}", lambda m, v, name=name, lengths=lengths: getattr(m, name)(v, lengths), given)


def composites():
    norm = lambda m, z: m.sum(m.square(m.abs(z)), list(range(len(z.shape))))
    yield Case("norm", norm, "z2,3")
    yield Case("spectral filter", lambda m, x, h: m.irfft(m.mul(m.rfft(x, [12]), h), [12]), "x2,12", "z7")
    yield Case("power spectrum", lambda m, x: m.sum(m.square(m.abs(m.rfft(x, [9]))), [0]), "x9")
    yield Case("least squares", lambda m, a, x, y: norm(m, m.sub(m.matmul(a, x), y)), "z6,3", "z3,2", "z6,2")
    yield Case("a real layer in between", lambda m, z, w: m.matmul(m.tanh(m.abs(z)), w), "z4,5", "x5,3")
    yield Case("phases", lambda m, x: m.real(m.exp(m.complex(m.mul(x, x), x))), "x5")
    yield Case("unit circle", lambda m, z, w: norm(m, m.sub(m.sign(z), w)), "z5", "z5", jax="says 0 of sign")
    yield Case("Hermitian form", lambda m, a, z: m.real(m.sum(m.mul(m.conj(z), m.matmul(a, z)), [0])), "z4,4", "z4")
    yield Case("Mandelbrot", lambda m, c: m.abs(m.add(m.square(m.add(m.square(c), c)), c)), "z5")
    yield Case("gate", lambda m, z, b: m.mul(z, m.to_complex(m.sigmoid(m.add(m.abs(z), b)))), "z4,3", "x3")
    yield Case("used twice", lambda m, z: m.add(m.mul(z, m.conj(z)), m.mul(z, z)), "z3")


CASES = [case for part in (elementwise, moves, sums, products, spectra, composites) for case in part()]
assert len({case.name for case in CASES}) == len(CASES)
