# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # ResNet-18 with the profiler
#
# Cell by cell what the notebook *profiling* of PyTorch/XLA's example notebooks does: training by `spawn` with the profiler's
# server and scopes. There the images were zeros; here they are Fashion-MNIST's, so that the accuracy says something. What
# was a capture for TensorBoard is a question to the server: it answers with the metrics report.

# %%
import json
import os

os.environ["TPU_NAME"] = "dummy"
os.environ["XRT_TPU_CONFIG"] = "localservice;0;localhost:51011"

# %%
FLAGS = {"data_dir": "/tmp/fashionmnist", "batch_size": 64, "num_workers": 0, "learning_rate": 0.02, "momentum": 0.9,
         "num_epochs": 1, "num_cores": 2, "log_steps": 20, "metrics_debug": False, "train_images": 6400, "test_images": 1024,
         "width": 16, "port": 9012}
FLAGS.update(json.loads(os.environ.get("FLAGS", "{}")))

# %%
import multiprocessing
import threading
import time
import urllib.request

import fashion
import torch
import torch.nn as nn
import torch.optim as optim
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.debug.profiler as xp
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from resnet import resnet18

# %% [markdown]
# ## Training
#
# A step is one `xp.StepTrace`; `xp.Trace` is any part of it. The time of each is a metric of its name.

# %%
SERIAL_EXEC = xmp.MpSerialExecutor()
# The weights exist once.
WRAPPED_MODEL = xmp.MpModelWrapper(resnet18(channels=1, width=FLAGS["width"]))


def get_datasets():
    fashion.fetch(FLAGS["data_dir"])
    return [fashion.Images(kind, FLAGS["data_dir"], count) for kind, count in
            ((fashion.TRAIN, FLAGS["train_images"]), (fashion.TEST, FLAGS["test_images"]))]


def train_resnet18(training_started):
    torch.manual_seed(1)
    train_dataset, test_dataset = SERIAL_EXEC.run(get_datasets)
    # Each process reads its part.
    train_sampler, test_sampler = [torch.utils.data.distributed.DistributedSampler(
        dataset, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=dataset is train_dataset)
        for dataset in (train_dataset, test_dataset)]
    options = {"batch_size": FLAGS["batch_size"], "num_workers": FLAGS["num_workers"], "drop_last": True}
    train_loader = torch.utils.data.DataLoader(train_dataset, sampler=train_sampler, **options)
    test_loader = torch.utils.data.DataLoader(test_dataset, sampler=test_sampler, **options)

    device = xm.xla_device()
    model = WRAPPED_MODEL.to(device)
    optimizer = optim.SGD(model.parameters(), lr=FLAGS["learning_rate"] * xm.xrt_world_size(), momentum=FLAGS["momentum"],
                          weight_decay=5e-4)
    loss_fn = nn.NLLLoss()
    server = xp.start_server(FLAGS["port"])  # in the first process alone

    def train_loop_fn(loader):
        tracker = xm.RateTracker()
        model.train()
        for x, (data, target) in enumerate(loader):
            if x == 5:
                training_started.set()
            with xp.StepTrace("train_loop", step_num=x):
                with xp.Trace("build_graph"):
                    optimizer.zero_grad()
                    output = model(data)
                    loss = loss_fn(output, target)
                    loss.backward()
                xm.optimizer_step(optimizer)
                tracker.add(FLAGS["batch_size"])
                if x % FLAGS["log_steps"] == 0:
                    print(f"[xla:{xm.get_ordinal()}]({x}) Loss={loss.item():.5f} Rate={tracker.rate():.2f} "
                          f"GlobalRate={tracker.global_rate():.2f} Time={time.asctime()}", flush=True)

    def test_loop_fn(loader):
        total_samples = correct = 0
        model.eval()
        with torch.no_grad():
            for data, target in loader:
                pred = model(data).max(1, keepdim=True)[1]
                correct += pred.eq(target.view_as(pred)).sum().item()
                total_samples += data.size()[0]
        accuracy = 100.0 * correct / total_samples
        print(f"[xla:{xm.get_ordinal()}] Accuracy={accuracy:.2f}%", flush=True)
        return accuracy, data, pred, target

    for epoch in range(1, FLAGS["num_epochs"] + 1):
        para_loader = pl.ParallelLoader(train_loader, [device])
        train_loop_fn(para_loader.per_device_loader(device))
        xm.master_print(f"Finished training epoch {epoch}")
        para_loader = pl.ParallelLoader(test_loader, [device])
        result = test_loop_fn(para_loader.per_device_loader(device))
        if FLAGS["metrics_debug"]:
            xm.master_print(met.metrics_report(), flush=True)
    return server, *result


# %% [markdown]
# ## The processes start, and the server is asked while they train

# %%
def ask(training_started, answers):
    """Waits until the training is on its way, then asks the profiler's server."""
    if training_started.wait(600):
        with urllib.request.urlopen(f"http://localhost:{FLAGS['port']}/", timeout=60) as answer:
            answers.append(answer.read().decode())


def _mp_fn(rank, flags, training_started):
    global FLAGS
    FLAGS = flags
    server, accuracy, data, pred, target = train_resnet18(training_started)
    if rank == 0:
        for name in ("train_loop", "build_graph"):
            count, total, _ = met.metric_data(name)
            print(f"{name}: {count} times, {total / count / 1e6:.1f} ms each")
        for guess, label in list(zip(pred.cpu().flatten().tolist(), target.cpu().tolist()))[:8]:
            print(f"guessed {fashion.CLASSES[guess]}, is {fashion.CLASSES[label]}")
        server.stop()


training_started = multiprocessing.Event()
answers = []
asking = threading.Thread(target=ask, args=(training_started, answers))
asking.start()
xmp.spawn(_mp_fn, args=(FLAGS, training_started), nprocs=FLAGS["num_cores"], start_method="fork")
training_started.set()
asking.join()

# %% [markdown]
# ## What the first process's server said during the training

# %%
wanted = ("Metric: train_loop", "Metric: build_graph", "Metric: ExecuteTime", "Metric: CompileTime")
for text in answers:
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line in wanted:
            print("\n".join(lines[at:at + 3]))
