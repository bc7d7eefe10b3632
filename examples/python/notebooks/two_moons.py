# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Two moons
#
# A small network tells two half circles apart. What a notebook holds on to (`Out[3]`, a list, an exception) does not change
# the programs: the values of a step die with it, unless they are kept.

# %%
import libweft as wf
from libweft import nn, optim

wf.seed(3)


def moons(count):
    """Points [2 count, 2] on two half circles with noise, and which of them each is on."""
    angle = wf.random.uniform((count,), 0, wf.pi)
    upper = wf.stack([wf.cos(angle), wf.sin(angle)], 1)
    lower = wf.stack([1 - wf.cos(angle), 0.5 - wf.sin(angle)], 1)
    points = wf.concat([upper, lower]) + 0.1 * wf.random.normal((2 * count, 2))
    return points, (wf.arange(2 * count) >= count).astype("i32")


points, labels = moons(300)
test_points, test_labels = moons(200)
points[:3]

# %% [markdown]
# A module is a plain class. Its parameters are found by looking at its attributes.

# %%
class Network(nn.Module):
    def __init__(self, width=32):
        self.layers = nn.Sequential(nn.Linear(2, width), nn.gelu, nn.Linear(width, width), nn.gelu, nn.Linear(width, 2))

    def forward(self, x):
        return self.layers(x)


network = Network()
network

# %%
wf.sync()
optimizer = optim.AdamW(network, lr=optim.cosine(0.01, steps=150, warmup=10))
losses, held = {"train": [], "test": []}, []
for _ in range(150):
    with wf.step():
        logits = network(points)
        loss = nn.cross_entropy(logits, labels)
        optimizer.step(loss)
        test = nn.cross_entropy(network(test_points), test_labels).keep()
        held += [logits, loss.keep()]  # as a careless notebook does
    losses["train"].append(loss)
    losses["test"].append(test)
accuracy = wf.metrics.Accuracy()
accuracy.update(network(test_points), test_labels)
print("%.3f of the test points are right; %d programs compiled" % (accuracy.result(), wf.metrics.get("programs_compiled")))

# %%
wf.plot.lines({name: [float(v) for v in values] for name, values in losses.items()}, title="Two moons", log=True)

# %% [markdown]
# What was not kept says so when somebody reads it.

# %%
try:
    held[0].tolist()
except RuntimeError as error:
    print(error)
