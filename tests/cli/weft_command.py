"""The command `weft` as tests call it: in a folder of its own, without the caller's settings."""
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path(os.environ["WEFT_BUILD"]) / "bin" / "weft"


class WeftCommand(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = pathlib.Path(work.name)

    def weft(self, *words, status=0, **env):
        """What it prints: its output, or its errors where another status than 0 is expected."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=300, cwd=self.work,
                              env=dict(clean, XDG_CACHE_HOME=str(self.work), **env))
        self.assertEqual(status, done.returncode, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr
