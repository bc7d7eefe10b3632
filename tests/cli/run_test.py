"""`weft run`: what NumPy computes, .npy files as NumPy writes and reads them, and each way to get it wrong."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))

import numpy as np  # noqa: E402

PROGRAM = pathlib.Path(os.environ["WEFT_BUILD"]) / "bin" / "weft"
DTYPES = {"i1": "?", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "ui8": "u1", "ui16": "u2", "ui32": "u4", "ui64": "u8",
          "f16": "f2", "f32": "f4", "f64": "f8", "complex<f32>": "c8", "complex<f64>": "c16"}
NAMES = {"i1": "bool", "ui8": "u8", "ui16": "u16", "ui32": "u32", "ui64": "u64"}
PRODUCT = """module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<3x2xf32>) -> (tensor<2x2xf32>, tensor<i1>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
    %c = stablehlo.constant dense<true> : tensor<i1>
    return %0, %c : tensor<2x2xf32>, tensor<i1>
  }
}
"""


def same(shape, element):
    kind = f"tensor<{shape}{element}>"
    return f"func.func @main(%a: {kind}) -> {kind} {{\n  return %a : {kind}\n}}\n"


class Run(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = pathlib.Path(work.name)

    def weft(self, *words, status=0):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        done = subprocess.run([PROGRAM, "run", *map(str, words)], capture_output=True, text=True, timeout=120, cwd=self.work,
                              env=dict(clean, XDG_CACHE_HOME=str(self.work)))
        self.assertEqual(status, done.returncode, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def fails(self, text, *words, status=1):
        self.assertEqual(("", f"weft run: {text}\n"), self.weft(*words, status=status))

    def write(self, name, content):
        (self.work / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    def save(self, name, array):
        np.save(self.work / name, array)
        return name

    def results(self, program, *arrays):
        """Of the program, through files both ways."""
        words = [self.write("program.mlir", program), "--output", ".", "--json"]
        for i, array in enumerate(arrays):
            words += ["--input", self.save(f"in{i}.npy", array)]
        rows = json.loads(self.weft(*words)[0])["results"]
        for name in self.work.glob("*.part"):
            self.fail(f"{name} is left")
        return [np.load(self.work / row["file"]) for row in rows]


class Computes(Run):
    def test_texts_of_a_program_instead_of_running_it(self):
        path = self.write("product.mlir", PRODUCT)
        plan = self.weft(path, "--text", "plan")[0]
        self.assertRegex(plan, r"^program [0-9a-f]{16}: \d+ nodes, \d+ entries, code of \d+ bytes, arena of \d+ bytes\n *#  implementation")
        self.assertIn("dot_general", plan)
        self.assertIn("argument 0", plan)
        self.assertIn('digraph "program" {', self.weft(path, "--text", "dot")[0])
        self.assertIn("stablehlo.dot_general", self.weft(path, "--text", "stablehlo")[0])
        for text in ("ir", "optimised"):
            self.assertIn("func @main(", self.weft(path, "--text", text)[0])
        self.fails("--text plans: there are ir, stablehlo, dot, optimised, plan, loops, llvm and assembly; did you mean plan?", path, "--text", "plans")

    def test_what_numpy_computes(self):
        a, b = (np.random.default_rng(1).normal(size=s).astype("f4") for s in ((2, 3), (3, 2)))
        product, truth = self.results(PRODUCT, a, np.asfortranarray(b))
        np.testing.assert_allclose(product, a @ b, rtol=1e-5)
        self.assertEqual((product.dtype, truth.dtype, truth.shape), (np.dtype("f4"), np.dtype("?"), ()))
        self.assertTrue(truth)

    def test_the_same_on_both_platforms(self):
        words = [self.write("p.mlir", PRODUCT), "--json"]
        for name, shape in (("a.npy", (2, 3)), ("b.npy", (3, 2))):
            words += ["--input", self.save(name, np.arange(6, dtype="f4").reshape(shape))]
        on_cpu = json.loads(self.weft(*words)[0])
        self.assertEqual(on_cpu, json.loads(self.weft(*words, "--platform", "reference")[0]))
        self.assertEqual([{"name": "result0", "type": "f32[2,2]", "values": ["10", "13", "28", "40"]},
                          {"name": "result1", "type": "bool[]", "values": ["true"]}], on_cpu["results"])
        self.assertIn("10, 13, 28, 40", self.weft(*(w for w in words if w != "--json"))[0])

    def test_every_element_type_there_and_back(self):
        random = np.random.default_rng(2)
        for element, dtype in DTYPES.items():
            bits = random.integers(0, 256, size=(5, 3, np.dtype(dtype).itemsize), dtype="u1")
            array = bits[..., 0] > 127 if dtype == "?" else bits.view(dtype)[..., 0]
            for order in ("C", "F"):
                with self.subTest(element=element, order=order):
                    back, = self.results(same("5x3x", element), np.array(array, order=order))
                    self.assertEqual((back.dtype, back.shape), (array.dtype, array.shape))
                    self.assertEqual(back.tobytes(), array.tobytes())

    def test_shapes_there_and_back(self):
        for shape in ((), (0,), (3, 0, 2), (1,), (2, 3, 4, 5)):
            for order in ("C", "F"):
                with self.subTest(shape=shape, order=order):
                    array = np.array(np.random.default_rng(3).normal(size=shape), order=order)
                    back, = self.results(same("".join(f"{n}x" for n in shape), "f64"), array)
                    np.testing.assert_array_equal(back, array)

    def test_complex_numbers(self):
        random = np.random.default_rng(7)
        a, b = ((random.normal(size=(4, 4)) + 1j * random.normal(size=(4, 4))).astype("c8") for _ in range(2))
        kind = "tensor<4x4xcomplex<f32>>"
        product, = self.results(f"func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{\n  %0 = stablehlo.dot_general %a, %b, contracting_dims = "
                                f"[1] x [0] : ({kind}, {kind}) -> {kind}\n  %1 = stablehlo.exponential %0 : {kind}\n"
                                f"  return %1 : {kind}\n}}\n", a, b)
        np.testing.assert_allclose(product, np.exp(a.astype("c16") @ b), rtol=2e-5)
        self.save("z.npy", np.array([1.5 - 2j, 3j]))
        self.write("z.mlir", same("2x", "complex<f64>"))
        self.assertIn("1.5-2j, 0+3j", self.weft("z.mlir", "--input", "z.npy")[0])

    def test_versions_2_and_3_and_bfloat16(self):
        array = np.arange(4, dtype="i4")
        for version in ((2, 0), (3, 0)):
            with open(self.work / "in.npy", "wb") as file:
                np.lib.format.write_array(file, array, version=version)
            self.write("p.mlir", same("4x", "i32"))
            self.assertIn("0, 1, 2, 3", self.weft("p.mlir", "--input", "in.npy")[0])
        half = np.array([0x3F80, 0xC040], "u2").view("V2")  # 1 and -3
        back, = self.results(same("2x", "bf16"), half)
        self.assertEqual(back.tobytes(), half.tobytes())
        self.assertIn("1, -3", self.weft("program.mlir", "--input", "in0.npy")[0])

    def test_numbers_are_shown_whole(self):
        for element, dtype, values, shown in (("f64", "f8", [0.1, np.inf, np.nan], "0.10000000000000001, inf, nan"),
                                              ("f16", "f2", [1 / 3, 2.0**-24, -65504], "0.33325, 5.9605e-08, -65504"),
                                              ("ui64", "u8", [2**64 - 1, 0, 1], "18446744073709551615, 0, 1"),
                                              ("i8", "i1", [-128, 127, 0], "-128, 127, 0"),
                                              ("f32", "f4", range(9), "0, 1, 2, 3, 4, 5, 6, 7, …")):
            array = np.array(values, dtype)
            self.results(same(f"{array.size}x", element), array)
            self.assertIn(shown, self.weft("program.mlir", "--input", "in0.npy")[0])


class Refuses(Run):
    def test_files_that_are_not_there_or_are_no_arrays(self):
        self.write("p.mlir", same("4x", "f32"))
        self.fails("q.mlir: cannot be read: No such file or directory", "q.mlir")
        self.fails(".: cannot be read: it is a directory, not a regular file", ".")
        self.fails("weft_checkpoint_reader_open: cannot open 'a.npy': No such file or directory (ENOENT)", "p.mlir", "--input", "a.npy")
        self.save("a.npy", np.zeros(4, "f4"))
        good = (self.work / "a.npy").read_bytes()
        damaged, here = "weft_checkpoint_reader_open: 'bad.npy' is damaged at byte ", "weft_checkpoint_reader_open: 'bad.npy'"
        none = here + " is not a Weft checkpoint: it does not start with the checkpoint magic"
        for name, content, text in (
                ("empty", b"", none), ("text", b"1 2 3 4", none),
                ("later", good[:6] + b"\4" + good[7:], here + ": an .npy file of version 4.0; Weft reads versions 1 to 3"),
                ("short", good[:-1], damaged + "128: there are 15 bytes of data; '<f4' of shape [4] has 16"),
                ("long", good + b"1", damaged + "128: there are 17 bytes of data; '<f4' of shape [4] has 16"),
                ("longdouble", good.replace(b"<f4", b"<g8"), here + ": it holds elements that Weft has no type for: '<g8'"),
                ("bool", good.replace(b"<f4", b"|b1").replace(b"(4,)", b"(16)")[:-1] + b"\2", "bad.npy: is bool[16]; input 0 of the program is f32[4]"),
                ("huge", good.replace(b"(4,), }" + b" " * 19, b"(4000000000, 4000000000)} "),
                 damaged + "10: the shape [4000000000, 4000000000] has more elements than 64 bits count"),
                ("twice", good.replace(b"'fortran_order': False", b"'descr': '<f4'        "), damaged + "10: the .npy header is no dictionary of"
                 " descr, fortran_order and shape (of at most 32 dimensions)"),
                ("header", good.replace(b"shape", b"shade"), damaged + "10: the .npy header is no dictionary of"
                 " descr, fortran_order and shape (of at most 32 dimensions)")):
            with self.subTest(name):
                self.write("bad.npy", content)
                self.fails(text, "p.mlir", "--input", "bad.npy")
        self.write("big.npy", good.replace(b"<f4", b">f4")[:-4] + b"\x3f\x80\0\0")
        self.assertIn("0, 0, 0, 1", self.weft("p.mlir", "--input", "big.npy")[0])
        np.savez(self.work / "two.npz", a=np.zeros(4, "f4"), b=np.zeros(4, "f4"))
        self.fails("two.npz: has 2 arrays; an input is one", "p.mlir", "--input", "two.npz")

    def test_any_bytes(self):
        self.write("p.mlir", same("4x", "f32"))
        self.save("a.npy", np.zeros(4, "f4"))
        good, random = (self.work / "a.npy").read_bytes(), np.random.default_rng(4)
        for _ in range(60):  # the fuzzer of the parser does this by the million
            bad = bytearray(good)
            for at in random.integers(0, len(bad), 3):
                bad[at] = random.integers(0, 256)
            self.write("bad.npy", bytes(bad))
            clean = subprocess.run([PROGRAM, "run", "p.mlir", "--input", "bad.npy"], capture_output=True, timeout=60, cwd=self.work,
                                   env=dict(os.environ, XDG_CACHE_HOME=str(self.work)))
            self.assertIn(clean.returncode, (0, 1), clean.stderr)

    def test_inputs_that_do_not_fit(self):
        self.write("p.mlir", PRODUCT)
        self.save("a.npy", np.zeros((2, 3), "f4"))
        self.save("d.npy", np.zeros((2, 3)))
        self.fails("the program takes 2 inputs (f32[2,3], f32[3,2]); 0 were given by --input", "p.mlir")
        self.fails("the program takes 2 inputs (f32[2,3], f32[3,2]); 1 were given by --input", "p.mlir", "--input", "a.npy")
        self.fails("a.npy: is f32[2,3]; input 1 of the program is f32[3,2]", "p.mlir", "--input", "a.npy", "--input", "a.npy")
        self.fails("d.npy: is f64[2,3]; input 0 of the program is f32[2,3]", "p.mlir", "--input", "d.npy", "--input", "a.npy")

    def test_programs_that_are_none(self):
        self.write("p.mlir", "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n  %0 = stablehlo.sparkle %a : tensor<2xf32>\n"
                             "  return %0 : tensor<2xf32>\n}\n")
        said = self.weft("p.mlir", status=1)[1]
        self.assertRegex(said, r"^weft run: p\.mlir: weft_function_from_stablehlo: .*stablehlo\.sparkle")
        self.write("p.mlir", same("4x", "f32")[:-4])
        self.assertRegex(self.weft("p.mlir", status=1)[1], r"line \d+, column \d+")

    def test_places_that_cannot_be_written(self):
        self.write("p.mlir", same("", "f32"))
        self.save("a.npy", np.float32(1))
        self.fails("--output nowhere: there is no such folder", "p.mlir", "--input", "a.npy", "--output", "nowhere")
        (self.work / "result0.npy").mkdir()
        self.fails("weft_checkpoint_save: saving './result0.npy': cannot write './result0.npy': it is a directory", "p.mlir", "--input", "a.npy", "--output", ".")
        self.assertEqual([], list(self.work.glob(".result0*")))

    def test_misuse(self):
        self.fails("which PROGRAM? 'weft run --help' says more", status=2)
        self.fails("--input wants FILE.npy after it; 'weft run --help' says more", "p.mlir", "--input", status=2)
        self.fails("'q' is too much: it takes one PROGRAM but options; 'weft run --help' lists them", "p", "q", status=2)
        self.fails("there is no option '--inptu'; did you mean '--input'? 'weft run --help' lists all", "p", "--inptu", "q", status=2)
        self.write("p.mlir", same("", "f32"))
        self.assertIn("'tup'", self.weft("p.mlir", "--platform", "tup", status=1)[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
