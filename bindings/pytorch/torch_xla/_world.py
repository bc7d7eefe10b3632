"""The world: the processes that train together, and who this one is among them.

What started the process says so in variables: `spawn`, `weft launch`, torchrun, MPI and the others that docs/distributed.md
lists. Where nobody does, the world is this process alone, and there is no job. A job is joined by the first call that needs
the others, which waits until all have come.
"""
import atexit
import hashlib
import os
import pickle
import secrets
import threading

from . import _weft

_lock = threading.RLock()
_thread = threading.local()
_place = None
_jobs = {}  # members by rank: their job, or None for this process alone
_secret = None  # what the processes of this world have in common, by which smaller groups are named


def place():
    """Rank, size, local rank and local size, as a dictionary; RuntimeError where the variables contradict each other."""
    global _place
    if _place is None:
        with _lock:
            _place = _place or _weft.job.find()
    return _place


def rank():
    return place()["rank"]


def size():
    return place()["size"]


def local_rank():
    return place()["local_rank"]


def local_size():
    return place()["local_size"]


def job():
    """The job of all processes; None where this one is alone."""
    return _job_of(tuple(range(size())))


def _job_of(members):
    if len(members) == 1:
        return None
    with _lock:
        if members not in _jobs:
            _jobs[members] = _join(members)
        return _jobs[members]


def _join(members):
    """A smaller group is a job of its own, named by its members and by what the first process draws for this world."""
    global _secret
    if not _jobs:
        atexit.register(leave)
    if members == tuple(range(size())):
        return _weft.job.Job()
    if _secret is None:
        drawn = secrets.token_hex(16).encode() if rank() == 0 else b""
        _secret = job().gather_bytes(drawn, size())[0]
    name = hashlib.sha256(_secret + repr(members).encode()).hexdigest()[:32].encode()
    return _weft.job.Job(members.index(rank()), len(members), name, _secret)


def _there():
    return "there is one, 0" if size() == 1 else f"there are {size()}, 0 to {size() - 1}"


def set_threads(group):
    """This thread computes together with others, for as long as `group` (job, number, rank) is set; None ends it."""
    _thread.group = group


def group(groups, who):
    """(job or None, number of processes, rank in it) of the group of ordinals that this process is in; of all without groups.

    In a thread of data_parallel.DataParallel it is the group of its threads.
    """
    if not groups:
        return getattr(_thread, "group", None) or (job(), size(), rank())
    groups = [tuple(int(ordinal) for ordinal in one) for one in groups]
    if sorted(ordinal for one in groups for ordinal in one) != list(range(size())):
        raise ValueError(f"{who}: groups {[list(one) for one in groups]} have to name each process once, and {_there()}")
    mine = next(one for one in groups if rank() in one)
    return _job_of(mine), len(mine), mine.index(rank())


def check_ordinals(ordinals, who):
    """ValueError where one of them is no process."""
    if any(not 0 <= ordinal < size() for ordinal in ordinals):
        raise ValueError(f"{who}: {list(ordinals)} names processes that do not exist: {_there()}")


def gather(tag, payload, members=None):
    """The bytes that every process (or every one of `members`) gave, by rank. All have to come with the same tag."""
    members = tuple(members) if members is not None else tuple(range(size()))
    together = _job_of(members)
    if together is None:
        return [payload]
    given = [pickle.loads(one) for one in together.gather_bytes(pickle.dumps((tag, payload)), len(members))]
    if any(other != tag for other, _ in given):
        tags = ", ".join(f"process {ordinal} at '{other}'" for ordinal, (other, _) in zip(members, given))
        raise RuntimeError(f"rendezvous: the processes met with different tags: {tags}")
    return [data for _, data in given]


def together(tag, action):
    """Runs `action` (or nothing, where it is None), then waits for the others; an error of one of them is raised by all."""
    failure, failed = None, []
    try:
        if action is not None:
            action()
    except Exception as error:
        failure = error
    if size() > 1:
        said = "" if failure is None else f"{type(failure).__name__}: {failure}"
        try:
            failed = [(ordinal, text.decode()) for ordinal, text in enumerate(gather(tag, said.encode())) if text]
        except RuntimeError:
            if failure is None:
                raise  # Its own failure says more than what became of the others.
    if failure is not None:
        raise failure
    if failed:
        raise RuntimeError(f"{tag}: process {failed[0][0]} failed: {failed[0][1]}")


def leave():
    """Leaves every job without waiting. Later calls join anew."""
    with _lock:
        for one in _jobs.values():
            if one is not None:
                one.release()
        _jobs.clear()


def forget():
    """For a process that was forked or that becomes another rank: it is not what its parent was."""
    global _place, _lock, _secret
    _lock = threading.RLock()
    _place = _secret = None
    _jobs.clear()


os.register_at_fork(after_in_child=forget)
