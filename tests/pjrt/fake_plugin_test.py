"""The fake plugin from outside: an independent client finds nothing wrong with it, and through libweft.so a save moves each byte once
and a second process compiles nothing."""
import ctypes as c
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
FAKE = os.environ["WEFT_PJRT_FAKE"]
sys.path.insert(0, str(SOURCE / "tests" / "support"))
import python_env  # noqa: E402

F32 = 0x12002
STRLEN = c.c_size_t(-1)
LIB = c.CDLL(os.environ["WEFT_LIB"])
LIB.weft_error_message.restype = c.c_char_p
LIB.weft_error_message.argtypes = [c.c_void_p, c.c_void_p]
for kind in ("tensor", "context", "tree", "event", "function", "optimizer"):
    getattr(LIB, f"weft_{kind}_release").argtypes = [c.c_void_p]


def call(name, *args):
    function = getattr(LIB, name)
    function.restype = c.c_void_p
    error = function(*args)
    if error:
        raise RuntimeError(LIB.weft_error_message(c.c_void_p(error), None).decode())


def out(name, *args):
    value = c.c_void_p()
    call(name, *args, c.byref(value))
    return value


def tensor(ctx, values):
    count = len(values)
    return out("weft_tensor_from_host", ctx, None, c.c_uint32(F32), (c.c_int64 * 1)(count), c.c_size_t(1), values, c.c_size_t(4 * count))


def counted(name):
    function = c.CDLL(FAKE).WeftFakeCount
    function.restype = c.c_int64
    return function(name.encode())


def step():
    """What a second process does again: x + x in a context of the environment's."""
    ctx = out("weft_context_create", None)
    x = tensor(ctx, (c.c_float * 2)(1, 2))
    y, host = out("weft_add", ctx, x, x), (c.c_float * 2)()
    call("weft_tensor_to_host", y, host, c.c_size_t(8))
    print(list(host))
    for handle in (x, y):
        LIB.weft_tensor_release(handle)
    LIB.weft_context_release(ctx)


def absent():
    """A product in a context of the environment's, whose devices are not there: the precision of its text, and what reads and copies say."""
    ctx, dims, device, other = out("weft_context_create", None), (c.c_int64 * 2)(2, 2), c.c_void_p(), c.c_void_p()
    x = tensor(ctx, (c.c_float * 4)(1, 2, 3, 4))
    square = out("weft_reshape", ctx, x, dims, c.c_size_t(2))
    product = out("weft_matmul", ctx, square, square, None)
    blob = out("weft_program_text", ctx, c.byref(product), c.c_size_t(1), c.c_int32(1))
    LIB.weft_blob_data.restype, LIB.weft_blob_size.restype = c.c_void_p, c.c_size_t
    print(re.search(r"precision_config = \[(.*?)\]", c.string_at(LIB.weft_blob_data(blob), LIB.weft_blob_size(blob)).decode()).group(1))
    call("weft_device_at", ctx, c.c_size_t(1), c.byref(device))
    for name, *args in (("weft_tensor_to_host", (c.c_float * 4)(), c.c_size_t(16)), ("weft_tensor_copy_to", device, c.byref(other))):
        try:
            call(name, product, *args)
        except RuntimeError as error:
            print(error)
    LIB.weft_context_release(ctx)


