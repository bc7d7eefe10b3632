"""The two training steps of benchmarks/train_step on PyTorch (eager, two threads, channels-last convolutions)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from timing import measure, seconds

torch.set_num_threads(2)
BATCHES = 16


def chunk(model, optimizer, images, labels, steps):
    position = 0

    def run():
        nonlocal position
        for _ in range(steps):
            x, y = images[position % BATCHES], labels[position % BATCHES]
            position += 1
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        return loss.item()

    return run


labels = [torch.randint(0, 10, (64,)) for _ in range(BATCHES)]
mlp = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
flat = [torch.randn(64, 784) for _ in range(BATCHES)]
measure("mlp", "pytorch", chunk(mlp, torch.optim.SGD(mlp.parameters(), 0.01), flat, labels, 50), 50, seconds())

cnn = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                    nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)).to(memory_format=torch.channels_last)
images = [torch.randn(64, 1, 28, 28).to(memory_format=torch.channels_last) for _ in range(BATCHES)]
optimizer = torch.optim.SGD(cnn.parameters(), 0.01, momentum=0.9)
measure("cnn", "pytorch", chunk(cnn, optimizer, images, labels, 10), 10, seconds())
