"""The wheel: what is in it, the same bytes twice, installed without an index into clean environments, and nothing left
when it goes."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile

import support

LIBRARY = os.path.join(support.BUILD, "lib", "libweft.so.1")
NOTICES = os.environ.get("WEFT_NOTICES") or os.path.join(support.BUILD, "notices")
COMMANDS = """
import sys, time
begin = time.process_time()
import libweft as wf
print("%.0f" % (1e3 * (time.process_time() - begin)), "threading" in sys.modules, "json" in sys.modules)
begin = time.process_time()
x = wf.tensor([1.0, 2.0])
(x + 1).tolist()
print("%.0f" % (1e3 * (time.process_time() - begin)))
print(wf.grad(lambda v: (v * v).sum())(x).tolist(), wf.library_path())
"""


def run(*command, **more):
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=600, **more
    )


@unittest.skipUnless(
    os.path.exists(LIBRARY) and os.path.isdir(NOTICES), "the release build's library and notices are not there"
)
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.wheel = cls.make("one")

    @classmethod
    def tearDownClass(cls):
        cls.work.cleanup()

    @classmethod
    def make(cls, folder):
        out = os.path.join(cls.work.name, folder)
        done = run(
            sys.executable, support.WHEEL, "--library", LIBRARY, "--notices", NOTICES, "--out", out
        )
        assert done.returncode == 0, done.stdout
        (name,) = os.listdir(out)
        return os.path.join(out, name)

    def test_what_is_in_it(self):
        self.assertRegex(os.path.basename(self.wheel), r"^libweft-[0-9.]+-py3-none-manylinux_2_28_x86_64\.whl$")
        self.assertLessEqual(os.path.getsize(self.wheel), 18 << 20)
        with zipfile.ZipFile(self.wheel) as z:
            names = z.namelist()
            info = next(n for n in names if n.endswith("/METADATA")).rpartition("/")[0]
            metadata = z.read(info + "/METADATA").decode()
        for name in (
            "libweft/libweft.so.1",
            "libweft/_accelerator.abi3.so",
            "libweft/py.typed",
            "libweft/_ops.pyi",
            info + "/licenses/LICENSE",
            info + "/licenses/THIRD_PARTY_NOTICES",
            info + "/sboms/weft.spdx.json",
            info + "/RECORD",
        ):
            self.assertIn(name, names)
        self.assertIn("License-File: LICENSE", metadata)
        self.assertNotIn("Requires-Dist", metadata)
        self.assertFalse([n for n in names if "entry_points" in n or n.startswith("weft/")])

    def test_the_build_s_package_is_the_wheel_s(self):
        with zipfile.ZipFile(self.wheel) as z:
            shipped = {n: z.read(n) for n in z.namelist() if n.endswith((".py", ".pyi", "/py.typed"))}
        built = {}
        for home, _, names in os.walk(support.PACKAGE):
            for name in names:
                if name.endswith((".py", ".pyi", "py.typed")):
                    path = os.path.join(home, name)
                    with open(path, "rb") as f:
                        built[os.path.relpath(path, support.PACKAGE)] = f.read()
        self.assertIn("libweft/_ops.py", shipped)
        self.assertEqual(shipped, built)

    def test_the_same_commit_gives_the_same_bytes(self):
        with open(self.wheel, "rb") as a, open(self.make("two"), "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_it_installs_runs_and_goes(self):
        home = os.path.join(self.work.name, "venv")
        venv.create(home, with_pip=True)
        python = os.path.join(home, "bin", "python")
        env = {k: v for k, v in os.environ.items() if k not in ("LIBWEFT_PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}

        def files():
            return {os.path.join(f, n) for f, _, names in os.walk(home) for n in names if "__pycache__" not in f}

        before = files()
        done = run(python, "-m", "pip", "install", "--no-index", "-q", "--disable-pip-version-check", self.wheel, env=env)
        self.assertEqual(0, done.returncode, done.stdout)
        warm = {**env, "WEFT_CACHE_DIR": os.path.join(self.work.name, "cache")}
        warm.pop("WEFT_CACHE_MODE", None)
        for _ in range(2):
            done = run(python, "-c", COMMANDS, env=warm, cwd=self.work.name)
            self.assertEqual(0, done.returncode, done.stdout)
        imported, threads, json, first, rest = re.match(r"(\d+) (\w+) (\w+)\n(\d+)\n(.*)", done.stdout).groups()
        self.assertEqual(("False", "False"), (threads, json), "the import reads more than it needs")
        self.assertLessEqual(int(imported), 120, "an import takes 20 to 40 ms where nothing else runs")
        self.assertLessEqual(int(first), 300, "the first tensor takes at most 150 ms from a warm cache where nothing else runs")
        self.assertTrue(rest.startswith("[2.0, 4.0] " + home), rest)
        doctor = run(python, "-m", "libweft", "doctor", env=env).stdout
        self.assertIn("as it should be", doctor)
        self.assertIn("accelerator " + ("none" if sys.version_info < (3, 11) else home), doctor)
        for test in ("calls_test.py", "functions_test.py", "data_test.py", "refusals_test.py"):
            chosen = ["Refusals", "Doctor"] if test == "calls_test.py" else []
            done = run(
                python,
                os.path.join(os.path.dirname(os.path.abspath(__file__)), test),
                *chosen,
                env={**env, "LIBWEFT_INSTALLED": "1"},
            )
            self.assertIn("OK", done.stdout, done.stdout)
        run(python, "-m", "pip", "uninstall", "-qy", "libweft", env=env)
        self.assertEqual(before, files())


if __name__ == "__main__":
    unittest.main()
