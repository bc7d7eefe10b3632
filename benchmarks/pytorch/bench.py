"""What a PyTorch program costs on the device xla: single operations, and training steps beside torch's eager CPU.

usage: bench.py [--only operations,MODEL,...] [--rounds N] [--steps N] [--json FILE] [--check]

Times are CPU time of whole processes with one thread, so that a busy machine does not lie; ratios are of figures that were taken in
turn. Each model runs in two processes that share a compile cache: the first says what is compiled and whether losses are torch's,
the second must compile nothing and is measured. Prints a table in Markdown: the fastest steps and their ratio, which limits are for, and
the median of the ratios of steps in turn. --check fails where a ratio is above its limit; losses
that differ, steps that are not replayed, and programs compiled too late fail always.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import models

HERE = pathlib.Path(__file__).resolve().parent
LOSS = 1e-5  # how far a loss of the first three steps may be from torch's


def child(script, *arguments, cache):
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    environment = {**os.environ, "WEFT_THREADS": "1", "OMP_NUM_THREADS": "1", "WEFT_CACHE_DIR": cache}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def operations(cache, rounds):
    found = child("operations.py", "--rounds", max(rounds * 3, 10), cache=cache)
    print(f"\ntorch's own mul of 2 x 2 numbers: {found['torch_mul_us']:.2f} µs\n")
    print("| operation | gradients | torch, µs | xla, µs | of torch's mul | limit |\n|---|---|---|---|---|---|")
    for row in found["operations"]:
        limit = "" if row["limit"] is None else row["limit"]
        print(f"| {row['operation']} | {'yes' if row['gradients'] else 'no'} | {row['torch_us']:.2f} | {row['weft_us']:.2f} | "
              f"{row['ratio_to_mul']:.2f} | {limit} |")
    slow = [f"{row['operation']}: {row['ratio_to_mul']:.2f} of torch's mul" for row in found["operations"]
            if row["limit"] is not None and row["ratio_to_mul"] > row["limit"]]
    return found, [], slow


def wrong_of(name, first, second):
    """What must hold whatever the machine does."""
    checks = [
        (first["loss_difference"] <= LOSS, f"a loss is {first['loss_difference']:.1e} off torch's"),
        (first["compiled_after_2"] == 0, f"{first['compiled_after_2']} programs are compiled after step 2"),
        (first["compiled"] > 0, "the first process compiles nothing: the cache was not empty"),
        (second["compiled"] == 0, f"the second process compiles {second['compiled']} programs"),
        (second["replayed"] == second["steps"], f"{second['replayed']} of {second['steps']} steps are replayed"),
        (second["donated"] >= second["states"], f"{second['donated']:.0f} buffers a step are donated, of {second['states']}"),
        (not second["on_the_host"], f"the host computes {', '.join(second['on_the_host'])}")]
    return [f"{name}: {text}" for good, text in checks if not good]


def steps(names, cache, rounds, count):
    found, wrong, slow = [], [], []
    print("\n| model | torch, ms | xla, ms | ratio of these | median of ratios | limit | recording, ms | of torch's step | compiled, then | replayed | loss off by |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in names:
        first = child("steps.py", name, "--rounds", 1, "--steps", 1, cache=cache)
        second = child("steps.py", name, "--rounds", rounds, "--steps", count, cache=cache)
        found.append({**second, "first": first})
        wrong += wrong_of(name, first, second)
        limit = second["limit"]
        if limit is not None and second["ratio"] > limit:
            slow.append(f"{name}: {second['ratio']:.2f} of torch's step")
        print(f"| {name} | {second['torch_ms']:.2f} | {second['weft_ms']:.2f} | {second['ratio']:.2f} | {second['median_ratio']:.2f} | {limit or ''} | "
              f"{second['host_ms']:.2f} | {second['host_ms'] / second['torch_ms']:.2f} | {first['compiled']}, {second['compiled']} | "
              f"{second['replayed']} of {second['steps']} | {first['loss_difference']:.0e} |", flush=True)
    return found, wrong, slow


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="operations," + ",".join(models.MODELS), help="operations and models: " + ", ".join(models.MODELS))
    parser.add_argument("--rounds", type=int, default=10, help="times that each side is measured, in turn (10)")
    parser.add_argument("--steps", type=int, default=5, help="steps of each time (5)")
    parser.add_argument("--json", metavar="FILE", help="every figure")
    parser.add_argument("--check", action="store_true", help="fail where a ratio is above its limit")
    options = parser.parse_args()
    names = options.only.split(",")
    unknown = [name for name in names if name != "operations" and name not in models.MODELS]
    if unknown:
        parser.error(f"no such model: {', '.join(unknown)}")
    result, wrong, slow = {}, [], []
    with tempfile.TemporaryDirectory() as cache:
        if "operations" in names:
            result, more_wrong, more_slow = operations(cache, options.rounds)
            wrong, slow = wrong + more_wrong, slow + more_slow
        chosen = [name for name in names if name != "operations"]
        if chosen:
            result["steps"], more_wrong, more_slow = steps(chosen, cache, options.rounds, options.steps)
            wrong, slow = wrong + more_wrong, slow + more_slow
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1))
    for text in slow:
        print(f"slow: {text}")
    for text in wrong:
        print(f"WRONG: {text}")
    return 1 if wrong or (options.check and slow) else 0


if __name__ == "__main__":
    sys.exit(main())
