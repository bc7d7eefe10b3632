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

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import python_env  # noqa: E402

LIB = os.environ["WEFT_LIB"]
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
        python, reason = python_env.python_with(package, [package, "numpy"])
        if python is None:
            self.skipTest(f"SKIPPED: {reason}")
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
