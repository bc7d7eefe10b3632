"""torch_xla.distributed.data_parallel: one model on several devices, each driven by a thread of this process."""
import copy
import threading

import torch

from .. import _collectives, _later, _state, _world
from ..core import xla_model as xm
from . import parallel_loader as pl

# Programs of 2019 take it from here.
ParallelLoader = pl.ParallelLoader


class Context:
    """What one device's loop keeps from one call to the next, such as its optimizer, as attributes."""

    def __init__(self, device):
        self.device = device

    def getattr_or(self, name, default):
        """The attribute; where there is none, `default` (called, where it can be) becomes it."""
        if not hasattr(self, name):
            setattr(self, name, default() if callable(default) else default)
        return getattr(self, name)


class DataParallel:
    """Copies of a model, one on each device. Calling it runs a loop function in a thread for each of them.

    `network` is a module, or a class or function that makes one. Without devices ([]) the model runs on the CPU, by
    PyTorch itself.
    """

    def __init__(self, network, device_ids=None):
        if device_ids is None:
            device_ids = xm.get_xla_supported_devices()
        module = network if isinstance(network, torch.nn.Module) else network()
        self._native = not device_ids
        if self._native:
            self._devices = [next((parameter.device for parameter in module.parameters()), torch.device("cpu"))]
            self._models = [module]
        else:
            self._devices = [_state.device(_state.index_of(device)) for device in device_ids]
            self._models = [copy.deepcopy(module).to(device) for device in self._devices]
        self._contexts = [Context(device) for device in self._devices]

    @property
    def devices(self):
        return self._devices

    @property
    def models(self):
        return self._models

    def __call__(self, loop_fn, loader, batchdim=0):
        """loop_fn(model, loader, device, context) for each device; the list of results, in the devices' order.

        The loader that a loop gets yields (index, batch). Collectives of core.xla_model in a loop are those of the loops, so
        xm.optimizer_step takes the mean of their gradients. When a loop raises, the others end at their next batch or
        collective, and its exception is raised here.
        """
        if self._native:
            return [loop_fn(self._models[0], enumerate(loader), self._devices[0], self._contexts[0])]
        xm.wait_device_ops()
        parallel = pl.ParallelLoader(loader, self._devices, batchdim=batchdim)
        results = [None] * len(self._models)
        errors = []
        jobs, give_up = _collectives.ThreadJob.group(len(self._models))

        def run(at):
            device = self._devices[at]
            _state.set_current_index(device.index)
            if len(jobs) > 1:
                _world.set_threads((jobs[at], len(jobs), at))
            try:
                batches = parallel.per_device_loader(device, enumerate=True)
                results[at] = loop_fn(self._models[at], batches, device, self._contexts[at])
            except BaseException as error:
                errors.append(error)
                parallel.close()
                give_up()

        threads = [threading.Thread(target=run, args=(at,), name=f"torch_xla loop {at}") for at in range(len(self._models))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        parallel.close()
        if errors:
            raise errors[0]
        return results


def __getattr__(name):
    raise _later.missing(__name__, name)
