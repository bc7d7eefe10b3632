"""The C example of README.md compiles as C99 against the built library and runs, as it stands there."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
LIB = os.environ["WEFT_LIB"]


class Readme(unittest.TestCase):
    def test_its_c_example_compiles_and_runs(self):
        path = os.path.join(SOURCE, "README.md")
        if not os.path.exists(path):
            self.skipTest("no README.md yet")
        with open(path, encoding="utf-8") as handle:
            blocks = re.findall(r"^```c\n(.*?)^```", handle.read(), re.DOTALL | re.MULTILINE)
        programs = [b for b in blocks if "int main(" in b]
        self.assertTrue(programs, "README.md has no C program")
        for text in programs:
            self.assertLessEqual(len(text.splitlines()), 40, "the example is longer than a reader's patience")
            with tempfile.TemporaryDirectory() as work:
                source, program = os.path.join(work, "example.c"), os.path.join(work, "example")
                with open(source, "w", encoding="utf-8") as out:
                    out.write(text)
                built = subprocess.run(
                    ["cc", "-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Werror",
                     "-I", os.path.join(SOURCE, "include", "c_api"), source, LIB,
                     f"-Wl,-rpath,{os.path.dirname(LIB)}", "-lm", "-o", program],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                self.assertEqual(0, built.returncode, built.stdout)
                done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                                      env=dict(os.environ, XDG_CACHE_HOME=work))
                self.assertEqual(0, done.returncode, done.stdout)
                self.assertTrue(done.stdout.strip(), "it prints nothing")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
