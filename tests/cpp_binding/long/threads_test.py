"""The server with threads (examples/cpp) under ThreadSanitizer: the header and the program are compiled with it, the library as it ships.
The library's own threads have the stage tsan. Part of `scripts/test --full`."""
import os
import shutil
import subprocess
import tempfile
import unittest

SOURCE, BUILD, LIB = os.environ["WEFT_SOURCE"], os.environ["WEFT_BUILD"], os.environ["WEFT_LIB"]
RACE = """
#include <libweft.hpp>
#include <thread>
int main() {
  weft::context ctx({.cache_mode = "off"});
  weft::tensor shared(ctx, 1.f);
  std::thread other([&] { for (int i = 0; i < 1000; ++i) shared = weft::tensor(ctx, 2.f); });
  for (int i = 0; i < 1000; ++i) shared = weft::tensor(ctx, 3.f);
  other.join();
}
"""


class Threads(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory(prefix="weft-tsan.")
        self.addCleanup(work.cleanup)
        self.work = work.name
        os.symlink(os.path.join(SOURCE, "include", "c_api"), os.path.join(self.work, "weft"))

    def run_it(self, source):
        out = os.path.join(self.work, "program")
        folders = ["-I", self.work, "-I", os.path.join(SOURCE, "include", "c_api"), "-I", os.path.join(BUILD, "generated", "bindings", "cpp")]
        subprocess.run(["g++", "-std=c++20", "-O1", "-g", "-fsanitize=thread", *folders, source, LIB, "-Wl,-rpath," + os.path.dirname(LIB), "-pthread",
                        "-o", out], check=True)
        # The sanitizer wants its addresses free, which random ones may not leave.
        fixed = ["setarch", "-R"] if shutil.which("setarch") else []
        # What the library does is not seen, its atomics least of all, so that nothing is said of it.
        unseen = os.path.join(self.work, "suppressions")
        with open(unseen, "w", encoding="utf-8") as f:
            f.write("called_from_lib:libweft.so.1\n")
        env = {**os.environ, "WEFT_CACHE_MODE": "off", "TSAN_OPTIONS": "suppressions=" + unseen}
        return subprocess.run([*fixed, out], capture_output=True, text=True, timeout=300, env=env)

    def test_the_server_has_no_race(self):
        for _ in range(3):
            done = self.run_it(os.path.join(SOURCE, "examples", "cpp", "threaded_server.cpp"))
            self.assertEqual((0, ""), (done.returncode, done.stderr[:4000]))
            self.assertIn("200 of 200 answers", done.stdout)

    def test_one_object_in_two_threads_is_found(self):
        source = os.path.join(self.work, "race.cpp")
        with open(source, "w", encoding="utf-8") as out:
            out.write(RACE)
        self.assertIn("WARNING: ThreadSanitizer: data race", self.run_it(source).stderr)


if __name__ == "__main__":
    unittest.main()
