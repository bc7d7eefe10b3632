"""Installs the build to a folder of its own and builds an outside C project against it: once through
pkg-config, once through the CMake package. Nothing of the build tree may be needed."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ["WEFT_BUILD"]
OUTSIDE = os.path.join(os.environ["WEFT_SOURCE"], "tests", "install", "outside")


def run(*args, **more):
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(args)} exited {done.returncode}:\n{done.stdout}")
    return done.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.mkdtemp(prefix="weft-install.")
        cls.prefix = os.path.join(cls.work, "prefix")
        run("cmake", "--install", BUILD, "--prefix", cls.prefix, "--strip")
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

    def test_the_command_finds_the_library_beside_it(self):
        program = os.path.join(self.prefix, "bin", "weft")
        env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
        said = json.loads(run(program, "version", "--json", env=env))
        self.assertEqual(os.path.realpath(os.path.join(self.libdir(), "libweft.so.1")), os.path.realpath(said["library"]))

    def test_components_are_the_library_the_command_and_what_developers_need(self):
        found = {}
        for component in ("library", "command", "development"):
            prefix = os.path.join(self.work, component)
            run("cmake", "--install", BUILD, "--prefix", prefix, "--component", component)
            found[component] = sorted(name for _, _, names in os.walk(prefix) for name in names)
        self.assertEqual(["weft"], found["command"])
        self.assertEqual(["libweft.so.1"], found["library"])
        self.assertTrue({"libweft.so", "weft.h", "weft.pc", "weftConfig.cmake"} <= set(found["development"]), found["development"])

    def test_what_is_installed_is_the_library_the_command_the_headers_and_the_package_files(self):
        files = []
        for root, _, names in os.walk(self.prefix):
            files += [os.path.relpath(os.path.join(root, name), self.prefix) for name in names]
        endings = (".so", ".so.1", ".h", ".json", ".pc", ".cmake")
        self.assertEqual(["bin/weft"], [f for f in files if not f.endswith(endings)])
        self.assertTrue([f for f in files if f.endswith("weft.h")])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
