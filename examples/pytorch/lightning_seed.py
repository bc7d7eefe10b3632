"""Lightning's trainer as its page on TPUs called it (`num_tpu_cores`, `precision=16`), on the Lightning of today.

    python examples/pytorch/lightning_seed.py

trains a small classifier on Fashion-MNIST, first with 8 cores, then in 16 bits, and prints the accuracy of each. The
arguments are mapped to today's; the trainer is Lightning's own.
"""
import gzip
import os
import sys

import numpy as np
import pytorch_lightning as pl
import torch
import torch_xla

DATA = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")

_Trainer = pl.Trainer


def trainer_arguments(num_tpu_cores=None, precision=32, **others):
    """Today's arguments for those of Lightning 0.7. Like it, it takes 1 or 8 cores and nothing else."""
    if num_tpu_cores is None:
        return {"precision": precision, **others}
    if num_tpu_cores not in (1, 8):
        raise ValueError(f"num_tpu_cores has to be 1 or 8, not {num_tpu_cores}")
    if precision not in (16, 32):
        raise ValueError(f"precision has to be 16 or 32, not {precision}")
    # Lightning takes 1 or all devices. Where eight are not there, all means as many as there are.
    devices = num_tpu_cores if num_tpu_cores == 1 or torch_xla.device_count() == 8 else "auto"
    # On TPUs 16 bits were bfloat16.
    return {"accelerator": "tpu", "devices": devices,
            "precision": "bf16-true" if precision == 16 else "32-true", **others}


def trainer(num_tpu_cores=None, precision=32, **others):
    """Lightning's trainer, for one epoch and without files where nothing else is said."""
    others = {"max_epochs": 1, "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, **others}
    return _Trainer(**trainer_arguments(num_tpu_cores, precision, **others))


def install():
    """Lets `pl.Trainer` take the arguments of Lightning 0.7."""
    pl.Trainer = trainer


def _read(name, header):
    with gzip.open(os.path.join(DATA, name)) as file:
        return torch.from_numpy(np.frombuffer(file.read(), np.uint8, offset=header).copy())


def fashion(kind, count):
    """The first images and labels, 'train' or 't10k'."""
    images = _read(f"{kind}-images-idx3-ubyte.gz", 16).reshape(-1, 784)[:count].float() / 255
    return torch.utils.data.TensorDataset(images, _read(f"{kind}-labels-idx1-ubyte.gz", 8)[:count].long())


class FashionClassifier(pl.LightningModule):
    """Two layers; it brings its own data, as the page's module does."""

    images = 20000  # to train on

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def forward(self, images):
        return self.layers(images)

    def training_step(self, batch, batch_index):
        images, labels = batch
        return torch.nn.functional.cross_entropy(self(images.to(self.dtype)).float(), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(fashion("train", self.images), batch_size=64, shuffle=True)

    @torch.no_grad()
    def accuracy(self):
        """The part of test images whose label is right."""
        images, labels = fashion("t10k", 2000).tensors
        parameter = next(self.parameters())
        guessed = self(images.to(parameter.device, parameter.dtype)).argmax(1)
        return (guessed.cpu() == labels).float().mean().item()


def main():
    install()
    for arguments in ({"num_tpu_cores": 8}, {"num_tpu_cores": 8, "precision": 16}):
        model = FashionClassifier()
        pl.Trainer(**arguments).fit(model)
        print(f"{arguments}: accuracy {model.accuracy():.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
