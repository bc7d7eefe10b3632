"""The training steps of tests/support/models.py as a user of JAX writes them, lowered for TPUs: models_jax.py FOLDER PRECISION NAME...
writes FOLDER/NAME.mlir, with parameters and slots donated. Runs where JAX is; no device is needed."""
import os
import pathlib
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import models  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402


class Jax:
    """The operations of the networks. `key` is what dropout draws from."""
    relu, add, reshape, mean = staticmethod(jax.nn.relu), staticmethod(jnp.add), staticmethod(jnp.reshape), staticmethod(jnp.mean)
    transpose = staticmethod(jnp.transpose)

    def __init__(self, key):
        self.key = key

    def gelu(self, x):
        return jax.nn.gelu(x, approximate=True)

    def linear(self, x, w, b):
        return x @ w + b

    def conv(self, x, w, stride=1, padding="valid"):
        return jax.lax.conv_general_dilated(x, w, (stride, stride), padding.upper(), dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def max_pool(self, x, window, stride, padding):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, window, window, 1), (1, stride, stride, 1), padding.upper())

    def batch_norm(self, x, scale, offset):
        return self.normalised(x, (0, 1, 2)) * scale + offset

    def layer_norm(self, x, scale, offset):
        return self.normalised(x, -1) * scale + offset

    def normalised(self, x, axes):
        return (x - x.mean(axes, keepdims=True)) * jax.lax.rsqrt(x.var(axes, keepdims=True) + 1e-5)

    def thirds(self, x, shape):
        return jnp.split(x, 3, -1)

    def attention(self, q, k, v):
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(jnp.float32(q.shape[-1]))
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)), v)

    def dropout(self, x, rate):
        self.key, key = jax.random.split(self.key)
        return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)

    def mean_square(self, x):
        return (x * x).mean()

    def cross_entropy(self, logits, labels):
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


def updated(optimizer, slots, gradient, rate, count):
    """Of one parameter, which is the first of its slots."""
    p = slots[0]
    if optimizer == "sgd":
        return [p - rate * gradient]
    if optimizer == "momentum":
        velocity = 0.9 * slots[1] + gradient
        return [p - rate * velocity, velocity]
    m, v = 0.9 * slots[1] + 0.1 * gradient, 0.999 * slots[2] + 0.001 * gradient * gradient
    step = (m / (1 - 0.9 ** count)) / (jnp.sqrt(v / (1 - 0.999 ** count)) + 1e-8)
    return [p * (1 - rate * 0.01) - rate * step, m, v]


def step_of(model):
    def step(state, key, x, labels, rate, count):
        def loss(parameters):
            f = Jax(key)
            return model.loss(f, parameters, x, labels), f.key
        (value, next_key), gradients = jax.value_and_grad(loss, has_aux=True)([slots[0] for slots in state])
        return [updated(model.optimizer, slots, g, rate, count) for slots, g in zip(state, gradients)], next_key, value
    return jax.jit(step, donate_argnums=(0, 1))


def text_of(model):
    def like(shape, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype)
    state = [[like(shape)] * model.slots for shape in model.shapes]
    arguments = state, like((2,), jnp.uint32), like(model.batch), like(model.batch[:1], jnp.int32), like(()), like(())
    return step_of(model).trace(*arguments).lower(lowering_platforms=("tpu",)).as_text()


if __name__ == "__main__":
    folder, precision, *names = sys.argv[1:]
    for name in names:
        with jax.default_matmul_precision(precision):
            pathlib.Path(folder, f"{name}.mlir").write_text(text_of(models.MODELS[name]()), encoding="utf-8")
