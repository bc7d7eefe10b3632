"""PyTorch's operator database on the device xla: every operator with f32, two samples of each, beside torch's CPU.

usage: opinfo.py [--json FILE] [--part N/M] [--every K] [--only NAME[,NAME...]] [--samples N] [--faults]

Classes: native (right, computed by the device), host (right, and something of it was computed by torch on the host and counted as
aten::name), wrong, raises, listed (of exceptions.py, which says why), and not there (torch's own CPU refuses the sample). Each part
runs in a process of its own; one that dies is counted as a crash of the operator that it was at, and goes on with the next.
It fails where a value outside the list is wrong, where an entry of the list has no use any more, or where fewer than 90 % of
the operators are right or 65 % native.
"""

import argparse
import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "bindings" / "pytorch")]

from exceptions import EXCEPTIONS, REFUSED  # noqa: E402

SECONDS = 120  # of one operator
RIGHT, NATIVE = 0.90, 0.65


def full_name(info):
    return info.name + ("." + info.variant_test_name if info.variant_test_name else "")


class _TooLong(BaseException):
    pass


def _alarm(*_):
    raise _TooLong


def difference(expected, actual):
    """What differs between torch's results and the device's, or None."""
    import torch
    from torch.utils import _pytree as pytree

    left, right = pytree.tree_leaves(expected), pytree.tree_leaves(actual)
    if len(left) != len(right):
        return f"{len(right)} results, not {len(left)}"
    for x, y in zip(left, right):
        if not isinstance(x, torch.Tensor):
            if x != y and not (isinstance(x, float) and x != x and y != y):
                return f"{y}, not {x}"
            continue
        if x.layout != torch.strided:
            return f"a result of layout {x.layout} is not compared"
        if not isinstance(y, torch.Tensor):
            return f"{type(y).__name__}, not a tensor"
        if (x.dtype, x.shape) != (y.dtype, y.shape):
            return f"{y.dtype} {list(y.shape)}, not {x.dtype} {list(x.shape)}"
        try:
            torch.testing.assert_close(y.cpu(), x, rtol=1e-4, atol=1e-5, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split())
    return None


def judge(info, count):
    """(class, what is to be said) of one operator."""
    import torch
    from torch.utils import _pytree as pytree

    import torch_xla._weft as core

    device = torch.device("xla")

    def move(value):
        if isinstance(value, torch.device):
            return device
        return value.detach().to(device) if isinstance(value, torch.Tensor) else value

    core.clear_counters()
    samples = info.sample_inputs(torch.device("cpu"), torch.float32, requires_grad=False)
    for _, sample in zip(range(count), samples):
        arguments = pytree.tree_map(move, (sample.input, sample.args, sample.kwargs))
        torch.manual_seed(0)
        try:
            expected = info(sample.input, *sample.args, **sample.kwargs)
        except Exception as error:  # noqa: BLE001
            return "not there", str(error)
        torch.manual_seed(0)
        try:
            actual = info(arguments[0], *arguments[1], **arguments[2])
            found = difference(expected, actual)
        except Exception as error:  # noqa: BLE001
            return "raises", f"{type(error).__name__}: {error}"
        if found is not None:
            return "wrong", found
    hosted = sorted(name for name in core.counters() if name.startswith("aten::"))
    return ("host", " ".join(hosted)) if hosted else ("native", "")


def operators():
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    return [info for info in op_db if torch.float32 in info.dtypes]


def work(options):
    """A part in this process: one JSON line an operator, the name first, so that a crash is known by its operator."""
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _alarm)
    part, parts = (int(n) for n in options.part.split("/"))
    only = set(options.only.split(",")) if options.only else None
    for index, info in enumerate(operators()):
        name = full_name(info)
        if index < options.start or index % parts != part or index % options.every or (only and not {name, info.name} & only):
            continue
        print(json.dumps({"index": index, "name": name}), flush=True)
        signal.alarm(SECONDS)
        try:
            kind, text = judge(info, options.samples)
        except _TooLong:
            kind, text = "raises", f"took more than {SECONDS} s"
        finally:
            signal.alarm(0)
        print(json.dumps({"name": name, "class": kind, "text": text[:400]}), flush=True)


def _follow(process, found):
    """Reads what a working process says; returns the operator that it was at when it ended, if any."""
    current = None
    for line in process.stdout:
        if not line.startswith("{"):
            continue
        entry = json.loads(line)
        if "class" in entry:
            found[entry["name"]] = entry
            current = None
        else:
            current = entry
    return current


def run(options):
    """All operators, in processes that may die."""
    found, start = {}, 0
    while True:
        command = [sys.executable, str(HERE / "opinfo.py"), "--work", "--start", str(start), "--part", options.part, "--every",
                   str(options.every), "--samples", str(options.samples), "--only", options.only]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE if options.quiet else None, text=True,
                                   env={**os.environ, "PYTHONWARNINGS": "ignore"})
        current = _follow(process, found)
        code = process.wait()
        if current is None:
            if code != 0 and not found:
                raise SystemExit(f"the working process ended with {code} before its first operator")
            return found
        found[current["name"]] = {"name": current["name"], "class": "raises", "text": f"the process ended with {code}"}
        start = current["index"] + 1


def report(found, options):
    """Prints the table; returns whether all of it holds."""
    for entry in found.values():
        if entry["class"] in ("wrong", "raises") and entry["name"] in EXCEPTIONS:
            entry.update({"class": "listed", "reason": EXCEPTIONS[entry["name"]]})
    counts = collections.Counter(entry["class"] for entry in found.values())
    asked = len(found) - counts["not there"]
    right = counts["native"] + counts["host"]
    print(f"| operators | {len(found)} |\n|---|---|")
    for kind in ("native", "host", "wrong", "raises", "listed", "not there"):
        print(f"| {kind} | {counts[kind]} |")
    for kind in ("wrong", "raises", "listed") if options.faults else ("wrong", "raises"):
        for entry in found.values():
            if entry["class"] == kind:
                print(f"{kind}: {entry['name']}: {entry['text'][:160]}")
    hosts = collections.Counter(name for entry in found.values() if entry["class"] == "host" for name in entry["text"].split())
    print("by the host:", ", ".join(f"{name} {n}" for name, n in hosts.most_common()) or "nothing")
    unused = sorted(name for name in REFUSED if name in found and found[name]["class"] in ("native", "host"))
    if unused:
        print("listed without need:", ", ".join(unused))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"counts": counts, "operators": list(found.values())}, indent=1))
    whole = not options.only
    good = asked > 0 and counts["wrong"] == 0 and not unused
    good = good and (not whole or (right >= RIGHT * asked and counts["native"] >= NATIVE * asked))
    print(f"{asked} operators: {right} right ({right / max(asked, 1):.1%}), {counts['native']} native "
          f"({counts['native'] / max(asked, 1):.1%}), {counts['wrong']} wrong, {counts['raises']} raise, {counts['listed']} listed: "
          f"{'as it must be' if good else 'FAILED'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="every operator with its class")
    parser.add_argument("--part", default="0/1", metavar="N/M", help="every M-th operator, from the N-th")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="a sample: every K-th operator")
    parser.add_argument("--only", default="", metavar="NAME[,NAME...]")
    parser.add_argument("--samples", type=int, default=2, help="of each operator (2)")
    parser.add_argument("--faults", action="store_true", help="also say what differs where the list knows it")
    parser.add_argument("--quiet", action="store_true", help="without what the processes write to stderr")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options)
        return 0
    return 0 if report(run(options), options) else 1


if __name__ == "__main__":
    sys.exit(main())
