"""Copies, pickling, torch.save and load, Weft's checkpoints, parameters, random state."""

import copy
import io
import os
import pickle
import tempfile
import unittest
import zipfile

from common import DEVICE, child, core, same
import torch
from torch import nn

LOAD = """
for options in ({}, {"weights_only": False}):
    try: print(torch.load(PATH, **options).device)
    except Exception as error: print(type(error).__name__, str(error).splitlines()[0])
print(torch.load(PATH, map_location="cpu").tolist())
"""
VIEWS = {
    "row": lambda x: x[1], "column": lambda x: x[:, 2], "transposed": lambda x: x.transpose(0, 2),
    "steps": lambda x: x[..., 1::2], "expanded": lambda x: x[:1].expand(5, 3, 4),
    "strided": lambda x: x.as_strided((3, 3), (1, 4), 2), "one wide": lambda x: x[:, :1].transpose(0, 1),
    "element": lambda x: x[1, 2, 3], "part": lambda x: x[1:, :2].permute(2, 0, 1),
}  # fmt: skip
COPIES = {
    "cpu": lambda t: t.cpu(), "to the cpu": lambda t: t.to("cpu"), "to a dtype": lambda t: t.to(torch.float64),
    "to the cpu and a dtype": lambda t: t.to("cpu", torch.bfloat16), "to itself": lambda t: t.to(t.device),
    "copied": lambda t: t.to(t.device, copy=True), "deepcopy": copy.deepcopy, "clone": lambda t: t.clone(),
    "double": lambda t: t.double(), "like another": lambda t: t.to(t.new_empty(0, dtype=torch.int32)),
}  # fmt: skip


