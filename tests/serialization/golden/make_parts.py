"""Writes the golden files of tensors in parts, once. WEFT_LIB=… python3 tests/serialization/golden/make_parts.py"""
import io
import json
import os
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import files  # noqa: E402
import independent_parts  # noqa: E402
import independent_reader_test  # noqa: E402
import trees  # noqa: E402
from files import weft  # noqa: E402


def state(seed):
    """One tensor of every type with a byte or more to an element, of more than 64 KiB; one of three parts, of which the last is short."""
    made = {}
    for i, (dtype, bits) in enumerate(sorted(trees.dtypes().items())):
        if bits >= 8:
            elements = 70_000 * 8 // bits + 1
            made[dtype] = dtype, (elements,), trees.value(dtype, bits, elements, i)
    made["three"] = "f32", ((9 << 18) + 1,), trees.value("f32", 32, (9 << 18) + 1, seed)
    made["small"] = "i32", (5,), trees.value("i32", 32, 5, seed)
    return made


def main():
    archive, wanted = io.BytesIO(), {}
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=archive, mode="w:xz", preset=9) as out:
        ctx = weft.Context()
        first, second = state(1), dict(state(1), f64=state(2)["f64"], i8=("i8", (66_000,), trees.value("i8", 8, 66_000, 9)))
        files.save(ctx, os.path.join(folder, "plain.weft"), first, step=1)
        files.save(ctx, os.path.join(folder, "compressed.weft"), first, step=2, compress=1)
        files.save(ctx, os.path.join(folder, "upon_plain.weft"), second, step=3, base="plain.weft")
        files.save(ctx, os.path.join(folder, "upon_both.weft"), first, step=4, base="upon_plain.weft", compress=1)
        for name in sorted(os.listdir(folder)):
            found = independent_parts.WithParts(os.path.join(folder, name))
            values = second if name == "upon_plain.weft" else first
            assert {n: v for n, (_, _, _, v) in found.tensors.items()} == {n: v for n, (_, _, v) in values.items()}, name
            wanted[name] = independent_reader_test.described(found)
            out.add(os.path.join(folder, name), name)
        text = json.dumps(wanted, indent=0, sort_keys=True).encode()
        about = tarfile.TarInfo("expected.json")
        about.size = len(text)
        out.addfile(about, io.BytesIO(text))
    with open(os.path.join(HERE, "parts.tar.xz"), "wb") as f:
        f.write(archive.getvalue())


if __name__ == "__main__":
    main()
