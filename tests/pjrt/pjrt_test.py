"""Platform pjrt on a real XLA:CPU plugin of four devices, through libweft.so alone: what is no plugin is said, each device computes,
the main example's losses and checkpoints are the CPU backend's, the second start compiles nothing."""
import ctypes as c
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
BUILD = pathlib.Path(os.environ["WEFT_BUILD"])
sys.path.insert(0, str(SOURCE / "tests" / "support"))
from xla_cpu import enter, plugin  # noqa: E402

DATA = "/usr/share/datasets/fashion-mnist"
F32 = 0x12002
STRLEN = c.c_size_t(-1)
LIB = c.CDLL(os.environ["WEFT_LIB"])
LIB.weft_error_message.restype = c.c_char_p
LIB.weft_error_message.argtypes = [c.c_void_p, c.c_void_p]
LIB.weft_error_release.argtypes = [c.c_void_p]
for kind in ("tensor", "context", "device"):
    getattr(LIB, f"weft_{kind}_release").argtypes = [c.c_void_p]


class Setting(c.Structure):
    _fields_ = [("name", c.c_char_p), ("name_length", c.c_size_t), ("value", c.c_char_p), ("value_length", c.c_size_t)]


class ContextOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("next", c.c_void_p), ("mode", c.c_int32), ("min_log_level", c.c_int32),
                ("settings", c.POINTER(Setting)), ("setting_count", c.c_uint64)]


def call(name, *args):
    function = getattr(LIB, name)
    function.restype = c.c_void_p
    error = function(*args)
    if error:
        text = LIB.weft_error_message(error, None).decode()
        LIB.weft_error_release(error)
        raise RuntimeError(text)


def context(**settings):
    pairs = [(name.encode(), str(value).encode()) for name, value in settings.items()]
    array = (Setting * len(pairs))(*[Setting(name, len(name), value, len(value)) for name, value in pairs])
    options = ContextOptions(c.sizeof(ContextOptions), None, 0, 0, array, len(pairs))
    ctx = c.c_void_p()
    call("weft_context_create", c.byref(options), c.byref(ctx))
    return ctx


