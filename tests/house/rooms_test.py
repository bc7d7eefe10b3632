"""Every folder of the library's sources ("room") has a README.md of a screen: what comes in, its types, its rules, where to add.

docs/architecture.md is the map: short, and every room is named there or by the README of the room around it. Files that a README names
exist, so that a moved or deleted file takes the sentence about it along.
"""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from sources import SOURCE, tree  # noqa: E402

sys.path.insert(0, os.path.join(SOURCE, "bindings", "generate"))
from generator import outputs  # noqa: E402

MAP, MOST_OF_MAP, MOST_OF_README = "docs/architecture.md", 150, 60
PAGES = ("docs/adding_an_operation.md", "docs/adding_a_backend.md", "docs/adding_a_kernel.md", "docs/adding_a_pass.md", "docs/glossary.md")
LABELS = ("**In", "**Types**", "**Rules**", "**Where to add**")
FILE = re.compile(r"`([\w./-]+\.(?:h|cc|py|list|capnp|json))`")


def rooms_of(files):
    """The folders that hold sources."""
    return sorted({os.path.dirname(path) for path in files})


def check_readme(room, text):
    if text is None:
        return [f"{room} has no README.md: what comes in, what goes out, its types, its rules, where to add"]
    bad, lines = [], len(text.splitlines())
    if lines > MOST_OF_README:
        bad.append(f"{room}/README.md has {lines} lines, {MOST_OF_README} may be")
    if not text.startswith(f"# {room}"):
        bad.append(f"{room}/README.md does not begin with '# {room}'")
    bad += [f"{room}/README.md does not say {label}" for label in LABELS if label not in text]
    return bad


def missing_files(page, text, paths):
    """Files that a page names: from the root of the tree, or the end of a path of it."""
    return [f"{page} names {name}, which is not there" for name in FILE.findall(text)
            if not any(path == name or path.endswith("/" + name) for path in paths)]


class Rooms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sources = tree(["src", "serialization"], (".h", ".cc"))
        cls.pages = tree(["src", "serialization", "docs"], (".md",))
        cls.rooms = rooms_of(cls.sources)
        cls.paths = list(tree(["src", "serialization", "docs", "tests", "include", "bindings", "scripts", "benchmarks"],
                              (".h", ".cc", ".c", ".py", ".list", ".capnp", ".json"))) + list(outputs.built())

    def test_every_room_has_a_readme_of_a_screen(self):
        self.assertGreater(len(self.rooms), 30, "no sources found: is WEFT_SOURCE right?")
        self.assertEqual([], [line for room in self.rooms for line in check_readme(room, self.pages.get(f"{room}/README.md"))])

    def test_the_map_is_short_and_knows_every_room(self):
        text = self.pages[MAP]
        self.assertLessEqual(len(text.splitlines()), MOST_OF_MAP)
        unknown = [room for room in self.rooms
                   if f"{room}/README.md" not in text
                   and f"]({os.path.basename(room)}/README.md)" not in self.pages.get(os.path.dirname(room) + "/README.md", "")]
        self.assertEqual([], unknown, "neither the map nor the README of the room around it has these")

    def test_files_that_the_pages_name_exist(self):
        pages = [f"{room}/README.md" for room in self.rooms] + [MAP, *PAGES]
        named = sum(len(FILE.findall(self.pages.get(page, ""))) for page in pages)
        self.assertGreater(named, 200)
        self.assertEqual([], [line for page in pages for line in missing_files(page, self.pages.get(page, ""), [*self.paths, *self.pages])])


class TheCheckItselfCanFail(unittest.TestCase):
    GOOD = "# src/x: a room\n\n**In**: a\n**Types**: b\n**Rules**: c\n**Where to add**: d\n"

    def test_a_missing_long_or_empty_readme_is_named(self):
        self.assertEqual([], check_readme("src/x", self.GOOD))
        self.assertTrue(check_readme("src/x", None))
        self.assertTrue(check_readme("src/x", self.GOOD + "\n" * MOST_OF_README))
        self.assertTrue(check_readme("src/y", self.GOOD))
        self.assertTrue(check_readme("src/x", self.GOOD.replace("**Rules**", "rules")))

    def test_a_file_that_is_not_there_is_named(self):
        paths = ["src/x/a.h", "tests/x/b_test.cc"]
        self.assertEqual([], missing_files("p", "`a.h`, `x/a.h`, `src/x/a.h`, `b_test.cc`, `*_lanes.h`, `c.md`", paths))
        self.assertEqual(["p names b.h, which is not there"], missing_files("p", "`b.h`", paths))
        self.assertEqual(["p names y/a.h, which is not there"], missing_files("p", "`y/a.h`", paths))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
