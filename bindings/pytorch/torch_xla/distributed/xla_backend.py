"""torch.distributed's backend `xla`: its process groups over the job of the processes that `spawn` or a launcher started.

    dist.init_process_group("xla", init_method="xla://")

Importing this module makes both names known. A group of fewer processes is a job of its own.
"""
import secrets

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from .. import _collectives, _later, _weft, _world

_REDUCES = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.AVG: "sum", dist.ReduceOp.PRODUCT: "mul", dist.ReduceOp.MIN: "min",
            dist.ReduceOp.MAX: "max", dist.ReduceOp.BAND: "and", dist.ReduceOp.BOR: "or"}


def _done(result):
    """The work of a collective, which is done when it is handed out."""
    future = torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)


class ProcessGroupXla(dist.ProcessGroup):
    """A process group whose collectives take tensors of the device `xla`."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._group = (_job_of(store, rank, size), size, rank)

    def getBackendName(self):
        return "xla"

    def _reduction(self, operation):
        """(name of the reduction, scale behind it)."""
        for known, name in _REDUCES.items():
            if operation == known:
                return name, 1.0 / self._group[1] if known == dist.ReduceOp.AVG else 1.0
        raise NotImplementedError(f"the backend xla has no reduction {operation}: it has sum, avg, product, min, max, band, bor")

    def allreduce(self, tensors, opts):
        name, scale = self._reduction(opts.reduceOp)
        _collectives.all_reduce_in_place(self._group, name, tensors, scale)
        return _done(tensors)

    def allreduce_coalesced(self, tensors, opts):
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts):
        name, scale = self._reduction(opts.reduceOp)
        for tensor in tensors:
            reduced = _collectives.all_reduce(self._group, name, tensor, scale)
            if self._group[2] == opts.rootRank:
                tensor.copy_(reduced)
        return _done(tensors)

    def broadcast(self, tensors, opts):
        _collectives.broadcast_in_place(self._group, tensors, opts.rootRank)
        return _done(tensors)

    def _gathered(self, tensor):
        """One behind the other, along a new first dimension."""
        return _collectives.all_gather(self._group, tensor.unsqueeze(0), 0)

    def allgather(self, outputs, inputs, opts=None):
        for parts, tensor in zip(outputs, inputs, strict=True):
            for part, got in zip(parts, self._gathered(tensor).unbind(0), strict=True):
                part.copy_(got)
        return _done(outputs)

    def _allgather_base(self, output, tensor, opts=None):
        output.copy_(self._gathered(tensor).view(output.shape))
        return _done(output)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, tensor in zip(outputs, inputs, strict=True):
            self._allgather_base(output, tensor)
        return _done(outputs)

    def reduce_scatter(self, outputs, inputs, opts):
        for output, parts in zip(outputs, inputs, strict=True):
            self._reduce_scatter_base(output, torch.stack(list(parts)), opts)
        return _done(outputs)

    def _reduce_scatter_base(self, output, tensor, opts):
        name, scale = self._reduction(opts.reduceOp)
        output.copy_(_collectives.reduce_scatter(self._group, name, tensor.view(self._group[1], -1), scale, 0).view(output.shape))
        return _done(output)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts):
        for output, tensor in zip(outputs, inputs, strict=True):
            self._reduce_scatter_base(output, tensor, opts)
        return _done(outputs)

    def alltoall_base(self, output, tensor, output_sizes, input_sizes, opts=None):
        if any(len(set(sizes)) > 1 for sizes in (output_sizes, input_sizes)):
            raise NotImplementedError("all_to_all_single: parts of different sizes are not there in the backend xla")
        output.copy_(_collectives.all_to_all(self._group, tensor, 0, 0).view(output.shape))
        return _done(output)

    def alltoall(self, outputs, inputs, opts=None):
        come = _collectives.all_to_all(self._group, torch.stack(list(inputs)), 0, 0)
        for output, got in zip(outputs, come.unbind(0), strict=True):
            output.copy_(got)
        return _done(outputs)

    # Newer names of the same.
    all_gather_single, all_gather_single_coalesced = _allgather_base, allgather_into_tensor_coalesced
    reduce_scatter_single, reduce_scatter_single_coalesced = _reduce_scatter_base, reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    def barrier(self, opts=None):
        job = self._group[0]
        if job is not None:
            job.barrier()
        return _done(None)


def _missing(name):
    def missing(self, *_, **__):
        raise NotImplementedError(f"torch.distributed: {name} is not there in the backend xla")

    return missing


for _name in ("send", "recv", "recv_anysource", "gather", "gather_single", "scatter", "monitored_barrier"):
    setattr(ProcessGroupXla, _name, _missing(_name))


def _job_of(store, rank, size):
    """The job of a group. That of all processes is there; a smaller one, or one in another order, is named by its first member."""
    if (rank, size) == (_world.rank(), _world.size()):
        return _world.job()
    if size == 1:
        return None
    if rank == 0:
        store.set("weft job", secrets.token_hex(16))
    name = store.get("weft job")
    return _weft.job.Job(rank, size, name, name)


def _create_xla_process_group(store, rank, size, timeout):
    if size > _world.size():
        raise RuntimeError(f"torch.distributed: a group of {size} processes, and the world of torch_xla has {_world.size()}: start "
                           "them by xmp.spawn, weft launch or torchrun")
    return ProcessGroupXla(store, rank, size, timeout)


def _rendezvous(url, timeout=default_pg_timeout, **options):
    """xla://: who this process is, as xla_model says it; the store is the first process's."""
    rank, size = _world.rank(), _world.size()
    store = dist.TCPStore("localhost", 0, size, rank == 0, timeout, wait_for_workers=False) if rank == 0 else None
    port = int(_world.gather("xla://", str(store.port).encode() if rank == 0 else b"")[0])
    if store is None:
        store = dist.TCPStore("localhost", port, size, False, timeout, wait_for_workers=False)
    yield store, rank, size


def _register():
    if dist.is_available() and "xla" not in dist.Backend.backend_list:
        dist.Backend.register_backend("xla", _create_xla_process_group, devices="xla")
        dist.register_rendezvous_handler("xla", _rendezvous)


_register()


def __getattr__(name):
    raise _later.missing(__name__, name)
