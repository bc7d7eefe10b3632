"""What others' tools say of the package: pyright, strictly, of a program and of the stubs; abi3audit and auditwheel of the wheel; and
the tests of the package in other Pythons. Part of `scripts/test --full`."""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, HOME)

import support  # noqa: E402
import types_test  # noqa: E402

LIBRARY = os.path.join(support.BUILD, "lib", "libweft.so.1")
NOTICES = os.environ.get("WEFT_NOTICES") or os.path.join(support.BUILD, "notices")


def run(*command, **more):
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=1200, **more
    )


def tool(name):
    """A program beside this Python, or None."""
    path = os.path.join(os.path.dirname(sys.executable), name)
    return path if os.path.exists(path) else None


def pythons():
    """Other Pythons from 3.9 on: what the names say, and pyenv's."""
    found = [shutil.which("python3.%d" % minor) for minor in range(9, 20)]
    found += glob.glob(os.path.join(os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")), "versions", "3.*", "bin", "python"))
    seen = {}
    for path in filter(None, found):
        said = run(path, "-c", "import sys; print('%d.%d%s' % (*sys.version_info[:2], sys.abiflags)); sys.exit(sys.version_info < (3, 9))")
        if said.returncode == 0:
            seen.setdefault(said.stdout.strip(), path)
    return seen


class Audit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(work.cleanup)
        cls.work = work.name
        made = run(
            *(sys.executable, support.WHEEL, "--library", LIBRARY),
            *("--notices", NOTICES, "--out", cls.work),
        )
        assert made.returncode == 0, made.stdout
        (cls.wheel,) = glob.glob(os.path.join(cls.work, "*.whl"))

    def pyright(self, folder, **more):
        config = {"typeCheckingMode": "strict", "include": ["."], "extraPaths": [folder], **more}
        with open(os.path.join(folder, "pyrightconfig.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        return run(tool("pyright"), "-p", folder, "--outputjson")

    @unittest.skipUnless(tool("pyright"), "pyright is not installed")
    def test_pyright_takes_the_stubs_and_a_program_strictly_and_no_wrong_one(self):
        folder = os.path.join(self.work, "stubs")
        shutil.copytree(os.path.join(support.PACKAGE, "libweft"), os.path.join(folder, "libweft"), ignore=lambda _, names: [
            name for name in names if name.endswith(".py") or name == "__pycache__"
        ])
        # Names with an underscore are the package's own, in other files of it, too; array_api gives what it has by a function.
        done = self.pyright(folder, reportPrivateUsage=False, reportIncompleteStub=False)
        self.assertEqual(0, json.loads(done.stdout)["summary"]["errorCount"], done.stdout)
        program = os.path.join(folder, "program.py")
        for text, errors in ((types_test.PROGRAM, False), (types_test.PROGRAM.replace("keepdims=True", "keepdim=True"), True)):
            with open(program, "w", encoding="utf-8") as f:
                f.write(text)
            done = self.pyright(folder, reportPrivateUsage=False, reportIncompleteStub=False)
            self.assertEqual(errors, bool(json.loads(done.stdout)["summary"]["errorCount"]), done.stdout)

    @unittest.skipUnless(tool("abi3audit"), "abi3audit is not installed")
    def test_the_accelerator_asks_for_the_limited_api_of_3_11_and_no_more(self):
        done = run(tool("abi3audit"), "-s", "-S", "--assume-minimum-abi3", "3.11", self.wheel)
        self.assertEqual(0, done.returncode, done.stdout)
        self.assertIn("0 ABI version", " ".join(done.stdout.split()))

    @unittest.skipUnless(tool("auditwheel"), "auditwheel is not installed")
    def test_the_wheel_is_manylinux_2_28_and_nothing_else(self):
        said = " ".join(run(tool("auditwheel"), "show", self.wheel).stdout.split())
        self.assertIn('is consistent with the following platform tag: "manylinux_2_28_x86_64"', said)

    def test_the_package_in_other_pythons(self):
        tried = 0
        for version, python in sorted(pythons().items()):
            home = os.path.join(self.work, version)
            if run(python, "-m", "venv", home).returncode:
                continue
            inside = os.path.join(home, "bin", "python")
            with self.subTest(version):
                done = run(inside, "-m", "pip", "install", "--no-index", "-q", self.wheel)
                self.assertEqual(0, done.returncode, done.stdout)
                run(inside, "-m", "pip", "install", "-q", "numpy")  # Without it the tests that it judges are left out.
                env = {k: v for k, v in os.environ.items() if k not in ("LIBWEFT_PATH", "PYTHONPATH")}
                env["LIBWEFT_INSTALLED"] = "1"
                for name, chosen in (
                    ("functions_test.py", []),
                    ("calls_test.py", ["Life", "Refusals", "Steps", "Waits"]),
                    ("operations_test.py", ["Operations.test_docstrings_run"]),
                ):
                    done = run(inside, os.path.join(HOME, name), *chosen, env=env)
                    self.assertIn(done.returncode, (0, 5), "%s\n%s" % (name, done.stdout))  # 5: every test was left out.
                tried += 1
        print("%d Pythons: %s" % (tried, ", ".join(sorted(pythons()))))
        self.assertGreater(tried, 0)


if __name__ == "__main__":
    unittest.main()
