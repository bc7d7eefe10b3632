"""libweft.hpp: what it gives, by both compilers and both standards without a warning; without exceptions; under AddressSanitizer; the
calls that it makes; what it costs to include; every operation by name."""
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import replay  # noqa: E402
import samples  # noqa: E402

SOURCE, BUILD, LIB = os.environ["WEFT_SOURCE"], os.environ["WEFT_BUILD"], os.environ["WEFT_LIB"]
HERE = os.path.join(SOURCE, "tests", "cpp_binding")
INCLUDES = ["-I", os.path.join(SOURCE, "include", "c_api"), "-I", os.path.join(BUILD, "generated", "bindings", "cpp"), "-I", HERE]
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
LINK = [LIB, "-Wl,-rpath," + os.path.dirname(LIB), "-pthread"]
COMPILERS = [c for c in map(shutil.which, ("g++", "clang++", "clang++-19")) if c]
NO_EXCEPTIONS = ["-fno-exceptions", "-fno-rtti"]


def path(name):
    return os.path.join(HERE, name)


class CppBinding(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory(prefix="weft-cpp.")
        self.addCleanup(work.cleanup)
        self.work = work.name

    def compiled(self, compiler, *flags):
        done = subprocess.run([compiler, *INCLUDES, *flags], capture_output=True, text=True, timeout=600)
        self.assertEqual(0, done.returncode, "%s %s\n%s" % (compiler, " ".join(flags), done.stderr[:4000]))

    def program(self, name, *flags, compiler=None):
        out = os.path.join(self.work, "program")
        self.compiled(compiler or COMPILERS[0], "-std=c++20", *STRICT, name, *flags, *LINK, "-o", out)
        done = subprocess.run([out], capture_output=True, text=True, timeout=300, cwd=self.work, env=dict(os.environ, XDG_CACHE_HOME=self.work))
        self.assertEqual(0, done.returncode, done.stdout[-3000:] + done.stderr[-3000:])
        return done.stdout

    def test_it_does_what_it_says(self):
        self.assertIn("all well", self.program(path("binding.cpp"), "-O1"))

    def test_files_are_read_piece_by_piece_and_memory_is_shared_by_dlpack(self):
        for flags in (["-O1"], ["-g1", "-fsanitize=address,undefined"]):
            self.assertIn("all well", self.program(path("sharing.cpp"), *flags))

    def test_jobs_of_two_processes(self):
        self.assertIn("all well", self.program(path("jobs.cpp"), "-O1"))

    def test_golden_calls_are_replayed(self):
        text, count = replay.program(os.path.join(SOURCE, "tests", "ffi", "vectors.json"), os.path.join(SOURCE, "include", "c_api", "weft_api.json"))
        self.assertGreater(count, 50)
        name = os.path.join(self.work, "replay.cpp")
        with open(name, "w", encoding="utf-8") as out:
            out.write(text)
        folder = os.path.join(self.work, "tmp")
        os.mkdir(folder)
        out = os.path.join(self.work, "replay")
        self.compiled(COMPILERS[0], "-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", name, *LINK, "-o", out)
        done = subprocess.run([out, folder], capture_output=True, text=True, timeout=300)
        self.assertEqual("%d vectors, 0 failed\n" % count, done.stdout, done.stderr)

    def test_failures_are_values_without_exceptions(self):
        for compiler in COMPILERS:
            self.assertIn("all well", self.program(path("without_exceptions.cpp"), *NO_EXCEPTIONS, compiler=compiler))

    def test_every_compiler_and_standard_takes_it_without_a_warning(self):
        for compiler in COMPILERS:
            for standard in ("c++20", "c++2b"):
                self.compiled(compiler, "-std=" + standard, *STRICT, "-fsyntax-only", path("binding.cpp"))
        # libc++ has <format>, <mdspan> and <expected> where the other library of this system does not.
        clang = shutil.which("clang++-19")
        if clang and os.path.exists("/usr/lib/llvm-19/include/c++/v1/mdspan"):
            self.compiled(clang, "-std=c++23", "-stdlib=libc++", *STRICT, "-fsyntax-only", path("binding.cpp"))

    def test_files_with_and_without_exceptions_are_one_program(self):
        for name, flags in (("first", []), ("second", NO_EXCEPTIONS)):
            with open(os.path.join(self.work, name + ".cpp"), "w", encoding="utf-8") as out:
                out.write('#include <libweft.hpp>\ndouble %s(weft_context* raw) {\n  weft_context_retain(raw);\n' % name
                          + "  const weft::context ctx = weft::context::adopt(raw);\n  return (weft::tensor(ctx, 1.f) + 2).item();\n}\n")
            self.compiled(COMPILERS[0], "-std=c++20", *flags, "-c", os.path.join(self.work, name + ".cpp"), "-o", os.path.join(self.work, name + ".o"))
        main = os.path.join(self.work, "main.cpp")
        with open(main, "w", encoding="utf-8") as out:
            out.write("#include <libweft.hpp>\ndouble first(weft_context*);\ndouble second(weft_context*);\n"
                      "int main() {\n  weft::context ctx;\n  return first(ctx.get()) == 3 && second(ctx.get()) == 3 ? 0 : 1;\n}\n")
        self.program(main, os.path.join(self.work, "first.o"), os.path.join(self.work, "second.o"))

    def test_nothing_leaks(self):
        said = self.program(path("binding.cpp"), "-g1", "-fsanitize=address")
        self.assertIn("all well", said)

    def test_a_formula_makes_the_calls_of_c_and_no_more(self):
        stub, out = os.path.join(self.work, "stub.o"), os.path.join(self.work, "calls")
        self.compiled("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-c", path("calls.c"), "-o", stub)
        for compiler in COMPILERS:
            self.compiled(compiler, "-std=c++20", *STRICT, "-O2", "-ffunction-sections", "-Wl,--gc-sections", path("calls.cpp"), stub, "-o", out)
            said = subprocess.run([out], capture_output=True, text=True, timeout=60, check=True).stdout
            parts = {part.split("\n")[0]: part.split("\n")[1:-1] for part in said.split("== ")[1:]}
            in_c, in_cpp = parts["c"], parts["c++"]
            self.assertEqual(["constant_like 12 2 -> 101", "mul 1 12 101 -> 102", "release 101", "add 1 11 102 -> 103", "release 102"], in_c)
            # The handles of the second run are three further on.
            self.assertEqual(["constant_like 12 2 -> 104", "mul 1 12 104 -> 105", "release 104", "add 1 11 105 -> 106", "release 105"], in_cpp)
            self.assertEqual(["add 1 11 11 -> 107", "share 50 107"], parts["scope"])

    def test_including_it_costs_at_most_three_times_ranges(self):
        def seconds(compiler, header):
            name = os.path.join(self.work, "include.cpp")
            with open(name, "w", encoding="utf-8") as out:
                out.write("#include %s\n" % header)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.compiled(compiler, "-std=c++20", "-fsyntax-only", name)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        for compiler in COMPILERS:
            # The two are measured in turns, so that other load disturbs both alike; the least of each counts. Twelve turns are always
            # taken: to stop at the first that fits would judge by luck.
            pairs = [(seconds(compiler, "<libweft.hpp>"), seconds(compiler, "<ranges>")) for _ in range(12)]
            ours, theirs = min(p[0] for p in pairs), min(p[1] for p in pairs)
            print("%s: libweft.hpp %.2f s, <ranges> %.2f s: %.2f times" % (os.path.basename(compiler), ours, theirs, ours / theirs))
            self.assertLessEqual(ours, 3 * theirs)

    def test_it_defines_no_macros_but_its_guards(self):
        for flags in ([], NO_EXCEPTIONS):
            before, after = (set(subprocess.run([COMPILERS[0], "-std=c++20", *flags, *INCLUDES, "-dM", "-E", "-x", "c++", "-"], input=text,
                                                capture_output=True, text=True, check=True).stdout.splitlines())
                             for text in ('#include <weft.h>\n', "#include <libweft.hpp>\n"))
            ours = [line.split()[1] for line in after - before if "weft" in line.lower()]
            self.assertGreater(len(ours), 5)
            self.assertEqual([], [name for name in ours if not (name.startswith("LIBWEFT_") and name.endswith("_HPP"))])

    def test_every_operation_by_its_name(self):
        text, covered, missing = samples.program(os.path.join(SOURCE, "include", "c_api", "weft_api.json"))
        self.assertEqual([], missing)
        self.assertGreater(len(covered), 240)
        name = os.path.join(self.work, "samples.cpp")
        with open(name, "w", encoding="utf-8") as out:
            out.write(text)
        print(self.program(name, "-O0", "-Wno-missing-field-initializers").strip())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[1:], verbosity=2)
