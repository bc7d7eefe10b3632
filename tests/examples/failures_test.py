"""The main example when something is wrong: what it says, that it exits with 1 (2 when the command line is wrong), and that no file is lost or half written."""
import ctypes
import fcntl
import gzip
import json
import os
import pty
import re
import signal
import struct
import subprocess
import tempfile
import termios
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
        missing = os.path.join(self.folder, "missing")
        self.assertEqual(
            [f"train_fashion_mnist: weft_idx_read: cannot open '{missing}/train-images-idx3-ubyte.gz': No such file or directory (ENOENT)",
             "The images come from Debian's package dataset-fashion-mnist (apt-get install dataset-fashion-mnist), or give their "
             "folder with --data."],
            self.run_it("--data", missing))
        self.assertEqual([], self.files())

    def test_a_damaged_data_set_is_named(self):
        path = os.path.join(self.data, "train-labels-idx1-ubyte.gz")
        with open(path, "r+b") as f:
            f.truncate(40)
        said = self.run_it()
        self.assertIn("train-labels-idx1-ubyte.gz", said[-1])
        self.idx("train-labels-idx1-ubyte.gz", (7,), bytes(7))
        self.assertEqual(f"train_fashion_mnist: {self.data}: 128 images but 7 labels", self.run_it()[-1])

    def test_a_data_set_of_another_kind_is_named(self):
        self.idx("train-labels-idx1-ubyte.gz", (128,), bytes(i % 47 for i in range(128)))
        self.assertEqual(f"train_fashion_mnist: {self.data}/train-labels-idx1-ubyte.gz: label 10 is 10; there are 10 classes", self.run_it()[-1])
        self.idx("train-images-idx3-ubyte.gz", (63, 28, 28), bytes(63 * 784))
        self.idx("train-labels-idx1-ubyte.gz", (63,), bytes(63))
        self.assertEqual(f"train_fashion_mnist: {self.data}: 63 images in train; at least 64 are needed", self.run_it()[-1])
        self.idx("train-images-idx3-ubyte.gz", (64, 32, 32), bytes(64 * 1024))
        self.assertEqual(f"train_fashion_mnist: {self.data}/train-images-idx3-ubyte.gz does not hold 28x28 images of bytes", self.run_it()[-1])

    def test_numbers_that_are_none_are_refused(self):
        for option, text in (("--epochs", "0"), ("--epochs", "-1"), ("--epochs", "2.5"), ("--epochs", "99999999999"), ("--epochs", ""),
                             ("--epochs", "5x"), ("--seed", "-1"), ("--seed", "9223372036854775808"), ("--limit", "0")):
            low, high = {"--epochs": (1, 1000000), "--seed": (0, 9223372036854775807), "--limit": (1, 1000000)}[option]
            self.assertEqual(f"train_fashion_mnist: {option} takes a whole number from {low} to {high}, not '{text}'", self.run_it(option, text, code=2)[-1])
        for text in ("nan", "-1", "inf", "fast"):
            self.assertEqual(f"train_fashion_mnist: --lr takes a number from 0 to 1000, not '{text}'", self.run_it("--lr", text, code=2)[-1])

    def test_a_checkpoint_of_other_options_is_refused(self):
        self.run_it("--seed", "3", code=0)
        for options, said in ((["--bf16"], "was trained without --bf16"), (["--seed", "4"], "was trained with --seed 3, not 4"),
                              (["--optimizer", "sgd"], "was trained with --optimizer adamw, not sgd")):
            self.assertEqual([f"train_fashion_mnist: fashion_mnist.weft {said}"], self.run_it("--resume", *options))
        self.assertIn("nothing left to do: --epochs 1 counts from the start", self.run_it("--resume", code=0))
        self.assertIn("epoch 2: ", self.run_it("--resume", "--epochs", "2", "--seed", "3", code=0))
        self.assertEqual(["train_fashion_mnist: --resume needs a checkpoint, and --checkpoint none has none"],
                         self.run_it("--resume", "--checkpoint", "none", code=2))
        self.assertEqual(["train_fashion_mnist: --save-every needs a checkpoint, and --checkpoint none has none"],
                         self.run_it("--save-every", "5", "--checkpoint", "none", code=2))

    def test_a_checkpoint_of_something_else_is_refused(self):
        lib = ctypes.CDLL(os.environ["WEFT_LIB"])
        ctx, tree, path = ctypes.c_void_p(), ctypes.c_void_p(), os.path.join(self.folder, "fashion_mnist.weft").encode()
        for name in ("weft_context_create", "weft_tree_create", "weft_tree_add_text", "weft_tree_add_bool", "weft_tree_add_i64", "weft_tree_add_dict",
                     "weft_tree_add_tensor", "weft_tensor_from_f64", "weft_checkpoint_save"):
            getattr(lib, name).restype = ctypes.c_void_p
        strlen, node, scalar = ctypes.c_size_t(-1), ctypes.c_uint32(), ctypes.c_void_p()
        self.assertIsNone(lib.weft_context_create(None, ctypes.byref(ctx)))
        self.assertIsNone(lib.weft_tree_create(ctypes.byref(tree)))
        self.assertIsNone(lib.weft_checkpoint_save(ctx, path, strlen, tree, None, None))
        self.assertEqual(["train_fashion_mnist: fashion_mnist.weft is not a checkpoint of this program: weft_tree_find: the tree has no 'optimizer_name'"],
                         self.run_it("--resume"))
        self.assertIsNone(lib.weft_tree_add_text(tree, 0, b"optimizer_name", strlen, b"adamw", strlen, None))
        self.assertIsNone(lib.weft_tree_add_bool(tree, 0, b"bf16", strlen, 0, None))
        self.assertIsNone(lib.weft_tree_add_i64(tree, 0, b"seed", strlen, ctypes.c_int64(1), None))
        self.assertIsNone(lib.weft_tree_add_dict(tree, 0, b"model", strlen, ctypes.byref(node)))
        self.assertIsNone(lib.weft_tree_add_dict(tree, node, b"conv1", strlen, ctypes.byref(node)))
        self.assertIsNone(lib.weft_tensor_from_f64(ctx, ctypes.c_uint32(0x12002), ctypes.c_double(1), ctypes.byref(scalar)))
        self.assertIsNone(lib.weft_tree_add_tensor(tree, node, b"weight", strlen, scalar, None))
        self.assertIsNone(lib.weft_checkpoint_save(ctx, path, strlen, tree, None, None))
        self.assertEqual(["train_fashion_mnist: fashion_mnist.weft is the checkpoint of another network: its model.conv1.weight has another "
                          "shape or type"], self.run_it("--resume"))
        for kind, handle in (("tensor", scalar), ("tree", tree), ("context", ctx)):
            getattr(lib, f"weft_{kind}_release")(handle)

    def test_an_unknown_device_is_answered_with_what_is_there(self):
        self.assertEqual("train_fashion_mnist: weft_device_by_name: there is no device 'cpu:9' here; there are: cpu:0", self.run_it("--device", "cpu:9")[-1])
        self.assertEqual("train_fashion_mnist: weft_context_create: option platform: 'npu' is not one of cpu, reference, pjrt, tpu, gpu, cuda, rocm",
                         self.run_it("--device", "npu:0")[-1])

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
        self.assertEqual(["train_fashion_mnist: weft_checkpoint_load: cannot open 'gone.weft': No such file or directory (ENOENT)",
                          "There is nothing to resume from: leave out --resume to start anew, or name the file with --checkpoint."],
                         self.run_it("--resume", "--checkpoint", "gone.weft"))

    def test_a_place_that_cannot_be_written_is_said_before_training(self):
        missing = os.path.join(self.folder, "missing")
        said = self.run_it("--checkpoint", f"{missing}/x.weft")
        self.assertEqual([f"train_fashion_mnist: cannot save to '{missing}/x.weft': {missing}/: No such file or directory"], said)
        os.mkfifo(os.path.join(self.folder, "fifo"))
        os.symlink("gone", os.path.join(self.folder, "link"))
        for name in ("data", "fifo", "link", ".", "/dev/stdout"):
            self.assertEqual([f"train_fashion_mnist: cannot save to '{name}': it is not a regular file"], self.run_it("--checkpoint", name))
        self.assertEqual(["train_fashion_mnist: --checkpoint needs the name of a file"], self.run_it("--checkpoint", ""))

    def test_a_file_gets_no_progress_bar(self):
        done = subprocess.run([PROGRAM, "--epochs", "1", "--limit", "2", "--data", self.data], cwd=self.folder, capture_output=True,
                              text=True, timeout=300)
        self.assertEqual("", done.stderr)
        self.assertRegex(done.stdout, r"\Aepoch 1: loss [\d.]+, test accuracy [\d.]+, \d+ images/s, [\d.]+ s\ncompiled .*\n\Z")

    def test_quiet_is_quiet_but_for_what_was_asked(self):
        self.assertEqual("", self.run_it("--quiet", code=0))
        self.assertEqual(["epoch", "loss", "accuracy", "images_per_s", "seconds"], list(json.loads(self.run_it("--quiet", "--json", code=0))))
        rc, drawn = self.on_a_terminal(80, "--quiet", "--epochs", "1")
        self.assertEqual((0, [""]), (rc, drawn))

    def test_help_and_version_come_before_everything_else(self):
        self.assertRegex(self.run_it("--version", code=0), r"\Atrain_fashion_mnist of Weft \d+\.\d+\.\d+\n\Z")
        text = self.run_it("--help", code=0)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        with open(os.path.join(os.environ["WEFT_SOURCE"], "examples", "c", "train_fashion_mnist.1"), encoding="utf-8") as page:
            manual = page.read().replace("\\-", "-")
        self.assertEqual([], [option for option in re.findall(r"^  (--[a-z0-9-]+)", text, re.MULTILINE) if option not in manual])

    def test_results_are_lines_of_json_when_asked_for(self):
        epoch, metrics = [json.loads(line) for line in self.run_it("--json", "--metrics", code=0).splitlines()]
        self.assertEqual(["epoch", "loss", "accuracy", "images_per_s", "seconds"], list(epoch))
        self.assertGreater(metrics["counters"]["launches"], 0)

    def on_a_terminal(self, columns, *options, interrupt=False):
        """What is drawn, one element a redraw."""
        try:
            host, terminal = pty.openpty()
        except OSError as e:
            self.skipTest(f"no terminal to be had here: {e}")
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        running = subprocess.Popen([PROGRAM, "--limit", "2", "--data", self.data, *options], cwd=self.folder, stdout=terminal, stderr=terminal)
        os.close(terminal)
        drawn = b""
        while True:
            try:
                drawn += os.read(host, 4096)
            except OSError:  # how Linux says that the other end is closed
                break
            if interrupt and b"epoch" in drawn:
                running.send_signal(signal.SIGINT)
                interrupt = False
        os.close(host)
        running.wait(timeout=60)
        return running.returncode, re.split(r"[\r\n]+", drawn.decode().replace("\33[K", ""))

    def test_the_progress_bar_fits_its_terminal(self):
        for columns in (4, 20, 80, 200):
            rc, drawn = self.on_a_terminal(columns, "--epochs", "2", "--checkpoint", "none")
            self.assertEqual(0, rc, drawn)
            bars = [line for line in drawn if line.startswith("epoch 2 [")]
            self.assertEqual([], [bar for bar in bars if len(bar) > columns - 3])
            if columns >= 80:  # what does not fit is left out whole, the least interesting first
                shown = r"^epoch 2 \[#+\] 2/2  ETA 0:00  loss \d\.\d{4}  \d+ images/s  wait \d+ %" + ("  compile \\d+ %$" if columns > 80 else "")
                self.assertRegex(bars[-1], shown)
            self.assertTrue([line for line in drawn if line.startswith("epoch 2: loss")], drawn)

    def test_an_interrupted_run_says_what_there_is(self):
        rc, drawn = self.on_a_terminal(80, "--epochs", "1000000", interrupt=True)
        self.assertEqual(130, rc, drawn)
        said = [line for line in drawn if line.startswith("interrupted")]
        if os.path.exists(os.path.join(self.folder, "fashion_mnist.weft")):
            self.assertRegex(said[0], r"^interrupted: fashion_mnist\.weft holds epoch \d+( and 1 of 2 steps)?; --resume goes on from there$")
        else:
            self.assertEqual(["interrupted, and nothing was saved"], said)

    def test_a_cache_that_cannot_be_written_costs_nothing_but_compiling(self):
        with open(os.path.join(self.folder, "a_file"), "w", encoding="utf-8"):
            pass
        for _ in range(2):
            self.assertIn("0 came from the cache", self.run_it("--cache", os.path.join(self.folder, "a_file"), code=0))


if __name__ == "__main__":
    unittest.main(verbosity=2)
