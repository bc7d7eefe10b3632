"""Whole training steps, each network described once over the operations `f` of a library: Weft through ctypes here, JAX in
tests/tpu/models_jax.py. Wants nothing but Python's standard library.

    models.py NAME [--library PATH] [--steps N] [--layout LAYOUT]

trains NAME for N steps (2) under the options that the environment gives (WEFT_PLATFORM, WEFT_TOPOLOGY, …), always on the same batch, on
one device or laid out over four as LAYOUT says, and prints an object of JSON: {"losses": […], "seconds": […], "devices": […]}. The first steps hold the compilation.
"""
import argparse
import array
import ctypes as c
import json
import math
import os
import random
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(os.environ.get("WEFT_BUILD") or os.path.join(ROOT, "build", "release"), "generated", "bindings", "ffi", "python"))
import weft_ffi  # noqa: E402

LEARNING_RATE = 1e-3


class Model:
    """`shapes` of the parameters, `network(f, parameters, x)`, the shape of a batch, and classes: 0 where the loss is the mean square of
    what the network gives. `optimizer`: sgd, momentum or adamw."""

    def __init__(self, shapes, network, batch, classes, optimizer, draws=False):
        self.shapes, self.network, self.batch, self.classes, self.optimizer, self.draws = shapes, network, batch, classes, optimizer, draws

    @property
    def slots(self):
        """Tensors that a step replaces for each parameter, itself counted."""
        return {"sgd": 1, "momentum": 2, "adamw": 3}[self.optimizer]

    def loss(self, f, parameters, x, labels):
        out = self.network(f, parameters, x)
        return f.cross_entropy(out, labels) if self.classes else f.mean_square(out)


def mlp(batch):
    def network(f, p, x):
        h = f.relu(f.linear(x, p[0], p[1]))
        h = f.relu(f.linear(h, p[2], p[3]))
        return f.linear(h, p[4], p[5])
    return Model([(784, 512), (512,), (512, 256), (256,), (256, 10), (10,)], network, (batch, 784), 10, "sgd")


