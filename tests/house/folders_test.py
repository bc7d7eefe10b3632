"""Reads every #include and names the line that breaks the house's order (docs/architecture.md, section 1).

Which folder may include which is the table below; outside libraries have a table of their own. Also:
files open with what they are for, stay under 700 lines, and leave no notes to finish later.
"""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from sources import tree  # noqa: E402

# A folder may include itself and these. The longest matching folder name decides, so that the
# backends' shared interface (src/backends/*.h) and each backend have rules of their own.
BELOW_BACKENDS = ["src/passes", "src/ops", "src/ir", "src/runtime"]
# The rooms of the kernels, each with those it stands on, beside the calls that all know.
KERNEL_ROOMS = {"tiles": [], "product": ["tiles"], "conv": ["product", "tiles"], "pool": ["tiles"], "attention": ["tiles"],
                "scatter": ["tiles"]}
# The engine's rooms, each on those before it.
LAZY_ROOMS = ["service", "value", "cut", "record", "run"]
BELOW_LAZY = ["src/compiler", "src/autodiff", "src/backends", "src/backends/custom_call", "src/stablehlo", "src/ops", "src/ir", "src/runtime",
              "serialization"]
KERNEL_CALLS = ["src/backends/cpu/kernels", "src/backends/cpu/jit", "src/runtime"]
ALLOWED = {
    "src/runtime": [],
    # LAPACK: routines on plain memory.
    "src/linalg": ["src/runtime"],
    "src/ir": ["src/runtime"],
    "src/ops": ["src/linalg", "src/ir", "src/runtime"],
    "src/autodiff": ["src/ops", "src/ir", "src/runtime"],
    "src/transforms": ["src/autodiff", "src/ops", "src/ir", "src/runtime"],
    "src/stablehlo": ["src/ops", "src/ir", "src/runtime"],
    "src/passes": ["src/ops", "src/ir", "src/runtime"],
    "src/backends": BELOW_BACKENDS,
    # The caller's functions, whoever calls them.
    "src/backends/custom_call": ["src/ops", "src/ir", "src/runtime"],
    # The CPU backend's rooms, along the way of its data; a room knows those it stands on and nothing behind it.
    "src/backends/cpu/jit": ["src/runtime"],
    "src/backends/cpu/loop": ["src/backends/cpu/jit", "src/ops", "src/ir", "src/runtime"],
    "src/backends/cpu/kernels": ["src/backends/cpu/jit", "src/runtime"],
    **{f"src/backends/cpu/kernels/{room}": [*(f"src/backends/cpu/kernels/{below}" for below in rooms_below), *KERNEL_CALLS]
       for room, rooms_below in KERNEL_ROOMS.items()},
    "src/backends/cpu/launch": ["src/backends/cpu/kernels", "src/backends/cpu/kernels/tiles", "src/backends/cpu/kernels/attention",
                                "src/backends/cpu/kernels/scatter", "src/backends/cpu/loop", "src/linalg", "serialization", "src/runtime"],
    "src/backends/cpu/lower": ["src/backends/custom_call", "src/backends/cpu/launch", "src/backends/cpu/loop", "src/ops", "src/ir", "src/runtime"],
    "src/backends/cpu": ["src/backends", "src/backends/cpu/jit", "src/backends/cpu/loop", "src/backends/cpu/kernels",
                         "src/backends/cpu/kernels/tiles", "src/backends/cpu/launch", "src/backends/custom_call", "src/backends/cpu/lower"] + BELOW_BACKENDS,
    "src/backends/reference": ["src/backends", "src/backends/custom_call"] + BELOW_BACKENDS,
    "src/backends/pjrt": ["src/backends", "serialization"] + BELOW_BACKENDS,
    "serialization": ["src/ir", "src/runtime"],
    # Other people's formats, above the checkpoint's types.
    "serialization/interchange": ["serialization", "src/runtime"],
    "src/compiler": ["src/backends", "src/passes", "serialization", "src/ops", "src/ir", "src/runtime"],
    "src/lazy": [*(f"src/lazy/{room}" for room in LAZY_ROOMS), *BELOW_LAZY],
    **{f"src/lazy/{room}": [*(f"src/lazy/{below}" for below in LAZY_ROOMS[:i]), *BELOW_LAZY] for i, room in enumerate(LAZY_ROOMS)},
    "src/data": ["src/runtime"],
    # What carries collectives between processes: engines and the coordinator know of no program.
    "src/distributed": ["src/runtime"],
    # Programs that look inside (the operation table's dump): they ship nothing.
    "src/tools": ["src/autodiff", "src/ops", "src/ir", "src/runtime"],
    # The program `weft`: what it cannot do through the C API, no language can.
    "src/cli": [],
    "src/c_api": ["src/data", "src/distributed", "src/lazy", "src/lazy/service", "src/lazy/value", "src/lazy/record", "src/compiler", "src/autodiff", "src/transforms", "src/passes", "src/backends", "src/stablehlo",
                  "src/backends/cpu", "src/backends/reference", "src/backends/pjrt", "serialization", "serialization/interchange",
                  "src/ops", "src/ir", "src/runtime", "include/c_api"],
}
# Outside libraries: header pattern, the folders that may see it, the most files that may.
OUTSIDE = [
    (re.compile(r"^llvm/(ADT/ArrayRef|Support/SHA256)\.h$"), ["serialization"], 1),
    (re.compile(r"^llvm(-c)?/(?!(ADT/ArrayRef|Support/SHA256)\.h$)"), ["src/backends/cpu/jit", "src/backends/cpu/loop", "src/backends/cpu/kernels"], 6),
    (re.compile(r"^(capnp|kj)/"), ["serialization"], None),
    (re.compile(r"\.capnp\.h$"), ["serialization"], None),
    (re.compile(r"^zstd\.h$"), ["serialization"], None),
    (re.compile(r"^nlohmann/"), ["serialization/interchange", "src/cli"], 2),
    (re.compile(r"^ffi\.h$"), ["src/backends/custom_call"], 1),
    (re.compile(r"^absl/log/"), [], None),
    (re.compile(r"^gtest/|^gmock/"), [], None),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
PUBLIC = re.compile(r"^(include/c_api/)?weft[a-z_]*\.h$")
GENERATED = re.compile(r"generated", re.IGNORECASE)


def folder_of(path):
    """The entry of ALLOWED that a path belongs to, or None."""
    best = None
    for folder in ALLOWED:
        if path.startswith(folder + "/") and (best is None or len(folder) > len(best)):
            best = folder
    return best


def circle_of(table):
    """The folders of a circle in a table of who may include whom, its first one again at its end; None if there is none."""
    done, way = set(), []

    def walk(folder):
        if folder in way:
            return [*way[way.index(folder):], folder]
        if folder in done or folder not in table:
            return None
        way.append(folder)
        found = next((circle for below in table[folder] if below != folder for circle in [walk(below)] if circle), None)
        way.pop()
        done.add(folder)
        return found

    return next((circle for folder in table for circle in [walk(folder)] if circle), None)


def check_includes(files):
    """files: {path: text}. Returns one line per violation, 'path:line: reason'."""
    bad = []
    seen_by = {}
    for path in sorted(files):
        folder = folder_of(path)
        if folder is None:
            continue
        for number, line in enumerate(files[path].splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, header = match.groups()
            where = f"{path}:{number}"
            for pattern, folders, most in OUTSIDE:
                if not pattern.search(header):
                    continue
                if not any(folder == f or folder.startswith(f + "/") for f in folders):
                    bad.append(f"{where}: {folder} may not see <{header}>; only {', '.join(folders) or 'tests'} may")
                elif most is not None:
                    seen_by.setdefault((pattern.pattern, most), set()).add(path)
            if quote != '"' or pattern_of_outside(header):
                continue
            if PUBLIC.match(header):
                if folder not in ("src/c_api", "src/cli"):
                    bad.append(f'{where}: {folder} may not include the C API ("{header}")')
                continue
            target = folder_of(header)
            if target is None:
                if not re.match(r"(absl|src|serialization|include)/", header) or header.startswith("src/"):
                    bad.append(f'{where}: "{header}" is not spelled from the root of the tree')
            elif target != folder and target not in ALLOWED[folder]:
                bad.append(f"{where}: {folder} may not include {target} (\"{header}\")")
    for (pattern, most), paths in seen_by.items():
        if len(paths) > most:
            bad.append(f"{len(paths)} files see {pattern}, {most} may: {', '.join(sorted(paths))}")
    return bad


def pattern_of_outside(header):
    return any(pattern.search(header) for pattern, _, _ in OUTSIDE)


def check_files(files):
    bad = []
    for path in sorted(files):
        lines = files[path].splitlines()
        first = lines[0].strip() if lines else ""
        if not re.match(r"//|/\*|\"\"\"|#", first):
            bad.append(f"{path}:1: does not open with what the file is for")
        if len(lines) > 700 and not any(GENERATED.search(line) for line in lines[:5]):
            bad.append(f"{path}: {len(lines)} lines; past 700, ask which second idea moved in")
        for number, line in enumerate(lines, 1):
            if UNFINISHED.search(line):
                bad.append(f"{path}:{number}: a note to finish something later")
    return bad


class Folders(unittest.TestCase):
    def test_every_include_follows_the_table(self):
        files = tree(["src", "serialization"], (".h", ".cc"))
        self.assertGreater(len(files), 3, "no sources found: is WEFT_SOURCE right?")
        self.assertEqual([], check_includes(files))

    def test_every_folder_of_the_library_is_in_the_table(self):
        files = tree(["src", "serialization"], (".h", ".cc"))
        self.assertEqual([], [p for p in files if folder_of(p) is None])

    def test_the_table_has_no_circle(self):
        """Rooms of one folder too: a room that stands on another is not stood on by it."""
        self.assertIsNone(circle_of(ALLOWED))
        self.assertEqual(["a", "b", "a"], circle_of({"a": ["b"], "b": ["c", "a"], "c": []}))

    def test_tests_take_their_cpu_from_one_place(self):
        """Who names neither a target nor a backend runs on the instruction set under test: both are the same then."""
        own = re.compile(r'CpuBackend::Create\(|TargetFromName\("(auto)?"\)|TargetFor\(BestIsa\(\)\)(?!->Fingerprint)')
        self.assertTrue(own.search("auto backend = cpu::CpuBackend::Create({.threads = 1});"))
        files = tree(["tests"], (".h", ".cc"))
        self.assertEqual([], [path for path, text in files.items() if path != "tests/support/cpu_under_test.h" and own.search(text)],
                         "tests/support/cpu_under_test.h has both")

    def test_files_say_what_they_are_for_and_stay_short(self):
        files = tree(["src", "serialization", "include", "examples", "benchmarks"], (".h", ".cc", ".c"))
        self.assertEqual([], check_files(files))

    def test_public_headers_include_nothing_but_stddef_and_stdint(self):
        bad = []
        for path, text in tree(["include/c_api"], (".h",)).items():
            if path.endswith("weft_data.h"):
                continue  # reads files for the examples: header-only, not part of the ABI
            for number, line in enumerate(text.splitlines(), 1):
                match = INCLUDE.match(line)
                allowed = ("stddef.h", "stdint.h") + (("string.h", "stdarg.h") if "fluent" in path else ())
                if match and match.group(2) not in allowed and not PUBLIC.match(match.group(2)):
                    bad.append(f"{path}:{number}: {line.strip()}")
        self.assertEqual([], bad)


class TheCheckItselfCanFail(unittest.TestCase):
    def one(self, path, text):
        return check_includes({path: text})

    def test_a_lower_folder_may_not_see_a_higher_one(self):
        found = self.one("src/ir/graph.h", '// x\n#include "src/lazy/engine.h"\n')
        self.assertEqual(['src/ir/graph.h:2: src/ir may not include src/lazy ("src/lazy/engine.h")'], found)

    def test_a_backend_may_not_see_another(self):
        self.assertTrue(self.one("src/backends/cpu/a.cc", '#include "src/backends/reference/b.h"\n'))
        self.assertFalse(self.one("src/backends/cpu/a.cc", '#include "src/backends/backend.h"\n'))

    def test_a_room_of_the_cpu_backend_sees_only_those_before_it(self):
        self.assertTrue(self.one("src/backends/cpu/kernels/a.cc", '#include "src/backends/cpu/loop/loop.h"\n'))
        self.assertTrue(self.one("src/backends/cpu/launch/a.cc", '#include "src/backends/cpu/executable.h"\n'))
        self.assertFalse(self.one("src/backends/cpu/lower/a.cc", '#include "src/backends/cpu/launch/program.h"\n'))

    def test_what_lies_between_processes_knows_no_program(self):
        self.assertFalse(self.one("src/distributed/a.cc", '#include "src/runtime/status.h"\n'))
        self.assertTrue(self.one("src/distributed/a.cc", '#include "src/ir/mesh.h"\n'))
        self.assertTrue(self.one("src/ir/mesh.cc", '#include "src/lazy/value/sharding.h"\n'))

    def test_llvm_outside_its_folder_and_in_a_seventh_file(self):
        self.assertTrue(self.one("src/compiler/a.cc", '#include "llvm/IR/Module.h"\n'))
        self.assertTrue(self.one("src/backends/cpu/launch/a.cc", '#include "llvm/IR/Module.h"\n'))
        six = {f"src/backends/cpu/jit/{i}.cc": '#include <llvm/IR/Module.h>\n' for i in range(6)}
        self.assertEqual([], check_includes(six))
        six["src/backends/cpu/jit/7.cc"] = "#include <llvm/IR/Module.h>\n"
        self.assertTrue(check_includes(six))

    def test_capnp_outside_serialization(self):
        self.assertTrue(self.one("src/lazy/a.cc", "#include <capnp/message.h>\n"))
        self.assertTrue(self.one("src/lazy/a.cc", '#include "serialization/schema/x.capnp.h"\n'))
        self.assertFalse(self.one("serialization/a.cc", "#include <kj/io.h>\n"))

    def test_nothing_includes_the_c_api_and_spelling_starts_at_the_root(self):
        self.assertTrue(self.one("src/lazy/a.cc", '#include "weft_tensor.h"\n'))
        self.assertTrue(self.one("src/lazy/a.cc", '#include "src/c_api/handles.h"\n'))
        self.assertTrue(self.one("src/lazy/a.cc", '#include "engine.h"\n'))

    def test_the_command_sees_nothing_but_the_c_api(self):
        self.assertFalse(self.one("src/cli/a.cc", '#include "weft.h"\n#include "src/cli/command.h"\n'))
        self.assertTrue(self.one("src/cli/a.cc", '#include "src/runtime/status.h"\n'))

    def test_long_or_unfinished_files_are_named(self):
        mark = "TO" + "DO"
        self.assertTrue(check_files({"src/a.cc": f"// a\n// {mark}: later\n"}))
        self.assertTrue(check_files({"src/a.cc": "// a\n" + "int a;\n" * 700}))
        self.assertTrue(check_files({"src/a.cc": "int a;\n"}))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
