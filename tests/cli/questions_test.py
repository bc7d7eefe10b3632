"""The five questions of docs/seeing_inside.md: each command runs, and its answer names the line."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = (pathlib.Path(os.environ[name]) for name in ("WEFT_SOURCE", "WEFT_BUILD"))
PAGE = (SOURCE / "docs" / "seeing_inside.md").read_text(encoding="utf-8")
LINES = (SOURCE / "examples" / "c" / "five_questions.c").read_text(encoding="utf-8").splitlines()


def line_of(text):
    return next(number for number, line in enumerate(LINES, 1) if text in line)


class Questions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.work = pathlib.Path(folder.name)
        section = PAGE.split("## Five questions\n")[1].split("\n## ")[0]
        fenced = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
        cls.blocks = [block.strip().splitlines() for language, block in fenced if language == "sh"]
        cls.answers = [block for language, block in fenced if language == ""]

    def said(self, question, status=0):
        """What the question's commands print, both outputs together."""
        if not (BUILD / "bin" / "five_questions").exists():
            self.skipTest("programs are what the release preset builds")
        clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        out = ""
        for command in self.blocks[question]:
            done = subprocess.run(["bash", "-c", command.replace("build/release", str(BUILD))], capture_output=True, text=True, timeout=300,
                                  cwd=self.work, env=dict(clean, XDG_CACHE_HOME=str(self.work / str(question))))
            out += done.stdout + done.stderr
        self.assertEqual(status, done.returncode, out)
        return out

    def test_there_are_five_of_at_most_three_commands(self):
        self.assertEqual(5, len(self.blocks))
        self.assertLessEqual(max(map(len, self.blocks)), 3)

    def test_why_each_step_compiles(self):
        line = line_of("a literal of the program")
        said = self.said(0)
        self.assertRegex(said, rf"constant at \S*five_questions\.c:{line} is 0\.001\d+, was 0\.001\d+; all else equal \(\d+ nodes\)")
        self.assertIn(f"five_questions.c:{line} is", self.answers[0])
        self.assertRegex(said, rf"constant: 59, of these 59 at \S*five_questions\.c:{line}\n")

    def test_what_is_read(self):
        said = self.said(1)
        self.assertRegex(said, r"(?m)^host::read: 480$")
        self.assertRegex(said, r"(?m)^ +[1-9]\d\.\d\d % .* x  wait for results$")

    def test_what_makes_memory_grow(self):
        line = line_of("weft_tensor* hidden")
        said = self.said(2, status=1)
        self.assertRegex(said, rf"largest of \d+ live tensors, which hold \d+ bytes: \d+ x f32\[128, 512\] of \d+ bytes together \(tanh, \S*five_questions\.c:{line}\)")
        self.assertIn(f"five_questions.c:{line})", self.answers[1])
        heights = [float(y) for y in re.findall(r"L[\d.]+ ([\d.]+)", (self.work / "memory.svg").read_text(encoding="utf-8"))]
        self.assertLess(heights[-1], heights[0])  # more is further up

    def test_which_operation_makes_the_nan(self):
        self.assertRegex(self.said(3, status=1), r"mul\(f32\[\], f32\[\]\): element 0 of the result is NaN, and no operand holds one \(first_bad\)")

    def test_which_kernels_take_the_time(self):
        line = line_of("weft_tensor* hidden")
        said = self.said(4)
        self.assertRegex(said, rf"%  +\d+ +[\d.]+ +\d+ % +[\d.]+ +\d+ % +gemm, gemm .*five_questions\.c:{line}")
        self.assertRegex(said, r"at most [\d.]+ GB/s; GF/s of products: f32 [\d.]+")
        self.assertIn("operations a byte", (self.work / "roofline.svg").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
