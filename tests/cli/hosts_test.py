"""`weft launch` on other hosts and in other rooms: stand-ins of ssh, gcloud, docker and conda write down their arguments and then do on this
machine what they would do there, with none of the launcher's variables."""
import json
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

from launched import CLEAN, JOB, PROGRAM, Launched

HARD = ["two words", "it's", '"quoted"', "$HOME `id` $(id)", "new\nline\n", "", "\\ back * ? ! # ~ é", "-e"]

STANDIN = r"""#!%s
import json, os, re, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
with open(os.path.join(%r, name), "a") as record:
    record.write(json.dumps(words) + "\n")
clean = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
def shell(command):  # as sshd starts it: by the user's shell, in another folder
    os.chdir("/")
    os.execve("/bin/sh", ["sh", "-c", command], dict(clean, FROM=name))
if name == "ssh":
    if "h-unknown" in words:
        print("ssh: Could not resolve hostname h-unknown", file=sys.stderr)
        sys.exit(255)
    if "h-bare" in words:
        os.rename(os.getcwd(), os.getcwd() + ".moved")
    shell(words[-1])
if name == "gcloud":
    if "describe" in words:
        print(json.dumps({"state": os.environ.get("TPU_STATE", "READY"), "acceleratorType": "projects/p/locations/z/acceleratorTypes/v3-16",
                          "networkEndpoints": [{"ipAddress": "10.0.0.1", "port": 8470}, {"ipAddress": "10.0.0.2", "port": 8470}]}))
        sys.exit(0)
    shell(words[-1].removeprefix("--command="))
if name == "conda":
    at = words.index("--name") + 2
    os.execvpe(words[at], words[at:], dict(os.environ, IN_CONDA=words[at - 1]))
if name == "docker" and words[0] == "run":
    at, kept = 1, dict(clean)
    while words[at].startswith("-"):
        if words[at] in ("--name", "-e"):
            at += 1
            if words[at - 1] == "-e" and words[at] in os.environ:
                kept[words[at]] = os.environ[words[at]]
        at += 1
    os.execvpe(words[at + 1], words[at + 1:], dict(kept, IN_IMAGE=words[at]))
"""

TELL = """
import json, os, sys
print(json.dumps({"words": sys.argv[1:], "folder": os.getcwd(), "variables": dict(os.environ)}))
"""
SLEEP = "import os, sys, time\nprint(os.getpid(), flush=True)\n"


