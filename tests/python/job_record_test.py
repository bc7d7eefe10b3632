"""Recorded collectives of a job, of every dtype and reduction, and their gradients, over shared memory and TCP: NumPy is the judge."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

import support
import support_env

support_env.enter_numpy(os.path.abspath(__file__))
import numpy as np  # noqa: E402

MEMBER = """
import json, os, sys
import numpy as np
import libweft as wf
rank, size, identity, port, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
over = dict(coordinator="localhost:%d" % port, local_rank=0, local_size=1) if port and size > 1 else {}
job = wf.job.Job(rank=rank, size=size, identity=identity, timeout=60, **over)
given = np.load(os.path.join(folder, "given.npz"))
cases = json.load(open(os.path.join(folder, "cases.json")))
out = {}
def tensor(name, dtype):
    data = given[name]
    return wf.tensor(data).astype(dtype)
def host(t):
    return t.astype("f32").numpy() if str(t.dtype).endswith(("f16", "bf16")) or "f8" in str(t.dtype) else t.astype("i32").numpy() if str(t.dtype).endswith(("i4", "u4", "i2", "u2")) else t.numpy()
results = []
for at, (kind, reduction, root, dtype, name) in enumerate(cases):
    x = tensor("%s.%d" % (name, rank), dtype)
    results.append(job.record(kind, x, reduction, root))
    if at % 16 == 15:  # Several in one program.
        wf.sync()
for at, result in enumerate(results):
    out["value.%d" % at] = host(result)
for at, (kind, reduction, root, dtype, name) in enumerate(cases):
    if "weight.%d.%d" % (at, rank) not in given:
        continue
    x, weight = tensor("%s.%d" % (name, rank), dtype), tensor("weight.%d.%d" % (at, rank), dtype)
    x.require_grad()
    product = job.record(kind, x, reduction, root) * weight
    out["grad.%d" % at] = host(wf.gradients(wf.real(product).sum() if "c" in dtype else product.sum(), x))
    if kind == "all_gather" and dtype == "f64":  # Of a gradient the gradient: the collectives stay in the graph.
        once = wf.gradients((job.record(kind, x, reduction, root).square() * weight).sum(), x)
        out["second.%d" % at] = host(wf.gradients((once * x).sum(), x))
before = job.collectives
wf.sync()
np.savez(os.path.join(folder, "out.%d.npz" % rank), **out)
errors = []
for call in (lambda: job.record("all_reduce", wf.ones(3), "and"), lambda: job.record("all_reduce", wf.tensor([1j]), "max"),
             lambda: job.record("reduce_scatter", wf.ones(size + 1) if size > 1 else wf.tensor(1.0)), lambda: job.record("broadcast", wf.ones(1), root=size),
             lambda: job.record("all_reduce", wf.arange(3), "mean"), lambda: job.record("swap", wf.ones(1))):
    try:
        call()
        errors.append("none")
    except wf.Error as error:
        errors.append(str(error))
