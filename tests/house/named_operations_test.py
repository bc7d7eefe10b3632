"""Passes, the cost of functions and the CPU backend's lowering name a handful of operations a file: what they ask of the others is
said by the definitions (src/ir/op_def.h), so that a new operation is no change of a pass.

Names stand as `kOp_<c_name>`; asking by text (`c_name == "add"`, `FindOp("add")`) would be a way around, and counts as well.
"""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from sources import tree  # noqa: E402

MOST = 5
ROOMS = ("src/passes", "src/compiler", "src/backends/cpu/lower")
# A file with more names, how many it may have, and why.
ALLOWED = {}
NAME = re.compile(r'\bkOp_(\w+)|name\(?\)?\s*[=!]=\s*"(?:weft\.)?(\w+)"|\bFind(?:Op|Called)\("(\w+)"')


def named(text):
    """The operations that a file names, but in comments."""
    code = re.sub(r"//.*", "", text)
    return {next(name for name in match.groups() if name) for match in NAME.finditer(code)}


class NamedOperations(unittest.TestCase):
    def test_a_file_names_a_handful_or_is_listed_with_a_reason(self):
        counts = {path: named(text) for path, text in tree(ROOMS, (".h", ".cc")).items()}
        self.assertGreater(len(counts), 40, "no sources found: is WEFT_SOURCE right?")
        many = [f"{path} names {len(names)} operations: {', '.join(sorted(names))}" for path, names in sorted(counts.items())
                if len(names) > ALLOWED.get(path, (MOST,))[0]]
        self.assertEqual([], many, "what they ask is a field of the definition (src/ir/op_def.h), or give a reason in ALLOWED")
        few = [path for path, (most, _) in ALLOWED.items() if len(counts.get(path, ())) != most]
        self.assertEqual([], few, "the numbers in ALLOWED are others by now")

    def test_the_reader_sees_names(self):
        text = 'if (&op == &ops::kOp_add) x(kOp_add);  // kOp_mul\nif (op.c_name == "pad" || op.name() != "weft.scan") return FindOp("tanh");\n'
        self.assertEqual({"add", "pad", "scan", "tanh"}, named(text))
        self.assertEqual(set(), named("op.name, region.name() == function.name()"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
