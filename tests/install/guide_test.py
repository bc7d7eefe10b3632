"""docs/install.md as a reader follows it, in a new folder with an installation of its own."""
import os
import shutil
import sys
import tempfile
import unittest

from installation import UNINSTALL, follow_the_guide, install


class Guide(unittest.TestCase):
    def test_its_blocks_run_in_order(self):
        with tempfile.TemporaryDirectory(prefix="weft-guide.") as work:
            # Installed by what the page's command does, and away by the target's, both with a list of their own: what the developer
            # installed from this build stays.
            install(os.path.join(work, "weft"), os.path.join(work, "lists"))
            follow_the_guide(work, "true", f"cmake -DWEFT_BUILD={work}/lists -P {UNINSTALL}")


if __name__ == "__main__":
    if shutil.which("meson") is None:
        print("SKIPPED: there is no meson; scripts/install-deps installs it")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
