"""The documents' own snippets, cut from ../shared/seeds and run as they are, each with what it printed checked.

Every run has XRT_TPU_CONFIG set to an address that nobody answers, as the documents set it first of all. Where the
documents are not there, the tests say so and are skipped.
"""
import importlib.util
import os
import sys
import tempfile
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "facade")]
import blocks  # noqa: E402
import rows  # noqa: E402
import support  # noqa: E402

NOBODY = "tpu_worker;0;192.0.2.1:8470"
EXAMPLES = os.path.join(blocks.ROOT, "examples", "pytorch")
HAVE_SEEDS = os.path.isdir(blocks.SEEDS)


def program(row, found):
    """The whole text of what is run for a row."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "stubs.py"), encoding="utf-8") as file:
        parts = [file.read(), row.before]
    parts += [found[row.seed, line].text for line in row.follows]
    text = found[row.seed, row.line].text
    return "\n".join(parts + [row.wrap(text) if row.wrap else text, row.after, "_real_stdout.write('checked\\n')\n"])


# The Lightning blocks need it, and it takes longer to import than they take to run.
support.preloaded.append("torchmetrics")


def describe(folder):
    """Writes the empty distribution that comes with the wheel: Lightning asks for its version."""
    about = os.path.join(folder, "torch_xla-2.9.0+weft.dist-info")
    os.mkdir(about)
    with open(os.path.join(about, "METADATA"), "w", encoding="utf-8") as file:
        file.write("Metadata-Version: 2.1\nName: torch_xla\nVersion: 2.9.0+weft\n")


def run(text, fresh=False):
    with tempfile.TemporaryDirectory() as folder:
        describe(folder)
        return support.run(text, path=[EXAMPLES, folder], fresh=fresh, XRT_TPU_CONFIG=NOBODY)


@unittest.skipUnless(HAVE_SEEDS, f"the documents are not at {blocks.SEEDS}")
class Seeds(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.found = {(block.seed, block.line): block for block in blocks.python_blocks()}

    def test_every_block_has_a_row_and_every_row_a_block(self):
        listed = [(row.seed, row.line) for row in rows.ROWS]
        self.assertEqual(sorted(listed), sorted(self.found))
        self.assertEqual(len(set(listed)), len(listed))

    def test_there_are_24(self):
        counts = {}
        for seed, _ in self.found:
            counts[seed] = counts.get(seed, 0) + 1
        self.assertEqual(counts, {"000": 1, "001": 6, "002": 12, "003": 4, "004": 1})

    def test_one_is_not_run_and_says_why(self):
        self.assertEqual([(row.seed, row.line) for row in rows.ROWS if row.not_run], [("003", 56)])

    def _check(self, row):
        done = run(program(row, self.found), row.fresh)
        if row.error:
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr.strip().splitlines()[-1], row.error)
            return
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(done.stdout.endswith("checked\n"), done.stdout)


def _add_tests():
    """A test for each row, by document and line, so that the one that fails is named."""
    for row in rows.ROWS:
        if row.not_run:
            continue

        def test(self, row=row):
            self._check(row)

        if row.needs and importlib.util.find_spec(row.needs) is None:
            test = unittest.skip(f"{row.needs} is not installed")(test)
        setattr(Seeds, f"test_{row.seed}_line_{row.line:03d}", test)


_add_tests()

if __name__ == "__main__":
    unittest.main()
