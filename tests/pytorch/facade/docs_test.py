"""docs/pytorch.md against the five documents and the package: every command has a row, every name is in the table."""
import importlib
import os
import re
import shlex
import subprocess
import sys
import unittest

import names_test
import support

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "seeds"))
import blocks  # noqa: E402
import commands  # noqa: E402


def rows(text, head):
    """First cells of the table whose first row is `head`."""
    lines = text[text.index(head):].splitlines()
    found = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


class Documentation(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        with open(os.path.join(support.ROOT, "docs", "pytorch.md"), encoding="utf-8") as file:
            cls.text = file.read()

    @unittest.skipUnless(os.path.isdir(blocks.SEEDS), f"the documents are not at {blocks.SEEDS}")
    def test_every_command_has_one_row(self):
        written = [row[0] for row in rows(self.text, "| command | what it did | now |")]
        named = {re.sub(r"\b\w+\.io/", "REGISTRY/", command) for _, command in commands.commands()}
        self.assertEqual(sorted(written), sorted(f"`{command}`" for command in named))

    @unittest.skipUnless(os.path.isdir(blocks.SEEDS), f"the documents are not at {blocks.SEEDS}")
    def test_the_commands_of_the_documents_are_found(self):
        """Those that the cutter must not miss, whatever it makes of the rest."""
        found = {command for _, command in commands.commands()}
        for one in ("conda env list", "test/run_tests.sh", "test/cpp/run_tests.sh", "xla/scripts/build_torch_wheels.sh",
                    ". ./scripts/update_nightly_torch_wheels.sh", "docker build -t torch-xla -f docker/Dockerfile .",
                    "gcloud services enable tpu.googleapis.com", "pip install pytorch-lightning"):
            self.assertIn(one, found)
        self.assertFalse([command for command in found if command.startswith(("tensor(", "Metric", "#", "base "))])

    def test_each_row_says_something(self):
        for row in rows(self.text, "| command | what it did | now |"):
            self.assertEqual(len(row), 3, row)
            self.assertTrue(all(len(cell) > 5 for cell in row), row)

    def test_every_name_is_in_the_table(self):
        table = {}
        for module, names in rows(self.text, "| module | names |"):
            for one in re.findall(r"`(torch_xla[\w.]*)`", module):
                table[one] = names
        self.assertEqual(set(table), set(names_test.NAMES))
        for module, (names, _) in names_test.NAMES.items():
            if "what training scripts" in table[module]:
                continue
            for name in names.split():
                inside = ("_XLAC", "PerDeviceLoader", "Context", "_maybe_convert_to_cpu", "_fetch_gradients")
                if name in inside or name.startswith("REDUCE"):
                    continue
                self.assertIn(f"`{name}`", table[module], module)

    def test_every_promised_name_is_there(self):
        for module, names in rows(self.text, "| module | names |"):
            for one in re.findall(r"`(torch_xla[\w.]*)`", module):
                loaded = importlib.import_module(one)
                for name in re.findall(r"`(\w+)`", names):
                    if "what training scripts" not in names:
                        self.assertTrue(hasattr(loaded, name), f"{one}.{name}")

    def test_the_commands_of_install_are_there_and_have_their_options(self):
        section = self.text[self.text.index("## Install"):self.text.index("## What runs")]
        lines = [line for block in re.findall(r"```sh\n(.*?)```", section, re.S) for line in block.splitlines()]
        seen = set()
        for words in (shlex.split(line) for line in lines):
            script = next((word for word in words if word.startswith("bindings/")), None)
            if script is None:
                self.assertIn(" ".join(words[:2]), ("pip install", "python -m", "export PYTHONPATH=$PWD/bindings/pytorch"), words)
                continue
            seen.add(script)
            path = os.path.join(support.ROOT, script)
            self.assertTrue(os.path.isfile(path), script)
            if words[0] == "docker":  # What the file of the image uses is in the repository.
                with open(path, encoding="utf-8") as file:
                    for used in re.findall(r"(?:scripts|bindings)/[\w./-]+", file.read()):
                        self.assertTrue(os.path.exists(os.path.join(support.ROOT, used)), used)
                continue
            command = [sys.executable, path] if words[0] == "python" else [path]
            help_text = subprocess.run([*command, "--help"], check=True, capture_output=True, text=True).stdout
            for option in (word for word in words if word.startswith("--")):
                self.assertIn(option, help_text, words)
        self.assertEqual(len(seen), 4, seen)

    def test_first_example_runs(self):
        source = re.search(r"```python\n(.*?)```", self.text, re.S).group(1)
        self.assertIn("device='xla:0'", support.check(self, support.run(source)))


if __name__ == "__main__":
    unittest.main()
