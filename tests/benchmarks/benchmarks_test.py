"""The benchmarks' manners: help, wrong options, and --json as every program promises it. Their figures are not judged here."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = os.path.join(os.environ["WEFT_BUILD"], "bin")
ALL = ["accuracy", "attention", "bf16", "checkpoint", "collectives", "control_flow", "conv_layers", "counts", "custom_call", "footprint", "gemm_conv", "places", "plugin_launch", "record", "seeing_inside", "start", "train_step",
       "workloads"]


def write(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


class Benchmarks(unittest.TestCase):
    def run_it(self, program, *options):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([os.path.join(PROGRAMS, program), *options], cwd=folder, capture_output=True, text=True, timeout=300)
            self.assertEqual([], os.listdir(folder), "something was left behind")
        return done

    def test_all_sources_have_a_program_here(self):
        folder = os.path.join(os.environ["WEFT_SOURCE"], "benchmarks")
        sources = [name for place in (folder, os.path.join(folder, "kernels")) for name in os.listdir(place)] + ["workloads.cc"]  # of several files
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
        wrong += [("attention", ["--only"]), ("checkpoint", ["--dir"]), ("collectives", ["--plugin"]), ("conv_layers", ["--batch", "0"]), ("conv_layers", ["--only"]), ("gemm_conv", ["--threads", "0"]), ("gemm_conv", ["--threads", "two"]), ("gemm_conv", ["avx2", "avx512"]),
                  ("record", ["--peers-in"]), ("places", ["--only"]), ("places", ["--only", "rnn"]), ("plugin_launch", ["--plugin"]), ("plugin_launch", ["--mesh"]), ("train_step", ["--only", "rnn"]), ("train_step", ["--only"]), ("train_step", ["--steps", "many"]),
                  ("train_step", ["--steps", "0"]), ("train_step", ["--threads", "1"]), ("start", ["--threads", "1"]), ("workloads", ["--only", "rnn"]), ("workloads", ["--seconds", "none", "--only", "gemm-64"]),
                  ("workloads", ["--channels-first", "--only", "gemm-64"])]
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
        for program, options in (("footprint", []), ("collectives", []), ("conv_layers", ["--only", "320-1280"]), ("record", []), ("seeing_inside", []), ("train_step", ["--only", "mlp"]),
                                 ("control_flow", ["--only", "scalars"]), ("places", ["--only", "take-along"]), ("workloads", ["--only", "layernorm-fb-1kx1k"])):
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

    def test_a_step_from_python_is_measured_beside_that_of_c(self):
        program = os.path.join(os.environ["WEFT_SOURCE"], "benchmarks", "python_step.py")

        def said(*options):
            return subprocess.run([sys.executable, program, *options], capture_output=True, text=True, timeout=300)

        self.assertIn("usage: python_step.py", said("--help").stdout)
        for wrong, text in ((["--rounds", "0"], "--rounds has to be 1 or more"), (["--short", "4", "--long", "4"], "--short from 1"),
                            (["--build", os.path.dirname(program)], "has no bin/train_fashion_mnist"), (["--fast"], "unrecognized arguments")):
            done = said(*wrong)
            self.assertEqual((2, ""), (done.returncode, done.stdout))
            self.assertIn(text, done.stderr)
        if not os.path.isdir("/usr/share/datasets/fashion-mnist"):
            self.skipTest("no images")
        done = said("--build", os.environ["WEFT_BUILD"], "--rounds", "1", "--short", "1", "--long", "9", "--json")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        found = json.loads(done.stdout)
        self.assertEqual(["cpu", "wall"], sorted(found))
        for said_of in found.values():
            self.assertEqual(["c", "median_of_ratios", "python", "ratio_of_medians"], sorted(said_of))
            self.assertAlmostEqual(said_of["python"] / said_of["c"], said_of["ratio_of_medians"])

    def test_every_workload_runs_and_the_table_knows_it(self):
        table = os.path.join(os.environ["WEFT_SOURCE"], "benchmarks", "table")
        listed = subprocess.run([table, "--list", "--build", os.environ["WEFT_BUILD"]], capture_output=True, text=True, check=True).stdout
        names = [line.split()[0] for line in listed.splitlines()]
        own = [line.split("\t")[0] for line in self.run_it("workloads", "--list").stdout.splitlines()]
        self.assertEqual(names[: len(own)], own)
        self.assertIn("lstm-fb", names)
        # Those whose step is short; a loss or a result that is no number fails the program.
        for name in ("ew20-1M", "gemm-tf-m8", "mobilenetv2-infer-b4", "gpt2b-train-b1", "gru-train-b32", "depthwise-fb-b4", "conv-56-fb-b8-nchw",
                     "record-1M"):
            done = self.run_it("workloads", "--only", name, "--steps", "2")
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertRegex(done.stdout, rf"^{name}: -?[0-9.e+-]+\n$")
        for name in ("conv-56-fb-b8", "maxpool-112-fb-b8"):
            self.assertEqual(0, self.run_it("workloads", "--only", name, "--channels-first", "--steps", "1").returncode)

    def test_a_table_is_made_of_what_was_measured_and_goes_on_where_it_ended(self):
        table = [os.path.join(os.environ["WEFT_SOURCE"], "benchmarks", "table"), "--build", os.environ["WEFT_BUILD"]]
        row = {"weft": {"best_ms": 2.0, "floor_ms": 1.0, "peak_mb": 10.0, "first_s": 0.5, "warm_s": 0.3},
               "torch": {"best_ms": 1.0, "peak_mb": 300.0, "first_s": 0.1}, "jax": {"best_ms": 4.0, "peak_mb": 200.0, "first_s": 0.2}}
        with tempfile.TemporaryDirectory() as folder:
            results, page = os.path.join(folder, "table.json"), os.path.join(folder, "page.md")
            once = [*table, "--only", "gemm-64", "--dtypes", "f32", "--json", results, "--markdown", page]
            with open(page, "w", encoding="utf-8") as file:
                file.write("before\n<!-- table -->old<!-- /table -->\nafter\n")
            done = subprocess.run([*once, "--rounds", "0"], capture_output=True, text=True, timeout=60)
            self.assertEqual(0, done.returncode, done.stderr)
            with open(results, encoding="utf-8") as file:
                made = json.load(file)
            made["rows"]["gemm-64"] = {**row, "rounds": {"weft": 1}, "absent": {"ort": "exit 1: no onnxruntime", "openvino": "not measured"}}
            write(results, made)
            done = subprocess.run([*once, "--rounds", "1"], capture_output=True, text=True, timeout=60)
            self.assertEqual(0, done.returncode, done.stderr)
            with open(page, encoding="utf-8") as file:
                text = file.read()
            # Figures of two libraries are not compared.
            write(results, {**made, "library": "another"})
            done = subprocess.run([*once, "--rounds", "1"], capture_output=True, text=True, timeout=60)
            self.assertEqual(1, done.returncode)
            self.assertRegex(done.stderr, r"table: .*table.json has figures of another library \(another; here it is [0-9a-f]{16}\): they do not compare")
        self.assertIn("| gemm-64 | 2 | 2.00 | 1 PyTorch | **2.00** | 10 | 200 | 0.50 | 0.30 | 0.10 |", text)
        self.assertIn("Absent: gemm-64: ONNX Runtime: exit 1: no onnxruntime\n", text)
        self.assertNotIn("OpenVINO", text)
        self.assertTrue(text.startswith("before\n<!-- table -->\n") and text.endswith("<!-- /table -->\nafter\n"), text)
        self.assertNotIn("old", text)
        done = subprocess.run([*table, "--only", "rnn"], capture_output=True, text=True, timeout=60)
        self.assertEqual((1, "table: there is no workload 'rnn'; --list has the names\n"), (done.returncode, done.stderr))


if __name__ == "__main__":
    unittest.main(verbosity=2)
