"""The rows of benchmarks/places on JAX (XLA:CPU, jit)."""
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np

from timing import measure, seconds

rng = np.random.default_rng(0)
TABLES, BATCH, UPDATES, ROWS, WIDTH, ELEMENTS = 26, 4096, 320_000, 20_000, 64, 1_000_000

ONLY = sys.argv[2] if len(sys.argv) > 2 else ""  # what begins so


def floats(*shape, dtype=jnp.float32):
    return jnp.asarray(rng.uniform(-1, 1, shape), dtype)


def indices(*shape, below, ordered=False):
    values = rng.integers(0, below, shape)
    return jnp.asarray(np.sort(values) if ordered else values, jnp.int32)


def bench(name, function, *arguments):
    if not name.startswith(ONLY):
        return
    compiled = jax.jit(function)
    measure(name, "jax", lambda: jax.block_until_ready(compiled(*arguments)), 1, seconds() / 4)


def rows(name, combine, ordered=False, dtype=jnp.float32):
    bench(name, combine, floats(ROWS, WIDTH, dtype=dtype), indices(UPDATES, below=ROWS, ordered=ordered), floats(UPDATES, WIDTH, dtype=dtype))


rows("add-rows", lambda x, i, u: x.at[i].add(u))
rows("add-rows-sorted", lambda x, i, u: x.at[i].add(u, indices_are_sorted=True), ordered=True)
rows("add-rows-bf16", lambda x, i, u: x.at[i].add(u), dtype=jnp.bfloat16)
rows("max-rows", lambda x, i, u: x.at[i].max(u))
rows("set-rows", lambda x, i, u: x.at[i].set(u))
for count, name in ((1000, "1k"), (ELEMENTS, "1m")):
    bench(f"add-elements-{name}", lambda x, i, u: x.at[i].add(u), floats(count), indices(ELEMENTS, below=count), floats(ELEMENTS))
bench("set-elements-1m", lambda x, i, u: x.at[i].set(u), floats(ELEMENTS), indices(ELEMENTS, below=ELEMENTS), floats(ELEMENTS))
bench("bincount", lambda i: jnp.bincount(i, length=1000), indices(ELEMENTS, below=1000))
bench("add-columns", lambda x, i, u: x.at[:, i].add(u), floats(256, 20_000), indices(8192, below=20_000), floats(256, 8192))
line = jnp.arange(4096)[:, None]
bench("add-along", lambda x, i, u: x.at[line, i].add(u), floats(4096, 1000), indices(4096, 100, below=1000), floats(4096, 100))
bench("take-rows", lambda x, i: x[i], floats(ROWS, WIDTH), indices(UPDATES, below=ROWS))
bench("take-elements", lambda x, i: x[i], floats(ELEMENTS), indices(ELEMENTS, below=ELEMENTS))
bench("take-columns", lambda x, i: x[:, i], floats(256, 20_000), indices(8192, below=20_000))
bench("take-along", lambda x, i: jnp.take_along_axis(x, i, 1), floats(4096, 1000), indices(4096, 100, below=1000))


def loss(tables, ids, given):
    return sum((table[i] * g).sum() for table, i, g in zip(tables, ids, given))


for width in (16, 64, 128):
    tables = [floats(10_000, width) for _ in range(TABLES)]
    ids, given = [indices(BATCH, below=10_000) for _ in tables], [floats(BATCH, width) for _ in tables]
    bench(f"embedding-gradient-{width}", jax.grad(loss), tables, ids, given)
for width in (16, 64):
    if not f"embedding-sgd-{width}".startswith(ONLY):
        continue
    state = [[floats(100_000, width) for _ in range(TABLES)]]
    ids, given = [indices(BATCH, below=100_000) for _ in state[0]], [floats(BATCH, width) for _ in state[0]]

    def update(tables, ids, given):
        value, gradients = jax.value_and_grad(loss)(tables, ids, given)
        return value, [table - 1e-3 * gradient for table, gradient in zip(tables, gradients)]

    compiled = jax.jit(update, donate_argnums=0)

    def step():
        value, state[0] = compiled(state[0], ids, given)
        jax.block_until_ready((value, state[0]))

    measure(f"embedding-sgd-{width}", "jax", step, 1, seconds() / 4)
