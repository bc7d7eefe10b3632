"""Minutes and results of the test stages in docs/testing.md: compared with, and rewritten by scripts/test.

usage: durations.py grown FILE STAGE=MINUTES...             one line for every stage that took over a tenth longer than the file says
       durations.py record FILE STAGE=MINUTES=RESULT...     writes them into the file's table
"""
import re
import sys

ROW = re.compile(r"^\| `(\w+)` \|(.*)\| *([\d.]*) *\| *(.*?) *\|$")
NOISE = 0.2  # minutes: shorter differences are the machine's


def stored(text):
    """{stage: minutes} of the rows that have any."""
    rows = filter(None, map(ROW.match, text.splitlines()))
    return {row[1]: float(row[3]) for row in rows if row[3]}


def grown(text, now):
    """What to say of stages that took longer than a tenth more."""
    before = stored(text)
    return [f"{stage} grew from {before[stage]:.1f} to {minutes:.1f} minutes" for stage, minutes in now.items()
            if stage in before and minutes > before[stage] * 1.1 and minutes - before[stage] > NOISE]


def record(text, now):
    """`text` with {stage: (minutes, result)} in its table."""
    lines, missing = [], set(now)
    for line in text.splitlines():
        row = ROW.match(line)
        if row and row[1] in now:
            minutes, result = now[row[1]]
            line = f"| `{row[1]}` |{row[2]}| {minutes:.1f} | {result.replace('|', '/')} |"
            missing.discard(row[1])
        lines.append(line)
    if missing:
        raise SystemExit(f"durations: the table has no row for {', '.join(sorted(missing))}")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("grown", "record"):
        raise SystemExit(__doc__)
    with open(sys.argv[2], encoding="utf-8") as file:
        text = file.read()
    fields = [argument.split("=", 2) for argument in sys.argv[3:]]
    if sys.argv[1] == "grown":
        print("\n".join(grown(text, {stage: float(minutes) for stage, minutes in fields})))
        return
    changed = record(text, {stage: (float(minutes), result) for stage, minutes, result in fields})
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(changed)


if __name__ == "__main__":
    main()
