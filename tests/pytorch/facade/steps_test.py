"""The barrier and what hangs on it: evaluation, the optimizer's step, closures, the metrics file, the step log."""
import os
import tempfile
import threading
import time
import unittest
from unittest import mock

import support
import torch
import torch_xla
from torch_xla import _step, _weft
from torch_xla.core import xla_model as xm
from torch_xla.debug import metrics as met

DEVICE = torch.device("xla", 0)


def launches():
    return met.counter_value("weft::launches") or 0


class Barriers(unittest.TestCase):

    def test_evaluates_what_was_recorded(self):
        for barrier in (torch_xla.sync, xm.mark_step):
            barrier()
            recorded = torch.ones(3, device=DEVICE) * 2 + 1
            before = launches()
            barrier(wait=True)
            self.assertEqual(launches(), before + 1)
            self.assertEqual(recorded.tolist(), [3, 3, 3])
            self.assertEqual(launches(), before + 1)

    def test_counts(self):
        before = _step.barriers()
        torch_xla.sync()
        xm.mark_step()
        self.assertEqual(_step.barriers() - before, 2)

    def test_wait_is_passed_on(self):
        with mock.patch.object(_weft, "sync") as sync:
            torch_xla.sync()
            torch_xla.sync(wait=True)
            with mock.patch.dict(os.environ, XLA_SYNC_WAIT="1"):
                torch_xla.sync()
            with mock.patch.dict(os.environ, XLA_SYNC_WAIT="0"):
                torch_xla.sync()
        self.assertEqual([call.args for call in sync.call_args_list], [(0, False), (0, True), (0, True), (0, False)])

    def test_wait_device_ops(self):
        result = torch.ones(200, 200, device=DEVICE) @ torch.ones(200, 200, device=DEVICE)
        torch_xla.sync()
        xm.wait_device_ops()
        xm.wait_device_ops([DEVICE])
        xm.wait_device_ops(["xla:0"])
        self.assertEqual(result[0, 0].item(), 200)
        with mock.patch.object(_weft, "wait") as wait:
            xm.wait_device_ops(["xla:0"])
        wait.assert_called_once_with(0)


class OptimizerSteps(unittest.TestCase):

    def _step(self, **named):
        weight = torch.nn.Parameter(torch.tensor([1.0, 2.0], device=DEVICE))
        optimizer = torch.optim.SGD([weight], lr=0.5)
        (weight * weight).sum().backward()
        before = _step.barriers()
        result = xm.optimizer_step(optimizer, **named)
        return weight.detach().cpu().tolist(), result, _step.barriers() - before

    def test_steps(self):
        self.assertEqual(self._step(), ([0.0, 0.0], None, 0))
        self.assertEqual(self._step(barrier=True), ([0.0, 0.0], None, 1))
        values, result, _ = self._step(optimizer_args={"closure": lambda: 42.0})
        self.assertEqual((values, result), ([0.0, 0.0], 42.0))

    def test_gradients(self):
        used = torch.nn.Parameter(torch.ones(2, device=DEVICE))
        unused = torch.nn.Parameter(torch.ones(2, device=DEVICE))
        optimizer = torch.optim.SGD([{"params": [used]}, {"params": [unused], "lr": 1.0}], lr=0.1)
        (used * 3).sum().backward()
        gradients = xm._fetch_gradients(optimizer)
        self.assertEqual(len(gradients), 1)
        self.assertIs(gradients[0], used.grad)
        xm.reduce_gradients(optimizer)
        self.assertEqual(used.grad.tolist(), [3, 3])
        with mock.patch.dict(os.environ, XLA_ALWAYS_ALLREDUCE="1"), mock.patch.object(xm, "all_reduce") as reduce:
            xm.reduce_gradients(optimizer)
        self.assertEqual(reduce.call_args.kwargs["scale"], 1.0)
        with self.assertRaisesRegex(ValueError, "groups"):
            xm.reduce_gradients(optimizer, groups=[[0, 1]])


