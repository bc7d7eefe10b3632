#!/usr/bin/env python3
"""Writes everything that follows from api.json, ops.json and lookup.json. First the complete description, weft_api.json, and from that
text alone: headers, tables, version script, operation bodies, goldens, pages, declarations for other languages, the
ABI fuzzer's calls.

usage: python3 bindings/generate           write the files that differ
       python3 bindings/generate --check   write nothing, name what differs, exit 1 if anything does

api.json and lookup.json are written by hand. ops.json comes from the operation table: build the target `opdump` and run it
(`build/dev/bin/opdump > include/c_api/ops.json`). Needs nothing but Python's standard library.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)

from generator import outputs  # noqa: E402


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(__doc__)
        return
    if sys.argv[1:] and not check:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    different = []
    for path, content in outputs.outputs().items():
        full = os.path.join(ROOT, path)
        old = None
        if os.path.exists(full):
            with open(full, encoding="utf-8") as f:
                old = f.read()
        if old == content:
            continue
        different.append(path)
        if not check:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as f:
                f.write(content)
    for path in different:
        print(("differs: " if check else "wrote ") + path)
    if check and different:
        sys.exit("run bindings/generate and commit what it writes")


if __name__ == "__main__":
    main()
