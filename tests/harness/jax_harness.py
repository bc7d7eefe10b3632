"""JAX's own operator harnesses (jax._src.internal_test_util.test_harnesses), each lowered for CPU, its text run by Weft, and
the results compared with JAX's: integers, bools and what only moves elements exactly, floats within a bound of their type.

    python tests/harness/jax_harness.py [--x64] [--sample] [--group NAME] [--cache FILE] [--table FILE] [--show N]

Wants WEFT_SOURCE and WEFT_BUILD in the environment; installs jax into <build>/venv-harness. Equal texts are run once. --sample
takes one text of each group and dtype. With --cache what JAX gives is kept, so that a second run needs no JAX. The table has a
row for each of the 132 groups: texts that passed, that were refused (naming what is missing) and that came out wrong.
"""
import argparse
import collections
import hashlib
import os
import pathlib
import pickle
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import python_env  # noqa: E402

BUILD = pathlib.Path(os.environ["WEFT_BUILD"])
PACKAGES = ["jax==0.10.2", "absl-py==2.3.1", "numpy"]

# As Weft spells NumPy's types, and the NumPy type of the same bytes.
NAMES = {"bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
         "uint32": "u32", "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
         "complex64": "c64", "complex128": "c128"}
# Largest error relative to the result and to its largest element.
BOUNDS = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-5, "float64": 1e-12, "complex64": 1e-5, "complex128": 1e-12}

# What only moves, chooses or repeats elements.
MOVES = {"broadcast", "broadcast_in_dim", "clamp", "concatenate", "constant", "dynamic_slice", "dynamic_update_slice", "gather",
         "iota", "maximum", "minimum", "negate", "abs", "pad", "reshape", "return", "reverse", "select", "slice", "sort", "top_k",
         "transpose", "bitcast_convert", "compare"}


def lowered(args):
    """[{group, name, dtype, text, inputs, results}] of the harnesses that lower, equal texts once."""
    import jax
    import numpy
    jax.config.update("jax_enable_x64", args.x64)
    jax.config.update("jax_platforms", "cpu")
    from jax._src.internal_test_util import test_harnesses

    seen, sampled, cases, failed = set(), set(), [], collections.Counter()
    for harness in test_harnesses.all_harnesses:
        if not harness.filter("cpu") or (args.group and harness.group_name not in args.group):
            continue
        key = (harness.group_name, str(harness.dtype))
        if args.sample and key in sampled:
            continue
        try:
            values = harness.dyn_args_maker(numpy.random.RandomState(harness.fullname.__len__()))
            values = [jax.random.key_data(v) if jax.dtypes.issubdtype(getattr(v, "dtype", None), jax.dtypes.prng_key) else v
                      for v in values]
            lower = jax.jit(harness.dyn_fun, keep_unused=True).lower(*values)
            text = lower.as_text()
            digest = hashlib.sha256(text.encode()).digest()
            if digest in seen:
                continue
            results = [numpy.asarray(r) for r in jax.tree.leaves(lower.compile()(*values))]
            inputs = [numpy.asarray(jax.numpy.asarray(v)) for v in jax.tree.leaves(values)]
        except Exception as error:  # noqa: BLE001: what JAX cannot do on the CPU is not ours to judge
            failed[harness.group_name] += 1
            if args.verbose:
                print(f"{harness.fullname}: {str(error)[:200]}", file=sys.stderr)
            continue
        seen.add(digest)
        sampled.add(key)
        cases.append({"group": harness.group_name, "name": harness.fullname, "dtype": str(numpy.dtype(harness.dtype)),
                      "text": text, "inputs": inputs, "results": results})
    return cases


