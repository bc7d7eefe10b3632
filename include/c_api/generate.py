#!/usr/bin/env python3
"""Writes everything that follows from api.json and ops.json: headers, tables, version script, operation bodies, attribute
readers, goldens, pages, the ABI fuzzer's calls.

usage: generate.py           write the files that differ
       generate.py --check   write nothing, name what differs, exit 1 if anything does

api.json is written by hand. ops.json comes from the operation table: build the target `opdump` and run it
(`build/dev/bin/opdump > include/c_api/ops.json`). Needs nothing but Python's standard library.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)

from generator import attributes, bodies, fluent, fuzz, goldens, headers, model, ops, options, reference  # noqa: E402


def outputs(api):
    files = {}
    for module in (headers, ops, options, fluent, bodies, attributes, goldens, reference, fuzz):
        for path, text in module.files(api).items():
            assert path not in files, path
            files[path] = text
    return files


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(__doc__)
        return
    if sys.argv[1:] and not check:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    api = model.load(os.path.join(HERE, "api.json"), os.path.join(HERE, "ops.json"))
    different = []
    for path, text in outputs(api).items():
        full = os.path.join(ROOT, path)
        old = None
        if os.path.exists(full):
            with open(full, encoding="utf-8") as f:
                old = f.read()
        if old == text:
            continue
        different.append(path)
        if not check:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)
    for path in different:
        print(("differs: " if check else "wrote ") + path)
    if check and different:
        sys.exit("run include/c_api/generate.py and commit what it writes")


if __name__ == "__main__":
    main()
