"""Classes have at most 300 lines and at most 25 public methods, and functions at most 7 parameters. What is above stands here with its
size and a reason, and must not grow; what has become small must leave the list.

Both are read off the layout that scripts/format gives: a class from its head to the brace at the head's own indentation, a method by a
name before a parenthesis at the indentation of members. Constructors, destructors, operators and what is deleted are not counted.
"""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from functions_test import functions  # noqa: E402
from sources import tree  # noqa: E402

LINES, METHODS, PARAMETERS = 300, 25, 7

# "path: class": (lines, reason)
LONG = {}
# "path: class": (public methods, reason)
WIDE = {
    "src/runtime/io.cc: Posix": (28, "the system's calls, a method each"),
}
# path: (functions with more, reason). Exported functions have the parameters that the ABI says.
MANY = {
    "src/lazy/engine_record.cc": (2, "a call, its operands, attributes, functions and results"),
    "src/lazy/engine_record.h": (1, "a call, its operands, attributes, functions and results"),
}

HEAD = re.compile(r"^( *)(?:class|struct) (?:\[\[\w+\]\] )?(?:\w+::)*(\w+)(?: final)?(?: :[^:].*)? \{$")
METHOD = re.compile(r"(~?\w+|operator\S+) ?\(")
NO_METHOD = re.compile(r"\s*(?:using|friend|typedef|static_assert|enum|class|struct|union|//|#|\}|return|if|for|while|switch|case|public|private|protected)\b|\s*(?://|#|\})")


def classes(text):
    """(name, first line, lines, public methods) of every class of a file."""
    lines, found = text.split("\n"), []
    for i, line in enumerate(lines):
        head = HEAD.match(line)
        if head is None:
            continue
        indent, name = head.group(1), head.group(2)
        end = i + 1
        while end < len(lines) and not re.match(indent + r"\}[^)]*;", lines[end]):
            end += 1
        public, methods, member = "struct " in line, 0, indent + "  "
        statement = True  # the last member's declaration is over
        for body in lines[i + 1:end]:
            access = re.match(indent + r" (public|private|protected):", body)
            if access:
                public, statement = access.group(1) == "public", True
                continue
            inside = body.startswith(member) and not body.startswith(member + " ")
            if inside and statement and public and not NO_METHOD.match(body):
                called = METHOD.search(body.split("//")[0])
                before = body.split("(")[0]
                if called and "=" not in before and called.group(1) not in (name, "~" + name) and not called.group(1).startswith("operator") \
                        and "operator" not in before and not body.rstrip().endswith("= delete;"):
                    methods += 1
            if inside or body.startswith(member):
                code = body.split("//")[0].rstrip()
                statement = not inside and statement if not inside else code.endswith((";", "{", "}", ">"))
                if not inside and code.endswith((";", "}")):
                    statement = True
        found.append((name, i + 1, end - i + 1, methods))
    return found


def parameters(head):
    """How many a function's head has, of the first parenthesis behind its name."""
    begin = head.index("(") + 1
    depth, count, text = 1, 0, ""
    for c in head[begin:]:
        if c in "([{<":
            depth += 1
        elif c in ")]}>":
            depth -= 1
            if depth == 0:
                break
        elif c == "," and depth == 1:
            count += 1
        text += c
    return count + 1 if text.strip() else 0


class Classes(unittest.TestCase):
    maxDiff = None

    def files(self):
        return tree(("src", "serialization"), (".h", ".cc"))

    def judge(self, measured, most, allowed, what):
        """Names above a bound that are not listed, have grown, or are small by now."""
        above = {name: size for name, size in measured.items() if size > most}
        wrong = [f"{name} has {size} {what}" for name, size in sorted(above.items()) if size > allowed.get(name, (0, ""))[0]]
        small = [name for name, (size, _) in sorted(allowed.items()) if above.get(name, 0) < size]
        self.assertEqual([], wrong, "split them, or give a reason")
        self.assertEqual([], small, "smaller by now: say the new size, or take them out")

    def test_lines_and_methods(self):
        lines, methods = {}, {}
        for path, text in self.files().items():
            for name, _, length, public in classes(text):
                lines[f"{path}: {name}"], methods[f"{path}: {name}"] = length, public
        self.judge(lines, LINES, LONG, "lines")
        self.judge(methods, METHODS, WIDE, "public methods")

    def test_parameters(self):
        counts = {}
        for path, text in self.files().items():
            rows = text.split("\n")
            for name, line, length, _ in functions(text):
                head = " ".join(rows[line - 1:line - 1 + min(length, 12)])
                if name.startswith("weft_") or name + "(" not in head or "=" in head[:head.index(name + "(")]:
                    continue  # of the ABI; a definition of data, whose maker is called there
                if parameters(head[head.index(name + "(") + len(name):]) > PARAMETERS:
                    counts[path] = counts.get(path, 0) + 1
        self.judge(counts, 0, MANY, f"functions of more than {PARAMETERS} parameters")

    def test_the_reader_knows_a_class_when_it_sees_one(self):
        text = ("class A final : public B {\n public:\n  A();\n  ~A() override;\n  A(const A&) = delete;\n  int F(int a,\n        int b) const;\n"
                "  void G() {\n    a();\n  }\n  bool operator==(const A&) const = default;\n  // H()\n  using T = int (*)();\n\n private:\n  void P();\n"
                "  int x_ = f();\n};\n")
        self.assertEqual([("A", 1, 18, 2)], classes(text))
        self.assertEqual([("Inner", 1, 4, 1)], classes("class Outer::Inner : public B {\n public:\n  void F();\n};\n"))
        self.assertEqual([("S", 1, 4, 1)], classes("struct S {\n  int F();\n  int x = 0;\n};\n"))
        self.assertEqual(3, parameters("(int a, std::pair<int, int> b, F (*c)(int, int)) {"))
        self.assertEqual(0, parameters("() {"))


if __name__ == "__main__":
    unittest.main()
