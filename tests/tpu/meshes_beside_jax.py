"""What libtpu makes of training steps over four chips: Weft's, of which only arguments, targets and weft_shard say how they lie, beside
JAX's of the same models (tests/support/models.py) with the same shardings. Prints the collectives of both optimised programs, with the
bytes of their results, and how many times JAX's flops, bytes accessed and temporary memory Weft's are (JAX does not tell the bytes of code
that the log tells). Fails where one is above the limit, or Weft's program has more collectives or moves more bytes, without an entry in ABOVE, or where an entry is no longer needed.

    meshes_beside_jax.py [--json] [--topology v5e:2x2] [--precision highest] [MODEL:LAYOUT...]

On v5e:16x16 the steps are those of a pod: mlp-pod:data-pod and so on.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import compiling  # noqa: E402
import outcomes  # noqa: E402
import python_env  # noqa: E402

STEPS = ["mlp:data", "mlp:fsdp", "mlp:tensor", "mlp:both", "cnn:data", "cnn:fsdp", "block-still:data", "block-still:fsdp", "block:data", "block:fsdp"]
POD_STEPS = ["mlp-pod:data-pod", "mlp-pod:fsdp-pod", "mlp-pod:both-pod", "block-pod:data-pod", "block-pod:fsdp-pod"]
MOST = {"flops": 1.05, "bytes_accessed": 1.05, "temporary_bytes": 1.1, "collectives": 1, "collective_bytes": 1}
WORDS = 160 << 10  # temporary memory by which libtpu takes the words apart (beside_jax.py)
DRAWS = "the draws: we draw by Philox, JAX by threefry; block-still:fsdp, without them, is below JAX's"
SAME_BYTES = "18 for 17, of the same bytes: an all-gather in place of a half of an all-to-all"
# {(step, figure): (most, what is known of it)}
ABOVE = {
    ("block:fsdp", "bytes_accessed"): (1.08, DRAWS),
    ("block:fsdp", "collectives"): (1.06, SAME_BYTES),
    ("block-still:fsdp", "collectives"): (1.06, SAME_BYTES),
}
DEADLINE = 900
COLLECTIVE = re.compile(r" = (?P<type>\(.*?\)|\S+) (?P<kind>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|collective-broadcast)"
                        r"(?:-done)?\(")
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8}


def collectives(text):
    """{kind: [how many, bytes of their results on one device]} of an optimised program."""
    found = collections.defaultdict(lambda: [0, 0])
    for one in COLLECTIVE.finditer(text):
        parts = re.findall(r"\b(\w+)\[([\d,]*)\]", one["type"])
        count = found[one["kind"]]
        count[0] += 1
        count[1] += sum(BYTES[kind] * math.prod(int(d) for d in dims.split(",") if d) for kind, dims in parts if kind in BYTES)
    return dict(found)


def of_weft(model, layout, topology, precision, folder):
    dump = pathlib.Path(folder, f"{model}-{layout}")
    env = dict(os.environ, WEFT_PLATFORM="tpu", TPU_LIBRARY_PATH=compiling.libtpu(), WEFT_TOPOLOGY=topology, WEFT_MATMUL_PRECISION=precision,
               WEFT_ON_READ="zeros", WEFT_CACHE_MODE="off", WEFT_LOG="debug", XLA_FLAGS=f"--xla_dump_to={dump}")
    done = subprocess.run([sys.executable, str(compiling.SOURCE / "tests" / "support" / "models.py"), model, "--layout", layout], env=env,
                          capture_output=True, text=True, timeout=DEADLINE)
    if done.returncode:
        sys.exit(f"{model}:{layout}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    told = [{key: int(value or 0) for key, value in found.groupdict().items()} for found in compiling.SAID.finditer(done.stderr)]
    texts = [path.read_text(encoding="utf-8") for path in dump.glob("*after_optimizations.txt")]
    steps = [text for text in texts if " convolution(" in text or " dot(" in text]
    if len(steps) != 1:
        sys.exit(f"{model}:{layout}: {len(steps)} training steps among {len(texts)} programs")
    return dict(max(told, key=lambda figures: figures["flops"]), text=steps[0])


def of_jax(python, model, layout, topology, precision):
    env = dict(os.environ, TPU_LIBRARY_PATH=compiling.libtpu(), TPU_SKIP_MDS_QUERY="1")
    done = subprocess.run([python, os.path.join(os.path.dirname(os.path.abspath(__file__)), "meshes_jax.py"), topology, precision, model, layout], env=env,
                          capture_output=True, text=True, timeout=DEADLINE)
    if done.returncode:
        sys.exit(f"{model}:{layout} of JAX: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(steps, topology, precision):
    """[{"step", "weft": figures, "jax": figures}]"""
    python, reason = python_env.python_with("harness", outcomes.PACKAGES)
    if python is None:
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as folder:
        for step in steps:
            model, layout = step.split(":")
            row = {"step": step, "weft": of_weft(model, layout, topology, precision, folder), "jax": of_jax(python, model, layout, topology, precision)}
            for figures in (row["weft"], row["jax"]):
                figures["kinds"] = collectives(figures.pop("text"))
                figures["collectives"] = sum(count for count, _ in figures["kinds"].values())
                figures["collective_bytes"] = sum(size for _, size in figures["kinds"].values())
            yield row


def judge(row):
    """What is wrong with the figures."""
    wrong = []
    for figure, most in MOST.items():
        weft, jax = row["weft"][figure], row["jax"][figure]
        if figure == "temporary_bytes":
            weft -= min(weft, WORDS)
        above = ABOVE.get((row["step"], figure))
        ratio = weft / jax if jax else float(weft > 0) * math.inf or 1.0
        if above is None and ratio > most:
            wrong.append(f"{row['step']}: {figure} is {ratio:.3f} times JAX's, more than {most}")
        elif above is not None and ratio > above[0]:
            wrong.append(f"{row['step']}: {figure} is {ratio:.3f} times JAX's, more than {above[0]}")
        elif above is not None and ratio <= most:
            wrong.append(f"{row['step']}: {figure} is no longer above: take it off ABOVE")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--topology", default="v5e:2x2")
    parser.add_argument("--precision", default="highest")
    parser.add_argument("steps", nargs="*")
    args = parser.parse_args()
    args.steps = args.steps or (POD_STEPS if args.topology == "v5e:16x16" else STEPS)
    rows, wrong = [], []
    for row in compare(args.steps, args.topology, args.precision):
        rows.append(row)
        wrong += judge(row)
        if not args.json:
            ratios = ", ".join(f"{figure} {row['weft'][figure] / max(1, row['jax'][figure]):.3f}" for figure in MOST)
            print(f"{row['step']}: {ratios}\n  Weft {row['weft']['kinds']}\n  JAX  {row['jax']['kinds']}", flush=True)
    if args.json:
        print(json.dumps(rows, indent=1))
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    compiling.enter(os.path.abspath(__file__))
    main()
