"""What is generated is up to date: headers and bodies follow from api.json and ops.json, ops.json from the operation table."""
import json
import os
import re
import subprocess
import sys
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
BUILD = os.environ["WEFT_BUILD"]
GENERATOR = os.path.join(SOURCE, "include", "c_api", "generate.py")
sys.path.insert(0, os.path.dirname(GENERATOR))


class Generated(unittest.TestCase):
    def test_files_are_what_the_description_says(self):
        done = subprocess.run([sys.executable, GENERATOR, "--check"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(0, done.returncode, done.stdout)

    def test_ops_json_is_what_the_operation_table_says(self):
        opdump = os.path.join(BUILD, "bin", "opdump")
        if not os.path.exists(opdump):
            self.skipTest("the program opdump is not built")
        said = subprocess.run([opdump], stdout=subprocess.PIPE, text=True, check=True).stdout
        with open(os.path.join(SOURCE, "include", "c_api", "ops.json"), encoding="utf-8") as f:
            self.assertEqual(f.read(), said, "run build/…/bin/opdump > include/c_api/ops.json, then generate.py")

    def test_no_declared_function_is_without_a_body(self):
        with open(os.path.join(SOURCE, "src", "c_api", "generated", "absent.cc"), encoding="utf-8") as f:
            self.assertNotIn("Unimplemented(", f.read())

    def test_every_function_of_the_core_is_called_by_a_plain_c_test(self):
        from generator import model
        folder = os.path.dirname(GENERATOR)
        api = model.load(os.path.join(folder, "api.json"), os.path.join(folder, "ops.json"))
        tests = ""
        here = os.path.join(SOURCE, "tests", "c_api")
        for name in os.listdir(here):
            if name.endswith((".c", ".h", ".py")):
                with open(os.path.join(here, name), encoding="utf-8") as f:
                    tests += f.read()
        with open(os.path.join(folder, "weft_fluent.h"), encoding="utf-8") as f:
            tests += f.read()  # wf_keep, wf_end and others call through
        missing = [f["name"] for f in api.functions if not re.search(r'\b%s["(]' % f["name"], tests)]  # C calls, Python looks up
        self.assertEqual([], missing)

    def test_every_operation_has_bad_input_with_a_tested_text(self):
        with open(os.path.join(SOURCE, "include", "c_api", "ops.json"), encoding="utf-8") as f:
            names = [op["c_name"] for op in json.load(f)["ops"] if op["exported"]]
        tests = ""
        for name in ("bad_input.c", "bad_input_families.c"):
            with open(os.path.join(SOURCE, "tests", "c_api", name), encoding="utf-8") as f:
                tests += f.read()
        missing = [n for n in names if not re.search(r"\b(weft_|wf_|PAIR\(|FLOATS\()%s\b" % n, tests)]
        self.assertEqual([], missing, "say in tests/c_api/bad_input_families.c what a wrong call is answered")

    def test_an_operation_may_not_take_a_name_of_the_fluent_layer(self):
        from generator import fluent

        class Named:
            def __init__(self, c_name):
                self.c_name = c_name
        for name, text in (("own", "operation own would define wf_own_at, which the fluent layer itself defines"),
                           ("keep", "operation keep would define wf_keep, which the fluent layer itself defines"),
                           ("scope", "operation scope would define wf_scope, which the fluent layer itself defines")):
            with self.assertRaises(AssertionError) as raised:
                fluent.check_names([Named("add"), Named(name)])
            self.assertEqual(text, str(raised.exception))
        with self.assertRaises(AssertionError):
            fluent.check_names([Named("take"), Named("take_at")])
        fluent.check_names([Named("take"), Named("add")])


if __name__ == "__main__":
    unittest.main()
