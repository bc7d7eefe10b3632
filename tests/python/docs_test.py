"""Every block of docs/python.md and the lines of README.md run, and print what the page says; docstrings run, too."""

import doctest
import importlib
import os
import pkgutil
import re
import unittest

import support

import libweft as wf


def page(name):
    with open(os.path.join(support.SOURCE, name), encoding="utf-8") as f:
        return f.read()


class Documents(unittest.TestCase):
    def test_blocks_of_the_page_are_one_program_and_print_what_it_says(self):
        blocks = re.findall(r"^```(python|text)\n(.*?)^```", page("docs/python.md"), re.DOTALL | re.MULTILINE)
        code, wanted, parts = "", [], []
        for kind, text in blocks:
            if kind == "python":
                code += text + "print('---')\n"
            else:
                wanted.append(text)
        self.assertGreater(len(wanted), 8)
        status, out, error = support.run(code)
        self.assertEqual((0, ""), (status, error))
        parts = out.split("---\n")[:-1]
        self.assertEqual(wanted, parts)

    def test_the_block_of_the_readme(self):
        block, wanted = re.search(
            r"^```python\n(.*?)^```\n```text\n(.*?)^```", page("README.md"), re.DOTALL | re.MULTILINE
        ).groups()
        self.assertLessEqual(len(block.splitlines()), 12)
        self.assertEqual((0, wanted, ""), support.run(block))

    def test_docstrings(self):
        tried = 0
        for module in pkgutil.walk_packages(wf.__path__, "libweft."):
            # operations_test.py runs those of operations; the accelerator is opened by its path, where it fits.
            if module.name in ("libweft.__main__", "libweft._accelerator", "libweft._ops"):
                continue
            done = doctest.testmod(importlib.import_module(module.name), extraglobs={"wf": wf})
            self.assertEqual(0, done.failed, module.name)
            tried += done.attempted
        self.assertGreater(tried, 30)

    def test_every_public_name_says_what_it_is(self):
        silent = [name for name in dir(wf) if callable(getattr(wf, name)) and not (getattr(wf, name).__doc__ or "").strip()]
        self.assertEqual([], silent)


if __name__ == "__main__":
    unittest.main()