class Hosts(Launched):
    def setUp(self):
        super().setUp()
        self.bin, self.records = self.work / "bin", self.work / "records"
        self.bin.mkdir()
        self.records.mkdir()
        for name in ("ssh", "gcloud", "docker", "conda"):
            path = self.bin / name
            path.write_text(STANDIN % (sys.executable, str(self.records)))
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        self.path = {"PATH": f"{self.bin}:{os.environ['PATH']}"}

    def run_on(self, *words, status=0, **variables):
        return self.launch(*words, status=status, **self.path, **variables)

    def calls(self, name):
        path = self.records / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def told(self, out):
        return {rank: json.loads(lines[0]) for rank, lines in self.lines(out).items()}

    def assert_gone(self, pids):
        until = time.monotonic() + 20
        while any(self.runs(pid) for pid in pids) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual([], [pid for pid in pids if self.runs(pid)])

    def shells(self, launcher):
        """Processes of a launcher's hosts, by the word that ends their scripts."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if b"#launch-%d-" % launcher in path.read_bytes():
                    found.append(path.parent.name)
            except OSError:
                continue
        return found

    def assert_no_shells(self, launcher):
        until = time.monotonic() + 20
        while self.shells(launcher) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual([], self.shells(launcher))

    def test_hosts_get_words_and_variables_as_they_are(self):
        value = "".join(HARD)
        out, _ = self.run_on("--hosts", "h1,me@h2", "-n", 2, "--env", f"A={value}", "--env", "B=x=y", "--", sys.executable, "-c", TELL, *HARD)
        told = self.told(out)
        self.assertEqual([0, 1, 2, 3], sorted(told))
        for rank, one in told.items():
            variables = one["variables"]
            self.assertEqual(HARD, one["words"])
            self.assertEqual((value, "x=y", "ssh"), (variables["A"], variables["B"], variables["FROM"]))
            self.assertEqual(str(self.work), one["folder"])
            self.assertEqual([str(rank), "4", str(rank % 2), "2", "0", "h1:29555"],
                             [variables["WEFT_" + key] for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "RESTART", "COORDINATOR")])
            self.assertEqual(str(max(1, len(os.sched_getaffinity(0)) // 2)), variables["WEFT_THREADS"])
            self.assertNotIn("XDG_CACHE_HOME", variables)  # of the launcher alone
        self.assertEqual(1, len({(one["variables"]["WEFT_JOB"], one["variables"]["WEFT_JOB_TOKEN"]) for one in told.values()}))
        self.assertEqual({"0 h1", "1 h1", "2 me@h2", "3 me@h2"}, set(re.findall(r"^\[([^\]]+)\]", out, re.M)))

    def test_ssh_is_called_with_these_words_and_no_token(self):
        out, _ = self.run_on("--hosts", "h1,me@h2", "--", sys.executable, "-c", TELL)
        calls = self.calls("ssh")
        for call in calls:
            self.assertEqual(["-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15"], call[:5])
            self.assertRegex(call[6], r"^exec sh -c '[^'\n]*'$")
            self.assertNotIn(self.told(out)[0]["variables"]["WEFT_JOB_TOKEN"], " ".join(call))
        self.assertEqual(["h1", "me@h2"], sorted(call[5] for call in calls))

    def test_a_file_has_a_host_in_each_line(self):
        for name, said in (("hosts.txt", "hosts.txt"), ("hosts", "@hosts"), ("more", "./more")):
            (self.work / name).write_text("# ours\n h1  # the first\n\nh2\n")
            out, _ = self.run_on("--hosts", said, "--", sys.executable, "-c", "print('here')")
            self.assertEqual({"0 h1", "1 h2"}, set(re.findall(r"^\[([^\]]+)\]", out, re.M)))

    def test_what_is_large_arrives_and_a_program_reads_nothing(self):
        text = "x" * 100_000 + "'" * 1000
        out, _ = self.run_on("--hosts", "h1", "--env", "A=" + text, "--", sys.executable, "-c", "import os, sys; print(len(os.environ['A']), sys.stdin.read())")
        self.assertEqual({0: [f"{len(text)} "]}, self.lines(out))

    def test_the_first_failure_ends_those_of_all_hosts(self):
        text = SLEEP + "time.sleep(1 if os.environ['WEFT_RANK'] == '2' else 100)\nprint('before the end', flush=True)\nsys.exit(7)"
        began = time.monotonic()
        out, err = self.run_on("--hosts", "h1,h2", "-n", 2, "--", sys.executable, "-c", text, status=7)
        self.assertLess(time.monotonic() - began, 30)
        self.assert_gone([int(lines[0]) for lines in self.lines(out).values()])
        self.assertIn("weft launch: rank 2 ended with status 7\nweft launch: the last lines of rank 2:\n", err)
        self.assertIn("  before the end\n", err)

    def test_one_that_ignores_sigterm_is_killed_there_with_what_it_started(self):
        text = ("import signal, subprocess\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP +
                "child = subprocess.Popen([sys.executable, '-c', 'import signal, time\\nsignal.signal(15, signal.SIG_IGN)\\ntime.sleep(100)'])\n"
                "print(child.pid, flush=True)\nif os.environ['WEFT_RANK'] == '0':\n  time.sleep(1.5)\n  os._exit(4)\ntime.sleep(100)")
        began = time.monotonic()
        out, _ = self.run_on("--hosts", "h1,h2", "--grace", 1, "--", sys.executable, "-c", text, status=4)
        self.assertLess(time.monotonic() - began, 30)
        self.assert_gone([int(line) for lines in self.lines(out).values() for line in lines])

    def test_a_signal_there_is_named(self):
        _, err = self.run_on("--hosts", "h1,h2", "--", sys.executable, "-c",
                             "import os, time\nif os.environ['WEFT_RANK'] == '1': os.kill(os.getpid(), 9)\ntime.sleep(100)", status=128 + 9)
        self.assertIn("weft launch: rank 1 was ended by signal 9 (Killed)\n", err)

    def test_hosts_that_ssh_does_not_reach_are_told(self):
        _, err = self.run_on("--hosts", "h1,h-unknown", "--", "sleep", "100", status=255)
        self.assertIn("[1 h-unknown] ssh: Could not resolve hostname h-unknown\n", err)
        self.assertIn("weft launch: rank 1 ended with status 255\nweft launch: 255 is ssh's own status where it does not reach a host, or loses it\n", err)

    def test_programs_and_folders_that_a_host_lacks_are_told(self):
        self.assertIn("/no/such", self.run_on("--hosts", "h1", "--", "/no/such", status=127)[1])
        folder = self.work / "it's\n$HOME"
        folder.mkdir()
        done = subprocess.run([PROGRAM, "launch", "--hosts", "h-bare", "--", "true"], cwd=folder, capture_output=True, text=True, timeout=60,
                              env=dict(CLEAN, **self.path), check=False)
        self.assertEqual(1, done.returncode)
        self.assertIn(f"[0 h-bare] weft launch: this host has no folder {self.work}/it's\n[0 h-bare] $HOME\n", done.stderr)
        gone = self.work / "gone"
        gone.mkdir()
        done = subprocess.run(["sh", "-c", 'rmdir "$PWD"; exec "$0" launch --hosts h1 -- true', PROGRAM], cwd=gone, capture_output=True, text=True, timeout=60,
                              env=dict(CLEAN, **self.path), check=False)
        self.assertEqual(2, done.returncode)
        self.assertIn("the folder that processes are to run in cannot be told: No such file or directory", done.stderr)

    def begun(self, *flags, count):
        process = subprocess.Popen([PROGRAM, "launch", *flags, "--", sys.executable, "-c", SLEEP + "time.sleep(100)"], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True, env=dict(CLEAN, **self.path), cwd=self.work)
        return process, [int(process.stdout.readline().split()[-1]) for _ in range(count)]

    def test_a_signal_to_the_launcher_ends_those_of_all_hosts(self):
        process, pids = self.begun("--hosts", "h1,h2", "-n", "2", count=4)
        self.assertGreaterEqual(len(self.shells(process.pid)), 4)
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        self.assertEqual(128 + signal.SIGINT, process.wait(60))
        self.assert_gone(pids)
        self.assert_no_shells(process.pid)

    def test_a_killed_launcher_leaves_nobody_on_hosts(self):
        for flags in (("--hosts", "h1,h2"), ("--docker", "image", "-n", "2")):
            process, pids = self.begun(*flags, "--grace", "2", count=2)
            process.kill()
            process.wait(60)
            process.stdout.close()
            self.assert_gone(pids)
            self.assert_no_shells(process.pid)

    def test_a_tpu_is_its_machines(self):
        out, _ = self.run_on("--tpu", "pod", "--zone", "z-a", "--project", "p", "--", sys.executable, "-c", TELL, *HARD)
        told = self.told(out)
        self.assertEqual([HARD, HARD], [one["words"] for one in told.values()])
        self.assertEqual({"10.0.0.1:29555"}, {one["variables"]["WEFT_COORDINATOR"] for one in told.values()})
        self.assertEqual({"0 pod-0", "1 pod-1"}, set(re.findall(r"^\[([^\]]+)\]", out, re.M)))
        describe, *machines = self.calls("gcloud")
        self.assertEqual(["compute", "tpus", "tpu-vm", "describe", "pod", "--format=json", "--zone=z-a", "--project=p"], describe)
        for worker, call in enumerate(sorted(machines)):
            self.assertEqual(["compute", "tpus", "tpu-vm", "ssh", "pod", f"--worker={worker}", "--zone=z-a", "--project=p"], call[:-1])
            self.assertRegex(call[-1], r"^--command=exec sh -c '[^'\n]*'$")
        self.assertIn("the TPU 'pod' is CREATING, not READY", self.run_on("--tpu", "pod", "--", "x", status=2, TPU_STATE="CREATING")[1])

    def test_containers_get_variables_by_name(self):
        for flags, ranks in (((), 2), (("--hosts", "h1,h2"), 2)):
            (self.records / "docker").unlink(missing_ok=True)
            out, _ = self.run_on(*flags, *(() if flags else ("-n", 2)), "--docker", "im age:1", "--docker-run-flag", "--shm-size=5 GB", "--env", "A=it's\n$x",
                                 "--", sys.executable, "-c", TELL, *HARD)
            told = self.told(out)
            self.assertEqual(list(range(ranks)), sorted(told))
            for rank, one in told.items():
                self.assertEqual(HARD, one["words"])
                self.assertEqual(("it's\n$x", "im age:1", str(rank)), tuple(one["variables"][key] for key in ("A", "IN_IMAGE", "WEFT_RANK")))
                self.assertTrue(one["variables"]["WEFT_JOB_TOKEN"])
            for call in self.calls("docker"):
                self.assertEqual(["run", "--rm", "--init", "--network=host", "--ipc=host", "--pid=host", "--name"], call[:7])
                self.assertRegex(call[7], r"^weft-launch-\d+-[0-9a-f]{8}-[01]-0$")
                self.assertEqual("--shm-size=5 GB", call[8])
                self.assertEqual(["im age:1", sys.executable, "-c", TELL, *HARD], call[call.index("im age:1"):])
                self.assertNotIn("=", "".join(call[9:call.index("im age:1")]))

    def test_a_container_that_is_killed_does_not_stay(self):
        text = "import signal, time, os\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(2 if os.environ['WEFT_RANK'] == '0' else 100)\nraise SystemExit(3)"
        self.run_on("-n", 2, "--docker", "image", "--grace", 1, "--", sys.executable, "-c", text, status=3)
        names = [call[call.index("--name") + 1] for call in self.calls("docker") if call[0] == "run"]
        self.assertIn(["kill", max(names)], self.calls("docker"))

    def test_conda_runs_the_program_in_its_environment(self):
        for flags in ((), ("--hosts", "h1")):
            (self.records / "conda").unlink(missing_ok=True)
            out, _ = self.run_on(*flags, "--conda-env", "my env", "--env", "A=$x", "--", sys.executable, "-c", TELL, *HARD)
            self.assertEqual((HARD, "my env", "$x"), (self.told(out)[0]["words"], *(self.told(out)[0]["variables"][key] for key in ("IN_CONDA", "A"))))
            self.assertEqual([["run", "--no-capture-output", "--name", "my env", sys.executable, "-c", TELL, *HARD]], self.calls("conda"))

    def test_all_start_again_on_all_hosts(self):
        text = "import os\nprint('try', os.environ['WEFT_RESTART'])\nif os.environ['WEFT_RESTART'] == '0': raise SystemExit(5)"
        out, err = self.run_on("--hosts", "h1,h2", "--max-restarts", 1, "--", sys.executable, "-c", text)
        self.assertIn("starting all ranks again (1 of 1)", err)
        self.assertEqual(["try 1", "try 1"], [lines[-1] for lines in self.lines(out).values()])

    def test_a_job_of_two_hosts_adds_by_tcp(self):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        text = JOB % """    print(info.local_size, info.size)
    print(values(through(LIB.weft_job_all_reduce, tensor([info.rank, 1, 2.5]), w.WEFT_JOB_SUM), 3))
    check(LIB.weft_job_leave(job))
