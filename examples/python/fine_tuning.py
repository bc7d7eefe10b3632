"""Fine-tuning: a network from a file keeps its layers and learns another question with a few images.

The file is a checkpoint of resnet.py, trained on the kinds of clothing, or the state of the same network that PyTorch has trained:
safetensors.torch.save_file(model.state_dict(), "resnet.safetensors"). Here the question is whether a thing is worn on the feet. First
the new last layer learns alone, then all of it, slowly.

pip install libweft
python3 resnet.py --blocks 1 --epochs 1 --checkpoint resnet.weft
python3 fine_tuning.py --file resnet.weft --blocks 1
python3 fine_tuning.py --file resnet.safetensors --blocks 1
"""

import argparse

import libweft as wf
from libweft import nn, optim
from resnet import ResNet, prepared, read

FEET = (5, 7, 9)  # Sandal, sneaker, ankle boot.


def from_pytorch(state):
    """PyTorch's names and layouts in ours: kernels [out, in, 3, 3] become [3, 3, in, out], matrices [out, in] become [in, out]."""
    names = {"bias": "offset", "running_mean": "mean", "running_var": "variance"}
    ours = {}
    for name, value in state.items():
        layer, _, part = name.rpartition(".")
        if part == "weight" and value.ndim > 1:
            ours[layer + ".w"] = wf.transpose(value, (2, 3, 1, 0) if value.ndim == 4 else (1, 0))
        elif part == "weight":
            ours[layer + ".scale"] = value
        elif part in names:
            ours[layer + "." + ("b" if layer == "head" else names[part])] = value
    return ours  # What counts batches (num_batches_tracked) is left behind.


def from_file(path, blocks):
    """The network of a file, with a last layer of its own for two classes; the others keep their values."""
    model = ResNet(blocks, classes=2)
    state = wf.load(path)
    if path.endswith((".safetensors", ".pt", ".pth")):
        state = from_pytorch(state)
    state = {name: value for name, value in state.items() if name.split(".")[0] != "head"}
    model.load_state_dict(state, strict=False)
    wf.sync()
    return model


def question(labels):
    """1 for what is worn on the feet."""
    feet = labels == FEET[0]
    for kind in FEET[1:]:
        feet = feet | (labels == kind)
    return feet.astype("i32")


def accuracy(model, images, labels):
    model.eval()
    right = wf.metrics.Accuracy()
    with wf.step(sync=False):
        x, y = prepared(images, labels)
        right.update(model(x), question(y))
    model.train()
    return right.result()


def train(model, params, lr, steps, batches):
    optimizer = optim.AdamW(params, lr=lr)
    first = last = None
    for i, (images, labels) in wf.bar(zip(range(steps), batches), "fine-tuning", total=steps):
        with wf.step():
            x, y = prepared(images, labels)
            loss = nn.cross_entropy(model(x), question(y)).keep()
            optimizer.step(loss)
        last = loss
        first = loss if first is None else first
    return first.item(), last.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", required=True, help="a checkpoint of resnet.py, or PyTorch's state: .safetensors, .pt")
    parser.add_argument("--blocks", type=int, default=3, help="as resnet.py had it")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--images", type=int, default=2000, help="so many are seen")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    o = parser.parse_args()
    wf.seed(2)
    model = from_file(o.file, o.blocks)
    images, labels = (part[: o.images] for part in read(o.data, "train"))
    test = [part[:1000] for part in read(o.data, "t10k")]
    batches = list(wf.data.Batches(images, labels, size=50, shuffle=True, seed=2)) * (1 + 2 * o.steps * 50 // o.images)
    before = accuracy(model, *test)
    first, head = train(model, model.head.parameters(), 0.01, o.steps // 2, batches)
    _, last = train(model, model.parameters(), 0.0005, o.steps - o.steps // 2, batches[o.steps // 2 :])
    print("loss %.4f to %.4f to %.4f" % (first, head, last))
    print("accuracy %.3f to %.3f" % (before, accuracy(model, *test)))


if __name__ == "__main__":
    main()
