"""Trains the network of examples/c/train_fashion_mnist.c, with its numbers: same weights, same order, same losses, same
checkpoints.

pip install libweft
python3 fashion_mnist.py --epochs 1            # images of Debian's package dataset-fashion-mnist, or --data
python3 fashion_mnist.py --epochs 2 --resume
"""

import argparse
import math
import os
from array import array

import libweft as wf
from libweft import nn, optim

BATCH, EVAL_BATCH, SIDE = 64, 500, 28


class Layer(nn.Module):
    """A weight and a bias; He et al. (2015)."""

    def __init__(self, *shape):
        inputs = math.prod(shape[:-1])
        self.weight = wf.Parameter(wf.random.normal(shape, deviation=math.sqrt(2 / inputs)))
        self.bias = wf.Parameter(wf.zeros(shape[-1:]))


class Network(nn.Module):
    def __init__(self):
        self.conv1, self.conv2 = Layer(3, 3, 1, 32), Layer(3, 3, 32, 64)
        self.dense1, self.dense2 = Layer(9216, 128), Layer(128, 10)

    def forward(self, x):
        h = (wf.conv(x, self.conv1.weight) + self.conv1.bias).relu()
        h = (wf.conv(h, self.conv2.weight) + self.conv2.bias).relu()
        h = h.max_pool((2, 2)).flatten(start_axis=1)
        h = (h @ self.dense1.weight + self.dense1.bias).relu()
        return h @ self.dense2.weight + self.dense2.bias

    def in_order(self):
        layers = (self.conv1, self.conv2, self.dense1, self.dense2)
        return [p for layer in layers for p in (layer.weight, layer.bias)]


def shuffled(count, seed, epoch):
    """The order of an epoch, by splitmix64 (Steele, Lea, Flood 2014), as the C program has it."""
    mask, order = 2**64 - 1, array("i", range(count))
    state = (seed * 0x2545F4914F6CDD1D + epoch) & mask
    for i in range(count - 1, 0, -1):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        j = (z ^ z >> 31) % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def read(folder, half):
    images = wf.data.read_idx(os.path.join(folder, half + "-images-idx3-ubyte.gz"))
    labels = wf.data.read_idx(os.path.join(folder, half + "-labels-idx1-ubyte.gz"))
    return images.tobytes(), labels.tobytes()


def batch(data, order):
    """Images as f32 from 0 to 1, labels as i32."""
    images, labels = data
    size = SIDE * SIDE
    x = wf.tensor(b"".join(images[k * size : (k + 1) * size] for k in order)).reshape(len(order), SIDE, SIDE, 1)
    y = wf.tensor(array("i", [labels[k] for k in order]))
    return x.astype("f32") * wf.argument(1 / 255, "f32"), y


def evaluate(network, data, limit):
    right, total = 0, 0
    for at in range(0, len(data[1]) - EVAL_BATCH + 1, EVAL_BATCH):
        if limit and at >= limit * EVAL_BATCH:
            break
        with wf.step(sync=False):
            x, y = batch(data, range(at, at + EVAL_BATCH))
            right += int(wf.eq(network(x).argmax(), y).astype("f32").sum())
            total += EVAL_BATCH
    return right / total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=int, default=0, help="at most so many steps an epoch and batches of test images")
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--checkpoint", default="fashion_mnist.weft")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--svg", help="a picture of the losses")
    o = parser.parse_args()
    train, test = read(o.data, "train"), read(o.data, "t10k")
    wf.seed(o.seed)
    network, first = Network(), 0
    wf.sync()
    optimizer = optim.AdamW(network.in_order(), lr=o.lr)
    if o.resume:
        state = wf.load(o.checkpoint)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict({"count": 0, "state": state["optimizer"]})
        wf.random.set_state([state["random"][k] % 2**64 for k in ("key", "low", "high")])
        first = state["epoch"]
        wf.sync()
    losses = []
    for epoch in range(first, o.epochs):
        order = shuffled(len(train[1]), o.seed, epoch)
        steps = min(len(train[1]) // BATCH, o.limit or len(train[1]))
        bar = wf.bar(range(steps), "epoch %d" % (epoch + 1))
        for i in bar:
            with wf.step():
                x, y = batch(train, order[i * BATCH : (i + 1) * BATCH])
                loss = nn.cross_entropy(network(x), y).keep()
                optimizer.step(loss)
            if (i + 1) % 10 == 0 or i + 1 == steps:  # The other losses stay where they are.
                losses.append(loss.item())
                bar.set(loss=losses[-1])
        print("epoch %d  loss %.6f  accuracy %.4f" % (epoch + 1, losses[-1], evaluate(network, test, o.limit)), flush=True)
        key, low, high = (v - 2**64 if v >= 2**63 else v for v in wf.random.get_state())
        wf.save(
            o.checkpoint,
            {
                "model": network,
                "optimizer": optimizer.state_dict()["state"],
                "random": {"key": key, "low": low, "high": high},
                "epoch": epoch + 1,
                "step": 0,
                "seed": o.seed,
                "bf16": False,
                "optimizer_name": "adamw",
            },
            step=epoch + 1,
        )
    if o.svg and losses:
        wf.plot.lines({"train": losses}, title="Fashion-MNIST", x="reads").save(o.svg)


if __name__ == "__main__":
    main()