class NoPlugins(unittest.TestCase):
    def refused(self, text, **settings):
        with self.assertRaises(RuntimeError) as raised:
            LIB.weft_context_release(context(platform="pjrt", **settings))
        self.assertEqual("weft_context_create: " + text, str(raised.exception))

    def built(self, folder, *macros):
        path = os.path.join(folder, "_".join(macros or ["plain"]).replace("=", "_") + ".so")
        subprocess.run(["cc", "-shared", "-fPIC", "-w", *[f"-D{m}" for m in macros], str(SOURCE / "tests" / "pjrt" / "not_quite.c"), "-o", path],
                       check=True)
        return path

    def test_what_is_wrong_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = os.path.realpath(folder)
            self.refused("platform pjrt wants the option plugin (WEFT_PLUGIN), the path of a PJRT plugin's library")
            self.refused("plugin '/nowhere' cannot be opened: No such file or directory", plugin="/nowhere")
            text = os.path.join(folder, "text.so")
            with open(text, "w", encoding="utf-8") as out:
                out.write("no library")
            self.refused(f"plugin '{text}' cannot be loaded: its 10 bytes are no shared library (ELF)", plugin=text)
            foreign = bytearray(pathlib.Path(os.environ["WEFT_LIB"]).read_bytes()[:4096])
            foreign[18:20] = b"\xb7\x00"  # aarch64
            with open(text, "wb") as out:
                out.write(foreign)
            self.refused(f"plugin '{text}' cannot be loaded: it is for 64-bit ARM (aarch64), and this process is x86-64", plugin=text)
            for count in ("0", "-1", "65537", "x", "1.5", "true", "'4'", ""):
                self.refused(f"option plugin_options: cpu_device_count is '{count}'; it is an integer of 1 to 65536", plugin="/nowhere",
                             plugin_options=f"cpu_device_count={count}")
            lib = os.path.realpath(os.environ["WEFT_LIB"])
            self.refused(f"'{lib}' is no PJRT plugin: it has no function GetPjrtApi", plugin=lib)
            path = self.built(folder, "MAJOR=1")
            self.refused(f"plugin '{path}' speaks PJRT 1.114; this library speaks 0.x", plugin=path)
            path = self.built(folder, "FUNCTIONS=60")
            self.refused(f"plugin '{path}' speaks PJRT 0.20, which is too old: it has no PJRT_Executable_OutputDimensions", plugin=path)
            path = self.built(folder)
            self.refused(f"plugin '{path}' could not be initialised: PJRT_Plugin_Initialize: the flux capacitor is empty", plugin=path)
            path = self.built(folder, "INITIALIZES")
            self.refused(f"plugin '{path}' (PJRT 0.114) gives no devices: PJRT_Client_Create: the flux capacitor is empty", plugin=path)

    def test_texts_of_the_selection(self):
        def refused(text, environment=None, **settings):
            before = {name: os.environ.get(name) for name in environment or {}}
            os.environ.update(environment or {})
            try:
                with self.assertRaises(RuntimeError) as raised:
                    LIB.weft_context_release(context(**settings))
            finally:
                for name, value in before.items():
                    os.environ.pop(name)
                    if value is not None:
                        os.environ[name] = value
            self.assertIn(text, str(raised.exception))

        nowhere = {"PATH": "", "HOME": "/nowhere", "VIRTUAL_ENV": "/nowhere", "CONDA_PREFIX": "", "LD_LIBRARY_PATH": "/nowhere/lib"}
        refused("platform rocm: no plugin was found. Looked for: the option plugin and WEFT_PLUGIN, which are not set; "
                "jax_plugins/xla_rocm*/xla_rocm_plugin.so in ", nowhere, platform="rocm")
        refused("xla_rocm_plugin.so in /nowhere/lib, /lib, ", nowhere, platform="rocm")
        refused("TPU_LIBRARY_PATH is '/nowhere', where there is no file", {"TPU_LIBRARY_PATH": "/nowhere"}, platform="tpu")
        refused("option platform: 'tpuu' is not one of cpu, reference, pjrt, tpu, gpu, cuda, rocm", platform="tpuu")
        address = "tpu_worker;0;10.255.255.1:8470"  # of nobody: it is never asked
        refused("XRT_TPU_CONFIG is set, for XRT, which is no more: unset it; the option platform=tpu (WEFT_PLATFORM=tpu, PJRT_DEVICE=TPU) is "
                "enough: libtpu finds the TPUs of this machine, and TPU_VISIBLE_CHIPS picks some of them", {"XRT_TPU_CONFIG": address}, platform="tpu")
        refused("XRT_TPU_CONFIG is set, for XRT, which is no more", {"XRT_TPU_CONFIG": "", "PJRT_DEVICE": "TPU"})
        refused("XRT_DEVICE_MAP, XRT_WORKERS are set, for XRT, which is no more: unset them; ",
                {"XRT_DEVICE_MAP": "TPU:0;/job:tpu_worker/replica:0/task:0/device:TPU:0", "XRT_WORKERS": "tpu_worker:0;grpc://10.255.255.1:8470"}, platform="tpu")
        refused("TPU_LIBRARY_PATH is '/nowhere'", {"TPU_LIBRARY_PATH": "/nowhere", "PJRT_DEVICE": "TPU"})
        refused("PJRT_DEVICE: 'NEURON' is not one of CPU, TPU, GPU, CUDA, ROCM; the option platform (WEFT_PLATFORM) goes before it",
                {"PJRT_DEVICE": "NEURON"})
        for name in ("v5e", "v9z:1x1", ":2x2"):
            refused(f"option topology: '{name}' is not a family of TPUs and a grid of chips, such as v5e:2x2 or v4:2x2x1; families are ",
                    platform="tpu", topology=name)
        for name in ("v5e:", "v5e:2x2x1", "v5e:0x1", "v5e:2x-2", "v5e:2x2 "):
            refused(f"option topology: '{name}': the grid of a v5e has 2 sides of 1 to 64 chips, such as v5e:2x2", platform="tpu", topology=name)
        refused("option topology is 'v5e:1x1', but the platform cpu compiles for this machine alone; 'tpu' does for others",
                platform="cpu", topology="v5e:1x1")
        refused("option plugin_options: 'a' is not name=value", platform="pjrt", plugin="/nowhere", plugin_options="a")
        path = plugin()
        refused(f"plugin '{path}' is for the platform cpu, not tpu; platform pjrt takes any", platform="tpu", plugin=path)
        refused("Unexpected option name passed to PJRT_Client_Create: speed (plugin_options: cpu_device_count=1,speed='4')",
                platform="pjrt", plugin=path, plugin_options="cpu_device_count=1,speed='4'")
        refused(f"plugin '{path}' knows no topology 'moon': PJRT_TopologyDescription_Create: ", platform="pjrt", plugin=path, topology="moon")

    def test_what_others_variables_choose(self):
        os.environ.update(PJRT_DEVICE="TPU", XRT_TPU_CONFIG="tpu_worker;0;10.255.255.1:8470", XRT_WORKERS="")
        try:  # whoever says the platform is not asked for them
            LIB.weft_context_release(context(platform="cpu"))
            LIB.weft_context_release(context(platform="reference"))
            LIB.weft_context_release(context(platform="pjrt", plugin=plugin(), cache_mode="off"))
            for device in ("CPU", None):  # and where the platform comes from elsewhere, they mean nothing as well
                os.environ.pop("PJRT_DEVICE")
                if device:
                    os.environ["PJRT_DEVICE"] = device
                LIB.weft_context_release(context())
                os.environ["PJRT_DEVICE"] = ""
        finally:
            for name in ("PJRT_DEVICE", "XRT_TPU_CONFIG", "XRT_WORKERS"):
                os.environ.pop(name, None)

    def test_a_plugins_own_options(self):
        ctx, count = context(platform="pjrt", plugin=plugin(), plugin_options="cpu_device_count=2", cache_mode="off"), c.c_size_t()
        call("weft_device_count", ctx, c.byref(count))
        self.assertEqual(2, count.value)
        with self.assertRaises(RuntimeError) as raised:
            call("weft_device_at", ctx, c.c_size_t(2), c.byref(c.c_void_p()))
        self.assertIn("device 2 of a context that has 2", str(raised.exception))
        LIB.weft_context_release(ctx)

    def test_other_platforms_need_none(self):
        LIB.weft_context_release(context(platform="cpu", plugin="/some/plugin.so"))


