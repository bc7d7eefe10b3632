"""Logistic regression: two clouds of points, a gradient of a function, and the share that is told apart.

pip install libweft
python3 logistic_regression.py
"""

import libweft as wf
from libweft import nn, optim

wf.seed(2)
count = 500
centres = wf.tensor([[-1.0, -1.0], [1.0, 1.0]])
labels = wf.arange(2 * count) % 2
points = centres[labels] + wf.random.normal((2 * count, 2))
model = nn.Linear(2, 1)
wf.sync()


def loss_of(model, x, y):
    return nn.bce_with_logits(model(x)[:, 0], y.astype("f32"))


step = wf.value_and_grad(loss_of)
optimizer = optim.SGD(model, lr=optim.cosine(1.0, steps=100))
losses = []
for i in range(100):
    with wf.step():
        loss, grads = step(model, points, labels)
        optimizer.step(grads)
        losses.append(loss.keep())
right = wf.metrics.Accuracy()
logits = model(points)
right.update(wf.concat([wf.zeros_like(logits), logits], 1), labels)
print("loss %.4f to %.4f, %.1f %% right, traced %d times" % (losses[0], losses[-1], 100 * right.result(), step.signatures))
