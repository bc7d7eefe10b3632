"""Nothing that makes or reads text heeds the caller's locale: a process may say setlocale(LC_ALL, "de_DE"), where a point is a
comma. std::to_chars, std::from_chars, absl::StrCat and absl::SimpleAtod never do. (printf of whole texts and integers stays.)"""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from sources import tree  # noqa: E402

HEEDS = re.compile(
    r"\bv?s(n|w)?printf\b|\bv?asprintf\b|\bstrto(d|f|ld)(_l)?\b|\bato[fil]l?\b|\bv?f?s?scanf\b|\bsto(i|l|ul|ll|ull|f|d|ld)\s*\(|"
    r"\bsetlocale\b|\bstd::locale\b|\buselocale\b|\bimbue\b|\bstrf(time|mon)\b|\bput_time\b|\bstd::format\b|\bStrFormat\b|\bStrAppendFormat\b|"
    r"\bstd::to_string\(\s*[\d.]*\.\d|[io]?stringstream\b|<(sstream|iostream|iomanip|locale|format|absl/strings/str_format\.h)>|str_format\.h|"
    r"(?<![\w:.>])(?:std::)?(is(alpha|alnum|digit|xdigit|space|upper|lower|print|punct|cntrl|graph|blank)|to(lower|upper)|strcoll|strxfrm)\(")
FLOATS = re.compile(r'printf\s*\([^;]*"[^"]*%[-+ #0-9.*]*l?[aefgAEFG]')
# What may stay, and why.
MAY = {
    ("src/cli/tree.cc", "strftime"): "of digits alone: %Y-%m-%dT%H:%M:%SZ",
    ("src/cli/machine.cc", "atoll"): "reads an integer of the kernel's; no locale has another form for digits alone",
    **{(path, "atol"): "an attribute of isclose and matrix_rank, the absolute tolerance; nobody calls C's atol"
       for path in ("include/c_api/weft_fluent.h", "include/c_api/weft_ops.h", "src/ops/linalg/determinants.cc", "src/ops/elementwise/arithmetic.cc")},
}


def heeding(files):
    bad = []
    for path, text in sorted(files.items()):
        for number, line in enumerate(text.splitlines(), 1):
            code = re.sub(r'"(\\.|[^"\\])*"', '""', line) if "#include" not in line else line
            code = code.split("//")[0]
            for found in [m.group() for m in HEEDS.finditer(code)] + (["printf of a float"] if FLOATS.search(line) else []):
                if not any(path == where and what in found for where, what in MAY):
                    bad.append(f"{path}:{number}: {found.strip()}: heeds the locale; use std::to_chars, std::from_chars (src/runtime/number_text.h) or absl")
    return bad


class Locale(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = tree(["src", "serialization", "include"], (".h", ".cc", ".c"))

    def test_no_text_heeds_the_locale(self):
        self.assertGreater(len(self.files), 300)
        self.assertEqual([], heeding(self.files))

    def test_what_may_stay_is_there(self):
        for (path, what), _ in MAY.items():
            self.assertIn(what, self.files[path])

    def test_the_check_itself_can_fail(self):
        for line in ('std::snprintf(b, sizeof b, "%.*f", n, x);', "double x = strtod(text, nullptr);", "x = std::stod(text);",
                     "std::ostringstream out;", "#include <sstream>", 'std::printf("%5.2f", x);', 'fprintf(stderr, "took %g s", s);',
                     "if (std::isalpha(c)) return;", "c = tolower(c);", 'absl::StrFormat("%.9e", x)', "n = atof(t);"):
            self.assertTrue(heeding({"src/ir/a.cc": line}), line)
        for line in ('std::fprintf(stderr, "%s: %d\\n", text, 5);', "absl::ascii_isalpha(c)", "// as snprintf does", "x.isdigit(3)",
                     'absl::StrCat("strtod")', "std::to_string(count)"):
            self.assertFalse(heeding({"src/ir/a.cc": line}), line)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
