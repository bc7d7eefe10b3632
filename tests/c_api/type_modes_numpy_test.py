"""Type modes (use_bf16, downcast_bf16, use_32bit_long): what the caller sees and what the device holds. Programs in a mode
beside the same written in the device's types; memory, copies, DLPack, checkpoints both ways, the cache on disk, the variables of
PyTorch/XLA. tests/pjrt runs it on a plugin (WEFT_PLATFORM)."""
import ctypes
import itertools
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "conformance"))
import unittest  # noqa: E402

import numpy as np  # noqa: E402
import weft  # noqa: E402

LIB = weft.load()
OURS = os.environ.get("WEFT_PLATFORM", "cpu") == "cpu"
MODES = {"use_bf16": {"f32": "bf16", "f64": "bf16"}, "downcast_bf16": {"f32": "bf16", "f64": "f32"},
         "use_32bit_long": {"i64": "i32", "ui64": "ui32"}}


def held(values, dtype):
    """What a device keeps of an array, as the array's own type."""
    if dtype == "bf16":
        return weft.decode("bf16", weft.encode("bf16", values)).astype(values.dtype)
    with np.errstate(all="ignore"):
        return values.astype(weft.storage(dtype)).astype(values.dtype)


def metric(ctx, name):
    value = ctypes.c_int64()
    LIB.metric_get(ctx.handle, name.encode(), len(name), ctypes.byref(value))
    return value.value


def in_use(ctx):
    blob = ctypes.c_void_p()
    LIB.metrics_json(ctx.handle, ctypes.byref(blob))
    text = ctypes.string_at(LIB.blob_data(blob), LIB.blob_size(blob))
    LIB.blob_release(blob)
    return json.loads(text)["memory"][0]["bytes_in_use"]


def save(ctx, path, **tensors):
    tree, node = ctypes.c_void_p(), ctypes.c_uint32()
    LIB.tree_create(ctypes.byref(tree))
    for name, tensor in tensors.items():
        LIB.tree_add_tensor(tree, 0, name.encode(), len(name), tensor.handle, ctypes.byref(node))
    LIB.checkpoint_save(ctx.handle, path.encode(), len(path.encode()), tree, None, None)
    LIB.tree_release(tree)


def load(ctx, path, *names):
    reader, found = ctypes.c_void_p(), []
    LIB.checkpoint_reader_open(ctx.handle, path.encode(), len(path.encode()), ctypes.byref(reader))
    for name in names:
        handle = ctypes.c_void_p()
        LIB.checkpoint_reader_load(reader, name.encode(), len(name), None, ctypes.byref(handle))
        found.append(weft.Tensor(ctx, handle))
    LIB.checkpoint_reader_release(reader)
    return found


class Writer:
    """Tensors of f32 in a mode, of bf16 by hand: the same program over both."""

    def __init__(self, by_hand, **options):
        self.by_hand = by_hand
        self.ctx = weft.Context(**(options if by_hand else {"use_bf16": 1, **options}))

    def tensor(self, values):
        values = np.asarray(values, "f4")
        return self.ctx.tensor(weft.encode("bf16", values), "bf16") if self.by_hand else self.ctx.tensor(values)


def numbers(shape, seed, scale=1.0):
    return np.random.default_rng(seed).normal(0, scale, shape).astype("f4")


def mlp(w, steps=5):
    """Losses and the parameters after some steps of plain SGD."""
    ctx = w.ctx
    parameters = [w.tensor(numbers((12, 32), 1, 0.3)), w.tensor(numbers((32,), 2, 0.1)), w.tensor(numbers((32, 4), 3, 0.2))]
    x, y, rate = w.tensor(numbers((16, 12), 4)), w.tensor(numbers((16, 4), 5)), w.tensor(0.001)
    losses = []
    for _ in range(steps):
        for p in parameters:
            p.require_grad()
        first, bias, second = parameters
        off = ctx.sub(ctx.matmul(ctx.relu(ctx.add(ctx.matmul(x, first), bias)), second), y)
        loss = ctx.sum(ctx.mul(off, off))
        slopes = ctx.grad(loss, parameters)
        parameters = [ctx.sub(p, ctx.mul(g, rate)) for p, g in zip(parameters, slopes)]
        losses.append(loss)
        ctx.eval(losses + parameters)
    return [t.values() for t in losses + parameters]


