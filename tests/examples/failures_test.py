"""The main example when something is wrong: what it says, that it exits with 1, and that no file is lost or half written."""
import gzip
import os
import struct
import subprocess
import tempfile
import unittest

PROGRAM = os.path.join(os.environ["WEFT_BUILD"], "bin", "train_fashion_mnist")


class Failures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.data = os.path.join(self.folder, "data")
        os.mkdir(self.data)
        for half, count in (("train", 128), ("t10k", 500)):  # a data set of its own: the real one need not be installed
            self.idx(f"{half}-images-idx3-ubyte.gz", (count, 28, 28), bytes((i * 7 + i // 784) % 256 for i in range(count * 784)))
            self.idx(f"{half}-labels-idx1-ubyte.gz", (count,), bytes(i % 10 for i in range(count)))

    def idx(self, name, dims, data):
        with gzip.open(os.path.join(self.data, name), "wb", compresslevel=1) as f:
            f.write(bytes((0, 0, 8, len(dims))) + b"".join(struct.pack(">I", d) for d in dims) + data)

    def run_it(self, *options, code=1):
        done = subprocess.run([PROGRAM, "--epochs", "1", "--limit", "1", "--data", self.data, *options], cwd=self.folder,
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stderr.strip().splitlines()[-2:] if code else done.stdout

    def files(self):
        return sorted(name for name in os.listdir(self.folder) if name not in ("data", "fashion_mnist.cache"))

    def test_a_missing_data_set_names_the_package(self):
        self.assertEqual(
            ["train_fashion_mnist: cannot open '/nonexistent/train-images-idx3-ubyte.gz': No such file or directory (ENOENT)",
             "The images come from Debian's package dataset-fashion-mnist (apt-get install dataset-fashion-mnist), or give their "
             "folder with --data."],
            self.run_it("--data", "/nonexistent"))
        self.assertEqual([], self.files())

    def test_a_damaged_data_set_is_named(self):
        path = os.path.join(self.data, "train-labels-idx1-ubyte.gz")
        with open(path, "r+b") as f:
            f.truncate(40)
        said = self.run_it()
        self.assertIn("train-labels-idx1-ubyte.gz", said[-1])
        self.idx("train-labels-idx1-ubyte.gz", (7,), bytes(7))
        self.assertEqual(f"train_fashion_mnist: {self.data}: 128 images but 7 labels", self.run_it()[-1])

    def test_an_unknown_device_is_answered_with_what_is_there(self):
        self.assertEqual("train_fashion_mnist: there is no device 'cpu:9' here; there are: cpu:0", self.run_it("--device", "cpu:9")[-1])
        self.assertEqual("train_fashion_mnist: option platform: 'tpu' is not one of cpu, reference", self.run_it("--device", "tpu:0")[-1])

    def test_damaged_checkpoints_are_refused_and_stay_as_they_are(self):
        self.run_it(code=0)
        self.assertEqual(["fashion_mnist.weft"], self.files())
        with open(os.path.join(self.folder, "fashion_mnist.weft"), "rb") as f:
            good = f.read()
        flipped = bytearray(good)
        flipped[2_000_000] ^= 1
        for bad, said in ((good[:3_000_000], "'bad.weft' is damaged at byte 2999936: the trailer is missing; the file is incomplete "
                                             "(3000000 bytes), cut off or has bytes added at its end"),
                          (bytes(flipped), "does not match"),
                          (b"", "'bad.weft' is"),
                          (b"not a checkpoint at all" * 99, "'bad.weft' is not a Weft checkpoint: it does not start with the checkpoint magic")):
            with open(os.path.join(self.folder, "bad.weft"), "wb") as f:
                f.write(bad)
            self.assertIn(said, self.run_it("--resume", "--checkpoint", "bad.weft")[-1])
            with open(os.path.join(self.folder, "bad.weft"), "rb") as f:
                self.assertEqual(bad, f.read())
        self.assertEqual(["bad.weft", "fashion_mnist.weft"], self.files())
        self.assertIn("cannot open 'gone.weft': No such file or directory (ENOENT)", self.run_it("--resume", "--checkpoint", "gone.weft")[-1])

    def test_a_place_that_cannot_be_written_is_said_before_training(self):
        said = self.run_it("--checkpoint", "/nonexistent/x.weft")
        self.assertEqual(["train_fashion_mnist: cannot save to '/nonexistent/x.weft': /nonexistent/: No such file or directory"], said)

    def test_a_cache_that_cannot_be_written_costs_nothing_but_compiling(self):
        with open(os.path.join(self.folder, "a_file"), "w", encoding="utf-8"):
            pass
        for _ in range(2):
            self.assertIn("0 came from the cache", self.run_it("--cache", os.path.join(self.folder, "a_file"), code=0))


if __name__ == "__main__":
    unittest.main(verbosity=2)
