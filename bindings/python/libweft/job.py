"""Jobs: several processes that run one program together, on one host or several.

job = wf.job.Job()                    # who it is, `weft launch`, torchrun, MPI, Slurm and others say
loader = wf.data.Loader(x, y, size=32 // job.size, rank=job.rank, ranks=job.size, job=job)
optimizer = wf.optim.AdamW(model, job=job, shard_state=True)
"""

import ctypes
import json
import os

from . import _call, files
from ._call import (
    Handle,
    bind,
    blob_text,
    byref,
    c_void_p,
    check,
    done,
    empty_struct,
    enumerator,
    handle_class,
    handles,
    now,
    quick,
    struct_of,
    text_of,
)
from ._context import start
from ._errors import InvalidArgument
from ._wait import blocking

__all__ = ["Job", "find"]

_join = bind("weft_job_join")
_find = bind("weft_job_find")
_info = quick("weft_job_read_info")
_barrier = bind("weft_job_barrier")
_all_reduce = bind("weft_job_all_reduce")
_all_gather = bind("weft_job_all_gather")
_reduce_scatter = bind("weft_job_reduce_scatter")
_all_to_all = bind("weft_job_all_to_all")
_broadcast = bind("weft_job_broadcast")
_reduce = bind("weft_job_reduce")
_record = bind("weft_job_record")
_preempt = quick("weft_job_preempt", None)
_preempted = bind("weft_job_preempted")
_save = bind("weft_checkpoint_save_job")
_leave = bind("weft_job_leave")
_JobHandle = handle_class("JobHandle", quick("weft_job_release", None))
_REDUCTIONS = {"sum": 0, "product": 1, "min": 2, "max": 3, "and": 4, "or": 5}  # weft_job_reduction
_RECORDED = {"sum": 0, "mean": 6}
_ANY = {**_REDUCTIONS, **_RECORDED}
_COLLECTIVES = {"all_reduce": 0, "all_gather": 1, "reduce_scatter": 2, "all_to_all": 3, "broadcast": 4}  # weft_job_collective


def _options(rank, size, local_rank, local_size, identity, token, coordinator, timeout):
    if (rank is None) != (size is None):
        raise InvalidArgument("Job: rank and size go together, and one of them was given")
    if (local_rank is None) != (local_size is None):
        raise InvalidArgument("Job: local_rank and local_size go together, and one of them was given")
    texts = {}
    for name, text in (("id", identity), ("token", token), ("coordinator", coordinator)):
        if text is not None:
            data = text.encode()
            texts.update({name: data, name + "_length": len(data)})
    return struct_of(
        "weft_job_options",
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        timeout_ms=max(int(timeout * 1000), 1),
        context=now.context or start(),  # Ctrl-C ends the waits of the job.
        **texts,
    )


def find():
    """Who this process would be in a job, and which rule says so, without joining one.

    >>> wf.job.find()["size"]
    1
    """
    blob = c_void_p()
    check(_find(None, byref(blob)))
    return json.loads(blob_text(blob))


