"""Processes of `spawn`: how they start, what each sees, how the first failure ends all, and that nothing stays behind."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import begin
import support

TWO = "xmp.spawn(f, nprocs=2, start_method='fork')"


MODEL = "model = torch.nn.Linear(2, 2)\ntorch.nn.init.ones_(model.weight)\n"


class Start(unittest.TestCase):

    def _ranks(self, body, call, **more):
        return begin.ranks(support.check(self, support.run(begin.program(body, call), **more)))

    def test_eight_start_and_each_sees_one_device(self):
        found = self._ranks("""
say(index, xm.xla_device(), xm.get_xla_supported_devices(), xm.get_ordinal(), xm.get_local_ordinal(), xm.xrt_world_size(),
    xm.is_master_ordinal(), xr.world_size(), xr.global_ordinal(), xr.local_ordinal(), xr.host_index(), xr.process_count(),
    xr.process_index(), xr.local_process_count(), xr.local_device_count(), xr.addressable_device_count(),
    xr.global_device_count(), xr.global_runtime_device_count(), os.environ["LOCAL_RANK"])
xm.rendezvous("all are here")
xm.master_print("0 master")
""", "say(9, xmp.spawn(f, nprocs=8, start_method='fork'))")
        self.assertEqual(found.pop(9), ["None"])
        self.assertEqual(found[0].pop(), "master")
        self.assertEqual(found, {rank: [f"xla:0 ['xla:0'] {rank} {rank} 8 {rank == 0} 8 {rank} {rank} 0 8 {rank} 8 8 1 8 8 {rank}"]
                                 for rank in range(8)})

    def test_spawn_begins_anew_and_pickles_arguments_alone(self):
        """The parent's globals are those of the file, not what its main part made of them. A wrapped model goes along."""
        body = """
model = args[1].to(xm.xla_device())
say(index, state, args[0], sys.modules[f.__module__].state, xm.rendezvous('x', bytes([index])), model.weight.device,
    model.weight.sum().item(), args[2].run(lambda: 42))
"""
        call = MODEL + """
state = 'changed'
xmp.spawn(f, args=({'b': 2}, xmp.MpModelWrapper(model), xmp.MpSerialExecutor()), nprocs=2)
"""
        program = begin.program(body, call).replace("def f(", "state = 'of the file'\ndef f(")
        found = begin.ranks(support.check(self, support.run(program, fresh=True)))
        words = "of the file {'b': 2} of the file [b'\\x00', b'\\x01'] xla:0 4.0 42"
        self.assertEqual(found, {0: [words], 1: [words]})

    def test_fork_begins_as_a_copy(self):
        found = self._ranks("say(index, state)", "state = 'changed'\n" + TWO)
        self.assertEqual(found, {0: ["changed"], 1: ["changed"]})

    def test_all_devices_are_as_many_processes(self):
        for variables in ({"CPU_NUM_DEVICES": "2"}, {"WEFT_DEVICES": "2"}):
            found = self._ranks("say(index, xm.xrt_world_size(), len(xm.get_xla_supported_devices()), xm.rendezvous('x', b'y'))",
                                "torch_xla.launch(f, start_method='fork')", **variables)
            self.assertEqual(found, {rank: ["2 1 [b'y', b'y']"] for rank in range(2)})
        found = self._ranks("say(index, xm.xrt_world_size(), len(xm.get_xla_supported_devices()))",
                            "torch_xla.launch(f, debug_single_process=True)", CPU_NUM_DEVICES="2")
        self.assertEqual(found, {0: ["1 2"]})

    def test_parent_counts_devices_before(self):
        found = self._ranks("say(index, on(1.0).item(), xr.world_size())",
                            "say(9, xm.xla_device(), xr.global_device_count())\n" + TWO)
        self.assertEqual(found, {9: ["xla:0 1"], 0: ["1.0 2"], 1: ["1.0 2"]})

    def test_parent_has_used_the_device(self):
        for call in (TWO, "xmp.spawn(f, nprocs=2)"):
            done = support.run(begin.program("say(index)", "on(1.0)\n" + call))
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("Runtime is already initialized. Do not use the XLA device before calling xmp.spawn: devices can be "
                          "accessed only from within the function", done.stderr)
            self.assertEqual(done.stdout, "")

    def test_threads_are_shared_out(self):
        found = self._ranks("say(index, os.environ['WEFT_THREADS'], torch.get_num_threads())", TWO)
        share = max(1, len(os.sched_getaffinity(0)) // 2)
        self.assertEqual(found, {rank: [f"{share} {share}"] for rank in range(2)})
        self.assertEqual(self._ranks("say(index, os.environ['WEFT_THREADS'])", TWO, WEFT_THREADS="3"), {0: ["3"], 1: ["3"]})

    def test_without_join(self):
        body = "time.sleep(0.5 * index)\nxm.rendezvous('x')"
        call = """
context = xmp.spawn(f, nprocs=2, join=False, start_method='fork')
say(0, len(context.processes), len(set(context.pids())), context.join(0.0), context.join(timeout=60), context.join())
"""
        self.assertEqual(self._ranks(body, call), {0: ["2 2 False True True"]})

    def test_twice(self):
        self.assertEqual(self._ranks("say(index, xm.rendezvous('x', b'1'))", TWO + "\n" + TWO),
                         {rank: ["[b'1', b'1']"] * 2 for rank in range(2)})

    def test_wrappers(self):
        """One process after the other is in there."""
        body = """
model = wrapper.to(xm.xla_device())
def work():
    begin = time.monotonic()
    time.sleep(0.1)
    return begin, time.monotonic()
times = xm.mesh_reduce('times', executor.run(work), sorted)
say(index, model.weight.device, model.weight.sum().item(), times[0][1] <= times[1][0])
"""
        call = MODEL + "wrapper, executor = xmp.MpModelWrapper(model), xmp.MpSerialExecutor()\n" + TWO
        self.assertEqual(self._ranks(body, call), {rank: ["xla:0 4.0 True"] for rank in range(2)})

    def test_a_prompts_functions_need_fork(self):
        program = begin.program("say(index)", "xmp.spawn(f, nprocs=2)").replace("__file__", "")
        done = subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True, timeout=120, check=False,
                              env={**os.environ, "PYTHONPATH": support.PACKAGE})
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "RuntimeError: spawn: 'f' was defined in a notebook or at a prompt.*use start_method='fork'")

    def test_started_as_one_of_several_already(self):
        """As by `weft launch` and torchrun: the function runs here, as many times as there are processes."""
        program = begin.program("say(index, xm.xrt_world_size(), xm.rendezvous('x', str(os.getpid()).encode()) == [b''])",
                                "xmp.spawn(f, nprocs=None)\nxmp.spawn(f, nprocs=2)\n"
                                "try: xmp.spawn(f, nprocs=4)\nexcept ValueError as error: say(xm.get_ordinal(), error)")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(program)
            processes = [subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True, env={
                **os.environ, "PYTHONPATH": support.PACKAGE, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(os.getpid())}) for rank in range(2)]
            for rank, process in enumerate(processes):
                text, _ = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 0)
                words = "2 False"
                refused = (f"spawn: nprocs is 4, and this process is one of 2 that were started already (torchrun: RANK={rank} "
                           f"WORLD_SIZE=2 LOCAL_RANK={rank} LOCAL_WORLD_SIZE=2)")
                self.assertEqual(begin.ranks(text), {rank: [words, words, refused]})


