"""The main example's first losses on XLA:CPU plugins, within 1e-4 of the CPU backend's: 20 on the newest; --full: 100 on each of three.

Both round differently, and training multiplies what differs by e about every eight steps (the plugins differ among themselves by 5 % at
the hundredth). So every ten steps begin on both at the checkpoint of the CPU backend's last ten.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
BUILD = pathlib.Path(os.environ["WEFT_BUILD"])
sys.path.insert(0, str(SOURCE / "tests" / "support"))
import xla_cpu  # noqa: E402

DATA = "/usr/share/datasets/fashion-mnist"
STRETCH, MOST = 10, 1e-4


def losses(folder, device, checkpoint, end):
    """Of the steps up to `end` behind the checkpoint, which moves on."""
    env = dict(os.environ, **({"WEFT_PLUGIN": xla_cpu.plugin()} if device == "pjrt" else {}))
    resume = ["--resume"] if os.path.exists(os.path.join(folder, checkpoint)) else []
    done = subprocess.run([str(BUILD / "bin" / "train_fashion_mnist"), "--device", device, "--limit", "1", "--epochs", str(end), "--checkpoint", checkpoint,
                           "--cache", "cache", "--json", *resume], cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{device}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return [json.loads(line)["loss"] for line in done.stdout.splitlines()]


def check(version, steps):
    """What is wrong; prints the largest difference of each stretch."""
    wrong, worst = [], []
    with tempfile.TemporaryDirectory() as folder:
        for end in range(STRETCH, steps + 1, STRETCH):
            if end > STRETCH:
                shutil.copy(os.path.join(folder, "here"), os.path.join(folder, "there"))
            here = losses(folder, "cpu", "here", end)
            there = losses(folder, "pjrt", "there", end)
            if not len(here) == len(there) == STRETCH:
                return [f"PJRT {version}: {len(here)} and {len(there)} losses, {STRETCH} are expected"]
            differences = [abs(a - b) / abs(a) for a, b in zip(here, there, strict=True)]
            worst.append(max(differences))
            wrong += [f"PJRT {version}: loss {end - STRETCH + i + 1} differs by {difference:.2g}" for i, difference in enumerate(differences)
                      if not difference <= MOST]
    print(f"PJRT {version}: {steps} losses; largest differences of each {STRETCH}: {' '.join(f'{d:.1g}' for d in worst)}", flush=True)
    return wrong


def main():
    if not os.path.exists(DATA):
        print("SKIPPED: dataset-fashion-mnist is not installed")
        sys.exit(77)
    if sys.argv[1:] == ["--full"]:
        codes = {subprocess.run([sys.executable, os.path.abspath(__file__), version, "100"]).returncode for version in xla_cpu.PLUGINS}
        sys.exit(max(codes))
    version, steps = sys.argv[1:] or (xla_cpu.NEWEST, "20")
    xla_cpu.enter(__file__, version)
    wrong = check(version, int(steps))
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
