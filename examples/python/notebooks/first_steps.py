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
# # First steps
#
# A tensor is a value that may not be computed yet. An operation is recorded: its type and shape are known at once, its value
# when somebody reads it. This page is a notebook, kept as text: `jupytext --to notebook first_steps.py`.

# %%
import libweft as wf

x = wf.tensor([[1.0, 2.0], [3.0, 4.0]])
y = (x @ x.T + 1).sqrt()
print(y.shape, y.dtype)  # known, and nothing has run

# %% [markdown]
# Reading computes what is needed, in one program. A notebook shows a tensor with its type above the values.

# %%
y

# %% [markdown]
# Indexing is NumPy's, and slices are values: assigning to `x` leaves `y` as it is.

# %%
x[0, :] = 10
print(x)
print(y)

# %% [markdown]
# ## Gradients
#
# `wf.grad` gives the function that computes the slope. Here is a polynomial with its slope, and a picture of both.

# %%
def polynomial(x):
    return x**3 - 2 * x


slope = wf.vmap(wf.grad(polynomial))
places = wf.linspace(-2, 2, 81)
wf.plot.lines({"x³ - 2x": polynomial(places), "slope": slope(places)}, title="A polynomial and its slope", x="number of the place, from -2 to 2", y="value")

# %% [markdown]
# ## A line through points
#
# Each turn of the loop is a step: one program, which is compiled in the first turn and found again in the others.

# %%
wf.seed(1)
points = wf.random.uniform((200,), -1, 1)
values = 1.7 * points - 0.4 + 0.1 * wf.random.normal((200,))
w, b = wf.Parameter(0.0), wf.Parameter(0.0)
optimizer = wf.optim.SGD([w, b], lr=0.2)
losses = []
for _ in range(60):
    with wf.step():
        loss = (w * points + b - values).square().mean()
        optimizer.step(loss)
        losses.append(loss.keep())
print("y = %.2f x %+.2f, %d programs compiled in this notebook" % (w, b, wf.metrics.get("programs_compiled")))

# %%
wf.plot.lines({"loss": [float(v) for v in losses]}, title="A line through points", log=True)
