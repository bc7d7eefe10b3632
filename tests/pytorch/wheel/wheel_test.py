"""The wheels: made twice they are the same bytes, what they promise is true, and they are installed, checked and removed.

Run with a Python that has torch. The library is WEFT_LIBRARY, or what bindings/pytorch/build.py was given.
"""
import base64
import csv
import hashlib
import importlib.metadata
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[3]
MAKE = SOURCE / "bindings" / "pytorch" / "wheel.py"
INSTALL = SOURCE / "bindings" / "pytorch" / "docker" / "install.sh"
PACKAGE, NAME = "libweft_torch", "torch_xla"


def installed():
    """Whether one of the two distributions is there already; a folder of PYTHONPATH is none."""
    names = {distribution.metadata["Name"] for distribution in importlib.metadata.distributions()}
    return bool(names & {"torch_xla", "libweft-torch"})


def library():
    return pathlib.Path(os.environ.get("WEFT_LIBRARY") or SOURCE / "build" / "release" / "lib" / "libweft.so.1").resolve()


def run(*command, expect=0, **more):
    # Neither the package beside the sources nor a library chosen by hand may be what is found.
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "WEFT_LIBRARY", "PIP_FIND_LINKS")}
    env.update(more.pop("env", {}))
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=env, timeout=600, check=False, **more)
    if done.returncode != expect:
        raise AssertionError(f"{' '.join(str(part) for part in command)} exited {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def make(out, *more, expect=0, epoch="1700000000"):
    return run(sys.executable, MAKE, "--library", library(), "--out", out, *more, expect=expect,
               env={"SOURCE_DATE_EPOCH": epoch})


class Wheels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="weft-wheel-test."))
        cls.addClassCleanup(shutil.rmtree, cls.work, True)
        make(cls.work / "wheels")
        cls.wheels = sorted((cls.work / "wheels").iterdir())
        cls.package = next(path for path in cls.wheels if path.name.startswith(PACKAGE))

    def test_there_are_two_and_made_again_they_are_the_same_bytes(self):
        self.assertEqual([PACKAGE, NAME], [path.name.split("-")[0] for path in self.wheels])
        make(self.work / "again")
        for path in self.wheels:
            self.assertEqual(path.read_bytes(), (self.work / "again" / path.name).read_bytes(), path.name)

    def test_records_name_every_file_with_its_hash(self):
        for path in self.wheels:
            with zipfile.ZipFile(path) as wheel:
                names = wheel.namelist()
                record = next(name for name in names if name.endswith("/RECORD"))
                rows = list(csv.reader(io.StringIO(wheel.read(record).decode("utf-8"))))
                self.assertEqual(sorted(names), sorted(row[0] for row in rows))
                for name, digest, size in rows:
                    if name == record:
                        continue
                    content = wheel.read(name)
                    expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                    self.assertEqual(("sha256=" + expected, str(len(content))), (digest, size), name)

    def test_the_tag_is_what_the_libraries_ask_for(self):
        platform = re.fullmatch(r".*-py3-none-manylinux_(\d+)_(\d+)_x86_64\.whl", self.package.name)
        promised = (int(platform[1]), int(platform[2]))
        with zipfile.ZipFile(self.package) as wheel:
            for name in [name for name in wheel.namelist() if ".so" in name]:
                at = self.work / pathlib.Path(name).name
                at.write_bytes(wheel.read(name))
                symbols = run("readelf", "--dyn-syms", "-W", at)
                newest = max((int(a), int(b)) for a, b in re.findall(r"@GLIBC_(\d+)\.(\d+)", symbols))
                self.assertLessEqual(newest, promised, name)
                self.assertNotRegex(symbols, "GLIBCXX|CXXABI")
                self.assertNotIn(".symtab", run("readelf", "-SW", at))
                self.assertNotIn(str(SOURCE).encode("utf-8"), at.read_bytes())

    def test_it_holds_every_module_and_the_licences(self):
        with zipfile.ZipFile(self.package) as wheel:
            names = set(wheel.namelist())
        root = SOURCE / "bindings" / "pytorch"
        for path in (root / "torch_xla").rglob("*.py"):
            self.assertIn(path.relative_to(root).as_posix(), names)
        info = next(name for name in names if name.endswith("/METADATA")).rsplit("/", 1)[0]
        for name in ("LICENSE", "THIRD_PARTY_NOTICES", "weft.spdx.json"):
            self.assertIn(f"{info}/licenses/{name}", names)

    @unittest.skipIf(installed(), "this Python has torch_xla installed, and the new environment would see it")
    def test_the_script_of_the_image_installs_them_and_pip_removes_them(self):
        venv = self.work / "venv"
        run(sys.executable, "-m", "venv", venv)
        python = venv / "bin" / "python"
        site = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        before = {path for path in site.rglob("*") if "__pycache__" not in path.parts}
        (site / "torch_of_the_test.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        name = next(path for path in self.wheels if path != self.package)
        run(python, "-m", "pip", "install", "--no-index", "--no-deps", name)
        self.assertRegex("".join(self.problems(python)), "(?i)torch[-_]xla .* requires libweft-torch, which is not installed")
        # pip is not asked for dependencies: the torch of the test may have fewer packages than it wants.
        said = run(INSTALL, "--no-torch", "--wheels", self.package.parent, venv, cwd=self.work)
        release = re.search(r"-([0-9.]+)-", self.package.name)[1]
        self.assertRegex(said, rf"torch \S+, torch_xla 2\.9\.0\+weft, libweft-torch {re.escape(release)}\n")
        self.assertRegex(said, r"(\d+) of \1 are right\n")
        self.assertEqual([], self.problems(python))
        where = run(python, "-c", "import torch_xla; print(torch_xla.__version__, torch_xla.__file__)", cwd=self.work).split()
        self.assertEqual(["2.9.0+weft", str(site / "torch_xla" / "__init__.py")], where)
        run(python, "-m", "pip", "uninstall", "-y", "torch_xla", "libweft-torch")
        (site / "torch_of_the_test.pth").unlink()
        after = {path for path in site.rglob("*") if "__pycache__" not in path.parts}
        self.assertEqual(set(), after - before)
        self.assertFalse((site / "torch_xla").exists())

    def test_the_script_says_what_it_needs(self):
        self.assertIn("has 0 wheels of libweft_torch", run(INSTALL, "--wheels", self.work, self.work / "no", expect=1))
        self.assertIn("--wheels is needed", run(INSTALL, self.work / "no", expect=2))
        self.assertIn("unknown option '--fast'", run(INSTALL, "--fast", expect=2))
        self.assertFalse((self.work / "no").exists())

    def problems(self, python):
        """What `pip check` says of ours; of the torch that is there it may say what it likes."""
        done = subprocess.run([python, "-m", "pip", "check"], stdout=subprocess.PIPE, text=True, timeout=300, check=False)
        return [line for line in done.stdout.splitlines() if re.match(r"(?i)torch[-_]xla|libweft", line)]

    def test_what_is_missing_is_said(self):
        there = self.work / "nowhere"
        said = run(sys.executable, MAKE, "--library", there, "--out", self.work / "none", expect=1)
        self.assertIn(f"there is no library at {there}", said)
        said = make(self.work / "none", "--notices", there, expect=1)
        self.assertIn("THIRD_PARTY_NOTICES", said)
        said = make(self.work / "none", epoch="yesterday", expect=1)
        self.assertIn("SOURCE_DATE_EPOCH is 'yesterday'", said)
        self.assertEqual([], list((self.work / "none").glob("*.whl")))


if __name__ == "__main__":
    unittest.main()
