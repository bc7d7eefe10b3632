# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # AlexNet on Fashion-MNIST, one device
#
# Cell by cell what the notebook *single core* of PyTorch/XLA's example notebooks does. Smaller than there, so that two
# cores of a CPU need a minute; `FLAGS='{"image_size": 224, "width": 1, "train_images": null}'` in the environment is the
# notebook's size.

# %%
import json
import os

os.environ["TPU_NAME"] = "dummy"
os.environ["XRT_TPU_CONFIG"] = "localservice;0;localhost:51011"

FLAGS = {"image_size": 63, "width": 4, "batch_size": 32, "train_images": 12000, "test_images": 2000, "num_epochs": 1,
         "learning_rate": 0.001, "seed": 1234}
FLAGS.update(json.loads(os.environ.get("FLAGS", "{}")))

# %% [markdown]
# ## The data and the network

# %%
import torch
import torch.nn.functional as F
from alexnet import AlexNet, ToColour
from fashion import CLASSES, TEST, TRAIN, Images

class_map = dict(enumerate(CLASSES))
raw_dataset = Images(TRAIN)
print(len(raw_dataset), "images")


# %%
def show(image):
    """A grey image of any size as text, 28 columns wide."""
    small = F.adaptive_avg_pool2d(image.mean(0, keepdim=True).unsqueeze(0), (14, 28))[0, 0]
    small = (small - small.min()) / (small.max() - small.min()).clamp(min=1e-6)
    for row in small:
        print("".join(" .:-=+*#%@"[int(9 * value)] for value in row))


img_index = 0
image, label = raw_dataset[img_index]
show(image)
print(class_map[label.item()])

# %%
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(FLAGS["seed"])
net = AlexNet(num_classes=10, width=FLAGS["width"])
device = xm.xla_device()
net = net.to(device)

# %% [markdown]
# ## Loaders

# %%
my_transform = ToColour(FLAGS["image_size"])
train_dataset = Images(TRAIN, count=FLAGS["train_images"], transform=my_transform)
test_dataset = Images(TEST, count=FLAGS["test_images"], transform=my_transform)

# %%
train_sampler = torch.utils.data.RandomSampler(train_dataset)
test_sampler = torch.utils.data.RandomSampler(test_dataset)

# %%
batch_size = FLAGS["batch_size"]
train_loader = torch.utils.data.DataLoader(train_dataset, batch_size=batch_size, sampler=train_sampler, drop_last=True)
test_loader = torch.utils.data.DataLoader(test_dataset, batch_size=batch_size, sampler=test_sampler, drop_last=True)

# %% [markdown]
# ## Evaluation
#
# Before training about one guess in ten is right.

# %%
import time


def eval_network(net, test_loader):
    """The part of the test images whose class is guessed right; prints it, and two of the last batch."""
    start_time = time.time()
    num_correct = 0
    total_guesses = 0
    net.eval()
    with torch.no_grad():
        for data, targets in iter(test_loader):
            data = data.to(device)
            targets = targets.to(device)
            best_guesses = torch.argmax(net(data), 1)
            num_correct += torch.eq(targets, best_guesses).sum().item()
            total_guesses += len(targets)
    print(f"Correctly guessed {100 * num_correct / total_guesses:.2f}% of the dataset")
    print(f"Evaluated in {time.time() - start_time:.1f} seconds")
    print("Sample batch:")
    for image, target, guess in list(zip(data.cpu(), targets.cpu(), best_guesses.cpu()))[:2]:
        show(image)
        print("Target:", class_map[target.item()], " Guess:", class_map[guess.item()])
    return num_correct / total_guesses


# %%
before = eval_network(net, test_loader)

# %% [markdown]
# ## Training

# %%
num_epochs = FLAGS["num_epochs"]
loss_fn = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=FLAGS["learning_rate"])
net.train()

start_time = time.time()
for epoch in range(num_epochs):
    for data, targets in iter(train_loader):
        data = data.to(device)
        targets = targets.to(device)
        results = net(data)
        loss = loss_fn(results, targets)
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)  # The one line that PyTorch itself has not.

print(f"Spent {time.time() - start_time:.1f} seconds training for {num_epochs} epoch(s) on a single core, loss {loss.item():.3f}")

# %%
accuracy = eval_network(net, test_loader)
print(f"Accuracy: {accuracy:.4f} (before training {before:.4f})")
