"""What machines, disks and other people's files do to a program: each is an exception of the fitting kind with a text, and the process
goes on."""

import os
import resource
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import support

sys.path.insert(0, os.path.join(support.SOURCE, "tests", "support"))
import python_env  # noqa: E402

import libweft as wf  # noqa: E402
from libweft import _library  # noqa: E402

# Runs as somebody who may not write where the package's user may.
NOBODY = 65534


class Files(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.folder = work.name

    def path(self, name, data=None):
        path = os.path.join(self.folder, name)
        if data is not None:
            with open(path, "wb") as f:
                f.write(data)
        return path

    def refused(self, kind, text, call):
        with self.assertRaisesRegex(kind, text) as caught:
            call()
        self.assertIsInstance(caught.exception, wf.Error)
        self.assertEqual([2.0], (wf.tensor([1.0]) + 1).tolist())

    def test_safetensors_that_end_early_or_say_too_much(self):
        whole = self.path("whole.safetensors")
        wf.save(whole, {"x": wf.arange(1000)})
        with open(whole, "rb") as f:
            data = f.read()
        for cut in (0, 4, 8, 20, len(data) // 2, len(data) - 1):
            with self.subTest(cut):
                self.refused((OSError, ValueError), "", lambda: wf.load(self.path("cut.safetensors", data[:cut])))
        header = b'{"x":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}}'
        self.refused((OSError, ValueError), "beyond 64 bits", lambda: wf.load(self.path("wide.safetensors", struct.pack("<Q", len(header)) + header + bytes(4))))
        self.refused(
            (OSError, ValueError), "", lambda: wf.load(self.path("long.safetensors", struct.pack("<Q", 2**62) + header))
        )

    def test_a_file_that_grows_past_what_the_process_may_write(self):
        path, old = self.path("state.weft"), resource.getrlimit(resource.RLIMIT_FSIZE)
        wf.save(path, {"x": wf.ones((4,))})
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, old[1]))
        try:
            self.refused(OSError, "state.weft|large", lambda: wf.save(path, {"x": wf.zeros((1 << 20,))}))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        self.assertEqual([1.0] * 4, wf.load(path)["x"].tolist())  # the old file is whole
        self.assertEqual(["state.weft"], os.listdir(self.folder))

    def test_a_disk_that_is_full(self):
        disk = self.path("disk")
        os.mkdir(disk)
        code = (
            "import ctypes, os, libweft as wf\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "if os.geteuid() or libc.unshare(0x20000) or libc.mount(b'none', b'/', None, 0x44000, None)"
            " or libc.mount(b'tmpfs', %r, b'tmpfs', 0, b'size=1m'):\n    raise SystemExit(77)\n"
            "path = %r\nwf.save(path, {'x': wf.ones((4,))})\n"
            "try:\n    wf.save(path, {'x': wf.random.normal(shape=(1 << 20,))})\n"
            "except OSError as error:\n    print(isinstance(error, wf.Error), error.code)\n"
            "print(wf.load(path)['x'].tolist(), os.listdir(os.path.dirname(path)))"
        ) % (disk.encode(), os.path.join(disk, "state.weft"))
        status, out, error = support.run(code)
        if status == 77:
            self.skipTest("this process may not mount a disk")
        self.assertEqual((0, "True RESOURCE_EXHAUSTED\n[1.0, 1.0, 1.0, 1.0] ['state.weft']\n"), (status, out), error)

    @unittest.skipIf(os.geteuid() != 0, "only root can become nobody")
    def test_a_folder_in_which_one_may_not_write(self):
        os.chmod(self.folder, 0o755)
        code = (
            "import os, libweft as wf\nx = wf.ones((4,))\nos.setuid(%d)\n"
            "try:\n    wf.save(%r, {'x': x})\n"
            "except PermissionError as error:\n    print(isinstance(error, wf.Error), error.code)\n"
            "print(x.tolist())"
        ) % (NOBODY, self.path("state.weft"))
        status, out, error = support.run(code)
        self.assertEqual((0, "True PERMISSION_DENIED\n[1.0, 1.0, 1.0, 1.0]\n"), (status, out), error)
        self.assertEqual([], os.listdir(self.folder))


class Machine(unittest.TestCase):
    def test_a_system_with_musl_is_told_what_it_lacks(self):
        there = {"/lib/ld-musl-x86_64.so.1": True, "/lib64/ld-linux-x86-64.so.2": False}
        with unittest.mock.patch("os.path.exists", lambda path: there[path]), unittest.mock.patch.dict("os.environ"):
            os.environ.pop(_library.ENVIRONMENT, None)
            self.assertIn("this system's C library is musl; the library needs glibc 2.28 or later", _library._musl())

    def test_an_older_python_is_refused_by_its_version(self):
        root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
        versions = os.path.join(root, "versions")
        old = sorted(v for v in (os.listdir(versions) if os.path.isdir(versions) else ()) if v.startswith("3.8."))
        if not old or "LIBWEFT_INSTALLED" in os.environ:
            self.skipTest("there is no Python 3.8")
        done = subprocess.run(
            [os.path.join(versions, old[-1], "bin", "python"), "-c", "import libweft"],
            env={**os.environ, "PYTHONPATH": support.PACKAGE},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        self.assertIn("ImportError: libweft needs Python 3.9 or later, and this is 3.8", done.stderr)

    def beside(self, other, python, code):
        """Either is imported first; both compute."""
        for first, second in (("libweft", other), (other, "libweft")):
            program = "import %s, %s\nimport libweft as wf\nprint(wf.ones((3,)).sum().item(), %s, wf.ones((3,)).exp().tolist()[0] > 2.7)"
            done = subprocess.run(
                [python, "-c", program % (first, second, code)],
                env={**os.environ, "PYTHONPATH": support.PACKAGE},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                timeout=300,
                check=False,
            )
            self.assertEqual((0, "3.0 3.0 True\n"), (done.returncode, done.stdout), (first, second, done.stderr[-2000:]))

    @unittest.skipIf("LIBWEFT_INSTALLED" in os.environ, "of the tree's package")
    def test_beside_jax(self):
        os.environ.setdefault("WEFT_BUILD", support.BUILD)
        python, reason = python_env.python_with("jax", ["jax", "numpy"])  # coexist_test's
        if python is None:
            self.skipTest(reason)
        self.beside("jax", python, "float(jax.numpy.ones(3).sum())")

    @unittest.skipUnless("WEFT_TORCH_PYTHON" in os.environ and "LIBWEFT_INSTALLED" not in os.environ, "WEFT_TORCH_PYTHON is not set")
    def test_beside_pytorch(self):
        self.beside("torch", os.environ["WEFT_TORCH_PYTHON"], "float(torch.ones(3).sum())")


if __name__ == "__main__":
    unittest.main()
