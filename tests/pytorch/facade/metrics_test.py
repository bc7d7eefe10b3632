"""Metrics and counters of real work, the profiler's server and scopes."""
import re
import socket
import time
import unittest
import unittest.mock
import urllib.error
import urllib.request

import support  # noqa: F401
import torch
import torch_xla
from torch_xla.core import xla_model as xm
from torch_xla.debug import metrics as met
from torch_xla.debug import profiler as xp

DEVICE = torch.device("xla", 0)


def work():
    result = torch.ones(8, 8, device=DEVICE) @ torch.ones(8, 8, device=DEVICE)
    torch_xla.sync(wait=True)
    return result.cpu()


class Metrics(unittest.TestCase):

    def test_what_work_leaves(self):
        met.clear_all()
        torch.rand(3, 5, 7, device=DEVICE).cos().cpu()  # A program that no other test has: it has to be made ready.
        work()
        self.assertEqual(met.counter_value("MarkStep"), 1)
        self.assertIn("MarkStep", met.counter_names())
        self.assertIn("ExecuteTime", met.metric_names())
        self.assertIn("CompileTime", met.metric_names())
        total, accumulator, samples = met.metric_data("ExecuteTime")
        self.assertGreaterEqual(total, 1)
        self.assertEqual(samples, [])  # The library keeps percentiles.
        self.assertGreater(accumulator, 0)
        with xp.Trace("kept"):
            pass
        total, accumulator, samples = met.metric_data("kept")
        self.assertEqual((total, accumulator), (1, samples[0][1]))

    def test_unknown_names(self):
        self.assertIsNone(met.counter_value("NoSuchCounter"))
        self.assertIsNone(met.metric_data("NoSuchMetric"))

    def test_clear(self):
        work()
        met.clear_all()
        self.assertEqual((met.counter_names(), met.metric_names(), met.metrics_report()), ([], [], ""))

    def test_what_the_host_computed_is_counted(self):
        """nonzero has a shape that depends on values; a reader of the report looks for it as aten::nonzero."""
        met.clear_all()
        self.assertEqual(torch.tensor([0, 3, 0, 4], device=DEVICE).nonzero().tolist(), [[1], [3]])
        if met.executed_fallback_ops():
            self.assertEqual(met.executed_fallback_ops(), ["aten::nonzero"])
            self.assertEqual(met.counter_value("aten::nonzero"), 1)
            self.assertIn("Counter: aten::nonzero\n  Value: 1\n", met.metrics_report())
        met.clear_all()
        torch.linalg.eigvals(torch.eye(2, device=DEVICE))
        self.assertTrue(any(name.startswith("aten::") for name in met.executed_fallback_ops()), met.counter_names())
        self.assertTrue(set(met.executed_fallback_ops()) <= set(met.counter_names()))

    def test_the_two_formats(self):
        work()
        old, new = torch_xla._XLAC._xla_metrics_report(), met.metrics_report()
        for text, title in ((old, "Counter"), (new, "Accumulator")):
            self.assertRegex(text, r"Metric: ExecuteTime\n  TotalSamples: \d+\n  " + title + r": [\dhms.u]+\n")
            self.assertRegex(text, r"Percentiles: 1%=[^;]+; 5%=.*; 99%=")
            self.assertRegex(text, r"Counter: MarkStep\n  Value: \d+\n")
        names = re.findall(r"^Metric: (.*)$", new, re.MULTILINE)
        self.assertEqual(names, sorted(names))
        self.assertNotIn("Accumulator", old)


class Profiler(unittest.TestCase):

    def test_scope_is_a_metric_and_a_range(self):
        met.clear_all()
        with torch.profiler.profile() as profile:
            for _ in range(3):
                with xp.Trace("forward"):
                    time.sleep(0.01)
        total, accumulator, _ = met.metric_data("forward")
        self.assertEqual(total, 3)
        self.assertGreaterEqual(accumulator, 30_000_000)
        self.assertIn("Metric: forward\n  TotalSamples: 3\n", met.metrics_report())
        self.assertIn("forward", [event.key for event in profile.key_averages()])

    def test_step_ends_with_the_barrier(self):
        met.clear_all()
        for step in range(2):
            with xp.StepTrace("train", step_num=step):
                pass
        self.assertEqual(met.counter_value("MarkStep"), 2)
        self.assertEqual(met.metric_data("train")[0], 2)
        with self.assertRaises(KeyError):
            with xp.StepTrace("train"):
                raise KeyError
        self.assertEqual(met.counter_value("MarkStep"), 2)
        self.assertEqual(met.metric_data("train")[0], 3)

    def test_server(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = xp.start_server(port)
        try:
            xm.mark_step()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
                self.assertIn("Counter: MarkStep", answer.read().decode())
            with self.assertRaises(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/else", timeout=20)
            with self.assertRaises(OSError):
                xp.start_server(port)
        finally:
            server.stop()
        with self.assertRaises(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20)

    def test_server_on_the_master_alone(self):
        with unittest.mock.patch.object(xm, "get_local_ordinal", lambda: 1):
            self.assertIsNone(xp.start_server(0))
            server = xp.start_server(0, only_on_master=False)
            self.assertGreater(server.port, 0)
            server.stop()


if __name__ == "__main__":
    unittest.main()
