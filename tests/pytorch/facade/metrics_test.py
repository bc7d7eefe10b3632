"""Metrics and counters of real work, the profiler's server and scopes."""
import json
import re
import socket
import time
import unittest
import unittest.mock
import urllib.error
import urllib.request
import warnings

import support
import torch
import torch_xla
from torch_xla import _step, _weft
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
        began = time.monotonic()
        for _ in range(2):
            with xp.Trace("kept"):
                pass
        total, accumulator, samples = met.metric_data("kept")
        self.assertEqual((total, accumulator), (2, sum(value for _, value in samples)))
        self.assertTrue(began <= samples[0][0] <= samples[1][0] <= time.monotonic())

    def test_unknown_names(self):
        self.assertIsNone(met.counter_value("NoSuchCounter"))
        self.assertIsNone(met.metric_data("NoSuchMetric"))

    def test_clear(self):
        work()
        met.clear_all()
        with xp.Trace("forgotten"):
            pass
        met.clear_all()
        self.assertEqual((met.metric_names(), met.metric_data("forgotten"), met.executed_fallback_ops()), ([], None, []))
        # Counters of the whole process go on, and programs of earlier work may still be on their way to the disk cache.
        process = {"weft::" + name for name in json.loads(_weft.weft_metrics_json())["process"]}
        late, until = {"weft::disk_cache_published"}, time.monotonic() + 10
        self.assertLessEqual(set(met.counter_names()), process | late)
        while not set(met.counter_names()) <= process and time.monotonic() < until:
            time.sleep(0.05)
            met.clear_all()
        self.assertLessEqual(set(met.counter_names()), process)
        self.assertNotIn("Metric:", met.metrics_report())

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
        self.assertEqual(names, met.metric_names())
        self.assertEqual(re.findall(r"^Counter: (.*)$", new, re.MULTILINE), met.counter_names())
        self.assertNotIn("Accumulator", old)

    def test_the_library_writes_the_text(self):
        """The facade adds nothing to it and leaves nothing out; a time that is known shows how it is spelled."""
        met.clear_all()
        _weft.metrics.record("known", 1_032_778)
        self.assertIn("Metric: known\n  TotalSamples: 1\n  Accumulator: 001ms032.778us\n", met.metrics_report())
        self.assertIn("Metric: known\n  TotalSamples: 1\n  Counter: 001ms32.778us\n", torch_xla._XLAC._xla_metrics_report())
        self.assertEqual(met.metrics_report(), _weft.metrics.render(_weft.metrics.XLA))
        self.assertEqual(torch_xla._XLAC._xla_metrics_report(), _weft.metrics.render(_weft.metrics.XLA_2019))

    def test_each_number_is_the_librarys(self):
        work()
        now = json.loads(_weft.weft_metrics_json())
        self.assertEqual(met.counter_value("MarkStep"), now["counters"]["barriers"])
        self.assertEqual(met.metric_data("ExecuteTime")[:2],
                         tuple(now["samples"]["run_nanoseconds"][part] for part in ("count", "sum")))
        self.assertEqual(met.counter_value("weft::launches"), now["counters"]["launches"])

    def test_nothing_makes_the_context(self):
        program = ("import torch_xla, torch_xla.debug.metrics as met, torch_xla.debug.profiler as xp\n"
                   "from torch_xla import _weft\nmet.clear_all()\n"
                   "print(repr(met.metrics_report()), met.metric_names(), met.counter_names(), met.metric_data('x'))\n"
                   "with xp.Trace('early'): pass\n"
                   "print(_weft.context_made())\nimport torch\ntorch.ones(1, device='xla')\n"
                   "print(met.metric_data('early')[0])\n")
        self.assertEqual(support.check(self, support.run(program)), "'' [] [] None\nFalse\n1\n")


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

    def test_names_that_the_report_cannot_have(self):
        """Any name can be a scope's; spaces become underscores, and a name of the library's or an operation's a prefix."""
        met.clear_all()
        for name, label in (("build the graph", "build_the_graph"), ("MarkStep", "scope::MarkStep"),
                            ("launches", "scope::launches"), ("aten::relu", "scope::aten::relu"), ("", "_"),
                            ("n" * 300, "n" * 256)):
            with xp.Trace(name):
                pass
            self.assertEqual(met.metric_data(label)[0], 1, label)
        self.assertEqual(met.executed_fallback_ops(), [])

    def test_more_names_than_there_is_room_for(self):
        met.clear_all()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for at in range(4100):
                xp._spans.add(f"step {at}", 1)
        met.clear_all()
        self.assertEqual(len(caught), 1)
        self.assertIn("times of the scope 'step 4096' are not kept", str(caught[0].message))

    def test_step_ends_with_the_barrier(self):
        met.clear_all()
        before = _step.barriers()
        for step in range(2):
            with xp.StepTrace("train", step_num=step):
                torch.ones(3, device=DEVICE) + step
        self.assertEqual(_step.barriers() - before, 2)
        self.assertEqual(met.metric_data("train")[0], 2)
        with self.assertRaises(KeyError):
            with xp.StepTrace("train"):
                raise KeyError
        self.assertEqual(_step.barriers() - before, 2)
        self.assertEqual(met.metric_data("train")[0], 3)

    def test_server(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = xp.start_server(port)
        try:
            work()
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
