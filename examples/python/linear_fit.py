"""The smallest thing that learns: a line through points, by gradient descent.

pip install libweft
python3 linear_fit.py
"""

import libweft as wf

wf.seed(1)
x = wf.random.uniform((200,), -1, 1)
y = 3 * x + 1 + 0.1 * wf.random.normal((200,))
w, b = wf.Parameter(0.0), wf.Parameter(0.0)
wf.sync()
for _ in range(200):
    with wf.step():
        loss = (w * x + b - y).square().mean().keep()
        dw, db = wf.gradients(loss, [w, b])
        w -= 0.1 * dw
        b -= 0.1 * db
print("y = %.2f x + %.2f, loss %.4f, %d programs" % (w, b, loss, wf.metrics.get("programs_queued")))
