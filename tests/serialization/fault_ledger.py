#!/usr/bin/env python3
"""Runs the walks through failing storage with every error, and says what was injected: the ledger of docs/reliability.md.

usage: fault_ledger.py weft_test_serialization [--few] [--write docs/reliability.md]

  --few    the errors of an ordinary run, instead of all
  --write  puts the table between the marks of that page
"""
import argparse
import collections
import os
import subprocess
import sys
import tempfile

BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
WALKS = "CheckpointFaults.Every*:CheckpointFaults.Short*:CheckpointFaults.Interrupted*:InterchangeFaults.*:*CompileCache*Failing*"


def run(binary, few):
    """(whether all passed, the lines of the ledger)."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = os.path.join(folder, "ledger")
        env = dict(os.environ, WEFT_FAULT_LEDGER=ledger)
        if not few:
            env["WEFT_FULL_FAULTS"] = "1"
        done = subprocess.run([binary, "--gtest_filter=" + WALKS, "--gtest_brief=1"], env=env, capture_output=True, text=True)
        if done.returncode != 0:
            sys.stdout.write(done.stdout[-4000:])
        with open(ledger) as f:
            return done.returncode == 0, sorted({tuple(line.rstrip("\n").split("\t")) for line in f})


def table(lines):
    rows = collections.defaultdict(lambda: (set(), set(), []))
    for test, scenario, number, call, error, kind in lines:
        calls, errors, faults = rows[test, scenario]
        calls.add((number, call))
        errors.add(error)
        faults.append((number, call, error, kind))
    text = ["| test | scenario | calls | errors | faults |", "|---|---|---:|---:|---:|"]
    for (test, scenario), (calls, errors, faults) in sorted(rows.items()):
        text.append(f"| `{test}` | {scenario} | {len(calls)} | {len(errors)} | {len(faults):,} |")
    points = {(test, scenario, number, call, error) for test, scenario, number, call, error, _ in lines}
    text.append(f"| all | | | | {len(lines):,} ({len(points):,} that differ in scenario, call or error) |")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--write")
    options = parser.parse_args()
    passed, lines = run(options.binary, options.few)
    text = table(lines)
    print(text)
    if passed and options.write:
        with open(options.write) as f:
            page = f.read()
        before, rest = page.split(BEGIN)
        after = rest.split(END)[1]
        with open(options.write, "w") as f:
            f.write(f"{before}{BEGIN}\n{text}\n{END}{after}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