class Devices(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import signal
        before = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGSEGV)]
        cls.ctx = context(platform="pjrt", plugin=plugin(), cache_mode="off")
        assert before == [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGSEGV)]

    @classmethod
    def tearDownClass(cls):
        LIB.weft_context_release(cls.ctx)

    def device(self, index):
        device = c.c_void_p()
        call("weft_device_at", self.ctx, c.c_size_t(index), c.byref(device))
        return device

    def tensor(self, array, device=None):
        import numpy
        array = numpy.ascontiguousarray(array, "f4")
        dims, out = (c.c_int64 * array.ndim)(*array.shape), c.c_void_p()
        call("weft_tensor_from_host", self.ctx, device, c.c_uint32(F32), dims, c.c_size_t(array.ndim), c.c_void_p(array.ctypes.data),
             c.c_size_t(array.nbytes), c.byref(out))
        return out

    def read(self, tensor, shape):
        import numpy
        array = numpy.empty(shape, "f4")
        call("weft_tensor_to_host", tensor, c.c_void_p(array.ctypes.data), c.c_size_t(array.nbytes))
        return array

    def op(self, name, *inputs):
        out = c.c_void_p()
        call(f"weft_{name}", self.ctx, *inputs, c.byref(out))
        return out

    def test_each_computes(self):
        import numpy
        count = c.c_size_t()
        call("weft_device_count", self.ctx, c.byref(count))
        self.assertEqual(4, count.value)
        for index in range(count.value):
            device, name, used = self.device(index), c.c_char_p(), c.c_size_t()
            call("weft_device_name", device, c.byref(name), c.byref(used))
            self.assertEqual(f"pjrt:{index}", name.value.decode())
            x = numpy.arange(6, dtype="f4").reshape(2, 3) + index
            a, b = self.tensor(x, device), self.tensor(x.T, device)
            both = c.c_void_p()
            call("weft_matmul", self.ctx, a, b, None, c.byref(both))
            numpy.testing.assert_array_equal(x @ x.T, self.read(both, (2, 2)))
            for handle in (a, b, both):
                LIB.weft_tensor_release(handle)
            LIB.weft_device_release(device)

    def test_copies_between_devices(self):
        import numpy
        x = numpy.arange(5, dtype="f4")
        first, last = self.tensor(x, self.device(0)), c.c_void_p()
        call("weft_tensor_copy_to", first, self.device(3), c.byref(last))
        numpy.testing.assert_array_equal(2 * x, self.read(self.op("add", last, last), (5,)))

    def test_what_somebody_holds_is_not_taken_over(self):
        import numpy
        x = numpy.arange(5, dtype="f4")
        t, alias = self.tensor(x), c.c_void_p()
        call("weft_tensor_copy", t, c.byref(alias))
        for _ in range(3):
            call("weft_tensor_assign", t, self.op("add", t, t))
            call("weft_sync", self.ctx, None, None)
        numpy.testing.assert_array_equal(8 * x, self.read(t, (5,)))
        numpy.testing.assert_array_equal(x, self.read(alias, (5,)))

    def test_arguments_in_the_block_of_words(self):
        import numpy
        x = numpy.arange(4, dtype="f4")
        for value in (0.5, -3.0, 1e30):
            scalar = c.c_void_p()
            call("weft_tensor_from_f64", self.ctx, c.c_uint32(F32), c.c_double(value), c.byref(scalar))
            numpy.testing.assert_array_equal(x * numpy.float32(value), self.read(self.op("mul", self.tensor(x), scalar), (4,)))

    def test_what_is_held_or_saved_meanwhile_compiles_nothing(self):
        def compiled():
            count = c.c_int64()
            call("weft_metric_get", self.ctx, b"programs_compiled", STRLEN, c.byref(count))
            return count.value

        def step():
            call("weft_tensor_assign", t, self.op("add", t, one))
            call("weft_sync", self.ctx, None, None)

        t, one, held, tree, saved = self.tensor([0, 10]), self.tensor([1, 1]), c.c_void_p(), c.c_void_p(), c.c_void_p()
        call("weft_tree_create", c.byref(tree))
        call("weft_tree_add_tensor", tree, c.c_uint32(0), b"t", STRLEN, t, None)
        step()
        before = compiled()
        call("weft_tensor_copy", t, c.byref(held))
        step()
        with tempfile.TemporaryDirectory() as folder:
            call("weft_checkpoint_save", self.ctx, os.path.join(folder, "t").encode(), STRLEN, tree, None, c.byref(saved))
            for _ in range(3):
                step()
            call("weft_event_wait", saved, c.c_int64(-1))
            step()
        self.assertEqual(before, compiled())
        self.assertEqual([[1, 11], [6, 16]], [self.read(held, (2,)).tolist(), self.read(t, (2,)).tolist()])

    def test_memory_that_is_lent_to_it_is_never_written_to(self):
        import numpy
        pointer, rename = c.pythonapi.PyCapsule_GetPointer, c.pythonapi.PyCapsule_SetName
        pointer.restype, pointer.argtypes, rename.argtypes = c.c_void_p, [c.py_object, c.c_char_p], [c.py_object, c.c_char_p]
        used = b"used_dltensor"  # capsules keep the pointer
        for size in (5, 1 << 20):
            array, t = numpy.arange(size, dtype="f4"), c.c_void_p()
            capsule = array.__dlpack__()
            call("weft_tensor_from_dlpack_legacy", self.ctx, c.c_void_p(pointer(capsule, b"dltensor")), c.byref(t))
            rename(capsule, used)
            for _ in range(2):
                call("weft_tensor_assign", t, self.op("add", t, t))
                call("weft_sync", self.ctx, None, None)
            numpy.testing.assert_array_equal(4 * numpy.arange(size, dtype="f4"), self.read(t, (size,)))
            numpy.testing.assert_array_equal(numpy.arange(size, dtype="f4"), array)
            LIB.weft_tensor_release(t)

    def test_what_is_said_of_a_device(self):
        blob = c.c_void_p()
        call("weft_metrics_json", self.ctx, c.byref(blob))
        LIB.weft_blob_data.restype, LIB.weft_blob_size.restype = c.c_void_p, c.c_size_t
        first, *_ = json.loads(c.string_at(LIB.weft_blob_data(blob), LIB.weft_blob_size(blob)))["memory"]
        self.assertEqual(("pjrt:0", "0.115"), (first["device"], first["attributes"]["pjrt_version"]))
        self.assertEqual(3, len(first["attributes"]["stablehlo_current_version"]))
        LIB.weft_blob_release(blob)

    def test_memory_is_not_lent(self):
        out = c.c_void_p()
        with self.assertRaises(RuntimeError) as raised:
            call("weft_tensor_to_dlpack", self.tensor([1.0, 2.0]), c.byref(out))
        self.assertIn("memory of pjrt:0 cannot be lent as DLPack; copy it with weft_tensor_to_host", str(raised.exception))


