"""The small examples: each compiles against an installed tree by the line of its own comment, and does what it says."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = os.environ["WEFT_SOURCE"], os.environ["WEFT_BUILD"]
EXAMPLES = os.path.join(SOURCE, "examples")
NAMES = ("linear_fit", "spirals", "characters", "image_filter", "inference_server", "dlopen_training", "many_devices",
         "several_processes", "five_questions")

sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import python_env  # noqa: E402


class Small(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.work, prefix = folder.name, os.path.join(folder.name, "prefix")
        shutil.copytree(os.path.join(SOURCE, "include", "c_api"), os.path.join(prefix, "include", "weft"))
        os.makedirs(os.path.join(prefix, "lib", "pkgconfig"))
        shutil.copy(os.path.join(BUILD, "generated", "weft.pc"), os.path.join(prefix, "lib", "pkgconfig"))
        for name in ("libweft.so", "libweft.so.1"):
            os.symlink(os.environ["WEFT_LIB"], os.path.join(prefix, "lib", name))
        cls.env = {**os.environ, "PKG_CONFIG_PATH": os.path.join(prefix, "lib", "pkgconfig"), "WEFT_CACHE_DIR": os.path.join(cls.work, "cache")}
        for name in NAMES:
            with open(os.path.join(EXAMPLES, "c", name + ".c"), encoding="utf-8") as handle:
                comment = handle.read().split("*/")[0]
            line = re.search(r"^ \*   (cc %s\.c .*-o %s)$" % (name, name), comment, re.MULTILINE).group(1)
            done = subprocess.run(["bash", "-c", f"cc() {{ command cc -std=c99 -pedantic-errors -Wall -Wextra -Werror -O1 \"$@\"; }}; cd {EXAMPLES}/c && "
                                   + line.replace(f"-o {name}", f"-o {cls.work}/{name}")], capture_output=True, text=True, env=cls.env)
            if done.returncode:
                raise AssertionError(f"{line}\n{done.stderr}")

    def run_it(self, name, *options, code=0):
        done = subprocess.run([os.path.join(self.work, name), *options], capture_output=True, text=True, timeout=120, cwd=self.work, env=self.env)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def path(self, name):
        return os.path.join(self.work, name)

    def read(self, name):
        with open(self.path(name), "rb") as handle:
            return handle.read()

    def test_help_and_wrong_usage(self):
        for name in NAMES:
            with self.subTest(name):
                self.assertTrue(self.run_it(name, "--help").startswith("usage: " + name))
                self.assertTrue(self.run_it(name, "--no-such-option", code=2).startswith("usage: " + name))

    def test_many_devices_have_the_numbers_of_one(self):
        said = {layout: self.run_it("many_devices", "--layout", layout).splitlines() for layout in ("one", "data", "fsdp", "tensor")}
        self.assertEqual(1, len({lines[0] for lines in said.values()}), said)
        self.assertLess(float(said["one"][0].split()[1]), 0.1)
        self.assertIn("| 0 1 2 3 |", said["data"])
        self.assertIn("| 0 | 1 | 2 | 3 |", said["fsdp"])

    def test_several_processes_find_the_line_of_one(self):
        """In C and by ctypes; the numbers are those that the data was made of."""
        alone = self.run_it("several_processes")
        slope, offset = map(float, re.fullmatch(r"y = (\S+) x (\S+), found by 1\n", alone).groups())
        self.assertAlmostEqual(1.7, slope, delta=0.01)
        self.assertAlmostEqual(-0.4, offset, delta=0.01)
        by_ctypes = [sys.executable, os.path.join(EXAMPLES, "python", "several_processes.py"), "--library", os.environ["WEFT_LIB"]]
        for command in ([os.path.join(self.work, "several_processes")], by_ctypes):
            for count in (2, 4):
                done = subprocess.run([os.path.join(BUILD, "bin", "weft"), "launch", "-n", str(count), "--", *command],
                                      capture_output=True, text=True, timeout=120, cwd=self.work, env=self.env)
                self.assertEqual(0, done.returncode, done.stdout + done.stderr)
                self.assertEqual(alone.replace("by 1", f"by {count}"), done.stdout.partition("] ")[2])

    def test_the_line_is_found_and_drawn(self):
        slope, offset, error = map(float, re.fullmatch(r"y = (\S+) x (\S+) after 120 steps, mean squared error (\S+)\n",
                                                       self.run_it("linear_fit", "--svg", "line.svg")).groups())
        self.assertAlmostEqual(1.7, slope, delta=0.1)
        self.assertAlmostEqual(-0.4, offset, delta=0.06)
        self.assertLess(error, 0.11)  # the noise has a variance of 0.09
        svg = self.read("line.svg").decode()
        self.assertEqual(200, svg.count("<circle"))
        with open(os.path.join(EXAMPLES, "images", "linear_fit.svg"), encoding="utf-8") as handle:
            self.assertEqual(self.dots(handle.read()), self.dots(svg), "the picture that is shown is another")
        self.assertIn("No such file", self.run_it("linear_fit", "--svg", "no/folder/line.svg", code=1))

    def dots(self, svg):
        return re.findall(r"<circle.*?/>", svg)

    def test_spirals_go_on_with_the_same_bits(self):
        whole = self.run_it("spirals", "--checkpoint", "whole.weft", "--svg", "whole.svg").splitlines()
        self.assertLess(float(whole[-1].split()[-1]), 0.05)
        first = self.run_it("spirals", "--steps", "300", "--checkpoint", "half.weft").splitlines()
        second = self.run_it("spirals", "--resume", "--checkpoint", "half.weft", "--svg", "resumed.svg").splitlines()
        self.assertEqual(whole, first + second)
        self.assertEqual(self.read("whole.svg"), self.read("resumed.svg"))
        again = self.run_it("spirals", "--steps", "300", "--checkpoint", "half.weft").splitlines()
        self.assertEqual(first, again)
        self.assertIn("nothing.weft", self.run_it("spirals", "--resume", "--checkpoint", "nothing.weft", code=1))

    def test_characters_are_learned_and_drawn(self):
        text = os.path.join(SOURCE, "LICENSE")
        said = self.run_it("characters", text, "--steps", "150", "--length", "300")
        bits = [float(x) for x in re.findall(r"step \d+: (\S+) bits", said)]
        self.assertEqual(3, len(bits))
        self.assertLess(bits[-1], 2.2)  # a character of nothing but frequencies takes 4.4
        written = said.split("\n\n", 1)[1]
        self.assertEqual(301, len(written))
        with open(text, encoding="utf-8") as handle:
            words = set(handle.read().split())
        found = written.split()
        self.assertGreater(sum(word in words for word in found), len(found) / 3, written)
        hot = self.run_it("characters", text, "--steps", "150", "--length", "300", "--temperature", "5").split("\n\n", 1)[1]
        self.assertLess(sum(word in words for word in hot.split()), len(found) / 3, "so hot that hardly a word is one")
        self.assertIn("too short", self.run_it("characters", os.devnull, code=1))

    def test_pictures_are_blurred_and_have_edges(self):
        self.run_it("image_filter", "--out", "drawn.ppm")
        header, data = self.read("drawn.ppm")[:15], self.read("drawn.ppm")[15:]
        self.assertEqual((b"P6\n360 120\n255\n", 360 * 120 * 3), (header, len(data)))
        value = lambda y, x, c=0: data[3 * (360 * y + x) + c]
        rough = [sum(abs(value(y, x + 1, 2) - value(y, x, 2)) for y in range(5, 20) for x in range(left + 80, left + 110)) for left in (0, 120)]
        self.assertLess(rough[1], rough[0] / 5)
        self.assertLess(value(44, 240 + 12), 60)   # on the disc's left edge
        self.assertGreater(value(44, 240 + 42), 220)  # within it
        # A picture of one colour: blurred it stays, and there is no edge.
        with open(self.path("flat.ppm"), "wb") as out:
            out.write(b"P6\n20 10\n255\n" + bytes((10, 200, 30)) * 200)
        self.run_it("image_filter", "flat.ppm", "--out", "filtered.ppm")
        flat = self.read("filtered.ppm")
        self.assertEqual(b"P6\n36 2\n255\n" + (bytes((10, 200, 30)) * 24 + bytes((255, 255, 255)) * 12) * 2, flat)
        with open(self.path("short.ppm"), "wb") as out:
            out.write(b"P6\n20 10\n255\n123")
        self.assertIn("ends too early", self.run_it("image_filter", "short.ppm", "--out", "x.ppm", code=1))

    def test_the_server_answers_everybody_and_compiles_nothing(self):
        said = self.run_it("inference_server", "--clients", "20", "--requests", "100")
        self.assertRegex(said, r"^2000 requests in \S+ s, (\d+) batches, \d+ rows of padding\n")
        self.assertGreaterEqual(int(re.search(r"(\d+) batches", said).group(1)), 2000 // 20)
        median, most = re.search(r"median (\d+) us, .* at most (\d+) us", said).groups()
        self.assertLessEqual(int(median), int(most))
        self.assertIn("compiled while serving: 0\n", said)

    def test_training_from_dlopen_alone(self):
        needed = subprocess.run(["readelf", "-dW", self.path("dlopen_training")], capture_output=True, text=True, check=True).stdout
        self.assertIn("libc.so.6", needed)
        self.assertNotIn("weft", needed)
        said = self.run_it("dlopen_training", "--library", os.environ["WEFT_LIB"])
        losses = [float(line.split()[-1]) for line in said.splitlines()]
        self.assertEqual(4, len(losses))
        self.assertLess(losses[-1], 0.001)
        self.assertIn("no/library.so", self.run_it("dlopen_training", "--library", "no/library.so", code=1))

    def test_numpy_there_and_back(self):
        python, reason = python_env.python_with("numpy", ["numpy"])
        if python is None:
            self.skipTest(reason)
        program = os.path.join(EXAMPLES, "python", "dlpack_numpy.py")
        done = subprocess.run([python, program, "--library", os.environ["WEFT_LIB"]], capture_output=True, text=True, timeout=120, env=self.env)
        self.assertEqual((0, ""), (done.returncode, done.stderr), done.stdout)
        self.assertIn("the same memory, True\n", done.stdout)
        self.assertIn("arrives as it looks: True\n", done.stdout)
        wrong = subprocess.run([python, program, "--bad"], capture_output=True, text=True)
        self.assertEqual(2, wrong.returncode)

    def test_the_index_has_every_example(self):
        with open(os.path.join(EXAMPLES, "README.md"), encoding="utf-8") as handle:
            index = handle.read()
        for folder in ("c", "python", "stablehlo"):
            for name in os.listdir(os.path.join(EXAMPLES, folder)):
                if not name.startswith("__"):
                    self.assertIn(f"({folder}/{name})", index)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
