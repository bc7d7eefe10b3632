"""`weft ckpt`: list, verify, compare and convert files of tensors of any format, with NumPy as the judge."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))
import numpy as np  # noqa: E402

PROGRAM = os.path.join(os.environ["WEFT_BUILD"], "bin", "weft")
PYTORCH = os.path.join(os.environ["WEFT_SOURCE"], "tests", "serialization", "pytorch", "old.pt")


class Ckpt(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        self.a = {"w": np.arange(6, dtype="f4").reshape(2, 3), "b.x": np.array([1, 2], "i8"), "n": np.float64(0.5)}
        np.savez(self.path("a.npz"), **self.a)

    def path(self, name):
        return os.path.join(self.work.name, name)

    def ckpt(self, *words, status=0):
        done = subprocess.run([PROGRAM, "ckpt", *words], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(status, done.returncode, done.stdout + done.stderr)
        return json.loads(done.stdout) if "--json" in words and done.stdout else done.stdout + done.stderr

    def test_lists(self):
        self.assertEqual({"tensors": [{"path": "w", "type": "f32[2,3]"}, {"path": "b.x", "type": "i64[2]"}, {"path": "n", "type": "f64[]"}]},
                         self.ckpt("ls", self.path("a.npz"), "--json"))
        self.assertEqual(["b.x"], [t["path"] for t in self.ckpt("ls", self.path("a.npz"), "--only", "b.*", "--json")["tensors"]])
        self.assertEqual("pytorch", self.ckpt("show", PYTORCH, "--json")["format"])

    def test_converts_there_and_back(self):
        for name in ("a.safetensors", "a.weft", "again.npz"):
            self.ckpt("convert", self.path("a.npz"), self.path(name))
            self.assertEqual({"differences": []}, self.ckpt("diff", self.path("a.npz"), self.path(name), "--json"))
        with np.load(self.path("again.npz")) as found:
            for name, array in self.a.items():
                np.testing.assert_array_equal(array, found[name])
        self.ckpt("convert", self.path("a.weft"), self.path("one.npy"), "--only", "*w")
        np.testing.assert_array_equal(self.a["w"], np.load(self.path("one.npy")))
        self.ckpt("convert", PYTORCH, self.path("p.out"), "--format", "safetensors", "--only", "layer.*")
        self.assertEqual(["layer.weight"], [t["path"] for t in self.ckpt("ls", self.path("p.out"), "--json")["tensors"]])
        self.assertIn("holds tensors only; 'optimizer.groups.0.lr' is a float64", self.ckpt("convert", PYTORCH, self.path("p.safetensors"), status=1))
        self.assertFalse(os.path.exists(self.path("p.safetensors")))

    def test_finds_differences(self):
        np.savez(self.path("b.npz"), w=self.a["w"] + np.float32([[0, 0.25, 0], [0, 0, 0]]), n=np.float32(0.5), more=np.zeros(1))
        found = self.ckpt("diff", self.path("a.npz"), self.path("b.npz"), "--json", status=1)
        self.assertEqual({"differences": [{"path": "w", "what": "apart by at most 0.25"}, {"path": "b.x", "what": "only in the first"},
                                          {"path": "n", "what": "f64[] and f32[]"}, {"path": "more", "what": "only in the second"}]}, found)

    def test_verifies(self):
        self.assertEqual({"good": 3}, self.ckpt("verify", self.path("a.npz"), "--json"))
        with open(self.path("a.npz"), "rb") as file:
            raw = bytearray(file.read())
        raw[raw.index(self.a["w"].tobytes()) + 4] ^= 1
        with open(self.path("bad.npz"), "wb") as file:
            file.write(raw)
        said = self.ckpt("verify", self.path("bad.npz"), "--json", status=1)
        self.assertEqual((2, 1), (said["good"], len(said["problems"])))
        self.assertIn("w.npy' is damaged", said["problems"][0])
        self.assertIn("No such file", self.ckpt("verify", self.path("none"), status=1))

    def test_misuse(self):
        self.assertIn("there is no 'frob'; there are ls, show, verify, diff, convert", self.ckpt("frob", "x", status=2))
        self.assertIn("diff takes two files", self.ckpt("diff", "x", status=2))
        self.assertIn("which ACTION?", self.ckpt(status=2))
        self.assertIn("what format is", self.ckpt("convert", self.path("a.npz"), self.path("x.bin"), status=2))
        self.assertIn("'gguf' is no format that is written", self.ckpt("convert", self.path("a.npz"), self.path("x"), "--format", "gguf", status=2))
        self.assertIn("there is no option '--frob'", self.ckpt("ls", "--frob", status=2))


if __name__ == "__main__":
    unittest.main()