"""
        keep = [word for key in ("WEFT_LIB", "LD_LIBRARY_PATH") if key in os.environ for word in ("--env", f"{key}={os.environ[key]}")]
        out, _ = self.run_on("--hosts", "h1,h2", "-n", 2, "--coordinator", address, *keep, "--", sys.executable, "-u", "-c", text)
        self.assertEqual({rank: ["2 4", "[6.0, 4.0, 10.0]"] for rank in range(4)}, self.lines(out))

    def test_misuse_of_hosts_is_said(self):
        for words, text in ((("--hosts", "a,,b"), "'' is no host; --hosts takes h1,user@h2, or a file with one in each line"),
                            (("--hosts", "a,-oProxyCommand=x"), "'-oProxyCommand=x' is no host"), (("--hosts", "a;b"), "'a;b' is no host"),
                            (("--hosts", "a,b,a"), "the host 'a' is named twice; -n says how many processes each host gets"),
                            (("--hosts", "/no/file"), "/no/file: No such file or directory"), (("--hosts", "@none"), "none: No such file or directory"),
                            (("--hosts", "a", "--tpu", "t"), "--hosts and --tpu exclude each other"), (("--zone", "z"), "--zone is for --tpu"),
                            (("--docker", "i", "--conda-env", "e"), "--docker and --conda-env exclude each other"),
                            (("--docker-run-flag", "f"), "--docker-run-flag is for --docker"), (("--coordinator", "a:1"), "--coordinator is for --hosts and --tpu"),
                            (("--hosts", "a,b", "-n", "600"), "-n 600 on each of 2 hosts are more than 1024 processes"),
                            (("--hosts", "a", "--env", "a-b=c"), "'a-b' is no name of a variable for a shell")):
            self.assertIn(text, self.run_on(*words, "--", "x", status=2)[1])
        (self.work / "empty").write_text("# nobody\n")
        self.assertIn("empty names no host; it has one in each line", self.run_on("--hosts", "@empty", "--", "x", status=2)[1])
        _, err = self.launch("--tpu", "t", "--", "x", status=2, PATH=str(self.work))
        self.assertIn("gcloud, which says which machines the TPU 't' has, ended with status 127: it is not on PATH", err)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
