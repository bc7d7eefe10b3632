"""The models whose training steps are measured, with one batch of data each."""

import torch
from torch import nn
from torch.nn import functional as F


class Convolutions(nn.Module):
    """Two convolutions, a batch norm and a pool: the size that MNIST is taught with."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.last = nn.Conv2d(16, 32, 3, padding=1), nn.Linear(32 * 7 * 7, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.last(F.max_pool2d(F.relu(self.second(x)), 2).flatten(1))


class Block(nn.Module):
    """ResNet's basic block."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.a, self.na = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.b, self.nb = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.short = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + self.short(x))


class ResNet18(nn.Module):
    """ResNet-18 as its authors have it, with ten classes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
        self.blocks = nn.Sequential(*(Block(*size) for size in sizes))
        self.last = nn.Linear(512, 10)

    def forward(self, x):
        return self.last(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class Encoder(nn.Module):
    """torch's own Transformer encoder over tokens."""

    def __init__(self, width):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, activation="gelu")
        self.table = nn.Embedding(1000, width)
        self.layers, self.last = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, 10)

    def forward(self, x):
        return self.last(self.layers(self.table(x)).mean(1))


class BertLayer(nn.Module):
    """A layer of BERT's: attention and a feed-forward part, each followed by its norm."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.mix = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)

    def forward(self, x, mask):
        batch, length, width = x.shape

        def split(y):
            return y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        scores = split(self.query(x)) @ split(self.key(x)).transpose(-1, -2) / (width // self.heads) ** 0.5
        mixed = (torch.softmax(scores + mask, -1) @ split(self.value(x))).transpose(1, 2).reshape(batch, length, width)
        x = self.first(x + self.mix(mixed))
        return self.second(x + self.narrow(F.gelu(self.wide(x))))


class Bert(nn.Module):
    """A small BERT with a classifier on its first token; tokens of number 0 are padding."""

    def __init__(self, width=128, heads=4, layers=4):
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(2000, width), nn.Embedding(64, width), nn.Embedding(2, width)
        self.norm, self.pooler, self.last = nn.LayerNorm(width, 1e-12), nn.Linear(width, width), nn.Linear(width, 10)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        mask = (1.0 - (x != 0)[:, None, None, :].to(torch.float32)) * -10000.0
        y = self.norm(self.words(x) + self.places(places) + self.kinds(torch.zeros_like(x)))
        for layer in self.layers:
            y = layer(y, mask)
        return self.last(torch.tanh(self.pooler(y[:, 0])))


class Recurrent(nn.Module):
    """One recurrent layer and a classifier on its last output."""

    def __init__(self, kind):
        super().__init__()
        self.cells, self.last = kind(32, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, x):
        return self.last(self.cells(x)[0][:, -1])


def _sgd(parameters):
    return torch.optim.SGD(parameters, 0.01, momentum=0.9)


def _adamw(parameters):
    return torch.optim.AdamW(parameters, 1e-4)


def _mlp():
    sizes = nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    return nn.Sequential(*sizes)


# name: (model, data, optimizer, how many times torch's time a step may take by docs/pytorch.md; None: no bound)
MODELS = {
    "mlp": (_mlp, lambda g: torch.randn(64, 784, generator=g), _sgd, 1.2),
    "cnn": (Convolutions, lambda g: torch.randn(64, 1, 28, 28, generator=g), _sgd, 0.85),
    "resnet18": (ResNet18, lambda g: torch.randn(4, 3, 64, 64, generator=g), _sgd, 1.1),
    "encoder": (lambda: Encoder(128), lambda g: torch.randint(0, 1000, (16, 32), generator=g), _sgd, 1.1),
    "encoder-small": (lambda: Encoder(32), lambda g: torch.randint(0, 1000, (4, 12), generator=g), _sgd, 1.1),
    "encoder-middle": (lambda: Encoder(64), lambda g: torch.randint(0, 1000, (8, 32), generator=g), _sgd, 1.1),
    "bert": (Bert, lambda g: torch.randint(0, 2000, (8, 32), generator=g), _adamw, 1.1),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda g: torch.randn(32, 16, 32, generator=g), _sgd, 2.2),
    "gru": (lambda: Recurrent(nn.GRU), lambda g: torch.randn(32, 16, 32, generator=g), _sgd, None),
}


def make(name):
    """Model, data and labels, the same in every process; the optimizer's maker."""
    model, data, optimizer, _ = MODELS[name]
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    made, batch = model(), data(generator)
    return made, batch, torch.randint(0, 10, (batch.shape[0],), generator=generator), optimizer
