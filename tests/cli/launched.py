"""What the tests of `weft launch` share: the program, an environment that says nothing of jobs, and a program of the C ABI that joins one."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
PROGRAM = pathlib.Path(os.environ["WEFT_BUILD"]) / "bin" / "weft"
CLEAN = {k: v for k, v in os.environ.items() if not re.match(r"WEFT_(?!LIB)|RANK$|WORLD_SIZE$|LOCAL_RANK$|OMPI_|PMI_|SLURM_|OMP_NUM", k)}

# A program of the C ABI: joins the job and runs what `act` says.
JOB = """
import ctypes as c, os, sys, time
sys.path.insert(0, %r)
import weft_ffi as w
LIB = w.load(os.environ["WEFT_LIB"])
job, info, ctx = w.weft_job(), w.weft_job_info(), w.weft_context()
def check(error):
    w.check(LIB, error)
def join(**fields):
    options = w.weft_job_options()
    LIB.weft_job_options_init(c.byref(options), c.sizeof(options))
    for name, value in fields.items():
        setattr(options, name, value)
    check(LIB.weft_job_join(c.byref(options), c.byref(job)))
    LIB.weft_job_info_init(c.byref(info), c.sizeof(info))
    check(LIB.weft_job_read_info(job, c.byref(info)))
def tensor(values, dtype=None):
    data, out = (c.c_float * len(values))(*values), w.weft_tensor()
    check(LIB.weft_tensor_from_host(ctx, None, w.WEFT_F32, (c.c_int64 * 1)(len(values)), 1, data, c.sizeof(data), c.byref(out)))
    return out
def values(t, count):
    data = (c.c_float * count)()
    check(LIB.weft_tensor_to_host(t, data, c.sizeof(data)))
    return list(data)
def through(function, *arguments):
    out = w.weft_tensor()
    check(function(job, *arguments, c.byref(out)))
    return out
try:
    check(LIB.weft_context_create(None, c.byref(ctx)))
    join(timeout_ms=int(os.environ.get("TIMEOUT_MS", "60000")))
%%s
except Exception as error:
    print("ERROR", error, flush=True)
    sys.exit(3)
""" % str(pathlib.Path(os.environ["WEFT_BUILD"]) / "generated" / "bindings" / "ffi" / "python")


class Launched(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = pathlib.Path(work.name)

    def launch(self, *words, status=0, **variables):
        done = subprocess.run([PROGRAM, "launch", *map(str, words)], capture_output=True, text=True, timeout=120, cwd=self.work,
                              env=dict(CLEAN, XDG_CACHE_HOME=str(self.work), **variables))
        self.assertEqual(status, done.returncode, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def python(self, count, text, *flags, **more):
        return self.launch("-n", count, *flags, "--", sys.executable, "-u", "-c", text, **more)

    def text_of(self, act):
        return JOB % "".join(f"    {line}\n" for line in act.strip().splitlines())

    def job(self, count, act, *flags, **more):
        return self.python(count, self.text_of(act), *flags, **more)

    def lines(self, out):
        """Of each rank, without what stands before them."""
        ranks = {}
        for line in out.splitlines():
            rank, text = re.fullmatch(r"\[(\d+) [^\]]+\] (.*)", line).groups()
            ranks.setdefault(int(rank), []).append(text)
        return ranks

    def runs(self, pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False
