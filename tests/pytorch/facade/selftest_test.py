"""python -m torch_xla.selftest: its options, its JSON and its exit codes. tests/pytorch/wheel runs all of its checks."""
import contextlib
import io
import json
import unittest
from unittest import mock

import support
from torch_xla import selftest


def _main(*arguments, checks=selftest.CHECKS):
    """(exit code, output, error output)"""
    out, err = io.StringIO(), io.StringIO()
    with mock.patch.object(selftest, "CHECKS", checks), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = selftest.main(arguments)
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()


def wrong_on_purpose(device):
    raise ValueError("3 is not 4")


class Selftest(unittest.TestCase):

    def test_a_check_that_fails_makes_it_fail_and_the_others_still_run(self):
        code, out, err = _main(checks=(wrong_on_purpose, selftest.report))
        self.assertEqual((code, err), (1, ""))
        self.assertRegex(out, r"(?s)1/2 wrong on purpose +\d+\.\d s  FAILED\n.*ValueError: 3 is not 4\n.*"
                              r"2/2 report +\d+\.\d s  ok\n.*1 of 2 are right\n$")

    def test_json(self):
        code, out, err = _main("--json", checks=(wrong_on_purpose, selftest.products_and_reductions))
        self.assertEqual(code, 1)
        self.assertIn("1 of 2 are right", err)
        found = json.loads(out)
        self.assertEqual((found["torch_xla"], found["devices"], found["right"], found["of"]), ("2.9.0+weft", ["CPU:0"], 1, 2))
        self.assertEqual([check["ok"] for check in found["checks"]], [False, True])
        self.assertIn("3 is not 4", found["checks"][0]["error"])
        self.assertEqual(found["computed_on_host"], [])
        self.assertEqual(_main("--json", checks=(selftest.report,))[0], 0)

    def test_the_command_line(self):
        code, out, _ = _main("--help")
        self.assertEqual(code, 0)
        self.assertIn("It\nends with 0 where all is right", out)
        self.assertEqual(_main("--list")[1].splitlines()[-1], "report")
        code, _, err = _main("--fast")
        self.assertEqual(code, 2)
        self.assertIn("unrecognized arguments: --fast", err)

    def test_a_library_that_is_not_there_ends_it(self):
        program = "import runpy\nrunpy.run_module('torch_xla.selftest', run_name='__main__')"
        done = support.run(program, WEFT_LIBRARY="/nowhere/libweft.so.1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the library of Weft was looked for at /nowhere/libweft.so.1", done.stderr)


if __name__ == "__main__":
    unittest.main()
