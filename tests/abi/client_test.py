"""Programs of an earlier ABI run with this library: client.c as it was compiled with the headers of ABI 1.0, kept as a file, and as today's
headers compile it."""
import lzma
import os
import subprocess
import tempfile
import unittest

SOURCE, LIB = os.environ["WEFT_SOURCE"], os.environ["WEFT_LIB"]
HERE = os.path.join(SOURCE, "tests", "abi")


class Client(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.program = os.path.join(self.folder, "client")

    def run_it(self):
        """With this library under the name that the client asks for."""
        env = dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(os.path.abspath(LIB)))
        done = subprocess.run([self.program, os.path.join(self.folder, "client.weft")], env=env, capture_output=True, text=True, timeout=120)
        self.assertEqual((0, ""), (done.returncode, done.stderr), done.stdout)
        return done.stdout

    def test_the_client_of_1_0_runs_as_it_was_compiled(self):
        with lzma.open(os.path.join(HERE, "client_1_0.xz")) as kept, open(self.program, "wb") as out:
            out.write(kept.read())
        os.chmod(self.program, 0o755)
        needed = subprocess.run(["readelf", "-VW", self.program], capture_output=True, text=True, check=True).stdout
        self.assertIn("WEFT_1 ", needed)
        self.assertNotIn("WEFT_1.", needed)
        self.assertEqual("client of 1.0: ok\n", self.run_it())

    def test_today_s_headers_compile_the_same(self):
        subprocess.run(["cc", "-Wall", "-Werror", "-I", os.path.join(SOURCE, "include", "c_api"), os.path.join(HERE, "client.c"), LIB, "-o", self.program],
                       check=True)
        self.assertRegex(self.run_it(), r"^client of 1\.\d+: ok\n$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
