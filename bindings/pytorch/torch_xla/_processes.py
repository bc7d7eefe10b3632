"""Processes of one machine that run a function together, as ranks of one job; what `spawn` stands on.

Each child learns who it is by the variables of `weft launch`. Before it does anything else about a failure it writes it,
with the time, to a pipe: the failure that came first is the one that the parent raises, and not those of the others, which
only missed it. Then the others get SIGTERM and, GRACE seconds later, SIGKILL, with all that they started. A child whose
parent has gone ends, too.
"""
import multiprocessing
import multiprocessing.connection
import os
import pickle
import secrets
import signal
import sys
import threading
import time
import traceback

import torch.multiprocessing

from . import _state, _step, _weft, _world

GRACE = 10.0  # seconds from SIGTERM to SIGKILL
MOST_TEXT = 10_000  # characters of a traceback, and bytes of an exception: a pipe takes 64 KiB


class _RemoteTraceback(Exception):
    """The traceback of a child, as text; the cause of the exception that it raised."""

    def __init__(self, text):
        super().__init__(text)
        self._text = text

    def __str__(self):
        return f"\n\"\"\"\n{self._text}\"\"\""


def _watch_parent(sentinel):
    """Ends this process when its parent has gone, also while it waits in the library."""
    multiprocessing.connection.wait([sentinel])
    _end_group(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    _end_group(os.getpid(), signal.SIGKILL)


def _end_group(process, number):
    """Signals a process with all that it started."""
    try:
        os.killpg(process, number)
    except (ProcessLookupError, PermissionError):
        pass


def _become(rank, count, job, token):
    """What this process is from now on: a rank of the job, with one device of its own and its share of the cores."""
    os.setpgid(0, 0)
    threading.Thread(target=_watch_parent, args=(multiprocessing.parent_process().sentinel,), daemon=True).start()
    share = max(1, len(os.sched_getaffinity(0)) // count)
    os.environ.update({"WEFT_RANK": str(rank), "WEFT_WORLD_SIZE": str(count), "WEFT_LOCAL_RANK": str(rank),
                       "WEFT_LOCAL_SIZE": str(count), "WEFT_JOB": job, "WEFT_JOB_TOKEN": token, "LOCAL_RANK": str(rank)})
    os.environ.setdefault("WEFT_THREADS", str(share))
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(share)
    _world.forget()
    _state.take_one_device(rank)
    _world.job()  # Now, and not at the first call that needs it: one that ends before is then missed at once.


def _finish():
    """The end of a child, which need not be that of an interpreter: nothing that was asked for is left undone."""
    _step.wait_closures()
    _world.leave()
    _weft.end()


def _failure(error):
    """(time, exit code or None, pickled exception or None, text) of what the function raised. It fits into a pipe, so that
    sending it waits for nobody.
    """
    text = "".join(traceback.format_exception(error))[-MOST_TEXT:]
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        return time.monotonic(), code, None, text
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = None
    return time.monotonic(), None, pickled if pickled is not None and len(pickled) <= MOST_TEXT else None, text


def _child(report, rank, count, job, token, fn, args):
    try:
        _become(rank, count, job, token)
        fn(rank, *args)
        _finish()
    except BaseException as error:
        failure = _failure(error)
        if failure[1] != 0:
            report.send(failure)
            report.close()
            # The others hear now that this process ends; the rest of it ends with the process.
            _world.leave()
            sys.exit(failure[1] or 1)
        _finish()


class ProcessContext:
    """Processes that run; `join` waits for them, and raises what the first that failed raised."""

    def __init__(self, context, fn, args, count, daemon):
        job, token = f"spawn-{os.getpid()}-{secrets.token_hex(8)}", secrets.token_hex(16)
        self.processes = []
        self._reports = {}  # by rank, until the other end is closed
        self._said = {}  # by rank, what _failure gave
        self._failed = None
        try:
            for rank in range(count):
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(theirs, rank, count, job, token, fn, args), daemon=daemon,
                                          name=f"torch_xla rank {rank}")
                process.start()
                theirs.close()
                self.processes.append(process)
                self._reports[rank] = ours
        except BaseException:
            self._end()
            raise

    def pids(self):
        return [process.pid for process in self.processes]

    def join(self, timeout=None):
        """True when all have ended well; False where `timeout` seconds were not enough. Raises the first failure, once the
        others are ended.
        """
        end = None if timeout is None else time.monotonic() + timeout
        if self._failed is not None:
            raise self._failed
        try:
            while True:
                self._listen()
                running = [process for process in self.processes if process.exitcode is None]
                failed = [rank for rank, process in enumerate(self.processes)
                          if rank in self._said or process.exitcode]  # exitcode: neither None nor 0
                if failed:
                    self._raise(failed)
                if not running:
                    self._hang_up()
                    return True
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                multiprocessing.connection.wait([process.sentinel for process in running] + list(self._reports.values()), left)
        except KeyboardInterrupt:
            self._end()
            raise

    def _listen(self):
        """Takes what children have written of their failures."""
        for rank, report in list(self._reports.items()):
            try:
                if report.poll():
                    self._said[rank] = report.recv()
            except (EOFError, OSError):
                report.close()
                del self._reports[rank]

    def _raise(self, failed):
        """The failure that came first: a process that ended without a word comes before those that say why they ended."""
        self._listen()
        _, rank = min((self._said[rank][0] if rank in self._said else 0.0, rank) for rank in {*failed, *self._said})
        self._end()
        self._failed = self._error_of(rank, self._said.get(rank))
        raise self._failed

    def _error_of(self, rank, said):
        process = self.processes[rank]
        if said is not None and said[1] is None:
            if said[2] is not None:
                error = pickle.loads(said[2])
                error.__cause__ = _RemoteTraceback(f"-- Process {rank} raised:\n{said[3]}")
                return error
            return torch.multiprocessing.ProcessRaisedException(f"process {rank} raised:\n{said[3]}", rank, process.pid)
        code, name = process.exitcode if said is None else said[1], None
        if code < 0:
            name = signal.Signals(-code).name
        how = f"signal {name}" if name else f"exit code {code}"
        return torch.multiprocessing.ProcessExitedException(f"process {rank} ended by {how}", rank, process.pid, code, name)

    def _end(self):
        """Ends all processes, with what they started."""
        for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
            end = None if patience is None else time.monotonic() + patience
            for process in self.processes:
                _end_group(process.pid, number)
                if process.is_alive():
                    os.kill(process.pid, number)  # It may not have a group of its own yet.
            for process in self.processes:
                process.join(None if end is None else max(0.0, end - time.monotonic()))
        self._hang_up()

    def _hang_up(self):
        for report in self._reports.values():
            report.close()
        self._reports.clear()


def start(fn, args, count, daemon, start_method):
    """Starts `count` processes that run fn(rank, *args)."""
    context = multiprocessing.get_context(start_method)
    if start_method != "fork" and getattr(fn, "__module__", None) == "__main__" and not _has_file():
        raise RuntimeError(f"spawn: '{getattr(fn, '__name__', fn)}' was defined in a notebook or at a prompt, where processes "
                           f"that start anew cannot find it: use start_method='fork', or define it in a file that is imported")
    _weft.release_unused()
    return ProcessContext(context, fn, args, count, daemon)


def _has_file():
    """Whether the main program is a file, which a process that starts anew can run up to its main part."""
    main = sys.modules["__main__"]
    return getattr(main, "__spec__", None) is not None or os.path.exists(getattr(main, "__file__", None) or "")
