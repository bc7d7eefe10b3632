"""CPU time of every operation that PyTorch has, too, beside PyTorch's: 1 M elements or matrices of 512, f32, one thread.

Each side calls an operation and waits for its result; Weft has compiled the program before. Slices of both take turns, and the medians of
CPU time are compared, so that a busy machine shifts both alike. Random numbers, constants and what has no counterpart are left out: --missing lists it.

usage: operations.py [--build DIR] [--only OP]... [--rounds N] [--limit RATIO] [--json] [--markdown FILE] [--missing] [--help]

Wants PyTorch and NumPy. --markdown writes the section of docs/performance.md on what takes more than the limit (3) times PyTorch's time.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECTION = "## Operations beside PyTorch"
SLICE = 0.02  # seconds of one side's slice at least
sys.path.insert(0, str(ROOT / "benchmarks"))


def measure(torch_call, weft_call, rounds):
    """Median CPU seconds of one call of each, in slices that take turns."""
    calls, times = [], ([], [])
    for call in (torch_call, weft_call):
        call()  # Weft compiles, both allocate
        call()
        began = time.process_time()
        call()
        took = max(time.process_time() - began, 1e-6)
        calls.append(max(1, min(200, int(SLICE / took))))
    for _ in range(rounds):
        for side, call in enumerate((torch_call, weft_call)):
            began = time.process_time()
            for _ in range(calls[side]):
                call()
            times[side].append((time.process_time() - began) / calls[side])
    return [statistics.median(side) for side in times]


def run(options):
    import torch
    from operation_cases import CASES, Made

    import libweft as wf

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    wf.configure(threads=1)
    made = Made()
    rows, failed = [], []
    for name, (torch_text, weft_text) in CASES.items():
        if options.only and name not in options.only:
            continue
        sides = made.torch(torch), made.weft(wf)
        calls = [eval("lambda: " + text, side) for text, side in zip((torch_text, weft_text), sides)]  # noqa: S307 - texts of this folder

        def weft_call(call=calls[1]):
            result = call()
            wf.evaluate(*(result if isinstance(result, (tuple, list)) else [result]))

        try:
            torch_time, weft_time = measure(calls[0], weft_call, options.rounds)
        except Exception as error:  # noqa: BLE001 - a case that does not run is reported, and the others go on
            failed.append(name)
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:200]}", file=sys.stderr)
            continue
        rows.append({"operation": name, "torch_ms": torch_time * 1e3, "weft_ms": weft_time * 1e3, "ratio": weft_time / torch_time})
        if not options.json:
            print(f"{name:28} {torch_time * 1e3:9.3f} ms {weft_time * 1e3:9.3f} ms {weft_time / torch_time:7.2f}", flush=True)
    return rows, failed


def section(rows, limit):
    from operation_cases import REASONS

    slow = sorted((row for row in rows if row["ratio"] > limit), key=lambda row: -row["ratio"])
    ratios = [row["ratio"] for row in rows]
    lines = [
        SECTION, "",
        f"{len(rows)} operations on 1 M elements or matrices of 512, f32, one thread: Weft's CPU time over PyTorch's, medians of slices that take turns",
        "(`python benchmarks/operations.py --markdown docs/performance.md`, with PyTorch's Python). "
        f"The median of the ratios is {statistics.median(ratios):.2f}; {sum(r <= 1 for r in ratios)} operations take less time than PyTorch's,",
        f"{sum(r <= limit for r in ratios)} at most {limit:g} times as much. The others:", "",
        "| operation | PyTorch, ms | Weft, ms | ratio | why |", "|---|---:|---:|---:|---|"]
    for row in slow:
        why = REASONS.get(row["operation"], "not looked into")
        lines.append(f"| `{row['operation']}` | {row['torch_ms']:.3f} | {row['weft_ms']:.3f} | {row['ratio']:.1f} | {why} |")
    return "\n".join(lines) + "\n\n"


def write(path, text):
    """The section in the place of the one that the page has, or before its last."""
    page = pathlib.Path(path).read_text(encoding="utf-8")
    at = page.find(SECTION + "\n")
    if at < 0:
        at = end = page.rindex("\n## ") + 1
    else:
        end = page.find("\n## ", at) + 1 or len(page)
    pathlib.Path(path).write_text(page[:at] + text + page[end:], encoding="utf-8")


def missing():
    from operation_cases import CASES, WITHOUT

    names = {op["c_name"] for op in json.loads((ROOT / "include" / "c_api" / "ops.json").read_text(encoding="utf-8"))["ops"] if op["exported"]}
    return sorted(names - set(CASES) - set(WITHOUT)), sorted((set(CASES) | set(WITHOUT)) - names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--build", default=str(ROOT / "build" / "release"))
    parser.add_argument("--only", action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=3.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown")
    parser.add_argument("--missing", action="store_true", help="operations without a case, and cases without an operation")
    options = parser.parse_args()
    if options.missing:
        lacking, unknown = missing()
        print("\n".join(lacking + unknown))
        return 1 if lacking or unknown else 0
    os.environ.setdefault("LIBWEFT_PATH", os.path.join(options.build, "lib"))
    sys.path.insert(0, os.path.join(options.build, "generated", "bindings", "python"))
    rows, failed = run(options)
    if options.json:
        print(json.dumps({"operations": rows, "failed": failed}, indent=1))
    if options.markdown:
        write(options.markdown, section(rows, options.limit))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
