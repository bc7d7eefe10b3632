"""The scripts from any folder: they parse, explain themselves, and answer wrong options with their usage instead of starting to work."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import durations  # noqa: E402

SOURCE = os.environ["WEFT_SOURCE"]
SCRIPTS = [os.path.join(SOURCE, "scripts", name) for name in sorted(os.listdir(os.path.join(SOURCE, "scripts")))]
SCRIPTS = [path for path in SCRIPTS if os.path.isfile(path)] + [os.path.join(SOURCE, "benchmarks", "peers", "peers")]


class Scripts(unittest.TestCase):
    def run_it(self, *command, **more):
        with tempfile.TemporaryDirectory(prefix="a b ") as elsewhere:
            done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, timeout=60, env=dict(os.environ, **more))
            self.assertEqual([], os.listdir(elsewhere), command)
        return done

    def test_they_are_there_and_parse(self):
        self.assertGreaterEqual({os.path.basename(path) for path in SCRIPTS}, {"demo", "test", "install-deps", "generate", "format", "peers"})
        for path in SCRIPTS:
            with open(path, encoding="utf-8") as file:
                python = file.readline() == "#!/usr/bin/env python3\n"
            parse = [sys.executable, "-c", "import ast, sys; ast.parse(open(sys.argv[1], encoding='utf-8').read())"]
            done = self.run_it(*(parse if python else ["bash", "-n"]), path)
            self.assertEqual((0, ""), (done.returncode, done.stderr), path)

    def test_help_is_printed_and_nothing_else_happens(self):
        for path in SCRIPTS:
            for option in ("--help", "-h"):
                done = self.run_it(path, option)
                self.assertEqual((0, ""), (done.returncode, done.stderr), path)
                self.assertIn("usage", done.stdout, path)

    def test_wrong_options_are_answered_with_the_usage(self):
        wrong = {path: [["--nonsense"], ["nonsense"]] for path in SCRIPTS}
        scripts = {os.path.basename(path): path for path in SCRIPTS[:-1]}
        wrong[scripts["demo"]] += [["--epochs"], ["--epochs", "0"], ["--epochs", "many"], ["--epochs=2.5"], ["--device"], ["--floor"],
                                   ["--floor", "high"], ["--keep"]]
        wrong[scripts["test"]] += [["--only"], ["--only", "release,lint"], ["--only", ""], ["--full", "--only", "slow"], ["--record="]]
        wrong[scripts["install-deps"]] += [["--variant"]]
        wrong[SCRIPTS[-1]] += [["--seconds"], ["--keep"], ["--only", "all"]]
        for path, cases in wrong.items():
            for options in cases:
                with self.subTest(script=path, options=options):
                    done = self.run_it(path, *options)
                    self.assertEqual((2, ""), (done.returncode, done.stdout), done.stderr)
                    self.assertIn("usage", done.stderr)
                    self.assertNotIn("unbound", done.stderr)

    def test_every_stage_of_the_tests_has_a_function_and_a_row_of_its_last_minutes(self):
        with open(os.path.join(SOURCE, "scripts", "test"), encoding="utf-8") as file:
            script = file.read()
        stages = [name for group in ("short", "long") for name in re.search(rf"^{group}=\((.*)\)$", script, re.MULTILINE)[1].split()]
        self.assertGreaterEqual(len(stages), 9)
        with open(os.path.join(SOURCE, "docs", "testing.md"), encoding="utf-8") as file:
            rows = re.findall(r"^\| `(\w+)` \|", file.read(), re.MULTILINE)
        self.assertEqual(stages, rows)
        for stage in stages:
            self.assertRegex(script, rf"(?m)^stage_{stage}\(\)")
            self.assertRegex(self.run_it(os.path.join(SOURCE, "scripts", "test"), "--help").stdout, rf"\b{stage}\b")

    def test_a_stage_that_grew_by_more_than_a_tenth_says_so(self):
        table = "| stage | what | minutes | last |\n| `deps` | x | 1.0 | ok |\n| `release` | y |  |  |\n| `asan` | z | 10.0 | ok |\n"
        self.assertEqual([], durations.grown(table, {"deps": 1.15, "release": 99.0, "asan": 10.9, "train": 5.0}))
        self.assertEqual(["asan grew from 10.0 to 11.2 minutes"], durations.grown(table, {"asan": 11.2}))
        changed = durations.record(table, {"release": (3.25, "ok: 5 passed")})
        self.assertEqual({"deps": 1.0, "release": 3.2, "asan": 10.0}, durations.stored(changed))
        self.assertIn("| `release` | y | 3.2 | ok: 5 passed |\n", changed)
        with self.assertRaises(SystemExit):
            durations.record(table, {"nonsense": (1.0, "")})

    def test_the_place_of_dependencies_may_hold_spaces_and_is_absolute(self):
        install = os.path.join(SOURCE, "scripts", "install-deps")
        done = self.run_it(install, "--print-prefix", WEFT_DEPS_CACHE="/some where/else")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertTrue(done.stdout.startswith("/some where/else/default-"), done.stdout)
        done = self.run_it(install, "--print-prefix", WEFT_DEPS_CACHE="here")
        self.assertEqual((1, "install-deps: the cache of dependencies must be an absolute path, not 'here'"), (done.returncode, done.stderr.strip()))
        done = self.run_it(install, "--print-prefix", "--variant", "fast")
        self.assertEqual((1, "install-deps: unknown variant 'fast' (default, asan and tsan exist)"), (done.returncode, done.stderr.strip()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
