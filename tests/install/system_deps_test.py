"""-DWEFT_SYSTEM_DEPS=ON configures, says what it takes from the system and what stays private, and its link line
gives a library that works. The objects are this build's own, so that the test costs seconds, not a build."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
BUILD = os.environ["WEFT_BUILD"]
CLIENT = os.path.join(SOURCE, "tests", "coexist", "client.py")


def run(*args, **more):
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(args)[:400]} exited {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


class SystemDeps(unittest.TestCase):
    def test_configures_says_what_it_takes_and_links_a_library_that_works(self):
        with tempfile.TemporaryDirectory(prefix="weft-system-deps.") as work:
            tree = os.path.join(work, "build")
            text = run("cmake", "-S", SOURCE, "-B", tree, "-G", "Ninja", "-DWEFT_SYSTEM_DEPS=ON",
                       "-DWEFT_BUILD_TESTS=OFF", "-DWEFT_BUILD_PROGRAMS=OFF", "-DCMAKE_CXX_COMPILER=g++",
                       "-DCMAKE_C_COMPILER=gcc")
            for part in ("LLVM", "Abseil", "Cap'n Proto"):
                self.assertRegex(text, re.escape(part) + ".*(the system|keeping the private one)")
            if re.search(r"Abseil \d+: the system's", text):
                self.skipTest("a system Abseil needs objects compiled with its headers")

            run("ninja", "-C", tree, "weft_generated")  # the version script
            command = run("ninja", "-C", tree, "-t", "commands", "-s", "lib/libweft.so.1").splitlines()[-1]
            command = command.split("&&")[1].split()
            library = os.path.join(work, "libweft.so.1")
            command[command.index("-o") + 1] = library
            run(*command, cwd=BUILD)
            needed = run("readelf", "-dW", library)
            self.assertRegex(needed, r"NEEDED.*libLLVM")
            self.assertRegex(needed, r"NEEDED.*libzstd")
            # LLVM's own code is outside: what the ordinary library defines of it, this one does not.
            whole = os.path.join(BUILD, "lib", "libweft.so.1")
            for text, inside in ((run("nm", "--defined-only", whole), True), (run("nm", "--defined-only", library), False)):
                self.assertEqual(inside, "_ZN4llvm11raw_ostream5writeEPKcm\n" in text + "\n")
            sizes = []
            for name, given in (("whole", whole), ("part", library)):  # as they ship: without symbols
                run("strip", "-o", os.path.join(work, name), given)
                sizes.append(os.path.getsize(os.path.join(work, name)))
            self.assertLess(sizes[1], 0.4 * sizes[0], "LLVM is still inside")
            done = subprocess.run([sys.executable, CLIENT, library], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=120, env=dict(os.environ, XDG_CACHE_HOME=work))
            self.assertEqual("ok", done.stdout.strip(), done.stdout[-3000:])


if __name__ == "__main__":
    if os.environ.get("WEFT_SYSTEM_DEPS") == "ON":
        print("SKIPPED: this build has WEFT_SYSTEM_DEPS on already")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
