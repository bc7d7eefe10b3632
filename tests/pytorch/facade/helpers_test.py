"""The small helpers of training scripts: sample data, variables, progress lines, TensorBoard's numbers."""
import os
import unittest
from unittest import mock

import support
import torch
import torch_xla
from torch_xla.test import test_utils
from torch_xla.utils import utils as xu


class Samples(unittest.TestCase):

    def test_generator(self):
        data = (torch.zeros(2), torch.ones(2))
        generator = xu.SampleGenerator(data=data, sample_count=3)
        self.assertEqual(len(generator), 3)
        for _ in range(2):
            got = list(generator)
            self.assertEqual(len(got), 3)
            self.assertTrue(all(one is data for one in got))
        self.assertIs(next(generator), data)
        self.assertIs(generator.next(), data)

    def test_getenv_as(self):
        with mock.patch.dict(os.environ, A="3", B="false", C="True", D=""):
            self.assertEqual((xu.getenv_as("A", int), xu.getenv_as("A", float), xu.getenv_as("A", str)), (3, 3.0, "3"))
            self.assertEqual([xu.getenv_as(name, bool) for name in "BCD"], [False, True, False])
            self.assertEqual((xu.getenv_as("NO_SUCH", int), xu.getenv_as("NO_SUCH", int, 5)), (None, 5))


class Writer:

    def __init__(self):
        self.written, self.calls = {}, []

    def add_scalar(self, name, value, step):
        self.written[name] = (value, step)

    def flush(self):
        self.calls.append("flush")

    def close(self):
        self.calls.append("close")


class Progress(unittest.TestCase):

    def test_lines(self):
        with mock.patch.object(test_utils, "now", lambda: "12:00:00"):
            line = support.printed(test_utils.print_training_update, "xla:0", 20, 0.25, 1234.567, 1000.0, 3)
            self.assertEqual(line, "| Training Device=xla:0/0 Epoch=3 Step=20 Loss=0.25000 Rate=1234.57 GlobalRate=1000.00 "
                                   "Time=12:00:00\n")
            line = support.printed(test_utils.print_training_update, "xla:0", 0, 1.0, 0.0, 0.0)
            self.assertEqual(line, "| Training Device=xla:0/0 Step=0 Loss=1.00000 Rate=0.00 GlobalRate=0.00 Time=12:00:00\n")
            line = support.printed(test_utils.print_test_update, "xla:0", 98.765, epoch=2, step=7)
            self.assertEqual(line, "| Test Device=xla:0/0 Step=7 Epoch=2 Accuracy=98.77 Time=12:00:00\n")
        self.assertRegex(test_utils.now(), r"^\d\d:\d\d:\d\d$")
        self.assertRegex(test_utils.now("%Y"), r"^\d{4}$")

    def test_writer(self):
        writer = Writer()
        with mock.patch("builtins.print"):
            test_utils.print_training_update("xla:0", 5, 1.0, 2.0, 3.0, summary_writer=writer)
        self.assertEqual(writer.written, {"examples/sec": (2.0, 5), "average_examples/sec": (3.0, 5)})
        kept = torch.ones(3, device="xla")
        torch_xla.sync()
        del kept
        test_utils.write_to_summary(writer, 9, {"loss": 0.5}, write_xla_metrics=True)
        self.assertEqual(writer.written["loss"], (0.5, 9))
        self.assertGreaterEqual(writer.written["MarkStep"][0], 1)
        self.assertIn("aten_ops_sum", writer.written)
        test_utils.close_summary_writer(writer)
        self.assertEqual(writer.calls, ["flush", "close"])
        test_utils.write_to_summary(None, 1, {"a": 1})
        test_utils.close_summary_writer(None)
        self.assertIsNone(test_utils.get_summary_writer(None))
        with mock.patch.dict("sys.modules", tensorboardX=mock.Mock(SummaryWriter=lambda log_dir: Writer())):
            self.assertIn("TensorboardStartTimestamp", test_utils.get_summary_writer("folder").written)


if __name__ == "__main__":
    unittest.main()