def block(w):
    """A transformer's block, forward; composites compute in f32 in either program."""
    ctx, d = w.ctx, 16
    x = w.tensor(numbers((2, 6, d), 1))
    weights = [w.tensor(numbers((d, d), s, 0.25)) for s in range(2, 6)]
    ones, zeros = w.tensor(np.ones(d)), w.tensor(np.zeros(d))
    n = ctx.layer_norm(x, ones, zeros)
    q, k, v = (ctx.reshape(ctx.matmul(n, m), shape=[2, 1, 6, d]) for m in weights[:3])
    a = ctx.reshape(ctx.scaled_dot_product_attention(q, k, v), shape=[2, 6, d])
    h = ctx.add(x, ctx.matmul(a, weights[3]))
    h = ctx.add(h, ctx.gelu(ctx.layer_norm(h, ones, zeros)))
    return [t.values() for t in (n, a, h, ctx.log_softmax(h, axis=-1), ctx.sum(h, dims=[0, 1]))]


def transformer(w, steps=4):
    """Its training: gradient rules round after each operation in a mode, once a rule by hand."""
    ctx, d = w.ctx, 16
    parameters = [w.tensor(numbers((d, d), s, 0.25)) for s in range(2, 6)]
    x, labels, rate = w.tensor(numbers((2, 6, d), 1)), ctx.tensor(np.arange(12, dtype="i4").reshape(12) % d), w.tensor(0.1)
    losses = []
    for _ in range(steps):
        for p in parameters:
            p.require_grad()
        q, k, v = (ctx.reshape(ctx.matmul(x, m), shape=[2, 1, 6, d]) for m in parameters[:3])
        a = ctx.reshape(ctx.scaled_dot_product_attention(q, k, v), shape=[2, 6, d])
        h = ctx.add(x, ctx.gelu(ctx.matmul(a, parameters[3])))
        loss = ctx.cross_entropy(ctx.reshape(h, shape=[12, d]), labels)
        slopes = ctx.grad(loss, parameters)
        parameters = [ctx.sub(p, ctx.mul(g, rate)) for p, g in zip(parameters, slopes)]
        losses.append(loss)
        ctx.eval(losses + parameters)
    return [t.values() for t in losses], [t.values() for t in parameters]


