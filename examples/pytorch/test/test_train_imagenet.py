"""Trains a ResNet on images of ImageNet's kind: `test_train_imagenet.py` of PyTorch/XLA's documents.

    XLA_USE_BF16=1 python examples/pytorch/test/test_train_imagenet.py --fake_data
    python examples/pytorch/test/test_train_imagenet.py --datadir FOLDER

FOLDER has `train` and `val`, with a folder of images for each class; reading them takes torchvision. The sizes are small
ones; `--image_size 224 --num_classes 1000 --width 64` are ImageNet's.
"""
import functools
import os
import sys

import common
import data_parallel
from resnet import resnet18, resnet34

MODELS = {"resnet18": resnet18, "resnet34": resnet34}


def folder_loaders(flags):
    try:
        from torchvision import datasets, transforms
    except ImportError:
        sys.exit("reading a folder of images takes torchvision: pip install torchvision, or --fake_data")
    size = flags.image_size
    normalize = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    train = datasets.ImageFolder(os.path.join(flags.datadir, "train"), transforms.Compose(
        [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(), normalize]))
    test = datasets.ImageFolder(os.path.join(flags.datadir, "val"), transforms.Compose(
        [transforms.Resize(size * 8 // 7), transforms.CenterCrop(size), transforms.ToTensor(), normalize]))
    if len(train.classes) > flags.num_classes:
        sys.exit(f"{flags.datadir} has {len(train.classes)} classes, and --num_classes is {flags.num_classes}")
    return common.loaders(flags, train, test)


def main():
    parser = common.options(__doc__.splitlines()[0], datadir="/tmp/imagenet", batch_size=8, num_epochs=1, lr=0.1, momentum=0.9)
    parser.add_argument("--model", choices=sorted(MODELS), default="resnet18")
    parser.add_argument("--image_size", type=int, default=64)
    parser.add_argument("--num_classes", type=int, default=100)
    parser.add_argument("--width", type=int, default=16, help="channels of the first group; ImageNet's networks have 64")
    flags = parser.parse_args()
    if flags.fake_data:
        train_loader, test_loader = common.fake_loaders(flags, (3, flags.image_size, flags.image_size), 400, 80)
    else:
        train_loader, test_loader = folder_loaders(flags)
    make_model = functools.partial(MODELS[flags.model], num_classes=flags.num_classes, width=flags.width, large=True)
    return common.end(data_parallel.train(flags, make_model, train_loader, test_loader), flags)


if __name__ == "__main__":
    sys.exit(main())