class DevicesOfAPluginWithoutProgramsForAny(Devices):
    """The same on a plugin that compiles for its first device whatever the options say: XLA's then refuses to run that on another, and
    loads it for each."""
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        listener = os.path.join(cls.folder.name, "listener.so")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", str(SOURCE / "tests" / "pjrt" / "listener.c"), "-o", listener], check=True)
        os.environ.update(WEFT_LISTEN_TO=plugin(), WEFT_LISTEN_ALONE="1", WEFT_LISTEN_IN=cls.folder.name)
        cls.ctx = context(platform="pjrt", plugin=listener, cache_mode="off")

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        for name in ("WEFT_LISTEN_TO", "WEFT_LISTEN_ALONE", "WEFT_LISTEN_IN"):
            os.environ.pop(name)
        cls.folder.cleanup()

    def test_each_computes(self):
        texts = [len(os.listdir(self.folder.name))]
        super().test_each_computes()
        texts.append(len(os.listdir(self.folder.name)))
        self.assertEqual(1, texts[1] - texts[0], "for four devices")


class CustomOperations(unittest.TestCase):
    def test_all_that_their_c_test_does(self):
        """tests/c_api/custom.c takes this plugin for the tests' own."""
        done = subprocess.run([BUILD / "bin" / "weft_c_custom"], env=dict(os.environ, WEFT_PJRT_FAKE=plugin()), capture_output=True, text=True)
        self.assertEqual((0, "custom: all passed\n"), (done.returncode, done.stdout), done.stderr)


