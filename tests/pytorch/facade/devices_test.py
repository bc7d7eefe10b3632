"""Devices, the world of processes, random states and memory, as torch_xla, xla_model, runtime and tpu tell them."""
import contextlib
import threading
import unittest
from unittest import mock

import support
import torch
import torch_xla
import torch_xla.runtime as xr
from torch_xla import _weft
from torch_xla._internal import tpu
from torch_xla.core import xla_model as xm

DEVICE = torch.device("xla", 0)


@contextlib.contextmanager
def two_devices():
    """As if there were a second device: what is asked is which one is meant, and nothing runs there."""
    with mock.patch.object(_weft, "device_count", lambda: 2), mock.patch.object(_weft.runtime, "device_count", lambda: 2):
        yield


class Devices(unittest.TestCase):

    def test_current(self):
        for device in (xm.xla_device(), torch_xla.device(), xm.xla_device(0), torch_xla.device(0),
                       xm.xla_device(n=0, devkind="CPU")):
            self.assertEqual(device, DEVICE)
            self.assertIsInstance(device, torch.device)
            self.assertEqual(str(device), "xla:0")
        self.assertEqual(torch.ones(1, device=xm.xla_device()).device, DEVICE)

    def test_choice_is_the_threads_own(self):
        seen = []
        with two_devices():
            thread = threading.Thread(target=lambda: seen.extend([xm.xla_device(1), xm.xla_device()]))
            thread.start()
            thread.join()
            self.assertEqual(seen, [torch.device("xla", 1)] * 2)
            self.assertEqual(xm.xla_device(), DEVICE)
            self.assertEqual(torch_xla.device(1), torch.device("xla", 1))
            self.assertEqual(xm.xla_device(), DEVICE)  # torch_xla.device chooses nothing.

    def test_lists(self):
        self.assertEqual(xm.get_xla_supported_devices(), ["xla:0"])
        self.assertEqual(xm.get_xla_supported_devices("CPU"), ["xla:0"])
        self.assertEqual(xm.get_xla_supported_devices(["TPU", "cpu"], max_devices=1), ["xla:0"])
        self.assertIsNone(xm.get_xla_supported_devices("TPU"))
        self.assertEqual(xm.get_xla_supported_devices(max_devices=0), [])
        self.assertEqual(torch_xla.devices(), [DEVICE])
        self.assertEqual(torch_xla.device_count(), 1)
        self.assertEqual(torch_xla.real_devices(), ["CPU:0"])
        self.assertEqual(xm.xla_real_devices([DEVICE, "xla:0", "xla"]), ["CPU:0"] * 3)

    def test_kinds(self):
        self.assertEqual(xm.xla_device_hw(DEVICE), "CPU")
        self.assertEqual(xr.device_type(), "CPU")
        with mock.patch.object(torch_xla._state, "kind", lambda: "TPU"):
            self.assertEqual((xm.xla_device_hw(DEVICE), xr.device_type()), ("TPU", "TPU"))
            self.assertEqual(xm.xla_device_hw("cpu"), "CPU")
            self.assertEqual(xm.get_xla_supported_devices("TPU"), ["xla:0"])
            self.assertEqual(xm.xla_real_devices(), ["TPU:0"])
        with self.assertRaisesRegex(RuntimeError, "no device of kind TPU: the devices are of kind CPU"):
            xm.xla_device(devkind="TPU")

    def test_out_of_range(self):
        text = r"device index {} is out of range: there is 1 XLA device, xla:0"
        for call in (xm.xla_device, torch_xla.device):
            for index in (1, -1, 7):
                with self.assertRaisesRegex(RuntimeError, text.format(index)):
                    call(index)
        with self.assertRaisesRegex(RuntimeError, text.format(3)):
            xm.get_rng_state("xla:3")
        with self.assertRaisesRegex(ValueError, "'cpu' is not an XLA device"):
            xm.get_memory_info("cpu")

    def test_xrt_called_the_first_device_one(self):
        program = ("import warnings; warnings.simplefilter('always')\nimport torch_xla.core.xla_model as xm\n"
                   "print(xm.xla_device(1), xm.xla_device(1))\n")
        done = support.run(program, XRT_TPU_CONFIG="localservice;0;localhost:51011")
        self.assertEqual(support.check(self, done), "xla:0 xla:0\n")
        self.assertEqual(done.stderr.count("xla:1 is what XRT called the first device"), 1)
        self.assertNotEqual(support.run(program).returncode, 0)

    def test_replication(self):
        xm.set_replication(DEVICE, ["xla:0"])
        xm.set_replication("xla:0", [])
        with two_devices():
            with self.assertRaisesRegex(NotImplementedError, "several devices that compute together come later"):
                xm.set_replication("xla:0", ["xla:0", "xla:1"])
            with self.assertRaisesRegex(ValueError, "xla:0 is not among"):
                xm.set_replication("xla:0", ["xla:1"])
            xm.set_replication("xla:1", ["xla:1"])
            self.assertEqual(xm.xla_device(), torch.device("xla", 1))
            xm.set_replication("xla:0", [])

    def test_memory(self):
        before = xm.get_memory_info(DEVICE)
        self.assertEqual(set(before), {"bytes_used", "bytes_limit", "peak_bytes_used"})
        held = torch.ones(1 << 20, device=DEVICE) * 2
        torch_xla.sync(wait=True)
        after = xm.get_memory_info("xla:0")
        self.assertGreaterEqual(after["bytes_used"] - before["bytes_used"], held.numel() * 4)
        self.assertGreaterEqual(after["peak_bytes_used"], after["bytes_used"])
        self.assertGreater(after["bytes_limit"], 0)

    def test_number_of_devices_for_trainers(self):
        self.assertEqual(tpu.num_available_devices(), 1)
        with mock.patch.object(_weft, "device_count", lambda: 4):
            self.assertEqual((tpu.num_available_devices(), xr.global_runtime_device_count()), (4, 4))