class Seen(unittest.TestCase):
    def test_the_callers_types_are_reported_and_values_are_what_is_held(self):
        rows = {"f32": [0.1, -3.7, 1e38, 3.4e38, 1e-40, np.nan, np.inf], "f64": [0.1, 1e300, -1e-300, 1 + 2 ** -9, 1 + 2.0 ** -9 + 2.0 ** -40],
                "i64": [0, -1, 2 ** 31, 2 ** 40 + 7, -2 ** 63], "ui64": [0, 2 ** 32, 2 ** 63 + 5, 2 ** 64 - 1]}
        for mode, types in MODES.items():
            for option in ({}, {"mode": "eager"}, {"mode": "debug"}, {"platform": "reference"}):
                ctx = weft.Context(**{mode: 1}, **option)
                for dtype, kept in types.items():
                    values = np.array(rows[dtype], weft.storage(dtype))
                    x = ctx.tensor(values)
                    size = ctypes.c_uint64()
                    LIB.tensor_size(x.handle, ctypes.byref(size))
                    self.assertEqual((dtype, values.shape, values.nbytes), (x.dtype, x.shape, size.value))
                    np.testing.assert_array_equal(held(values, kept), x.numpy())
                    moved = ctx.reverse(x, dimensions=[0])
                    self.assertEqual(dtype, moved.dtype)
                    np.testing.assert_array_equal(held(values, kept)[::-1], moved.numpy())

    def test_others_are_what_they_were(self):
        for mode in MODES:
            ctx = weft.Context(**{mode: 1})
            for values in (np.float16([0.1]), np.int32([7]), np.uint8([255]), np.array([True]), np.complex64([0.1 + 3j])):
                np.testing.assert_array_equal(values, ctx.tensor(values).numpy())

    def test_tensors_take_the_memory_of_what_is_held(self):
        for mode, dtype, kept in (("use_bf16", "f4", "bf16"), ("use_bf16", "f8", "bf16"), ("downcast_bf16", "f8", "f32"),
                                  ("use_32bit_long", "i8", "i32")):
            sizes = []
            for options, stored in (({mode: 1}, dtype), ({}, weft.storage(kept))):
                ctx, values = weft.Context(**options), np.ones(1 << 20, stored)
                before = in_use(ctx)
                x = ctx.tensor(values, kept if kept == "bf16" and values.dtype == np.uint16 else None)
                one = in_use(ctx) - before
                y = ctx.add(x, x)
                ctx.eval([y])
                sizes.append((one, in_use(ctx) - before, metric(ctx, "bytes_to_device")))
                before = metric(ctx, "bytes_from_device")
                y.numpy()
                sizes[-1] += (metric(ctx, "bytes_from_device") - before,)
            self.assertEqual(sizes[1], sizes[0])
            self.assertEqual(weft.storage(kept).itemsize << 20, sizes[0][2])

    def test_scalars_are_rounded_too(self):
        ctx, handle = weft.Context(use_bf16=1), ctypes.c_void_p()
        like = ctx.tensor(np.float32(1))
        LIB.tensor_argument_like(like.handle, 0.1, ctypes.byref(handle))
        x = weft.Tensor(ctx, handle)
        self.assertEqual(held(np.float32(0.1), "bf16"), x.numpy())
        self.assertEqual(held(np.float32(0.1), "bf16"), ctx.reshape(x, shape=[]).numpy())

    def test_random_numbers_are_those_of_the_device_type_and_streams_stay_whole(self):
        plain, mode, longs = weft.Context(seed=7), weft.Context(seed=7, use_bf16=1), weft.Context(seed=7, use_32bit_long=1)
        for _ in range(3):
            a = plain.uniform(shape=[5, 3], dtype="bf16").values()
            np.testing.assert_array_equal(a, mode.uniform(shape=[5, 3]).values())
        plain.seed(2 ** 40 + 3), longs.seed(2 ** 40 + 3)
        for _ in range(2):
            np.testing.assert_array_equal(plain.normal(shape=[9]).numpy(), longs.normal(shape=[9]).numpy())

        def drawn(ctx):
            """Two runs of a function that draws."""
            body = weft.Body(ctx, [("f32", (4,))])
            f = body.end([body.context.dropout(body.parameters[0], rate=0.5), body.context.add(
                body.parameters[0], body.context.uniform(shape=[4]))])
            return [t.numpy() for _ in range(2) for t in f(ctx.tensor(np.ones(4, "f4")))]

        def looped(ctx):
            """A loop whose body draws, from a stream for each run."""
            inputs = [("i64", ()), ("f32", (4,))]
            on = weft.Body(ctx, inputs)
            three = on.context.tensor(np.int64(3))
            on = on.end([on.context.lt(on.parameters[0], three)])
            body = weft.Body(ctx, inputs)
            c, (i, x) = body.context, body.parameters
            step = body.end([c.add(i, c.tensor(np.int64(1))), c.add(x, c.uniform(shape=[4]))])
            start, outs = [ctx.tensor(np.int64(0)), ctx.tensor(np.zeros(4, "f4"))], (ctypes.c_void_p * 2)()
            getattr(LIB, "while")(ctx.handle, on.handle, step.handle, (ctypes.c_void_p * 2)(*[t.handle for t in start]), 2, outs)
            return [weft.Tensor(ctx, ctypes.c_void_p(o)).numpy() for o in outs]

        for make, mode in itertools.product((drawn, looped), ("lazy", "debug")):
            plain, longs = weft.Context(seed=7), weft.Context(seed=7, use_32bit_long=1, mode=mode)
            for a, b in zip(make(plain), make(longs)):
                np.testing.assert_array_equal(a, b)


