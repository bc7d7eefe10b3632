"""Every program of the outside oracle (each operation's samples in every type, with their gradients; tests/oracle/dump_programs.cc) compiled
by libtpu for one v5e. What libtpu refuses is a closed list with its message, at most 2 % of the programs; an entry that compiles
fails as well. Prints one row an operation that was refused, and the counts.

    operations.py [--every N]
"""
import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compiling  # noqa: E402

DEADLINE = 600  # divisions of 64-bit integers take minutes on a busy machine
MOST_REFUSED = 0.02
LEAST = 3000  # programs
# {libtpu's message, in part: names of the programs}
REFUSED = {
    "While rewriting computation to not contain X{64|128} element types": [
        *(f"{op} #{n} {dtype}" for op in ("dot_general", "matmul", "convolution", "dynamic_conv") for n in (0, 1) for dtype in ("i64", "u64")),
        *(f"select_and_scatter #{n} {dtype}" for n in (0, 1) for dtype in ("f64", "i64", "u64")),
        "max_pool #0 f64", "max_pool #1 f64", "reduce_window #0 f64",
        "reduce_precision #0 f64", "reduce_precision #1 f64", "reduce_precision edges f64"],
    "Encountered select-and-scatter with a window bound or window stride in one of the two minor-most dimensions": [
        *(f"select_and_scatter #1 {dtype}" for dtype in ("f32", "bf16", "f16", "i8", "i16", "i32", "u8", "u16", "u32")),
        "select_and_scatter_by f32", "select_and_scatter_by i32", "select_and_scatter_by u8"],
    "Padding in 1D select and scatter is currently not implemented": ["reduce_window #3 f32", "reduce_window #7 f32"],
    "unimplemented case while compiling clamp": ["clamp #0 bool", "clamp #1 bool"],
}


def listed():
    """{name: the message}"""
    return {name: message for message, names in REFUSED.items() for name in names}


def judge(found, everything=True, refused=None):
    """What is wrong. found: {name: line of weft_dump_compiled}; everything: nothing may be missing."""
    wrong, refused = [], listed() if refused is None else refused
    for name, line in found.items():
        error = line.get("error")
        if error is not None and (name not in refused or refused[name] not in error):
            wrong.append(f"{name}: {error[:600]}")
        if error is None and name in refused:
            wrong.append(f"{name} compiles: take it off REFUSED")
    if everything:
        wrong += [f"{name} of REFUSED is no program" for name in sorted(set(refused) - set(found))]
        if len(found) < LEAST:
            wrong.append(f"{len(found)} programs, fewer than {LEAST}")
        if len(refused) > MOST_REFUSED * len(found):
            wrong.append(f"{len(refused)} of {len(found)} programs may be refused, more than {MOST_REFUSED:.0%}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([str(compiling.BUILD / "bin" / "weft_dump_programs"), folder, "-", str(args.every)], check=True)
        with open(os.path.join(folder, "cases.json"), encoding="utf-8") as file:
            cases = json.load(file)
        files = {os.path.join(folder, f"{i}.mlir"): case for i, case in enumerate(cases)}
        # The training steps are judged by tpu_test.py and beside_jax.py; at the highest precision the CNN's takes many minutes.
        wanted = [file for file, case in files.items() if not case["op"].endswith("_step")]
        found, rows = {}, collections.defaultdict(lambda: [0, 0])
        for line in compiling.compile_texts(wanted, DEADLINE):
            case = files[line["file"]]
            found[case["name"]] = line
            rows[case["op"]][0] += 1
            rows[case["op"]][1] += "error" in line
            if len(found) % 200 == 0:
                print(f"{len(found)} of {len(wanted)} programs after {time.monotonic() - start:.0f} s", flush=True)
            if "error" in line:
                print(f"{case['name']}: {line['error'][:300]}", flush=True)
    wrong = judge(found, args.every == 1)
    refused = sum(row[1] for row in rows.values())
    for op, (programs, no) in sorted(rows.items()):
        if no:
            print(f"{op:32}{programs:5} programs {no:5} refused")
    slow = max(found.items(), key=lambda item: item[1].get("seconds", 0))
    print(f"longest: {slow[0]}, {slow[1].get('seconds', 0):.0f} s")
    print("\n".join(wrong[:40]))
    print(f"{len(rows)} operations, {len(found)} programs, {refused} refused, {len(wrong)} wrong, {time.monotonic() - start:.0f} s")
    sys.exit(1 if wrong or not found else 0)


if __name__ == "__main__":
    compiling.enter(os.path.abspath(__file__))
    main()
