# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # AlexNet on Fashion-MNIST, one process for each device
#
# Cell by cell what the notebook *multi core* of PyTorch/XLA's example notebooks does: `spawn` with eight processes, and a
# `rendezvous` around what one of them has to do first. The eight share this machine's cores, and each reads an eighth of the
# images. Sizes are those of `alexnet_single_core.py`, and `FLAGS` changes them.

# %%
import json
import os

os.environ["TPU_NAME"] = "dummy"
os.environ["XRT_TPU_CONFIG"] = "localservice;0;localhost:51011"

# %% [markdown]
# ## What `spawn` does

# %%
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp


def simple_map_fn(index, flags):
    torch.manual_seed(1234)
    device = xm.xla_device()
    t = torch.randn((2, 2), device=device)
    print("Process", index, "is using", xm.xla_real_devices([str(t.device)])[0])
    xm.rendezvous("init")


flags = {}
xmp.spawn(simple_map_fn, args=(flags,), nprocs=8, start_method="fork")


# %%
def master_prints(index, flags):
    """The same work on every device; what one process alone does is work of its CPU."""
    torch.manual_seed(1234)
    device = xm.xla_device()
    t = torch.randn((2, 2), device=device)
    out = str(t)
    if xm.is_master_ordinal():
        print(out)
    xm.rendezvous("init")


xmp.spawn(master_prints, args=(flags,), nprocs=8, start_method="fork")

# %% [markdown]
# ## Training

# %%
import time

import fashion
import torch_xla.distributed.parallel_loader as pl
from alexnet import AlexNet, ToColour
from fashion import TEST, TRAIN, Images


def make_loaders(flags):
    """Each process samples its own part of the images. The first one fetches them, while the others wait."""
    if not xm.is_master_ordinal():
        xm.rendezvous("download_only_once")
    fashion.fetch(flags["data_dir"])
    if xm.is_master_ordinal():
        xm.rendezvous("download_only_once")

    loaders = []
    for kind, count in ((TRAIN, flags["train_images"]), (TEST, flags["test_images"])):
        dataset = Images(kind, flags["data_dir"], count, ToColour(flags["image_size"]))
        sampler = torch.utils.data.distributed.DistributedSampler(
            dataset, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=kind == TRAIN)
        loaders.append(torch.utils.data.DataLoader(dataset, batch_size=flags["batch_size"], sampler=sampler,
                                                   num_workers=flags["num_workers"], drop_last=True))
    return loaders


def map_fn(index, flags):
    torch.manual_seed(flags["seed"])
    device = xm.xla_device()
    train_loader, test_loader = make_loaders(flags)
    net = AlexNet(num_classes=10, width=flags["width"]).to(device).train()
    loss_fn = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=flags["learning_rate"])

    train_start = time.time()
    for epoch in range(flags["num_epochs"]):
        para_train_loader = pl.ParallelLoader(train_loader, [device]).per_device_loader(device)
        for data, targets in para_train_loader:
            output = net(data)
            loss = loss_fn(output, targets)
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)  # The loader has the barrier.
    print(f"Process {index} finished training. Train time was: {time.time() - train_start:.1f}")

    net.eval()
    eval_start = time.time()
    num_correct = total_guesses = 0
    with torch.no_grad():
        para_test_loader = pl.ParallelLoader(test_loader, [device]).per_device_loader(device)
        for data, targets in para_test_loader:
            best_guesses = torch.argmax(net(data), 1)
            num_correct += torch.eq(targets, best_guesses).sum().item()
            total_guesses += flags["batch_size"]
    print(f"Process {index} finished evaluation. Evaluation time was: {time.time() - eval_start:.1f}")
    accuracy = num_correct / total_guesses
    print(f"Process {index} guessed {num_correct} of {total_guesses} correctly for {100 * accuracy:.2f}% accuracy.")
    accuracy = xm.mesh_reduce("accuracy", accuracy, lambda all: sum(all) / len(all))
    xm.master_print(f"All {xm.xrt_world_size()} processes: {100 * accuracy:.2f}% accuracy.")


# %%
flags = {"batch_size": 32, "num_workers": 2, "num_epochs": 1, "seed": 1234, "image_size": 63, "width": 4,
         "train_images": 12000, "test_images": 2000, "learning_rate": 0.001, "data_dir": "/tmp/fashionmnist"}
flags.update(json.loads(os.environ.get("FLAGS", "{}")))

train_start = time.time()
xmp.spawn(map_fn, args=(flags,), nprocs=8, start_method="fork")
print(f"Total train+eval time was: {time.time() - train_start:.1f}")
