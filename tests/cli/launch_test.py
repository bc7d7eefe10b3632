"""`weft launch`: what ranks say and how they end, that nothing stays behind, and jobs of several processes through the C API."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from launched import CLEAN, PROGRAM, Launched


class Launch(Launched):
    def test_ranks_know_who_they_are_and_lines_say_whose_they_are(self):
        out, err = self.python(3, "import os, sys; print(os.environ['WEFT_RANK'], os.environ['WEFT_WORLD_SIZE'], os.environ['A']);"
                               "print('to stderr', file=sys.stderr)", "--env", "A=b=c")
        self.assertEqual({0: ["0 3 b=c"], 1: ["1 3 b=c"], 2: ["2 3 b=c"]}, self.lines(out))
        self.assertEqual(3, err.count("] to stderr\n"))
        self.assertRegex(err, r"weft launch: WEFT_THREADS=\d+, OMP_NUM_THREADS=\d+ for each of 3 processes")

    def test_lines_stay_whole_and_a_last_one_without_an_end_comes(self):
        out, _ = self.python(2, "import sys\nfor i in range(2000): print('x' * 70)\nsys.stdout.write('end')")
        for lines in self.lines(out).values():
            self.assertEqual(["x" * 70] * 2000 + ["end"], lines)

    def test_the_first_failure_ends_all_and_is_shown(self):
        began = time.monotonic()
        _, err = self.python(3, "import os, time\nif os.environ['WEFT_RANK'] == '1':\n  print('before the end')\n  raise SystemExit(7)\ntime.sleep(60)",
                             status=7)
        self.assertLess(time.monotonic() - began, 30)
        self.assertIn("weft launch: rank 1 ended with status 7\nweft launch: the last lines of rank 1:\n  before the end\n", err)

    def test_a_signal_is_named_and_in_the_status(self):
        _, err = self.python(2, "import os, signal, time\nif os.environ['WEFT_RANK'] == '0': os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)",
                             status=128 + 9)
        self.assertIn("weft launch: rank 0 was ended by signal 9 (Killed)\n", err)

    def test_fifty_lines_are_shown(self):
        _, err = self.python(1, "for i in range(99): print('line', i)\nraise SystemExit(1)", status=1)
        self.assertIn(":\n  line 49\n", err)
        self.assertNotIn("line 48\n", err)
        self.assertTrue(err.endswith("  line 98\n"))

    def test_one_that_ignores_sigterm_is_killed_after_the_grace(self):
        began = time.monotonic()
        self.python(2, "import os, signal, time\nif os.environ['WEFT_RANK'] == '0':\n  time.sleep(2)\n  raise SystemExit(4)\n"
                    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)", "--grace", 1, status=4)
        self.assertLess(time.monotonic() - began, 30)

    def test_what_ranks_started_ends_with_them(self):
        out, _ = self.python(2, "import os, subprocess, sys\nchild = subprocess.Popen(['sleep', '1000'])\nprint(child.pid)\n"
                             "sys.stdout.flush()\nos._exit(0)")
        time.sleep(0.2)
        for lines in self.lines(out).values():
            self.assertFalse(os.path.exists(f"/proc/{lines[0]}/cmdline") and b"sleep" in pathlib.Path(f"/proc/{lines[0]}/cmdline").read_bytes())

    def test_a_signal_to_the_launcher_ends_all(self):
        process = subprocess.Popen([PROGRAM, "launch", "-n", "2", "--", sys.executable, "-u", "-c", "import os, time; print(os.getpid()); time.sleep(100)"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=CLEAN)
        pids = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        process.stdout.close()
        self.assertEqual(128 + signal.SIGTERM, process.wait(60))
        for pid in pids:
            self.assertFalse(os.path.exists(f"/proc/{pid}"))

    def test_a_killed_launcher_leaves_no_ranks(self):
        process = subprocess.Popen([PROGRAM, "launch", "-n", "2", "--", sys.executable, "-u", "-c", "import os, time; print(os.getpid()); time.sleep(100)"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=CLEAN)
        pids = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
        process.kill()
        process.wait(60)
        process.stdout.close()
        until = time.monotonic() + 20
        while any(self.runs(pid) for pid in pids) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertFalse(any(self.runs(pid) for pid in pids))

    def test_all_start_again(self):
        text = "import os, time\nprint('try', os.environ['WEFT_RESTART'])\nif os.environ['WEFT_RESTART'] == '0': raise SystemExit(5)"
        out, err = self.python(2, text, "--max-restarts", 2)
        self.assertIn("starting all ranks again (1 of 2)", err)
        self.assertIn("try 1", self.lines(out)[0])
        self.python(1, "raise SystemExit(6)", "--max-restarts", 1, status=6)

    def test_each_rank_has_a_log(self):
        self.python(2, "import os; print('I am', os.environ['WEFT_RANK'])", "--log-dir", self.work)
        self.assertEqual(["I am 0\n", "I am 1\n"], [(self.work / f"rank-{rank}.log").read_text() for rank in range(2)])
        _, err = self.python(1, "", "--log-dir", self.work / "nowhere", status=1)
        self.assertIn("nowhere/rank-0.log: No such file or directory", err)

    def test_misuse_is_said(self):
        for words, text in ((("-n", "0", "--", "x"), "-n is a number of processes, from 1 to 1024"), (("-n", "2"), "which PROGRAM? it stands behind --"),
                            (("--env", "A", "--", "x"), "--env takes NAME=VALUE, not 'A'"), (("--grace", "x", "--", "x"), "--grace is a number of seconds")):
            self.assertIn(text, self.launch(*words, status=2)[1])
        self.assertIn("/no/such: No such file or directory", self.launch("--", "/no/such", status=127)[1])

    def test_a_job_adds_gathers_and_scatters(self):
        out, _ = self.job(4, """
