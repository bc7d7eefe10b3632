"""Collectives of one process, copies between host and device, and saving."""
import collections
import io
import os
import stat
import tempfile
import unittest
from unittest import mock

import support  # noqa: F401
import torch
from torch_xla import _step, _weft
from torch_xla.core import functions as xf
from torch_xla.core import xla_model as xm

DEVICE = torch.device("xla", 0)


def on_device(*values):
    return torch.tensor(values, device=DEVICE)


class Collectives(unittest.TestCase):

    def test_all_reduce_of_a_tensor_is_a_new_one(self):
        value = on_device(1.0, 2.0)
        for reduce in (xm.REDUCE_SUM, xm.REDUCE_MUL, xm.REDUCE_AND, xm.REDUCE_OR, xm.REDUCE_MIN, xm.REDUCE_MAX):
            result = xm.all_reduce(reduce, value)
            self.assertEqual(result.tolist(), [1, 2])
            result.add_(1)
            self.assertEqual(value.tolist(), [1, 2])
        self.assertEqual(xm.all_reduce(xm.REDUCE_SUM, value, scale=0.5, groups=[[0]]).tolist(), [0.5, 1])

    def test_all_reduce_of_a_list_is_in_place(self):
        values = [on_device(1.0), on_device(2.0, 4.0)]
        self.assertIs(xm.all_reduce(xm.REDUCE_SUM, values, scale=0.5), values)
        self.assertEqual([value.tolist() for value in values], [[0.5], [1, 2]])

    def test_all_gather(self):
        value = on_device(1.0, 2.0)
        self.assertEqual(xm.all_gather(value).tolist(), [1, 2])
        output = torch.zeros(2, device=DEVICE)
        self.assertIs(xm.all_gather(value, dim=-1, output=output), output)
        self.assertEqual(output.tolist(), [1, 2])

    def test_reduce_scatter_and_all_to_all(self):
        value = on_device(1.0, 2.0)
        self.assertEqual(xm.reduce_scatter(xm.REDUCE_SUM, value, 0.5, 0, 1).tolist(), [0.5, 1])
        self.assertEqual(xm.all_to_all(value, 0, 0, 1).tolist(), [1, 2])
        result = xm.all_to_all(value, 0, 0, 1)
        result.add_(1)
        self.assertEqual(value.tolist(), [1, 2])

    def test_those_with_a_gradient(self):
        value = on_device(1.0, 2.0).requires_grad_()
        (xf.all_reduce(xm.REDUCE_SUM, value, scale=3.0) * xf.all_gather(value)).sum().backward()
        self.assertEqual(value.grad.tolist(), [6, 12])
        with self.assertRaisesRegex(ValueError, "'mul' has no gradient here; sum, min and max have one"):
            xf.all_reduce(xm.REDUCE_MUL, value)

    def test_broadcast(self):
        value = on_device(1.0, 2.0)
        xm.collective_broadcast([value])
        self.assertEqual(value.tolist(), [1, 2])
        model = torch.nn.BatchNorm1d(2).to(DEVICE)
        expected = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
        before = _step.barriers()
        xm.broadcast_master_param(model)
        self.assertEqual(_step.barriers(), before + 1)
        self.assertEqual({name: tensor.tolist() for name, tensor in model.state_dict().items()}, expected)

    def test_mesh_reduce(self):
        self.assertEqual(xm.mesh_reduce("tag", 3.5, max), 3.5)
        seen = []
        loss = {"loss": on_device(2.0)}
        result = xm.mesh_reduce("tag", loss, lambda values: seen.extend(values) or values[0]["loss"].item())
        self.assertEqual(result, 2.0)
        self.assertEqual(seen[0]["loss"].device.type, "cpu")

    def test_rendezvous(self):
        self.assertEqual(xm.rendezvous("tag"), [b""])
        self.assertEqual(xm.rendezvous("tag", b"payload", replicas=[0]), [b"payload"])

    def test_refusals(self):
        value = on_device(1.0)
        rows = [
            (lambda: xm.all_reduce("mean", value), ValueError, "'mean' is not one of sum, mul, and, or, min, max"),
            (lambda: xm.all_reduce("sum", value, groups=[[0, 1]]), ValueError, r"groups \[\[0, 1\]\] have to name each"),
            (lambda: xm.all_reduce("sum", torch.ones(1)), RuntimeError,
             "Input tensor is not an XLA tensor: torch.FloatTensor"),
            (lambda: xm.all_reduce("sum", [3]), TypeError, "a tensor is needed, not int"),
            (lambda: xm.reduce_scatter("sum", value, 1.0, 0, 2), ValueError, "shard_count is 2, and one process takes part"),
            (lambda: xm.reduce_scatter("sum", value, 1.0, 1, 1), IndexError, "dimension 1 of a tensor with 1"),
            (lambda: xm.all_to_all(value, 0, 0, 2), ValueError, "split_count is 2, and one process takes part"),
            (lambda: xm.all_gather(torch.ones((), device=DEVICE)), ValueError, "without dimensions"),
            (lambda: xm.all_gather(value, dim=1), IndexError, "dimension 1 of a tensor with 1"),
            (lambda: xm.collective_broadcast([value], root_ordinal=2), ValueError, r"\[2\] names processes that do not exist"),
            (lambda: xm.rendezvous("tag", "text"), TypeError, "the payload has to be bytes, not str"),
            (lambda: xm.rendezvous("tag", replicas=[1]), ValueError, r"\[1\] names processes that do not exist"),
        ]
        for call, error, text in rows:
            with self.assertRaisesRegex(error, text):
                call()


