"""What the built libweft.so.1 shows to the world, against goldens (docs/abi.md, rules 3, 5, 20, 25).

WEFT_UPDATE_GOLDENS=1 rewrites the measured goldens (versions of glibc's symbols, constructors) and the abidiff baseline. Symbols
and layout are what the description says: bindings/generate writes them into the build tree, and nothing here does.
"""
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
BUILD = os.environ["WEFT_BUILD"]
LIB = os.environ["WEFT_LIB"]
RELEASE = os.environ.get("WEFT_BUILD_TYPE") == "Release"
SYSTEM_DEPS = os.environ.get("WEFT_SYSTEM_DEPS") == "ON"
GOLDEN = os.path.join(SOURCE, "tests", "abi", "golden")
DESCRIBED = os.path.join(BUILD, "generated", "tests", "abi")
HEADERS = os.path.join(SOURCE, "include", "c_api")
UPDATE = os.environ.get("WEFT_UPDATE_GOLDENS") == "1"
LIBC_FAMILY = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2",
               "ld-linux-aarch64.so.1"}
MAX_STRIPPED = 44 * 1000 * 1000  # bytes; a bare link of LLVM and the rest was 28.4 MB
OLDEST_GLIBC = (2, 28)  # what README promises and manylinux_2_28 wheels may use
COMMAND = os.path.join(BUILD, "bin", "weft")  # ships beside the library and keeps the same promise


def run(*args):
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(args)} exited {done.returncode}:\n{done.stdout}")
    return done.stdout


def golden(test, name, lines, may_shrink=False):
    """Compares lines with a golden file, or writes it. may_shrink: what is in the golden and no longer here is fine."""
    path = os.path.join(GOLDEN, name)
    if UPDATE:
        with open(path, "w", encoding="utf-8") as out:
            out.write("".join(line + "\n" for line in lines))
    if not os.path.exists(path):
        test.fail(f"there is no golden {name} (WEFT_UPDATE_GOLDENS=1 writes it)")
    with open(path, encoding="utf-8") as handle:
        want = handle.read().splitlines()
    gone, new = [w for w in want if w not in set(lines) and not may_shrink], [x for x in lines if x not in set(want)]
    test.assertEqual(([], []), (gone, new), f"{name}: (gone, new) against the golden")


class Dynamic(unittest.TestCase):
    def setUp(self):
        self.dynamic = run("readelf", "-dW", LIB)

    def test_needs_only_the_libc_family(self):
        if SYSTEM_DEPS:
            self.skipTest("WEFT_SYSTEM_DEPS links system libraries on purpose")
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", self.dynamic))
        self.assertEqual(set(), needed - LIBC_FAMILY)

    def test_is_called_libweft_so_1_and_is_never_unloaded(self):
        self.assertIn("[libweft.so.1]", self.dynamic)
        self.assertIn("NODELETE", self.dynamic)
        self.assertIn("SYMBOLIC", self.dynamic)

    def test_has_no_search_path_text_relocation_or_static_tls(self):
        for word in ("RPATH", "RUNPATH", "TEXTREL", "STATIC_TLS"):
            self.assertNotIn(word, self.dynamic)


class Symbols(unittest.TestCase):
    def test_exports_are_exactly_the_golden_with_their_version_nodes(self):
        have = []
        for line in run("nm", "-D", "--defined-only", LIB).splitlines():
            kind, name = line.split()[-2:]
            if kind != "A":  # version nodes themselves
                have.append(name)
        with open(os.path.join(DESCRIBED, "golden", "symbols.txt"), encoding="utf-8") as handle:
            want = handle.read().split()
        self.assertGreater(len(want), 900)
        self.assertEqual(([], []), (sorted(set(want) - set(have)), sorted(set(have) - set(want))),
                         "(missing, unexpected)")


def glibc_needs(path):
    """[(library, version)] of glibc that a file asks for."""
    needs, library = set(), None
    for line in run("readelf", "-VW", path).splitlines():
        file = re.search(r"Version: \d+\s+File: (\S+)", line)
        library = file[1] if file else library
        version = re.search(r"Name: (GLIBC_\S+)\s+Flags: .* Version:", line)
        if version and library:
            needs.add((library, version[1]))
    return needs


def too_new(needs):
    """Versions past the oldest glibc, and those that are not numbers: GLIBC_PRIVATE, or GLIBC_ABI_DT_RELR of glibc 2.36."""
    def fits(version):
        match = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version)
        return match is not None and (int(match[1]), int(match[2])) <= OLDEST_GLIBC
    return sorted(need for need in needs if not fits(need[1]))


