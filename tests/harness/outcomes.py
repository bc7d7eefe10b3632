"""Programs of StableHLO text run by Weft, and what came out compared with what JAX gives: for jax_harness.py and its siblings, which
all run inside <build>/venv-harness. Wants WEFT_BUILD in the environment.
"""
import os
import pathlib
import re
import subprocess
import sys
import threading

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


class Runner:
    """weft_dump_outcomes, started again when it dies or takes longer than `limit` seconds for one program."""

    def __init__(self, limit=300):
        self.process = None
        self.limit = limit

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
        watch = threading.Timer(self.limit, self.process.kill)
        watch.start()
        try:
            self.process.stdin.write(b"".join(request))
            self.process.stdin.flush()
            return self.answer()
        except (BrokenPipeError, EOFError):
            late = not watch.is_alive()
            self.process.kill()
            said = self.process.communicate()[1].decode(errors="replace")
            self.process = None
            return "crash", f"no answer within {self.limit} s" if late else said[-300:]
        finally:
            watch.cancel()

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


def difference(found, expected, text, bounds=BOUNDS, share=1, rounding={}):  # noqa: B006: it is read alone
    """What is wrong with the results, or nothing. A bound is of the element and of a share of the largest one, and nothing is less than
    rounding."""
    import numpy
    if len(found) != len(expected):
        return f"{len(found)} results for {len(expected)}"
    # What goes along with equal keys of a sort that is not stable may come in any order.
    judged = 1 if "is_stable = false" in text else len(expected)
    for number, (x, y) in enumerate(zip(found[:judged], expected)):
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"result {number} is {x.dtype}{x.shape} for {y.dtype}{y.shape}"
        name = y.dtype.name
        bound = 0.0 if moves_only(text) else bounds.get(name, 0.0)
        wide = "c16" if y.dtype.kind == "c" else "f8"
        if bound:
            x, y = x.astype(wide), y.astype(wide)
        with numpy.errstate(all="ignore"):
            same = (x == y) | ((x != x) & (y != y))
            size = numpy.abs(y) if bound else 0
            finite = numpy.isfinite(size)
            largest = numpy.max(size, where=finite, initial=0) if bound else 0
            good = same | (finite & (numpy.abs(x - y) <= bound * (size + share * largest) + rounding.get(name, 0.0))) if bound else same
        if not good.all():
            at = tuple(int(i) for i in numpy.argwhere(~good)[0])
            return f"result {number} differs at {int((~good).sum())} of {good.size}, first at {at}: {x[at]!r} for {y[at]!r}"
    return ""


def missing(message):
    """What a refusal says is missing, in short."""
    listed = re.search(r"(?:operations|types): .*", message)
    if listed:
        names = re.findall(r"(?:stablehlo|chlo|sdy|mhlo)\.\w+(?: @\w+)?", listed.group(0))
        types = {re.sub(r"^(?:\d+x)*", "", t) for t in re.findall(r"tensor<((?:[^<>]|<[^<>]*>)*)>", listed.group(0))}
        return [*sorted(set(names)), *sorted(types)] or [listed.group(0)[:80]]
    return [re.sub(r"line \d+, column \d+: ", "", message.split("\n")[0])[:100]]


def enter(script):
    """Goes on inside the environment; 77 (SKIPPED) where that cannot be made."""
    python_env.enter("harness", PACKAGES, os.path.abspath(script))