class Copies(unittest.TestCase):

    def test_to_the_cpu(self):
        Pair = collections.namedtuple("Pair", "a b")
        data = {"t": on_device(1, 2), "l": [on_device(3.0), "x"], "p": Pair(on_device(True), 4), "c": torch.ones(1)}
        with mock.patch.object(_weft, "download", wraps=_weft.download) as download:
            got = xm._maybe_convert_to_cpu(data)
        self.assertEqual([len(call.args[0]) for call in download.call_args_list], [3])  # Together.
        self.assertEqual((got["t"].device.type, got["t"].tolist(), got["t"].dtype), ("cpu", [1, 2], torch.int64))
        self.assertEqual((got["l"][0].tolist(), got["l"][1]), ([3.0], "x"))
        self.assertIsInstance(got["p"], Pair)
        self.assertEqual(got["p"].a.tolist(), [True])
        self.assertIs(got["c"], data["c"])
        self.assertEqual(data["t"].device, DEVICE)
        self.assertIs(xm._maybe_convert_to_cpu(data, convert=False), data)

    def test_to_the_device(self):
        with mock.patch.object(_weft, "upload", wraps=_weft.upload) as upload:
            got = xm.send_cpu_data_to_device([torch.ones(2), {"t": torch.arange(3)}, "x"], DEVICE)
        self.assertEqual([len(call.args[0]) for call in upload.call_args_list], [2])
        self.assertEqual((got[0].device, got[1]["t"].device, got[2]), (DEVICE, DEVICE, "x"))
        self.assertEqual((got[0].tolist(), got[1]["t"].tolist()), ([1, 1], [0, 1, 2]))
        single = xm.send_cpu_data_to_device(torch.ones(2), "xla:0")
        self.assertEqual((len(single), single[0].device), (1, DEVICE))
        with self.assertRaisesRegex(NotImplementedError, "input_sharding"):
            xm.send_cpu_data_to_device([], DEVICE, input_sharding=object())

    def test_arena(self):
        arena = xm.ToXlaTensorArena(lambda numbers: [-number for number in numbers], lambda value: isinstance(value, int))
        self.assertEqual(arena.transform({"a": [1, (2, "x")], "b": 3.0}), {"a": [-1, (-2, "x")], "b": 3.0})
        self.assertEqual(arena.transform([]), [])


class Saving(unittest.TestCase):

    def test_file_has_cpu_tensors(self):
        model = torch.nn.Linear(3, 2).to(DEVICE)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pt")
            xm.save(model.state_dict(), path)
            loaded = torch.load(path)
            self.assertEqual(os.listdir(folder), ["model.pt"])
            mask = os.umask(0)
            os.umask(mask)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o666 & ~mask)
        self.assertEqual({tensor.device.type for tensor in loaded.values()}, {"cpu"})
        self.assertEqual(loaded["weight"].tolist(), model.weight.tolist())
        self.assertEqual(type(loaded), type(model.state_dict()))
        other = torch.nn.Linear(3, 2).to(DEVICE)
        other.load_state_dict(loaded)
        self.assertEqual(other.bias.tolist(), model.bias.tolist())

    def test_into_an_open_file(self):
        file = io.BytesIO()
        xm.save({"t": on_device(1.5)}, file)
        file.seek(0)
        self.assertEqual(torch.load(file)["t"].tolist(), [1.5])

    def test_a_failed_save_leaves_the_old_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pt")
            xm.save([on_device(1.0)], path)
            with self.assertRaises(Exception):
                xm.save([on_device(2.0), lambda: None], path)
            self.assertEqual(torch.load(path)[0].tolist(), [1.0])
            self.assertEqual(os.listdir(folder), ["model.pt"])

    def test_master_only(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(xm, "get_ordinal", lambda: 1):
            path = os.path.join(folder, "model.pt")
            xm.save([1], path, global_master=True)
            self.assertFalse(os.path.exists(path))
            xm.save([1], path, master_only=False, global_master=True)
            self.assertTrue(os.path.exists(path))


if __name__ == "__main__":
    unittest.main()
