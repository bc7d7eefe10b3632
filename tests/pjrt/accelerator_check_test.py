"""scripts/accelerator-check on a real XLA:CPU plugin, sampled: what it says when all is well, when the plugin dies, and when it is none."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
BUILD = pathlib.Path(os.environ["WEFT_BUILD"])
sys.path.insert(0, str(SOURCE / "tests" / "support"))
sys.path.insert(0, str(SOURCE / "tests" / "oracle"))
import oracle_test  # noqa: E402
from xla_cpu import enter, plugin  # noqa: E402


class AcceleratorCheck(unittest.TestCase):
    def run_it(self, *options, **more):
        return subprocess.run([sys.executable, str(SOURCE / "scripts" / "accelerator-check"), "--build", str(BUILD), *options],
                              env=dict(os.environ, **more), capture_output=True, text=True, timeout=300)

    def test_all_is_well(self):
        done = self.run_it("--plugin", plugin(), "--sample", "100", WEFT_PLUGIN_OPTIONS="cpu_device_count=2")
        found = json.loads(done.stdout)
        operations = found["operations"]
        for name in operations["different"]:  # what this plugin is known for may be among the sampled
            self.assertTrue(oracle_test.excuse(name), f"{name}: {operations['different'][name]}")
        known = len(operations["different"])
        self.assertEqual(f"operations: {known} different" if known else "ok", found["verdict"], done.stderr)
        self.assertEqual(1 if known else 0, done.returncode)
        self.assertEqual(["device", "training", "timing", "operations", "seconds", "verdict"], list(found))
        self.assertEqual(["pjrt:0", "pjrt:1"], found["device"]["devices"])
        self.assertEqual(["mlp", "block-small"], list(found["training"]))
        for row in found["training"].values():
            self.assertLess(row["largest_difference"], 1e-4)
            self.assertLess(row["losses_there"][-1], row["losses_there"][0])
        self.assertGreater(found["timing"]["mlp, highest"]["step_ms"], 0)
        self.assertGreater(operations["ran"], 30)
        self.assertEqual(operations["programs"], operations["ran"])
        self.assertEqual(operations["ran"], operations["equal"] + len(operations["refused"]) + known)
        self.assertIn(f"{operations['equal']} programs of {operations['ran']} equal", done.stderr)

    def test_a_plugin_that_dies_is_found_out_and_the_rest_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            listener, result = os.path.join(folder, "listener.so"), os.path.join(folder, "result.json")
            subprocess.run(["cc", "-O1", "-shared", "-fPIC", str(SOURCE / "tests" / "pjrt" / "listener.c"), "-o", listener], check=True)
            done = self.run_it("--plugin", listener, "--sample", "150", "--json", result, WEFT_LISTEN_TO=plugin(), WEFT_LISTEN_DIE="f16>")
            self.assertEqual((1, ""), (done.returncode, done.stdout), done.stderr)
            with open(result, encoding="utf-8") as file:
                found = json.load(file)
            self.assertNotIn("error", found["training"]["mlp"])
            died = found["operations"]["died"]
            self.assertTrue(died, found["operations"])
            for said in died.values():
                self.assertIn("the process ended with SIGABRT", said)
            self.assertGreater(found["operations"]["equal"], 10)
            self.assertIn(f"operations: {len(died)} died", found["verdict"])

    def test_what_is_wrong_is_said(self):
        def refused(code, text, *options, **more):
            done = self.run_it(*options, **more)
            self.assertEqual((code, ""), (done.returncode, done.stdout))
            self.assertIn(text, done.stderr)

        refused(2, "the following arguments are required: --plugin")
        refused(2, "--minutes and --sample are numbers above 0", "--plugin", "x", "--minutes", "0")
        refused(1, "plugin '/nowhere' cannot be opened: No such file or directory", "--plugin", "/nowhere")
        refused(1, "lib/libweft.so.1 is missing: build the tree first", "--plugin", "/nowhere", "--build", "/nowhere")
        done = self.run_it("--help")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        for word in ("--plugin", "--minutes", "--sample", "--json", "verdict"):
            self.assertIn(word, done.stdout)


if __name__ == "__main__":
    enter(__file__)
    unittest.main(argv=sys.argv[:1], verbosity=2)