class Runner:
    """weft_dump_outcomes, started again when it dies."""

    def __init__(self):
        self.process = None

    def run(self, case):
        """("ok", arrays) or (stage, message)"""
        if any(x.dtype.name not in NAMES for x in case["inputs"]):
            return "read", "types: an input of " + ", ".join(sorted({x.dtype.name for x in case["inputs"]}))
        if self.process is None:
            self.process = subprocess.Popen([str(BUILD / "bin" / "weft_dump_outcomes")], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        text = case["text"].encode()
        request = [f"{len(text)} {len(case['inputs'])}\n".encode(), text]
        for x in case["inputs"]:
            request += [" ".join([NAMES[x.dtype.name], *map(str, x.shape)]).encode() + b"\n", x.tobytes()]
        try:
            self.process.stdin.write(b"".join(request))
            self.process.stdin.flush()
            return self.answer()
        except (BrokenPipeError, EOFError):
            self.process.kill()
            said = self.process.communicate()[1].decode(errors="replace")
            self.process = None
            return "crash", said[-300:]

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            raise EOFError
        return line.decode().split()

    def answer(self):
        import numpy
        import ml_dtypes  # noqa: F401: bfloat16 by name
        stage, count = self.line()
        if stage != "ok":
            return stage, self.process.stdout.read(int(count)).decode(errors="replace")
        types = {ours: numpy.dtype(theirs) for theirs, ours in NAMES.items()}
        arrays = []
        for _ in range(int(count)):
            dtype, *dims = self.line()
            shape = [int(d) for d in dims]
            size = int(numpy.prod(shape, dtype="i8")) * types[dtype].itemsize
            arrays.append(numpy.frombuffer(self.process.stdout.read(size), types[dtype]).reshape(shape))
        return "ok", arrays


def moves_only(text):
    """Whether the program computes nothing: its results are elements of its inputs and constants."""
    if re.search(r"stablehlo\.abs .*complex<", text):  # a root of squares
        return False
    return set(re.findall(r"(?:stablehlo|chlo)\.(\w+)", text)) <= MOVES


def difference(found, expected, text):
    """What is wrong with the results, or nothing."""
    import numpy
    if len(found) != len(expected):
        return f"{len(found)} results for {len(expected)}"
    # What goes along with equal keys of a sort that is not stable may come in any order.
    judged = 1 if "is_stable = false" in text else len(expected)
    for number, (x, y) in enumerate(zip(found[:judged], expected)):
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"result {number} is {x.dtype}{x.shape} for {y.dtype}{y.shape}"
        bound = 0.0 if moves_only(text) else BOUNDS.get(y.dtype.name, 0.0)
        wide = "c16" if y.dtype.kind == "c" else "f8"
        if bound:
            x, y = x.astype(wide), y.astype(wide)
        with numpy.errstate(all="ignore"):
            same = (x == y) | ((x != x) & (y != y))
            size = numpy.abs(y) if bound else 0
            finite = numpy.isfinite(size)
            largest = numpy.max(size, where=finite, initial=0) if bound else 0
            good = same | (finite & (numpy.abs(x - y) <= bound * (size + largest))) if bound else same
        if not good.all():
            at = tuple(int(i) for i in numpy.argwhere(~good)[0])
            return f"result {number} differs at {int((~good).sum())} of {good.size}, first at {at}: {x[at]!r} for {y[at]!r}"
    return ""


def missing(message):
    """What a refusal says is missing, in short."""
    listed = re.search(r"(?:operations|types): .*", message)
    if listed:
        names = re.findall(r"(?:stablehlo|chlo|sdy|mhlo)\.\w+(?: @\w+)?", listed.group(0))
        types = {re.sub(r"^(?:[\d?]+x)*", "", t) for t in re.findall(r"tensor<((?:[^<>]|<[^<>]*>)*)>", listed.group(0))}
        return [*sorted(set(names)), *sorted(types)] or [listed.group(0)[:80]]
    return [re.sub(r"line \d+, column \d+: ", "", message.split("\n")[0])[:100]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--x64", action="store_true")
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--group", action="append")
    parser.add_argument("--cache")
    parser.add_argument("--table")
    parser.add_argument("--show", type=int, default=3, help="how many wrong results of a group to show")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    if args.cache and os.path.exists(args.cache):
        with open(args.cache, "rb") as file:
            cases = [c for c in pickle.load(file) if not args.group or c["group"] in args.group]
    else:
        cases = lowered(args)
        if args.cache:
            with open(args.cache, "wb") as file:
                pickle.dump(cases, file)
    print(f"{len(cases)} texts of {len({c['group'] for c in cases})} groups", flush=True)

    rows = collections.defaultdict(lambda: {"passed": 0, "refused": 0, "wrong": 0, "why": collections.Counter()})
    reasons, runner, bad = collections.Counter(), Runner(), []
    for case in cases:
        row = rows[case["group"]]
        stage, answer = runner.run(case)
        wrong = difference(answer, case["results"], case["text"]) if stage == "ok" else ""
        if stage == "ok" and not wrong:
            row["passed"] += 1
        elif stage in ("read", "run"):
            row["refused"] += 1
            names = missing(answer)
            row["why"].update(names)
            reasons.update(names)
            bad.append((stage, case, answer))
        else:
            row["wrong"] += 1
            row["why"].update([stage if stage != "ok" else "wrong"])
            if row["wrong"] <= args.show:
                print(f"{case['name']}: {stage} {wrong or answer}", flush=True)
            bad.append(("wrong", case, wrong or answer))
    lines = ["| group | passed | refused | wrong | why |", "|---|---:|---:|---:|---|"]
    for group, row in sorted(rows.items()):
        why = ", ".join(f"{n} {w}" for w, n in row["why"].most_common(4))
        lines.append(f"| {group} | {row['passed']} | {row['refused']} | {row['wrong']} | {why} |")
    total = [sum(row[k] for row in rows.values()) for k in ("passed", "refused", "wrong")]
    whole = sum(1 for row in rows.values() if not row["refused"] and not row["wrong"])
    print("\n".join(lines))
    print(f"{len(cases)} texts: {total[0]} passed, {total[1]} refused, {total[2]} wrong; {whole} of {len(rows)} groups whole")
    for name, count in reasons.most_common(60):
        print(f"{count:6} {name}")
    if args.table:
        pathlib.Path(args.table).write_text("\n".join(lines) + "\n", encoding="utf-8")
        with open(args.table + ".pickle", "wb") as file:
            pickle.dump([(s, c["group"], c["name"], c["text"], m) for s, c, m in bad], file)
    if total[0] < total[1]:
        print("most texts are refused: nothing of them was judged")
        return 1
    return 1 if total[2] else 0


if __name__ == "__main__":
    python_env.enter("harness", PACKAGES, os.path.abspath(__file__))
    sys.exit(main())
