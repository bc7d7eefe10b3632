"""The accelerator under AddressSanitizer and UBSan: the package's tests, and calls that go wrong. Part of `scripts/test --full`."""

import os
import subprocess
import sys
import tempfile
import unittest

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, HOME)

import accelerator_test  # noqa: E402
import support  # noqa: E402

# All but the count of the process's memory, of which the sanitizer keeps what was given back.
LIVES = [
    "Life.test_results_of_several_and_errors_leak_nothing",
    "Life.test_four_threads_share_the_context",
    "Life.test_finalizers_on_another_thread",
    "Life.test_exit_with_everything_alive_is_clean",
]


def compiler_file(name):
    return subprocess.run(["cc", "-print-file-name=" + name], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


class Sanitized(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(work.cleanup)
        made = os.path.join(work.name, "_accelerator.abi3.so")
        command = [sys.executable, support.WHEEL, "--sanitize", "--accelerator", made]
        subprocess.run(command, stdout=subprocess.PIPE, check=True)
        cls.env = {
            **os.environ,
            "PYTHONPATH": support.PACKAGE,
            "LIBWEFT_ACCELERATOR": made,
            "LIBWEFT_PATH": os.environ["LIBWEFT_PATH"],
            "PYTHONMALLOC": "malloc",
            # The sanitizer has to be there before Python, and C++'s library with it, as the sanitizer looks for its throw once.
            "LD_PRELOAD": " ".join(map(compiler_file, ("libasan.so", "libubsan.so", "libstdc++.so"))),
            "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0:strict_string_checks=1",
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        }

    def run_one(self, *command):
        done = subprocess.run(
            [sys.executable, *command],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=1500,
        )
        self.assertEqual(0, done.returncode, done.stdout[-6000:])
        return done.stdout

    def test_tests_of_the_package(self):
        for name, chosen in (
            ("tensor_test.py", []),
            ("functions_test.py", []),
            ("operations_test.py", []),
            ("calls_test.py", ["Vectors", "Steps", "Refusals", *LIVES]),
        ):
            with self.subTest(name):
                self.run_one(os.path.join(HOME, name), *chosen)

    def test_calls_that_go_wrong(self):
        self.assertGreater(len(self.run_one("-c", accelerator_test.SAME).splitlines()), 1000)

    def test_threads(self):
        self.assertEqual("True None\n", self.run_one("-c", accelerator_test.THREADS))


if __name__ == "__main__":
    unittest.main()
