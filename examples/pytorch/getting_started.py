# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Tensors, modules and networks on an XLA device
#
# Cell by cell what the notebook *getting started* of PyTorch/XLA's example notebooks does: a device and `ones`, arithmetic,
# a convolution, copies, a module, its gradient, a network. Run it as a script, or open it as a notebook with jupytext.

# %%
# The notebooks name a TPU's server first of all. The value is not used, and does no harm.
import os

os.environ["TPU_NAME"] = "dummy"
os.environ["XRT_TPU_CONFIG"] = "localservice;0;localhost:51011"

# %% [markdown]
# ## Devices and tensors

# %%
import torch
import torch_xla
import torch_xla.core.xla_model as xm

# %%
dev = xm.xla_device()
t1 = torch.ones(3, 3, device=dev)
print(t1)

# %%
# Another device, where there is more than one. With one, asking for it is an error that says so.
if torch_xla.device_count() > 1:
    second_dev = xm.xla_device(n=1)
    print(torch.zeros(3, 3, device=second_dev))
    dev = xm.xla_device(n=0)
else:
    try:
        xm.xla_device(n=2)
    except RuntimeError as error:
        print(error)

# %%
a = torch.randn(2, 2, device=dev)
b = torch.randn(2, 2, device=dev)
print(a + b)
print(b * 2)
print(torch.matmul(a, b))

# %%
filters = torch.randn(33, 16, 3, device=dev)
inputs = torch.randn(20, 16, 50, device=dev)
convolved = torch.nn.functional.conv1d(inputs, filters)
print(convolved.shape, convolved.device)

# %%
t_cpu = torch.randn(2, 2, device="cpu")
t_xla = t_cpu.to(dev)
t_cpu_again = t_xla.to("cpu")
print(t_cpu, t_xla, t_cpu_again, sep="\n")
assert torch.equal(t_cpu, t_cpu_again) and t_cpu is not t_cpu_again

# %% [markdown]
# ## A module and its gradient

# %%
fc = torch.nn.Linear(5, 2, bias=True)
fc = fc.to(dev)
features = torch.randn(3, 5, device=dev, requires_grad=True)
output = fc(features)
print(output)

# %%
output.backward(torch.ones_like(output))
print(fc.weight.grad)
# Each row of the gradient is the sum of the inputs: a check that needs no other machine.
torch.testing.assert_close(fc.weight.grad.cpu(), features.detach().cpu().sum(0).expand(2, 5), rtol=1e-5, atol=1e-5)

# %% [markdown]
# ## A network

# %%
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    """Two convolutions and three layers, for grey images of 32 by 32."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.conv2 = nn.Conv2d(6, 16, 3)
        self.fc1 = nn.Linear(16 * 6 * 6, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), (2, 2))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(-1, x.size()[1:].numel())
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


# %%
net = Net().to(dev)
image = torch.randn(1, 1, 32, 32, device=dev)
out = net(image)
print(out)
torch.testing.assert_close(out.detach().cpu(), net.to("cpu")(image.cpu()).detach(), rtol=1e-4, atol=1e-4)
