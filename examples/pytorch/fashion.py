"""Fashion-MNIST for the examples beside it: 70,000 images of clothes, 28 by 28, in MNIST's files and format.

The files come from Debian's package dataset-fashion-mnist. MNIST's own four files do as well: give their folder.
"""
import gzip
import os
import shutil

import numpy as np
import torch

FOLDER = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
CLASSES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
TRAIN, TEST = "train", "t10k"


def file_names():
    return [f"{kind}-{what}.gz" for kind in (TRAIN, TEST) for what in ("images-idx3-ubyte", "labels-idx1-ubyte")]


def fetch(folder, source=FOLDER):
    """Puts the files into `folder`, where they are not there yet. Each appears there whole."""
    os.makedirs(folder, exist_ok=True)
    for name in file_names():
        if not os.path.exists(os.path.join(folder, name)):
            beside = os.path.join(folder, f"{name}.{os.getpid()}")
            shutil.copyfile(_existing(source, name), beside)
            os.replace(beside, os.path.join(folder, name))


def _existing(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path} is missing: the images come from Debian's package dataset-fashion-mnist")
    return path


def _read(folder, name):
    """An IDX file: two zeros, the type (bytes: 8), the rank, the sizes as big-endian numbers, the elements."""
    with gzip.open(_existing(folder, name)) as file:
        data = file.read()
    if data[:3] != b"\0\0\x08":
        raise ValueError(f"{os.path.join(folder, name)} is no IDX file of bytes")
    sizes = np.frombuffer(data, ">i4", data[3], 4)
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(sizes).copy())


def read(kind, folder=FOLDER, count=None):
    """(images, labels) of TRAIN or TEST, or the first `count` of them: bytes [n, 28, 28], and numbers 0 to 9."""
    images = _read(folder, f"{kind}-images-idx3-ubyte.gz")[:count]
    return images, _read(folder, f"{kind}-labels-idx1-ubyte.gz")[:count].long()


class Images(torch.utils.data.Dataset):
    """(image, label), the image as `transform` makes it from floats [1, 28, 28] between 0 and 1."""

    def __init__(self, kind, folder=FOLDER, count=None, transform=None):
        self.images, self.labels = read(kind, folder, count)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, at):
        image = self.images[at].unsqueeze(0).float() / 255
        return (self.transform(image) if self.transform else image), self.labels[at]
