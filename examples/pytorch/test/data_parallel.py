"""Training as programs of 2019 wrote it: one model on several devices of one process, each with its loop in a thread."""
import sys
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.data_parallel as dp
import torch_xla.test.test_utils as test_utils


def train(flags, make_model, train_loader, test_loader):
    """Trains for the epochs that the flags say, and gives the last accuracy in percent."""
    torch.manual_seed(42)
    devices = xm.get_xla_supported_devices(max_devices=flags.num_cores) if flags.num_cores != 0 else []
    model_parallel = dp.DataParallel(make_model, device_ids=devices)
    writer = test_utils.get_summary_writer(flags.logdir)
    loss_fn = torch.nn.NLLLoss()

    def train_loop_fn(model, loader, device, context):
        optimizer = context.getattr_or("optimizer", lambda: torch.optim.SGD(model.parameters(), lr=flags.lr * max(1, len(devices)),
                                                                            momentum=flags.momentum))
        tracker = xm.RateTracker()
        model.train()
        for x, (data, target) in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(data), target)
            loss.backward()
            xm.optimizer_step(optimizer)
            tracker.add(flags.batch_size)
            if x % flags.log_steps == 0:
                test_utils.print_training_update(device, x, loss.item(), tracker.rate(), tracker.global_rate(),
                                                 summary_writer=writer)

    def test_loop_fn(model, loader, device, context):
        total_samples = correct = 0
        model.eval()
        with torch.no_grad():
            for _, (data, target) in loader:
                pred = model(data).max(1, keepdim=True)[1]
                correct += pred.eq(target.view_as(pred)).sum().item()
                total_samples += data.size()[0]
        accuracy = 100.0 * correct / total_samples
        test_utils.print_test_update(device, accuracy)
        return accuracy

    accuracy = 0.0
    for epoch in range(1, flags.num_epochs + 1):
        began = time.time()
        model_parallel(train_loop_fn, train_loader)
        accuracies = model_parallel(test_loop_fn, test_loader)
        accuracy = sum(accuracies) / len(accuracies)
        print(f"Epoch: {epoch}, Mean Accuracy: {accuracy:.2f}%, {time.time() - began:.1f} s", flush=True)
        test_utils.write_to_summary(writer, epoch, {"Accuracy/test": accuracy}, write_xla_metrics=bool(devices))
        if flags.metrics_debug:
            print(torch_xla._XLAC._xla_metrics_report(), flush=True)
    test_utils.close_summary_writer(writer)
    sys.stdout.flush()
    return accuracy
