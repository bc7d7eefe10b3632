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
sys.path.insert(0, os.path.join(support.SOURCE, "tests", "serialization"))
import python_env  # noqa: E402
from independent_reader import xxh3  # noqa: E402

import libweft as wf  # noqa: E402
from libweft import _library  # noqa: E402

# Runs as somebody who may not write where the package's user may.
NOBODY = 65534


class Refused(unittest.TestCase):
    def refused(self, kind, text, call):
        """The error of a call: of this kind, with this text, and with the place of the call."""
        with self.assertRaisesRegex(kind, text) as caught:
            call()
        self.assertIsInstance(caught.exception, wf.Error)
        self.assertRegex(caught.exception.position, r"^%s:\d+$" % __file__)
        self.assertEqual([2.0], (wf.tensor([1.0]) + 1).tolist())


class Calls(Refused):
    def test_a_keyword_that_is_none_names_the_nearest(self):
        x = wf.ones((2, 3))
        for call, text in (
            (lambda: x.sum(keepdim=True), r"^sum\(\) got an .* 'keepdim'; did you mean 'keepdims'\? It takes x, dims, keepdims, axis$"),
            (lambda: wf.sum(x, axs=0), "'axs'; did you mean 'axis'"),
            (lambda: wf.exp(x, out=x), "'out'; it takes x$"),
            (lambda: wf.concatenate([x], dimensions=0), "did you mean 'dimension'"),
            (lambda: wf.zeros((2,), dtyp="f32"), r"^zeros\(\).*did you mean 'dtype'"),
            (lambda: wf.tensor([1], dtypes="f32"), r"^tensor\(\).*did you mean 'dtype'"),
            (lambda: x.astype(dtyp="f32"), r"^astype\(\).*did you mean 'dtype'\? It takes dtype, copy$"),
            (lambda: wf.Parameter(1.0, trainble=False), r"^Parameter\(\).*did you mean 'trainable'"),
            (lambda: wf.random.uniform((2,), lo=0), "did you mean 'low'"),
            (lambda: wf.scan(lambda c, v: (c, v), x, x, reversed=True), "did you mean 'reverse'"),
            (lambda: wf.vmap(lambda v: v, in_axis=0), "did you mean 'in_axes'"),
            (lambda: wf.save("x", {}, progres=None), "did you mean 'progress'"),
            (lambda: wf.nn.Linear(2, 3, biass=True), r"^Linear\(\).*did you mean 'bias'\? It takes inputs, outputs, bias, dtype$"),
            (lambda: wf.optim.AdamW([x], eps=1e-8), r"^AdamW\(\).*did you mean 'epsilon'"),
            (lambda: wf.optim.cosine(0.1, 10, warm_up=2), "did you mean 'warmup'"),
        ):
            self.refused(TypeError, text, call)

    def test_a_typeerror_from_within_stays_what_it_is(self):
        def inner(v, axis):
            return v

        with self.assertRaisesRegex(TypeError, r"inner\(\) got an unexpected keyword argument 'axes'") as caught:
            wf.cond(True, lambda v: inner(v, axes=1), lambda v: v, wf.ones((2,)))
        self.assertNotIsInstance(caught.exception, wf.Error)

    def test_nan_where_a_number_is_wanted(self):
        nan, x, p = float("nan"), wf.ones((2, 3)), [wf.Parameter(1.0)]
        for kind, text, call in (
            (ValueError, r"lrs\[0\] is nan; it must be finite", lambda: wf.optim.SGD(p, nan).step([wf.ones(())])),
            (ValueError, "momentum is nan", lambda: wf.optim.SGD(p, 0.1, momentum=nan)),
            (ValueError, "beta1 is nan", lambda: wf.optim.AdamW(p, beta1=nan)),
            (ValueError, "epsilon is nan", lambda: wf.optim.Adam(p, epsilon=nan)),
            (ValueError, "weight_decay is nan", lambda: wf.optim.AdamW(p, weight_decay=nan)),
            (ValueError, "rate is nan", lambda: wf.optim.cosine(nan, 10)),
            (TypeError, "steps is nan, and should be an integer that 8 bytes hold", lambda: wf.optim.linear(0.1, nan)),
            (TypeError, "warmup: steps is nan", lambda: wf.optim.warmup(0.1, nan)),
            (ValueError, "EMA: decay is nan", lambda: wf.optim.EMA(wf.nn.Linear(1, 1), nan)),
            (ValueError, "max_norm is nan", lambda: wf.optim.clip_by_global_norm([x], nan)),
            (ValueError, "low is nan", lambda: x.clip(nan, 1)),
            (ValueError, "mean is nan", lambda: wf.random.normal((2,), nan)),
            (ValueError, "Dropout: rate is nan; it must be at least 0 and below 1", lambda: wf.nn.Dropout(nan)),
            (ValueError, "value nan is not a whole number and dtype is i32", lambda: wf.full((2,), nan, "i32")),
            (ValueError, "the list is none of type i32: cannot convert float NaN", lambda: wf.tensor([1.0, nan], "i32")),
            (ValueError, "the number nan is none of type i32", lambda: wf.tensor(nan, "i32")),
            (ValueError, "the number inf is none of type u8", lambda: wf.tensor(float("inf"), "u8")),
            (ValueError, "from 0 to nan by 1", lambda: wf.arange(nan)),
            (IndexError, "nan is no index: integers, slices", lambda: x[nan]),
            (IndexError, "nan is no index", lambda: x.__setitem__(nan, 1)),
            (TypeError, r"shape is \(nan,\), and should be an integer", lambda: wf.zeros(nan)),
            (TypeError, "reshape: shape is nan", lambda: x.reshape(nan)),
            (TypeError, "dims is nan", lambda: x.sum(axis=nan)),
            (TypeError, "split: sizes is nan", lambda: wf.split(x, nan)),
            (TypeError, "chunk: chunks is nan", lambda: wf.chunk(x, nan)),
            (TypeError, "eye: n is nan", lambda: wf.eye(nan)),
            (TypeError, "moveaxis: source is nan", lambda: wf.moveaxis(x, nan, 0)),
            (TypeError, "fori_loop: upper is nan", lambda: wf.fori_loop(0, nan, lambda i, c: c, x)),
            (TypeError, "weft_scan_options.length is nan", lambda: wf.scan(lambda c, v: (c, v), x, x, length=nan)),
            (TypeError, "vmap: in_axes is nan", lambda: wf.vmap(lambda v: v, in_axes=nan)(x)),
            (TypeError, "grad: argnums is nan", lambda: wf.grad(lambda v: v.sum(), argnums=nan)),
            (TypeError, "seed: value is nan", lambda: wf.seed(nan)),
            (TypeError, "randint: high is nan", lambda: wf.random.randint(0, nan)),
            (TypeError, "Batches: size is nan", lambda: wf.data.Batches(x, size=nan)),
            (TypeError, "Conv2d: kernel is nan", lambda: wf.nn.Conv2d(1, 2, nan)),
            (TypeError, "LayerNorm: size is nan", lambda: wf.nn.LayerNorm(nan)),
            (ValueError, "option threads: 'nan' is not a number", lambda: wf.Context(threads=nan)),
        ):
            with self.subTest(text):
                self.refused(kind, text, call)

    def test_sizes_and_axes_that_cannot_be(self):
        x = wf.ones((2, 3))
        for kind, text, call in (
            (ValueError, "Linear: inputs is -2; it must be 1 or more", lambda: wf.nn.Linear(-2, 3)),
            (ValueError, "Conv2d: 3 inputs and 4 outputs are not 2 equal groups", lambda: wf.nn.Conv2d(3, 4, 3, groups=2)),
            (ValueError, "MaxPool2d: window has 3 numbers", lambda: wf.nn.MaxPool2d((1, 2, 3))),
            (ValueError, "Conv2d: padding is -1; it must be 0 or more", lambda: wf.nn.Conv2d(1, 1, 1, padding=-1)),
            (ValueError, "Batches: size is 0", lambda: wf.data.Batches(x, size=0)),
            (ValueError, "Batches: a tensor is a scalar", lambda: wf.data.Batches(1.0, size=1)),
            (IndexError, r"split: axis is 2, and the shape is \[2, 3\]", lambda: wf.split(x, 1, axis=2)),
            (IndexError, "unstack: axis is -3", lambda: wf.unstack(x, -3)),
            (IndexError, "swapaxes: b is 2", lambda: x.swapaxes(0, 2)),
            (IndexError, "vmap: in_axes is 7", lambda: wf.vmap(lambda v: v, in_axes=7)(x)),
            (IndexError, "'a' is no index", lambda: x["a"]),
            (ValueError, "randint: no whole number is from 3 to 2", lambda: wf.random.randint(3, 3)),
            (ValueError, "plot: there is no finite number to draw", lambda: wf.plot.lines({})),
        ):
            with self.subTest(text):
                self.refused(kind, text, call)

    def test_more_than_the_memory_holds(self):
        huge = wf.zeros((1 << 44,))
        for read in (huge.tolist, huge.tobytes):
            self.refused(MemoryError, r"f32\[17592186044416\] has 70368744177664 bytes, for which the host has no room", read)
        if support.np is not None:
            self.refused(MemoryError, "for which the host has no room", huge.numpy)
        self.refused(MemoryError, "bytes", lambda: (huge + 1).eval())

    def test_devices_by_name_and_of_other_contexts(self):
        name = wf.devices()[0].name
        self.assertEqual([1.0, 2.0], wf.tensor([1.0, 2.0], device=name).tolist())
        for make in (lambda d: wf.full((2,), 1.0, device=d), lambda d: wf.tensor([1.0, 1.0], device=d), lambda d: wf.zeros((2,), device=d) + 1):
            for _ in range(2):
                self.assertEqual([1.0, 1.0], make(name).tolist())
                with wf.Context():
                    self.assertEqual([1.0, 1.0], make(wf.devices()[0]).tolist())
            self.refused(LookupError, "there is no device 'gpu:7' here; there are: " + name, lambda: make("gpu:7"))
        with wf.Context():
            foreign = wf.devices()[0]
        self.refused(ValueError, "device %s belongs to another context" % name, lambda: wf.full((2,), 1.0, device=foreign))


class Files(Refused):
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

    def test_a_checkpoint_of_another_version(self):
        path = self.path("state.weft")
        wf.save(path, {"x": wf.ones((4,))})
        with open(path, "rb") as f:
            data = bytearray(f.read())
        data[8] = 2  # the major version of the prologue, whose checksum is its last 8 bytes
        data[56:64] = struct.pack("<Q", xxh3(bytes(data[:56])))
        self.path("state.weft", data)
        self.refused(NotImplementedError, "has checkpoint format 2.0; this library reads format 1", lambda: wf.load(path))

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
            "import os, libweft as wf\nx, save = wf.ones((4,)), wf.save\nx.tolist()\nos.setuid(%d)\n"
            "try:\n    save(%r, {'x': x})\n"
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
