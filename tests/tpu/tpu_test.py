"""Training steps compiled for TPUs by the real libtpu, on a machine that has none: what is handed over, and what comes back. --full: also
the larger networks, other TPUs, and the main example. Prints the seconds and figures of each."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import beside_jax  # noqa: E402
import compiling  # noqa: E402
import meshes_beside_jax  # noqa: E402
import operations  # noqa: E402


class Compiling(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        compiling.listener(cls.temporary.name)

    def one_program(self, name, topology="v5e:1x1", precision="highest", deadline=120):
        programs, end = compiling.step(name, self.temporary.name, deadline, topology, precision)
        self.assertEqual(1, len(programs), "two equal steps are one program")
        text, figures = programs[0]
        compiling.check_text(name, text, precision.upper())
        for figure in compiling.FIGURES:
            self.assertGreater(figures[figure], 0, figure)
        self.assertEqual([0, 0], end["losses"])
        print(f"{name} for {topology}, {precision}: {end['seconds'][0]:.1f} s, {figures}", flush=True)
        return text, figures, end


CREATE = """
import ctypes as c, os
lib, ctx = c.CDLL(os.environ["WEFT_LIB"]), c.c_void_p()
lib.weft_context_create.restype, lib.weft_error_message.restype, lib.weft_error_message.argtypes = c.c_void_p, c.c_char_p, [c.c_void_p, c.c_void_p]
error = lib.weft_context_create(None, c.byref(ctx))
print(lib.weft_error_message(error, None).decode() if error else "a TPU")
"""


class Compiled(Compiling):
    @unittest.skipIf(os.path.exists("/dev/accel0") or os.path.exists("/dev/vfio"), "there may be a TPU")
    def test_without_a_tpu_it_is_said_what_to_check(self):
        env = dict(os.environ, WEFT_PLATFORM="tpu", TPU_LIBRARY_PATH=compiling.libtpu())
        done = subprocess.run([sys.executable, "-c", CREATE], env=env, capture_output=True, text=True, timeout=120)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertRegex(done.stdout, r"^weft_context_create: plugin '.*libtpu\.so' \(PJRT 0\.\d+\) gives no devices: PJRT_Client_Create: [^.]+.*\. "
                                      "There is neither /dev/accel0 nor a device in /dev/vfio: check that this machine has a TPU")

    def test_mlp(self):
        _, figures, end = self.one_program("mlp")
        self.assertEqual(["tpu:0"], end["devices"])
        # 2 x 64 rows x 3 products of each weight but the first layer's, whose input wants no gradient.
        products = 2 * 64 * (2 * 784 * 512 + 3 * 512 * 256 + 3 * 256 * 10)
        self.assertLess(abs(figures["flops"] / products - 1), 0.02)

    def test_block_of_a_transformer_with_dropout(self):
        text, _, _ = self.one_program("block-small")
        self.assertIn("ui32", text)

    def test_what_cannot_be_compiled_says_so_and_the_deadline_ends_it(self):
        broken = os.path.join(self.temporary.name, "broken.mlir")
        with open(broken, "w", encoding="utf-8") as out:
            out.write("no program")
        whole = os.path.join(self.temporary.name, "whole.mlir")
        with open(whole, "w", encoding="utf-8") as out:
            out.write("module @m { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> } }")
        refused, taken = compiling.compile_texts([broken, whole], 60)
        self.assertIn("PJRT_Compile: ", refused["error"])
        self.assertNotIn("died", refused)
        self.assertIn("code_bytes", taken)
        late, = compiling.compile_texts([whole], 0.01)
        self.assertEqual("no answer within 0.01 s", late["error"])
        with self.assertRaisesRegex(AssertionError, "mlp for v6e:1x1: not compiled within 0.1 s"):
            self.one_program("mlp", "v6e:1x1", deadline=0.1)

    def test_the_check_of_a_text_can_fail(self):
        text, _, _ = self.one_program("mlp", "v5e:2x2", "high")
        for one, other in (("precision HIGH>", "precision DEFAULT>"), ("tf.aliasing_output = 0 : i32", "a = 0 : i32"),
                           ("tf.aliasing_output = 0 :", "tf.aliasing_output = 2 :")):
            self.assertIn(one, text)
            with self.assertRaises(AssertionError):
                compiling.check_text("mlp", text.replace(one, other, 1), "HIGH")


class Judges(unittest.TestCase):
    """What scripts/test --full asks can fail."""

    def test_figures_beside_those_of_jax(self):
        def judged(step, **ratios):
            model, precision = step.split(":")
            jax = dict.fromkeys(compiling.FIGURES, 1000)
            return beside_jax.judge([{"model": model, "precision": precision, "jax": jax, "weft": dict(jax, **ratios)}])

        self.assertEqual([], judged("mlp:highest", flops=1050))
        self.assertEqual(["mlp:highest: flops is 1.051 times JAX's, more than 1.05"], judged("mlp:highest", flops=1051))
        self.assertEqual([], judged("block-small:highest", temporary_bytes=1300))
        self.assertEqual(["block-still:default: temporary_bytes is no longer above: take it off ABOVE"], judged("block-still:default"))
        self.assertEqual(["block-still:default: temporary_bytes is 1.070 times JAX's, more than 1.06"], judged("block-still:default", temporary_bytes=1070))

    def test_programs_over_a_mesh_beside_those_of_jax(self):
        text = ("  %a = (f32[4,8]{1,0}, bf16[3]{0}) all-reduce(%x, %y), channel_id=1\n  %b = (f32[2]{0}, f32[8]{0}) all-gather-start(%z)\n"
                "  %c = f32[8]{0} all-gather-done(%b)\n  %d = f32[8]{0} add(%c, %c)\n")
        kinds = meshes_beside_jax.collectives(text)
        self.assertEqual({"all-reduce": [1, 134], "all-gather": [1, 32]}, kinds)
        figures = {"flops": 1000, "bytes_accessed": 1000, "temporary_bytes": 1 << 20, "collectives": 2, "collective_bytes": 166}

        def judged(step, **others):
            return meshes_beside_jax.judge({"step": step, "jax": figures, "weft": dict(figures, **others)})

        self.assertEqual([], judged("mlp:data", temporary_bytes=(1 << 20) + (160 << 10), flops=1050))
        self.assertEqual(["mlp:data: collectives is 1.500 times JAX's, more than 1"], judged("mlp:data", collectives=3))
        self.assertEqual(["mlp:data: temporary_bytes is 1.125 times JAX's, more than 1.1"], judged("mlp:data", temporary_bytes=(9 << 17) + (160 << 10)))
        self.assertEqual(["block:fsdp: bytes_accessed is no longer above: take it off ABOVE", "block:fsdp: collectives is no longer above: take it off ABOVE"],
                         judged("block:fsdp"))

    def test_refusals(self):
        (name, message), *_ = operations.listed().items()
        self.assertEqual([], operations.judge({name: {"error": f"PJRT_Compile: {message}"}, "other": {"flops": 1}}, everything=False))
        self.assertEqual([f"{name}: something else", "other: refused", "x compiles: take it off REFUSED"],
                         operations.judge({name: {"error": "something else"}, "other": {"error": "refused"}, "x": {}}, False, {name: message, "x": message}))
        self.assertEqual([f"{name} of REFUSED is no program", "1 programs, fewer than 3000", "1 of 1 programs may be refused, more than 2%"],
                         operations.judge({"other": {}}, True, {name: message}))


def scalars_apart(text):
    """The text with an argument for each scalar, where it has one buffer for all of them."""
    words = re.search(r"(%\d+): tensor<\d+xui32>\) ->", text)
    reads = re.findall(rf'\n *(%\d+) = "stablehlo.slice"\({words[1]}\).*\n *(%\d+) = "stablehlo.bitcast_convert"\(\1\).*'
                       r'\n *(%\d+) = "stablehlo.reshape"\(\2\).*-> tensor<f32>', text)
    gone = {name for read in reads for name in read}
    lines = [line for line in text.split("\n") if line.split(" = ")[0].strip() not in gone]
    return "\n".join(lines).replace(f"{words[0]}", ", ".join(f"{read[2]}: tensor<f32>" for read in reads) + ") ->", 1), len(reads)


class Full(Compiling):
    def test_what_one_buffer_for_all_scalars_costs(self):
        text, figures, _ = self.one_program("block-small-still")
        apart, count = scalars_apart(text)
        self.assertEqual(8, count)
        path = os.path.join(self.temporary.name, "apart.mlir")
        with open(path, "w", encoding="utf-8") as out:
            out.write(apart)
        found, = compiling.compile_texts([path], 120)
        self.assertEqual(160 << 10, figures["temporary_bytes"] - found["temporary_bytes"], found)

    def test_other_tpus(self):
        for topology, devices in (("v4:2x2x1", 4), ("v5p:2x2x1", 4), ("v6e:1x1", 1)):
            for name in ("mlp", "block-small"):
                with self.subTest(topology=topology, name=name):
                    self.assertGreaterEqual(len(self.one_program(name, topology)[2]["devices"]), devices)

    def test_cnn(self):
        self.one_program("cnn", precision="default", deadline=600)

    def test_resnet50(self):
        self.one_program("resnet50", precision="default", deadline=1200)

    def test_networks_over_a_mesh_of_four_chips(self):
        """The networks of tests/c_api/mesh_models.c, activations held over the barrier, in four layouts. The transformer's layers are a scan with
        dropout in its body: only its program has loops, one for each layout."""
        dump = os.path.join(self.temporary.name, "mesh")
        env = dict(os.environ, WEFT_TOPOLOGY="v5e:2x2", WEFT_ON_READ="zeros", WEFT_MATMUL_PRECISION="default", WEFT_LOG="debug", XLA_FLAGS=f"--xla_dump_to={dump}")
        done = subprocess.run([str(compiling.BUILD / "bin" / "weft_c_mesh_models"), "tpu", compiling.libtpu(), "few"], env=env, capture_output=True, text=True,
                              timeout=1200)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr[-2000:])
        self.assertNotIn("is put together on each", done.stderr)
        names = sorted((name for name in os.listdir(dump) if name.endswith("after_optimizations.txt")), key=lambda name: int(re.search(r"\d+", name)[0]))
        told = list(compiling.SAID.finditer(done.stderr))
        self.assertEqual(len(told), len(names))
        one, many = 0, []
        for name, figures in zip(names, told):
            with open(os.path.join(dump, name), encoding="utf-8") as text:
                optimised = text.read()
            if " while(" in optimised and "num_partitions=4" not in optimised:
                one = int(figures["flops"])
            elif " while(" in optimised:
                many.append((int(figures["flops"]), {kind: count for kind, (count, _) in meshes_beside_jax.collectives(optimised).items()}))
        print(f"a transformer: {one} flops; data parallel, FSDP, tensor parallel, both: {many}", flush=True)
        (_, data), (flops, fsdp), (_, tensor), (_, both) = many
        self.assertEqual({"all-reduce"}, {*data, *tensor, *both}, "nothing is gathered")
        self.assertIn("all-gather", fsdp)
        self.assertLess(flops, 0.2625 * one, "what is drawn is drawn in parts")

    @unittest.skipUnless(os.path.exists("/usr/share/datasets/fashion-mnist"), "dataset-fashion-mnist is not installed")
    def test_two_steps_of_the_main_example_compile_what_its_training_needs(self):
        env = dict(os.environ, TPU_LIBRARY_PATH=compiling.libtpu(), WEFT_TOPOLOGY="v5e:1x1", WEFT_ON_READ="zeros", WEFT_MATMUL_PRECISION="default")
        for start in range(2):
            done = subprocess.run([str(compiling.BUILD / "bin" / "train_fashion_mnist"), "--device", "tpu", "--cache", "cache", "--epochs", "1", "--limit", "2",
                                   "--json", "--metrics"], cwd=self.temporary.name, env=env, capture_output=True, text=True, timeout=900)
            self.assertEqual(0, done.returncode, done.stderr)
            counters = json.loads(done.stdout.splitlines()[-1])["counters"]
            print(f"train_fashion_mnist, start {start}: {counters['nanoseconds_compiling'] / 1e9:.1f} s of compiling", flush=True)
            self.assertEqual(start == 0, counters["programs_compiled"] > 0)


if __name__ == "__main__":
    compiling.enter(os.path.abspath(__file__))
    full = "--full" in sys.argv
    unittest.main(argv=[a for a in sys.argv if a != "--full"] + ([] if full or len(sys.argv) > 1 else ["Compiled", "Judges"]), verbosity=2)
