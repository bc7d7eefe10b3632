"""What torch.save writes, judged by torch.load: both generations, views, tied tensors, every type, optimizer states. And what a pickle
must not do: nothing in it is run, whatever it names. The committed files of pytorch/ (made by pytorch/make.py) are read where torch
cannot be had, too."""
import json
import os
import pickle
import struct
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import python_env  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
if python_env.python_with("torch", ["torch", "numpy"])[0] is not None:
    python_env.enter("torch", ["torch", "numpy"], os.path.abspath(__file__))
else:
    python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))

try:
    import torch  # noqa: E402
except ImportError:
    torch = None

import files  # noqa: E402
import weft  # noqa: E402

CTX = weft.Context()
NAMES = {"bool": "bool", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float16": "f16",
         "bfloat16": "bf16", "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128", "uint16": "u16",
         "uint32": "u32", "uint64": "u64", "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2", "float8_e4m3fnuz": "f8e4m3fnuz",
         "float8_e5m2fnuz": "f8e5m2fnuz"}
needs_torch = unittest.skipIf(torch is None, "SKIPPED: torch could not be installed")


def seen(t):
    """A tensor as files.elements gives it: dense, resolved, on the host."""
    dense = t.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).reshape(-1)
    raw = bytes(dense.view(torch.uint8).tolist())
    return NAMES[str(t.dtype).removeprefix("torch.")], tuple(t.shape), raw


