"""The environment is read in one place: what src and serialization look up is an option of api.json or named here, and what
documents tell a reader to set is read by somebody."""
import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from sources import SOURCE, tree  # noqa: E402
READS = re.compile(r"\b(?:secure_)?getenv\s*\(\s*([^)]*)\)")
# Where, and what: the table's own reader; others' variables that stand for an option; where other programs, too, look for their
# caches, plugins and flags of compilers.
MAY = {("src/c_api/settings.cc", "row.info.environment"), ("src/c_api/settings.cc", "name.c_str("), ("src/c_api/settings.cc", "variable"), ("src/c_api/settings.cc", '"PJRT_DEVICE"'),
       ("src/backends/pjrt/find.cc", "name"), ("src/backends/pjrt/pjrt_backend.cc", "name"),
       ("serialization/compile_cache.cc", '"XDG_CACHE_HOME"'), ("serialization/compile_cache.cc", '"HOME"'), ("src/c_api/job.cc", "name"),
       ("src/backends/cpu/jit/code_map.cc", '"JITDUMPDIR"'), ("src/cli/launch.cc", "name.c_str(")}  # what is handed on to processes that it starts
# Who a process is in its job is said by whoever started it, and is no option of a context: docs/distributed.md has all of them.
STARTERS = "src/distributed/job_place.cc"


def variables():
    with open(os.path.join(SOURCE, "bindings", "generate", "api.json"), encoding="utf-8") as file:
        return {"WEFT_" + option["name"].upper() for option in json.load(file)["options"]}


def strays(files):
    """Look-ups past the table, and names of variables that have no row."""
    bad = []
    for path, text in sorted(files.items()):
        bad += [f"{path}: getenv({what}) is not read through the table of options (api.json, \"options\")"
                for what in READS.findall(text) if (path, what) not in MAY]
        bad += [f"{path}: {name} has no row in api.json's \"options\"" for name in re.findall(r'"(WEFT_[A-Z0-9_]+)"', text)
                if name not in variables() and path != STARTERS]
    return bad


class Options(unittest.TestCase):
    def test_the_library_reads_no_variable_past_the_table(self):
        files = tree(["src", "serialization"], (".h", ".cc"))
        self.assertGreater(sum(len(READS.findall(text)) for text in files.values()), 2)
        self.assertEqual([], strays(files))

    def test_what_starters_say_is_in_the_document(self):
        names = set(re.findall(r'"([A-Z][A-Z0-9_]+)"', tree(["src/distributed"], (".cc",))[STARTERS]))
        self.assertGreater(len(names), 20)
        with open(os.path.join(SOURCE, "docs", "distributed.md"), encoding="utf-8") as file:
            self.assertEqual([], sorted(names - set(re.findall(r"[A-Z][A-Z0-9_]+", file.read()))))

    def test_the_check_itself_can_fail(self):
        self.assertTrue(strays({"src/lazy/a.cc": 'std::getenv("WEFT_SEED")'}))
        self.assertTrue(strays({"src/lazy/a.cc": 'const char* kName = "WEFT_SPEED";'}))
        self.assertFalse(strays({"src/c_api/settings.cc": "std::getenv(row.info.environment)"}))

    def test_variables_that_documents_set_are_read_by_somebody(self):
        readers = "".join({**tree(["scripts"], ""), **tree(["tests"], (".py", ".cc", ".h"))}.values())
        set_in = {(path, name) for path, text in tree(["docs", "bindings", "serialization", "examples"], ".md").items()
                  for name in re.findall(r"(?<![-\w])(WEFT_[A-Z_]+)=", text)}
        self.assertTrue(set_in)
        self.assertEqual([], sorted((path, name) for path, name in set_in if name not in variables() and name not in readers))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
