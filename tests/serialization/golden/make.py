"""Writes the golden files of a version of the layout, once. WEFT_LIB=… python3 tests/serialization/golden/make.py"""
import io
import json
import os
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import independent_reader  # noqa: E402
import independent_reader_test  # noqa: E402
import trees  # noqa: E402
from files import weft  # noqa: E402


def models():
    every = []
    for i, (dtype, bits) in enumerate(sorted(trees.dtypes().items())):
        leaves = [("scalar", []), ("empty", [3, 0]), ("inside", [3]), ("packed", [7, 300 * 8 // bits]),
                  ("large", [70_000 * 8 // bits + 1])]
        inner = []
        for name, shape in leaves:
            elements = 1
            for dim in shape:
                elements *= dim
            inner.append((name, ("tensor", (dtype, shape, trees.value(dtype, bits, elements, i)))))
        every.append((dtype, ("dict", inner)))
    yield "types", ("dict", every)
    weight = ("f32", [20, 3], trees.value("f32", 32, 60, 5))
    yield "tree", ("dict", [
        ("encoder", ("dict", [("x", ("int64", -2**63)), ("w", ("alias", "decoder.w"))])),
        ("decoder", ("dict", [("w", ("tensor", weight)), ("b.\\ö", ("tensor", ("bf16", [3], b"\x80\x3f" * 3)))])),
        ("again", ("alias", "decoder")),
        ("list", ("list", [("none", 0), ("bool", True), ("bool", False), ("float64", float("-inf")), ("float64", -0.0),
                           ("text", "héllo"), ("bytes", b"\0\xff"), ("list", []), ("dict", [("", ("text", ""))]),
                           ("alias", "decoder.w")])),
    ])
    yield "nothing", ("dict", [])
    yield "huge", ("dict", [("sums", ("tensor", ("u8", [9, 1 << 20], trees.value("u8", 8, 9 << 20, 1)))),
                            ("aligned", ("tensor", ("f64", [1 << 17], trees.value("f64", 64, 1 << 17, 2))))])
    yield "pages", ("dict", [("name" + "n" * 1000 + str(i), ("tensor", ("i16", [2], trees.value("i16", 16, 2, i))))
                             for i in range(600)])


def main():
    archive, wanted = io.BytesIO(), {}
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=archive, mode="w:xz", preset=9) as out:
        ctx = weft.Context()
        for step, (name, model) in enumerate(models()):
            path = os.path.join(folder, name + ".weft")
            built = trees.Builder(ctx, model)
            built.save(path, step=step)
            built.release()
            with open(path, "rb") as f:
                data = f.read()
            found = independent_reader.Checkpoint(data)
            tree, tensors = trees.expected(model)
            assert found.tensors == tensors
            assert independent_reader_test.plain_bits(found.tree) == independent_reader_test.plain_bits(tree)
            wanted[name + ".weft"] = independent_reader_test.described(found)
            put(out, name + ".weft", data)
        put(out, "expected.json", json.dumps(wanted, ensure_ascii=False).encode())
    with open(os.path.join(HERE, "version_1_0.tar.xz"), "xb") as f:
        f.write(archive.getvalue())


def put(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


if __name__ == "__main__":
    main()
