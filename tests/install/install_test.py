"""Installs the build to a folder of its own, moves it, and builds an outside C project against it: once through pkg-config, once through
the CMake package. Nothing of the build tree may be needed or named, and uninstalling leaves nothing."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from documents import dead_links  # noqa: E402
from installation import BUILD, SOURCE, install, run, uninstall

OUTSIDE = os.path.join(SOURCE, "tests", "install", "outside")
COMPONENTS = ("runtime", "debug", "tools", "dev", "doc")


def files_and_times(folder):
    # Not what tests that run beside this one write: ctest's own folder, and virtual environments with their locks (support/python_env.py).
    theirs = re.compile(r"/(Testing|venv-[^/]*)(/|$)")
    names = [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]
    names = [name for name in names if not theirs.search(os.path.relpath(name, os.path.dirname(folder)))]
    return {name: os.stat(name).st_mtime_ns for name in names if os.path.exists(name)}


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.mkdtemp(prefix="weft-install.")
        before = files_and_times(BUILD)
        install(os.path.join(cls.work, "first"), os.path.join(cls.work, "lists"))
        cls.written = sorted(os.path.relpath(name, BUILD) for name, time in files_and_times(BUILD).items() if before.get(name) != time)
        cls.prefix = os.path.join(cls.work, "moved")
        os.rename(os.path.join(cls.work, "first"), cls.prefix)
        cls.project = os.path.join(cls.work, "outside")
        shutil.copytree(OUTSIDE, cls.project)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work)

    def libdir(self):
        for root, _, names in os.walk(self.prefix):
            if "libweft.so.1" in names:
                return root
        self.fail("libweft.so.1 was not installed")

    def test_pkg_config_is_enough_for_an_outside_project(self):
        env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(self.libdir(), "pkgconfig"))
        flags = run("pkg-config", "--cflags", "--libs", "weft", env=env).split()
        self.assertFalse([f for f in flags if BUILD in f], "flags point into the build tree")
        program = os.path.join(self.work, "by_pkg_config")
        run("cc", "-std=c99", "-pedantic-errors", os.path.join(self.project, "main.c"), "-o", program, *flags)
        self.assertEqual("abi 1.", run(program, env=dict(os.environ, LD_LIBRARY_PATH=self.libdir()))[:6])

    def test_the_cmake_package_is_enough_for_an_outside_project(self):
        build = os.path.join(self.work, "build")
        run("cmake", "-S", self.project, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        self.assertEqual("abi 1.", run(os.path.join(build, "outside"))[:6])

    def test_cpp_is_found_by_pkg_config_and_by_the_cmake_package(self):
        env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(self.libdir(), "pkgconfig"))
        flags = run("pkg-config", "--cflags", "--libs", "weft-cpp", env=env).split()
        self.assertFalse([f for f in flags if BUILD in f], "flags point into the build tree")
        program = os.path.join(self.work, "cpp_by_pkg_config")
        project = os.path.join(os.path.dirname(OUTSIDE), "outside_cpp")
        run("c++", "-std=c++20", os.path.join(project, "main.cpp"), "-o", program, *flags)
        there = dict(os.environ, LD_LIBRARY_PATH=self.libdir(), WEFT_CACHE_MODE="off")
        self.assertEqual("[2. 4.]", run(program, env=there).strip())
        build = os.path.join(self.work, "build_cpp")
        run("cmake", "-S", project, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        self.assertEqual("[2. 4.]", run(os.path.join(build, "outside_cpp"), env=dict(os.environ, WEFT_CACHE_MODE="off")).strip())

    def test_the_command_finds_the_library_beside_it(self):
        program = os.path.join(self.prefix, "bin", "weft")
        env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
        said = json.loads(run(program, "version", "--json", env=env))
        self.assertEqual(os.path.realpath(os.path.join(self.libdir(), "libweft.so.1")), os.path.realpath(said["library"]))

    def test_both_ways_to_include_the_headers_work(self):
        env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(self.libdir(), "pkgconfig"))
        flags = run("pkg-config", "--cflags", "weft", env=env).split()
        for header in ("<weft/weft.h>", "<weft/weft_fluent.h>", '"weft.h"', '"weft_fluent.h"'):
            source = os.path.join(self.work, "include.c")
            with open(source, "w", encoding="utf-8") as out:
                out.write(f"#include {header}\nint main(void) {{ return 0; }}\n")
            run("cc", "-std=c11", "-Werror", "-fsyntax-only", source, *flags)

    def test_the_readme_s_program_and_line_work_as_they_stand_there(self):
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as handle:
            text = handle.read()
        program = next(block for block in re.findall(r"^```c\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if "int main(" in block)
        line = re.search(r"^cc example\.c .*$", text, re.MULTILINE).group(0)
        work = os.path.join(self.work, "readme")
        os.makedirs(work)
        with open(os.path.join(work, "example.c"), "w", encoding="utf-8") as out:
            out.write(program)
        env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
        env.update(PKG_CONFIG_PATH=os.path.join(self.libdir(), "pkgconfig"), XDG_CACHE_HOME=work)
        self.assertEqual("w = 3.000", run("bash", "-c", line + " && ./example", cwd=work, env=env).strip().splitlines()[-1])

    def test_components(self):
        found = {}
        for component in COMPONENTS:
            prefix = os.path.join(self.work, component)
            install(prefix, os.path.join(self.work, "lists"), "--component", component)
            found[component] = sorted(name for _, _, names in os.walk(prefix) for name in names)
        self.assertEqual(["LICENSE", "THIRD_PARTY_NOTICES", "libweft.so.1", "weft.spdx.json"], found["runtime"])
        self.assertEqual(["libweft.so.1.debug"], found["debug"])
        self.assertEqual(["_weft", "weft", "weft", "weft.1", "weft.fish"], found["tools"])
        self.assertLessEqual({"libweft.so", "weft.h", "weft.pc", "weftConfig.cmake", "weft_api.json", "api.json", "ops.json",
                              "weft_ffi.py", "weft_ffi.lua", "lib.rs", "Cargo.toml", "weft.go", "go.mod",
                              "libweft.hpp", "operations.hpp", "weft-cpp.pc"}, set(found["dev"]))
        self.assertLessEqual({"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "install.md", "train_fashion_mnist.c"}, set(found["doc"]))
        # Everything belongs to one of them.
        files = sorted(name for _, _, names in os.walk(self.prefix) for name in names)
        self.assertEqual(files, sorted(name for names in found.values() for name in names))

    def test_links_of_the_installed_documents_lead_somewhere(self):
        pages = [os.path.join(root, name) for root, _, names in os.walk(self.prefix) for name in names if name.endswith(".md")]
        self.assertGreater(len(pages), 20)
        dead, places = dead_links(pages)
        self.assertEqual([], dead)
        self.assertGreater(places, 20)

    def test_installing_writes_nothing_into_the_build_but_cmake_s_own_list(self):
        self.assertEqual([], [name for name in self.written if name != "install_manifest.txt"])

    def test_what_is_installed_names_no_folder_of_the_build(self):
        home = os.path.expanduser("~")
        folders = {SOURCE, BUILD, home if home not in ("/", "") else SOURCE}
        checked = 0
        for root, _, names in os.walk(self.prefix):
            for name in names:
                if "share/doc" in root and not name.endswith((".json", "NOTICES")):
                    continue
                with open(os.path.join(root, name), "rb") as handle:
                    data = handle.read()
                checked += 1
                for folder in folders:
                    at = data.find((folder + "/").encode())
                    self.assertEqual(-1, at, f"{name} names {data[max(at, 0):at + 120]!r}")
        self.assertGreater(checked, 20)

    def test_the_library_has_no_symbols_and_says_where_they_are(self):
        library = os.path.join(self.libdir(), "libweft.so.1")
        sections = run("readelf", "-SW", library)
        self.assertNotIn(".symtab", sections)
        self.assertNotIn(".debug_info", sections)
        self.assertIn("libweft.so.1.debug", run("readelf", "-p", ".gnu_debuglink", library))
        apart = run("readelf", "-SW", os.path.join(self.libdir(), ".debug", "libweft.so.1.debug"))
        self.assertIn(".symtab", apart)
        self.assertIn(".debug_info", apart)

    def test_uninstalling_leaves_nothing(self):
        top, lists = os.path.join(self.work, "top"), os.path.join(self.work, "top_lists")
        os.makedirs(top)
        install(os.path.join(top, "a", "prefix"), lists)
        install(os.path.join(top, "a", "prefix"), lists, "--component", "runtime")
        with open(os.path.join(top, "somebody-else"), "w", encoding="utf-8") as out:
            out.write("not ours")
        done = uninstall(lists)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(["somebody-else"], os.listdir(top))
        done = uninstall(lists)
        self.assertNotEqual(0, done.returncode)
        self.assertIn("nothing to uninstall", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
