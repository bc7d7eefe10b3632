"""The training scripts of examples/pytorch/test: the documents' command lines and flags, at sizes of seconds."""
import importlib.util
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "facade"))
import support  # noqa: E402

SCRIPTS = os.path.join(support.ROOT, "examples", "pytorch", "test")
DATA = "/usr/share/datasets/fashion-mnist"
LIGHTNING = """
import lightning_seed, torch_xla
for devices in (1, 8):
    torch_xla.device_count = lambda: devices
    for cores, precision in ((1, 32), (8, 16), (None, 32)):
        found = lightning_seed.trainer_arguments(cores, precision, max_epochs=2)
        print(*(found.get(name) for name in ("accelerator", "devices", "precision", "max_epochs")))
for cores, precision in ((2, 32), (0, 32), ("8", 32), (8, 64)):
    try: lightning_seed.trainer(cores, precision)
    except ValueError as error: print(error)
"""
# As `python script` begins it.
PROGRAM = "import runpy\nrunpy.run_path({!r}, run_name='__main__')\n"


def run(script, *arguments, **variables):
    """The finished process of one script."""
    return support.run(PROGRAM.format(os.path.join(SCRIPTS, script)), *arguments, path=[SCRIPTS], timeout=900, **variables)


class Scripts(unittest.TestCase):

    def _check(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_mnist_on_fake_data(self):
        """Zeros are one image with one label: what is learnt is right at once. An address of XRT changes nothing."""
        text = self._check(run("test_train_mnist.py", "--fake_data", "--num_epochs=1", "--batch_size=16", "--lr=0.1", "--samples=320",
                               "--log_steps=10", "--metrics_debug", XRT_TPU_CONFIG="tpu_worker;0;192.0.2.1:8470"))
        self.assertEqual([int(step) for step in re.findall(r"^\| Training Device=xla:0/0 Step=(\d+) ", text, re.M)], [0, 10])
        self.assertIn("Epoch: 1, Mean Accuracy: 100.00%", text)
        # A barrier before each of 20 and 10 batches and one at either end; the first ones have nothing to compute.
        self.assertGreaterEqual(int(re.search(r"^Counter: MarkStep\n  Value: (\d+)$", text, re.M).group(1)), 20)
        self.assertRegex(text, r"Metric: ExecuteTime\n  TotalSamples: \d+\n  Counter: ")

    def test_imagenet_on_fake_data_in_bfloat16(self):
        text = self._check(run("test_train_imagenet.py", "--fake_data", "--samples=32", "--batch_size=4", "--image_size=32",
                               "--width=8", "--num_classes=10", "--log_steps=1", XLA_USE_BF16="1"))
        losses = [float(loss) for loss in re.findall(r"Loss=([\d.]+)", text)]
        self.assertEqual(len(losses), 8)
        self.assertLess(losses[-1], losses[0])
        self.assertIn("Epoch: 1, Mean Accuracy: 100.00%", text)

    def test_imagenet_without_data(self):
        done = run("test_train_imagenet.py", "--datadir=/nowhere")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "/nowhere|takes torchvision")

    @unittest.skipUnless(os.path.isdir(DATA), f"{DATA} is not there")
    def test_mp_mnist_learns_and_saves(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "new", "model.pt")
            done = run("test_train_mp_mnist.py", "--num_epochs=2", "--batch_size=32", "--lr=0.05", "--samples=4000", "--log_steps=50",
                       f"--datadir={DATA}", "--num_cores=1", "--async_closures", f"--save={path}", "--target_accuracy=60")
            text = self._check(done)
            self.assertGreater(float(re.search(r"Max Accuracy: ([\d.]+)%", text).group(1)), 60)
            self.assertEqual(re.findall(r"Epoch=(\d) Step=(\d+)", text), [(e, s) for e in "12" for s in ("0", "50", "100")])
            self.assertGreater(os.path.getsize(path), 4 * 320 * 50)

    @unittest.skipUnless(os.path.isdir(DATA), f"{DATA} is not there")
    def test_mp_mnist_by_two_processes(self):
        """Each reads its half; one of them saves and prints the results."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "new", "model.pt")
            done = run("test_train_mp_mnist.py", "--num_epochs=1", "--batch_size=32", "--lr=0.05", "--samples=3000", "--log_steps=1000",
                       f"--datadir={DATA}", "--num_cores=2", f"--save={path}", "--target_accuracy=50")
            text = self._check(done)
            self.assertGreater(float(re.search(r"Max Accuracy: ([\d.]+)%", text).group(1)), 50)
            self.assertEqual(len(re.findall(r"Max Accuracy", text)), 1)
            self.assertEqual(sorted(re.findall(r"Device=(\S+) .*Step=(\d+)", text)), [("xla:0/0", "0"), ("xla:0/1", "0")])
            self.assertGreater(os.path.getsize(path), 4 * 320 * 50)

    @unittest.skipUnless(os.path.isdir(DATA), f"{DATA} is not there")
    def test_target_accuracy(self):
        done = run("test_train_mnist.py", "--samples=256", "--num_epochs=1", "--target_accuracy=99.5", "--num_cores=0")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("is below the target of 99.50%", done.stderr)

    @unittest.skipUnless(importlib.util.find_spec("pytorch_lightning"), "pytorch_lightning is not installed")
    def test_lightnings_old_arguments(self):
        """Of 2020: 1 or 8 cores, which today are devices; 16 bits were bfloat16 on TPUs; whatever else is refused."""
        text = self._check(support.run(LIGHTNING, path=[os.path.dirname(SCRIPTS)]))
        self.assertEqual(text.splitlines(), [
            "tpu 1 32-true 2", "tpu auto bf16-true 2", "None None 32 2",
            "tpu 1 32-true 2", "tpu 8 bf16-true 2", "None None 32 2",
            "num_tpu_cores has to be 1 or 8, not 2", "num_tpu_cores has to be 1 or 8, not 0",
            "num_tpu_cores has to be 1 or 8, not 8", "precision has to be 16 or 32, not 64"])

    def test_missing_files_are_named(self):
        done = run("test_train_mnist.py", "--datadir=/nowhere")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/nowhere/train-images-idx3-ubyte.gz is missing", done.stderr)


if __name__ == "__main__":
    unittest.main()
