"""The two training steps of benchmarks/train_step on JAX (XLA:CPU, jit, donated parameters, NHWC)."""
import functools
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np

from timing import measure, seconds

BATCHES = 16
rng = np.random.default_rng(0)


def cross_entropy(logits, labels):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1))


def weights(*shapes):
    return [jnp.asarray(rng.normal(size=s, scale=0.05), jnp.float32) for s in shapes]


def mlp(p, x):
    for i in range(0, 6, 2):
        x = x @ p[i] + p[i + 1]
        x = jax.nn.relu(x) if i < 4 else x
    return x


def conv(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def cnn(p, x):
    x = jax.nn.relu(conv(x, p[0]) + p[1])
    x = jax.nn.relu(conv(x, p[2]) + p[3])
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").reshape(64, -1)
    x = jax.nn.relu(x @ p[4] + p[5])
    return x @ p[6] + p[7]


def bench(name, model, params, images, lr, momentum, steps):
    labels = [jnp.asarray(rng.integers(0, 10, 64), jnp.int32) for _ in range(BATCHES)]
    state = (params, [jnp.zeros_like(w) for w in params])

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, x, y):
        params, velocity = state
        loss, grads = jax.value_and_grad(lambda p: cross_entropy(model(p, x), y))(params)
        if momentum:
            velocity = [momentum * v + g for v, g in zip(velocity, grads)]
            grads = velocity
        return ([w - lr * g for w, g in zip(params, grads)], velocity), loss

    position = 0

    def run():
        nonlocal state, position
        for _ in range(steps):
            state, loss = step(state, images[position % BATCHES], labels[position % BATCHES])
            position += 1
        return float(loss)

    measure(name, "xla_cpu", run, steps, seconds())


flat = [jnp.asarray(rng.normal(size=(64, 784)), jnp.float32) for _ in range(BATCHES)]
bench("mlp", mlp, weights((784, 512), (512,), (512, 256), (256,), (256, 10), (10,)), flat, 0.01, 0, 50)
images = [jnp.asarray(rng.normal(size=(64, 28, 28, 1)), jnp.float32) for _ in range(BATCHES)]
bench("cnn", cnn, weights((3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (9216, 128), (128,), (128, 10), (10,)),
      images, 0.01, 0.9, 10)
