"""PyTorch's answers without PyTorch: the samples that opinfo.py kept in fixture.npz, run and judged as it does.

How the fixture is made (PyTorch 2.15 in a virtual environment, about ten minutes):
    WEFT_LIB=build/release/lib/libweft.so.1 python tests/conformance/opinfo.py --fixture tests/conformance/fixture.npz
"""
import collections
import os
import re
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))
sys.path.insert(0, HERE)
import numpy as np  # noqa: E402
import tape  # noqa: E402
import weft  # noqa: E402

FIXTURE = os.path.join(HERE, "fixture.npz")


class Replay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        weft.load()
        cls.ctx, cls.cases = weft.Context(), tape.load(FIXTURE)

    def test_every_sample_is_what_pytorch_computes(self):
        faults = collections.defaultdict(list)
        for case in self.cases:
            try:
                found = tape.run(self.ctx, case)
            except weft.WeftError as error:
                found = [("refused", str(error))]
            for where, text in found:
                faults[case.operator].append(f"{case.name} {where}: {text}")
        for operator, texts in faults.items():
            print(f"{operator}: {len(texts)} differ\n  " + "\n  ".join(texts[:2]))
        print(f"{len(self.cases)} samples of {len({c.operator for c in self.cases})} operators, {sum(map(len, faults.values()))} differences")
        self.assertEqual([], sorted(faults))

    def test_it_holds_what_it_should(self):
        self.assertLess(os.path.getsize(FIXTURE), 5_000_000)
        self.assertGreater(len({c.operator for c in self.cases}), 660)
        self.assertGreater(sum(bool(c.gradients) for c in self.cases), 1000)
        self.assertGreater(sum(bool(c.seconds) for c in self.cases), 200)
        seen = {dtype for c in self.cases for dtype, _ in c.tape.inputs}
        self.assertGreaterEqual(seen, {"f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "ui8", "i1", "complex<f32>", "complex<f64>"})

    def test_the_page_counts_what_it_lists(self):
        with open(os.path.join(HERE, "..", "..", "docs", "conformance.md"), encoding="utf-8") as page:
            table = page.read().partition("<!-- table -->")[2].partition("<!-- end of table -->")[0]
        count, samples, gradients, equal, refused = map(int, re.search(
            r"(\d+) operators of \d+, (\d+) samples, (\d+) of them with gradients, \d+ with gradients of second order, (\d+) equal [^,]+, (\d+) refused",
            table).groups())
        operators, reasons = ({row.split(" | ")[0].strip("| "): row.strip("|").split("|")[1:] for row in part.splitlines() if row.startswith("| ")}
                              for part in table.split("| reason |"))
        del operators["operator"]
        listed = collections.Counter()
        for name, (ran, good, why) in operators.items():
            found = re.findall(r"(\d+) ([^,]+)", why)
            self.assertEqual(int(ran), int(good) + sum(int(n) for n, _ in found), name)
            listed.update({reason.strip(): int(n) for n, reason in found})
        self.assertEqual((count, samples, equal, refused), (len(operators), sum(int(row[0]) for row in operators.values()),
                                                            sum(int(row[1]) for row in operators.values()), sum(listed.values())))
        self.assertEqual({name: int(row[0]) for name, row in reasons.items()}, dict(listed))
        self.assertGreater(gradients, 20000)
        self.assertLessEqual({c.operator for c in self.cases}, set(operators))

    def test_a_wrong_element_a_wrong_shape_and_a_wrong_slope_are_seen(self):
        case = next(c for c in self.cases if c.operator == "exp" and c.gradients and c.expected[0][1].size > 1)
        dtype, right, allowed = case.expected[0]
        slopes = case.gradients
        try:
            wrong = right.copy()
            wrong.flat[1] += 3 * allowed.flat[1]
            case.expected = [(dtype, wrong, allowed)]
            self.assertIn("1 of ", str(tape.run(self.ctx, case)))
            case.expected = [(dtype, right.ravel()[:1], allowed)]
            self.assertIn("shape", str(tape.run(self.ctx, case)))
            case.expected = [("f64" if dtype != "f64" else "f32", right, allowed)]
            self.assertIn("dtype", str(tape.run(self.ctx, case)))
            first = np.arange(right.size).reshape(right.shape) == 0
            case.expected = [(dtype, np.where(first, np.nan, right), allowed)]
            self.assertIn("1 of ", str(tape.run(self.ctx, case)))
            case.expected = [(dtype, np.where(first, np.inf, right), np.where(first, 0, allowed))]
            self.assertIn("1 of ", str(tape.run(self.ctx, case)))
            case.expected = [(dtype, right, allowed)]
            output, cotangent, [(i, (slope_dtype, slope, slope_allowed)), *_] = slopes[0]
            case.gradients = [(output, cotangent, [(i, (slope_dtype, -slope, slope_allowed))])]
            self.assertIn("gradient of input", str(tape.run(self.ctx, case)))
        finally:
            case.expected, case.gradients = [(dtype, right, allowed)], slopes


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