json.dump(errors, open(os.path.join(folder, "errors.%d.json" % rank), "w"))
job.leave()
"""

FLOATS = ["f32", "f64", "f16", "bf16"]
INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
KINDS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
REDUCES = {"all_reduce", "reduce_scatter"}
COMBINE = {"sum": np.add, "mean": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}


def free_port():
    with socket.socket() as door:
        door.bind(("localhost", 0))
        return door.getsockname()[1]


def reductions_of(kind, dtype):
    if kind not in REDUCES:
        return ["sum"]
    if dtype == "c64" or dtype == "c128":
        return ["sum", "mean", "product"]
    if dtype == "bool":
        return ["sum", "product", "min", "max", "and", "or"]
    return ["sum", "product", "min", "max"] + (["mean"] if dtype in FLOATS or dtype.startswith("f8") else ["and", "or"])


def inputs_of(random, dtype, shape, size):
    """Small whole numbers, which every dtype has and whose sums and products are exact."""
    low, high = {"bool": (0, 2), "u4": (0, 2), "i4": (-1, 2)}.get(dtype, (0, 3) if dtype.startswith("u") else (-2, 3))
    values = [random.integers(low, high, shape) for _ in range(size)]
    if dtype.startswith("c"):
        return [(v + 1j * random.integers(-2, 3, shape)).astype("complex64" if dtype == "c64" else "complex128") for v in values]
    return [v.astype({"bool": "bool", "i64": "int64", "u64": "int64"}.get(dtype, "int32" if dtype[0] in "iu" else "float64")) for v in values]


def combined(values, reduction):
    total = values[0]
    for value in values[1:]:
        total = COMBINE[reduction](total, value) if total.dtype != bool or reduction not in ("sum", "product") else (total | value if reduction == "sum" else total & value)
    return total / len(values) if reduction == "mean" else total


def expected(kind, reduction, root, values, rank):
    size = len(values)
    parts = lambda v: v.reshape((size, -1) + v.shape[1:])
    if kind == "all_reduce":
        return combined(values, reduction)
    if kind == "all_gather":
        return np.concatenate([v.reshape((-1,) + v.shape[1:]) for v in values])
    if kind == "reduce_scatter":
        return parts(combined(values, reduction))[rank]
    if kind == "all_to_all":
        return np.concatenate([parts(v)[rank] for v in values])
    return values[root]


def cotangent(kind, reduction, root, values, weights, rank):
    """Of the sum over processes of (weight * result), by the definition: what each element of `values[rank]` is multiplied by."""
    size = len(values)
    if kind == "all_gather":
        return combined(weights, "sum").reshape((size,) + values[0].shape)[rank]
    if kind == "all_to_all":
        return expected(kind, "sum", root, weights, rank)
    if kind == "broadcast":
        return combined(weights, "sum") if rank == root else np.zeros_like(weights[0])
    spread = combined(weights, "sum") if kind == "all_reduce" else np.concatenate(weights).reshape(values[0].shape)
    if reduction in ("sum", "mean"):
        return spread / (size if reduction == "mean" else 1)
    if reduction == "product":
        others = np.ones_like(values[0])
        for k, value in enumerate(values):
            others = others * (value if k != rank else 1)
        return spread * np.conj(others)
    hits = np.stack(values) == combined(values, reduction)
    return spread * hits[rank] / hits.sum(0)


class Recorded(unittest.TestCase):
    def cases(self, size):
        random, cases, given = np.random.default_rng(size), [], {}
        for dtype in FLOATS + INTEGERS + ["bool", "c64", "c128", "f8e4m3fn", "f8e5m2", "i4", "u4"]:
            if dtype.startswith(("f8", "i4", "u4")) and size == 3:
                continue  # 2 * 2 * 2 and others are exact, a third is not.
            for name, shape in ((dtype + ".a", (4 * size, 3)), (dtype + ".b", (size,)), (dtype + ".c", ())):
                for rank, value in enumerate(inputs_of(random, dtype, shape, size)):
                    given["%s.%d" % (name, rank)] = value
                for kind in KINDS:
                    if shape == () and kind in ("reduce_scatter", "all_to_all"):
                        continue
                    for reduction in reductions_of(kind, dtype):
                        if shape == () and reduction not in ("sum", "max"):
                            continue
                        cases.append((kind, reduction, size - 1, dtype, name))
        for at, (kind, reduction, root, dtype, name) in enumerate(cases):
            if dtype not in ("f32", "f64", "bf16", "c64") or name.endswith(".b"):
                continue
            for rank in range(size):
                shape = expected(kind, reduction, root, [given["%s.%d" % (name, r)] for r in range(size)], rank).shape
                given["weight.%d.%d" % (at, rank)] = random.integers(-2, 3, shape).astype("complex64" if dtype == "c64" else "float64")
        return cases, given

    def over(self, size, tcp):
        cases, given = self.cases(size)
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        folder = pathlib.Path(work.name)
        np.savez(folder / "given.npz", **given)
        (folder / "cases.json").write_text(json.dumps(cases))
        identity, port = "record-%d-%d-%d" % (os.getpid(), size, tcp), free_port() if tcp else 0
        members = [
            subprocess.Popen([sys.executable, "-c", MEMBER, str(rank), str(size), identity, str(port), str(folder)],
                             env={**os.environ, "PYTHONPATH": support.PACKAGE}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for rank in range(size)
        ]
        told = [member.communicate(timeout=300)[0] for member in members]
        self.assertEqual([0] * size, [member.returncode for member in members], told)
        compared = 0
        for rank in range(size):
            out = np.load(folder / ("out.%d.npz" % rank))
            for at, (kind, reduction, root, dtype, name) in enumerate(cases):
                values = [given["%s.%d" % (name, r)] for r in range(size)]
                what = "%s %s of %s %s, rank %d of %d" % (kind, reduction, dtype, values[0].shape, rank, size)
                want = expected(kind, reduction, root, values, rank)
                rough = 2e-2 if reduction == "mean" and dtype in ("f16", "bf16", "f8e4m3fn", "f8e5m2") else 1e-6
                if dtype.startswith("f8") and reduction == "mean":
                    rough = 0.13
                have = out["value.%d" % at]
                self.assertEqual(want.shape, have.shape, what)
                np.testing.assert_allclose(have.astype(want.dtype), want, rtol=rough, atol=0, err_msg=what)
                compared += 1
                weights = [given["weight.%d.%d" % (at, r)] for r in range(size)] if "weight.%d.0" % at in given else None
                if weights is None:
                    continue
                if dtype.startswith("c"):  # As PyTorch has it: the conjugate.
                    weights = [np.conj(weight) for weight in weights]
                want = cotangent(kind, reduction, root, values, weights, rank)
                have = out["grad.%d" % at]
                np.testing.assert_allclose(have, want, rtol=2e-2 if dtype == "bf16" else 1e-5, atol=0, err_msg="gradient of " + what)
                compared += 1
                if "second.%d" % at in out:
                    # (2 w x) x has the gradient 4 w x, w summed over processes.
                    total = combined(weights, "sum").reshape((size,) + values[0].shape)[rank]
                    np.testing.assert_allclose(out["second.%d" % at], 4 * total * values[rank], err_msg="twice: " + what)
            errors = json.loads((folder / ("errors.%d.json" % rank)).read_text())
            for text, wanted in zip(errors, ("all_reduce: f32 has no and", "all_reduce: c64 has no max" if "c64 has" in errors[1] else "c128 has no max",
                                             "its first dimension must be a multiple of the %d processes of the job" % size,
                                             "broadcast: the root %d is no rank of a group of %d" % (size, size), "has no mean; convert it, or take the sum",
                                             "record: collective is 'swap'"), strict=True):
                self.assertIn(wanted, text)
        return compared

    def test_values_and_gradients_are_those_of_numpy(self):
        total = 0
        for tcp in (False, True):
            for size in (1, 2, 3, 4):
                if size == 1 and tcp:
                    continue  # There is nobody to send to.
                with self.subTest(size=size, tcp=tcp):
                    total += self.over(size, tcp)
        print("%d results compared" % total)


if __name__ == "__main__":
    unittest.main()
