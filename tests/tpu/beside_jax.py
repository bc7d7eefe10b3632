"""What libtpu makes of Weft's training steps and of JAX's of the same models (tests/support/models.py): both texts are compiled by the same
options, with parameters and slots taken over, for one v5e. Prints flops, bytes accessed, temporary memory and bytes of code, and fails
where Weft's are more than 1.05 times JAX's without an entry in EXPLAINED, or where such an entry is no longer needed.

    beside_jax.py [--json] [--keep FOLDER] [MODEL:PRECISION...]

--keep leaves the texts in a folder.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import compiling  # noqa: E402
import outcomes  # noqa: E402
import python_env  # noqa: E402

PAIRS = ["mlp:highest", "mlp:default", "cnn:default", "block-still:default", "block:default", "block-small:highest", "block-small-still:highest"]
MOST = 1.05
# (model, figure): (most, reason). Dropout may cost 1.3 times JAX's.
EXPLAINED = {}
DEADLINE = 900


def compare(pairs, folder):
    """[{"model", "precision", "weft": figures, "jax": figures}]"""
    python, reason = python_env.python_with("harness", outcomes.PACKAGES)
    if python is None:
        sys.exit(reason)
    for pair in pairs:
        model, precision = pair.split(":")
        where = pathlib.Path(folder, precision)
        where.mkdir(exist_ok=True)
        subprocess.run([python, os.path.join(os.path.dirname(os.path.abspath(__file__)), "models_jax.py"), where, precision, model], check=True)
        (text, weft), = compiling.step(model, folder, DEADLINE, precision=precision)[0]
        compiling.check_text(model, text, precision.upper())
        (where / f"{model}-weft.mlir").write_text(text, encoding="utf-8")
        jax, = compiling.compile_texts([where / f"{model}.mlir"], DEADLINE)
        if "error" in jax:
            sys.exit(f"{pair} of JAX: {jax['error']}")
        yield {"model": model, "precision": precision, "weft": weft, "jax": {figure: jax[figure] for figure in compiling.FIGURES}}


def judge(rows):
    """What is wrong with the figures."""
    wrong, needed = [], set()
    for row in rows:
        for figure in compiling.FIGURES:
            ratio = row["weft"][figure] / max(row["jax"][figure], 1)
            most, reason = EXPLAINED.get((f"{row['model']}:{row['precision']}", figure), (MOST, ""))
            if ratio > MOST and reason:
                needed.add((f"{row['model']}:{row['precision']}", figure))
            if ratio > most:
                wrong.append(f"{row['model']}, {row['precision']}: {figure} is {ratio:.3f} times JAX's, more than {most}")
    ran = {f"{row['model']}:{row['precision']}" for row in rows}
    wrong += [f"{pair}: {figure} is within {MOST} of JAX's: take it off EXPLAINED"
              for pair, figure in sorted(set(EXPLAINED) - needed) if pair in ran]
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep")
    parser.add_argument("pairs", nargs="*", default=PAIRS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or temporary
        os.makedirs(folder, exist_ok=True)
        compiling.listener(folder)
        rows = []
        for row in compare(args.pairs, folder):
            if not rows and not args.json:
                print("| step | precision | flops, M | of JAX's | bytes accessed, MB | of JAX's | temporary, MB | of JAX's | code, kB | of JAX's |")
                print("|---|---|" + "---:|" * 8)
            rows.append(row)
            cells = []
            for figure, unit, digits in zip(compiling.FIGURES, (1e6, 1e6, 1e6, 1e3), (1, 2, 3, 0), strict=True):
                ours, theirs = row["weft"][figure], row["jax"][figure]
                cells += [f"{ours / unit:.{digits}f}", f"{ours / theirs:.3f}"]
            if not args.json:
                print(f"| {row['model']} | {row['precision']} | {' | '.join(cells)} |", flush=True)
    if args.json:
        print(json.dumps(rows, indent=1))
    wrong = judge(rows)
    print("\n".join(wrong) if wrong else f"{len(rows)} steps within {MOST} of JAX's, {len(EXPLAINED)} figures explained", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    compiling.enter(os.path.abspath(__file__))
    main()
