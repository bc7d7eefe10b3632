"""A residual network (He et al. 2016, the ResNet-20 of the paper's section 4.2) on Fashion-MNIST, padded to 32 by 32.

pip install libweft
python3 resnet.py --epochs 3                  # images of Debian's package dataset-fashion-mnist, or --data
python3 resnet.py --blocks 1 --limit 20       # ResNet-8, a few steps
"""

import argparse
import os

import libweft as wf
from libweft import nn, optim


class Block(nn.Module):
    """Two convolutions beside a way around them, which is cut and widened where the convolutions do that."""

    def __init__(self, inputs, outputs, stride):
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm(outputs), nn.BatchNorm(outputs)
        self.stride, self.more = stride, outputs - inputs

    def forward(self, x):
        y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        if self.stride > 1:
            x = x[:, :: self.stride, :: self.stride]
        if self.more:  # New channels are zeros: the way around has no parameters.
            x = wf.pad(x, 0.0, [0, 0, 0, 0], [0, 0, 0, self.more], [0, 0, 0, 0])
        return (x + y).relu()


class ResNet(nn.Module):
    def __init__(self, blocks=3, classes=10):
        self.conv, self.norm = nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm(16)
        widths = [16] * blocks + [32] * blocks + [64] * blocks
        self.blocks = [
            Block(before, width, 2 if width > before else 1) for before, width in zip([16] + widths[:-1], widths)
        ]
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        x = self.norm(self.conv(x)).relu()
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(axis=(1, 2)))


def read(folder, half):
    """Images [count, 28, 28] of bytes and labels [count]; batches are cut and padded by the program."""
    images = wf.data.read_idx(os.path.join(folder, half + "-images-idx3-ubyte.gz"))
    labels = wf.data.read_idx(os.path.join(folder, half + "-labels-idx1-ubyte.gz"))
    return images, labels


def prepared(images, labels):
    """[batch, 32, 32, 1] of mean 0 and variance 1, roughly, and labels i32."""
    x = (images.astype("f32") / 255 - 0.286) / 0.353
    x = wf.pad(x, -0.81, [0, 2, 2], [0, 2, 2], [0, 0, 0])
    return x.reshape(x.shape[0], 32, 32, 1), labels.astype("i32")


def accuracy(model, data, limit):
    model.eval()
    right = wf.metrics.Accuracy()
    for n, (images, labels) in enumerate(wf.data.Batches(*data, size=500)):
        if limit and n >= limit:
            break
        with wf.step(sync=False):
            x, y = prepared(images, labels)
            right.update(model(x), y)
    model.train()
    return right.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--limit", type=int, default=0, help="at most so many steps an epoch and batches of test images")
    parser.add_argument("--blocks", type=int, default=3, help="blocks of each width; 3 is ResNet-20")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--checkpoint", help="where the trained network goes")
    parser.add_argument("--svg", help="a picture of the losses")
    o = parser.parse_args()
    train, test = read(o.data, "train"), read(o.data, "t10k")
    wf.seed(1)
    model = ResNet(o.blocks)
    wf.sync()
    batches = wf.data.Batches(*train, size=o.batch, shuffle=True, seed=1)
    steps = min(len(batches), o.limit or len(batches))
    optimizer = optim.SGD(
        model, lr=optim.one_cycle(o.lr, o.epochs * steps), momentum=0.9, weight_decay=1e-4, nesterov=True
    )
    losses = []
    for epoch in range(o.epochs):
        bar = wf.bar(zip(range(steps), batches), "epoch %d" % (epoch + 1), total=steps)
        for i, (images, labels) in bar:
            with wf.step():
                x, y = prepared(images, labels)
                loss = nn.cross_entropy(model(x), y).keep()
                optimizer.step(loss)
            if (i + 1) % 10 == 0 or i + 1 == steps:  # The other losses stay where they are.
                losses.append(loss.item())
                bar.set(loss=losses[-1])
        print("epoch %d  loss %.4f  accuracy %.4f" % (epoch + 1, losses[-1], accuracy(model, test, o.limit)), flush=True)
    if o.checkpoint:
        wf.save(o.checkpoint, model)
    if o.svg:
        wf.plot.lines({"train": losses}, title="ResNet on Fashion-MNIST", x="tens of steps").save(o.svg)


if __name__ == "__main__":
    main()
