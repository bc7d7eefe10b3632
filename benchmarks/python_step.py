"""What a step of the Fashion-MNIST network costs from Python, beside the C program with the same numbers.

Both programs train a short and a long epoch in turn, so that other load disturbs both alike. The difference of the two is the time of
the steps between: starting, compiling and evaluating stay out of it. Ratios are Python's time through C's."""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(command, env, folder):
    """Wall and CPU seconds of a program."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit("%s: %s" % (command[0], done.stderr))
    return {"wall": wall, "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def accelerator(folder):
    """The extension that the wheel brings, compiled from this tree."""
    path = os.path.join(folder, "_accelerator.abi3.so")
    command = [sys.executable, os.path.join(ROOT, "bindings", "python", "wheel.py"), "--accelerator", path]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return path


def programs(options, folder):
    """{name: the command}, each of which takes --limit."""
    c = [os.path.join(options.build, "bin", "train_fashion_mnist"), "--checkpoint", "none", "--quiet", "--cache", "c"]
    python = [sys.executable, os.path.join(ROOT, "examples", "python", "fashion_mnist.py")]
    env = {
        **os.environ,
        "PYTHONPATH": os.path.join(options.build, "generated", "bindings", "python"),
        "LIBWEFT_PATH": os.path.join(options.build, "lib"),
        "LIBWEFT_ACCELERATOR": "0" if options.no_accelerator else accelerator(folder),
        "WEFT_CACHE_DIR": os.path.join(folder, "cache"),
    }
    return {"c": [*c, "--epochs", "1"], "python": [*python, "--epochs", "1"]}, env


def measure(options, folder):
    """[{program: {kind: seconds a step}}], a round each."""
    commands, env = programs(options, folder)
    for command in commands.values():  # Fills the caches.
        run([*command, "--limit", str(options.short)], env, folder)
    rounds = []
    for number in range(options.rounds):
        taken = {}
        for name in sorted(commands, reverse=number % 2):
            short, long = (run([*commands[name], "--limit", str(n)], env, folder) for n in (options.short, options.long))
            taken[name] = {kind: (long[kind] - short[kind]) / (options.long - options.short) for kind in short}
        rounds.append(taken)
        if not options.json:
            said = ("%s %.3f ms" % (name, 1e3 * taken[name]["wall"]) for name in sorted(taken))
            print("round %d: %s" % (number + 1, ", ".join(said)), flush=True)
    return rounds


def summary(rounds):
    """{kind: {program: median seconds a step, the two ratios}}"""
    out = {}
    for kind in ("wall", "cpu"):
        python, c = ([taken[name][kind] for taken in rounds] for name in ("python", "c"))
        out[kind] = {
            "c": statistics.median(c),
            "python": statistics.median(python),
            "median_of_ratios": statistics.median(a / b for a, b in zip(python, c)),
            "ratio_of_medians": statistics.median(python) / statistics.median(c),
        }
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), help="the release build (build/release)")
    parser.add_argument("--rounds", type=int, default=12, help="how often both programs train (12)")
    parser.add_argument("--short", type=int, default=40, help="steps of the short epoch (40)")
    parser.add_argument("--long", type=int, default=240, help="steps of the long epoch (240)")
    parser.add_argument("--no-accelerator", action="store_true", help="operations recorded by Python alone")
    parser.add_argument("--json", action="store_true", help="one line of JSON, and nothing else")
    options = parser.parse_args()
    if options.rounds < 1 or not 0 < options.short < options.long:
        parser.error("--rounds has to be 1 or more, and --short from 1 to less than --long")
    options.build = os.path.abspath(options.build)
    if not os.path.exists(os.path.join(options.build, "bin", "train_fashion_mnist")):
        parser.error("%s has no bin/train_fashion_mnist: build the release preset" % options.build)
    with tempfile.TemporaryDirectory(prefix="weft-step.") as folder:
        found = summary(measure(options, folder))
    if options.json:
        print(json.dumps(found))
        return
    for kind, said in found.items():
        print(
            "%s: C %.3f ms, Python %.3f ms; median of ratios %.3f, ratio of medians %.3f"
            % (kind, 1e3 * said["c"], 1e3 * said["python"], said["median_of_ratios"], said["ratio_of_medians"])
        )


if __name__ == "__main__":
    main()
