"""`weft dump-stacks` and scripts/dump_stacks.py: threads of a process that waits, and each way to get no answer."""
import collections
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, BUILD = (pathlib.Path(os.environ[name]) for name in ("WEFT_SOURCE", "WEFT_BUILD"))
PROGRAM = BUILD / "bin" / "weft"
# Three threads that wait for the same, beside the one that sleeps.
WAITS = "import threading, time\nfor _ in range(3): threading.Thread(target=threading.Event().wait, daemon=True).start()\n" \
        "print('ready', flush=True)\ntime.sleep(120)\n"

# A process with a table of threads as the library writes it: one waits for the compiler, one runs a kernel.
TABLE = r"""
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
struct slot { uint32_t tid, state; int64_t since; uint64_t program; int32_t entry; uint32_t reserved0; uint64_t text; uint8_t reserved[24]; };
struct table { char magic[8]; uint32_t version, slot_bytes, slots, lost; uint8_t reserved[40]; struct slot slot[2]; };
struct table weft_thread_table = {"weftthr", VERSION, 64, 2, 0, {0}, {{0}}};
void wait_here(void) {
  weft_thread_table.slot[0].tid = (uint32_t)getpid();
  weft_thread_table.slot[0].state = 8;
  weft_thread_table.slot[0].since = 1;
  weft_thread_table.slot[0].program = 0x0123456789abcdefu;
  weft_thread_table.slot[0].entry = 7;
  weft_thread_table.slot[0].text = (uint64_t)(uintptr_t)"gemm tiles";
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
"""


