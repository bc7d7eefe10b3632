"""torch_xla.distributed.parallel_loader: reads and uploads batches on threads, ahead of the step that wants them.

One thread reads the user's loader and deals batches to the devices in turn. For each device, threads upload them, and
the iterator hands them out in order. Queues bound how far both run ahead:

    user's loader -> reader -> [loader_prefetch_size] -> uploaders -> [device_prefetch_size] -> PerDeviceLoader

An exception of the user's loader or of an upload reaches whoever asks for the batch that it is in the place of.
"""
import collections
import concurrent.futures
import functools
import threading
import warnings
import weakref

import torch

from .. import _later, _state, _step
from ..core import xla_model as xm

_END = object()


class _Queue:
    """A bounded queue that can be closed: then nothing goes in, and who waits is let go."""

    def __init__(self, capacity):
        self._capacity = capacity
        self._items = collections.deque()
        self._closed = False
        self._changed = threading.Condition()

    def put(self, item):
        """False where the queue was closed before there was room."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._capacity)
            if self._closed:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def get(self):
        """The next item, or _END where the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._items)
            if self._closed:
                return _END
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def close(self):
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()


class _Lane:
    """The way of one device's batches: from the reader to the uploaders to the iterator."""

    def __init__(self, device, loader_prefetch_size, device_prefetch_size, transfer_threads):
        self.device = device
        self.read = _Queue(loader_prefetch_size)
        self.uploaded = _Queue(device_prefetch_size)
        self.transfer_threads = transfer_threads
        self._taking = threading.Lock()

    def upload(self):
        """Uploads batches until the reader has no more; what the iterator gets keeps the reader's order."""
        while True:
            with self._taking:
                batch = self.read.get()
                slot = concurrent.futures.Future()
                if batch is _END or not self.uploaded.put(slot):
                    return
                if isinstance(batch, _Last):
                    # The other uploaders of this lane have nothing to wait for.
                    self.read.close()
                    batch.give(slot)
                    return
            try:
                slot.set_result(_to_device(batch, self.device))
            except BaseException as error:
                slot.set_exception(error)

    def close(self):
        self.read.close()
        self.uploaded.close()


class _Last:
    """The end of the reader: the end of the epoch, or the exception of the user's loader."""

    def __init__(self, error=None):
        self._error = error

    def give(self, slot):
        if self._error is None:
            slot.set_result(_END)
        else:
            slot.set_exception(self._error)


def _to_device(batch, device):
    if device.type == "cpu":
        return batch
    return xm.send_cpu_data_to_device((batch,), device)[0]


def _read(loader, lanes):
    """Deals batches to the lanes in rounds. A round that cannot feed every lane is dropped."""
    last = _Last()
    rounds = 0
    try:
        pending = []
        for batch in loader:
            pending.append(batch)
            if len(pending) < len(lanes):
                continue
            if not all(lane.read.put(one) for lane, one in zip(lanes, pending)):
                return
            pending = []
            rounds += 1
        if rounds == 0:
            warnings.warn(f"the loader has no batch for each of {len(lanes)} devices ({len(pending)} in all): this epoch "
                          "has no step")
    except BaseException as error:
        last = _Last(error)
    for lane in lanes:
        lane.read.put(last)


def _close(lanes):
    for lane in lanes:
        lane.close()


