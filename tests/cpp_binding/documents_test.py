"""docs/cpp.md: its C++ blocks are a program that prints what the page says. README.md shows examples/cpp/first.cpp as it is."""
import os
import re
import subprocess
import tempfile
import unittest

SOURCE, BUILD, LIB = os.environ["WEFT_SOURCE"], os.environ["WEFT_BUILD"], os.environ["WEFT_LIB"]


def text_of(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8") as handle:
        return handle.read()


def blocks(text, kind):
    return re.findall(r"^```%s\n(.*?)^```" % kind, text, re.DOTALL | re.MULTILINE)


class Documents(unittest.TestCase):
    def run_it(self, text):
        with tempfile.TemporaryDirectory(prefix="weft-cpp-page.") as work:
            source, program = os.path.join(work, "page.cpp"), os.path.join(work, "page")
            with open(source, "w", encoding="utf-8") as out:
                out.write(text)
            built = subprocess.run(["c++", "-std=c++20", "-O0", "-Wall", "-Wextra", "-Wpedantic", "-Wno-unused-variable", "-Wno-unused-but-set-variable", "-Werror",
                                    "-I", os.path.join(SOURCE, "include", "c_api"), "-I", os.path.join(BUILD, "generated", "bindings", "cpp"), source, LIB,
                                    f"-Wl,-rpath,{os.path.dirname(LIB)}", "-o", program], capture_output=True, text=True, timeout=600)
            self.assertEqual(0, built.returncode, built.stderr[:4000])
            done = subprocess.run([program], capture_output=True, text=True, timeout=300, cwd=work, env=dict(os.environ, XDG_CACHE_HOME=work))
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            return done.stdout

    def test_each_block_of_the_page_prints_what_it_says(self):
        page = text_of("docs/cpp.md")
        code = blocks(page, "cpp")
        self.assertGreater(len(code), 9)
        self.assertEqual(len(code), len(blocks(page, "text")))
        body = "".join("  std::cout << \"== %d\\n\";\n  {\n%s  }\n" % (i, block) for i, block in enumerate(code))
        said = self.run_it("#include <libweft.hpp>\n#include <iostream>\nint main() {\n  weft::context ctx;\n" + body + "}\n")
        parts = re.split(r"^== \d+\n", said, flags=re.MULTILINE)[1:]
        for block, expected, printed in zip(code, blocks(page, "text"), parts):
            self.assertEqual(expected, printed, block)

    def test_the_shortest_program_is_that_of_readme_and_has_twelve_lines(self):
        program = text_of("examples/cpp/first.cpp")
        lines = [line for line in program.splitlines() if line and not line.startswith("//")]
        self.assertLessEqual(len(lines), 12)
        body = [line[2:] for line in lines[lines.index("int main() {") + 1:-1]]
        self.assertIn("\n".join(body), text_of("README.md"))
        self.assertEqual("w = 3.\n", self.run_it(program))


if __name__ == "__main__":
    unittest.main(verbosity=2)
