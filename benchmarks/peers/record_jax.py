"""The transformer block of benchmarks/record, traced by JAX with its gradient: nanoseconds an equation of the result."""
import os
import statistics
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp

WIDTH, HEADS, TOKENS, ROWS = 64, 4, 16, 2
SHAPES = [(WIDTH,), (WIDTH,), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH,),
          (WIDTH,), (WIDTH,), (WIDTH, 4 * WIDTH), (4 * WIDTH,), (4 * WIDTH, WIDTH), (WIDTH,), (WIDTH,)]
p = [jnp.ones(s) * 0.05 for s in SHAPES]
x = jnp.ones((ROWS, TOKENS, WIDTH))


def layer_norm(x, scale, bias):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * scale + bias


def heads(x):
    return x.reshape(ROWS, TOKENS, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)


def block(p, x):
    h = layer_norm(x, p[0], p[1])
    q, k, v = (heads(h @ w) for w in p[2:5])
    scores = q @ k.swapaxes(-1, -2) / (WIDTH // HEADS) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((TOKENS, TOKENS), bool)), scores, -jnp.inf)
    a = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3)
    x = x + a.reshape(ROWS, TOKENS, WIDTH) @ p[5] + p[6]
    h = jax.nn.gelu(layer_norm(x, p[7], p[8]) @ p[9] + p[10], approximate=False)
    return (x + h @ p[11] + p[12] * p[13]).mean()


def count(jaxpr):
    total = 0
    for equation in jaxpr.eqns:
        inner = [v.jaxpr for v in equation.params.values() if hasattr(v, "jaxpr")]
        total += sum(count(j) for j in inner) if inner else 1
    return total


times, equations = [], 0
for _ in range(60):
    start = time.perf_counter()
    traced = jax.make_jaxpr(jax.grad(lambda p, x: block(p, x)))(p, x)  # a new function: nothing is remembered of it
    times.append(time.perf_counter() - start)
    equations = count(traced.jaxpr)
print("record_block jax", f"{statistics.median(times[5:]) / equations * 1e9:.0f}", flush=True)
