"""JAX's own operator harnesses (jax._src.internal_test_util.test_harnesses), each lowered for CPU, its text run by Weft, and
the results compared with JAX's: integers, bools and what only moves elements exactly, floats within a bound of their type.

    python tests/harness/jax_harness.py [--x64] [--sample] [--group NAME] [--cache FILE] [--table FILE] [--show N]

Wants WEFT_SOURCE and WEFT_BUILD in the environment; installs jax into <build>/venv-harness. Equal texts are run once. --sample
takes one text of each group and about every second of its dtypes. With --cache what JAX gives is kept, so that a second run needs no JAX. The table has a
row for each of the 132 groups: texts that passed, that were refused (naming what is missing) and that came out wrong.
"""
import argparse
import collections
import hashlib
import os
import pathlib
import pickle
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from outcomes import Runner, difference, enter, missing  # noqa: E402


def lowered(args):
    """[{group, name, dtype, text, inputs, results}] of the harnesses that lower, equal texts once."""
    import jax
    import numpy
    jax.config.update("jax_enable_x64", args.x64)
    jax.config.update("jax_platforms", "cpu")
    from jax._src.internal_test_util import test_harnesses

    seen, sampled, cases, failed = set(), set(), [], collections.Counter()
    types = collections.defaultdict(list)  # of each group, in the order in which they come
    for harness in test_harnesses.all_harnesses:
        if not harness.filter("cpu") or (args.group and harness.group_name not in args.group):
            continue
        key = (harness.group_name, str(harness.dtype))
        if key[1] not in types[key[0]]:
            types[key[0]].append(key[1])
        # Every second type of a group, beginning with its first or its second.
        if args.sample and (key in sampled or (types[key[0]].index(key[1]) + len(key[0])) % 2 and len(types[key[0]]) > 1):
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


def named(found, case):
    """Of ApproxTopK, which may choose either of two equal elements: the elements that the indices name, in the indices' place."""
    import numpy
    expected = case["results"]
    if "@ApproxTopK" not in case["text"] or len(found) != 2 or any(len(case["inputs"]) != 1 or r[1].dtype != "int32" for r in (found, expected)):
        return found, expected
    keys = case["inputs"][0]
    return tuple([r[0], numpy.take_along_axis(keys, numpy.clip(r[1], 0, keys.shape[-1] - 1), -1)] for r in (found, expected))


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
        wrong = difference(*named(answer, case), case["text"]) if stage == "ok" else ""
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
    enter(__file__)
    sys.exit(main())
