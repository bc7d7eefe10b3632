"""Trains the network of examples/c/train_fashion_mnist.c, with its numbers: same weights, same order, same losses, same
checkpoints.

pip install libweft
python3 fashion_mnist.py --epochs 1            # images of Debian's package dataset-fashion-mnist, or --data
python3 fashion_mnist.py --epochs 2 --resume
"""

import argparse
import math
import os

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


def read(folder, half):
    images = wf.data.read_idx(os.path.join(folder, half + "-images-idx3-ubyte.gz"))
    labels = wf.data.read_idx(os.path.join(folder, half + "-labels-idx1-ubyte.gz"))
    return images.reshape(-1, SIDE, SIDE, 1), labels


def scaled(x, y):
    """Images as f32 from 0 to 1, labels as i32."""
    return x.astype("f32") * wf.argument(1 / 255, "f32"), y.astype("i32")


def evaluate(network, data, limit):
    right, total = 0, 0
    for at in range(0, len(data[1]) - EVAL_BATCH + 1, EVAL_BATCH):
        if limit and at >= limit * EVAL_BATCH:
            break
        with wf.step(sync=False):
            x, y = scaled(*(part[at : at + EVAL_BATCH] for part in data))
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
    loader = wf.data.Loader(*train, size=BATCH, shuffle=True, seed=o.seed)
    losses = []
    for epoch in range(first, o.epochs):
        loader.load_state_dict({"seed": o.seed, "epoch": epoch, "position": 0, "items": len(train[1])})
        steps = min(len(loader), o.limit or len(loader))
        bar = wf.bar(range(steps), "epoch %d" % (epoch + 1))
        for i in bar:
            with wf.step():
                x, y = scaled(*loader.next())
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
