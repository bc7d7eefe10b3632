"""What Weft saves, a reader reads that was written from docs/formats.md alone: random trees, and every golden file, which
Weft reads too. WEFT_FULL_TREES: how many random ones (150).

The golden files are never written again: each release reads those of all before it. `golden/make.py` made them.
"""
import hashlib
import json
import os
import random
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import python_env  # noqa: E402

if __name__ == "__main__":
    python_env.enter("files", ["numpy", "ml_dtypes", "safetensors", "gguf"], os.path.abspath(__file__))

import files  # noqa: E402
import independent_reader  # noqa: E402
import trees  # noqa: E402
from files import weft  # noqa: E402

SUB_BYTE = ("i2", "u2", "i4", "u4")  # in memory each has a byte
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")


def read(path):
    with open(path, "rb") as f:
        return f.read()


def plain_bits(node):
    """A float as its bits, so that NaN is equal to itself."""
    kind, value = node
    if kind in ("dict", "list", "tuple"):
        return kind, [(key, plain_bits(child)) for key, child in value]
    return kind, value.hex() if kind == "float64" else value if kind != "none" else 0


def random_trees(ctx, folder, count):
    path, tensors = os.path.join(folder, "random.weft"), 0
    for seed in range(count):
        model = trees.random_tree(seed)
        built = trees.Builder(ctx, model)
        built.save(path, step=seed)
        built.release()
        data = read(path)
        found = independent_reader.Checkpoint(data)
        tree, wanted = trees.expected(model)
        assert found.step == seed
        assert found.tensors == wanted, f"seed {seed}"
        assert plain_bits(found.tree) == plain_bits(tree), f"seed {seed}"
        tensors += len(wanted)
        with files.Reader(ctx, path) as reader:
            for name, (dtype, _, shape, value) in wanted.items():
                if dtype not in SUB_BYTE:
                    assert reader.load(name)[1:] == (shape, value), f"seed {seed}, {name}"
        flipped = bytearray(data)
        flipped[random.Random(seed).randrange(len(data))] ^= 1 << seed % 8
        try:
            independent_reader.Checkpoint(bytes(flipped))
        except (independent_reader.Bad, UnicodeDecodeError, IndexError):
            continue
        raise AssertionError(f"seed {seed}: a flipped bit was not found")
    print(f"{count} random trees with {tensors} tensors")


def golden(ctx, folder):
    with tarfile.open(os.path.join(GOLDEN, "version_1_0.tar.xz"), "r:xz") as archive:
        members = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
    wanted = json.loads(members.pop("expected.json"))
    assert sorted(members) == sorted(wanted), "files of the archive"
    for name, expected in wanted.items():
        found = independent_reader.Checkpoint(members[name])
        assert json.loads(json.dumps(described(found))) == expected, name
        path = os.path.join(folder, name)
        with open(path, "wb") as f:
            f.write(members[name])
        with files.Reader(ctx, path) as reader:
            assert reader.step == expected["step"]
            assert sorted(reader.entries) == sorted(expected["tensors"])
            for tensor, (dtype, _, shape, length, digest) in expected["tensors"].items():
                there, dims, data = reader.load(tensor)
                assert (there, list(dims)) == (dtype.replace("bool8", "bool"), shape), tensor
                if there not in SUB_BYTE:
                    assert (len(data), hashlib.sha256(data).hexdigest()) == (length, digest), tensor
            reader.tree()
    print(f"{len(wanted)} golden files with {sum(len(w['tensors']) for w in wanted.values())} tensors")


def described(found):
    """A file as JSON has it: tensors by their lengths and SHA-256."""
    def node(n):
        kind, value = n
        if kind in ("dict", "list", "tuple"):
            return [kind, [[key, node(child)] for key, child in value]]
        if kind == "bytes":
            return [kind, value.hex()]
        return [kind, value.hex() if kind == "float64" else value]
    return {"step": found.step, "user": {k: v.hex() for k, v in found.user.items()}, "tree": node(found.tree),
            "tensors": {name: [dtype, logical, list(shape), len(value), hashlib.sha256(value).hexdigest()]
                        for name, (dtype, logical, shape, value) in found.tensors.items()}}


def main():
    with tempfile.TemporaryDirectory() as folder:
        ctx = weft.Context()
        golden(ctx, folder)
        random_trees(ctx, folder, int(os.environ.get("WEFT_FULL_TREES", 150)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
