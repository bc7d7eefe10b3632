"""ParallelLoader and MpDeviceLoader: what arrives, in which order, how far ahead, and what happens when something fails."""
import collections
import gc
import threading
import time
import unittest
import warnings

import support  # noqa: F401
import torch
import torch_xla
from torch_xla import _step
from torch_xla.distributed import parallel_loader as pl

DEVICE = torch.device("xla", 0)
Pair = collections.namedtuple("Pair", "data target")


def batches(count):
    return [(torch.full((2, 3), float(at)), torch.full((2,), at)) for at in range(count)]


def mark_steps():
    return _step.barriers()


def loader_threads():
    return [thread for thread in threading.enumerate() if thread.name == "torch_xla loader"]


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


class Batches(unittest.TestCase):

    def test_arrive_in_order_on_the_device(self):
        for threads in (1, 3):
            loader = pl.MpDeviceLoader(batches(20), DEVICE, host_to_device_transfer_threads=threads)
            self.assertEqual(len(loader), 20)
            for _ in range(2):  # Each epoch begins anew.
                seen = []
                for data, target in loader:
                    self.assertEqual((data.device, target.device), (DEVICE, DEVICE))
                    self.assertEqual((data.dtype, target.dtype), (torch.float32, torch.int64))
                    self.assertEqual(data.shape, (2, 3))
                    seen.append((data.cpu()[0, 0].item(), target.cpu()[0].item()))
                self.assertEqual(seen, [(at, at) for at in range(20)])

    def test_the_dataset_is_the_loaders(self):
        data = torch.utils.data.TensorDataset(torch.ones(3))
        self.assertIs(pl.MpDeviceLoader(torch.utils.data.DataLoader(data), DEVICE).dataset, data)

    def test_containers_stay_what_they_are(self):
        batch = {"pair": Pair(torch.ones(2), torch.zeros(2)), "list": [torch.ones(1), "text", 3], "none": None}
        got, = list(pl.MpDeviceLoader([batch], DEVICE))
        self.assertIsInstance(got["pair"], Pair)
        self.assertEqual(got["pair"].data.device, DEVICE)
        self.assertEqual(got["list"][1:], ["text", 3])
        self.assertEqual(got["list"][0].device, DEVICE)
        self.assertIsNone(got["none"])
        self.assertEqual(batch["list"][0].device.type, "cpu")

    def test_enumerate(self):
        loader = pl.ParallelLoader(batches(3), [DEVICE])
        self.assertEqual(loader.per_device_samples(), 3)
        iterator = loader.per_device_loader(DEVICE, enumerate=True)
        self.assertIsInstance(iterator, pl.PerDeviceLoader)
        self.assertEqual(len(iterator), 3)
        got = list(iterator)
        self.assertEqual([index for index, _ in got], [0, 1, 2])
        self.assertEqual([target.cpu()[0].item() for _, (_, target) in got], [0, 1, 2])

    def test_barriers(self):
        """One before each batch and one at the end; fewer where several batches make one execution."""
        for per_execution, count in ((1, 7), (3, 3), (2, 4), (6, 2)):
            before = mark_steps()
            self.assertEqual(len(list(pl.MpDeviceLoader(batches(6), DEVICE, batches_per_execution=per_execution))), 6)
            self.assertEqual(mark_steps() - before, count, per_execution)


    def test_barrier_runs_the_step_before_the_next_batch(self):
        ran = []
        for at, _ in enumerate(pl.MpDeviceLoader(batches(3), DEVICE)):
            self.assertEqual(ran, list(range(at)))
            torch_xla.core.xla_model.add_step_closure(ran.append, args=(at,))
        self.assertEqual(ran, [0, 1, 2])

    def test_what_cannot_feed_every_device_is_dropped(self):
        loader = pl.ParallelLoader(batches(7), ["cpu", DEVICE])
        self.assertEqual(loader.per_device_samples(), 3)
        host = [batch[1][0].item() for batch in loader.per_device_loader("cpu")]
        device = [batch[1].cpu()[0].item() for batch in loader.per_device_loader(DEVICE)]
        self.assertEqual((host, device), ([0, 2, 4], [1, 3, 5]))

    def test_epoch_without_a_step_warns(self):
        for count, devices in ((0, [DEVICE]), (1, ["cpu", DEVICE])):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.assertEqual(list(pl.ParallelLoader(batches(count), devices).per_device_loader(DEVICE)), [])
            self.assertEqual(len(caught), 1)
            self.assertIn("this epoch has no step", str(caught[0].message))


