"""The C block of docs/data.md, compiled and run on files of 640 images: it gives their batches."""
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
LIB = pathlib.Path(os.environ["WEFT_LIB"])
ITEMS, BATCHES = 640, 10

MAIN = """#include <stdio.h>
#include "weft.h"
int main(void) {
  weft_context* ctx = NULL;
  int batches = 0;
  if (weft_context_create(NULL, &ctx) != NULL) return 1;
%s
  printf("%%d\\n", batches);
  return 0;
}
"""


def idx(path, dims, data):
    path.write_bytes(struct.pack(">BBBB%dI" % len(dims), 0, 0, 8, len(dims), *dims) + data)


class Page(unittest.TestCase):
    def test_the_c_block_reads_all_batches(self):
        page = (SOURCE / "docs" / "data.md").read_text(encoding="utf-8")
        block = re.search(r"^```c\n(.*?)^```", page, re.DOTALL | re.MULTILINE).group(1)
        self.assertEqual(1, block.count("60000"))
        block = block.replace("60000", str(ITEMS)).replace("/* a step with", "++batches; /* a step with").replace(".gz", "")
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "page.c").write_text(MAIN % block, encoding="utf-8")
            subprocess.run(["cc", "-std=c99", "-I", SOURCE / "include" / "c_api", folder / "page.c", "-o", folder / "page", LIB,
                            f"-Wl,-rpath,{LIB.parent}"], check=True)
            idx(folder / "train-images-idx3-ubyte", (ITEMS, 28, 28), bytes(ITEMS * 784))
            idx(folder / "train-labels-idx1-ubyte", (ITEMS,), bytes(ITEMS))
            done = subprocess.run([folder / "page"], cwd=folder, capture_output=True, text=True, timeout=100,
                                  env=dict(os.environ, WEFT_CACHE_MODE="off"))
        self.assertEqual((0, f"{BATCHES}\n", ""), (done.returncode, done.stdout, done.stderr))


if __name__ == "__main__":
    unittest.main(verbosity=2)