r = info.rank
print(w.text(info.source, info.source_length))
print(values(through(LIB.weft_job_all_reduce, tensor([r, 1, 2.5]), w.WEFT_JOB_SUM), 3))
print(values(through(LIB.weft_job_all_reduce, tensor([r, -r]), w.WEFT_JOB_MAX), 2))
print(values(through(LIB.weft_job_all_gather, tensor([r, 10 * r])), 8))
print(values(through(LIB.weft_job_reduce_scatter, tensor([1, 2, 3, 4, 5, 6, 7, 8]), w.WEFT_JOB_SUM), 2))
print(values(through(LIB.weft_job_all_to_all, tensor([10 * r, 10 * r + 1, 10 * r + 2, 10 * r + 3])), 4))
print(values(through(LIB.weft_job_broadcast, tensor([r, r]), 2), 2))
big = values(through(LIB.weft_job_all_reduce, tensor([1.0] * 400000), w.WEFT_JOB_SUM), 400000)
print(min(big), max(big))
check(LIB.weft_job_barrier(job))
check(LIB.weft_job_leave(job))
LIB.weft_job_release(job)
""")
        for rank, lines in self.lines(out).items():
            self.assertIn(f"weft launch: WEFT_RANK={rank} WEFT_WORLD_SIZE=4", lines[0])
            self.assertEqual(["[6.0, 4.0, 10.0]", "[3.0, 0.0]", "[0.0, 0.0, 1.0, 10.0, 2.0, 20.0, 3.0, 30.0]",
                              str([4.0 * (2 * rank + 1), 4.0 * (2 * rank + 2)]), str([10.0 * k + rank for k in range(4)]), "[2.0, 2.0]", "4.0 4.0"],
                             [line.replace("-0.0", "0.0") for line in lines[1:]])

    def test_a_job_names_who_was_killed(self):
        out, err = self.job(3, """
check(LIB.weft_job_barrier(job))
if info.rank == 1: os.kill(os.getpid(), 9)
check(LIB.weft_job_barrier(job))
""", "--grace", 5, status=128 + 9)
        self.assertIn("rank 1 was ended by signal 9", err)
        said = [line for lines in self.lines(out).values() for line in lines]
        for line in said:
            self.assertRegex(line, r"rank 1 \(process \d+\) ended while .* waited in barrier, tag 2; its last call was barrier, tag 1")

    def test_a_job_names_another_shape(self):
        out, _ = self.job(2, "through(LIB.weft_job_all_reduce, tensor([1.0] * (2 + info.rank)), w.WEFT_JOB_SUM)\n", status=3)
        self.assertRegex(out, r"members of a group called different collectives: rank 1 \(process \d+\) called all_reduce \(sum\) of 3 f32")

    def test_a_job_is_joined_again_after_it_was_left(self):
        out, _ = self.job(2, """
check(LIB.weft_job_leave(job))
LIB.weft_job_release(job)
join(timeout_ms=60000)
print(values(through(LIB.weft_job_all_reduce, tensor([1.0]), w.WEFT_JOB_SUM), 1))
check(LIB.weft_job_leave(job))
""")
        self.assertEqual({0: ["[2.0]"], 1: ["[2.0]"]}, self.lines(out))

    def test_a_weft_cancel_ends_a_wait(self):
        out, _ = self.job(2, """
