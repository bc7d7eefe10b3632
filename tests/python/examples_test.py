"""The programs of examples/python on the package, and the Fashion-MNIST network beside the C program, whose numbers it has."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import support

EXAMPLES = os.path.join(support.SOURCE, "examples", "python")
TRAIN = os.path.join(support.BUILD, "bin", "train_fashion_mnist")
DATA = "/usr/share/datasets/fashion-mnist"


class Examples(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)

    def run_one(self, name, *arguments, timeout=300):
        env = {**os.environ}
        if "LIBWEFT_INSTALLED" not in os.environ:
            env["PYTHONPATH"] = support.PACKAGE
        done = subprocess.run(
            [sys.executable, os.path.join(EXAMPLES, name), *arguments],
            env=env,
            cwd=self.work.name,
            timeout=timeout,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        self.assertEqual((0, ""), (done.returncode, done.stderr), done.stdout)
        return done.stdout

    def test_linear_fit(self):
        w, b, loss, programs = map(float, re.findall(r"-?\d+\.?\d*", self.run_one("linear_fit.py")))
        self.assertAlmostEqual(3, w, delta=0.05)
        self.assertAlmostEqual(1, b, delta=0.05)
        self.assertLess(loss, 0.02)
        self.assertLessEqual(programs, 4)

    def test_logistic_regression(self):
        first, last, right, traced = map(float, re.findall(r"\d+\.?\d*", self.run_one("logistic_regression.py")))
        self.assertLess(last, first)
        self.assertGreater(right, 90)
        self.assertEqual(1, traced)

    def test_lstm(self):
        first, last, programs = map(float, re.findall(r"\d+\.?\d*", self.run_one("lstm.py")))
        self.assertLess(last, first / 3)
        self.assertLessEqual(programs, 4)

    def test_functions(self):
        out = self.run_one("functions.py")
        self.assertIn("value     5.0", out)
        self.assertIn("of three  [5.0, 10.0, 1.0]", out)

    def test_custom_op(self):
        self.assertRegex(self.run_one("custom_op.py"), r"error    0\.0|error    \d\.\d+e-1\d")

    def test_notebooks_as_scripts(self):
        self.assertRegex(self.run_one("notebooks/first_steps.py"), r"y = 1\.[67]\d x -0\.[34]\d, \d programs compiled")
        self.assertRegex(self.run_one("notebooks/two_moons.py"), r"(0\.9\d\d|1\.000) of the test points are right; [1-9] programs")

    @unittest.skipUnless("WEFT_BUILD" in os.environ, "the launcher is in the build tree")
    def test_preempted(self):
        env = {**os.environ, "PYTHONPATH": support.PACKAGE}
        for count, last in ((2, False), (3, False), (2, True)):
            words = ["launch", "-n", str(count), "--", sys.executable, os.path.join(EXAMPLES, "preempted.py"), "--steps"]
            before = int(open(os.path.join(self.work.name, "step")).read()) if count != 2 or last else 0
            process = subprocess.Popen([os.path.join(support.BUILD, "bin", "weft"), *words, str(before + 5 if last else 10**6)], env=env, cwd=self.work.name,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.addCleanup(lambda process=process: (process.kill(), process.communicate()))
            said = ""
            while "from step" not in said:
                line = process.stdout.readline()
                self.assertTrue(line, said)
                said += line
            self.assertIn("from step %d\n" % before, said)
            if not last:
                time.sleep(0.5)
                process.send_signal(signal.SIGTERM)
            said += process.communicate(timeout=120)[0]
            self.assertEqual(0, process.returncode, said)
            if last:
                self.assertIn("done", said)
            else:
                step = int(re.search(r"saved at step (\d+)", said).group(1))
                self.assertGreater(step, before)
                with open(os.path.join(self.work.name, "step"), "w") as file:
                    file.write(str(step))

    def test_stablehlo_model(self):
        self.check_model()

    @unittest.skipUnless("WEFT_BUILD" in os.environ, "JAX is in the build tree's environments")
    def test_a_model_that_jax_writes_today(self):
        sys.path.insert(0, os.path.join(support.SOURCE, "tests", "support"))
        import jax_model

        path = os.path.join(self.work.name, "model.mlir")
        reason = jax_model.written(path)
        if reason:
            self.skipTest(reason)
        self.check_model(path)

    def check_model(self, *path):
        difference, loss, next_loss = re.search(
            r"difference (\S+)\nloss (\S+), and (\S+)", self.run_one("stablehlo_model.py", *path)
        ).groups()
        self.assertLess(float(difference), 1e-6)
        self.assertLess(float(next_loss), float(loss))

    def test_gpt_goes_on_with_the_same_bits_and_samples_in_one_launch(self):
        text = os.path.join(support.SOURCE, "examples", "data", "genesis.txt")
        small = ["--text", text, "--context", "32", "--width", "32", "--depth", "2", "--batch", "8", "--warmup", "4"]
        whole = self.run_one("gpt.py", *small, "--steps", "8", "--sample", "12", "--temperature", "0")
        loss = re.search(r"step 8  loss (\S+) \((\S+)\)", whole)
        self.assertLess(float(loss.group(1)), 5.5)
        launches, difference = re.search(r"(\d+) launch, beside the full forward: (\S+)", whole).groups()
        self.assertEqual("1", launches)
        self.assertLess(float(difference), 1e-5)
        self.run_one("gpt.py", *small, "--steps", "4", "--horizon", "8", "--every", "4")
        resumed = self.run_one("gpt.py", *small, "--steps", "8", "--resume", "--svg", "losses.svg")
        self.assertIn("(%s)" % loss.group(2), resumed)
        with open(os.path.join(self.work.name, "losses.svg"), encoding="utf-8") as f:
            self.assertIn("polyline", f.read())

    @unittest.skipUnless(os.path.isdir(DATA), "no images")
    def test_resnet_trains_and_its_file_is_fine_tuned(self):
        out = self.run_one("resnet.py", "--blocks", "1", "--limit", "3", "--epochs", "1", "--batch", "32", "--checkpoint", "r")
        self.assertLess(float(re.search(r"loss (\S+)", out).group(1)), 3)
        out = self.run_one("fine_tuning.py", "--file", "r", "--blocks", "1", "--steps", "8", "--images", "200")
        first, _, last = map(float, re.search(r"loss (\S+) to (\S+) to (\S+)", out).groups())
        self.assertLess(last, first)

    def test_server(self):
        self.assertIn("probabilities add up to [1.0], refused [400, 400, 400, 400]", self.run_one("server.py", "--selftest"))

    @unittest.skipUnless(os.path.isdir(DATA) and os.path.exists(TRAIN), "no images, or the C program is not built")
    def test_fashion_mnist_has_the_numbers_of_c_and_each_goes_on_from_the_others_file(self):
        def of_c(*arguments):
            done = subprocess.run(
                [TRAIN, "--json", "--quiet", "--cache", "cache", *arguments],
                cwd=self.work.name,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
                timeout=300,
            )
            line = json.loads(done.stdout.splitlines()[-1])
            return ["%.6f" % line["loss"], "%.4f" % line["accuracy"]]

        def of_python(*arguments):
            return re.findall(r"\d+\.\d+", self.run_one("fashion_mnist.py", *arguments))

        self.assertEqual(
            of_c("--epochs", "1", "--limit", "10", "--checkpoint", "c"),
            of_python("--epochs", "1", "--limit", "10", "--checkpoint", "python"),
        )
        self.assertEqual(
            of_c("--epochs", "2", "--limit", "10", "--resume", "--checkpoint", "python"),
            of_python("--epochs", "2", "--limit", "10", "--resume", "--checkpoint", "c"),
        )


if __name__ == "__main__":
    unittest.main()
