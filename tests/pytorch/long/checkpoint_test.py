"""Checkpoints of a gibibyte: what saving and loading them takes beside the tensors themselves."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "facade"))
import support  # noqa: E402

MIB = 64  # what the host may grow by

BEGIN = """
import json, sys, torch, torch_xla
import torch_xla.utils.serialization as xser

def peak():
    return int([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1]) / 1024

def forget_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return peak()

path, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) << 18
# What a first call makes for good is not the checkpoint's.
xser.save([torch.ones(3, device="xla")], path + ".first")
xser.load(path + ".first")
"""
SAVE = BEGIN + """
data = {f"layer{at}": torch.full((size,), float(at), device="xla") for at in range(count)}
torch_xla.sync(wait=True)
before = forget_peak()
xser.save(data, path)
print(peak() - before)
"""
LOAD = BEGIN + """
before = forget_peak()
loaded = xser.load(path)
print(peak() - before - count * size * 4 / 2**20)
assert list(loaded) == [f"layer{at}" for at in range(count)]
for at in range(count):
    tensor = loaded[f"layer{at}"]
    assert tensor.shape == (size,) and bool((tensor == at).all()), at
"""


class Gibibyte(unittest.TestCase):

    def _grows(self, count, mib):
        """(MiB that saving takes, MiB that loading takes beside the tensors) for `count` tensors of `mib` MiB."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model")
            saved = float(support.check(self, support.run(SAVE, path, str(count), str(mib), timeout=900)))
            self.assertGreaterEqual(os.path.getsize(path), count * mib << 20)
            loaded = float(support.check(self, support.run(LOAD, path, str(count), str(mib), timeout=900)))
        print(f"{count} tensors of {mib} MiB: saving takes {saved:.1f} MiB, loading {loaded:.1f} MiB", flush=True)
        return saved, loaded

    def test_many_tensors(self):
        saved, loaded = self._grows(64, 16)
        self.assertLessEqual(saved, MIB)
        self.assertLessEqual(loaded, MIB)

    def test_few_tensors(self):
        """Saving streams a tensor in pieces, and loading gives the memory that was read into."""
        saved, loaded = self._grows(4, 256)
        self.assertLessEqual(saved, MIB)
        self.assertLessEqual(loaded, MIB)


if __name__ == "__main__":
    unittest.main()
