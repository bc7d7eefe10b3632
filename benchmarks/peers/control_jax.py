"""The loops of benchmarks/control_flow on JAX (XLA:CPU, jit)."""
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np

from timing import measure, seconds

rng = np.random.default_rng(0)


def random(*shape, scale):
    return jnp.asarray(rng.uniform(-scale, scale, shape), jnp.float32)


w, u, b = random(256, 1024, scale=0.1), random(256, 1024, scale=0.1), random(1024, scale=0.1)
xs = random(100, 32, 256, scale=1)


def lstm(w, u, b, xs):
    def cell(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((32, 256))
    return jax.lax.scan(cell, (zeros, zeros), xs)[1]


def scalars(v):
    def body(c, _):
        return [jnp.sin(c[i]) * 0.5 + c[(i + 1) % 60] * 0.5 for i in range(60)], None

    return sum(jax.lax.scan(body, v, None, length=614)[0])


def bench(name, function, *arguments):
    compiled = jax.jit(function)
    measure(name, "xla_cpu", lambda: jax.block_until_ready(compiled(*arguments)), 1, seconds())


bench("lstm-forward", lstm, w, u, b, xs)
bench("lstm-gradient", lambda w, u, b, xs: jax.grad(lambda *p: lstm(*p, xs).sum(), (0, 1, 2))(w, u, b), w, u, b, xs)
bench("scalars-gradient", jax.grad(scalars), [jnp.float32(i * 0.01) for i in range(60)])
