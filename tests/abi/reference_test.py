"""docs/reference.md against the headers as the compiler has them: each name that they declare has its anchor, each enumerator and constant
its number, and each link of the page leads somewhere. The names are read from the headers' text, which shares nothing with the generator."""
import glob
import os
import re
import subprocess
import tempfile
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
HEADERS = sorted(glob.glob(os.path.join(SOURCE, "include", "c_api", "*.h")))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def without_comments(text):
    return re.sub(r'"[^"\n]*"|/\*.*?\*/|//[^\n]*', "", text, flags=re.DOTALL)


def declared(text):
    """Names of the C API in a header: whatever it mentions, it declares or uses from another."""
    guards = set(re.findall(r"^#ifndef (\w+_H)$", text, re.MULTILINE))
    return {name for name in re.findall(r"\b(?:weft|WEFT)_\w+", without_comments(text))} - guards


def fluent(text):
    """What users call of the fluent layer."""
    text = without_comments(text)
    called = set(re.findall(r"^#define (wf_\w+)\(", text, re.MULTILINE)) | {"WF_INTS", "WF_NUMBERS", "WF_TENSORS"}
    return called | {name for name in re.findall(r"^(?:WEFT_MUST_USE )?WF_INLINE [^(\n]*?\b(wf_begin|wf_end|wf_check)\(", text, re.MULTILINE)}


def anchors(page):
    return re.findall(r'<a id="([^"]+)"></a>', page)


def missing(page):
    names = set().union(*(declared(read(path)) for path in HEADERS)) | fluent(read(os.path.join(SOURCE, "include", "c_api", "weft_fluent.h")))
    return sorted(names - set(anchors(page)))


class Reference(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = read(os.path.join(SOURCE, "docs", "reference.md"))

    def test_every_name_of_every_header_has_its_anchor(self):
        self.assertGreater(len(HEADERS), 10)
        self.assertEqual([], missing(self.page))
        for name in ("weft_add", "wf_mul_n", "WEFT_DEADLINE_EXCEEDED", "weft_context_options", "WEFT_SUM_OPTS_INIT", "WEFT_STRLEN", "weft_release_fn",
                     "weft_get_api"):
            self.assertEqual([name], missing(self.page.replace(f'<a id="{name}"></a>', "")), "the check cannot fail")

    def test_anchors_stand_once_and_links_lead_to_one(self):
        found = anchors(self.page)
        self.assertEqual(sorted(set(found)), sorted(found))
        self.assertEqual([], sorted(set(re.findall(r"\]\(#([^)]+)\)", self.page)) - set(found)))

    def test_numbers_are_the_compiler_s(self):
        enumerators = [name for path in HEADERS for body in re.findall(r"typedef enum \w+ \{(.*?)\}", without_comments(read(path)), re.DOTALL)
                       for name in re.findall(r"(\w+) *=", body)]
        self.assertGreater(len(enumerators), 100)
        constants = ["WEFT_STRLEN", "WEFT_WAIT_FOREVER", "WEFT_TREE_ROOT", "WEFT_ABI_MAJOR", "WEFT_ABI_MINOR"]
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "numbers")
            with open(program + ".c", "w", encoding="utf-8") as out:
                out.write('#include <stdio.h>\n#include "weft.h"\nint main(void) {\n')
                for name in enumerators + constants:
                    out.write(f'  printf("{name} %lld\\n", (long long){name});\n')
                out.write("  return 0;\n}\n")
            subprocess.run(["cc", "-I", os.path.join(SOURCE, "include", "c_api"), program + ".c", "-o", program], check=True)
            numbers = dict(line.split() for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines())
        rows = dict(re.findall(r'^\| <a id="\w+"></a>`(\w+)` \| (?:`\w+` \| )?(-?\w+) \|', self.page, re.MULTILINE))
        wrong = {name: (rows.get(name), number) for name, number in numbers.items() if name not in rows or int(rows[name], 0) != int(number)}
        self.assertEqual({}, wrong)


if __name__ == "__main__":
    unittest.main(verbosity=2)
