"""The library and the program weft under glibc 2.31, the oldest that a Debian mirror may still have (scripts/install-deps
--old-glibc): C clients linked against the same link libraries train a transformer, save and load, and run out of memory, which
throws thousands of exceptions inside the library."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
BUILD = os.environ["WEFT_BUILD"]
LIB = os.environ["WEFT_LIB"]
INSTALL = os.path.join(SOURCE, "scripts", "install-deps")
OLD = subprocess.run([INSTALL, "--print-old-glibc"], check=True, capture_output=True, text=True).stdout.strip()
LIBRARIES = os.path.join(OLD, "lib", "x86_64-linux-gnu")
LOADER = os.path.join(LIBRARIES, "ld-2.31.so")
LINK_LIBRARIES = os.path.join(BUILD, "tools", "glibc-2.28")
CLIENTS = ("transformer", "trees", "saves", "log_records", "out_of_memory")


def run(*args, **more):
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(args)} exited {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


class OldGlibc(unittest.TestCase):
    def under(self, program, *args):
        with tempfile.TemporaryDirectory(prefix="weft-old-glibc.") as work:
            env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
            return run(LOADER, "--library-path", f"{LIBRARIES}:{os.path.dirname(LIB)}", program, *args, timeout=600,
                       env=dict(env, TMPDIR=work, XDG_CACHE_HOME=work))

    def client(self, name, work, *more):
        program = os.path.join(work, name)
        run("gcc", "-std=gnu11", "-O1", "-I" + os.path.join(SOURCE, "include", "c_api"), *more, "-o", program, "-fuse-ld=lld",
            "-B" + os.path.join(BUILD, "tools"), "-static-libgcc", "-L" + LINK_LIBRARIES, "-L" + os.path.dirname(LIB), "-lweft",
            "-lpthread", "-ldl", "-lm")
        return program

    def test_this_is_glibc_2_31(self):
        with tempfile.TemporaryDirectory() as work:
            source = os.path.join(work, "version.c")
            with open(source, "w", encoding="utf-8") as out:
                out.write('#include <gnu/libc-version.h>\n#include <stdio.h>\nint main(void) { puts(gnu_get_libc_version()); return 0; }\n')
            self.assertEqual("2.31\n", self.under(self.client("version", work, source)))

    def test_clients_train_save_load_and_run_out_of_memory(self):
        with tempfile.TemporaryDirectory() as work:
            for name in CLIENTS:
                with self.subTest(client=name):
                    program = self.client(name, work, os.path.join(SOURCE, "tests", "c_api", name + ".c"))
                    self.assertIn(f"{name}: passed", self.under(program))

    def test_the_command_runs_its_constructors_and_its_commands(self):
        command = os.path.join(BUILD, "bin", "weft")
        self.assertEqual(os.path.realpath(LIB), os.path.realpath(json.loads(self.under(command, "version", "--json"))["library"]))
        self.assertIn("cpu", self.under(command, "doctor"))


if __name__ == "__main__":
    if os.environ.get("WEFT_SYSTEM_DEPS") == "ON":
        print("SKIPPED: the system's libraries ask for the system's glibc")
        sys.exit(77)
    if not os.path.exists(LOADER):
        print(f"SKIPPED: there is no glibc 2.31 to test with ({LOADER}). 'scripts/install-deps --old-glibc' fetches it where the Debian "
              "mirror still has it; that nothing newer than 2.28 is asked for is tested by tests/abi/library_test.py in any case")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
