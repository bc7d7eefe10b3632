"""The benchmarks' manners: help, wrong options, and --json as every program promises it. Their figures are not judged here."""
import json
import os
import subprocess
import tempfile
import unittest

PROGRAMS = os.path.join(os.environ["WEFT_BUILD"], "bin")
ALL = ["accuracy", "bf16", "checkpoint", "control_flow", "footprint", "gemm_conv", "plugin_launch", "record", "start", "train_step"]


class Benchmarks(unittest.TestCase):
    def run_it(self, program, *options):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([os.path.join(PROGRAMS, program), *options], cwd=folder, capture_output=True, text=True, timeout=300)
            self.assertEqual([], os.listdir(folder), "something was left behind")
        return done

    def test_all_sources_have_a_program_here(self):
        folder = os.path.join(os.environ["WEFT_SOURCE"], "benchmarks")
        sources = [name for place in (folder, os.path.join(folder, "kernels")) for name in os.listdir(place)]
        self.assertEqual(ALL, sorted(os.path.splitext(name)[0] for name in sources if name.endswith((".c", ".cc"))))

    def test_help_goes_to_stdout_and_names_the_common_options(self):
        for program in ALL:
            for option in ("--help", "-h"):
                done = self.run_it(program, option)
                self.assertEqual((0, ""), (done.returncode, done.stderr), program)
                for word in (f"usage: {program} ", "--json", "--quick", "--help") if program != "train_step" else ("--json", "--quick", "--help"):
                    self.assertIn(word, done.stdout)

    def test_wrong_options_are_answered_with_the_usage(self):
        wrong = [(program, [option]) for program in ALL for option in ("--fast", "--threads", "fast")]
        wrong += [("checkpoint", ["--dir"]), ("gemm_conv", ["--threads", "0"]), ("gemm_conv", ["--threads", "two"]), ("gemm_conv", ["avx2", "avx512"]),
                  ("record", ["--peers-in"]), ("plugin_launch", ["--plugin"]), ("train_step", ["--only", "rnn"]), ("train_step", ["--only"]), ("train_step", ["--steps", "many"]),
                  ("train_step", ["--steps", "0"]), ("train_step", ["--threads", "1"]), ("start", ["--threads", "1"])]
        for program, options in wrong:
            with self.subTest(program=program, options=options):
                done = self.run_it(program, *options)
                self.assertEqual((2, ""), (done.returncode, done.stdout))
                if options != ["fast"] or program not in ("bf16", "gemm_conv"):
                    self.assertTrue(done.stderr.startswith("usage:"), done.stderr)
                else:
                    self.assertEqual("unknown instruction set 'fast'; expected auto, amx, avx512, avx2, portable or amx-model\n", done.stderr)

    def test_json_is_one_array_of_the_promised_fields(self):
        # The cheap ones; a machine with neighbours may call a run void (exit 1), the array is there all the same.
        for program, options in (("footprint", []), ("record", []), ("train_step", ["--only", "mlp"]), ("control_flow", ["--only", "scalars"])):
            with self.subTest(program=program):
                done = self.run_it(program, "--json", "--quick", *options)
                self.assertIn(done.returncode, (0, 1), done.stderr)
                rows = json.loads(done.stdout, parse_constant=lambda word: self.fail(f"{word} is no number of JSON"))
                self.assertTrue(rows)
                for row in rows:
                    self.assertEqual(["name", "value", "unit", "floor", "ratio", "peers", "machine"], list(row))
                    self.assertTrue(row["name"] and row["machine"], row)
                    self.assertIsInstance(row["value"], (int, float))
                    self.assertIsInstance(row["peers"], dict)
                    self.assertEqual(row["floor"] is None, row["ratio"] is None)
                    for number in (row["floor"], row["ratio"], *row["peers"].values()):
                        self.assertIsInstance(number, (int, float, type(None)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
