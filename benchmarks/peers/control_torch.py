"""The LSTM of benchmarks/control_flow on PyTorch (nn.LSTM, two threads), which takes all x w before the loop."""
import torch

from timing import measure, seconds

torch.set_num_threads(2)
lstm = torch.nn.LSTM(256, 256)
xs = torch.rand(100, 32, 256) * 2 - 1


def forward():
    with torch.no_grad():
        lstm(xs)


def gradient():
    lstm.zero_grad()
    lstm(xs)[0].sum().backward()


measure("lstm-forward", "pytorch", forward, 1, seconds())
measure("lstm-gradient", "pytorch", gradient, 1, seconds())
