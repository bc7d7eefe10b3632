"""The workloads of benchmarks/workloads that XLA:CPU is good at, on JAX under jit, with donated parameters.

usage: workloads_jax.py --only NAME [--seconds S]
Prints one JSON object: best and median milliseconds, seconds of compiling and the first step, peak megabytes. f32.
"""
import argparse
import json
import resource
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

parser = argparse.ArgumentParser()
parser.add_argument("--only", required=True)
parser.add_argument("--seconds", type=float, default=4)
options = parser.parse_args()
numbers = np.random.default_rng(0)


def rand(*shape, scale=0.05):
    return jnp.asarray(numbers.uniform(-scale, scale, shape).astype("f"))


def twenty(a, b, c):
    x = jnp.tanh(a * b + c) + a
    x = x * jnp.exp(-(b * b)) / (1 + c * c)
    x = jnp.maximum(x, a - b)
    x = x * x + x * 0.5 - c
    x = x / (1 + jnp.abs(x))
    return x * b + a * c - 0.1


def norm(x, g, b):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * g + b


def block_parameters(w):
    return {"qkv": (rand(w, 3 * w), rand(3 * w)), "out": (rand(w, w), rand(w)), "wide": (rand(w, 4 * w), rand(4 * w)),
            "narrow": (rand(4 * w, w), rand(w)), "n1": (jnp.ones(w), jnp.zeros(w)), "n2": (jnp.ones(w), jnp.zeros(w))}


