"""What programs do with a tensor's memory: storages, resize_, out, other dtypes, pinned memory, DLPack, torch.accelerator."""

import unittest
import warnings

from common import DEVICE, same
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

WIDTHS = {
    torch.uint8: 1, torch.int8: 1, torch.bool: 1, torch.int16: 2, torch.float16: 2, torch.bfloat16: 2, torch.uint16: 2,
    torch.int32: 4, torch.float32: 4, torch.uint32: 4, torch.int64: 8, torch.float64: 8, torch.complex64: 8, torch.uint64: 8,
    torch.complex128: 16}  # fmt: skip


def both(*shape, dtype=torch.float32):
    host = torch.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
    return host, host.to(DEVICE)


class OtherDtypes(unittest.TestCase):
    def test_reading_and_writing(self):
        raw = torch.randint(0, 64, (4, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        for one in WIDTHS:
            host = (raw % 2 if one == torch.bool else raw).view(one)
            for other in WIDTHS:
                if other == torch.bool and one != torch.bool:
                    continue
                with self.subTest(one, other=other):
                    same(self, host.view(other), host.to(DEVICE).view(other))
                    same(self, host.view(other)[1:, ::2], host.to(DEVICE).view(other)[1:, ::2])
                    if one == torch.bool:  # Weft's bool holds nothing but 0 and 1
                        continue
                    expected, actual = host.clone(), host.to(DEVICE)
                    for x in (expected, actual):
                        x.view(other)[1:3, 1::2] = 1
                        x.view(other)[:1] = 0
                    same(self, expected.view(torch.uint8), actual.cpu().view(torch.uint8).to(DEVICE))

    def test_refused(self):
        for dtype in (torch.complex32, torch.float8_e8m0fnu):
            with self.assertRaisesRegex(NotImplementedError, "has no (such )?dtype"):
                torch.ones(4, device=DEVICE).view(torch.float16).view(dtype) + 1


class Storages(unittest.TestCase):
    def test_of_a_tensor(self):
        host, x = both(2, 3)
        for storage in (x.untyped_storage(), x[1:].untyped_storage(), x.untyped_storage().clone()):
            self.assertEqual((storage.device, storage.nbytes()), (torch.device("xla:0"), 24))
            self.assertEqual(storage.tolist(), host.untyped_storage().tolist())
            self.assertEqual(storage.cpu().tolist(), host.untyped_storage().tolist())
            self.assertEqual(storage[6], host.untyped_storage()[6])

    def test_made(self):
        storage = torch.UntypedStorage(12, device="xla")
        storage.fill_(1)
        self.assertEqual(storage.tolist(), [1] * 12)
        self.assertEqual(torch.UntypedStorage([1, 2, 3], device=DEVICE).tolist(), [1, 2, 3])
        self.assertEqual(torch.UntypedStorage(device="xla").nbytes(), 0)
        self.assertEqual(torch.UntypedStorage([1, 2]).device.type, "cpu")
        x = torch.empty(0, device=DEVICE).set_(storage, 1, (2,), (1,))
        self.assertEqual(x.view(torch.uint8).tolist(), [1] * 8)
        x.fill_(2.0)
        self.assertEqual(storage.tolist()[:4] + storage.tolist()[8:], [1, 1, 1, 1, 0, 0, 0, 64])

    def test_shared(self):
        host, x = both(6)
        for t in (host, x):
            t.alias = t.new_empty(0).set_(t.untyped_storage(), 1, (2, 2), (3, 1))
            t.other = t.new_empty(0).set_(t)
            t.alias.mul_(10)
            t.add_(1)
        for expected, actual in ((host, x), (host.alias, x.alias), (host.other, x.other)):
            same(self, expected, actual)
        self.assertEqual(x.data_ptr() + 4, x.alias.data_ptr())

    def test_copies(self):
        host, x = both(4)
        target = torch.ones(4).to(DEVICE)
        target.untyped_storage().copy_(host.untyped_storage())
        same(self, host, target)
        away = torch.ones(4)
        away.untyped_storage().copy_(x.untyped_storage())
        self.assertTrue(torch.equal(away, host))

    def test_refused(self):
        x = torch.ones(3, device=DEVICE)
        for function, text in (
            (lambda: x.untyped_storage().resize_(100), "cannot be resized: resize_ of its tensor"),
            (lambda: x.set_(x.untyped_storage(), 0, (4,), (1,)), "out of bounds for storage of size 12"),
            (lambda: x.set_(torch.ones(3).untyped_storage()), "cannot show a storage of cpu"),
            (lambda: torch.UntypedStorage(4, device="xla:5"), "xla:5 is no device"),
        ):
            with self.assertRaisesRegex(RuntimeError, text):
                function()
        same(self, torch.ones(3), x)

    def test_sizes_beyond_all_memory(self):
        for size in ((1 << 50,), (1 << 40, 1 << 40), (1 << 62, 4), (3, 1 << 62, 8)):
            with self.assertRaisesRegex(RuntimeError, "more than the device xla can name|overflow"):
                torch.empty(size, device=DEVICE)
        self.assertEqual(torch.empty(0, 5, device=DEVICE).stride(), torch.empty(0, 5).stride())


class Resizing(unittest.TestCase):
    def test_within_the_storage(self):
        host, x = both(2, 3)
        for t in (host, x):
            t.alias = t.view(6)
            t.resize_(2, 2).mul_(-1)
        same(self, host, x)
        same(self, host.alias, x.alias)
        for t in (host, x):
            t.resize_(3, 2)
        same(self, host, x)
        self.assertEqual(x.data_ptr(), x.alias.data_ptr())

    def test_growing(self):
        for begin in (lambda t: t, lambda t: t.t(), lambda t: t[1:], lambda t: t[:, 1:]):
            host, x = (begin(t) for t in both(4, 3))
            kept = host.untyped_storage().nbytes() // 4 - host.storage_offset()
            for t in (host, x):
                t.resize_(50)
            self.assertEqual((x.shape, x.stride(), x.storage_offset()), (host.shape, host.stride(), host.storage_offset()))
            same(self, host[:kept], x[:kept])
            x.fill_(1)
            same(self, torch.ones(50), x)

    def test_formats(self):
        host, x = both(2, 3, 4, 5)
        for size in ((1, 2, 3, 4), (4, 3, 4, 5)):
            for t in (host, x):
                t.resize_(size, memory_format=torch.channels_last)
            self.assertEqual((x.shape, x.stride()), (host.shape, host.stride()))

    def test_out_grows(self):
        host, x = both(2, 3)
        for begin in ([0], [1], [2, 3], [7]):
            for name, function in {
                "native": lambda t, out: torch.mul(t, t, out=out),
                "with a number": lambda t, out: torch.add(t, t, alpha=2, out=out),
                "product": lambda t, out: torch.mm(t, t.t(), out=out),
                "lowering": lambda t, out: torch.cumsum(t, 1, out=out),
                "reduction": lambda t, out: torch.sum(t, 1, out=out),
                "joined": lambda t, out: torch.cat([t, t], out=out),
                "range": lambda t, out: torch.arange(5, out=out),
                "host": lambda t, out: torch.linalg.pinv(t, out=out),
            }.items():
                with self.subTest(name, begin=begin), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    out = torch.zeros(begin, device=DEVICE)
                    self.assertIs(function(x, out), out)
                    same(self, function(host, torch.zeros(begin)), out, bits=name != "host")

    def test_out_that_grows_says_so(self):
        x = torch.ones(3, device=DEVICE)
        for function in (torch.mul, torch.add, torch.maximum):
            with self.assertWarnsRegex(UserWarning, "An output with one or more elements was resized"):
                function(x, x, out=torch.zeros(5, device=DEVICE))


class Pinned(unittest.TestCase):
    def test_tensors(self):
        x = torch.ones(3)
        self.assertTrue(torch.equal(x.pin_memory(), x))
        self.assertFalse(x.pin_memory().is_pinned())
        with self.assertRaisesRegex(RuntimeError, "only dense CPU tensors can be pinned"):
            x.to(DEVICE).pin_memory()

    def test_loader(self):
        data = torch.arange(40.0).reshape(10, 4)
        for workers in (0, 1):
            loader = DataLoader(TensorDataset(data, torch.arange(10)), batch_size=4, pin_memory=True, num_workers=workers)
            batches = [(x.to(DEVICE, non_blocking=True), y.to(DEVICE)) for x, y in loader]
            same(self, data, torch.cat([x for x, _ in batches]))
            same(self, torch.arange(10), torch.cat([y for _, y in batches]))


class Others(unittest.TestCase):
    def test_numpy(self):
        x = torch.ones(2, 3, device=DEVICE)
        for function in (x.numpy, lambda: np.asarray(x), lambda: np.array([x])):
            with self.assertRaisesRegex(TypeError, "can't convert xla:0 device type tensor to numpy. Use Tensor.cpu"):
                function()

    def test_data_ptr_is_an_identity(self):
        x, y = torch.ones(2, 3, device=DEVICE), torch.ones(2, 3, device=DEVICE)
        self.assertNotEqual(x.data_ptr(), y.data_ptr())
        self.assertEqual(x[1, 2:].data_ptr() - x.data_ptr(), 20)
        self.assertEqual(x.view(torch.int32).data_ptr(), x.data_ptr())
        self.assertEqual(torch.empty(0, device=DEVICE).data_ptr(), 0)
        self.assertGreaterEqual(x.data_ptr(), 1 << 62, "no address of this process")

    def test_dlpack(self):
        host, x = both(2, 3)
        for function in (x.__dlpack__, lambda: x.__dlpack__(dl_device=(2, 0)), lambda: np.from_dlpack(x),
                         lambda: torch.from_dlpack(x)):
            with self.assertRaisesRegex(BufferError, "no memory that others can read: use Tensor.cpu"):
                function()
        with self.assertRaisesRegex(BufferError, "without a copy"):
            x.__dlpack__(dl_device=(1, 0), copy=False)
        self.assertEqual(x.__dlpack_device__(), (12, 0))
        self.assertEqual(host.__dlpack_device__()[0], 1)
        copied = torch.utils.dlpack.from_dlpack(x.__dlpack__(dl_device=(1, 0)))
        self.assertTrue(torch.equal(copied, host))
        self.assertTrue(np.array_equal(np.from_dlpack(x, device="cpu"), host.numpy()))
        again = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))  # torch itself knows whose it is
        again.mul_(2)
        same(self, host * 2, x)
        self.assertTrue(np.array_equal(np.from_dlpack(host), host.numpy()))

    def test_accelerator(self):
        self.assertTrue(torch.accelerator.is_available())
        self.assertEqual(torch.accelerator.current_accelerator(), torch.device("xla"))
        self.assertEqual((torch.accelerator.device_count(), torch.accelerator.current_device_index()), (1, 0))
        x = torch.ones(1000, 1000, device=DEVICE) + 1
        for device in ((), (None,), (0,), ("xla",), (DEVICE,)):
            torch.accelerator.synchronize(*device)
        self.assertGreaterEqual(torch.accelerator.memory_allocated(), x.nbytes)
        self.assertGreaterEqual(torch.accelerator.max_memory_allocated(0), torch.accelerator.memory_reserved())
        self.assertGreaterEqual(torch.accelerator.memory_stats()["allocated_bytes.all.current"], x.nbytes)
        torch.accelerator.empty_cache()
        torch.accelerator.set_device_index(0)
        with torch.accelerator.device_index(0), torch.accelerator.device_index(None):
            self.assertEqual(torch.ones(1, device=DEVICE).device.index, 0)
        for function in (torch.accelerator.set_device_index, torch.accelerator.synchronize, torch.accelerator.device_index):
            with self.assertRaisesRegex(RuntimeError, "xla:1 is no device: there is 1"):
                function(1)
        with self.assertRaisesRegex(NotImplementedError, "torch.accelerator.reset_peak_memory_stats is not there"):
            torch.accelerator.reset_peak_memory_stats()

    def test_dtypes_that_are_not_there(self):
        for name in ("complex32", "float4_e2m1fn_x2", "float8_e8m0fnu", "uint4", "int4", "bits8"):
            if not hasattr(torch, name):
                continue
            dtype = getattr(torch, name)
            with self.subTest(name), self.assertRaisesRegex(NotImplementedError, f"the device xla has no dtype torch.{name}"):
                torch.empty(4, device=DEVICE, dtype=dtype)
        for function in (
            lambda: torch.ones(2, device=DEVICE, dtype=torch.quint8),
            lambda: torch.eye(3).to_sparse().to(DEVICE),
            lambda: torch.ones(3, device=DEVICE).to_mkldnn(),
        ):
            with self.assertRaisesRegex((NotImplementedError, RuntimeError), "xla"):
                function()

    def test_more_than_32_dimensions(self):
        x = torch.ones(3, device=DEVICE)
        for function in (
            lambda: x.view([1] * 40 + [3]),
            lambda: x.expand([1] * 40 + [3]),
            lambda: torch.ones([1] * 33).to(DEVICE),
            lambda: torch.zeros([1] * 33, device=DEVICE),
        ):
            with self.assertRaisesRegex((NotImplementedError, RuntimeError), "at most 32"):
                function()


if __name__ == "__main__":
    unittest.main()