import threading
x = tensor([1.0])
if info.rank == 0:
    threading.Timer(0.5, lambda: LIB.weft_cancel(ctx)).start()
    through(LIB.weft_job_all_reduce, x, w.WEFT_JOB_SUM)
time.sleep(3)
check(LIB.weft_job_barrier(job))
""", status=3)
        self.assertRegex(out, r"ERROR .*rank 1 \(process \d+\) did not come to all_reduce \(sum\) of 1 f32, tag 1 before weft_cancel ended the wait of rank 0 \(process \d+\); rank 0")

    PREEMPTED = """
import signal
signal.signal(signal.SIGTERM, lambda *_: LIB.weft_job_preempt(job))
print("ready", os.getpid())
step, flag = 0, c.c_int32()
while True:
    step += 1
    total = values(through(LIB.weft_job_all_reduce, tensor([1.0]), w.WEFT_JOB_SUM), 1)
    time.sleep(0.002 * info.rank)
    check(LIB.weft_job_preempted(job, c.byref(flag)))
    if flag.value:
        break
tree = w.weft_tree()
check(LIB.weft_tree_create(c.byref(tree)))
check(LIB.weft_tree_add_i64(tree, 0, b"step", 4, step, None))
check(LIB.weft_checkpoint_save_job(ctx, job, b"run.weft", 8, tree, None))
print("saved", step)
check(LIB.weft_job_leave(job))
"""

    def preempt(self, whom):
        text = self.text_of(self.PREEMPTED)
        process = subprocess.Popen([PROGRAM, "launch", "-n", "3", "--", sys.executable, "-u", "-c", text], cwd=self.work, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env=dict(CLEAN, XDG_CACHE_HOME=str(self.work)))
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        pids, said = {}, ""
        while len(pids) < 3:
            line = process.stdout.readline()
            said += line
            if "ready" in line:
                pids[int(line[1])] = int(line.split()[-1])
            self.assertTrue(line, said)
        time.sleep(0.2)
        os.kill(process.pid if whom is None else pids[whom], signal.SIGTERM)
        said += process.communicate(timeout=60)[0]
        self.assertEqual(0, process.returncode, said)
        steps = [line.split()[-1] for line in said.splitlines() if "saved" in line]
        self.assertEqual((3, 1), (len(steps), len(set(steps))), said)
        self.assertGreater(int(steps[0]), 3)
        self.assertTrue((self.work / "run.weft").exists())
        (self.work / "run.weft").unlink()

    def test_sigterm_lets_all_save_at_one_step_and_leave_with_0(self):
        for whom in (None, 0, 2):  # The launcher, then a rank alone.
            self.preempt(whom)

    def test_one_that_is_stuck_is_named_with_where_it_is(self):
        _, err = self.job(3, """
check(LIB.weft_job_barrier(job))
def far_away():
    time.sleep(3)
if info.rank == 1: far_away()
check(LIB.weft_job_barrier(job))
check(LIB.weft_job_leave(job))
""", "--warn-stuck", "1s")
        told = [line for line in err.splitlines() if "did not come" in line]
        self.assertEqual(1, len(told), err)
        self.assertRegex(told[0], r"weft launch: rank 1 \(process \d+\) did not come to barrier, tag 2 within 1 s; rank 0 \(process \d+\) and rank 2 .* "
                                  r"waited there\. The last call of rank 1 \(process \d+\): barrier, tag 1")
        self.assertRegex(err, r"weft launch: rank 1 is in .*(far_away|sleep|elfutils|process \d+)")
        for words, text in ((("--warn-stuck", "soon", "--", "x"), "--warn-stuck is a number of seconds, as 10s or 10"),
                            (("--warn-stuck", "10", "--hosts", "a", "--", "x"), "--warn-stuck is for processes that the launcher starts itself")):
            self.assertIn(text, self.launch(*words, status=2)[1])

    def test_doctor_says_which_rule_it_was(self):
        done = subprocess.run([PROGRAM, "doctor", "--job"], capture_output=True, text=True, timeout=60,
                              env=dict(CLEAN, RANK="1", WORLD_SIZE="2", XDG_CACHE_HOME=str(self.work)))
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("torchrun: RANK=1 WORLD_SIZE=2", done.stdout)
        self.assertIn("weft launch: no WEFT_RANK", done.stdout)
        half = subprocess.run([PROGRAM, "doctor", "--job"], capture_output=True, text=True, timeout=60, env=dict(CLEAN, RANK="1"))
        self.assertEqual(1, half.returncode)
        self.assertIn("torchrun: RANK is set and WORLD_SIZE is not", half.stdout + half.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
