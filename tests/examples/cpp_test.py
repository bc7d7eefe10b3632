"""The C++ examples: each compiles by the line of its own comment, against an installed tree, and prints what it should; the network's
numbers are those of the C program, and each goes on from the other's checkpoint."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = os.environ["WEFT_SOURCE"], os.environ["WEFT_BUILD"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import jax_model  # noqa: E402

EXAMPLES = os.path.join(SOURCE, "examples", "cpp")
C_PROGRAM = os.path.join(BUILD, "bin", "train_fashion_mnist")


# The state of a network with PyTorch's names and layouts; tests/pytorch/examples has PyTorch write it.
AS_PYTORCH_WRITES = """
import sys, libweft as wf
def flat(value, name=""):
    for key, part in value.items():
        yield from flat(part, name + key + ".") if isinstance(part, dict) else [(name + key, part)]
names, state = {"scale": "weight", "offset": "bias", "mean": "running_mean", "variance": "running_var", "b": "bias"}, {}
for name, value in flat(wf.load(sys.argv[1])):
    layer, _, part = name.rpartition(".")
    axes = {4: (3, 2, 0, 1), 2: (1, 0)}.get(value.ndim)
    state[layer + "." + ("weight" if part == "w" else names[part])] = wf.transpose(value, axes) if axes else value
