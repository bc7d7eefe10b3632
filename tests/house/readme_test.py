"""C examples in README.md, docs/abi.md, docs/functions.md, docs/transforms.md and docs/custom_operations.md compile as C99 against the built library and run, as they stand there."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
LIB = os.environ["WEFT_LIB"]


def c_blocks(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8") as handle:
        return re.findall(r"^```c\n(.*?)^```", handle.read(), re.DOTALL | re.MULTILINE)


class Readme(unittest.TestCase):
    def compile_and_run(self, text):
        """As a reader would: C99, linked with the library; returns what it prints."""
        with tempfile.TemporaryDirectory() as work:
            source, program = os.path.join(work, "example.c"), os.path.join(work, "example")
            with open(source, "w", encoding="utf-8") as out:
                out.write(text)
            built = subprocess.run(
                ["cc", "-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Werror",
                 "-I", os.path.join(SOURCE, "include", "c_api"), source, LIB,
                 f"-Wl,-rpath,{os.path.dirname(LIB)}", "-lm", "-lpthread", "-ldl", "-o", program],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(0, built.returncode, built.stdout)
            done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                                  env=dict(os.environ, XDG_CACHE_HOME=work, LD_LIBRARY_PATH=os.path.dirname(LIB)))
            self.assertEqual(0, done.returncode, done.stdout)
            return done.stdout.strip()

    def test_its_c_example_compiles_and_runs(self):
        programs = [b for b in c_blocks("README.md") if "int main(" in b]
        self.assertTrue(programs, "README.md has no C program")
        for text in programs:
            self.assertLessEqual(len(text.splitlines()), 30, "the example is longer than a reader's patience")
            self.assertEqual("w = 3.000", self.compile_and_run(text).strip())

    def test_it_claims_no_more_operations_than_there_are(self):
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as handle:
            claimed = re.search(r"\*\*Operations\*\*: more than (\d+),", handle.read())
        with open(os.path.join(SOURCE, "include", "c_api", "ops.json"), encoding="utf-8") as handle:
            there = sum(op["exported"] for op in json.load(handle)["ops"])
        self.assertGreater(there, int(claimed.group(1)))

    def test_the_blocks_of_a_page_are_one_program(self):
        for page in ("docs/abi.md", "docs/functions.md", "docs/transforms.md", "docs/custom_operations.md"):
            blocks = c_blocks(page)
            self.assertGreater(len(blocks), 3)
            self.assertEqual("all as the page says", self.compile_and_run("\n".join(blocks)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