def cnn(batch):
    def network(f, p, x):
        h = f.relu(f.add(f.conv(x, p[0]), p[1]))
        h = f.relu(f.add(f.conv(h, p[2]), p[3]))
        h = f.reshape(f.max_pool(h, 2, 2, "valid"), (batch, 9216))
        h = f.relu(f.linear(h, p[4], p[5]))
        return f.linear(h, p[6], p[7])
    return Model([(3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (9216, 128), (128,), (128, 10), (10,)], network, (batch, 28, 28, 1), 10,
                 "momentum")


def block(batch, tokens, width, heads, rate=0.1):
    """One block of a transformer as GPT-2 has them, with `rate` of the elements dropped behind both halves."""
    def network(f, p, x):
        def keep(y):
            return f.dropout(y, rate) if rate else y

        def split(y):
            return f.transpose(f.reshape(y, (batch, tokens, heads, width // heads)), (0, 2, 1, 3))

        q, k, v = (split(y) for y in f.thirds(f.linear(f.layer_norm(x, p[0], p[1]), p[2], p[3]), (batch, tokens, width)))
        mixed = f.reshape(f.transpose(f.attention(q, k, v), (0, 2, 1, 3)), (batch, tokens, width))
        x = f.add(x, keep(f.linear(mixed, p[4], p[5])))
        h = f.gelu(f.linear(f.layer_norm(x, p[6], p[7]), p[8], p[9]))
        return f.add(x, keep(f.linear(h, p[10], p[11])))
    shapes = [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,), (width,), (width,), (width, 4 * width),
              (4 * width,), (4 * width, width), (width,)]
    return Model(shapes, network, (batch, tokens, width), 0, "adamw", draws=rate > 0)


def resnet50(batch):
    shapes = []

    def weights(*shape):
        shapes.append(shape)
        return len(shapes) - 1

    def layer(size, inputs, outputs):
        return weights(size, size, inputs, outputs), weights(outputs), weights(outputs)
    stem, blocks, inputs = layer(7, 3, 64), [], 64
    for stage, count in enumerate((3, 4, 6, 3)):
        inner = 64 << stage
        for i in range(count):
            layers = layer(1, inputs, inner), layer(3, inner, inner), layer(1, inner, 4 * inner)
            blocks.append((2 if i == 0 and stage else 1, layers, layer(1, inputs, 4 * inner) if i == 0 else None))
            inputs = 4 * inner
    last = weights(inputs, 1000), weights(1000)

    def network(f, p, x):
        def apply(x, layer, stride=1):
            return f.batch_norm(f.conv(x, p[layer[0]], stride, "same"), p[layer[1]], p[layer[2]])

        x = f.max_pool(f.relu(apply(x, stem, 2)), 3, 2, "same")
        for stride, (first, second, third), shortcut in blocks:
            h = f.relu(apply(f.relu(apply(x, first)), second, stride))
            x = f.relu(f.add(apply(h, third), x if shortcut is None else apply(x, shortcut, stride)))
        return f.linear(f.mean(x, (1, 2)), p[last[0]], p[last[1]])
    return Model(shapes, network, (batch, 224, 224, 3), 1000, "momentum")


MODELS = {"mlp": lambda: mlp(64), "cnn": lambda: cnn(64), "cnn-small": lambda: cnn(2), "block": lambda: block(8, 128, 768, 12),
          "block-still": lambda: block(8, 128, 768, 12, rate=0), "block-small": lambda: block(2, 16, 64, 4), "block-small-still": lambda: block(2, 16, 64, 4, rate=0),
          "resnet50": lambda: resnet50(8), "mlp-pod": lambda: mlp(512), "block-pod": lambda: block(256, 32, 768, 12, rate=0)}


# {layout: (the mesh, the axis that cuts the batch or None)}; those of a pod are of 256 chips.
LAYOUTS = {"data": ("d=4", "d"), "fsdp": ("d=4", "d"), "tensor": ("m=4", None), "both": ("d=2,m=2", "d"),
           "data-pod": ("d=256", "d"), "fsdp-pod": ("d=256", "d"), "both-pod": ("d=128,m=2", "d")}


def spec_of(layout, k, shape):
    """How parameter k of this shape lies: a word a dimension, an axis or "-". Tensor parallelism is that of a perceptron: the columns of
    one layer, the rows of the next."""
    spec = ["-"] * len(shape)
    if layout is None:
        return spec
    pieces = int(LAYOUTS[layout][0].split(",")[0].split("=")[1])
    layout = layout.removesuffix("-pod")
    if layout == "fsdp":
        cut = [d for d in range(len(shape)) if shape[d] % pieces == 0]
        if cut:
            spec[max(cut, key=lambda d: shape[d])] = "d"
    elif layout in ("tensor", "both") and k < 3:
        spec[(1, 0, 0)[k]] = "m"
    return spec


class Tensor:
    def __init__(self, lib, handle):
        self.lib, self.handle = lib, handle

    def __del__(self):
        self.lib.weft_tensor_release(self.handle)

    def item(self):
        value = c.c_double()
        must(self.lib, self.lib.weft_tensor_item_f64(self.handle, c.byref(value)))
        return value.value


def must(lib, error):
    """Errors end the program with their text."""
    try:
        weft_ffi.check(lib, error)
    except weft_ffi.Error as failure:
        sys.exit(str(failure))


def attribute(name, value):
    """int, float, str (an enumerator), bool or a list of int."""
    attr = weft_ffi.weft_attr(name=name.encode(), name_length=len(name))
    if isinstance(value, list):
        entries = (c.c_int64 * len(value))(*value)
        attr.type, attr.data, attr.count = weft_ffi.WEFT_VALUE_INTS, c.cast(entries, c.c_void_p), len(value)
    elif isinstance(value, str):
        attr.type, attr.data, attr.count = weft_ffi.WEFT_VALUE_ENUM, c.cast(c.c_char_p(value.encode()), c.c_void_p), len(value)
    elif isinstance(value, float):
        attr.type, attr.d = weft_ffi.WEFT_VALUE_DOUBLE, value
    else:
        attr.type, attr.i = weft_ffi.WEFT_VALUE_BOOL if isinstance(value, bool) else weft_ffi.WEFT_VALUE_INT, value
    return attr


class Weft:
    """The operations of the networks, by name through weft_op_apply."""

    def __init__(self, library):
        self.lib, self.ctx = weft_ffi.load(library), weft_ffi.weft_context()
        self.call("context_create", None, c.byref(self.ctx))

    def call(self, name, *args):
        must(self.lib, getattr(self.lib, f"weft_{name}")(*args))

    def devices(self):
        count, names = c.c_size_t(), []
        self.call("device_count", self.ctx, c.byref(count))
        for i in range(count.value):
            device, name, used = weft_ffi.weft_device(), c.c_void_p(), c.c_size_t()
            self.call("device_at", self.ctx, i, c.byref(device))
            self.call("device_name", device, c.byref(name), c.byref(used))
            names.append(weft_ffi.text(name.value, used.value))
            self.lib.weft_device_release(device)
        return names

    def tensor(self, values, shape, dtype):
        data, out = values.tobytes(), weft_ffi.weft_tensor()
        self.call("tensor_from_host", self.ctx, None, dtype, (c.c_int64 * len(shape))(*shape), len(shape), data, len(data), c.byref(out))
        return Tensor(self.lib, out)

    def uniform(self, shape, bound, source):
        """Between -bound and bound; large ones repeat themselves."""
        count = math.prod(shape)
        some = array.array("f", (bound * (2 * source.random() - 1) for _ in range(min(count, 1 << 16))))
        while len(some) < count:
            some.extend(some[:count - len(some)])
        return self.tensor(some, shape, weft_ffi.WEFT_F32)

    def op(self, name, *inputs, **attrs):
        """The first result."""
        given, out, count = [attribute(*pair) for pair in attrs.items()], (weft_ffi.weft_tensor * 4)(), c.c_size_t()
        self.call("op_apply", self.ctx, name.encode(), len(name), handles(inputs), len(inputs), (weft_ffi.weft_attr * len(given))(*given), len(given),
                  out, 4, c.byref(count))
        return [Tensor(self.lib, handle) for handle in out[:count.value]][0]

    def relu(self, x):
        return self.op("relu", x)

    def gelu(self, x):
        return self.op("gelu", x, form="tanh")

    def add(self, x, y):
        return self.op("add", x, y)

    def linear(self, x, w, b):
        return self.op("linear", x, w, b)

    def conv(self, x, w, stride=1, padding="valid"):
        return self.op("conv", x, w, strides=[stride, stride], padding=padding)

    def max_pool(self, x, window, stride, padding):
        return self.op("max_pool", x, window=[window, window], strides=[stride, stride], padding=padding)

    def batch_norm(self, x, scale, offset):
        return self.op("batch_norm", x, scale, offset)

    def layer_norm(self, x, scale, offset):
        return self.op("layer_norm", x, scale, offset)

    def attention(self, q, k, v):
        return self.op("scaled_dot_product_attention", q, k, v, causal=True)

    def dropout(self, x, rate):
        return self.op("dropout", x, rate=rate)

    def reshape(self, x, shape):
        return self.op("reshape", x, shape=list(shape))

    def transpose(self, x, permutation):
        return self.op("transpose", x, permutation=list(permutation))

    def thirds(self, x, shape):
        low, high = [0] * len(shape), list(shape)
        for i in range(3):
            low[-1], high[-1] = i * shape[-1], (i + 1) * shape[-1]
            yield self.op("slice", x, start_indices=low, limit_indices=high, strides=[1] * len(shape))

    def mean(self, x, dims):
        return self.op("mean", x, dims=list(dims))

    def mean_square(self, x):
        return self.op("mean", self.op("mul", x, x))

    def cross_entropy(self, logits, labels):
        return self.op("cross_entropy", logits, labels)


def handles(tensors):
    return (weft_ffi.weft_tensor * len(tensors))(*[t.handle for t in tensors])


class Training:
    """A model's parameters, batch and optimizer in a context of its own."""

    def __init__(self, model, library, layout=None):
        self.model, self.weft, self.layout, self.mesh = model, Weft(library), layout, None
        if layout is not None:
            self.mesh = weft_ffi.weft_mesh()
            axes = LAYOUTS[layout][0].encode()
            self.weft.call("mesh_create", self.weft.ctx, None, 0, axes, len(axes), c.byref(self.mesh))
            self.weft.call("context_set_mesh", self.weft.ctx, self.mesh)
        w, source = self.weft, random.Random(1)
        # Weights small enough that activations stay near one; scales and offsets near one as well.
        self.parameters = [self.shard(w.uniform(s, math.sqrt(3 / math.prod(s[:-1])) if len(s) > 1 else 1.0, source), spec_of(layout, k, s))
                           for k, s in enumerate(model.shapes)]
        for p in self.parameters:
            w.call("tensor_require_grad", p.handle, 1)
        self.x = self.shard_batch(w.uniform(model.batch, 1.0, source), len(model.batch))
        self.labels = None
        if model.classes:
            rows = model.batch[0]
            self.labels = self.shard_batch(w.tensor(array.array("i", (i % model.classes for i in range(rows))), (rows,), weft_ffi.WEFT_I32), 1)
        self.optimizer, given = weft_ffi.weft_optimizer(), (w.ctx, handles(self.parameters), len(self.parameters))
        if model.optimizer == "adamw":
            w.call("adamw_create", *given, None, c.byref(self.optimizer))
        else:
            options = weft_ffi.weft_sgd_options(c.sizeof(weft_ffi.weft_sgd_options), momentum=0.9 if model.optimizer == "momentum" else 0.0)
            w.call("sgd_create", *given, c.byref(options), c.byref(self.optimizer))
        if layout is not None:
            w.call("sync", w.ctx, None, None)  # cuts what was made whole, so that all steps are alike

    def shard(self, tensor, spec):
        if self.layout is None:
            return tensor
        out, text = weft_ffi.weft_tensor(), ",".join(spec).encode()
        self.weft.call("shard", tensor.handle, text, len(text), c.byref(out))
        return Tensor(self.weft.lib, out)

    def shard_batch(self, tensor, rank):
        return tensor if self.layout is None else self.shard(tensor, [LAYOUTS[self.layout][1] or "-"] + ["-"] * (rank - 1))

    def step(self):
        w, count = self.weft, len(self.parameters)
        loss, outs = self.model.loss(w, self.parameters, self.x, self.labels), (weft_ffi.weft_tensor * count)()
        w.call("grad", w.ctx, loss.handle, None, handles(self.parameters), count, outs)
        gradients = [Tensor(w.lib, handle) for handle in outs]
        w.call("optimizer_step", self.optimizer, handles(gradients), count, LEARNING_RATE)
        del gradients
        w.call("sync", w.ctx, None, None)
        return loss

    def close(self):
        self.weft.lib.weft_optimizer_release(self.optimizer)
        self.parameters = self.x = self.labels = None
        if self.mesh is not None:
            self.weft.lib.weft_mesh_release(self.mesh)
        self.weft.lib.weft_context_release(self.weft.ctx)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(MODELS))
    parser.add_argument("--library", default=os.environ.get("WEFT_LIB", os.path.join(here, "../../build/release/lib/libweft.so.1")))
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layout", choices=sorted(LAYOUTS))
    args = parser.parse_args()
    training, losses, seconds = Training(MODELS[args.name](), args.library, args.layout), [], []
    devices = training.weft.devices()
    for _ in range(args.steps):
        start = time.monotonic()
        losses.append(training.step().item())
        seconds.append(time.monotonic() - start)
    training.close()
    print(json.dumps({"losses": losses, "seconds": seconds, "devices": devices}))


if __name__ == "__main__":
    main()
