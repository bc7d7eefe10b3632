"""Trains a small network on MNIST's format with one process for each device: `test_train_mp_mnist.py` of PyTorch/XLA.

    python examples/pytorch/test/test_train_mp_mnist.py --num_epochs=1
    python examples/pytorch/test/test_train_mp_mnist.py --fake_data --metrics_debug
    python examples/pytorch/test/test_train_mp_mnist.py --num_cores=2
"""
import os
import sys

import common
import torch
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.test.test_utils as test_utils


def distributed(dataset):
    return torch.utils.data.distributed.DistributedSampler(dataset, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(),
                                                           shuffle=True)


def _train_update(device, step, loss, tracker, epoch, writer):
    test_utils.print_training_update(device, step, loss.item(), tracker.rate(), tracker.global_rate(), epoch,
                                     summary_writer=writer)


def train_mnist(flags):
    torch.manual_seed(1)
    train_loader, test_loader = common.mnist_loaders(flags, None if flags.fake_data else distributed)
    device = xm.xla_device()
    model = common.MNIST().to(device)
    writer = test_utils.get_summary_writer(flags.logdir) if xm.is_master_ordinal() else None
    optimizer = torch.optim.SGD(model.parameters(), lr=flags.lr * xm.xrt_world_size(), momentum=flags.momentum)
    loss_fn = torch.nn.NLLLoss()
    train_device_loader = pl.MpDeviceLoader(train_loader, device)
    test_device_loader = pl.MpDeviceLoader(test_loader, device)

    def train_loop_fn(epoch):
        tracker = xm.RateTracker()
        model.train()
        for step, (data, target) in enumerate(train_device_loader):
            optimizer.zero_grad()
            loss = loss_fn(model(data), target)
            loss.backward()
            xm.optimizer_step(optimizer)
            tracker.add(flags.batch_size)
            if step % flags.log_steps == 0:
                xm.add_step_closure(_train_update, args=(device, step, loss, tracker, epoch, writer),
                                    run_async=flags.async_closures)

    def test_loop_fn():
        total_samples = 0
        correct = torch.zeros((), dtype=torch.int64, device=device)
        model.eval()
        with torch.no_grad():
            for data, target in test_device_loader:
                pred = model(data).argmax(1)
                correct += pred.eq(target).sum()
                total_samples += data.size()[0]
        return xm.mesh_reduce("test_accuracy", 100.0 * correct.item() / total_samples, lambda all: sum(all) / len(all))

    best = 0.0
    for epoch in range(1, flags.num_epochs + 1):
        xm.master_print(f"Epoch {epoch} train begin {test_utils.now()}")
        train_loop_fn(epoch)
        accuracy = test_loop_fn()
        best = max(best, accuracy)
        xm.master_print(f"Epoch {epoch} test end {test_utils.now()}, Accuracy={accuracy:.2f}")
        test_utils.write_to_summary(writer, epoch, {"Accuracy/test": accuracy}, write_xla_metrics=True)
        if flags.metrics_debug:
            xm.master_print(met.metrics_report())
    test_utils.close_summary_writer(writer)
    xm.wait_device_ops()
    if flags.save and xm.is_master_ordinal():
        os.makedirs(os.path.dirname(os.path.abspath(flags.save)), exist_ok=True)
    if flags.save:
        xm.save(model.state_dict(), flags.save)
    xm.master_print(f"Max Accuracy: {best:.2f}%")
    return best


def _mp_fn(index, flags):
    code = common.end(train_mnist(flags), flags)
    if code:
        sys.exit(code)


def main():
    parser = common.options(__doc__.splitlines()[0], datadir=common.fashion.FOLDER, batch_size=128, num_epochs=3, lr=0.01,
                            momentum=0.5)
    parser.add_argument("--async_closures", action="store_true", help="lines of progress come from a thread of their own")
    parser.add_argument("--save", help="file for the trained parameters")
    flags = parser.parse_args()
    xmp.spawn(_mp_fn, args=(flags,), nprocs=flags.num_cores)


if __name__ == "__main__":
    main()
