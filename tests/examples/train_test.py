"""The main example: resumed runs end in the bits of straight ones, Ctrl-C loses at most a step, the second start
compiles nothing, wrong options are answered. Short epochs of the real images; scripts/demo trains whole ones."""
import ctypes as c
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = os.environ["WEFT_BUILD"]
PROGRAM = os.path.join(BUILD, "bin", "train_fashion_mnist")
DATA = "/usr/share/datasets/fashion-mnist"
LIB = c.CDLL(os.environ["WEFT_LIB"])
LIB.weft_error_message.restype = c.c_char_p
LIB.weft_error_message.argtypes = [c.c_void_p, c.c_void_p]
STRLEN = c.c_size_t(-1)


def call(name, *args):
    function = getattr(LIB, name)
    function.restype = c.c_void_p
    error = function(*args)
    if error:
        raise RuntimeError(f"{name}: {LIB.weft_error_message(error, None).decode()}")


def leaves_of(path):
    """{path in the tree: bytes} of a checkpoint: tensors and numbers."""
    ctx, tree = c.c_void_p(), c.c_void_p()
    call("weft_context_create", None, c.byref(ctx))
    call("weft_checkpoint_load", ctx, path.encode(), STRLEN, None, c.byref(tree))
    found = {}

    def visit(node, name):
        tensor, size, number, children = c.c_void_p(), c.c_uint64(), c.c_int64(), c.c_uint32()
        try:
            call("weft_tree_get_tensor", tree, c.c_uint32(node), c.byref(tensor))
        except RuntimeError:
            pass
        else:
            call("weft_tensor_size", tensor, c.byref(size))
            data = c.create_string_buffer(size.value)
            call("weft_tensor_to_host", tensor, data, c.c_size_t(size.value))
            LIB.weft_tensor_release(tensor)
            found[name] = data.raw
            return
        try:
            call("weft_tree_get_i64", tree, c.c_uint32(node), c.byref(number))
        except RuntimeError:
            pass
        else:
            found[name] = number.value
            return
        try:
            call("weft_tree_size", tree, c.c_uint32(node), c.byref(children))
        except RuntimeError:
            return
        for i in range(children.value):
            child, key, length = c.c_uint32(), c.c_char_p(), c.c_size_t()
            call("weft_tree_child", tree, c.c_uint32(node), c.c_uint32(i), c.byref(child))
            call("weft_tree_key", tree, child, c.byref(key), c.byref(length))  # empty in a list
            visit(child.value, f"{name}.{key.value[:length.value].decode() or i}")

    visit(0, "")
    LIB.weft_tree_release(tree)
    LIB.weft_context_release(ctx)
    return found


