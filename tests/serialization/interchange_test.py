"""Other people's files, judged by their own packages: safetensors, NumPy with ml_dtypes, gguf. Each side reads what the other wrote,
bit for bit; what a package refuses or Weft has no type for is refused by name."""
import io
import json
import os
import struct
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import python_env  # noqa: E402

python_env.enter("files", ["numpy", "ml_dtypes", "safetensors", "gguf"], os.path.abspath(__file__))

import gguf  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import safetensors  # noqa: E402
import safetensors.numpy  # noqa: E402

import files  # noqa: E402
import weft  # noqa: E402

CTX = weft.Context()
NUMPY = {"bool": "?", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8",
         "f16": "f2", "f32": "f4", "f64": "f8", "c64": "c8", "c128": "c16", "bf16": ml_dtypes.bfloat16}
NARROW = {"f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2fnuz": "float8_e5m2fnuz",
          "f8e8m0fnu": "float8_e8m0fnu", "f8e3m4": "float8_e3m4", "f8e4m3": "float8_e4m3", "f8e4m3b11fnuz": "float8_e4m3b11fnuz"}
SAFETENSORS = {"bool": "BOOL", "i8": "I8", "i16": "I16", "i32": "I32", "i64": "I64", "u8": "U8", "u16": "U16", "u32": "U32",
               "u64": "U64", "f16": "F16", "f32": "F32", "f64": "F64", "c64": "C64", "bf16": "BF16", "f8e4m3fn": "F8_E4M3",
               "f8e5m2": "F8_E5M2", "f8e8m0fnu": "F8_E8M0", "f8e4m3fnuz": "F8_E4M3FNUZ", "f8e5m2fnuz": "F8_E5M2FNUZ"}
SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0, 4), (2, 3, 4), (1, 1, 9)]


def random_bytes(dtype, dims, rng):
    count = int(np.prod(dims, dtype=int)) * files.width(dtype)
    raw = rng.integers(0, 2 if dtype == "bool" else 256, count, dtype="u1")
    return raw.tobytes()


def some(dtypes, seed=1):
    """A tensor of each type and shape."""
    rng = np.random.default_rng(seed)
    return {f"{t}.{'x'.join(map(str, s))}": (t, s, random_bytes(t, s, rng)) for t in dtypes for s in SHAPES}


class Files(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)

    def path(self, name):
        return os.path.join(self.work.name, name)

    def refused(self, code, text, path, *how):
        with self.assertRaises(weft.WeftError) as caught:
            with files.Reader(CTX, path) as reader:
                for name in how:
                    reader.load(name)
        self.assertEqual(code, caught.exception.code, caught.exception.message)
        self.assertRegex(caught.exception.message, text)

    def compare(self, path, wanted, format):
        with files.Reader(CTX, path) as reader:
            self.assertEqual(format, reader.format)
            self.assertEqual(set(wanted), set(reader.entries))
            for name, (dtype, dims, data) in wanted.items():
                self.assertEqual((dtype, dims, data), reader.load(name), name)
            return reader.tree(), reader.metadata()


