"""xser: its own checkpoints, PyTorch/XLA's, and what is refused. PyTorch/XLA's layout is written here by hand."""
import collections
import os
import sys
import tempfile
import types
import unittest
import unittest.mock

import support
import torch
from torch_xla import _weft
from torch_xla.utils import serialization as xser

DEVICE = torch.device("xla", 0)


def write_torch_xlas_layout(path, references, tensors, **options):
    """What PyTorch/XLA wrote: containers with references of its class at `path`, tensors beside."""
    torch.save(references, path, **options)
    os.mkdir(path + ".tensors")
    for at, tensor in enumerate(tensors):
        torch.save(tensor, os.path.join(path + ".tensors", f"tensor_{at}.pt"), **options)


class OwnCheckpoints(unittest.TestCase):

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.path = os.path.join(self._folder.name, "model")

    def test_state_dictionary(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).to(DEVICE)
        xser.save(model.state_dict(), self.path)
        loaded = xser.load(self.path)
        self.assertEqual(type(loaded), collections.OrderedDict)
        self.assertEqual(list(loaded), list(model.state_dict()))
        self.assertEqual(loaded._metadata, model.state_dict()._metadata)
        for name, tensor in model.state_dict().items():
            self.assertEqual(loaded[name].device.type, "cpu")
            self.assertEqual(loaded[name].dtype, tensor.dtype)
            self.assertTrue(torch.equal(loaded[name], tensor.cpu()), name)
        other = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).to(DEVICE)
        other.load_state_dict(loaded)
        self.assertEqual(other[0].weight.tolist(), model[0].weight.tolist())

    def test_it_is_wefts_checkpoint(self):
        xser.save({"w": torch.ones(2, device=DEVICE)}, self.path)
        named, metadata = _weft.checkpoint_load(self.path)
        self.assertEqual({name: tensor.tolist() for name, tensor in named.items()}, {"tensor_0": [1, 1]})
        self.assertGreater(len(metadata), 0)

    def test_nested_values_and_every_type(self):
        dtypes = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16,
                  torch.int32, torch.int64, torch.bool]
        data = {"step": 3, "name": "text", "none": None,
                "list": [torch.tensor([0, 1, 2]).to(dtype).to(DEVICE) for dtype in dtypes],
                "tuple": (torch.tensor(5.0, device=DEVICE), torch.empty(0, 3, device=DEVICE)),
                "cpu": torch.arange(6).reshape(2, 3).t()}
        xser.save(data, self.path)
        loaded = xser.load(self.path)
        self.assertEqual((loaded["step"], loaded["name"], loaded["none"]), (3, "text", None))
        self.assertEqual([tensor.dtype for tensor in loaded["list"]], dtypes)
        for tensor, dtype in zip(loaded["list"], dtypes):
            self.assertTrue(torch.equal(tensor, torch.tensor([0, 1, 2]).to(dtype)))
        self.assertEqual((loaded["tuple"][0].item(), loaded["tuple"][1].shape), (5.0, (0, 3)))
        self.assertTrue(torch.equal(loaded["cpu"], data["cpu"]))

    def test_views(self):
        base = torch.arange(12.0).reshape(3, 4).to(DEVICE)
        xser.save([base, base.t(), base[1], base[:, 1:3]], self.path)
        loaded = xser.load(self.path)
        host = torch.arange(12.0).reshape(3, 4)
        for got, expected in zip(loaded, [host, host.t(), host[1], host[:, 1:3]]):
            self.assertTrue(torch.equal(got, expected))

    def test_tied_tensors_are_written_once(self):
        model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2, bias=False), "b": torch.nn.Linear(2, 2, bias=False)})
        model["b"].weight = model["a"].weight
        xser.save(model.to(DEVICE).state_dict(), self.path)
        self.assertEqual(len(_weft.checkpoint_load(self.path)[0]), 1)
        loaded = xser.load(self.path)
        self.assertIs(loaded["a.weight"], loaded["b.weight"])

    def test_saving_again_replaces(self):
        xser.save([torch.ones(2, device=DEVICE)], self.path)
        xser.save([torch.zeros(3, device=DEVICE), 5], self.path)
        loaded = xser.load(self.path)
        self.assertEqual((loaded[0].tolist(), loaded[1]), ([0, 0, 0], 5))

    def test_host_memory_stays_small(self):
        """128 MiB here; the host may grow by less than half of that."""
        program = ("import sys, torch, torch_xla\nimport torch_xla.utils.serialization as xser\n"
                   "def peak():\n"
                   "    return int([l for l in open('/proc/self/status') if l.startswith('VmHWM')][0].split()[1]) // 1024\n"
                   "data = [torch.ones(4 << 20, device='xla') * at for at in range(8)]\n"
                   "torch_xla.sync(wait=True)\n"
                   "xser.save([torch.ones(3, device='xla')], sys.argv[1] + '.first')\n"
                   "before = peak()\nxser.save(data, sys.argv[1])\nprint(peak() - before)\n")
        self.assertLess(int(support.check(self, support.run(program, self.path))), 64)

    def test_large_tensors_are_the_programs_own(self):
        """Their memory is the one that was read into: it can be written, and stays when what else was loaded goes."""
        large = torch.arange(9 << 20, dtype=torch.float32).reshape(3, -1)
        xser.save({"large": large.to(DEVICE), "half": large.to(DEVICE).bfloat16()}, self.path)
        loaded = xser.load(self.path)
        half = loaded["half"]
        self.assertTrue(torch.equal(half, large.bfloat16()))
        half += 1
        loaded["large"][1:].mul_(2)
        other = torch.nn.Parameter(loaded.pop("large"))
        del loaded
        self.assertTrue(torch.equal(half, large.bfloat16() + 1))
        self.assertTrue(torch.equal(other[0], large[0]) and torch.equal(other[1:], large[1:] * 2))
        self.assertTrue(torch.equal(xser.load(self.path)["large"], large))

    def test_large_tensors_outlive_their_library(self):
        """The process ends well with such a tensor alive, and a forked child reads it."""
        program = ("import os, sys, torch, torch_xla\nimport torch_xla.utils.serialization as xser\n"
                   "xser.save([torch.ones(9 << 20, device='xla')], sys.argv[1])\n"
                   "kept = xser.load(sys.argv[1])[0]\n"
                   "if os.fork() == 0:\n    print(kept.sum().item(), flush=True)\n    del kept\n    os._exit(0)\n"
                   "os.wait()\nkept.add_(1)\nprint(kept.sum().item())\n")
        done = support.run(program, self.path, fresh=True)
        self.assertEqual(support.check(self, done), f"{float(9 << 20)}\n{float(18 << 20)}\n")
        self.assertEqual(done.stderr, "")

    def test_not_the_master(self):
        with unittest.mock.patch("torch_xla.core.xla_model.get_ordinal", lambda: 1):
            xser.save([1], self.path, global_master=True)
            self.assertFalse(os.path.exists(self.path))

    def test_missing_file(self):
        with self.assertRaises(Exception) as raised:
            xser.load(self.path)
        self.assertIn(self.path, str(raised.exception))