def expected(value):
    if isinstance(value, torch.Tensor):
        return seen(value)
    if isinstance(value, dict):
        return {str(k): expected(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return (tuple if isinstance(value, tuple) else list)(expected(v) for v in value)
    return str(value) if isinstance(value, torch.dtype) else value


def resolved(value):
    """What Weft read, aliases as what they stand for."""
    if isinstance(value, tuple) and value[:1] == ("alias",):
        return value[1]
    if isinstance(value, dict):
        return {k: resolved(v) for k, v in value.items()}
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[2], bytes):
        return value
    return type(value)(resolved(v) for v in value) if isinstance(value, (list, tuple)) else value


class Files(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        self.path = os.path.join(self.work.name, "f.pt")

    def refused(self, code, text, *load):
        with self.assertRaises(weft.WeftError) as caught:
            with files.Reader(CTX, self.path) as reader:
                for name in load:
                    reader.load(name)
        self.assertEqual(code, caught.exception.code, caught.exception.message)
        self.assertRegex(caught.exception.message, text)


@needs_torch
class AgainstTorch(Files):
    def both(self, value, compare=True):
        """Saved in both generations and read back as torch has it; the trees that Weft gives."""
        trees = []
        for new in (True, False):
            torch.save(value, self.path, _use_new_zipfile_serialization=new)
            with files.Reader(CTX, self.path) as reader:
                self.assertEqual("pytorch", reader.format)
                trees.append(reader.tree())
            if compare:
                self.assertEqual(expected(value), resolved(trees[-1]), "zip" if new else "old")
        return trees

    def test_every_type_and_shape(self):
        torch.manual_seed(1)
        for name in NAMES:
            dtype = getattr(torch, name)
            state = {}
            for shape in ((), (0,), (1,), (5,), (2, 3), (3, 0, 2)):
                raw = torch.randint(0, 2 if name == "bool" else 100, (*shape, torch.empty(0, dtype=dtype).element_size()), dtype=torch.uint8)
                state[f"x.{shape}"] = raw.view(dtype).reshape(shape)
            self.both(state)

    def test_views_become_dense_and_shared_ones_aliases(self):
        base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
        c = torch.randn(3, dtype=torch.complex64)
        state = {"base": base, "t": base.t(), "cut": base[1:3, ::2], "row": base[2], "wide": torch.ones(1).expand(5, 4), "again": base,
                 "parameter": torch.nn.Parameter(base), "conj": c.conj(), "neg": torch._neg_view(torch.randn(3)), "same": base.view(4, 6), "one": base[1:2].t()}
        for tree in self.both(state):
            self.assertEqual({"again", "parameter", "same"}, {k for k, v in tree.items() if v[0] == "alias"})

    def test_state_dicts_of_modules_and_optimizers(self):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(2):
            model(torch.randn(5, 3)).sum().backward()
            optimizer.step()
        self.both({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "best": 0.25, "done": None, "name": "größe",
                   "flags": [True, False], "size": torch.Size([2, 3]), "raw": b"\x00\xff", "dtype": torch.bfloat16, "far": -2 ** 40})
        with files.Reader(CTX, self.path) as reader:
            self.assertIn("model.0.weight", reader.entries)
            self.assertIn("optimizer.state.0.exp_avg", reader.entries)
            self.assertEqual(seen(model[0].weight), reader.load("model.0.weight"))

    def test_lists_and_single_tensors(self):
        x = torch.randn(3)
        self.assertEqual({"value": seen(x)}, self.both(x, compare=False)[0])
        self.assertEqual({"value": [seen(x), ("alias", seen(x))]}, self.both([x, x], compare=False)[1])

    def test_what_is_no_data_is_refused_by_name(self):
        for value, text in ((torch.nn.Linear(2, 2), r"torch\.nn\.modules\.linear\.Linear.*save the state_dict alone"),
                            ({"x": torch.eye(3).to_sparse()}, "a sparse tensor"),
                            ({"x": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)}, "a quantised tensor|QInt8|quint|torch"),
                            ({"x": __import__("numpy").float64(3)}, "numpy.*scalar"), ({"x": {1, 2}}, "set"), ({"x": 1 + 2j}, "complex"),
                            ({"x": torch.device("cpu")}, "torch.device"), ({(1, 2): 3}, "a key that is a tuple")):
            for new in (True, False):
                torch.save(value, self.path, _use_new_zipfile_serialization=new)
                self.refused("UNIMPLEMENTED", text)
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), self.path)
        self.refused("UNIMPLEMENTED", "TorchScript")

    def test_flipped_bits_give_an_error_or_other_values_never_a_fault(self):
        for new in (True, False):
            torch.save({"a": torch.arange(7.0), "b": torch.arange(4)[::2], "n": 5}, self.path, _use_new_zipfile_serialization=new)
            with open(self.path, "rb") as f:
                good = f.read()
            for at in range(len(good)):
                with open(self.path, "wb") as f:
                    f.write(good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1:])
                try:
                    with files.Reader(CTX, self.path) as reader:
                        reader.tree()
                except weft.WeftError as error:
                    self.assertIn(error.code, ("DATA_LOSS", "UNIMPLEMENTED", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"), (at, error.message))
            for end in range(0, len(good) - 1, 5):
                with open(self.path, "wb") as f:
                    f.write(good[:end])
                with self.assertRaises(weft.WeftError):
                    files.Reader(CTX, self.path)


class Committed(Files):
    def test_files_that_torch_made(self):
        with open(os.path.join(HERE, "pytorch", "expected.json"), encoding="utf-8") as f:
            wanted = json.load(f)
        for name, tensors in wanted.items():
            with files.Reader(CTX, os.path.join(HERE, "pytorch", name)) as reader:
                self.assertEqual(set(tensors), set(reader.entries), name)
                for tensor, (dtype, dims, data) in tensors.items():
                    self.assertEqual((dtype, tuple(dims), bytes.fromhex(data)), reader.load(tensor), (name, tensor))


def old_file(body, keys=()):
    """An old PyTorch file around a pickle of hand-made opcodes."""
    start = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19." + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
    return start + b"\x80\x02" + body + b"." + pickle.dumps(list(keys), 2)


class Runs:
    def __init__(self, function, *arguments):
        self.made = (function, arguments)

    def __reduce__(self):
        return self.made


class Hostile(Files):
    def write(self, content):
        with open(self.path, "wb") as f:
            f.write(content)

    def test_nothing_is_run(self):
        for function, arguments, name in ((os.system, ("touch " + self.path + ".run",), "system"), (eval, ("1",), "eval"), (print, ("x",), "print"),
                                          (getattr, ("a", "b"), "getattr"), (pickle.loads, (b"",), "loads")):
            body = pickle.dumps(Runs(function, *arguments), 2)[2:-1]
            self.write(old_file(body))
            self.refused("UNIMPLEMENTED", f"it holds .*{name}, which only running Python code would give")
        self.assertEqual(["f.pt"], os.listdir(self.work.name))

    def test_pickles_that_lie(self):
        storage = b"ctorch\nFloatStorage\n"
        persistent = b"(X\x07\0\0\0storage" + storage + b"X\x01\0\0\0kX\x03\0\0\0cpuK\x04NtQ"

        def tensor(offset=b"K\0", size=b"K\x04\x85", stride=b"K\x01\x85"):
            return b"ctorch._utils\n_rebuild_tensor\n(" + persistent + offset + size + stride + b"tR"
        big = b"\x8a\x08" + struct.pack("<q", 2 ** 62)
        data = struct.pack("<q4f", 4, 1, 2, 3, 4)
        good = old_file(b"}X\x01\0\0\0w" + tensor() + b"s", ["k"])
        self.write(good + data)
        with files.Reader(CTX, self.path) as reader:
            self.assertEqual(("f32", (4,), data[8:]), reader.load("w"))
        for view in (tensor(offset=b"K\x01"), tensor(size=b"K\x05\x85"), tensor(stride=b"K\x02\x85"), tensor(size=big + b"\x85"),
                     tensor(size=b"(" + big + big + b"t", stride=b"K\x01K\x01\x86"), tensor(stride=big + b"\x85"), tensor(offset=big)):
            self.write(old_file(b"}X\x01\0\0\0w" + view + b"s", ["k"]) + data)
            self.refused("DATA_LOSS", "does not lie inside storage 'k' of 4 elements")
        for body, text in ((b"}X\x01\0\0\0w" + tensor(offset=b"J\xff\xff\xff\xff") + b"s", "something else than a storage"),
                           (b"]q\0h\0a", "holds it"), (b"}q\0X\x01\0\0\0ah\0s", "holds it"),
                           (b"h\x05", "memo 5, which it has not filled"), (b"0", "empty stack"), (b"(", "ends with"), (b"NN", "ends with 2 values"),
                           (b"X\xff\xff\xff\xffabc", "ends too early"), (b"K\x01K\x02R", "calls a int with a int"),
                           (b"}K\x01a", "adds 1 items for a list to a dict"), (b"K\x01Nb", "sets attributes of a int"),
                           (b"(K\x01d", "a key and no value"), (b"}X\x01\0\0\0aK\x01sX\x01\0\0\0aK\x02s", "has the key 'a' already"),
                           (b"]" * 2000 + b"a" * 1999, "1024 levels deep"), (b"]" * 1000000 + b"a" * 999999, "more than 32768 values waiting"),
                           (persistent.replace(b"storage", b"strange"), "no storage"),
                           (b"}X\x03\0\0\0a\0bNs", "UTF-8 without NUL"), (b"}X\x02\0\0\0\xff\xfeNs", "UTF-8 without NUL")):
            self.write(old_file(body))
            self.refused("DATA_LOSS", text)
        self.write(old_file(b"}X\x01\0\0\0w" + tensor() + b"s", []) + data)
        self.refused("DATA_LOSS", "has 0 storages; its tensors have 1")
        self.write(good + struct.pack("<q", 1 << 60) + data)
        self.refused("DATA_LOSS", "said to have 1152921504606846976 elements")
        self.write(good + data[:-1])
        self.refused("DATA_LOSS", "has 15 bytes more")
        for opcode in (b"S'x'\n", b"I1\n", b"ios\nsystem\n", b"\x93", b"\x8c\x01a", b"\x95" + bytes(8), b"\x82\x01"):
            self.write(old_file(opcode))
            self.refused("UNIMPLEMENTED", "the opcode 0x")

    def test_values_that_stand_for_each_other_are_not_multiplied(self):
        body = b"(K\x01K\x02tq\0"  # a billion pairs if they were written out
        for i in range(60):
            body += b"0(h" + bytes([i]) + b"h" + bytes([i]) + b"tq" + bytes([i + 1])
        self.write(old_file(body))
        with files.Reader(CTX, self.path) as reader:
            self.assertEqual({}, reader.entries)
        again = b"X\x00\x00\x01\x00" + b"a" * 65536 + b"q\x01X\x06\0\0\0latin1q\x020"  # a text that is made bytes of again and again
        self.write(old_file(b"]" + again + b"0" * 0 + b"(" + b"c_codecs\nencode\nh\x01h\x02\x86R" * 5000 + b"e"))
        self.refused("DATA_LOSS", "copies the same values again and again|ends with|adds")

    def test_archives_that_are_no_weights(self):
        with zipfile.ZipFile(self.path, "w") as f:
            f.writestr("m/data.pkl", b"\x80\x02}.")
            f.writestr("m/constants.pkl", b"")
        self.refused("UNIMPLEMENTED", "TorchScript")
        with zipfile.ZipFile(self.path, "w") as f:
            f.writestr("m/data.pkl", b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
                                     b"X\x04\0\0\0../kX\x03\0\0\0cpuK\x04tQK\0K\x04\x85K\x01\x85tRs.")
        self.refused("DATA_LOSS", r"'m/data/\.\./k' with a storage's data is missing")
        with zipfile.ZipFile(self.path, "w") as f:  # four elements in 12 bytes
            f.writestr("m/data.pkl", b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
                                     b"X\x01\0\0\0kX\x03\0\0\0cpuK\x04tQK\0K\x04\x85K\x01\x85tRs.")
            f.writestr("m/data/k", bytes(12))
        self.refused("DATA_LOSS", "member 'm/data/k' has 12 bytes; the storage has 4 elements of 4")
        with zipfile.ZipFile(self.path, "w") as f:
            f.writestr("m/data.pkl", b"\x80\x04}.")
        self.refused("UNIMPLEMENTED", "protocol 4")
        self.write(bytes(257) + b"ustar" + bytes(300))
        self.refused("UNIMPLEMENTED", "a tar archive")


if __name__ == "__main__":
    unittest.main()
