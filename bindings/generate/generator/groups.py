"""The group of an operation: the folder of src/ops that describes it, in words for readers."""
import functools
import os
import re

OPS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "src", "ops")
WORDS = {
    "collective": "collective", "control": "control flow", "conv": "convolution", "custom": "custom", "elementwise": "elementwise",
    "linalg": "linear algebra", "nn": "neural network", "random": "random", "reduce": "reduction", "shape": "shape",
    "sizes": "size from data", "sort": "sorting", "structural": "structure"}


@functools.cache
def folders():
    """{c_name: folder}."""
    out = {}
    for folder, _, names in os.walk(OPS):
        for name in names:
            if name.endswith(".cc") and folder != OPS:
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    for found in re.findall(r"\bkOp_(\w+)\s*[=({]", f.read()):
                        out.setdefault(found, os.path.basename(folder))
    return out


def of(c_name):
    return WORDS[folders()[c_name]]