class Programs(unittest.TestCase):
    def test_an_mlp_trains_to_the_bits_of_one_written_in_bf16(self):
        want = mlp(Writer(True))
        for options in ({}, {"mode": "eager"}, {"platform": "reference"}):
            for a, b in zip(mlp(Writer(False, **options)), mlp(Writer(True, **options))):
                if OURS or options.get("platform"):
                    np.testing.assert_array_equal(a, b)
                else:  # XLA may keep more digits inside a fusion than the program says
                    np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3)
        self.assertLess(want[4], want[0])

    def test_a_transformers_block_gives_the_bits_of_one_written_in_bf16(self):
        for a, b in zip(block(Writer(False)), block(Writer(True))):
            np.testing.assert_array_equal(a, b)

    def test_a_transformer_trains_beside_one_written_in_bf16(self):
        losses, parameters = transformer(Writer(False))
        want_losses, want_parameters = transformer(Writer(True))
        np.testing.assert_allclose(losses, want_losses, rtol=2e-2)
        self.assertLess(losses[-1], losses[0])
        for a, b in zip(parameters, want_parameters):
            np.testing.assert_allclose(a, b, atol=2e-2)

    def test_errors_speak_of_the_callers_types(self):
        ctx = weft.Context(use_bf16=1)
        with self.assertRaisesRegex(weft.WeftError, r"f32\[2\]"):
            ctx.matmul(ctx.tensor(np.ones(2, "f4")), ctx.tensor(np.ones((3, 2), "f4")))

    @unittest.skipUnless(OURS, "plugins call no functions of this process")
    def test_custom_operations_get_the_callers_types(self):
        function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: x * 3)
        ctx = weft.Context(downcast_bf16=1)
        LIB.custom_register(ctx.handle, b"three", 5, ctypes.cast(function, ctypes.c_void_p), b"double(double)", 14, None)
        x, out, count = ctx.tensor(np.float64([0.1, 2])), (ctypes.c_void_p * 1)(), ctypes.c_size_t()
        LIB.custom_apply(ctx.handle, b"three", 5, (ctypes.c_void_p * 1)(x.handle), 1, out, 1, ctypes.byref(count))
        y = weft.Tensor(ctx, ctypes.c_void_p(out[0]))
        self.assertEqual("f64", y.dtype)
        np.testing.assert_array_equal((np.float64(np.float32([0.1, 2])) * 3).astype("f4"), y.numpy())