class Saving(unittest.TestCase):
    def setUp(self):
        self.x = torch.arange(24.0).view(2, 3, 4)
        self.y = self.x.to(DEVICE)

    def test_deepcopy(self):
        parameter = nn.Parameter(self.y)
        other = copy.deepcopy(parameter)
        other.data.add_(1)
        self.assertIsInstance(other, nn.Parameter)
        same(self, self.x, parameter.detach())
        same(self, self.x + 1, other.detach())

    def test_copies_of_views(self):
        """Values, dtype, strides and offset are torch's, and a write goes where torch's goes."""
        for name, view in VIEWS.items():
            for how, make in COPIES.items():
                with self.subTest(name, how=how):
                    bases = [self.x.clone(), self.x.to(DEVICE)]
                    views = [view(base) for base in bases]
                    host, ours = (make(one) for one in views)
                    self.assertTrue(torch.equal(ours.cpu(), host))
                    self.assertEqual(ours.dtype, host.dtype)
                    if "cpu" not in how:  # to the CPU torch itself copies otherwise than within it
                        self.assertEqual((ours.stride(), ours.storage_offset()), (host.stride(), host.storage_offset()))
                        self.assertEqual(ours is views[1], host is views[0])
                    if name != "expanded" and ours.device.type == "xla":
                        for copied in (host, ours):
                            copied.mul_(3)
                        same(self, host, ours)
                        same(self, bases[0], bases[1])

    def test_deepcopy_of_tied_weights(self):
        tied = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}).to(DEVICE)
        tied["b"].weight = tied["a"].weight
        other = copy.deepcopy(tied)
        self.assertIs(other["a"].weight, other["b"].weight)
        self.assertIsNot(other["a"].weight, tied["a"].weight)

    def test_deepcopy_keeps_one_memory_one(self):
        for device in ("cpu", DEVICE):
            y = self.x.to(device, copy=True).requires_grad_()
            y.sum().backward()
            y.note = ["said"]
            parts = copy.deepcopy([y.detach()[0], y.detach().view(torch.int32)[1], y])
            self.assertTrue(parts[2].requires_grad)
            self.assertEqual((parts[2].grad.tolist(), parts[2].note), (y.grad.tolist(), ["said"]))
            self.assertIsNot(parts[2].note, y.note)
            parts[2].grad.zero_()
            parts[2].detach().zero_()
            self.assertEqual((parts[0].sum().item(), parts[1].sum().item()), (0, 0))
            self.assertTrue(torch.equal(y.detach().cpu(), self.x) and y.grad.sum() == 24)
        with self.assertRaisesRegex(RuntimeError, "Only Tensors created explicitly by the user"):
            copy.deepcopy(y * 2)

    def test_load_without_the_device(self):
        """A program that lacks torch_xla, or the device, gets an error; map_location helps both."""
        with tempfile.TemporaryDirectory() as folder:
            path, other = os.path.join(folder, "t.pt"), os.path.join(folder, "other.pt")
            torch.save(self.y[1], path)
            with zipfile.ZipFile(path) as written, zipfile.ZipFile(other, "w") as file:
                for name in written.namelist():
                    file.writestr(name, written.read(name).replace(b"xla:0", b"xla:3"))
            values = str(self.x[1].tolist())
            for file, package, text in (
                (path, "torch", "NotImplementedError Could not run 'aten::empty.memory_format' with arguments from the 'XLA'"),
                (other, "torch_xla._weft", "RuntimeError xla:3 is no device: there is 1"),
                (path, "torch_xla._weft", "xla:0"),
            ):
                run = child(f"import {package}\nPATH = {file!r}\n" + LOAD)
                self.assertEqual(run.returncode, 0, run.stderr)
                lines = run.stdout.splitlines()
                self.assertEqual(len(lines), 3, run.stdout)
                for line in lines[:2]:
                    self.assertTrue(line.startswith(text), line)
                self.assertEqual(lines[2], values)

    def test_pickle_and_torch_save(self):
        same(self, self.x, pickle.loads(pickle.dumps(self.y)))
        file = io.BytesIO()
        torch.save({"whole": self.y, "row": self.y[0], "half": self.y.bfloat16()}, file)
        file.seek(0)
        loaded = torch.load(file)
        same(self, self.x, loaded["whole"])
        same(self, self.x[0], loaded["row"])
        same(self, self.x.bfloat16(), loaded["half"])
        file.seek(0)
        self.assertEqual(torch.load(file, map_location="cpu")["whole"].device.type, "cpu")

    def test_modules(self):
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(DEVICE)
        self.assertEqual({p.device.type for p in net.state_dict().values()}, {"xla"})
        state = {name: value.cpu() for name, value in net.state_dict().items()}
        other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(DEVICE)
        other.load_state_dict(state)
        for name, value in other.state_dict().items():
            same(self, state[name], value)
        tied = nn.Linear(4, 4)
        tied.other = tied.weight
        tied.to(DEVICE)
        self.assertIs(tied.other, tied.weight)
        self.assertEqual(net.cpu()[0].weight.device.type, "cpu")

    def test_checkpoint(self):
        tensors = {
            "model.weight": self.y,
            "model.bias": self.x[0, 0],
            "n": torch.tensor(7),
            "b": self.x.bfloat16(),
            "empty": torch.empty(0, 3),
        }
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state.weft")
            core.checkpoint_save(path, tensors, b"words\x00")
            loaded, metadata = core.checkpoint_load(path)
        self.assertEqual(metadata, b"words\x00")
        self.assertEqual(list(loaded), list(tensors))
        for name, value in tensors.items():
            self.assertTrue(torch.equal(loaded[name], value.cpu()), name)
            self.assertEqual(loaded[name].dtype, value.dtype)
        with self.assertRaises(RuntimeError):
            core.checkpoint_load("/no/such/file")

    def test_transfers(self):
        moved = core.upload([self.x, self.x[:, 1], torch.tensor(True)], 0)
        same(self, self.x[:, 1], moved[1])
        back = core.download([moved[0] * 2, moved[2]])
        self.assertTrue(torch.equal(back[0], self.x * 2))
        self.assertEqual(back[1].item(), True)
        for dtype in (
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.bfloat16,
            torch.float64,
            torch.bool,
            torch.complex64,
        ):
            value = torch.arange(5).to(dtype)
            same(self, value, value.to(DEVICE))
            same(
                self,
                value.to(torch.float64) if not dtype.is_complex else value,
                value.to(DEVICE).to(torch.float64 if not dtype.is_complex else dtype),
            )

    def test_random_state(self):
        torch.manual_seed(3)
        first = torch.randn(8, device=DEVICE).cpu()
        state = torch.xla.get_rng_state()
        second = torch.rand(8, device=DEVICE).cpu()
        torch.xla.set_rng_state(state)
        self.assertTrue(torch.equal(second, torch.rand(8, device=DEVICE).cpu()))
        torch.manual_seed(3)
        self.assertTrue(torch.equal(first, torch.randn(8, device=DEVICE).cpu()))
        with torch.random.fork_rng(devices=[0], device_type="xla"):
            torch.rand(3, device=DEVICE)
        torch.xla.set_rng_state(state)
        with torch.random.fork_rng(devices=[0], device_type="xla"):
            torch.rand(5, device=DEVICE)
        self.assertTrue(torch.equal(second, torch.rand(8, device=DEVICE).cpu()))

    def test_distributions(self):
        torch.manual_seed(1)
        n = 200_000
        for name, make, mean, deviation in (
            ("normal", lambda t: t.normal_(2, 3), 2, 3),
            ("uniform", lambda t: t.uniform_(-1, 3), 1, 4 / 12**0.5),
            ("bernoulli", lambda t: t.bernoulli_(0.2), 0.2, 0.4),
            ("exponential", lambda t: t.exponential_(2), 0.5, 0.5),
            ("random", lambda t: t.random_(0, 10), 4.5, 2.8723),
        ):
            value = make(torch.empty(n, device=DEVICE)).cpu()
            self.assertAlmostEqual(value.mean().item(), mean, delta=6 * deviation / n**0.5, msg=name)
            self.assertAlmostEqual(value.std().item(), deviation, delta=0.02 * deviation, msg=name)
        order = torch.randperm(1000, device=DEVICE).cpu()
        self.assertTrue(torch.equal(order.sort().values, torch.arange(1000)))
        self.assertFalse(torch.equal(order, torch.arange(1000)))

    def test_loader(self):
        data = torch.utils.data.TensorDataset(torch.arange(8.0))
        loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)
        self.assertEqual(sum(batch[0].to(DEVICE).sum().item() for batch in loader), 28)


if __name__ == "__main__":
    unittest.main()