class Safetensors(Files):
    def header(self, path):
        with open(path, "rb") as f:
            size = struct.unpack("<Q", f.read(8))[0]
            return json.loads(f.read(size)), 8 + size

    def test_what_weft_writes_the_package_reads(self):
        wanted, path = some(SAFETENSORS), self.path("w.safetensors")
        files.save(CTX, path, wanted, "safetensors", metadata={"format": "pt", "größe": 'a "quoted"\nline'}, step=7)
        header, start = self.header(path)
        self.assertEqual(0, start % 64)
        with safetensors.safe_open(path, "numpy") as f:
            self.assertEqual({"format": "pt", "größe": 'a "quoted"\nline', "step": "7"}, f.metadata())
            self.assertEqual(set(wanted), set(f.keys()))
        with open(path, "rb") as f:
            content = f.read()
        for name, info in safetensors.deserialize(content):
            dtype, dims, data = wanted[name]
            self.assertEqual((SAFETENSORS[dtype], list(dims), data), (info["dtype"], info["shape"], bytes(info["data"])), name)
            begin = header[name]["data_offsets"][0] + start
            self.assertEqual(0, begin % files.width(dtype), name)
        tree, words = self.compare(path, wanted, "safetensors")
        self.assertEqual(set(wanted), set(tree))
        self.assertEqual("7", words["step"])

    def test_what_the_package_writes_weft_reads(self):
        arrays = {name: np.frombuffer(data, NUMPY[t]).reshape(dims) for name, (t, dims, data) in some(set(NUMPY) & set(SAFETENSORS)).items()}
        path = self.path("p.safetensors")
        safetensors.numpy.save_file(arrays, path, metadata={"k": "v"})
        wanted = {name: (name.split(".")[0], a.shape, a.tobytes()) for name, a in arrays.items()}
        _, words = self.compare(path, wanted, "safetensors")
        self.assertEqual({"k": "v"}, words)

    def test_names_are_keys_as_they_stand_and_nested_trees_lie_flat(self):
        one = ("f32", (2,), struct.pack("<2f", 1, 2))
        path = self.path("n.safetensors")
        files.save(CTX, path, {"layers": {"0": {"weight": one}}, "a.b\\c": one, "": one}, "safetensors")
        with files.Reader(CTX, path) as reader:
            self.assertEqual({"layers.0.weight", "a.b\\c", ""}, set(reader.entries))
            self.assertEqual(one, reader.load("layers.0.weight"))
            self.assertEqual(one, reader.load("layers\\.0\\.weight"))  # the path of that key
        with self.assertRaisesRegex(weft.WeftError, "both be called 'a.b'"):
            files.save(CTX, path, {"a.b": one, "a": {"b": one}}, "safetensors")
        self.assertEqual({"layers.0.weight", "a.b\\c", ""}, set(safetensors.numpy.load_file(path)))  # the old file is whole

    def test_tied_tensors_by_option(self):
        one, path = ("f32", (2,), struct.pack("<2f", 1, 2)), self.path("t.safetensors")
        with self.assertRaisesRegex(weft.WeftError, "'head' is another name of 'embed'.*tied stores it twice"):
            files.save(CTX, path, {"embed": one}, "safetensors", aliases={"head": "embed"})
        self.assertFalse(os.path.exists(path))
        files.save(CTX, path, {"embed": one}, "safetensors", tied=1, aliases={"head": "embed"})
        self.assertEqual({"embed", "head"}, set(safetensors.numpy.load_file(path)))
        files.save(CTX, path, {"embed": one}, "safetensors", tied=2, aliases={"head": "embed"})
        self.assertEqual({"embed"}, set(safetensors.numpy.load_file(path)))
        with files.Reader(CTX, path) as reader:
            self.assertEqual({"embed": one, "head": ("alias", one)}, reader.tree())
            self.assertEqual(one, reader.load("head"))

    def test_shards_of_an_index(self):
        one, two = np.arange(6, dtype="f4").reshape(2, 3), np.arange(4, dtype="i8")
        safetensors.numpy.save_file({"a.w": one}, self.path("m-00001-of-00002.safetensors"), metadata={"format": "pt"})
        safetensors.numpy.save_file({"b.w": two}, self.path("m-00002-of-00002.safetensors"))
        index = self.path("m.safetensors.index.json")

        def write(weights):
            with open(index, "w", encoding="utf-8") as f:
                json.dump({"metadata": {"total_size": 56, "x": [1, {"y": None}]}, "weight_map": weights}, f, indent=2)
        write({"a.w": "m-00001-of-00002.safetensors", "b.w": "m-00002-of-00002.safetensors"})
        self.compare(index, {"a.w": ("f32", (2, 3), one.tobytes()), "b.w": ("i64", (4,), two.tobytes())}, "safetensors")
        write({"a.w": "m-00001-of-00002.safetensors", "b.w": "m-00001-of-00002.safetensors"})
        self.refused("DATA_LOSS", "'b.w', which .* has in this file, is not in it", index)
        write({"a.w": "m-00001-of-00002.safetensors"})
        with files.Reader(CTX, index) as reader:
            self.assertEqual({"a.w"}, set(reader.entries))
        for name in ("../m-00001-of-00002.safetensors", "/etc/passwd", "..", "x/y", "a\0b", ""):
            write({"a.w": name})
            self.refused("DATA_LOSS", "shards are files of the index's own folder", index)
        write({"a.w": "gone.safetensors"})
        self.refused("NOT_FOUND", "gone.safetensors", index)
        write({"a.w": ["m-00001-of-00002.safetensors"]})
        self.refused("DATA_LOSS", "stands in an array", index)

    def test_types_that_weft_does_not_have_are_listed_and_given_as_bytes(self):
        for name, bits in (("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6)):
            data = bytes(range(8 * bits // 8 * 2))
            header = json.dumps({"x": {"dtype": name, "shape": [2, 8], "data_offsets": [0, len(data)]}}).encode()
            path = self.path(name)
            with open(path, "wb") as f:
                f.write(struct.pack("<Q", len(header)) + header + data)
            with files.Reader(CTX, path) as reader:
                self.assertEqual({"x": ("u8", (len(data),), f"{name}[2, 8]", False)}, reader.entries)
                self.assertEqual(("u8", (len(data),), data), reader.load("x", "u8"))
            self.refused("UNIMPLEMENTED", rf"tensor 'x' is stored as {name}\[2, 8\]", path, "x")

    def test_what_the_format_has_no_place_for_is_refused_by_name(self):
        path = self.path("r.safetensors")
        for dtype in ("c128", "i4", "u2", "f8e3m4"):
            with self.assertRaisesRegex(weft.WeftError, f"UNIMPLEMENTED: .*no type for 'x' of {dtype}"):
                files.save(CTX, path, {"x": (dtype, (2,), bytes(2 * files.width(dtype)))}, "safetensors")
        with self.assertRaisesRegex(weft.WeftError, "holds tensors only; 'd' is an empty dict"):
            files.save(CTX, path, {"d": {}}, "safetensors")
        for format in ("pytorch",):
            with self.assertRaisesRegex(weft.WeftError, f"UNIMPLEMENTED: .*reads {format} files and writes none"):
                files.save(CTX, path, {}, format)
        self.assertEqual([], os.listdir(self.work.name))

    def test_damaged_headers(self):
        def file(header, data=b""):
            raw = header if isinstance(header, bytes) else json.dumps(header).encode()
            with open(self.path("d"), "wb") as f:
                f.write(struct.pack("<Q", len(raw)) + raw + data)
            return self.path("d")

        def t(dtype="U8", shape=(4,), offsets=(0, 4), **more):
            return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}
        four = b"1234"
        for header, data, text in (
                ({"a": t(), "b": t(offsets=(2, 6))}, b"123456", "'b' begins at 2 of the data, inside the one before, which ends at 4"),
                ({"a": t(offsets=(1, 5))}, b"12345", "begins at 1 of the data, not at the end of"),
                ({"a": t()}, b"12345", "behind the last tensor are 1 bytes more"),
                ({"a": t()}, b"123", "ends at 4 of 3 bytes"),
                ({"a": t(shape=(2 ** 63,))}, four, "beyond 2\\^63"),
                ({"a": t(shape=(2 ** 62, 2 ** 62))}, four, "beyond 64 bits"),
                ({"a": t(shape=[1] * 33)}, four, "more than 32 dimensions"),
                ({"a": t(offsets=(4, 0))}, four, "lies at 4 to 0"),
                ({"a": t(dtype="F128")}, four, "has the type 'F128'"),
                ({"a": t(shape=(-4,))}, four, "'shape' holds a negative number"),
                ({"a": t(shape=(4.5,))}, four, "with a fraction"),
                ({"a": {"dtype": "U8"}}, four, "has no dtype, no shape"),
                ({"a": 5}, four, "'a' is a number"),
                ({"__metadata__": {"a": 1}}, b"", "metadata 'a' is a number; metadata is text"),
                ({"__metadata__": {"a": {}}}, b"", "is an object"),
                ({"a\0b": t()}, four, "UTF-8 without NUL"),
                ({"a" * 5000: t()}, four, "5000 bytes"),
                (b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}', four, "twice"),
                (b'{"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}}', four, "twice"),
                (b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,4]}}', four, "data_offsets of two numbers"),
                (b'{"\xff":1}', b"", "no JSON in UTF-8"),
                (b"{" + b'"a":{' * 1000000, b"", "nested deeper than 8"),
                (b'{"a":{"x":' + b"[" * 1000000, b"", "nested deeper than 8"),
                (b"{ ", b"", "ends too early"),
                (b"{} x", b"", "no JSON"),
                (b'{"a":1e999}', b"", "no JSON|fraction")):
            with self.subTest(text=text):
                self.refused("DATA_LOSS", text, file(header, data))
        with files.Reader(CTX, file({"a": t(extra=[1, {"x": None}], more="text")}, four)) as reader:
            self.assertEqual(("u8", (4,), four), reader.load("a"))
        with files.Reader(CTX, file({})) as reader:
            self.assertEqual({}, reader.entries)
        with open(self.path("d"), "wb") as f:
            f.write(struct.pack("<Q", 1 << 40) + b"{" + b" " * 100)
        self.refused("DATA_LOSS", "header is said to have 1099511627776 bytes", self.path("d"))
        self.refused("DATA_LOSS", "'m' of bool holds the byte 2", file({"m": t("BOOL")}, b"\0\1\2\1"), "m")


class NumPy(Files):
    def test_what_weft_writes_numpy_reads(self):
        wanted, path = some([*NUMPY, *NARROW, "i4", "u4", "i2", "u2"]), self.path("w.npz")
        wanted = {name: (t, dims, bytes(b & {"i4": 7, "u4": 15, "i2": 1, "u2": 3}.get(t, 255) for b in data))
                  for name, (t, dims, data) in wanted.items()}
        files.save(CTX, path, wanted, "npz")
        with np.load(path) as f:
            self.assertEqual(set(wanted), set(f.files))
            for name, (dtype, dims, data) in wanted.items():
                a = f[name]
                self.assertEqual((dims, data), (a.shape, a.tobytes()), name)
                if dtype in NUMPY and dtype != "bf16":
                    self.assertEqual(np.dtype(NUMPY[dtype]), a.dtype, name)
                if dtype in NARROW or dtype == "bf16":  # as ml_dtypes has them
                    a.view(getattr(ml_dtypes, NARROW.get(dtype, "bfloat16")))
        self.assertIsNone(zipfile.ZipFile(path).testzip())
        with files.Reader(CTX, path) as reader:
            for name, (dtype, dims, data) in wanted.items():
                bare = dtype in NARROW or dtype[1:] in ("4", "2")
                self.assertEqual((dtype, dims, data), reader.load(name, dtype if bare else None), name)
        for name, value in list(wanted.items())[::7]:
            one = self.path("one.npy")
            files.save(CTX, one, {"anything": value}, "npy")
            a = np.load(one, mmap_mode="r" if value[2] else None)
            self.assertEqual((value[1], value[2]), (a.shape, a.tobytes()))
        with self.assertRaisesRegex(weft.WeftError, "holds one tensor; the tree has 2"):
            files.save(CTX, one, {"a": value, "b": value}, "npy")

    def test_what_numpy_writes_weft_reads(self):
        arrays = {name: np.frombuffer(data, NUMPY[t]).reshape(dims) for name, (t, dims, data) in some(NUMPY).items()}
        wanted = {name: (name.split(".")[0], a.shape, a.tobytes()) for name, a in arrays.items()}
        np.savez(self.path("p.npz"), **arrays)
        self.compare(self.path("p.npz"), wanted, "npz")
        np.savez_compressed(self.path("c.npz"), **arrays)
        self.compare(self.path("c.npz"), wanted, "npz")
        for name, a in arrays.items():
            np.save(self.path("one.npy"), a)
            self.compare(self.path("one.npy"), {"arr_0": wanted[name]}, "npy")

    def test_orders_of_bytes_and_dimensions_and_versions(self):
        a = np.arange(60, dtype="f8").reshape(3, 4, 5) * 1.1
        for dtype in (">f8", ">f4", "<i2", ">i2", ">c8", ">c16", ">u8", "|u1", "<f2"):
            for order in "CF":
                array, path = np.asarray(a.astype(dtype), order=order), self.path("o.npy")
                np.save(path, array)
                plain = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
                with files.Reader(CTX, path) as reader:
                    self.assertEqual((plain.shape, plain.tobytes()), reader.load("arr_0")[1:], (dtype, order))
                np.savez_compressed(self.path("o.npz"), x=array)
                with files.Reader(CTX, self.path("o.npz")) as reader:
                    self.assertEqual((plain.shape, plain.tobytes()), reader.load("x")[1:], (dtype, order))
        for version in ((1, 0), (2, 0), (3, 0)):
            with open(self.path("v.npy"), "wb") as f:
                np.lib.format.write_array(f, a, version)
            self.compare(self.path("v.npy"), {"arr_0": ("f64", a.shape, a.tobytes())}, "npy")

    def test_a_big_archive_and_many_members(self):
        big = np.random.default_rng(1).integers(0, 256, 9 << 20, dtype="u1")
        arrays = {f"m{i}": np.full(3, i, "i4") for i in range(3000)}
        for save in (np.savez, np.savez_compressed):
            save(self.path("b.npz"), big=big, **arrays)
            with files.Reader(CTX, self.path("b.npz")) as reader:
                self.assertEqual(big.tobytes(), reader.load("big")[2])
                self.assertEqual(3001, len(reader.entries))
                self.assertEqual(arrays["m2999"].tobytes(), reader.load("m2999")[2])
        many = {f"m{i}": ("u8", (1,), b"x") for i in range(70000)}  # the directory's 64-bit end
        files.save(CTX, self.path("m.npz"), many, "npz")
        self.assertEqual(70000, len(zipfile.ZipFile(self.path("m.npz")).namelist()))
        with files.Reader(CTX, self.path("m.npz")) as reader:
            self.assertEqual(70000, len(reader.entries))

    def test_arrays_that_are_no_numbers_are_refused_by_name(self):
        for array, text in ((np.array([{}], object), "Python objects"), (np.array(["x"]), "text: '<U1'"), (np.array([b"x"]), "text"),
                            (np.array(["2020"], "M8[D]"), "dates or times"), (np.zeros(1, "m8[s]"), "dates"),
                            (np.zeros(1, [("a", "i4"), ("b", "f8")]), "structures"), (np.zeros(1, "g"), "no type for")):
            np.save(self.path("r.npy"), array, allow_pickle=True)
            self.refused("UNIMPLEMENTED", text, self.path("r.npy"))
            np.savez(self.path("r.npz"), x=array)
            self.refused("UNIMPLEMENTED", text, self.path("r.npz"))
        np.save(self.path("v.npy"), np.zeros((2, 3), ml_dtypes.float8_e4m3fn))
        with files.Reader(CTX, self.path("v.npy")) as reader:
            self.assertEqual({"arr_0": ("u8", (2, 3), "<V1", False)}, reader.entries)
            self.assertEqual(("f8e4m3fn", (2, 3), bytes(6)), reader.load("arr_0", "f8e4m3fn"))
            with self.assertRaisesRegex(weft.WeftError, r"\(<V1\) cannot be loaded as f32; an element has one byte"):
                reader.load("arr_0", "f32")
        self.refused("UNIMPLEMENTED", "stored as <V1", self.path("v.npy"), "arr_0")

    def test_damaged_files(self):
        out = io.BytesIO()
        np.save(out, np.arange(4, dtype="i4"))
        good = out.getvalue()

        def file(content):
            with open(self.path("d"), "wb") as f:
                f.write(content)
            return self.path("d")

        def headed(text):
            return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
        for content, text in ((good[:-1], "there are 15 bytes of data"), (good + b"x", "there are 17 bytes of data"), (good[:9], "no .npy header"),
                              (good[:8] + b"\xff\xff" + good[10:], "said to have 65535 bytes"),
                              (headed(b"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 3), }"), "more elements than 64 bits"),
                              (headed(b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }"), "no dictionary"),
                              (headed(b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1," * 33 + b"), }"), "no dictionary"),
                              (headed(b"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"), "no dictionary"),
                              (headed(b"__import__('os')"), "no dictionary")):
            self.refused("DATA_LOSS", text, file(content))
        self.refused("UNIMPLEMENTED", r"version 9\.0", file(good[:6] + b"\x09" + good[7:]))

    def test_damaged_archives(self):
        out = io.BytesIO()
        np.savez_compressed(out, a=np.arange(1000, dtype="i4"), b=np.ones(3))
        good = out.getvalue()
        with open(self.path("g.npz"), "wb") as f:
            f.write(good)
        with files.Reader(CTX, self.path("g.npz")) as reader:
            values = {name: reader.load(name) for name in reader.entries}
        found = 0
        for at in range(len(good)):  # a flipped bit is found, or changes nothing
            with open(self.path("d.npz"), "wb") as f:
                f.write(good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1:])
            try:
                with files.Reader(CTX, self.path("d.npz")) as reader:
                    for name, (dtype, dims, data) in ((n, reader.load(n)) for n in reader.entries):
                        self.assertTrue((dtype, dims, data) in values.values(), at)
            except weft.WeftError as error:
                found += 1
                self.assertIn(error.code, ("DATA_LOSS", "UNIMPLEMENTED", "INVALID_ARGUMENT"), at)
        self.assertGreater(found, len(good) // 2)
        for end in range(0, len(good), 7):
            with open(self.path("d.npz"), "wb") as f:
                f.write(good[:end])
            with self.assertRaises(weft.WeftError):
                files.Reader(CTX, self.path("d.npz"))

        def archive(*members, method=zipfile.ZIP_STORED):
            with zipfile.ZipFile(self.path("m.npz"), "w", method) as f:
                for name, content in members:
                    f.writestr(name, content)
            return self.path("m.npz")
        one = io.BytesIO()
        np.save(one, np.ones(2))
        one = one.getvalue()
        self.refused("DATA_LOSS", r"name with '\.\.'", archive(("../a.npy", one)))
        self.refused("DATA_LOSS", "absolute", archive(("/a.npy", one)))
        self.refused("UNIMPLEMENTED", "'a.txt' is no array", archive(("a.txt", b"hi")))
        self.refused("UNIMPLEMENTED", "compressed by method 12", archive(("a.npy", one), method=zipfile.ZIP_BZIP2))
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.refused("DATA_LOSS", "'a.npy' stands in the ZIP archive twice", archive(("a.npy", one), ("a.npy", one)))
        with open(archive(("a.npy", one)), "rb") as f:  # a bomb: its size says more than deflate can give
            raw = bytearray(f.read())
        entry = raw.rfind(b"PK\x01\x02")
        raw[entry + 10:entry + 12] = struct.pack("<H", 8)
        raw[entry + 24:entry + 28] = struct.pack("<I", 1 << 30)
        with open(self.path("m.npz"), "wb") as f:
            f.write(raw)
        self.refused("DATA_LOSS", "said to be 1073741824 bytes long, which it cannot be", self.path("m.npz"))


class Gguf(Files):
    def test_what_is_written_the_package_reads(self):
        rng, path = np.random.default_rng(3), self.path("w.gguf")
        types = {"f32": "F32", "f16": "F16", "bf16": "BF16", "f64": "F64", "i8": "I8", "i16": "I16", "i32": "I32", "i64": "I64"}
        shapes = {"f32": (), "f16": (0, 3), "bf16": (3, 5, 7), "f64": (2, 3, 4, 5)}
        tensors = {f"blk.{dtype}": (dtype, shapes.get(dtype, (3, 5)), b"") for dtype in types}
        for name, (dtype, dims, _) in tensors.items():
            tensors[name] = (dtype, dims, rng.bytes(int(np.prod(dims, dtype=int)) * files.width(dtype)))
        files.save(CTX, path, tensors, "gguf", metadata={"general.architecture": "test", "note": "für"}, step=7)
        read = gguf.GGUFReader(path)
        self.assertEqual(b"test", bytes(read.fields["general.architecture"].parts[-1]))
        self.assertEqual([7], list(read.fields["weft.step"].parts[-1]))
        self.assertEqual(list(tensors), [t.name for t in read.tensors])
        for t in read.tensors:
            dtype, dims, data = tensors[t.name]
            self.assertEqual((types[dtype], list(reversed(dims)), data), (t.tensor_type.name, [int(n) for n in t.shape], t.data.tobytes()))
            self.assertEqual(0, t.data_offset % 32)
        self.compare(path, tensors, "gguf")
        with files.Reader(CTX, path) as reader:
            self.assertEqual({"general.architecture": "test", "note": "für", "weft.step": 7}, reader.metadata())

    def test_what_gguf_has_no_place_for(self):
        for tensor, said in ((("u8", (2,), b"12"), "no type for 'x' of u8"), (("bool", (1,), b"\1"), "no type for 'x' of bool"),
                             (("f32", (1, 1, 1, 1, 1), b"1234"), "at most 4 dimensions; 'x' is f32")):
            with self.assertRaisesRegex(weft.WeftError, f"UNIMPLEMENTED: .*{said}"):
                files.save(CTX, self.path("w.gguf"), {"x": tensor}, "gguf")
        with self.assertRaisesRegex(weft.WeftError, "at most 63 bytes"):
            files.save(CTX, self.path("w.gguf"), {"x" * 64: ("f32", (), b"1234")}, "gguf")
        with self.assertRaisesRegex(weft.WeftError, "keeps the metadata 'split.count' for itself"):
            files.save(CTX, self.path("w.gguf"), {}, "gguf", metadata={"split.count": "2"})
        self.assertEqual([], os.listdir(self.work.name))

    def test_every_type_equals_the_package(self):
        rng, q = np.random.default_rng(1), gguf.GGMLQuantizationType
        names = ["F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
                 "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "IQ2_XXS", "TQ1_0"]
        plain = {"F32": "f32", "F16": "f16", "BF16": "bf16", "F64": "f64", "I8": "i8", "I16": "i16", "I32": "i32", "I64": "i64"}
        path, writer = self.path("q.gguf"), gguf.GGUFWriter(self.path("q.gguf"), "test")
        stored = {}
        for name in names:
            block, size = gguf.GGML_QUANT_SIZES[q[name]]
            data = rng.integers(0, 256, (6, 2 * size * (256 // block)), dtype="u1")
            stored[name] = data
            writer.add_tensor("t." + name, data, raw_dtype=q[name])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with files.Reader(CTX, path) as reader:
            self.assertEqual("gguf", reader.format)
            for name, data in stored.items():
                dtype, dims, encoding, loadable = reader.entries["t." + name]
                self.assertEqual(("u8", (data.nbytes,), data.tobytes()), reader.load("t." + name, "u8"), name)
                if name in plain:
                    self.assertEqual((plain[name], (6, 512), "", True), (dtype, dims, encoding, loadable))
                    self.assertEqual(data.tobytes(), reader.load("t." + name)[2], name)
                elif name in ("IQ2_XXS", "TQ1_0"):
                    self.assertEqual(("u8", (data.nbytes,), f"{name}[6, 512]", False), (dtype, dims, encoding, loadable))
                else:
                    self.assertEqual(("f32", (6, 512), name, True), (dtype, dims, encoding, loadable))
                    with np.errstate(all="ignore"):
                        wanted = gguf.quants.dequantize(data, q[name]).astype("f4")
                    got = np.frombuffer(reader.load("t." + name)[2], "f4").reshape(6, 512)
                    same = (wanted.view("u4") == got.view("u4")) | (np.isnan(wanted) & np.isnan(got))
                    self.assertTrue(same.all(), (name, np.argwhere(~same)[:3]))
        self.refused("UNIMPLEMENTED", r"stored as IQ2_XXS\[6, 512\]", path, "t.IQ2_XXS")

    def write(self, path, alignment=None, endian=gguf.GGUFEndian.LITTLE):
        writer = gguf.GGUFWriter(path, "llama", endianess=endian)
        if alignment:
            writer.add_custom_alignment(alignment)
        for kind, value in (("uint8", 200), ("int8", -3), ("uint16", 60000), ("int16", -300), ("uint32", 4000000000), ("int32", -70000),
                            ("uint64", 2 ** 64 - 1), ("int64", -2 ** 60), ("float32", 1.5), ("float64", 1e300), ("bool", True),
                            ("string", "größe")):
            getattr(writer, "add_" + kind)("k." + kind, value)
        writer.add_array("k.texts", ["a", "", "ü"])
        writer.add_array("k.numbers", [1, 2, 3])
        writer.add_array("k.floats", [0.5, 1.5])
        writer.add_tensor("w", np.arange(12, dtype="f4").reshape(3, 4))
        writer.add_tensor("n", np.arange(5, dtype="f4"))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def test_values_alignment_and_byte_order(self):
        for alignment, endian in ((None, gguf.GGUFEndian.LITTLE), (64, gguf.GGUFEndian.LITTLE), (None, gguf.GGUFEndian.BIG)):
            with files.Reader(CTX, self.write(self.path("v.gguf"), alignment, endian)) as reader:
                words = reader.metadata()
                self.assertEqual({"k.uint8": 200, "k.int8": -3, "k.uint16": 60000, "k.int16": -300, "k.uint32": 4000000000,
                                  "k.int32": -70000, "k.uint64": str(2 ** 64 - 1), "k.int64": -2 ** 60, "k.float32": 1.5,
                                  "k.float64": 1e300, "k.bool": True, "k.string": "größe", "k.texts": ["a", "", "ü"],
                                  "k.numbers": [1, 2, 3], "k.floats": [0.5, 1.5]},
                                 {k: v for k, v in words.items() if k.startswith("k.")})
                self.assertEqual("llama", words["general.architecture"])
                self.assertEqual(("f32", (3, 4), np.arange(12, dtype="f4").tobytes()), reader.load("w"))
                self.assertEqual(("f32", (5,), np.arange(5, dtype="f4").tobytes()), reader.load("n"))

    def test_damaged_files(self):
        with open(self.write(self.path("g.gguf"), 32), "rb") as f:
            good = f.read()

        def file(content):
            with open(self.path("d.gguf"), "wb") as f:
                f.write(content)
            return self.path("d.gguf")

        def patched(at, code, value):
            raw = bytearray(good)
            struct.pack_into(code, raw, at, value)
            return file(raw)
        self.refused("UNIMPLEMENTED", "version 9", patched(4, "<I", 9))
        self.refused("DATA_LOSS", "said to have 1152921504606846976 tensors", patched(8, "<Q", 1 << 60))
        self.refused("DATA_LOSS", "and 1152921504606846976 values", patched(16, "<Q", 1 << 60))
        self.refused("DATA_LOSS", "a key is said to have 1099511627776", patched(24, "<Q", 1 << 40))
        at = good.index(b"general.alignment") + 17 + 4
        for value in (0, 3, 48, 2 ** 31 + 1):
            self.refused("DATA_LOSS", "it is a power of two", patched(at, "<I", value))
        at = good.index(b"k.texts") + 7 + 4
        self.refused("DATA_LOSS", "arrays of arrays", patched(at, "<I", 9))
        self.refused("DATA_LOSS", "said to have 1152921504606846976 elements", patched(at + 4, "<Q", 1 << 60))
        at = good.index(b"k.string") + 8 + 4
        self.refused("DATA_LOSS", "a text is said to have 4294967296", patched(at, "<Q", 1 << 32))
        at = good.rindex(b"\x01\0\0\0\0\0\0\0w") + 9
        self.refused("DATA_LOSS", "4000000000 dimensions", patched(at, "<I", 4000000000))
        self.refused("DATA_LOSS", "more bytes than 64 bits|does not lie|lies at", patched(at + 4, "<Q", 1 << 62))
        self.refused("DATA_LOSS", "a dimension of 9223372036854775808", patched(at + 4, "<Q", 1 << 63))
        self.refused("UNIMPLEMENTED", "GGUF's type 99", patched(at + 20, "<I", 99))
        self.refused("DATA_LOSS", "lies at 18446744073709551584", patched(at + 24, "<Q", 2 ** 64 - 32))
        self.refused("DATA_LOSS", "lies at 1 to", patched(at + 24, "<Q", 1))
        self.refused("DATA_LOSS", "lies at 64 to 64 \\+ 48 of 96", patched(at + 24, "<Q", 64))
        for end in range(4, len(good) - 64, 3):
            with self.assertRaises(weft.WeftError):
                files.Reader(CTX, file(good[:end]))

    def test_split_files(self):
        def part(number, count, tensors):
            path = self.path(f"m-{number + 1:05}-of-{count:05}.gguf")
            writer = gguf.GGUFWriter(path, "llama")
            writer.add_uint16("split.no", number)
            writer.add_uint16("split.count", count)
            for name, array in tensors.items():
                writer.add_tensor(name, array)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            return path
        first = part(0, 2, {"a": np.arange(3, dtype="f4")})
        self.refused("NOT_FOUND", "m-00002-of-00002.gguf", first)
        second = part(1, 2, {"b": np.arange(4, dtype="f4")})
        self.compare(first, {"a": ("f32", (3,), np.arange(3, dtype="f4").tobytes()), "b": ("f32", (4,), np.arange(4, dtype="f4").tobytes())}, "gguf")
        self.refused("INVALID_ARGUMENT", "open the first", second)


if __name__ == "__main__":
    unittest.main()
