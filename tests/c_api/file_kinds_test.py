"""A file of another kind than a reader takes: the error says of which kind it is and what reads it. Every reader gets every file."""
import ctypes as c
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
sys.path.insert(0, os.path.join(os.environ["WEFT_BUILD"], "generated", "bindings", "ffi", "python"))
import weft_ffi as w  # noqa: E402

LIB = w.load(os.environ["WEFT_LIB"])
PROGRAM = os.path.join(os.environ["WEFT_BUILD"], "bin", "weft")
BYTES = {
    "program.mlirbc": (b"ML\xefR\x0dStableHLO_v1.9.0\0\1\2", "MLIR bytecode", "stablehlo-translate --deserialize"),
    "program.hlo": (b"HloModule jit_f, is_scheduled=true\n", "HLO text of XLA", "StableHLO text"),
    "array.npy": (b"\x93NUMPY\x01\0" + struct.pack("<H", 56) + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}" + b"\n" + b"\0" * 4,
                  "a NumPy array", "weft run --input"),
    "model.pt": (b"PK\x03\x04" + bytes(60), "a ZIP archive", "PyTorch"),
    "old.pt": (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "a Python pickle", "pickle"),
    "model.safetensors": (struct.pack("<Q", 16) + b'{"__metadata__":{}}', "a safetensors file", "safetensors"),
    "weights.h5": (b"\x89HDF\r\n\x1a\n" + bytes(40), "an HDF5 file", "HDF5"),
    "model.gguf": (b"GGUF\3\0\0\0" + bytes(40), "a GGUF file", "GGUF"),
    "plugin.so": (b"\x7fELF\2\1\1" + bytes(60), "a library or program", "ELF"),
    "digits.idx": (bytes([0, 0, 8, 1, 0, 0, 0, 2, 1, 2]), "an IDX array", "weft_idx_read"),
    "data.zst": (b"\x28\xb5\x2f\xfd" + bytes(20), "compressed", "zstd"),
}
# Formats of tensors, which the reader of checkpoints opens as well; these here are damaged or cut short.
TENSORS = ["array.npy", "model.pt", "old.pt", "model.safetensors", "model.gguf"]
OWN = {"a.checkpoint": ("a Weft checkpoint", "weft_checkpoint_load"), "a.function": ("the file of a Weft function", "weft_function_load")}


