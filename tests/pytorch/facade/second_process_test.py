"""A second process compiles nothing: the steps of six models come from the compile cache that the first one left."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCHMARKS = pathlib.Path(__file__).resolve().parents[3] / "benchmarks" / "pytorch"
MODELS = ("mlp", "cnn", "resnet18", "encoder-small", "bert", "lstm")
# Four steps of each model, with another learning rate each: what was compiled after the second and after the last, and the losses.
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import steps, models, torch
torch.set_num_threads(1)
found = {}
for name in sys.argv[2:]:
    trainer = steps.Trainer(*models.make(name), "xla")
    before, losses, compiled = steps.counts(), [], []
    for _ in range(4):
        losses.append(trainer.step().item())
        compiled.append(steps.difference(steps.counts(), before, "programs_compiled"))
    steps.core.wait()
    found[name] = {"compiled": [compiled[1], compiled[3]], "losses": losses}
print(json.dumps(found))
"""


def run(cache, models):
    environment = {**os.environ, "WEFT_CACHE_DIR": cache, "WEFT_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("WEFT_CACHE_MODE", None)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(BENCHMARKS), *models], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


class SecondProcess(unittest.TestCase):

    def test_compiles_nothing(self):
        with tempfile.TemporaryDirectory() as cache:
            first, second = run(cache, MODELS), run(cache, MODELS)
            for name in MODELS:
                with self.subTest(name):
                    settled, last = first[name]["compiled"]
                    self.assertGreater(settled, 0)  # from an empty cache the same steps do compile
                    self.assertEqual(last, settled)
                    self.assertEqual(second[name]["compiled"], [0, 0])
                    self.assertEqual(second[name]["losses"], first[name]["losses"])


if __name__ == "__main__":
    unittest.main()
