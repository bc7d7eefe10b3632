"""The library's sources are formatted: scripts/format --check has nothing to say."""
import os
import subprocess
import unittest


class Format(unittest.TestCase):
    def test_nothing_is_left_to_format(self):
        check = subprocess.run([os.path.join(os.environ["WEFT_SOURCE"], "scripts/format"), "--check"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(check.returncode, 0, "run scripts/format; it would change:\n" + check.stdout[:4000])


if __name__ == "__main__":
    unittest.main()