class PerDeviceLoader:
    """Iterates over the batches of one device; a barrier before every `batches_per_execution`-th batch and at the end.

    It keeps the ParallelLoader alive, whose end closes the queues and with them the threads.
    """

    def __init__(self, loader, lane, enumerate):
        self._loader = loader
        self._lane = lane
        self._enumerate = enumerate
        self._handed_out = 0
        self._ended = False

    def __iter__(self):
        return self

    def __len__(self):
        return self._loader.per_device_samples()

    def __next__(self):
        return self.next()

    def _barrier(self):
        if self._lane.device.type != "cpu":
            _step.sync(self._lane.device.index)

    def next(self):
        if self._ended:
            raise StopIteration
        # The work of the batches before: it runs on the device while this one is waited for.
        if self._handed_out % self._loader.batches_per_execution == 0:
            self._barrier()
        try:
            slot = self._lane.uploaded.get()
            batch = _END if slot is _END else slot.result()
        except BaseException:
            self._ended = True
            self._loader.close()
            raise
        if batch is _END:
            self._ended = True
            if self._handed_out % self._loader.batches_per_execution:
                self._barrier()
            raise StopIteration
        self._handed_out += 1
        return (self._handed_out - 1, batch) if self._enumerate else batch


class ParallelLoader:
    """Feeds devices from one loader: batches are dealt in turn, and the rest that cannot feed every device is dropped.

    `batchdim` is taken because programs pass it; batches go to devices whole, so nothing depends on it.
    """

    def __init__(self, cpu_loader, devices, batchdim=0, batches_per_execution=1, loader_prefetch_size=16,
                 device_prefetch_size=8, host_to_device_transfer_threads=1, input_sharding=None):
        if input_sharding is not None:
            raise NotImplementedError("input_sharding: torch_xla.distributed.spmd comes later")
        for name, value in (("batches_per_execution", batches_per_execution), ("loader_prefetch_size", loader_prefetch_size),
                            ("device_prefetch_size", device_prefetch_size),
                            ("host_to_device_transfer_threads", host_to_device_transfer_threads)):
            if value < 1:
                raise ValueError(f"ParallelLoader: {name} has to be 1 or more, not {value}")
        if not devices:
            raise ValueError("ParallelLoader: there has to be a device")
        self._cpu_loader = cpu_loader
        self._batchdim = batchdim
        self._batches_per_execution = batches_per_execution
        self._lanes = [
            _Lane(_device(device), loader_prefetch_size, device_prefetch_size, host_to_device_transfer_threads)
            for device in devices
        ]
        self._finalizer = weakref.finalize(self, _close, self._lanes)
        self._start()

    def _start(self):
        """Threads hold lanes and the user's loader, not this object: its end closes the lanes, and they end."""
        targets = [functools.partial(_read, self._cpu_loader, self._lanes)]
        for lane in self._lanes:
            targets += [lane.upload] * lane.transfer_threads
        for target in targets:
            threading.Thread(target=target, name="torch_xla loader", daemon=True).start()

    @property
    def batches_per_execution(self):
        return self._batches_per_execution

    @property
    def batchdim(self):
        return self._batchdim

    def per_device_samples(self):
        """Batches that each device gets."""
        return len(self._cpu_loader) // len(self._lanes)

    def per_device_loader(self, device, enumerate=False):
        """The iterator of one device's batches, or with `enumerate` of (index, batch)."""
        wanted = _device(device)
        for lane in self._lanes:
            if lane.device == wanted:
                return PerDeviceLoader(self, lane, enumerate)
        devices = ", ".join(str(lane.device) for lane in self._lanes)
        raise ValueError(f"the loader has no batches for {wanted}: its devices are {devices}")

    def close(self):
        """Ends the threads. What was read ahead is dropped."""
        self._finalizer()


def _device(device):
    device = torch.device(device)
    return device if device.type == "cpu" else _state.device(_state.index_of(device))


class MpDeviceLoader:
    """Iterates over a loader's batches on one device; each epoch reads and uploads anew, on threads of its own."""

    def __init__(self, loader, device, **kwargs):
        self._loader = loader
        self._device = device
        self._kwargs = kwargs
        if hasattr(loader, "dataset"):
            self.dataset = loader.dataset  # Accelerate asks for it when it saves its state, and Lightning sets it.

    def __iter__(self):
        return ParallelLoader(self._loader, [self._device], **self._kwargs).per_device_loader(self._device)

    def __len__(self):
        return len(self._loader)


def __getattr__(name):
    raise _later.missing(__name__, name)
