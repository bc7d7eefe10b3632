"""What the harnesses whose programs come from seeds share (jax_programs.py, jax_transforms.py): their options, their counts, and when
they are content.
"""
import argparse
import collections


def main(text, judge, source, failed, features, options=()):
    """The exit code. judge(seed): (kind of failure, what is wrong, case), ("", "", case) if nothing is, ("jax", reason, None) for what JAX
    refuses. source(seed): what --print shows. failed(seed, kind, wrong, case, args): prints it. features(case): names to count."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1:500", help="first:last")
    parser.add_argument("--print", action="store_true", dest="prints")
    for option in options:
        parser.add_argument(option, action="store_true")
    args = parser.parse_args()
    first, last = map(int, args.seeds.split(":"))
    totals, refused, seen = collections.Counter(), collections.Counter(), collections.Counter()
    for seed in range(first, last + 1):
        if args.prints:
            print(f"# seed {seed}\n{source(seed)}")
            continue
        kind, wrong, case = judge(seed)
        totals[kind or "equal"] += 1
        if kind == "jax":
            refused[wrong.split("\n")[0][:100]] += 1
        elif kind:
            failed(seed, kind, wrong, case, args)
        if case:
            seen.update(features(case))
    if args.prints:
        return 0
    for reason, count in refused.most_common(8):
        print(f"{count:5} not by JAX: {reason}")
    count = last + 1 - first
    print(", ".join(f"{n} with {name}" for name, n in sorted(seen.items())))
    print(f"{count} programs: " + ", ".join(f"{n} {name}" for name, n in sorted(totals.items())))
    # A judge that judges little is no judge.
    return 0 if totals["equal"] + totals["jax"] == count and totals["jax"] * 20 <= count + 20 else 1