class Failure(unittest.TestCase):

    def _fails(self, body, call=TWO, seconds=20, **more):
        """What the program that spawns wrote to its errors; nothing of it runs on."""
        mark = f"MARK_OF_TEST=of-{os.getpid()}-{time.monotonic_ns()}"
        begun = time.monotonic()
        done = support.run(begin.program(body, call), MARK_OF_TEST=mark.partition("=")[2], **more)
        self.assertLess(time.monotonic() - begun, seconds)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        deadline = time.monotonic() + 5
        while begin.left_of(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(begin.left_of(mark), [])
        return done.stderr

    def test_exception_is_the_functions_own_with_its_traceback(self):
        """Rank 0 waits, and misses rank 1: what rank 1 raised is told, not what rank 0 makes of it."""
        errors = self._fails("""
if index == 1:
    time.sleep(0.2)
    {}["mine"]
xm.rendezvous("never")
""")
        self.assertRegex(errors, r"-- Process 1 raised:\nTraceback[\s\S]*in f\n[\s\S]*\nKeyError: 'mine'\n\"\"\"")
        self.assertEqual(errors.strip().splitlines()[-1], "KeyError: 'mine'")
        self.assertNotIn("rank 1", errors)

    def test_exception_that_cannot_be_pickled(self):
        errors = self._fails("""
class Own(Exception):
    pass
raise Own("x" * 200000)
""")
        self.assertRegex(errors, r"torch.multiprocessing.*ProcessRaisedException: process [01] raised:")

    def test_kill_of_a_child(self):
        errors = self._fails("""
if index == 1:
    xm.rendezvous("one")
    os.kill(os.getpid(), signal.SIGKILL)
xm.rendezvous("one")
xm.all_reduce("sum", on(1.0, 2.0))
""")
        self.assertRegex(errors.strip().splitlines()[-1], r"ProcessExitedException: process 1 ended by signal SIGKILL$")

    def test_exit_codes(self):
        errors = self._fails("sys.exit(7) if index == 1 else xm.rendezvous('x')")
        self.assertRegex(errors.strip().splitlines()[-1], r"ProcessExitedException: process 1 ended by exit code 7$")
        errors = self._fails("os._exit(9) if index == 0 else xm.rendezvous('x')")
        self.assertRegex(errors.strip().splitlines()[-1], r"ProcessExitedException: process 0 ended by exit code 9$")
        done = support.run(begin.program("sys.exit(0)", TWO))
        self.assertEqual(support.check(self, done), "")

    def test_others_that_work_on_are_ended(self):
        """With what they started, and also where they do not listen to SIGTERM."""
        errors = self._fails("""
import subprocess, torch_xla._processes as processes
if index == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", "600"])
    open(args[0], "w").close()
    time.sleep(600)
while not os.path.exists(args[0]):
    time.sleep(0.01)
raise ValueError("done")
""", f"import torch_xla._processes as processes\nprocesses.GRACE = 0.5\n"
     f"xmp.spawn(f, args=('{tempfile.gettempdir()}/weft-spawn-{os.getpid()}',), nprocs=2, start_method='fork')")
        os.unlink(f"{tempfile.gettempdir()}/weft-spawn-{os.getpid()}")
        self.assertEqual(errors.strip().splitlines()[-1], "ValueError: done")

    def test_who_leaves_early_is_named(self):
        errors = self._fails("if index == 0: xm.rendezvous('x')")
        self.assertRegex(errors, r"RuntimeError: weft_job_all_gather: rank 1 \(process \d+\) (left the group|ended)")

    def test_calls_that_differ(self):
        errors = self._fails("xm.all_reduce('sum' if index else 'max', on(1.0))")
        self.assertRegex(errors, r"members of a group called different collectives: .*all_reduce \(sum\) of 1 f32")
        errors = self._fails("xm.rendezvous(f'at {index}')")
        self.assertIn("the processes met with different tags: process 0 at 'at 0', process 1 at 'at 1'", errors)

    def test_a_parent_that_dies_takes_its_children_along(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(begin.program("say(index)\nxm.rendezvous('x') if index else time.sleep(600)", TWO))
            mark = f"of-{os.getpid()}-parent"
            parent = subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True,
                                      env={**os.environ, "PYTHONPATH": support.PACKAGE, "MARK_OF_TEST": mark})
            self.assertEqual(sorted(parent.stdout.readline() for _ in range(2)), ["0\n", "1\n"])
            os.kill(parent.pid, signal.SIGKILL)
            parent.communicate()
        deadline = time.monotonic() + 10
        while begin.left_of("MARK_OF_TEST=" + mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(begin.left_of("MARK_OF_TEST=" + mark), [])

    def test_interrupt(self):
        """Ctrl-C of the parent ends the children."""
        errors = self._fails("time.sleep(600)", """
import threading
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try: xmp.spawn(f, nprocs=2, start_method='fork')
except KeyboardInterrupt: sys.exit('interrupted')
""")
        self.assertEqual(errors.strip(), "interrupted")

    def test_variables_that_contradict_each_other(self):
        done = support.run(begin.HEAD + "print(xm.xrt_world_size())", RANK="3", WORLD_SIZE="2")
        self.assertRegex(done.stderr, r"RuntimeError: weft_job_find: torchrun: .*rank 3 is not below the number of processes, 2")
        done = support.run(begin.HEAD + "print(xm.xrt_world_size())", RANK="0")
        self.assertRegex(done.stderr, r"RuntimeError: weft_job_find: torchrun: RANK is set and WORLD_SIZE is not")
        done = support.run(begin.HEAD + "xm.all_reduce('sum', on(1.0))", TPU_WORKER_ID="0", TPU_WORKER_HOSTNAMES="a,b", WEFT_COORDINATOR="x")
        self.assertRegex(done.stderr, r"the address of rank 0, 'x', is not host:port")
        self.assertIsNotNone(re.search(r"\bCPU_NUM_DEVICES='x'", support.run(begin.HEAD, CPU_NUM_DEVICES="x").stderr))


if __name__ == "__main__":
    unittest.main()
