#!/usr/bin/env python3
"""Writes everything that follows from api.json, ops.json and lookup.json. First the complete description, weft_api.json, and from that
text alone: headers, tables, version script, operation bodies, goldens, pages, declarations for other languages, the
ABI fuzzer's calls.

usage: python3 bindings/generate               write the committed files that differ
       python3 bindings/generate --check       write nothing, name what differs, exit 1 if anything does
       python3 bindings/generate --build DIR   write the others below DIR, those that differ; the build does it
       python3 bindings/generate --list        name all files: "committed PATH" or "built PATH"

Committed are headers and descriptions (include/) and pages (docs/): people read them in the repository and compile against them
without a build. The build makes the rest in its folder `generated`, under the same paths, from the committed descriptions.

api.json and lookup.json are written by hand. ops.json comes from the operation table: build the target `opdump` and run it
(`build/dev/bin/opdump > include/c_api/ops.json`). Needs nothing but Python's standard library.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)

from generator import outputs  # noqa: E402


def main():
    what = sys.argv[1:]
    if what == []:
        for path in outputs.write(outputs.ROOT, outputs.committed()):
            print("wrote " + path)
    elif what == ["--check"]:
        different = outputs.differing(outputs.ROOT, outputs.committed())
        for path in different:
            print("differs: " + path)
        if different:
            sys.exit("run bindings/generate and commit what it writes")
    elif len(what) == 2 and what[0] == "--build":
        outputs.write(what[1], outputs.built())
    elif what == ["--list"]:
        for kind, files in (("committed", outputs.committed()), ("built", outputs.built())):
            for path in files:
                print(kind, path)
    elif what in (["--help"], ["-h"]):
        print(__doc__)
    else:
        print(__doc__, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