class World(unittest.TestCase):

    def test_numbers(self):
        self.assertEqual((xm.xrt_world_size(), xr.world_size()), (1, 1))
        ordinals = (xm.get_ordinal(), xm.get_local_ordinal(), xr.global_ordinal(), xr.local_ordinal(), xr.host_index())
        self.assertEqual(ordinals, (0,) * 5)
        self.assertTrue(xm.is_master_ordinal())
        self.assertTrue(xm.is_master_ordinal(local=False))
        counts = (xr.process_count(), xr.local_process_count(), xr.addressable_device_count(), xr.local_device_count(),
                  xr.addressable_runtime_device_count(), xr.global_device_count(), xr.global_runtime_device_count())
        self.assertEqual(counts, (1,) * 7)
        self.assertEqual(xr.process_index(), 0)
        self.assertIs(xr.using_pjrt(), True)
        self.assertIs(xr.is_spmd(), False)

    def test_master_print(self):
        self.assertEqual(support.printed(xm.master_print, "a", 1), "a 1\n")
        with mock.patch.object(xm, "get_ordinal", lambda: 3):
            self.assertEqual(support.printed(xm.master_print, "a"), "")
            self.assertEqual(support.printed(xm.master_print, "a", local=True), "a\n")

    def test_sampler(self):
        """The documents' own use: every example comes once."""
        sampler = torch.utils.data.distributed.DistributedSampler(
            range(10), num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal())
        self.assertEqual(sorted(sampler), list(range(10)))


class RandomStates(unittest.TestCase):

    def test_state_decides_the_numbers(self):
        for set_state in (xm.set_rng_state, torch_xla.manual_seed, lambda seed: torch_xla.manual_seed(seed, device="xla:0")):
            set_state(42)
            self.assertEqual(xm.get_rng_state(), 42)
            first = torch.rand(8, device=DEVICE).tolist()
            second = torch.rand(8, device=DEVICE).tolist()
            self.assertNotEqual(first, second)
            set_state(42)
            self.assertEqual(torch.rand(8, device=DEVICE).tolist(), first)
            set_state(43)
            self.assertNotEqual(torch.rand(8, device=DEVICE).tolist(), first)

    def test_state_goes_on_from_where_it_was_read(self):
        xm.set_rng_state(7, "xla:0")
        torch.rand(8, device=DEVICE).tolist()
        state = xm.get_rng_state(DEVICE)
        expected = torch.rand(8, device=DEVICE).tolist()
        xm.set_rng_state(state)
        self.assertEqual(torch.rand(8, device=DEVICE).tolist(), expected)


class Identities(unittest.TestCase):

    def test_tensor_ids(self):
        first, second = torch.ones(2, device=DEVICE), torch.ones(2, device=DEVICE)
        ids = [torch_xla._XLAC._xla_get_tensor_id(tensor) for tensor in (first, second, first)]
        self.assertEqual(ids[0], ids[2])
        self.assertNotEqual(ids[0], ids[1])
        first.add_(1)
        self.assertEqual(torch_xla._XLAC._xla_get_tensor_id(first), ids[0])


if __name__ == "__main__":
    unittest.main()
