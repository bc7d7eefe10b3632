"""Trains a small network on MNIST's format with one model for each device: `test_train_mnist.py` of PyTorch/XLA's documents.

    python examples/pytorch/test/test_train_mnist.py
    python examples/pytorch/test/test_train_mnist.py --fake_data --num_epochs=1
"""
import sys

import common
import data_parallel


def main():
    parser = common.options(__doc__.splitlines()[0], datadir=common.fashion.FOLDER, batch_size=128, num_epochs=3, lr=0.01,
                            momentum=0.5)
    flags = parser.parse_args()
    accuracy = data_parallel.train(flags, common.MNIST, *common.mnist_loaders(flags))
    return common.end(accuracy, flags)


if __name__ == "__main__":
    sys.exit(main())