class OldGlibc(unittest.TestCase):
    def setUp(self):
        if SYSTEM_DEPS:
            self.skipTest("the system's libraries ask for the system's glibc")

    def test_nothing_newer_than_2_28_is_asked_for(self):
        for path in (LIB, COMMAND):
            needs = glibc_needs(path)
            self.assertGreater(len(needs), 3, path)
            self.assertEqual([], too_new(needs), path)

    def test_each_symbol_that_nm_shows_has_such_a_version_too(self):
        found = re.findall(r"(\S+)@(GLIBC_\S+)", run("nm", "-D", "--undefined-only", LIB))
        self.assertGreater(len(found), 100)
        self.assertEqual([], too_new(found))

    def test_versions_are_the_golden(self):
        if not RELEASE:
            self.skipTest("the release build decides")
        golden(self, "glibc.txt", [f"{library} {version}" for library, version in sorted(glibc_needs(LIB))], may_shrink=True)

    def test_the_check_itself_can_fail(self):
        bad = {("libc.so.6", "GLIBC_2.29"), ("libc.so.6", "GLIBC_3.0"), ("libc.so.6", "GLIBC_PRIVATE"), ("libc.so.6", "GLIBC_ABI_DT_RELR")}
        self.assertEqual(sorted(bad), too_new(bad | {("libc.so.6", "GLIBC_2.28"), ("libm.so.6", "GLIBC_2.2.5")}))
        self.assertTrue(too_new(glibc_needs(sys.executable)), "Python is linked to the system's glibc")

    def test_a_function_that_came_later_is_a_link_error(self):
        compiler = shutil.which("gcc") or shutil.which("cc")
        with tempfile.TemporaryDirectory() as work:
            source = os.path.join(work, "new.c")
            with open(source, "w", encoding="utf-8") as out:
                out.write("int close_range(unsigned, unsigned, int);\nint f(void) { return close_range(3, 3, 0); }\n")  # 2.34
            done = subprocess.run([compiler, "-shared", "-fPIC", source, "-o", os.path.join(work, "new.so"), "-Wl,-z,defs", "-fuse-ld=lld",
                                   "-B" + os.path.join(BUILD, "tools"), "-L" + os.path.join(BUILD, "tools", "glibc-2.28")],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertNotEqual(0, done.returncode)
            self.assertIn("undefined symbol: close_range", done.stdout)


class Constructors(unittest.TestCase):
    def test_ours_are_none(self):
        """Objects of our layers have no .init_array; what linked libraries bring is counted below. Programs may: the commands of
        weft register themselves so."""
        objects, bad = 0, []
        for root, _, names in os.walk(os.path.join(BUILD, "CMakeFiles")):
            if not re.search(r"CMakeFiles/weft_[a-z_]+\.dir", root) or re.search(r"weft_(test|pch|cli)", root):
                continue
            for name in names:
                if name.endswith(".o"):
                    objects += 1
                    path = os.path.join(root, name)
                    if re.search(r"\.(init_array|ctors)", run("readelf", "-SW", path)):
                        bad.append(os.path.relpath(path, BUILD))
        self.assertGreater(objects, 10)
        self.assertEqual([], bad, "static constructors: use constinit or a function-local static")

    def test_total_does_not_grow(self):
        if not RELEASE or SYSTEM_DEPS:
            self.skipTest("the release build decides")
        sections = run("readelf", "-SW", LIB)
        size = int(re.search(r"\.init_array\s+INIT_ARRAY\s+\S+\s+\S+\s+([0-9a-f]+)", sections).group(1), 16)
        path = os.path.join(GOLDEN, "init_array.txt")
        if UPDATE:
            golden(self, "init_array.txt", [f"{size // 8} constructors, all of linked libraries"])
        with open(path, encoding="utf-8") as handle:
            self.assertLessEqual(size // 8, int(handle.read().split()[0]), "constructors in the library; tests/abi/golden/init_array.txt")


class Size(unittest.TestCase):
    def test_is_at_most_44_megabytes_stripped(self):
        if SYSTEM_DEPS:
            self.skipTest("system libraries are not in the file")
        with tempfile.TemporaryDirectory() as work:
            out = os.path.join(work, "stripped.so")
            run("strip", "-o", out, LIB)
            self.assertLessEqual(os.path.getsize(out), MAX_STRIPPED)


class Headers(unittest.TestCase):
    LANGUAGES = [("c99", "c"), ("c11", "c"), ("c++17", "c++")]

    def test_each_header_alone_is_c99_c11_and_cpp17_for_both_compilers(self):
        names = sorted(n for n in os.listdir(HEADERS) if n.endswith(".h")) if os.path.isdir(HEADERS) else []
        if not names:
            self.skipTest("no headers yet")
        compilers = [c for c in ("gcc", "clang-19") if shutil.which(c)]
        bad = []
        with tempfile.TemporaryDirectory() as work:
            for name in names:
                source = os.path.join(work, "one.c")
                with open(source, "w", encoding="utf-8") as out:
                    out.write(f'#include <{name}>\n#include <{name}>\nint main(void) {{ return 0; }}\n')
                for compiler in compilers:
                    for standard, language in self.LANGUAGES:
                        done = subprocess.run(
                            [compiler, f"-std={standard}", "-x", language, "-pedantic-errors", "-Wall", "-Wextra",
                             "-Werror", "-Wno-unused-function", "-fsyntax-only", "-I", HEADERS, source],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                        if done.returncode:
                            bad.append(f"{name} as {standard} with {compiler}:\n{done.stdout}")
        self.assertEqual([], bad, "\n".join(bad))

    def test_layout_is_the_golden(self):
        with tempfile.TemporaryDirectory() as work:
            program = os.path.join(work, "layout")
            run("cc", "-std=c99", "-I", HEADERS, os.path.join(DESCRIBED, "print_layout.c"), "-o", program)
            said = run(program).splitlines()
        with open(os.path.join(DESCRIBED, "golden", "layout.txt"), encoding="utf-8") as handle:
            want = handle.read().splitlines()
        self.assertGreater(len(want), 3000)
        self.assertEqual(want, said)


class AbiDiff(unittest.TestCase):
    """The library's types and symbols against a stored description (pkgconfig/weft.abi.xz, about 15 KB)."""

    BASELINE = os.path.join(SOURCE, "pkgconfig", "weft.abi.xz")
    # Exported functions and the types that they mention alone: what is inside may change at any time.
    DESCRIBE = ["--exported-interfaces-only", "--no-show-locs", "--drop-private-types", "--no-comp-dir-path", "--no-corpus-path",
                "--no-elf-needed", "--headers-dir", HEADERS]
    # No headers here: without places in the baseline all its types would count as private and be passed over.
    COMPARE = ["--exported-interfaces-only", "--no-show-locs", "--harmless"]

    def setUp(self):
        if not RELEASE or SYSTEM_DEPS:
            self.skipTest("the release build carries the types of exported functions")
        if not shutil.which("abidiff") or not shutil.which("abidw"):
            self.skipTest("abidiff is not installed (Debian's abigail-tools)")
        if UPDATE:
            with tempfile.TemporaryDirectory() as work:
                out = os.path.join(work, "weft.abi")
                run("abidw", *self.DESCRIBE, "--out-file", out, LIB)
                run("xz", "-9", "-f", out)
                shutil.copy(out + ".xz", self.BASELINE)
        self.assertTrue(os.path.exists(self.BASELINE), "WEFT_UPDATE_GOLDENS=1 writes it")
        with lzma.open(self.BASELINE, "rt", encoding="utf-8") as handle:
            self.text = handle.read()

    def difference(self, text):
        with tempfile.TemporaryDirectory() as work:
            path = os.path.join(work, "weft.abi")
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
            done = subprocess.run(["abidiff", *self.COMPARE, path, LIB], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            return done.returncode, done.stdout

    def test_nothing_changed_against_the_stored_baseline(self):
        """Any non-zero exit fails: a change updates baseline and 'since' in the same commit."""
        code, text = self.difference(self.text)
        self.assertEqual(0, code, text[-4000:] + "\nIf the change is meant: WEFT_UPDATE_GOLDENS=1 and this test on a release build.")

    def test_a_symbol_an_enumerator_and_a_field_that_changed_are_seen(self):
        for before, after in (("weft_tensor_rank", "weft_tensor_rang"),
                              ("<enumerator name='WEFT_NOT_FOUND' value='5'/>", "<enumerator name='WEFT_NOT_FOUND' value='25'/>"),
                              ("<var-decl name='setting_count'", "<var-decl name='settings_count'"),
                              ("name='weft_context_options' size-in-bits='960'", "name='weft_context_options' size-in-bits='896'")):
            self.assertIn(before, self.text)
            code, _ = self.difference(self.text.replace(before, after))
            self.assertNotEqual(0, code, f"{before} became {after} and abidiff said nothing")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