class FileKinds(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        os.environ["WEFT_CACHE_DIR"] = os.path.join(cls.folder.name, "cache")
        cls.ctx = w.weft_context()
        w.check(LIB, LIB.weft_context_create(None, c.byref(cls.ctx)))
        cls.kinds = dict(OWN)
        for name, (data, kind, more) in BYTES.items():
            cls.kinds[name] = (kind, more)
            with open(os.path.join(cls.folder.name, name), "wb") as file:
                file.write(data)
        tree, f = w.weft_tree(), w.weft_function()
        w.check(LIB, LIB.weft_tree_create(c.byref(tree)))
        path = cls.path("a.checkpoint")
        w.check(LIB, LIB.weft_checkpoint_save(cls.ctx, path, len(path), tree, None, None))
        text = b"func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n  return %a : tensor<2xf32>\n}\n"
        w.check(LIB, LIB.weft_function_from_stablehlo(cls.ctx, text, len(text), c.byref(f)))
        path = cls.path("a.function")
        w.check(LIB, LIB.weft_function_save(f, path, len(path)))

    @classmethod
    def tearDownClass(cls):
        LIB.weft_context_release(cls.ctx)
        cls.folder.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name).encode()

    def error(self, error, name):
        """Its text; the error ends."""
        self.assertTrue(error, name)
        code, said = LIB.weft_error_code(error), w.text(LIB.weft_error_message(error, None))
        LIB.weft_error_release(error)
        self.assertNotEqual(w.WEFT_INTERNAL, code)
        return said

    def names_the_kind(self, said, name):
        for part in self.kinds[name]:
            self.assertIn(part, said, name)

    def others(self, own):
        return [name for name in self.kinds if name not in own]

    def test_a_function_is_wanted(self):
        for name in self.others(["a.function"]):
            path, f = self.path(name), w.weft_function()
            said = self.error(LIB.weft_function_load(self.ctx, path, len(path), c.byref(f)), name)
            self.names_the_kind(said, name)
            self.assertNotIn("damaged", said)

    def test_a_checkpoint_is_wanted(self):
        for name in self.others(["a.checkpoint", *TENSORS]):
            path, tree, reader = self.path(name), w.weft_tree(), w.weft_checkpoint_reader()
            self.names_the_kind(self.error(LIB.weft_checkpoint_load(self.ctx, path, len(path), None, c.byref(tree)), name), name)
            self.names_the_kind(self.error(LIB.weft_checkpoint_reader_open(self.ctx, path, len(path), c.byref(reader)), name), name)
            done = subprocess.run([PROGRAM, "show", path], capture_output=True, text=True, timeout=60, check=False)
            if name == "a.function":  # which it knows as well
                self.assertEqual(0, done.returncode, done.stderr)
                self.assertIn("f32[2]", done.stdout)
                continue
            self.assertEqual(1, done.returncode)
            self.names_the_kind(done.stderr, name)

    def test_other_formats_of_tensors_are_opened(self):
        for name in TENSORS:
            path, reader = self.path(name), w.weft_checkpoint_reader()
            error = LIB.weft_checkpoint_reader_open(self.ctx, path, len(path), c.byref(reader))
            if name in ("array.npy", "model.gguf"):  # one array; no tensors, but nothing wrong
                w.check(LIB, error)
                LIB.weft_checkpoint_reader_release(reader)
                continue
            said = self.error(error, name)
            self.assertRegex(said, "is damaged at byte|begins with", name)
            self.assertNotIn("not a Weft checkpoint", said)

    def test_a_program_is_wanted(self):
        for name in self.others([]):
            with open(self.path(name), "rb") as file:
                data = file.read()
            f = w.weft_function()
            self.names_the_kind(self.error(LIB.weft_function_from_stablehlo(self.ctx, data, len(data), c.byref(f)), name), name)
            done = subprocess.run([PROGRAM, "run", self.path(name)], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(1, done.returncode)
            if name == "a.function":  # which it runs
                self.assertIn("the program takes 1 inputs (f32[2])", done.stderr)
                continue
            self.names_the_kind(done.stderr, name)

    def test_an_idx_array_is_wanted(self):
        for name in self.others(["digits.idx"]):
            path, x = self.path(name), w.weft_tensor()
            self.names_the_kind(self.error(LIB.weft_idx_read(self.ctx, path, len(path), None, c.byref(x)), name), name)

    def test_entries_of_the_cache_are_told_from_functions(self):
        x, y = w.weft_tensor(), w.weft_tensor()
        w.check(LIB, LIB.weft_tensor_from_host(self.ctx, None, w.WEFT_F32, (c.c_int64 * 1)(2), 1, (c.c_float * 2)(1, 2), 8, c.byref(x)))
        w.check(LIB, LIB.weft_add(self.ctx, x, x, c.byref(y)))
        w.check(LIB, LIB.weft_eval(self.ctx, c.byref(y), 1, None))
        cache, f, tree = w.weft_cache(), w.weft_function(), w.weft_tree()
        w.check(LIB, LIB.weft_context_cache(self.ctx, c.byref(cache)))
        w.check(LIB, LIB.weft_cache_flush(cache))
        LIB.weft_cache_release(cache)
        entries = [os.path.join(root, name).encode() for root, _, names in os.walk(os.environ["WEFT_CACHE_DIR"]) for name in names
                   if name.endswith(".tce")]
        self.assertTrue(entries)
        shown = subprocess.run([PROGRAM, "show", entries[0], "--json"], capture_output=True, text=True, timeout=60, check=True)
        about = json.loads(shown.stdout)
        self.assertEqual(("cache entry", "cpu", os.path.basename(entries[0]).decode()[:32]), (about["format"], about["backend"], about["key"]))
        w.check(LIB, LIB.weft_function_load(self.ctx, entries[0], len(entries[0]), c.byref(f)))  # the program that it was compiled from
        LIB.weft_function_release(f)
        self.assertIn("an entry of Weft's compile cache", self.error(LIB.weft_checkpoint_load(self.ctx, entries[0], len(entries[0]), None, c.byref(tree)), "entry"))


if __name__ == "__main__":
    unittest.main()
