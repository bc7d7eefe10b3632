"""An LSTM as one loop of the program (wf.scan): it learns to add the marked numbers of a sequence (Hochreiter and
Schmidhuber 1997).

pip install libweft
python3 lstm.py
"""

import argparse

import libweft as wf
from libweft import nn, optim

TIME, BATCH = 12, 64


class Adder(nn.Module):
    def __init__(self):
        self.lstm, self.head = nn.LSTM(2, 24), nn.Linear(24, 1)

    def forward(self, x):
        outputs, _ = self.lstm(x)
        return self.head(outputs[-1])[:, 0]


def batch():
    """Numbers from 0 to 1, and marks at two places, one in each half; the target is the sum of the marked numbers."""
    numbers = wf.random.uniform((TIME, BATCH))
    half = TIME // 2
    first, second = wf.random.randint(0, half, (BATCH,)), wf.random.randint(half, TIME, (BATCH,))
    marks = wf.one_hot(first, TIME) + wf.one_hot(second, TIME)
    marks = marks.T
    return wf.stack([numbers, marks], 2), (numbers * marks).sum(axis=0)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
steps = parser.parse_args().steps
wf.seed(3)
model = Adder()
wf.sync()
optimizer = optim.Adam(model, lr=0.01)
losses = []
for i in wf.bar(range(steps), "lstm"):
    with wf.step():
        x, y = batch()
        loss = nn.mse(model(x), y).keep()
        grads, norm = optim.clip_by_global_norm(wf.gradients(loss, model.parameters()), 1.0)
        optimizer.step(grads)
    if i % 10 == 9:
        losses.append(loss.item())
print("loss %.4f to %.4f, %d programs" % (losses[0], losses[-1], wf.metrics.get("programs_queued")))