class Stacks(unittest.TestCase):
    def waiting(self, text=WAITS):
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual("ready", process.stdout.readline().strip())
        time.sleep(0.5)  # until each thread waits
        return process.pid

    def run_on(self, pid, *words, program=(PROGRAM, "dump-stacks")):
        done = subprocess.run([*program, str(pid), *words], capture_output=True, text=True, timeout=300,
                              env=dict(os.environ, WEFT_COMMAND=str(PROGRAM)))
        for reason in ("libdw.so.1 is not installed", "built without elfutils", "does not let itself be traced"):
            if reason in done.stderr:
                self.skipTest(done.stderr.strip())
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def test_equal_stacks_come_once(self):
        said = json.loads(self.run_on(self.waiting(), "--json"))["stacks"]
        self.assertEqual(4, sum(stack["count"] for stack in said))
        self.assertEqual(3, max(stack["count"] for stack in said))
        waiting = next(stack for stack in said if stack["count"] == 3)
        self.assertEqual(3, len({thread["id"] for thread in waiting["threads"]}))
        self.assertTrue(all(thread["name"] for thread in waiting["threads"]))
        self.assertTrue(any("start_thread" in frame["function"] or "clone" in frame["function"] for frame in waiting["frames"]), waiting)

    def test_the_text_is_what_the_script_prints(self):
        pid = self.waiting()
        for program in ((PROGRAM, "dump-stacks"), (sys.executable, SOURCE / "scripts" / "dump_stacks.py")):
            said = self.run_on(pid, program=program)
            self.assertIn("STACK (count=3):\n  ", said)
            self.assertEqual(said.count("STACK (count="), said.count("LOCATIONS:\n"))

    # Lines 2, 3 and 6 wait: a thread in a call, and the main thread below a nested function and a name that is not of ASCII.
    PYTHON = ("import threading, time\n"
              "def hangs(gate): gate.wait()\n"
              "def worker(): hangs(threading.Event())\n"
              "for _ in range(2): threading.Thread(target=worker, daemon=True).start()\n"
              "class Größe:\n"
              "    def step(self): [self.last(i) for i in range(1)]\n"
              "    def last(self, i):\n"
              "        print('ready', flush=True)\n"
              "        time.sleep(\n"
              "            120 + i\n"
              "        )\n"
              "Größe().step()\n")

    def test_python_s_frames_are_told_with_their_lines(self):
        found = 0
        for minor in (11, 12, 13, 14):
            for python in dict.fromkeys((sys.executable, shutil.which(f"python3.{minor}"),
                                         *glob.glob(os.path.expanduser(f"~/.pyenv/versions/3.{minor}.*/bin/python3")))):
                if python is None:
                    continue
                asked = subprocess.run([python, "-c", "import sys; print(sys.implementation.name, *sys.version_info[:2])"],
                                       capture_output=True, text=True, timeout=60)
                if asked.stdout.split() != ["cpython", "3", str(minor)]:
                    continue
                with self.subTest(python=python):
                    self.one_python(python, minor)
                    found += 1
        if found == 0:
            self.skipTest("no CPython 3.11 to 3.14")

    def one_python(self, python, minor):
        with tempfile.TemporaryDirectory() as work:
            program = pathlib.Path(work) / "hang.py"
            program.write_text(self.PYTHON, encoding="utf-8")
            process = subprocess.Popen([python, program], stdout=subprocess.PIPE, text=True)
            try:
                self.assertEqual("ready", process.stdout.readline().strip())
                time.sleep(0.5)
                stacks = json.loads(self.run_on(process.pid, "--json"))["stacks"]
                text, each = self.run_on(process.pid), self.run_on(process.pid, "--each")
            finally:
                process.kill()
                process.communicate()
        # The interpreter's own frames below equal Python ones may differ: code that was specialised meanwhile.
        frames = collections.Counter()
        for stack in stacks:
            frames[tuple(f"{frame['function']} ({frame['location']})" for frame in stack["python"])] += stack["count"]
        comprehension = [f"Größe.step.<locals>.<listcomp> ({program}:6)"] if minor == 11 else []
        main = (f"Größe.last ({program}:9)", *comprehension, f"Größe.step ({program}:6)", f"<module> ({program}:12)")
        self.assertEqual(1, frames.get(main), (frames, main))
        waiting = [stack for stack in frames if f"hangs ({program}:2)" in stack]
        self.assertEqual([2], [frames[stack] for stack in waiting], frames)
        at = waiting[0].index(f"hangs ({program}:2)")
        self.assertEqual(f"worker ({program}:3)", waiting[0][at + 1])
        self.assertTrue(waiting[0][at - 1].startswith("Event.wait ("), waiting)
        self.assertIn("PYTHON:\n  " + "\n  ".join(main) + "\nTHREADS:\n", text)
        self.assertEqual(3, len(re.findall(r"^Thread \d+ \(LWP \d+\):\n#0 ", each, re.MULTILINE)))
        self.assertEqual(2, each.count(f"[Python] hangs at {program}:2\n"))

    def dumped(self, *command):
        """What dump-stacks says of a process that prints a line and waits; skips where the machine gives no native stacks."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            process.stdout.readline()
            done = subprocess.run([PROGRAM, "dump-stacks", str(process.pid)], capture_output=True, text=True, timeout=120)
        finally:
            process.kill()
            process.communicate()
        for reason in ("libdw.so.1 is not installed", "built without elfutils", "does not let itself be traced"):
            if reason in done.stderr:
                self.skipTest(done.stderr.strip())
        self.assertEqual(0, done.returncode, done.stderr)
        return process.pid, done

    def told_of(self, *command):
        """What is said beside the native stacks of a process."""
        _, done = self.dumped(*command)
        self.assertIn("STACK (count=", done.stdout)
        self.assertNotIn("PYTHON:", done.stdout)
        return done.stderr

    def test_pythons_that_are_not_known_are_answered_by_a_sentence(self):
        # The program has the symbols that the command looks at, of Pythons that may not be here: their version, and a runtime that says nothing of itself.
        silent, free_threaded = "1", "0x7970677562656478, 0, 1"  # eight bytes of text, a version, whether there is no global lock
        for version, runtime, wanted in ((None, silent, "the process runs a Python before 3.11, whose frames are not known here"),
                                         (0x030e00f0, silent, "the process runs Python 3.14, whose frames are not known here"),
                                         (0x03130000, silent, "the process runs Python 3.19, whose frames are not known here"),
                                         (0x030d00f0, silent, "the process runs Python 3.13, whose frames are not known here"),
                                         (0x030e00f0, free_threaded, "the process runs a free-threaded Python 3.14, whose frames")):
            with self.subTest(wanted=wanted), tempfile.TemporaryDirectory() as work:
                program = os.path.join(work, "python")
                word = "" if version is None else f"const unsigned long Py_Version = {version};\n"
                text = f"#include <stdio.h>\n#include <unistd.h>\nunsigned long _PyRuntime[512] = {{{runtime}}};\n{word}" \
                       "int main(void) { puts(\"ready\"); fflush(stdout); for (;;) pause(); }\n"
                subprocess.run(["cc", "-xc", "-o", program, "-"], input=text, text=True, check=True)
                self.assertIn(wanted, self.told_of(program))
        for python in glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")):
            minor = int(python.split("versions/3.")[1].split(".")[0])
            if minor == 10 or minor >= 15:
                with self.subTest(python=python):
                    self.assertIn("whose frames are not known here", self.told_of(python, "-c", WAITS))

    def test_weft_s_word_for_a_thread_is_read_from_the_process(self):
        for version, wanted in ((1, "running gemm tiles, entry 7 of program 0123456789abcdef for "), (9, "")):
            with tempfile.TemporaryDirectory() as work:
                library, program = os.path.join(work, "libweft.so.1"), os.path.join(work, "waits")
                subprocess.run(["cc", "-xc", "-shared", "-fPIC", f"-DVERSION={version}", "-o", library, "-"], input=TABLE, text=True, check=True)
                subprocess.run(["cc", "-xc", "-o", program, "-", "-xnone", library, "-Wl,-rpath," + work], text=True, check=True,
                               input="void wait_here(void);\nint main(void) { wait_here(); return 0; }\n")
                pid, done = self.dumped(program)
            self.assertIn("wait_here", done.stdout)
            if wanted:
                self.assertIn(f"waits ({pid}): {wanted}", done.stdout)
                self.assertEqual("", done.stderr)
            else:
                self.assertIn("table of threads is of version 9; 1 is known here", done.stderr)
                self.assertIn(f"waits ({pid})\n", done.stdout)

    def test_the_process_goes_on(self):
        process = subprocess.Popen([sys.executable, "-c", "import time\nprint('ready', flush=True)\ntime.sleep(2)\nprint('done')"],
                                   stdout=subprocess.PIPE, text=True)
        self.assertEqual("ready", process.stdout.readline().strip())
        self.run_on(process.pid)
        self.assertEqual(("done\n", None), process.communicate(timeout=60))
        self.assertEqual(0, process.returncode)

    def test_what_is_no_process(self):
        for word, status, text in (("x", 2, "'x' is not the number of a process"), ("-1", 2, "there is no option '-1'"),
                                   ("0", 2, "'0' is not the number of a process"), ("999999999", 1, "there is no process 999999999")):
            done = subprocess.run([PROGRAM, "dump-stacks", word], capture_output=True, text=True, timeout=60)
            self.assertEqual((status, ""), (done.returncode, done.stdout))
            self.assertIn(text, done.stderr)

    def test_who_may_not_look_is_told_what_to_do(self):
        if os.getuid() != 0:
            self.skipTest("only root can become somebody who may not")
        pid = self.waiting()
        # Somebody else may not read another's process; where even the command is out of reach there is nothing to test.
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", PROGRAM, "dump-stacks", str(pid)],
                              capture_output=True, text=True, timeout=60)
        if "libdw" in done.stderr or "setpriv" in done.stderr or "cannot open shared" in done.stderr:
            self.skipTest(done.stderr.strip())
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertIn("/proc/sys/kernel/yama/ptrace_scope", done.stderr)
        self.assertIn("root", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
