"""Functions of src and serialization that are longer than 80 lines or nest blocks seven deep are listed here with a reason each.

A function is read off the layout that scripts/format gives: a head that ends in an opening brace, and the first closing brace at
the head's own indentation. What is listed and has become short must leave the list.
"""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from sources import tree  # noqa: E402

LINES, DEPTH = 80, 7

# "path: function": reason
ALLOWED = {
    "src/backends/cpu/loop/codegen.cc: PassOfRow": "its loops over whole vectors, over the rest and over blocks share the scope, the lanes and the needed values",
    "src/backends/cpu/loop/loop.cc: SplitReduction": "makes two kernels of one, side by side; both halves read the same maps of accesses",
}

NOT_A_FUNCTION = re.compile(r"\s*(namespace|struct|class|enum|union|extern|if|else|for|while|switch|do|return|case|default|#|//|\}|=|public|private)\b")
NAME = re.compile(r"([\w:~]+|operator\S+)\s*\(")


def functions(text):
    """(name, first line, lines, depth) of every function of a file."""
    lines = text.split("\n")
    found, i = [], 0
    while i < len(lines):
        start, head = i, lines[i]
        # Up to where the head begins: through its parameters and a constructor's initialisers.
        while lines[i].endswith("{") and start > 0 and (
                head.count(")") > head.count("(") or head.lstrip().startswith(":") or lines[start - 1].rstrip().endswith(",")):
            start -= 1
            head = lines[start] + " " + head.strip()
        indent = len(head) - len(head.lstrip())
        name = NAME.search(head)
        if not lines[i].endswith("{") or name is None or NOT_A_FUNCTION.match(head) or re.search(r"=\s*[\[{]", head):
            i += 1
            continue
        end = i + 1
        while end < len(lines) and not (lines[end].startswith(" " * indent + "}") and not lines[end].startswith(" " * (indent + 1))):
            end += 1
        depth = deepest = 0
        for body in lines[i:end]:
            code = re.sub(r"//.*", "", body)
            code = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'', "", code)
            if code.lstrip().startswith("}"):
                depth -= 1
            if code.rstrip().endswith("{"):
                depth += 1
                deepest = max(deepest, depth)
        found.append((name.group(1), start + 1, end - start + 1, deepest))
        i = end + 1
    return found


class Functions(unittest.TestCase):
    def test_are_short_and_shallow_or_listed_with_a_reason(self):
        large = {}
        for path, text in tree(("src", "serialization"), (".h", ".cc")).items():
            for name, line, lines, depth in functions(text):
                if lines > LINES or depth >= DEPTH:
                    large[f"{path}: {name}"] = f"{path}:{line}: {name} has {lines} lines, {depth} levels"
        self.assertEqual([], sorted(v for k, v in large.items() if k not in ALLOWED), "split them, or give a reason in ALLOWED")
        self.assertEqual([], sorted(k for k in ALLOWED if k not in large), "short by now: take them out of ALLOWED")

    def test_the_reader_knows_a_function_when_it_sees_one(self):
        text = "int F(int a,\n      int b) {\n  if (a) {\n    for (;;) {\n    }\n  }\n  return 1;\n}\n\nstruct S {\n  void G() {\n    a();\n  }\n  int x = 0;\n};\n"
        self.assertEqual([("F", 1, 8, 3), ("G", 11, 3, 1)], functions(text))
        self.assertEqual(90, functions("void F() {\n" + "  x();\n" * 88 + "}\n")[0][2])


if __name__ == "__main__":
    unittest.main()
