"""xla_dist: the documents' command lines against stand-ins of gcloud, ssh, docker and conda, which record what they are given."""
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import unittest

import support

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "seeds"))
import blocks  # noqa: E402
import commands  # noqa: E402

# Appends its name and arguments to a file. gcloud describes a TPU, and hands commands to ssh, which runs them in a shell here.
STAND_IN = """#!{python} -S
import json, os, sys, time
name = os.path.basename(sys.argv[0])
with open(os.environ["RECORD"], "a") as file:
    file.write(json.dumps([name, *sys.argv[1:]]) + "\\n")
if name == "gcloud" and "describe" in sys.argv:
    print(os.environ["TPU"])
    sys.exit(int(os.environ.get("TPU_CODE", "0")))
command = next((word.partition("=")[2] for word in sys.argv if word.startswith("--command=")), None)
if command is not None:
    machine = next((word for word in sys.argv if word.startswith("--worker=")), sys.argv[3])
    os.execvp("ssh", ["ssh", machine, command])
if name == "ssh":
    os.execvp("sh", ["sh", "-c", sys.argv[2]])
if name == "conda":
    os.execvp(sys.argv[5], sys.argv[5:])
if name == "docker":
    print("in docker")
if name == "python":
    print(*sys.argv[1:], os.environ.get("XLA_USE_BF16"), os.environ.get("TPU_WORKER_ID"), os.environ["PJRT_DEVICE"])
"""


