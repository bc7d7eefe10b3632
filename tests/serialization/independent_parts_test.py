"""Tensors in parts, compressed and taken from files before: what Weft saves, a reader reads that was written from docs/formats.md
alone, and Weft; each kind of damage is found; a file made whole by weft_checkpoint_convert needs no other.
"""
import ctypes
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
import independent_parts  # noqa: E402
import independent_reader  # noqa: E402
import independent_reader_test  # noqa: E402
import numpy as np  # noqa: E402
from files import LIB, weft  # noqa: E402
from trees import dtypes  # noqa: E402

MIB = 1 << 20


def state(seed):
    """Every element type below, at and above the sizes at which a tensor gets parts, in numbers that zstd likes and that it does not."""
    rng, out = np.random.default_rng(seed), {}
    for i, (dtype, bits) in enumerate(dtypes().items()):
        if bits < 8:
            continue
        size = (65536 - bits // 8, 65536, 70_000 // bits * bits, 300_000 // bits * bits)[i % 4]
        noise = rng.integers(0, 2 if dtype == "bool" else 256, size, "u1")
        if i % 2:
            noise[rng.random(size) < 0.9] = 0
        out[dtype] = dtype, (size * 8 // bits,), noise.tobytes()
    weights = rng.normal(0, 0.02, 3 * MIB).astype("f4")  # 12 MiB: three parts
    return dict(out, weights=("f32", (3, MIB), weights.tobytes()),
                odd=("f64", (MIB + 37,), rng.normal(size=MIB + 37).round(3).tobytes()))


def read(path):
    with open(path, "rb") as f:
        return f.read()


def check(ctx, path, wanted):
    found = independent_parts.WithParts(path)
    assert {n: (d, s, v) for n, (d, _, s, v) in found.tensors.items()} == {
        n: (d.replace("bool", "bool8"), s, v) for n, (d, s, v) in wanted.items()}, path
    with files.Reader(ctx, path) as reader:
        for name, value in wanted.items():
            assert reader.load(name) == value, name
    load(ctx, path)
    return found


def load(ctx, path):
    """weft_checkpoint_load checks every byte."""
    tree, raw = ctypes.c_void_p(), os.fsencode(path)
    LIB.checkpoint_load(ctx.handle, raw, len(raw), None, ctypes.byref(tree))
    LIB.tree_release(tree)


def fails(what, *words):
    try:
        what()
    except weft.WeftError as e:
        assert all(word in str(e) for word in words), e
        return
    raise AssertionError(f"nothing failed, where {words} was to be said")


def compressed(ctx, folder):
    plain, small, wanted = os.path.join(folder, "plain"), os.path.join(folder, "small"), state(1)
    files.save(ctx, plain, wanted)
    files.save(ctx, small, wanted, compress=1, step=3)
    assert check(ctx, small, wanted).step == 3
    print(f"plain {os.path.getsize(plain)} bytes, compressed {os.path.getsize(small)}")
    assert os.path.getsize(small) < 0.93 * os.path.getsize(plain)
    try:
        independent_reader.Checkpoint(read(small))
        raise AssertionError("a reader of version 1.0 took it")
    except independent_reader.Bad:
        pass
    return wanted


def chain(ctx, folder, wanted):
    """Each save changes one part of three; the files before are needed by what did not change."""
    at, sizes = [os.path.join(folder, f"step-{i}") for i in range(4)], []
    files.save(ctx, at[0], wanted, compress=1)
    for i in range(1, 4):
        dtype, shape, data = wanted["weights"]
        data = bytearray(data)
        data[(i - 1) * 4 * MIB + 5] ^= 1
        wanted = dict(wanted, weights=(dtype, shape, bytes(data)))
        files.save(ctx, at[i], wanted, compress=i % 2, base=f"step-{i - 1}", step=i)
        found = check(ctx, at[i], wanted)
        sizes.append(os.path.getsize(at[i]))
        names = [b.text(0) for b in found.footer.list(1)]
        assert sorted(names) == [f"step-{k}" for k in range(i)], names
    assert max(sizes) < os.path.getsize(at[0]) * 0.6, sizes
    # The last one has changed all of "weights", and needs what else is in the first.
    options, whole = files.struct("weft_convert_options"), os.path.join(folder, "whole")
    raw, to = os.fsencode(at[3]), os.fsencode(whole)
    LIB.checkpoint_convert(ctx.handle, raw, len(raw), to, len(to), ctypes.addressof(options))
    independent_reader.Checkpoint(read(whole))
    for path in at[:3]:
        os.rename(path, path + ".away")
    check(ctx, whole, wanted)
    fails(lambda: load(ctx, at[3]), "step-3' takes parts from 'step-", "beside it")
    for path in at[:3]:
        os.rename(path + ".away", path)
    check(ctx, at[3], wanted)
    files.save(ctx, at[0], wanted, compress=1)  # the same name, another file
    fails(lambda: load(ctx, at[3]), "takes parts from 'step-0' beside it, which is another file than the one that it was saved with")
    return wanted


def bad_input(ctx, folder, wanted):
    at = os.path.join(folder, "bad")
    save = lambda **more: files.save(ctx, at, wanted, **more)  # noqa: E731
    fails(lambda: save(base="none"), "none")
    fails(lambda: save(base="../step-0"), "base is '../step-0'; it is the name of a file beside the new one")
    fails(lambda: save(base="bad"), "is the file that would be replaced")
    fails(lambda: save(compress=7), "compress is 7, which no weft_compress is")
    fails(lambda: save(compress=1, format="safetensors"), "only Weft's own format has parts")
    with open(os.path.join(folder, "text"), "w") as f:
        f.write("no checkpoint at all")
    fails(lambda: save(base="text"), "is not a Weft checkpoint")
    files.save(ctx, os.path.join(folder, "one"), wanted)
    files.save(ctx, os.path.join(folder, "two"), wanted, base="one")
    files.save(ctx, os.path.join(folder, "one"), wanted, base="two")  # whose parts are in "one": they are written anew
    assert check(ctx, os.path.join(folder, "one"), wanted).footer.list(1) == b""
    assert not os.path.exists(at)
    # The writer writes a part anew where the base is damaged.
    files.save(ctx, os.path.join(folder, "base"), wanted)
    data = bytearray(read(os.path.join(folder, "base")))
    hit = data.index(wanted["weights"][2][:4096])
    data[hit + 100] ^= 1
    with open(os.path.join(folder, "base"), "wb") as f:
        f.write(data)
    save(base="base")
    check(ctx, at, wanted)


def damage(ctx, folder, wanted):
    """A flipped bit anywhere in a file with parts is found, and so is one of the base that is used."""
    path, base = os.path.join(folder, "flip"), os.path.join(folder, "flip-base")
    few = {name: wanted[name] for name in ("f32", "bf16", "u8", "odd", "weights")}
    files.save(ctx, base, few, compress=1)
    dtype, shape, data = few["odd"]
    files.save(ctx, path, dict(few, odd=(dtype, shape, data[::-1])), compress=1, base="flip-base")
    for file, count in ((path, 150), (base, 60)):
        good, missed = read(file), 0
        for seed in range(count):
            rng, bad = random.Random(seed), bytearray(good)
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
            with open(file, "wb") as f:
                f.write(bad)
            try:
                load(ctx, path)
                missed += 1
            except weft.WeftError:
                pass
        with open(file, "wb") as f:
            f.write(good)
        print(f"{missed} of {count} flipped bits of {os.path.basename(file)} do not matter")
        assert missed == 0 if file == path else missed < count
    load(ctx, path)
    for cut in range(0, 400, 40):
        with open(base, "wb") as f:
            f.write(good[:cut])
        fails(lambda: load(ctx, path), "flip-base")


def golden(ctx, folder):
    """Files that are never written again; golden/make_parts.py made them."""
    with tarfile.open(os.path.join(independent_reader_test.GOLDEN, "parts.tar.xz"), "r:xz") as archive:
        members = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
    wanted = json.loads(members.pop("expected.json"))
    assert sorted(members) == sorted(wanted) and len(wanted) == 4, "files of the archive"
    for name, data in members.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)
    for name, expected in wanted.items():
        path = os.path.join(folder, name)
        assert json.loads(json.dumps(independent_reader_test.described(independent_parts.WithParts(path)))) == expected, name
        with files.Reader(ctx, path) as reader:
            assert reader.step == expected["step"] and sorted(reader.entries) == sorted(expected["tensors"])
            for tensor, (dtype, _, shape, length, digest) in expected["tensors"].items():
                there, dims, data = reader.load(tensor)
                assert (there, list(dims), len(data)) == (dtype.replace("bool8", "bool"), shape, length), tensor
                assert hashlib.sha256(data).hexdigest() == digest, tensor
        load(ctx, path)
    print(f"{len(wanted)} golden files with {sum(len(w['tensors']) for w in wanted.values())} tensors")


def main():
    with tempfile.TemporaryDirectory() as folder:
        ctx = weft.Context()
        golden(ctx, folder)
        wanted = compressed(ctx, folder)
        wanted = chain(ctx, folder, wanted)
        bad_input(ctx, folder, wanted)
        damage(ctx, folder, wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
