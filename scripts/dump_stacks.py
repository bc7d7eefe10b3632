#!/usr/bin/env python3
"""What each thread of a process is doing, for one that hangs: scripts/dump_stacks.py PID > stacks.log. Calls `weft dump-stacks`, of the
build beside this script, of the variable WEFT_COMMAND, or of PATH."""
import os
import shutil
import sys

USAGE = "usage: scripts/dump_stacks.py PID [--json]"


def command():
    """The program weft; None where there is none."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    built = [os.path.join(root, "build", preset, "bin", "weft") for preset in ("release", "dev")]
    for path in [os.environ.get("WEFT_COMMAND", ""), *built]:
        if path and os.access(path, os.X_OK):
            return path
    return shutil.which("weft")


def main():
    """The exit status."""
    words = [word for word in sys.argv[1:] if word != "--json"]
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if len(words) != 1 or not words[0].isdigit():
        sys.stderr.write(USAGE + "\n")
        return 2
    path = command()
    if path is None:
        sys.stderr.write("dump_stacks.py: there is no program weft: build it, or set WEFT_COMMAND\n")
        return 1
    os.execv(path, [path, "dump-stacks", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
