"""What the three training scripts beside it share: their options, loaders, and the end of a run."""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import fashion  # noqa: E402
import torch  # noqa: E402
import torch_xla.utils.utils as xu  # noqa: E402


def options(description, **defaults):
    """A parser with the options that the scripts have in common."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--datadir", help="folder with the data")
    parser.add_argument("--logdir", help="folder for TensorBoard's files; none: nothing is written")
    parser.add_argument("--num_cores", type=int, help="devices to train on; 0: PyTorch's own CPU device; none: all")
    parser.add_argument("--batch_size", type=int, help="images of one step and device")
    parser.add_argument("--num_epochs", type=int)
    parser.add_argument("--num_workers", type=int, help="processes that read")
    parser.add_argument("--lr", type=float, help="learning rate")
    parser.add_argument("--momentum", type=float)
    parser.add_argument("--log_steps", type=int, help="steps from one line of progress to the next")
    parser.add_argument("--target_accuracy", type=float, help="in percent; a run that stays below ends with code 1")
    parser.add_argument("--samples", type=int, help="images to train on at most, and half as many to test with; 0: all")
    parser.add_argument("--fake_data", action="store_true", help="images of zeros, which need no files")
    parser.add_argument("--metrics_debug", action="store_true", help="print the metrics report after each epoch")
    parser.set_defaults(num_workers=0, log_steps=20, target_accuracy=0.0, samples=0, **defaults)
    return parser


def fake_loaders(flags, shape, train_samples, test_samples):
    """Loaders that give the same batch of zeros."""
    batch = (torch.zeros(flags.batch_size, *shape), torch.zeros(flags.batch_size, dtype=torch.int64))
    train, test = (flags.samples, flags.samples // 2) if flags.samples else (train_samples, test_samples)
    return [xu.SampleGenerator(batch, max(1, count // flags.batch_size)) for count in (train, test)]


def loaders(flags, train, test, sampler=None):
    """Loaders of two data sets; `sampler` makes the training's, where processes share the images."""
    chosen = sampler(train) if sampler else None
    common = {"batch_size": flags.batch_size, "num_workers": flags.num_workers, "drop_last": True}
    return [torch.utils.data.DataLoader(train, sampler=chosen, shuffle=chosen is None, **common),
            torch.utils.data.DataLoader(test, shuffle=False, **common)]


def mnist_loaders(flags, sampler=None):
    """MNIST's four files in --datadir, or those of Fashion-MNIST: both have the same format."""
    if flags.fake_data:
        return fake_loaders(flags, (1, 28, 28), 60000, 10000)
    counts = (flags.samples, flags.samples // 2) if flags.samples else (None, None)
    train, test = [fashion.Images(kind, flags.datadir, count, lambda image: (image - 0.1307) / 0.3081)
                   for kind, count in zip((fashion.TRAIN, fashion.TEST), counts)]
    return loaders(flags, train, test, sampler)


class MNIST(torch.nn.Module):
    """Two convolutions and two layers, for images of 28 by 28; gives logarithms of probabilities."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 10, kernel_size=5), torch.nn.MaxPool2d(2), torch.nn.ReLU(), torch.nn.BatchNorm2d(10),
            torch.nn.Conv2d(10, 20, kernel_size=5), torch.nn.MaxPool2d(2), torch.nn.ReLU(), torch.nn.BatchNorm2d(20),
            torch.nn.Flatten(), torch.nn.Linear(320, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10), torch.nn.LogSoftmax(1))

    def forward(self, images):
        return self.layers(images)


def end(accuracy, flags):
    """The process's return code: 1 where the accuracy is not what was asked for."""
    if accuracy < flags.target_accuracy:
        print(f"Accuracy {accuracy:.2f}% is below the target of {flags.target_accuracy:.2f}%", file=sys.stderr)
        return 1
    return 0