@unittest.skipUnless(os.path.exists(DATA), "dataset-fashion-mnist is not installed")
class Train(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_it(self, *options, name="model", code=0):
        done = subprocess.run(
            [PROGRAM, "--cache", f"{self.folder.name}/cache", "--checkpoint", f"{self.folder.name}/{name}.weft", *options],
            capture_output=True, text=True, timeout=300)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done

    def assert_same_bits(self, one, other):
        one, other = leaves_of(f"{self.folder.name}/{one}.weft"), leaves_of(f"{self.folder.name}/{other}.weft")
        self.assertEqual(sorted(one), sorted(other))
        self.assertTrue({".model.conv1.weight", ".model.dense2.bias", ".random.key", ".random.low", ".epoch", ".step"} <= set(one), sorted(one))
        self.assertGreaterEqual(len([name for name in one if name.startswith(".optimizer.slots.")]), 8, sorted(one))
        self.assertEqual([], [name for name in one if one[name] != other[name]])

    def test_straight_and_resumed_runs_end_in_the_same_bits(self):
        for options in ([], ["--optimizer", "sgd", "--seed", "7"], ["--bf16"]):
            with self.subTest(options=options):
                self.run_it("--epochs", "3", "--limit", "4", *options, name="straight")
                self.run_it("--epochs", "2", "--limit", "4", *options, name="resumed")
                self.run_it("--epochs", "3", "--limit", "4", "--resume", *options, name="resumed")
                self.assert_same_bits("straight", "resumed")

    def test_different_seeds_end_in_different_bits(self):
        self.run_it("--epochs", "1", "--limit", "3", name="one")
        self.run_it("--epochs", "1", "--limit", "3", "--seed", "2", name="two")
        one, two = leaves_of(f"{self.folder.name}/one.weft"), leaves_of(f"{self.folder.name}/two.weft")
        self.assertNotEqual(one[".model.conv1.weight"], two[".model.conv1.weight"])

    def test_the_second_start_compiles_nothing(self):
        first = json.loads(self.run_it("--first-step", "--json").stdout)
        second = json.loads(self.run_it("--first-step", "--json").stdout)
        self.assertGreater(first["compilations"], 0)
        self.assertEqual(0, second["compilations"])
        self.assertEqual(first["compilations"], second["cache_hits"])

    def interrupted(self, *options, by=signal.SIGINT):
        """What a run printed that was interrupted as soon as it had saved anything, and how far its checkpoint has come."""
        path = f"{self.folder.name}/model.weft"
        running = subprocess.Popen([PROGRAM, "--cache", f"{self.folder.name}/cache", "--checkpoint", path, *options],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        deadline = time.time() + 120
        while not os.path.exists(path) and time.time() < deadline:
            time.sleep(0.02)
        running.send_signal(by)
        printed, _ = running.communicate(timeout=120)
        self.assertEqual(128 + by, running.returncode, printed)
        self.assertIn("--resume goes on from there", printed)
        leaves = leaves_of(path)
        self.assertEqual(["cache", "model.weft"], sorted(os.listdir(self.folder.name)), "something was left behind")
        return printed, leaves[".epoch"], leaves[".step"]

    def test_an_interrupted_run_loses_no_epoch(self):
        _, epoch, step = self.interrupted("--epochs", "1000", "--limit", "4")
        self.assertGreaterEqual(epoch, 1)
        said = f"after epoch {epoch} and {step} steps" if step else f"after epoch {epoch}"
        self.assertIn(said, self.run_it("--resume", "--epochs", str(epoch + 1), "--limit", "4").stdout)

    def test_an_interrupted_epoch_goes_on_at_its_step_with_the_same_bits(self):
        limit = 64
        printed, epoch, step = self.interrupted("--epochs", "1", "--limit", str(limit), "--save-every", "1", by=signal.SIGTERM)
        self.assertEqual(0, epoch, printed)
        self.assertTrue(0 < step < limit, step)
        self.assertIn(f"holds epoch 0 and {step} of {limit} steps", printed)
        self.assertIn(f"after epoch 0 and {step} steps", self.run_it("--resume", "--epochs", "1", "--limit", str(limit)).stdout)
        self.run_it("--epochs", "1", "--limit", str(limit), name="straight")
        self.assert_same_bits("straight", "model")

    def test_wrong_options_are_answered(self):
        for options, text in ((["--epochs", "many"], "--epochs takes a whole number"), (["--fast"], "unknown option '--fast'"),
                              (["--optimizer", "lion"], "adamw or sgd, not 'lion'"), (["--seed"], "--seed needs a value"),
                              (["--save-every", "0"], "--save-every takes a whole number from 1")):
            with self.subTest(options=options):
                self.assertIn(text, self.run_it(*options, code=2).stderr)
        for options, text in ((["--data", os.path.join(self.folder.name, "missing")], "dataset-fashion-mnist"),
                              (["--device", "npu:0"], "'npu' is not one of cpu, reference, pjrt, tpu"), (["--device", "cpu:9"], "cpu:9"),
                              (["--resume"], "leave out --resume to start anew")):
            with self.subTest(options=options):
                self.assertIn(text, self.run_it(*options, code=1).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