class Closures(unittest.TestCase):

    def test_run_once_after_the_barrier_in_order(self):
        ran = []
        xm.add_step_closure(ran.append, args=(1,))
        xm.add_step_closure(lambda tensor: ran.append(tensor.item()), args=(torch.ones((), device=DEVICE) * 5,))
        self.assertEqual(ran, [])
        torch_xla.sync()
        self.assertEqual(ran, [1, 5.0])
        torch_xla.sync()
        self.assertEqual(ran, [1, 5.0])

    def test_belong_to_the_thread_that_added_them(self):
        ran = []
        xm.add_step_closure(ran.append, args=("main",))
        thread = threading.Thread(target=lambda: (xm.add_step_closure(ran.append, args=("other",)), torch_xla.sync()))
        thread.start()
        thread.join()
        self.assertEqual(ran, ["other"])
        torch_xla.sync()
        self.assertEqual(ran, ["other", "main"])

    def test_exception(self):
        xm.add_step_closure(lambda: 1 // 0)
        with self.assertRaises(ZeroDivisionError):
            torch_xla.sync()
        torch_xla.sync()

    def test_aside(self):
        ran = []

        def slow():
            time.sleep(0.1)
            ran.append(threading.current_thread().name)

        xm.add_step_closure(slow, run_async=True)
        xm.add_step_closure(ran.append, args=("second",), run_async=True)
        begin = time.monotonic()
        torch_xla.sync()
        self.assertLess(time.monotonic() - begin, 0.09)
        torch_xla._step.wait_closures()
        self.assertEqual(ran, ["torch_xla step closures", "second"])

    def test_exception_aside_is_raised_by_the_next_barrier(self):
        xm.add_step_closure(lambda: 1 // 0, run_async=True)
        torch_xla.sync()
        torch_xla._step._aside.join()
        with self.assertRaises(ZeroDivisionError):
            torch_xla.sync()
        torch_xla.sync()

    def test_aside_runs_before_the_process_ends(self):
        program = ("import time, torch_xla, torch_xla.core.xla_model as xm\n"
                   "xm.add_step_closure(lambda: (time.sleep(0.3), print('ran', flush=True)), run_async=True)\n"
                   "torch_xla.sync()\n")
        self.assertEqual(support.check(self, support.run(program)), "ran\n")


class Files(unittest.TestCase):

    def test_metrics_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "metrics")
            with mock.patch.dict(os.environ, XLA_METRICS_FILE=path):
                torch_xla.sync()
                torch_xla.sync()
            torch_xla.sync()
            with open(path, encoding="utf-8") as file:
                text = file.read()
        records = text.split("[MetricsData; step=")
        self.assertEqual(records[0], "")
        self.assertEqual(len(records), 3)
        self.assertEqual(int(records[2].split("]")[0]), int(records[1].split("]")[0]) + 1)
        self.assertIn("Counter: MarkStep\n", records[1])
        with mock.patch.dict(os.environ, XLA_METRICS_FILE="STDOUT"):
            self.assertIn("[MetricsData; step=", support.printed(torch_xla.sync))

    def test_step_log(self):
        program = "import torch_xla\ntorch_xla.sync()\ntorch_xla.sync()\n"
        done = support.run(program, XLA_EMIT_STEPLOG="1")
        support.check(self, done)
        self.assertRegex(done.stderr, r"mark_step time=[\d.]+ step=1\n.*mark_step time=[\d.]+ step=2\n")


class Rates(unittest.TestCase):

    def test_rate_tracker(self):
        now = [100.0]
        with mock.patch("time.time", lambda: now[0]):
            tracker = xm.RateTracker()
            self.assertEqual(tracker.global_rate(), 0.0)
            self.assertEqual(tracker.rate(), 0.0)
            tracker.add(10)
            now[0] = 102.0
            self.assertEqual(tracker.rate(), 5.0)
            tracker.add(20)
            now[0] = 104.0
            self.assertAlmostEqual(tracker.rate(), 0.6 * 10 + 0.4 * 5)
            self.assertEqual(tracker.global_rate(), 30 / 4)
            unsmoothed = xm.RateTracker(smooth_factor=0.0)
            unsmoothed.add(3)
            now[0] = 105.0
            self.assertEqual(unsmoothed.rate(), 3.0)
        with mock.patch.dict(os.environ, RATE_TRACKER_SMOOTHING="0"):
            self.assertEqual(xm.RateTracker()._smooth_factor, 0.0)


if __name__ == "__main__":
    unittest.main()