class TorchXlasLayout(unittest.TestCase):

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.path = os.path.join(self._folder.name, "model")

    def test_yesterdays_checkpoint(self):
        for at, options in enumerate(({}, {"_use_new_zipfile_serialization": False})):
            path = f"{self.path}{at}"
            tensors = [torch.arange(4.0), torch.tensor([True, False])]
            references = collections.OrderedDict(a=xser.TensorReference(0), b=[xser.TensorReference(1), 7])
            write_torch_xlas_layout(path, references, tensors, **options)
            loaded = xser.load(path)
            self.assertTrue(torch.equal(loaded["a"], tensors[0]))
            self.assertTrue(torch.equal(loaded["b"][0], tensors[1]))
            self.assertEqual(loaded["b"][1], 7)

    def test_new_checkpoint_over_an_old_one(self):
        write_torch_xlas_layout(self.path, [xser.TensorReference(0)], [torch.ones(1)])
        xser.save([torch.zeros(2, device=DEVICE)], self.path)
        self.assertEqual(xser.load(self.path)[0].tolist(), [0, 0])

    def test_missing_tensor_is_named(self):
        write_torch_xlas_layout(self.path, [xser.TensorReference(0), xser.TensorReference(1)], [torch.ones(1)])
        with self.assertRaisesRegex(FileNotFoundError, "tensor_1.pt"):
            xser.load(self.path)

    def test_foreign_objects_are_not_made(self):
        module = types.ModuleType("foreign_module")
        module.Foreign = type("Foreign", (), {"__module__": "foreign_module"})
        sys.modules["foreign_module"] = module
        self.addCleanup(sys.modules.pop, "foreign_module")
        write_torch_xlas_layout(self.path, {"x": module.Foreign()}, [])
        with self.assertRaisesRegex(Exception, "weights_only|Foreign"):
            xser.load(self.path)


if __name__ == "__main__":
    unittest.main()