def block(p, x, heads, causal, before, tanh):
    b, t, w = x.shape
    linear = lambda x, q: x @ q[0] + q[1]

    def attention(x):
        q, k, v = [y.reshape(b, t, heads, w // heads).transpose(0, 2, 1, 3) for y in jnp.split(linear(x, p["qkv"]), 3, -1)]
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.float32(np.sqrt(w // heads))
        if causal:
            scores = jnp.where(np.tril(np.ones((t, t), bool)), scores, -jnp.inf)
        h = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)
        return linear(h.transpose(0, 2, 1, 3).reshape(b, t, w), p["out"])

    feed = lambda x: linear(jax.nn.gelu(linear(x, p["wide"]), approximate=tanh), p["narrow"])
    if before:
        x = x + attention(norm(x, *p["n1"]))
        return x + feed(norm(x, *p["n2"]))
    x = norm(x + attention(x), *p["n1"])
    return norm(x + feed(x), *p["n2"])


def gpt_parameters():
    return {"words": rand(50257, 768), "places": rand(1024, 768), "norm": (jnp.ones(768), jnp.zeros(768)),
            "blocks": [block_parameters(768) for _ in range(12)]}


def gpt(p, ids):
    x = p["words"][ids] + p["places"][: ids.shape[1]]
    for q in p["blocks"]:
        x = block(q, x, 12, True, True, True)
    return norm(x, *p["norm"]) @ p["words"].T


def cross_entropy(logits, labels):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1))


def conv(x, w, stride=1, groups=1):
    half = w.shape[0] // 2
    return lax.conv_general_dilated(x, w, (stride, stride), [(half, half)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                    feature_group_count=groups)


RESNET = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


def resnet_parameters():
    layer = lambda k, a, b: (rand(k, k, a, b), jnp.ones(b), jnp.zeros(b))
    p, fan_in = {"stem": layer(7, 3, 64), "head": (rand(2048, 1000), rand(1000)), "blocks": []}, 64
    for width, blocks, _ in RESNET:
        for b in range(blocks):
            main = [layer(1, fan_in, width), layer(3, width, width), layer(1, width, 4 * width)]
            p["blocks"].append((main, layer(1, fan_in, 4 * width) if b == 0 else None))
            fan_in = 4 * width
    return p


def resnet(p, x, training):
    def layer(x, q, stride=1):
        x = conv(x, q[0], stride)
        if training:
            mean = x.mean((0, 1, 2))
            x = (x - mean) * lax.rsqrt(((x - mean) ** 2).mean((0, 1, 2)) + 1e-5)
        return x * q[1] + q[2]

    x = jax.nn.relu(layer(x, p["stem"], 2))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    at = 0
    for _, blocks, first in RESNET:
        for b in range(blocks):
            (one, two, three), side = p["blocks"][at]
            stride, at = first if b == 0 else 1, at + 1
            h = jax.nn.relu(layer(jax.nn.relu(layer(x, one)), two, stride))
            x = jax.nn.relu(layer(h, three) + (x if side is None else layer(x, side, stride)))
    return x.mean((1, 2)) @ p["head"][0] + p["head"][1]


def plain(fn, *inputs):
    return jax.jit(fn), inputs, 0


zeros = lambda p: jax.tree.map(jnp.zeros_like, p)


def momentum(loss, p, *inputs):
    def step(p, m, *inputs):
        value, g = jax.value_and_grad(loss)(p, *inputs)
        m = jax.tree.map(lambda m, g: 0.9 * m + g, m, g)
        return jax.tree.map(lambda p, m: p - 1e-3 * m, p, m), m, value

    return jax.jit(step, donate_argnums=(0, 1)), (p, zeros(p), *inputs), 2


def apply_adamw(p, m, v, t, g):
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    c1, c2 = 1 - 0.9**t, 1 - 0.999**t
    return jax.tree.map(lambda p, m, v: p * (1 - 1e-5) - 1e-3 * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), p, m, v), m, v, t + 1


def adamw(loss, p, *inputs):
    def step(p, m, v, t, *inputs):
        value, g = jax.value_and_grad(loss)(p, *inputs)
        return *apply_adamw(p, m, v, t, g), value

    return jax.jit(step, donate_argnums=(0, 1, 2)), (p, zeros(p), zeros(p), jnp.float32(1), *inputs), 4


def product(m, k, n):
    return lambda: plain(jnp.matmul, rand(m, k), rand(k, n))


def layer_norm():
    gradients = lambda x, g, b, d: jax.vjp(norm, x, g, b)[1](d)
    return plain(gradients, rand(1024, 1024), jnp.ones(1024), jnp.zeros(1024), rand(1024, 1024))


def gpt_block(batch, training):
    def make():
        f, p, x = lambda p, x: block(p, x, 12, True, True, True), block_parameters(768), rand(batch, 128, 768)
        return adamw(lambda p, x: (f(p, x) ** 2).mean(), p, x) if training else plain(f, p, x)

    return make


def words(*shape):
    return jnp.asarray(numbers.integers(0, 50257, shape))


def gpt_training(batch):
    return lambda: adamw(lambda p, ids: cross_entropy(gpt(p, ids[:, :-1]), ids[:, 1:]), gpt_parameters(), words(batch, 129))


def bert():
    def run(layers, x):
        for p in layers:
            x = block(p, x, 12, False, False, False)
        return x

    return plain(run, [block_parameters(768) for _ in range(12)], rand(1, 128, 768))


GPT2_MATRICES = [(50257, 768), (1024, 768)] + 12 * [(768, 2304), (768, 768), (768, 3072), (3072, 768)]


def updates(shapes):
    def make():
        p, g = [rand(*shape) for shape in shapes], [rand(*shape) for shape in shapes]
        return jax.jit(apply_adamw, donate_argnums=(0, 1, 2)), (p, zeros(p), zeros(p), jnp.float32(1), g), 4

    return make


RECORDED = 100  # a step of record-1M traces 10,000 operations: a million would take it a minute


def recorded():
    def chain(a, b):
        x = a
        for _ in range(250):
            x = jnp.tanh(x * b + a - b)
        return x

    def step(a, b):
        for _ in range(10):
            jax.make_jaxpr(lambda *inputs: chain(*inputs))(a, b)  # another function each time: nothing is found again
        return ()

    return step, (rand(64), rand(64)), 0


def depthwise():
    gradients = jax.grad(lambda x, w: (conv(x, w, groups=144) ** 2).mean(), (0, 1))
    return plain(gradients, rand(4, 56, 56, 144), rand(3, 3, 1, 144))


WORKLOADS = {
    "ew20-1M": lambda: plain(twenty, *[rand(1 << 20, scale=1) for _ in range(3)]),
    "ew20-16M": lambda: plain(twenty, *[rand(16 << 20, scale=1) for _ in range(3)]),
    "softmax-1kx1k": lambda: plain(jax.nn.softmax, rand(1024, 1024)),
    "softmax-16kx1k": lambda: plain(jax.nn.softmax, rand(16384, 1024)), "layernorm-fb-1kx1k": layer_norm,
    "gemm-64": product(64, 64, 64), "gemm-256": product(256, 256, 256), "gemm-1024": product(1024, 1024, 1024),
    "gemm-2048": product(2048, 2048, 2048), "gemm-tf-m1": product(1, 768, 3072), "gemm-tf-m8": product(8, 768, 3072),
    "gemm-tf-m128": product(128, 768, 3072),
    "rn50-infer-b1": lambda: plain(lambda p, x: resnet(p, x, False), resnet_parameters(), rand(1, 224, 224, 3)),
    "rn50-infer-b8": lambda: plain(lambda p, x: resnet(p, x, False), resnet_parameters(), rand(8, 224, 224, 3)),
    "rn50-train-b8": lambda: momentum(lambda p, x, y: cross_entropy(resnet(p, x, True), y), resnet_parameters(),
                                      rand(8, 224, 224, 3), jnp.arange(8)),
    "gpt2b-fwd-b1": gpt_block(1, False), "gpt2b-fwd-b8": gpt_block(8, False), "gpt2b-train-b1": gpt_block(1, True),
    "gpt2b-train-b8": gpt_block(8, True), "gpt2s-infer-b1": lambda: plain(gpt, gpt_parameters(), words(1, 128)),
    "gpt2s-train-b1": gpt_training(1), "gpt2s-train-b4": gpt_training(4), "bert-infer-b1": bert,
    "adamw-61M": updates(26 * [(768, 3072)]), "adamw-124M": updates(GPT2_MATRICES), "depthwise-fb-b4": depthwise, "record-1M": recorded,
}


def measure(step, inputs, state, seconds):
    """`state` of the inputs are given over each step and come back as the first results."""
    rest = inputs[state:]

    def run():
        nonlocal inputs
        out = jax.block_until_ready(step(*inputs))
        inputs = (*out[:state], *rest) if state else inputs

    start = time.perf_counter()
    run()
    first = time.perf_counter() - start
    run()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return {"best_ms": min(times) * 1e3, "median_ms": statistics.median(times) * 1e3, "first_s": first}


if __name__ == "__main__":
    if options.only not in WORKLOADS:
        sys.exit(77)  # this peer does not run it
    found = measure(*WORKLOADS[options.only](), options.seconds)
    if options.only == "record-1M":
        found = {what: value * RECORDED for what, value in found.items()}
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"name": options.only, **found}))
