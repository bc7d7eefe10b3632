"""The model of examples/stablehlo/mlp.mlir as the JAX that can be had today writes it."""
import subprocess

import python_env

PROGRAM = """
import jax, jax.numpy as jnp
def f(x, w, b): return jax.nn.softmax(jax.nn.relu(x @ w + b))
print(jax.jit(f).lower(jnp.zeros((2, 3)), jnp.zeros((3, 4)), jnp.zeros((4,))).as_text())
"""


def written(path):
    """Writes the model's StableHLO text into a file; "" or the reason why there is no JAX."""
    python, reason = python_env.python_with("jax", ["jax", "numpy"])  # coexist_test's
    if python is None:
        return reason
    with open(path, "w", encoding="utf-8") as out:
        subprocess.run([python, "-c", PROGRAM], stdout=out, check=True, timeout=300)
    return ""
