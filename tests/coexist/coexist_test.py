"""libweft in one process beside what hosts bring: other LLVMs with their symbols in the open, a second
copy of itself, JAX, and (scripts/test --peers) PyTorch. Each case is a process of its own.

JAX comes from the package registry into a virtual environment of the build tree; without a registry, or
without Debian's other LLVM, the case is SKIPPED and says so.
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

LIB = os.environ["WEFT_LIB"]
BUILD = os.environ["WEFT_BUILD"]
CLIENT = os.path.join(os.environ["WEFT_SOURCE"], "tests", "coexist", "client.py")


class Coexist(unittest.TestCase):
    def client(self, *args, python=sys.executable):
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run([python, CLIENT, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env=dict(os.environ, XDG_CACHE_HOME=cache), timeout=300)
        self.assertEqual((0, "ok"), (done.returncode, done.stdout.strip().splitlines()[-1] if done.stdout else ""),
                         done.stdout[-3000:])

    def llvm(self, version):
        found = sorted(glob.glob(f"/usr/lib/*/libLLVM-{version}.so*") + glob.glob(f"/usr/lib/*/libLLVM.so.{version}*"))
        if not found:
            self.skipTest(f"SKIPPED: Debian's libllvm{version} is not installed")
        return found[0]

    def peer(self, package):
        """Python of an environment that has the package, kept in the build tree."""
        home = os.path.join(BUILD, f"venv-{package}")
        python = os.path.join(home, "bin", "python")
        if not os.path.exists(os.path.join(home, "complete")):
            shutil.rmtree(home, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
            done = subprocess.run([python, "-m", "pip", "install", "-q", "--retries", "1", "--timeout", "20", package],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                last = done.stdout.strip().splitlines()[-1:] or ["no output"]
                self.skipTest(f"SKIPPED: {package} cannot be installed here: {last[0]}")
            open(os.path.join(home, "complete"), "w", encoding="utf-8").close()
        return python

    def test_alone(self):
        self.client(LIB)

    def test_beside_llvm_14(self):
        self.client("--global", self.llvm(14), LIB)

    def test_beside_llvm_19_the_version_linked_inside(self):
        self.client("--global", self.llvm(19), LIB)

    def test_beside_a_second_copy_of_itself(self):
        with tempfile.TemporaryDirectory() as work:
            second = os.path.join(work, "libweft.so.1")
            shutil.copy(LIB, second)
            self.client(LIB, second)

    def test_beside_jax(self):
        self.client("--beside", "jax", LIB, python=self.peer("jax"))

    def test_beside_pytorch(self):
        if os.environ.get("WEFT_PEERS") != "1":
            self.skipTest("large: runs in scripts/test --peers")
        self.client("--beside", "torch", LIB, python=self.peer("torch"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
