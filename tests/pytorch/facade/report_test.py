"""The metrics report's text, against the documents' own examples and values worked out by hand."""
import os
import unittest
from unittest import mock

import support  # noqa: F401
from torch_xla.debug import report


class Times(unittest.TestCase):

    def test_documents_of_2019(self):
        """The example of the documents, from nanoseconds."""
        minutes, seconds, ms = 60_000_000_000, 1_000_000_000, 1_000_000
        rows = [(6 * minutes + 9 * seconds + 401 * ms + 746_001, "06m09s401ms746.001us"),
                (778 * ms + 572_062, "778ms572.062us"),
                (ms + 32_778, "001ms32.778us"), (2 * ms + 921_063, "002ms921.063us"),
                (21 * seconds + 102 * ms + 853_173, "21s102ms853.173us")]
        for value, text in rows:
            self.assertEqual(report.format_time(value, 3), text)

    def test_parts_are_cut_not_rounded(self):
        self.assertEqual(report.format_time(1_600_000), "001ms600.000us")
        self.assertEqual(report.format_time(1_600_000_000), "01s600ms000.000us")
        self.assertEqual(report.format_time(59_700_000_000), "59s700ms000.000us")

    def test_from_nothing_to_days(self):
        self.assertEqual(report.format_time(0), "000.000us")
        self.assertEqual(report.format_time(1), "000.001us")
        self.assertEqual(report.format_time(32_778), "032.778us")
        self.assertEqual(report.format_time(999_999), "999.999us")
        self.assertEqual(report.format_time(90_061_000_000_000), "01d01h01m01s000ms000.000us")

    def test_bytes(self):
        rows = [(0, "0.00B"), (1023, "1023.00B"), (1024, "1.00KB"), (1536, "1.50KB"), (3 << 20, "3.00MB"), (1 << 30, "1.00GB"),
                (1 << 60, "1024.00PB")]
        for value, text in rows:
            self.assertEqual(report.format_bytes(value), text)


class Reports(unittest.TestCase):

    def test_whole_text(self):
        samples = [(float(second), 1_000_000 * (second + 1)) for second in range(5)]
        metrics = {"ExecuteTime": (7, 21_000_000, samples, "time"), "InboundData": (1, 2048, [(3.0, 2048)], "bytes")}
        expected = ("Metric: ExecuteTime\n"
                    "  TotalSamples: 7\n"
                    "  Counter: 021ms0.000us\n"
                    "  ValueRate: 003ms750.000us / second\n"
                    "  Rate: 1.25 / second\n"
                    "  Percentiles: 1%=001ms0.000us; 5%=001ms0.000us; 10%=001ms0.000us; 20%=002ms0.000us; 50%=003ms0.000us; "
                    "80%=005ms0.000us; 90%=005ms0.000us; 95%=005ms0.000us; 99%=005ms0.000us\n"
                    "Metric: InboundData\n"
                    "  TotalSamples: 1\n"
                    "  Counter: 2.00KB\n"
                    "  Percentiles: 1%=2.00KB; 5%=2.00KB; 10%=2.00KB; 20%=2.00KB; 50%=2.00KB; 80%=2.00KB; 90%=2.00KB; "
                    "95%=2.00KB; 99%=2.00KB\n"
                    "Counter: MarkStep\n"
                    "  Value: 3\n"
                    "Counter: aten::nonzero\n"
                    "  Value: 33\n")
        counters = {"aten::nonzero": 33, "never": 0, "MarkStep": 3}
        self.assertEqual(report.render(metrics, counters, report.FORMAT_2019), expected)
        later = report.render(metrics, counters, report.FORMAT_2_9)
        self.assertIn("  Accumulator: 021ms000.000us\n", later)
        self.assertNotIn("  Counter: 0", later)

    def test_nothing(self):
        self.assertEqual(report.render({}, {"never": 0}, report.FORMAT_2_9), "")

    def test_rate_has_six_digits(self):
        metrics = {"m": (2, 3.0, [(0.0, 1.0), (4.703658, 2.0)], "number")}
        self.assertIn("  Rate: 0.425201 / second\n", report.render(metrics, {}, report.FORMAT_2_9))

    def test_variables(self):
        metrics = {"m": (4, 10, [(float(at), at) for at in range(4)], "number")}
        with mock.patch.dict(os.environ, XLA_METRICS_PERCENTILES="0.25:0.5"):
            self.assertIn("  Percentiles: 25%=1.00; 50%=2.00\n", report.render(metrics, {}, report.FORMAT_2_9))
        with mock.patch.dict(os.environ, XLA_METRICS_PERCENTILES="0.25:1.5"):
            with self.assertRaisesRegex(ValueError, "XLA_METRICS_PERCENTILES: '0.25:1.5' has to be fractions of 1"):
                report.render(metrics, {}, report.FORMAT_2_9)
        with mock.patch.dict(os.environ, XLA_METRICS_SAMPLES="7"):
            self.assertEqual(report.kept_samples(), 7)


if __name__ == "__main__":
    unittest.main()