class Exchange(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)

    @unittest.skipUnless(OURS, "memory of plugins is not lent")
    def test_dlpack_takes_and_gives_the_callers_type_by_copy(self):
        class Managed(ctypes.Structure):
            _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("dtype", ctypes.c_uint32),
                        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
                        ("ctx", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]

        ctx, values, out, back = weft.Context(use_bf16=1), np.float32([0.1, 5, -7.7]), ctypes.c_void_p(), ctypes.c_void_p()
        x = ctx.tensor(values)
        LIB.tensor_to_dlpack_legacy(x.handle, ctypes.byref(out))
        managed = ctypes.cast(out, ctypes.POINTER(Managed)).contents
        self.assertEqual(weft.DTYPES["f32"], managed.dtype)
        np.testing.assert_array_equal(held(values, "bf16"), np.frombuffer(ctypes.string_at(managed.data, 12), "f4"))
        LIB.tensor_from_dlpack_legacy(ctx.handle, out, ctypes.byref(back))  # which ends the export
        again = weft.Tensor(ctx, back)
        self.assertEqual("f32", again.dtype)
        np.testing.assert_array_equal(held(values, "bf16"), again.numpy())

    def test_checkpoints_say_what_was_held_and_load_in_every_context(self):
        values = {"f32": numbers((300, 70), 1), "f64": numbers((3,), 2).astype("f8"), "i64": np.arange(-5, 4000, dtype="i8"),
                  "ui64": np.arange(9, dtype="u8"), "i32": np.arange(5, dtype="i4")}
        for mode, types in MODES.items():
            path = os.path.join(self.work.name, mode)
            ctx = weft.Context(**{mode: 1})
            save(ctx, path, **{k: ctx.tensor(v) for k, v in values.items()})
            for options in ({}, {mode: 1}, {"use_bf16": 1, "use_32bit_long": 1}):
                other = weft.Context(**options)
                for (dtype, want), got in zip(values.items(), load(other, path, *values)):
                    self.assertEqual(dtype, got.dtype)
                    want = held(want, types.get(dtype, dtype))
                    for option in options:
                        want = held(want, MODES[option].get(dtype, dtype))
                    np.testing.assert_array_equal(want, got.numpy())
            clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
            shown = json.loads(subprocess.run([os.path.join(os.environ["WEFT_BUILD"], "bin", "weft"), "show", path, "--json"], env=clean,
                                              check=True, capture_output=True, text=True).stdout)
            rows = {row["path"]: row for row in shown["tensors"]}
            names = {"ui32": "u32"}
            for dtype, array in values.items():
                kept = types.get(dtype)
                self.assertEqual(f"{names.get(kept, kept)}[{','.join(map(str, array.shape))}]" if kept else None, rows[dtype].get("stored"))
                self.assertEqual(array.size * weft.storage(kept or dtype).itemsize, rows[dtype]["bytes"])
                self.assertTrue(rows[dtype]["type"].startswith(dtype.replace("ui", "u") + "["))

    def test_a_file_without_a_mode_loads_into_one(self):
        path, plain, mode = os.path.join(self.work.name, "plain"), weft.Context(), weft.Context(use_bf16=1)
        values = numbers((40,), 3)
        save(plain, path, x=plain.tensor(values))
        got, = load(mode, path, "x")
        self.assertEqual("f32", got.dtype)
        np.testing.assert_array_equal(held(values, "bf16"), got.numpy())

    def test_the_next_process_finds_the_program_and_another_mode_does_not(self):
        script = ("import sys, os; sys.path.insert(0, sys.argv[1]); import numpy as np, weft; L = weft.load(); import ctypes\n"
                  "c = weft.Context(cache_mode='write', cache_dir=sys.argv[2]); x = c.tensor(np.ones(100, 'f4')); c.tanh(c.add(x, x)).numpy()\n"
                  "def m(n):\n    v = ctypes.c_int64(); L.metric_get(c.handle, n, len(n), ctypes.byref(v)); return v.value\n"
                  "hits = m(b'disk_cache_hits'), m(b'programs_compiled'); L.context_release(c.handle); c.handle = None; print(*hits)\n")

        def run(**env):
            done = subprocess.run([sys.executable, "-c", script, os.path.join(HERE, "..", "conformance"), self.work.name],
                                  env={**os.environ, **env}, capture_output=True, text=True)
            self.assertEqual(0, done.returncode, done.stderr)
            return done.stdout.split()

        self.assertEqual(["0", "1"], run(XLA_USE_BF16="1"))
        self.assertEqual(["1", "0"], run(XLA_USE_BF16="1"))
        self.assertEqual(["1", "0"], run(WEFT_USE_BF16="1"))
        self.assertEqual(["0", "1"], run())


class Variables(unittest.TestCase):
    def option(self, name, **settings):
        ctx, blob, source = weft.Context(**settings), ctypes.c_void_p(), ctypes.c_int32()
        LIB.context_option(ctx.handle, name.encode(), len(name), ctypes.byref(blob))
        text = ctypes.string_at(LIB.blob_data(blob), LIB.blob_size(blob)).decode()
        LIB.blob_release(blob)
        LIB.context_option_source(ctx.handle, name.encode(), len(name), ctypes.byref(source))
        return text, source.value

    def test_those_of_pytorch_xla_stand_where_nobody_chooses(self):
        for option in MODES:
            others, ours = "XLA_" + option.upper(), "WEFT_" + option.upper()
            self.addCleanup(lambda names=(others, ours): [os.environ.pop(n, None) for n in names])
            self.assertEqual("0", self.option(option)[0])
            os.environ[others] = "true"
            self.assertEqual(("1", 1), self.option(option))
            self.assertEqual("0", self.option(option, **{option: 0})[0])
            os.environ[ours] = "0"
            self.assertEqual(("0", 1), self.option(option))
            os.environ.pop(ours)
            os.environ[others] = "2"
            with self.assertRaisesRegex(weft.WeftError, f"{others}: '2' is neither 0 nor 1"):
                self.option(option)
            os.environ.pop(others)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
