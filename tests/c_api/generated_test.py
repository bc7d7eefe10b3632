"""What is generated is up to date: headers and bodies follow from api.json and ops.json, ops.json from the operation table."""
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
BUILD = os.environ["WEFT_BUILD"]
GENERATOR, HEADERS = os.path.join(SOURCE, "bindings", "generate"), os.path.join(SOURCE, "include", "c_api")
sys.path.insert(0, GENERATOR)


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
            self.assertEqual(f.read(), said, "run build/…/bin/opdump > include/c_api/ops.json, then python3 bindings/generate")

    def test_the_build_s_files_are_what_the_description_says(self):
        from generator import outputs
        made = outputs.built()
        self.assertGreater(len(made), 20)
        self.assertEqual([], outputs.differing(os.path.join(BUILD, "generated"), made))

    def test_every_function_of_the_core_is_called_by_a_plain_c_test(self):
        from generator import model
        api = model.load(os.path.join(GENERATOR, "api.json"), os.path.join(SOURCE, "include", "c_api", "ops.json"))
        tests = ""
        here = os.path.join(SOURCE, "tests", "c_api")
        for name in os.listdir(here):
            if name.endswith((".c", ".h", ".py")):
                with open(os.path.join(here, name), encoding="utf-8") as f:
                    tests += f.read()
        with open(os.path.join(HEADERS, "weft_fluent.h"), encoding="utf-8") as f:
            tests += f.read()  # wf_keep, wf_end and others call through
        missing = [f["name"] for f in api.functions if not re.search(r'\b%s["(]' % f["name"], tests)]  # C calls, Python looks up
        self.assertEqual([], missing)

    def test_the_example_of_every_operation_compiles(self):
        with open(os.path.join(SOURCE, "include", "c_api", "ops.json"), encoding="utf-8") as f:
            ops = [op for op in json.load(f)["ops"] if op["exported"]]
        text = '#include "weft.h"\n#include "weft_fluent.h"\n'
        for op in ops:
            self.assertTrue(op["example"], op["c_name"])
            code = re.sub(r"/\*.*?\*/", "", op["example"])
            declared = set(re.findall(r"(\w+)\[\]", code))
            for names in re.findall(r"weft_tensor ?\*([^=;]*?)(?:;|=)", code):
                declared |= set(re.findall(r"\w+", names))
            words = set(re.findall(r"(?<![.\w])[a-z]\w*", code)) - {"const", "int64_t", "weft_tensor", "s"} - declared
            tensors = sorted(w for w in words if not w.startswith(("wf_", "weft_")))
            text += "void example_%s(wf_scope* s%s) {\n%s\n}\n" % (
                op["c_name"], "".join(", weft_tensor* " + t for t in tensors), op["example"])
        with tempfile.TemporaryDirectory() as work:
            path = os.path.join(work, "examples.c")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            done = subprocess.run(["cc", "-std=c99", "-fsyntax-only", "-I", HEADERS, path],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(0, done.returncode, done.stdout[:5000])

    def test_every_options_struct_is_emptied_by_its_init_function(self):
        from generator import model
        api = model.load(os.path.join(GENERATOR, "api.json"), os.path.join(SOURCE, "include", "c_api", "ops.json"))
        sizes = {}
        with open(os.path.join(BUILD, "generated", "tests", "abi", "golden", "layout.txt"), encoding="utf-8") as f:
            for line in f:
                if line.startswith("size "):
                    sizes[line.split()[1]] = int(line.split()[2])
        library = ctypes.CDLL(os.environ["WEFT_LIB"])
        structs = api.versioned_structs()
        self.assertGreater(len(structs), 10)
        for struct in structs:
            size = sizes[struct["name"]]
            init = getattr(library, struct["name"] + "_init")
            memory = (ctypes.c_ubyte * (size + 8))(*[0xAB] * (size + 8))
            init(ctypes.byref(memory), ctypes.c_size_t(size))
            want = size.to_bytes(8, "little") + bytes(size - 8) + b"\xab" * 8
            self.assertEqual(want, bytes(memory), struct["name"])
            init(ctypes.byref(memory), ctypes.c_size_t(16))  # the smaller struct of an older program
            self.assertEqual((16).to_bytes(8, "little") + bytes(size - 8) + b"\xab" * 8, bytes(memory), struct["name"])
            init(None, ctypes.c_size_t(size))  # ignored

    def test_every_operation_has_bad_input_with_a_tested_text(self):
        with open(os.path.join(SOURCE, "include", "c_api", "ops.json"), encoding="utf-8") as f:
            names = [op["c_name"] for op in json.load(f)["ops"] if op["exported"]]
        tests = ""
        for name in ("bad_input.c", "bad_input_families.c"):
            with open(os.path.join(SOURCE, "tests", "c_api", name), encoding="utf-8") as f:
                tests += f.read()
        missing = [n for n in names if not re.search(r"\b(weft_|wf_|PAIR\(|FLOATS\(|COMPLEX_TOO\()%s\b" % n, tests)]
        self.assertEqual([], missing, "say in tests/c_api/bad_input_families.c what a wrong call is answered")

    def test_an_operation_may_not_take_a_name_of_the_fluent_layer(self):
        from generator import fluent

        class Named:
            def __init__(self, c_name, takes_number=False):
                self.c_name, self.takes_number = c_name, takes_number
        for name, text in (("own", "operation own would define wf_own_at, which the fluent layer itself defines"),
                           ("keep", "operation keep would define wf_keep, which the fluent layer itself defines"),
                           ("scope", "operation scope would define wf_scope, which the fluent layer itself defines")):
            with self.assertRaises(AssertionError) as raised:
                fluent.check_names([Named("add"), Named(name)])
            self.assertEqual(text, str(raised.exception))
        with self.assertRaises(AssertionError):
            fluent.check_names([Named("take"), Named("take_at")])
        with self.assertRaises(AssertionError):
            fluent.check_names([Named("take", takes_number=True), Named("take_n")])
        fluent.check_names([Named("take"), Named("add")])


if __name__ == "__main__":
    unittest.main()
