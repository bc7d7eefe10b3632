"""Details are added to errors in one place, which does it without losing a shared error when memory runs out."""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from sources import tree  # noqa: E402

DIRECT = re.compile(r"\b(?:Set|Erase)Payload\(")
MAY = ("src/runtime/status.cc",)


class Errors(unittest.TestCase):
    def test_details_are_added_by_with_detail(self):
        files = tree(["src", "serialization"], (".h", ".cc"))
        self.assertTrue(any(DIRECT.search(files[path]) for path in MAY))
        found = [f"{path}:{number}: {line.strip()}" for path, text in sorted(files.items()) if path not in MAY
                 for number, line in enumerate(text.splitlines(), 1) if DIRECT.search(line.split("//")[0])]
        self.assertEqual([], found, "weft::WithDetail and WithText (src/runtime/status.h) do this")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
