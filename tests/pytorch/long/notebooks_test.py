"""The notebooks of examples/pytorch at the sizes that they have: as scripts, and turned into notebooks and run by nbclient.

What each printed is checked: real data, real training, an accuracy that chance does not give. Those that need a package that
is not installed are skipped by its name.
"""
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
EXAMPLES = os.path.join(ROOT, "examples", "pytorch")
NOTEBOOKS = ("getting_started", "alexnet_single_core", "alexnet_multi_core", "resnet18_profiler", "bert_accelerate")
SECONDS = 1500
# So small that a notebook takes seconds beside what Jupyter itself takes.
SMALL = {"alexnet_single_core": {"train_images": 640, "test_images": 128},
         "alexnet_multi_core": {"train_images": 640, "test_images": 512},
         "resnet18_profiler": {"train_images": 640, "test_images": 256, "port": 9013},
         "bert_accelerate": {"sentences": 40, "pretraining": 5, "num_epochs": 1}}


def missing(*packages):
    """The first package that is not installed."""
    return next((name for name in packages if importlib.util.find_spec(name) is None), None)


def needs(name):
    return missing("transformers", "accelerate", "django") if name == "bert_accelerate" else None


class Workplace:
    """A folder with the package's description, as the wheel would have it, and the variables to run in."""

    def __init__(self, case):
        folder = tempfile.TemporaryDirectory()
        case.addCleanup(folder.cleanup)
        self.folder = folder.name
        about = os.path.join(folder.name, "torch_xla-2.9.0+weft.dist-info")
        os.mkdir(about)
        with open(os.path.join(about, "METADATA"), "w", encoding="utf-8") as file:
            file.write("Metadata-Version: 2.1\nName: torch_xla\nVersion: 2.9.0+weft\n")
        path = [os.path.join(ROOT, "bindings", "pytorch"), folder.name]
        self.variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "HF_HUB_OFFLINE": "1"}

    def run(self, name, flags):
        self.variables["FLAGS"] = json.dumps(flags)
        done = subprocess.run([sys.executable, os.path.join(EXAMPLES, name + ".py")], env=self.variables, capture_output=True,
                              text=True, timeout=SECONDS)
        return done.returncode, done.stdout, done.stderr


class AsScripts(unittest.TestCase):

    def _run(self, name, **flags):
        if needs(name):
            self.skipTest(f"{needs(name)} is not installed")
        code, text, errors = Workplace(self).run(name, flags)
        self.assertEqual(code, 0, text + errors)
        return text, errors

    def _number(self, pattern, text):
        return float(re.findall(pattern, text)[-1])

    def test_getting_started(self):
        text, _ = self._run("getting_started")
        self.assertIn("[1., 1., 1.]], device='xla:0')", text)
        self.assertIn("torch.Size([20, 33, 48]) xla:0", text)

    def test_alexnet_single_core(self):
        text, _ = self._run("alexnet_single_core")
        self.assertGreater(self._number(r"Accuracy: ([\d.]+) \(before", text), 0.6)
        self.assertLess(self._number(r"before training ([\d.]+)\)", text), 0.3)

    def test_alexnet_multi_core(self):
        with tempfile.TemporaryDirectory() as folder:
            text, _ = self._run("alexnet_multi_core", data_dir=folder)
            self.assertEqual(len(os.listdir(folder)), 4)
        self.assertEqual(text.count("is using"), 8)  # The parts of these lines may mix.
        self.assertEqual(sorted(re.findall(r"Process (\d) guessed", text)), list("01234567"))
        self.assertGreater(self._number(r"All 8 processes: ([\d.]+)% accuracy", text), 50)

    def test_resnet18_profiler(self):
        text, _ = self._run("resnet18_profiler", port=9014)
        self.assertGreater(self._number(r"Accuracy=([\d.]+)%", text), 60)
        self.assertIn("Metric: train_loop\n", text)
        self.assertEqual(self._number(r"train_loop: (\d+) times", text), 50)

    def test_bert_accelerate(self):
        text, _ = self._run("bert_accelerate")
        self.assertIn("device: xla:0", text)
        # One in sixteen by chance.
        self.assertGreater(self._number(r"epoch 3: accuracy ([\d.]+)", text), 0.4)


@unittest.skipIf(missing("jupytext", "nbclient", "ipykernel"), f"{missing('jupytext', 'nbclient', 'ipykernel')} is not installed")
class AsNotebooks(unittest.TestCase):

    def test_each(self):
        import jupytext
        import nbclient
        for name in NOTEBOOKS:
            with self.subTest(name):
                if needs(name):
                    self.skipTest(f"{needs(name)} is not installed")
                notebook = jupytext.read(os.path.join(EXAMPLES, name + ".py"))
                self.assertGreater(len([cell for cell in notebook.cells if cell.cell_type == "code"]), 4)
                self.assertGreater(len([cell for cell in notebook.cells if cell.cell_type == "markdown"]), 1)
                notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
                place = Workplace(self)
                variables = {**place.variables, "FLAGS": json.dumps(SMALL.get(name, {}))}
                client = nbclient.NotebookClient(notebook, timeout=SECONDS, startup_timeout=600, kernel_name="python3",
                                                 resources={"metadata": {"path": EXAMPLES}})
                client.execute(env=variables)
                printed = "".join(output.get("text", "") for cell in notebook.cells if cell.cell_type == "code"
                                  for output in cell.outputs)
                self.assertIn("xla:0" if name in ("getting_started", "bert_accelerate") else "ccuracy", printed, name)


if __name__ == "__main__":
    unittest.main()