class Dist(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        for name in ("gcloud", "ssh", "docker", "conda", "python"):
            path = os.path.join(self.folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(STAND_IN.format(python=sys.executable))
            os.chmod(path, 0o755)

    def _run(self, *words, kind="v3-32", ends=4, code=0, **variables):
        """The finished launcher, and what the stand-ins were given."""
        record = os.path.join(self.folder, "record")
        tpu = json.dumps({"acceleratorType": kind, "state": "READY", "networkEndpoints": [{"ipAddress": "10.0.0.1"}] * ends})
        program = "import sys\nfrom torch_xla.distributed import xla_dist\nsys.exit(xla_dist.main())\n"
        done = support.run(program, *words, folder=self.folder, RECORD=record,
                           **{"TPU": tpu, "PATH": self.folder + os.pathsep + os.environ["PATH"], **variables})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        given = []
        if os.path.exists(record):
            with open(record, encoding="utf-8") as file:
                given = [json.loads(line) for line in file]
            os.unlink(record)
        return done, given

    def _of(self, given, name):
        return sorted(one[1:] for one in given if one[0] == name)

    @unittest.skipUnless(os.path.isdir(blocks.SEEDS), f"the documents are not at {blocks.SEEDS}")
    def test_every_line_of_the_documents(self):
        lines = [command for _, command in commands.commands() if "xla_dist" in command and " -- " in command]
        self.assertEqual(len(lines), 4)
        for line in lines:
            for name, value in (("TPU_POD_NAME", "pod"), *((f"VM{at}", f"vm{at}") for at in range(1, 5))):
                line = line.replace("$" + name, value)
            words = shlex.split(line)
            self.assertEqual(words[:3], ["python", "-m", "torch_xla.distributed.xla_dist"])
            with self.subTest(line):
                done, given = self._run(*words[3:])
                self.assertEqual(len(self._of(given, "ssh")), 4)
                ran = words[words.index("--") + 1:]
                if "--docker-image" in line:
                    self.assertEqual(self._of(given, "docker"), sorted(
                        ["run", "--network=host", "--privileged", "--rm=true", "--shm-size=50GB", "-e", "PJRT_DEVICE=TPU", "-e",
                         f"TPU_WORKER_ID={at}", "-e", "TPU_WORKER_HOSTNAMES=pod-0,pod-1,pod-2,pod-3", "-e", "XLA_USE_BF16=1",
                         next(word for word in words if word.startswith("--docker-image=")).partition("=")[2], *ran]
                        for at in range(4)))
                    self.assertEqual(done.stdout.count("] in docker\n"), 4)
                    continue
                environment = next(word for word in words if word.startswith("--conda-env=")).partition("=")[2]
                for one in self._of(given, "conda"):
                    self.assertEqual(one[:5], ["run", "--no-capture-output", "--name", environment, "env"])
                    self.assertEqual(one[-len(ran):], ran)
                self.assertEqual(self._of(given, "python"), [ran[1:]] * 4)
                bf16 = "1" if "XLA_USE_BF16" in line else "None"
                machines = [f"vm{at + 1}" if "--vm" in line else f"pod-{at}" for at in range(4)]
                self.assertEqual(sorted(done.stdout.splitlines()), [
                    f"[{at} {machine}] {' '.join(ran[1:])} {bf16} {at} TPU" for at, machine in enumerate(machines)])

    def test_machines_of_ones_own_are_reached_by_name(self):
        _, given = self._run("--tpu=pod", "--zone=z", "--project", "p", "--vm", "a", "--vm=b", "--", "true", kind="v3-16", ends=2)
        described, *started = self._of(given, "gcloud")[::-1]
        self.assertEqual(described, ["compute", "tpus", "tpu-vm", "describe", "pod", "--format=json", "--project=p", "--zone=z"])
        command = "--command=cd {} && env PJRT_DEVICE=TPU TPU_WORKER_ID={} TPU_WORKER_HOSTNAMES=a,b true"
        self.assertEqual(started[::-1], [["compute", "ssh", name, "--internal-ip", command.format(self.folder, at), "--project=p",
                                          "--zone=z"] for at, name in enumerate("ab")])
        _, given = self._run("--tpu=one", "--", "true", kind="v2-8", ends=1)
        self.assertIn(["compute", "tpus", "tpu-vm", "ssh", "one", "--worker=0", f"--command=cd {self.folder} && env PJRT_DEVICE=TPU true"],
                      self._of(given, "gcloud"))

    def test_containers_and_quotes(self):
        """What the user wrote reaches the program as it was: spaces, quotes, dollars, and the same variable as ours."""
        _, given = self._run("--tpu=one", "--docker-container=box", "--env=A=b c'\"$HOME", "--env", "PJRT_DEVICE=CPU", "--", "python",
                             "-c", "print('$x  y')", kind="v3-8", ends=1)
        self.assertEqual(self._of(given, "docker"), [["exec", "-e", "PJRT_DEVICE=CPU", "-e", "A=b c'\"$HOME", "box", "python", "-c",
                                                      "print('$x  y')"]])

    def test_number_of_machines(self):
        four = [word for at in range(4) for word in ("--vm", f"vm{at}")]
        for words, kind, ends, text in (
                (four[:6], "v3-32", 4, "3 machines, and 4 are wanted: pod is a v3-32: 32 cores, one machine for every 8"),
                (four, "v2-8", 1, "4 machines, and 1 is wanted: pod is a v2-8: 8 cores, one machine for every 8"),
                ([], "v4-32", 3, "3 machines, and 4 are wanted"), (four, "v5litepod-16", 2, "4 machines, and 2 are wanted")):
            done, given = self._run("--tpu=pod", *words, "--", "true", kind=kind, ends=ends, code=2)
            self.assertIn("xla_dist: " + text, done.stderr)
            self.assertEqual(self._of(given, "ssh"), [])
        self._run("--tpu=pod", *four, "--", "true", kind="projects/p/types/v3-32")
        self._run("--tpu=pod", *four, "--", "true", kind="v5litepod-16")

    def test_refusals(self):
        for words, text in (
                (["--tpu=pod"], "there is no command: it comes behind --"), (["--tpu=pod", "--"], "there is no command"),
                (["--tpu=pod", "--conda-env=a", "--docker-image=b", "--", "x"], "--conda-env and --docker-image exclude each other"),
                (["--tpu=pod", "--docker-run-flag=--rm", "--", "x"], "--docker-run-flag is for --docker-image"),
                (["--tpu=pod", "--env=A", "--", "x"], "--env=A is not NAME=VALUE"),
                (["--tpu=pod", "--vm=a", "--vm=a", "--", "x"], "--vm names a machine twice"),
                (["--", "x"], "the following arguments are required: --tpu")):
            done, given = self._run(*words, code=2)
            self.assertIn(text, done.stderr)
            self.assertEqual(given, [])
        for variables, text in (({"TPU": "{}"}, "has no acceleratorType"), ({"TPU": "nonsense"}, "has no acceleratorType"),
                                ({"TPU_CODE": "1"}, "gcloud does not describe the TPU 'pod'"),
                                ({"TPU": '{"acceleratorType": "v3-8", "state": "CREATING"}'}, "is CREATING, not READY")):
            done, _ = self._run("--tpu=pod", "--", "x", code=2, **variables)
            self.assertIn(text, done.stderr)
        done, _ = self._run("--tpu=pod", "--", "x", code=2, PATH="/nowhere")
        self.assertIn("gcloud is not on PATH", done.stderr)

    def test_the_first_failure_ends_the_others(self):
        script = f"test $TPU_WORKER_ID = 1 && exit 7; echo $$ > {self.folder}/pid-$TPU_WORKER_ID; exec sleep 600"
        begun = time.monotonic()
        self._run("--tpu=pod", "--", "sh", "-c", script, kind="v3-16", ends=2, code=7)
        self.assertLess(time.monotonic() - begun, 20)
        path = f"{self.folder}/pid-0"
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.assertFalse(self._runs(file.read().strip()))

    @staticmethod
    def _runs(process):
        """Whether a process still runs a few seconds later; one that nobody has waited for does not."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                with open(f"/proc/{process}/stat", encoding="utf-8") as file:
                    if file.read().rpartition(")")[2].split()[0] == "Z":
                        return False
            except OSError:
                return False
            time.sleep(0.05)
        return True

    def test_as_a_module(self):
        done = subprocess.run([sys.executable, "-m", "torch_xla.distributed.xla_dist", "--help"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": support.PACKAGE}, timeout=120, check=True)
        for option in ("--tpu", "--vm", "--conda-env", "--docker-image", "--docker-container", "--docker-run-flag", "--env"):
            self.assertIn(option, done.stdout)


if __name__ == "__main__":
    unittest.main()
