"""Copies, pickling, torch.save and load, Weft's checkpoints, parameters, random state."""

import copy
import io
import os
import pickle
import tempfile
import unittest

from common import DEVICE, core, same
import torch
from torch import nn


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
