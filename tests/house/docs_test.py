"""What the documents say exists: links lead somewhere; every script, program and option that a command names is there."""
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from documents import dead_links, text_of, without_code  # noqa: E402

SOURCE, BUILD = os.environ["WEFT_SOURCE"], os.environ["WEFT_BUILD"]
DOCUMENTS = [os.path.join(folder, name) for top in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "bindings", "examples", "serialization", "src")
             for folder, _, names in ([(SOURCE, (), [top])] if top.endswith(".md") else os.walk(os.path.join(SOURCE, top)))
             for name in names if name.endswith(".md")]


def commands_of(text):
    """Inline code and lines of sh blocks, without the first cells of tables of other projects' commands."""
    before, head, table = text.partition("| command | what it did | now |")
    text = before + head + re.sub(r"^\| `.*?` \| ", "| ", table, flags=re.MULTILINE)
    blocks = re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.split("  #")[0] for block in blocks for line in block.splitlines()]
    return lines + re.findall(r"`([^`\n]+)`", without_code(text))


class Docs(unittest.TestCase):
    def test_there_are_documents(self):
        self.assertGreater(len(DOCUMENTS), 5)

    def test_links_lead_to_files_and_to_places_in_them(self):
        dead, places = dead_links(DOCUMENTS)
        self.assertEqual([], dead)
        self.assertGreater(places, 20)

    def test_the_index_knows_every_page(self):
        index = text_of(os.path.join(SOURCE, "docs", "README.md"))
        linked = {os.path.normpath(os.path.join("docs", link)) for link in re.findall(r"\]\(([^)#\s]+)", index)}
        pages = {os.path.relpath(path, SOURCE) for path in DOCUMENTS if os.path.relpath(path, SOURCE).startswith("docs")}
        self.assertEqual([], sorted(pages - linked - {"docs/README.md"}))

    def test_commands_name_scripts_programs_and_options_that_exist(self):
        helps, seen = {}, 0
        for path in DOCUMENTS:
            for command in commands_of(text_of(path)):
                # A command behind " -- " is one of its own.
                for program, rest in re.findall(r"((?:scripts|build/release/bin)/[\w-]+)((?: +[^|&;`]*)?)", command.replace(" -- ", " ; ")):
                    if program.startswith("build/"):
                        if "release" not in os.path.basename(BUILD):
                            continue  # programs and benchmarks are what the release preset builds
                        file = os.path.join(BUILD, os.path.relpath(program, "build/release"))
                    else:
                        file = os.path.join(SOURCE, program)
                    with self.subTest(document=os.path.relpath(path, SOURCE), command=command):
                        self.assertTrue(os.access(file, os.X_OK), f"{program} is not there")
                        seen += 1
                        for option in re.findall(r"(?<![\w-])(--[a-z][\w-]*)", rest):
                            if option.startswith("--gtest") or "weft_test" in program:
                                continue
                            # The program weft says of each command what it takes.
                            words = (file, *re.findall(r"^ +([a-z][a-z-]*)", rest)) if program.endswith("/weft") else (file,)
                            if words not in helps:
                                helps[words] = subprocess.run([*words, "--help"], capture_output=True, text=True, timeout=60, cwd=SOURCE).stdout
                            self.assertIn(option, helps[words], f"{program} --help does not know {option}")
        self.assertGreater(seen, 5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
