"""docs/install.md as a reader follows it: its files are written, its shell blocks run one after another in one shell, in a new folder
with an installation of its own."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from installation import SOURCE, UNINSTALL, install


class Guide(unittest.TestCase):
    def test_its_blocks_run_in_order(self):
        with open(os.path.join(SOURCE, "docs", "install.md"), encoding="utf-8") as handle:
            page = handle.read()
        files = dict(re.findall(r"^```\w+ file=(\S+)\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
        self.assertEqual({"hello.c", "CMakeLists.txt", "meson.build"}, set(files))
        blocks = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        self.assertGreaterEqual(len(blocks), 6)
        with tempfile.TemporaryDirectory(prefix="weft-guide.") as work:
            for name, text in files.items():
                with open(os.path.join(work, name), "w", encoding="utf-8") as out:
                    out.write(text)
            script = "set -eu\n" + "\n".join(f"echo '== block {i}'\n{block}" for i, block in enumerate(blocks, 1))
            # Installed by what the page's command does, and away by the target's, both with a list of their own: what the developer
            # installed from this build stays.
            for command, instead in (('cmake --install build/release --prefix "$PREFIX"', "true"),
                                     ("cmake --build build/release --target uninstall", f"cmake -DWEFT_BUILD={work}/lists -P {UNINSTALL}")):
                self.assertIn(command, script)
                script = script.replace(command, instead)
            install(os.path.join(work, "weft"), os.path.join(work, "lists"))
            env = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH")}
            done = subprocess.run(["bash", "-c", script], cwd=work, env=dict(env, HOME=work), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=300)
            self.assertEqual(0, done.returncode, done.stdout[-6000:])
            # By pkg-config, CMake, Meson, and from a bundle that moved.
            self.assertEqual(4, len(re.findall(r"^weft \d+\.\d+\.\d+, ABI 1\.\d+$", done.stdout, re.MULTILINE)), done.stdout[-6000:])
            self.assertFalse(os.path.exists(os.path.join(work, "weft")), "uninstalling left something")


if __name__ == "__main__":
    if shutil.which("meson") is None:
        print("SKIPPED: there is no meson; scripts/install-deps installs it")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