class Job:
    """A membership. Making one waits until all processes have come; what is not given is found, as `find` says. All processes
    make the same calls in the same order, and an error of one is an error of all.

    The collectives work on values: they read their input, wait for the others and give a new tensor without a gradient. `reduce`
    and `record` are recorded.

    >>> job = wf.job.Job(rank=0, size=1)
    >>> job.all_reduce(wf.tensor([1.0, 2.0])).tolist(), job.reduce([wf.ones(2)])[0].tolist()
    ([1.0, 2.0], [1.0, 1.0])
    >>> job.leave()
    """

    def __init__(
        self,
        rank=None,
        size=None,
        local_rank=None,
        local_size=None,
        identity=None,
        token=None,
        coordinator=None,
        timeout=300.0,
    ):
        options = _options(rank, size, local_rank, local_size, identity, token, coordinator, timeout)
        self._h = _JobHandle()
        check(blocking(_join, options, byref(self._h)))

    def _field(self, name):
        info = empty_struct("weft_job_info")
        check(_info(self._h, info))
        return _call.field(info, "weft_job_info", name)

    @property
    def rank(self):
        return self._field("rank")

    @property
    def size(self):
        return self._field("size")

    @property
    def local_rank(self):
        """Among the processes of this host."""
        return self._field("local_rank")

    @property
    def local_size(self):
        return self._field("local_size")

    @property
    def incarnation(self):
        """How often the job was started again."""
        return self._field("incarnation")

    @property
    def collectives(self):
        """How many collectives this process has begun."""
        return self._field("collectives")

    def _through(self, function, x, *more):
        handle = Handle()
        check(blocking(function, self._h, x._h, *more, byref(handle)))
        return done(handle)

    def all_reduce(self, x, reduction="sum"):
        """The reduction over all processes: "sum", "product", "min", "max", "and" or "or"."""
        return self._through(_all_reduce, x, enumerator(reduction, _REDUCTIONS, "all_reduce", "reduction"))

    def all_gather(self, x):
        """The values of all processes, one behind the other along the first axis."""
        return self._through(_all_gather, x)

    def reduce_scatter(self, x, reduction="sum"):
        """This process's part of the reduction, along the first axis."""
        return self._through(_reduce_scatter, x, enumerator(reduction, _REDUCTIONS, "reduce_scatter", "reduction"))

    def all_to_all(self, x):
        """Part k of the result is this process's part of the value of process k."""
        return self._through(_all_to_all, x)

    def broadcast(self, x, root=0):
        """The value of one process; the others' has its shape and type."""
        return self._through(_broadcast, x, _call.whole(root, "broadcast", "root"))

    def barrier(self):
        """Waits until all processes have come here."""
        check(blocking(_barrier, self._h))

    def reduce(self, tensors, reduction="mean", first_bucket_bytes=0, bucket_bytes=0):
        """The mean or the sum of each tensor over all processes, as a part of the step's program. They travel together, the last
        first: a bucket of 1 MiB, then buckets of 25 MiB."""
        tensors = list(tensors)
        array, count = handles(tensors)
        out = (c_void_p * max(len(tensors), 1))()
        number = enumerator(reduction, _RECORDED, "reduce", "reduction")
        options = struct_of(
            "weft_job_reduce_options", first_bucket_bytes=first_bucket_bytes, bucket_bytes=bucket_bytes
        )
        check(_reduce(_call.mark(), self._h, array, count, number, options, out))
        return [done(Handle(out[i])) for i in range(len(tensors))]

    def record(self, collective, x, reduction="sum", root=0):
        """A collective as a part of the step's program, with its gradient: "all_reduce", "all_gather", "reduce_scatter",
        "all_to_all" or "broadcast". Reductions are "mean" and those of all_reduce.

        >>> x, job = wf.Parameter([1.0, 2.0]), wf.job.Job(rank=0, size=1)
        >>> wf.gradients((job.record("all_gather", x) * 3).sum(), x).tolist()
        [3.0, 3.0]
        """
        handle = Handle()
        kind = enumerator(collective, _COLLECTIVES, "record", "collective")
        how = enumerator(reduction, _ANY, "record", "reduction")
        where = _call.whole(root, "record", "root")
        check(_record(_call.mark(), self._h, kind, x._h, how, where, byref(handle)))
        return done(handle)

    def preempt(self):
        """Says that this process is to end soon; for a handler of SIGTERM: signal.signal(SIGTERM, lambda *_: job.preempt())."""
        _preempt(self._h)

    def preempted(self):
        """True if a process of the job is to end soon: the same answer in all of them, which ask at the same steps, save and
        leave. What was recorded and launched is waited for before."""
        out = ctypes.c_int32()
        check(blocking(_preempted, self._h, byref(out)))
        return out.value != 0

    def save(self, path, tree, *, metadata=None, step=0, durable=True, master_only=False):
        """A checkpoint that all processes write together: each a shard beside `path`, rank 0 then the file of that name. What is in
        the tree is what `wf.save` takes, and `wf.load` reads it on any number of processes. An optimizer whose state is in parts is saved
        whole. With master_only rank 0 writes one file."""
        words, kept = files.words_of(metadata)
        file = struct_of("weft_checkpoint_options", **words, step=step, durable=0 if durable else -1)
        options = struct_of("weft_job_save_options", file=file, master_only=int(bool(master_only)))
        options.kept.append(kept)
        where = text_of(os.fspath(path))
        check(blocking(_save, now.context or start(), self._h, *where, files.tree_of(tree), options), file=True)

    def leave(self):
        """Waits until all processes have come here, and leaves. Read what was recorded before."""
        check(blocking(_leave, self._h))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            self.leave()
        else:
            self._h = None  # The others hear of it at once.
