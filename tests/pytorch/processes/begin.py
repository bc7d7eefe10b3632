"""What the tests of several processes share: programs that `spawn` runs, and what is left of one when it has ended."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "facade"))
import support  # noqa: E402, F401

# The function `say` prints whole lines: processes write to one file.
HEAD = """
import os, signal, sys, time
import torch, torch_xla, torch_xla.core.xla_model as xm, torch_xla.runtime as xr
import torch_xla.distributed.xla_multiprocessing as xmp
def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()
def on(*values):
    return torch.tensor(values, device=xm.xla_device())
"""


def program(body, call, main=True):
    """A program with the function `f` of this body, and what its main part calls."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    guard = "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in call.strip().splitlines()) if main else call
    return f"{HEAD}\ndef f(index, *args):\n{lines}\n{guard}\n"


def ranks(text):
    """Lines by the rank that each begins with."""
    found = {}
    for line in text.splitlines():
        rank, words = re.fullmatch(r"(\d+) (.*)", line).groups()
        found.setdefault(int(rank), []).append(words)
    return found


def left_of(mark):
    """Command lines and numbers of processes that have `mark` in their environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark.encode() in file.read():
                        with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                            if file.read().rpartition(")")[2].split()[0] != "Z":
                                found.append(name)
            except OSError:
                pass
    return found
