"""torch_xla.test.test_utils: how training scripts print their progress, and write it for TensorBoard."""
import datetime
import time

from .. import _later
from ..core import xla_model as xm
from ..debug import metrics as met


def now(format="%H:%M:%S"):
    return datetime.datetime.now().strftime(format)


def get_summary_writer(logdir):
    """A writer for TensorBoard into the folder; None without one."""
    if not logdir:
        return None
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(log_dir=logdir)
    write_to_summary(writer, 0, dict_to_write={"TensorboardStartTimestamp": time.time()})
    return writer


def write_to_summary(summary_writer, global_step=None, dict_to_write=None, write_xla_metrics=False):
    """Writes numbers by name; with `write_xla_metrics` also all counters, and each metric's samples and sum."""
    if summary_writer is None:
        return
    values = dict(dict_to_write or {})
    if write_xla_metrics:
        counters = met.counters()
        values.update(counters)
        values["aten_ops_sum"] = sum(value for name, value in counters.items() if name.startswith("aten::"))
        for name, (samples, total) in met.gathered().items():
            values[f"{name}_TotalSamples"] = samples
            values[f"{name}_Accumulator"] = total
    for name, value in values.items():
        summary_writer.add_scalar(name, value, global_step)


def close_summary_writer(summary_writer):
    if summary_writer is not None:
        summary_writer.flush()
        summary_writer.close()


def _print_line(kind, device, **parts):
    words = [kind, f"Device={device}/{xm.get_ordinal()}"]
    words += [f"{name}={value}" for name, value in parts.items() if value is not None]
    print("|", " ".join(words + [f"Time={now()}"]), flush=True)


def print_training_update(device, step, loss, rate, global_rate, epoch=None, summary_writer=None):
    """A line with loss and examples per second, lately and since the beginning; for the writer, the two rates."""
    _print_line("Training", device, Epoch=epoch, Step=step, Loss=f"{loss:.5f}", Rate=f"{rate:.2f}",
                GlobalRate=f"{global_rate:.2f}")
    write_to_summary(summary_writer, step, {"examples/sec": rate, "average_examples/sec": global_rate})


def print_test_update(device, accuracy, epoch=None, step=None):
    """A line with the accuracy so far."""
    _print_line("Test", device, Step=step, Epoch=epoch, Accuracy=None if accuracy is None else f"{accuracy:.2f}")


def __getattr__(name):
    raise _later.missing(__name__, name)
