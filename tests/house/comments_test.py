"""A comment names its subject first: none begins with "Of", "What", "Whether" or "Who", which leave the reader to look for it in the code below.

"Whether the value is everywhere this number" becomes "Tells whether the value is this number everywhere". Texts of the public headers are
generated from descriptions and are not read here.
"""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from sources import tree  # noqa: E402

HANGING = re.compile(r"(Of|What|Whether|Who|Whoever)\b")


def comments_of(text):
    """(line, first words) of each comment: of a block of whole lines its first line; of one behind code itself."""
    found, inside = [], False
    for number, line in enumerate(text.splitlines(), 1):
        whole = line.strip().startswith("//")
        match = re.search(r"//+\s*(.*)", line) if whole else re.search(r"[;{},)]\s+//\s*(.*)", line)
        if match and not (whole and inside):
            found.append((number, match.group(1)))
        inside = whole
    return found


def hanging(path, text):
    return [f"{path}:{number}: {words[:60]}" for number, words in comments_of(text) if HANGING.match(words)]


class Comments(unittest.TestCase):
    maxDiff = None
    def test_a_comment_begins_with_its_subject(self):
        files = tree(["src", "serialization"], (".h", ".cc"))
        self.assertGreater(sum(len(comments_of(text)) for text in files.values()), 5000, "no sources found: is WEFT_SOURCE right?")
        self.assertEqual([], [line for path, text in sorted(files.items()) for line in hanging(path, text)])

    def test_the_reader_sees_blocks_and_comments_behind_code(self):
        text = '// Of a node.\n// What it is.\nint a;  // whether\nint b;  // Whether b.\n  // Tells what.\ncall("x // What");\n'
        self.assertEqual(["f:1: Of a node.", "f:4: Whether b."], hanging("f", text))
        self.assertEqual([], hanging("f", "// Office hours.\n// A text.\n// What goes on within a block is read with it.\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