class FakePlugin(unittest.TestCase):
    def test_an_independent_client_finds_nothing_wrong(self):
        python, reason = python_env.python_with("conform", ["pypjrt==0.1.1"], "--no-deps")
        if python is None:
            self.skipTest(reason)
        for faults in ("", "devices=4;slow_ms=1", "functions=92"):
            done = subprocess.run([python, "-m", "pypjrt.conform", FAKE], env=dict(os.environ, WEFT_FAKE=faults), capture_output=True, text=True, timeout=120)
            self.assertEqual(0, done.returncode, f"{faults}: {done.stdout}{done.stderr}")
            passed, failed = re.search(r"(\d+) pass .* (\d+) FAIL", done.stdout).groups()
            self.assertEqual("0", failed)
            self.assertGreaterEqual(int(passed), 31, done.stdout)

    def test_the_bytes_that_the_compiler_counts_are_in_a_functions_figures(self):
        os.environ.update(WEFT_PLATFORM="pjrt", WEFT_PLUGIN=FAKE, WEFT_CACHE_MODE="off")
        ctx = out("weft_context_create", None)
        text = b"module @m { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> } }"
        function = out("weft_function_from_stablehlo", ctx, text, c.c_size_t(len(text)))
        stats = (c.c_uint64 * 10)(80)  # weft_program_stats, whose last member it is
        call("weft_function_stats", ctx, function, None, None, c.c_size_t(0), c.byref(stats))
        self.assertEqual([80, 1000], [stats[0], stats[9]])
        for kind, handle in (("function", function), ("context", ctx)):
            getattr(LIB, f"weft_{kind}_release")(handle)

    def test_a_save_moves_each_byte_once(self):
        size = int(os.environ.get("WEFT_SAVED_MIB", "64")) << 20
        os.environ.update(WEFT_PLATFORM="pjrt", WEFT_PLUGIN=FAKE, WEFT_CACHE_MODE="off")
        ctx = out("weft_context_create", None)
        values = (c.c_float * (size // 4))()
        values[12345] = 7
        saved, tree = tensor(ctx, values), out("weft_tree_create")
        call("weft_tree_add_tensor", tree, c.c_uint32(0), b"w", STRLEN, saved, None)
        bytes_before, copies_before = counted("from_device"), counted("PJRT_Buffer_ToHostBuffer")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file.weft")
            call("weft_checkpoint_save", ctx, path.encode(), STRLEN, tree, None, None)
            self.assertGreaterEqual(os.path.getsize(path), 4096)
        moved = counted("from_device") - bytes_before
        self.assertEqual(size, moved)
        self.assertEqual(1, counted("PJRT_Buffer_ToHostBuffer") - copies_before)
        print(f"a tensor of {size / 2**30} GiB saved: {moved / 2**30} GiB moved", flush=True)
        LIB.weft_tree_release(tree)
        LIB.weft_tensor_release(saved)
        LIB.weft_context_release(ctx)

    def test_an_optimizers_slots_are_made_on_the_device(self):
        os.environ.update(WEFT_PLATFORM="pjrt", WEFT_PLUGIN=FAKE, WEFT_CACHE_MODE="off")
        ctx = out("weft_context_create", None)
        parameters = (c.c_void_p * 2)(*[tensor(ctx, (c.c_float * 1000)(*range(1000))) for _ in range(2)])
        call("weft_sync", ctx, None, None)
        bytes_before, launches_before = counted("to_device"), counted("launches")
        optimizer, launched = out("weft_adamw_create", ctx, parameters, c.c_size_t(2), None), c.c_void_p()
        call("weft_sync", ctx, None, c.byref(launched))
        call("weft_event_wait", launched, c.c_int64(-1))
        LIB.weft_event_release(launched)
        self.assertEqual((0, 1), (counted("to_device") - bytes_before, counted("launches") - launches_before))
        call("weft_optimizer_step", optimizer, parameters, c.c_size_t(2), c.c_double(1e-3))
        host = (c.c_float * 1000)()
        call("weft_tensor_to_host", c.c_void_p(parameters[0]), host, c.c_size_t(4000))
        for i in (1, 999):  # the first step of Adam is the learning rate in the gradient's direction, whatever its size
            self.assertAlmostEqual(i * (1 - 1e-3 * 0.01) - 1e-3, host[i], delta=1e-4)
        LIB.weft_optimizer_release(optimizer)
        for handle in parameters:
            LIB.weft_tensor_release(handle)
        LIB.weft_context_release(ctx)

    def test_steps_while_a_tensor_is_saved_compile_nothing(self):
        os.environ.update(WEFT_PLATFORM="pjrt", WEFT_PLUGIN=FAKE, WEFT_CACHE_MODE="off")
        ctx = out("weft_context_create", None)
        x, tree, event = tensor(ctx, (c.c_float * 2)(1, 2)), out("weft_tree_create"), c.c_void_p()
        call("weft_tree_add_tensor", tree, c.c_uint32(0), b"w", STRLEN, x, None)

        def double():
            y = out("weft_add", ctx, x, x)
            call("weft_tensor_assign", x, y)
            LIB.weft_tensor_release(y)
            call("weft_sync", ctx, None, None)

        double()
        before = counted("PJRT_Client_Compile")
        with tempfile.TemporaryDirectory() as folder:
            call("weft_checkpoint_save", ctx, os.path.join(folder, "file.weft").encode(), STRLEN, tree, None, c.byref(event))
            double()
            call("weft_event_wait", event, c.c_int64(-1))
        double()
        self.assertEqual(before, counted("PJRT_Client_Compile"))
        host = (c.c_float * 2)()
        call("weft_tensor_to_host", x, host, c.c_size_t(8))
        self.assertEqual([8.0, 16.0], list(host))
        for kind, handle in (("event", event), ("tree", tree), ("tensor", x), ("context", ctx)):
            getattr(LIB, f"weft_{kind}_release")(handle)

    def test_a_plugin_that_does_not_start_is_given_up(self):
        for function in ("PJRT_Plugin_Initialize", "PJRT_Client_Create"):
            env = dict(os.environ, WEFT_PLATFORM="pjrt", WEFT_PLUGIN=FAKE, WEFT_CACHE_MODE="off", WEFT_START_DEADLINE_MS="3000", WEFT_FAKE=f"blocks={function}")
            done = subprocess.run([sys.executable, __file__, "step"], env=env, capture_output=True, text=True, timeout=60)
            self.assertEqual(1, done.returncode, done.stderr)
            self.assertIn(f"had not started after 3000 ms, the option start_deadline_ms; it was in {function}", done.stderr)

    def test_a_second_process_compiles_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            counts = os.path.join(folder, "counts")
            env = dict(os.environ, WEFT_PLATFORM="pjrt", WEFT_PLUGIN=FAKE, WEFT_CACHE_DIR=os.path.join(folder, "cache"), WEFT_CACHE_MODE="",
                       WEFT_FAKE_COUNTS=counts)
            del env["WEFT_CACHE_MODE"]
            for start, faults in enumerate(("", "", "refuses_load")):
                done = subprocess.run([sys.executable, __file__, "step"], env=dict(env, WEFT_FAKE=faults), capture_output=True, text=True, timeout=60)
                self.assertEqual((0, "[2.0, 4.0]\n"), (done.returncode, done.stdout), done.stderr)
                with open(counts, encoding="utf-8") as lines:
                    called = dict(line.split() for line in lines)
                self.assertEqual("10"[start] if start < 2 else "1", called.get("PJRT_Client_Compile", "0"))
                self.assertEqual("011"[start], called.get("PJRT_Executable_DeserializeAndLoad", "0"))

    def test_compiled_ahead_without_a_device(self):
        with tempfile.TemporaryDirectory() as folder:
            counts = os.path.join(folder, "counts")
            env = dict(os.environ, WEFT_PLATFORM="pjrt", WEFT_PLUGIN=FAKE, WEFT_CACHE_DIR=os.path.join(folder, "cache"), WEFT_CACHE_MODE="write",
                       WEFT_FAKE_COUNTS=counts)
            ahead = dict(WEFT_TOPOLOGY="fake:1", WEFT_ON_READ="zeros")
            for result, more in (("[0.0, 0.0]\n", ahead), ("[0.0, 0.0]\n", ahead), ("[2.0, 4.0]\n", {})):
                done = subprocess.run([sys.executable, __file__, "step"], env=dict(env, **more), capture_output=True, text=True, timeout=60)
                self.assertEqual((0, result), (done.returncode, done.stdout), done.stderr)
                self.assertEqual(not more, os.path.exists(counts), "a client was made")
            with open(counts, encoding="utf-8") as lines:
                called = dict(line.split() for line in lines)
            self.assertEqual(("0", "1"), (called.get("PJRT_Client_Compile", "0"), called.get("PJRT_Executable_DeserializeAndLoad", "0")))

    def test_a_context_without_a_device_says_so_and_tells_of_its_programs(self):
        with tempfile.TemporaryFile() as log:
            env = dict(os.environ, WEFT_PLATFORM="pjrt", WEFT_PLUGIN=FAKE, WEFT_CACHE_MODE="off", WEFT_TOPOLOGY="fake:2", WEFT_LOG="debug",
                       WEFT_MATMUL_PRECISION="default")
            done = subprocess.run([sys.executable, __file__, "absent"], env=env, stdout=subprocess.PIPE, stderr=log, text=True, timeout=60)
            log.seek(0)
            text = log.read().decode()
        self.assertEqual(0, done.returncode, text)
        product, read, copy = done.stdout.splitlines()
        self.assertEqual(product, "#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>")
        self.assertTrue(read.startswith("weft_tensor_to_host: there is no device pjrt:0 here: this context compiles for the topology fake:2."), read)
        self.assertTrue(copy.startswith("weft_tensor_copy_to: there is no device pjrt:0 here"), copy)
        self.assertRegex(text, r"1 kernels \(1 compiled\), \d+ bytes of code, 0 bytes of temporaries, 10 flops, 1000 bytes accessed, \d+ bytes of arguments, 0 of them for results; no disk cache")


if __name__ == "__main__":
    if sys.argv[1:] in (["step"], ["absent"]):
        globals()[sys.argv[1]]()
    else:
        unittest.main(verbosity=2)
