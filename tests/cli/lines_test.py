"""`weft lines`: addresses of calls that nobody marked become files and lines, and what has none stays as it is."""
import os
import pathlib
import shutil
import subprocess
import unittest

from weft_command import PROGRAM, WeftCommand

SOURCE, BUILD = (pathlib.Path(os.environ[name]) for name in ("WEFT_SOURCE", "WEFT_BUILD"))
TEXT = r"""
#include <stdio.h>
#include "weft.h"
int main(void) {
  weft_context* ctx = NULL;
  weft_tensor *x = NULL, *y = NULL, *z = NULL;
  const int64_t two[] = {2}, three[] = {3};
  float data[3] = {1, 2, 3};
  if (weft_context_create(NULL, &ctx) != NULL) return 1;
  if (weft_tensor_from_host(ctx, NULL, WEFT_F32, two, 1, data, 8, &x) != NULL) return 1;
  if (weft_tensor_from_host(ctx, NULL, WEFT_F32, three, 1, data, 12, &y) != NULL) return 1;
  weft_error* error = weft_add(ctx, x, y, &z); /* here */
  printf("at %s, %s\n", weft_error_payload(error, "weft.position", WEFT_STRLEN, NULL), "other+0x12, +0x, a+0xzz, prog+0xffffffff");
  weft_error_release(error);
  weft_tensor_release(x), weft_tensor_release(y);
  weft_context_release(ctx);
  return 0;
}
"""
LINE = 1 + TEXT[:TEXT.index("/* here */")].count("\n")


@unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
class Lines(WeftCommand):
    def said(self, *flags):
        """What the program says of the call, and the program."""
        (self.work / "prog.c").write_text(TEXT)
        subprocess.run(["cc", *flags, "prog.c", "-o", "prog", f"-I{SOURCE / 'include' / 'c_api'}", f"-L{BUILD / 'lib'}",
                        f"-Wl,-rpath,{BUILD / 'lib'}", "-lweft"], cwd=self.work, check=True, capture_output=True)
        return subprocess.run([self.work / "prog"], check=True, capture_output=True, text=True,
                              env=dict(os.environ, WEFT_CACHE_MODE="off")).stdout

    def lines(self, text, *words, status=0):
        done = subprocess.run([PROGRAM, "lines", *map(str, words)], input=text, capture_output=True, text=True, timeout=60, cwd=self.work)
        for reason in ("libdw.so.1 is not installed", "built without elfutils"):
            if reason in done.stderr:
                self.skipTest(done.stderr.strip())
        self.assertEqual(status, done.returncode, done.stderr)
        return done.stdout, done.stderr

    def test_addresses_become_lines(self):
        for flags in (["-g", "-O2"], ["-g", "-O0", "-no-pie"], ["-g", "-pie", "-fPIE"]):
            with self.subTest(flags=flags):
                said = self.said(*flags)
                self.assertRegex(said, r"^at prog\+0x[0-9a-f]+, ")
                placed, errors = self.lines(said, "./prog")
                self.assertRegex(placed, rf"^at \S*prog\.c:{LINE}, other\+0x12, \+0x, a\+0xzz, prog\+0xffffffff\n$")
                self.assertIn("1 addresses have no line", errors)

    def test_without_debug_information_all_stays(self):
        said = self.said("-O1", "-s")
        placed, errors = self.lines(said + "no end", "./prog")
        self.assertEqual(said + "no end", placed)
        self.assertIn("2 addresses have no line: was it built with -g?", errors)

    def test_libraries_are_further_words(self):
        said = self.said("-g")
        shutil.copy(self.work / "prog", self.work / "other")
        offset = said[said.index("+"):said.index(",")]
        placed, _ = self.lines(f"other{offset} prog{offset}\n", "./other", "./prog")
        self.assertRegex(placed, rf"^\S*prog\.c:{LINE} \S*prog\.c:{LINE}\n$")

    def test_what_is_no_program_is_an_error(self):
        (self.work / "text").write_text("no program")
        for word in ("nothing", "text"):
            self.assertIn(f"weft lines: {word}: ", self.lines("", word, status=1)[1])
        self.assertEqual(2, subprocess.run([PROGRAM, "lines"], capture_output=True, timeout=60).returncode)


if __name__ == "__main__":
    unittest.main()