class Launches(unittest.TestCase):
    def check(self, devices, *options):
        program = BUILD / "bin" / "plugin_launch"
        if not program.exists():
            self.skipTest("benchmarks are not built")
        env = dict(os.environ, WEFT_PLUGIN_OPTIONS="cpu_device_count=4")
        done = subprocess.run([str(program), "--plugin", plugin(), "--json", "--quick", *options], env=env, capture_output=True, text=True, timeout=120)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        rows = {row["name"]: row for row in json.loads(done.stdout)}
        self.assertEqual(12, len(rows))
        for name, row in rows.items():
            if name.endswith("copies to the device a launch"):
                self.assertEqual(devices, row["value"], name)  # of all its words, one a device
            elif name.endswith("compilations"):
                self.assertEqual(0, row["value"], name)
            else:  # the limit is the program's to judge; beside other tests this is what would be a slip
                self.assertLess(row["ratio"], 5, name)

    def test_cost_little_more_than_the_plugins_own(self):
        self.check(1)

    def test_on_a_mesh_cost_no_more_for_each_device(self):
        self.check(4, "--mesh", "d=4")


@unittest.skipUnless(os.path.exists(DATA), "dataset-fashion-mnist is not installed")
class Training(unittest.TestCase):
    def run_it(self, device, checkpoint, *options):
        env = dict(os.environ, **({"WEFT_PLUGIN": plugin()} if device == "pjrt" else {}))
        done = subprocess.run([str(BUILD / "bin" / "train_fashion_mnist"), "--device", device, "--limit", "4", "--checkpoint", checkpoint, "--cache", "cache",
                               "--json", "--metrics", *options], cwd=self.folder, env=env, capture_output=True, text=True, timeout=600)
        self.assertEqual(0, done.returncode, done.stderr)
        *epochs, metrics = [json.loads(line) for line in done.stdout.splitlines()]
        return [epoch["loss"] for epoch in epochs], metrics["counters"]

    def test_losses_checkpoints_and_the_cache(self):
        with tempfile.TemporaryDirectory() as self.folder:
            here, _ = self.run_it("cpu", "here", "--epochs", "2")
            there, first = self.run_it("pjrt", "there", "--epochs", "2")
            for one, other in zip(here, there, strict=True):
                self.assertLess(abs(one - other), 1e-4 * abs(one))
            self.assertGreater(first["programs_compiled"], 0)
            again, start = self.run_it("pjrt", "again", "--epochs", "2")
            self.assertEqual((there, 0), (again, start["programs_compiled"]))
            # A checkpoint of one is resumed on the other; a second process compiles nothing.
            there, second = self.run_it("pjrt", "here", "--epochs", "3", "--resume")
            here, _ = self.run_it("cpu", "there", "--epochs", "3", "--resume")
            self.assertLess(abs(here[0] - there[0]), 1e-4 * abs(here[0]))
            self.assertEqual((0, 0), (second["programs_compiled"], second["disk_cache_misses"]))

    def test_losses_with_bf16(self):
        with tempfile.TemporaryDirectory() as self.folder:
            whole, _ = self.run_it("pjrt", "whole", "--epochs", "1")
            here, _ = self.run_it("cpu", "here", "--epochs", "1", "--bf16")
            there, _ = self.run_it("pjrt", "there", "--epochs", "1", "--bf16")
            self.assertNotEqual(whole, there)
            for one, other in zip(here, there, strict=True):
                self.assertLess(abs(one - other), 1e-3 * abs(one))  # rounding to bf16 makes 2^-9 of what differs by 2^-24


if __name__ == "__main__":
    enter(__file__)
    unittest.main(argv=sys.argv[:1], verbosity=2)
