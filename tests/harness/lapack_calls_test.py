"""JAX's calls of LAPACK on CPUs (custom_call @lapack_dgetrf_ffi and its kin): programs that JAX lowers for the CPU, read and run by Weft,
beside what JAX computes. Vectors have a sign of their own to choose, so what is compared does not depend on it. JAX comes into a
virtual environment of the build tree; without the registry the test is SKIPPED and says so."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]
import outcomes  # noqa: E402

outcomes.enter(__file__)
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

jax.config.update("jax_enable_x64", True)
TYPES = ("float32", "float64", "complex64", "complex128")


def draw(seed, shape, dtype):
    random = np.random.default_rng(seed)
    x = random.normal(size=shape)
    return (x + 1j * random.normal(size=shape) if "complex" in dtype else x).astype(dtype)


def symmetric(x):
    return x + jnp.conj(jnp.swapaxes(x, -1, -2))


def absolute(found):
    return [jnp.abs(x) for x in found]


CASES = {
    "cholesky": lambda x: jnp.linalg.cholesky(x @ jnp.conj(jnp.swapaxes(x, -1, -2)) + 4 * jnp.eye(4)),
    "lu": lambda x: list(jax.lax.linalg.lu(x)),
    "solve": lambda x: jnp.linalg.solve(x, x[..., :2] + 1),
    "inverse": jnp.linalg.inv,
    "determinant": jnp.linalg.det,
    "qr": lambda x: list(jnp.linalg.qr(x[..., :3])),
    "complete qr": lambda x: list(jnp.linalg.qr(x[..., :3], mode="complete")),
    "eigh": lambda x: absolute(jnp.linalg.eigh(symmetric(x))),
    "eigvalsh": lambda x: jnp.linalg.eigvalsh(symmetric(x)),
    "svd": lambda x: absolute(jnp.linalg.svd(x[..., :3], full_matrices=False)),
    "full svd": lambda x: absolute(jnp.linalg.svd(x[..., :3], full_matrices=True)),
    "singular values": lambda x: jnp.linalg.svd(x, compute_uv=False),
    "eig": lambda x: absolute(jnp.linalg.eig(x)),
    "eigvals": lambda x: jnp.abs(jnp.linalg.eigvals(x)),
    "triangular solve": lambda x: jax.lax.linalg.triangular_solve(x, x + 1, lower=True, transpose_a=True, conjugate_a=True),
    "triangular solve on the left": lambda x: jax.lax.linalg.triangular_solve(x, x + 1, left_side=True, unit_diagonal=True),
}


class LapackCalls(unittest.TestCase):
    def test_texts_give_what_jax_computes(self):
        runner = outcomes.Runner()
        faults, targets = [], set()
        for name, function in CASES.items():
            for dtype in TYPES:
                for shape in ((4, 4), (2, 4, 4)):
                    x = draw(7, shape, dtype)
                    text = jax.jit(function).lower(x).as_text()
                    targets.update(word.split("(")[0] for word in text.split("@") if word.startswith("lapack_"))
                    stage, found = runner.run({"text": text, "inputs": [x]})
                    wanted = jax.tree.leaves(function(jnp.asarray(x)))
                    if stage != "ok":
                        faults.append(f"{name} {dtype}{list(shape)}: {stage}: {found[:300]}")
                        continue
                    near = 2e-4 if dtype in ("float32", "complex64") else 1e-10
                    for got, want in zip(found, (np.asarray(w) for w in wanted), strict=True):
                        if got.shape != want.shape or not np.max(np.abs(got - want)) <= near * (1 + np.max(np.abs(want))):
                            faults.append(f"{name} {dtype}{list(shape)}: {got} is not {want}")
        print(f"{len(CASES) * 8} programs with {len(targets)} calls: {', '.join(sorted(targets))}")
        self.assertGreaterEqual(len(targets), 30)
        self.assertEqual([], faults)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