class Ahead(unittest.TestCase):

    def test_no_further_than_was_said(self):
        """As many batches as there is room for in both queues, and one in the hands of each of the two threads."""
        for read, uploaded in ((1, 1), (6, 1), (1, 6), (4, 2)):
            taken = []

            def endless(taken=taken):
                while True:
                    taken.append(len(taken))
                    yield torch.full((1,), 0.0)

            loader = pl.ParallelLoader(endless(), [DEVICE], loader_prefetch_size=read, device_prefetch_size=uploaded)
            self.assertTrue(wait_for(lambda: len(taken) >= read + uploaded + 1), (read, uploaded, taken))
            time.sleep(0.2)
            self.assertLessEqual(len(taken), read + uploaded + 2, (read, uploaded))
            loader.close()

    def test_reading_and_uploading_go_on_during_a_step(self):
        """During the first step the loader gets as far ahead as it may, with nobody asking for a batch."""
        taken = []

        def counted():
            for at, batch in enumerate(batches(30)):
                taken.append(at)
                yield batch

        loader = pl.MpDeviceLoader(counted(), DEVICE)
        for at, _ in enumerate(loader):
            if at == 0:
                self.assertTrue(wait_for(lambda: len(taken) >= 25), taken)


class Failures(unittest.TestCase):

    def test_users_exception_arrives_in_its_place(self):

        def broken():
            yield torch.ones(1)
            yield torch.ones(1)
            raise KeyError("the third batch")

        for threads in (1, 3):
            got = 0
            with self.assertRaisesRegex(KeyError, "the third batch"):
                for _ in pl.MpDeviceLoader(broken(), DEVICE, host_to_device_transfer_threads=threads):
                    got += 1
            self.assertEqual(got, 2)

    def test_iterator_that_cannot_begin(self):

        class Broken:

            def __iter__(self):
                raise OSError("no data here")

            def __len__(self):
                return 3

        with self.assertRaisesRegex(OSError, "no data here"):
            next(iter(pl.MpDeviceLoader(Broken(), DEVICE)))

    def test_upload_exception_arrives(self):
        strange = torch.ones(2, 2).to_sparse()
        with self.assertRaises((RuntimeError, TypeError, NotImplementedError, ValueError)):
            list(pl.MpDeviceLoader([(torch.ones(1), strange)], DEVICE))

    def test_threads_end_when_the_loop_is_left(self):
        wait_for(lambda: not loader_threads())

        def endless():
            while True:
                yield torch.ones(1)

        for _ in pl.MpDeviceLoader(endless(), DEVICE):
            break
        gc.collect()
        self.assertTrue(wait_for(lambda: not loader_threads()), loader_threads())

    def test_after_the_end_and_after_close(self):
        iterator = pl.ParallelLoader(batches(1), [DEVICE]).per_device_loader(DEVICE)
        self.assertEqual(len(list(iterator)), 1)
        self.assertRaises(StopIteration, next, iterator)
        loader = pl.ParallelLoader(batches(3), [DEVICE])
        loader.close()
        self.assertEqual(list(loader.per_device_loader(DEVICE)), [])

    def test_arguments(self):
        for name in ("batches_per_execution", "loader_prefetch_size", "device_prefetch_size",
                     "host_to_device_transfer_threads"):
            with self.assertRaisesRegex(ValueError, f"{name} has to be 1 or more, not 0"):
                pl.ParallelLoader([], [DEVICE], **{name: 0})
        with self.assertRaisesRegex(NotImplementedError, "torch_xla.distributed.spmd comes later"):
            pl.ParallelLoader([], [DEVICE], input_sharding=object())
        with self.assertRaisesRegex(ValueError, "there has to be a device"):
            pl.ParallelLoader([], [])
        with self.assertRaisesRegex(ValueError, "has no batches for cpu"):
            pl.ParallelLoader([], [DEVICE]).per_device_loader("cpu")


if __name__ == "__main__":
    unittest.main()