wf.save(sys.argv[2], state)
"""


class Cpp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.work, prefix = folder.name, os.path.join(folder.name, "prefix")
        shutil.copytree(os.path.join(BUILD, "generated", "bindings", "cpp"), os.path.join(prefix, "include"))
        shutil.copytree(os.path.join(SOURCE, "include", "c_api"), os.path.join(prefix, "include", "weft"))
        os.makedirs(os.path.join(prefix, "lib", "pkgconfig"))
        for name in ("weft.pc", "weft-cpp.pc"):
            shutil.copy(os.path.join(BUILD, "generated", name), os.path.join(prefix, "lib", "pkgconfig"))
        for name in ("libweft.so", "libweft.so.1"):
            os.symlink(os.environ["WEFT_LIB"], os.path.join(prefix, "lib", name))
        cls.env = {**os.environ, "PYTHONPATH": os.path.join(BUILD, "generated", "bindings", "python"), "LIBWEFT_PATH": os.environ["WEFT_LIB"], "PKG_CONFIG_PATH": os.path.join(prefix, "lib", "pkgconfig"), "WEFT_CACHE_DIR": os.path.join(cls.work, "cache")}

    def compiled(self, name):
        out = os.path.join(self.work, name)
        if not os.path.exists(out):
            with open(os.path.join(EXAMPLES, name + ".cpp"), encoding="utf-8") as handle:
                line = re.search(r"^//   (c\+\+ .*?)(?: -o \w+)?$", handle.read(), re.MULTILINE).group(1)
            done = subprocess.run(["bash", "-c", f"c++() {{ command c++ -Wall -Wextra -Wpedantic -Wconversion -Werror \"$@\" -O1 -o {out}; }}; cd {EXAMPLES} && {line}"],
                                  capture_output=True, text=True, env=self.env)
            self.assertEqual(0, done.returncode, line + "\n" + done.stderr[:4000])
        return out

    def run_it(self, program, *options, code=0):
        done = subprocess.run([program, *options], capture_output=True, text=True, timeout=300, cwd=self.work, env=self.env)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def said(self, name, *options):
        return self.run_it(self.compiled(name), *options)

    def test_the_shortest(self):
        self.assertEqual("w = 3.\n", self.said("first"))

    def test_the_line_is_that_of_the_c_program(self):
        ours = self.said("linear_fit")
        self.assertRegex(ours, r"^y = 1\.7\d\d x -0\.4\d\d after 120 steps")
        if os.path.exists(os.path.join(BUILD, "bin", "linear_fit")):
            self.assertEqual(self.run_it(os.path.join(BUILD, "bin", "linear_fit")), ours)

    def test_logistic_regression_is_mostly_right(self):
        self.assertGreater(float(re.search(r"right on (\S+) %", self.said("logistic_regression")).group(1)), 93)

    def test_the_lstm_learns_in_two_programs(self):
        first, last, programs = map(float, re.search(r"error (\S+) at first, (\S+) after \d+ steps; (\d+) programs", self.said("lstm", "300")).groups())
        self.assertGreater(first, 0.3)
        self.assertLess(last, 0.05)
        self.assertLessEqual(programs, 2)

    def test_a_saved_function_is_differentiated_and_mapped(self):
        self.assertEqual("energy   70.\nforce    [-10. -20. -30.]\nenergies [ 5. 20.]\nforces   [[-10.  -0.  -0.]\n [ -0. -20.  -0.]]\n",
                         self.said("saved_function", os.path.join(self.work, "energy.weft")))

    def test_custom_operations(self):
        said = self.said("custom_operation")
        self.assertIn("value    [0.0635 0.3466 1.0635]\ngradient [0.1192 0.5    0.8808]\nmedian   [1. 2. 3. 2. 3. 4.]\n", said)
        self.assertIn("custom operation 'checked', element 2: a value above one half", said)

    def test_the_server_answers_everybody(self):
        self.assertRegex(self.said("threaded_server"), r"^200 of 200 answers are probabilities; \d programs compiled\n$")

    def test_a_model_of_jax_computes_the_same(self):
        today = os.path.join(self.work, "today.mlir")
        reason = jax_model.written(today)
        for path in [os.path.join(SOURCE, "examples", "stablehlo", "mlp.mlir")] + ([] if reason else [today]):
            said = self.said("stablehlo_model", path)
            self.assertLess(float(re.search(r"largest difference (\S+)", said).group(1)), 1e-6)
            before, after = map(float, re.search(r"loss (\S+), and (\S+) one step further", said).groups())
            self.assertLess(after, before)
        self.assertIn("line", self.run_it(self.compiled("stablehlo_model"), os.path.join(EXAMPLES, "first.cpp"), code=1))

    def test_a_gpt_goes_on_with_the_same_bits_as_the_python_program_and_samples_in_one_launch(self):
        text = os.path.join(SOURCE, "examples", "data", "genesis.txt")
        small = ["--text", text, "--context", "32", "--width", "32", "--depth", "2", "--batch", "8", "--warmup", "4"]
        program = self.compiled("gpt")
        whole = self.run_it(program, *small, "--steps", "8", "--sample", "12", "--temperature", "0")
        self.assertLess(float(re.search(r"step 8  loss (\S+)", whole).group(1)), 5.6)
        launches, difference = re.search(r"(\d+) launch, beside the full forward: (\S+)", whole).groups()
        self.assertEqual("1", launches)
        self.assertLess(float(difference), 1e-5)
        self.run_it(program, *small, "--steps", "4", "--horizon", "8", "--every", "4", "--checkpoint", "half.weft")

        def bits(command):
            line = self.run_it(*command, *small, "--steps", "8", "--resume", "--checkpoint", "half.weft")
            return float.fromhex(re.search(r"\((\S+)\)", line).group(1))
        resumed = bits([program])
        self.assertEqual(float.fromhex(re.search(r"\((\S+)\)", whole).group(1)), resumed)
        self.assertEqual(resumed, bits([sys.executable, os.path.join(SOURCE, "examples", "python", "gpt.py")]))
        self.assertIn("no text of more than", self.run_it(program, "--text", "nowhere", code=1))

    def test_a_resnet_trains_and_is_fine_tuned_from_its_file_and_from_the_python_programs(self):
        if not os.path.exists("/usr/share/datasets/fashion-mnist"):
            self.skipTest("dataset-fashion-mnist is not installed")
        few = ["--blocks", "1", "--limit", "3", "--epochs", "1", "--batch", "32"]
        said = self.said("resnet", *few, "--checkpoint", "cpp.resnet")
        self.assertLess(float(re.search(r"loss (\S+)", said).group(1)), 3)
        self.run_it(sys.executable, os.path.join(SOURCE, "examples", "python", "resnet.py"), *few, "--checkpoint", "python.resnet")
        self.run_it(sys.executable, "-c", AS_PYTORCH_WRITES, "python.resnet", "torch.safetensors")
        for name in ("cpp.resnet", "python.resnet", "torch.safetensors"):
            first, last = map(float, re.search(r"loss (\S+) to (\S+)", self.said("resnet", "--blocks", "1", "--limit", "8", "--tune", name)).groups())
            self.assertLess(last, first)
        self.assertIn("unknown option --fast", self.run_it(self.compiled("resnet"), "--fast", "1", code=1))

    def test_the_network_has_the_numbers_of_the_c_program_and_reads_its_checkpoints(self):
        if not os.path.exists("/usr/share/datasets/fashion-mnist"):
            self.skipTest("dataset-fashion-mnist is not installed")
        program = self.compiled("train_fashion_mnist")
        path = {name: os.path.join(self.work, name + ".weft") for name in ("c", "cpp")}

        def epochs(run, name, *more):
            lines = self.run_it(run, "--limit", "6", "--checkpoint", path[name], "--cache", os.path.join(self.work, "cache"), *more).splitlines()
            rows = [json.loads(line) for line in lines if line.startswith("{")]
            return [(row["epoch"], row["loss"], row["accuracy"]) for row in rows if "epoch" in row]
        whole = epochs(C_PROGRAM, "c", "--epochs", "2", "--json")
        self.assertEqual(2, len(whole))
        self.assertEqual(whole, epochs(program, "cpp", "--epochs", "2"))
        # One epoch each, the second by the other program.
        self.assertEqual(whole[:1], epochs(program, "cpp", "--epochs", "1"))
        self.assertEqual(whole[1:], epochs(C_PROGRAM, "cpp", "--epochs", "2", "--resume", "--json"))
        self.assertEqual(whole[:1], epochs(C_PROGRAM, "c", "--epochs", "1", "--json"))
        self.assertEqual(whole[1:], epochs(program, "c", "--epochs", "2", "--resume"))
        self.assertIn("usage: train_fashion_mnist", self.run_it(program, "--fast", code=2))


if __name__ == "__main__":
    unittest.main(verbosity=2)
