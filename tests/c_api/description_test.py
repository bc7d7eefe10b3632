"""weft_api.json, the complete description: it has the form that its schema says, hangs together, is what the library gives
out, and is all that the generators need."""
import copy
import ctypes
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import python_env  # noqa: E402

SOURCE = os.environ["WEFT_SOURCE"]
FOLDER = os.path.join(SOURCE, "include", "c_api")
PATH = os.path.join(FOLDER, "weft_api.json")
JSONSCHEMA = "jsonschema==4.26.0"
# int32_t that is a number; every other one is a truth value or reserved.
NUMBERS = {"out_type", "out_id", "out_fd", "fd", "line", "min_log_level", "durable", "rank", "size", "local_rank", "local_size", "incarnation", "root", "separator", "group"}


def text_of(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def schema_objects(schema):
    """Every part of a schema that describes objects."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for value in schema.values():
            yield from schema_objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from schema_objects(value)


class Form(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import jsonschema
        cls.schema = json.loads(text_of(os.path.join(FOLDER, "weft_api.schema.json")))
        jsonschema.Draft202012Validator.check_schema(cls.schema)
        cls.validator = jsonschema.Draft202012Validator(cls.schema)
        cls.description = json.loads(text_of(PATH))

    def wrong(self, description):
        """The first that is wrong, or nothing."""
        return next(("%s: %s" % (e.json_path, e.message[:500]) for e in self.validator.iter_errors(description)), "")

    def test_is_what_the_schema_says(self):
        self.assertEqual("", self.wrong(self.description))

    def test_the_schema_allows_nothing_that_it_does_not_name(self):
        found = list(schema_objects(self.schema))
        self.assertGreater(len(found), 30)
        for part in found:
            self.assertIs(False, part.get("additionalProperties"), part.get("description"))
            self.assertLessEqual(set(part["required"]), set(part["properties"]), part.get("description"))

    def test_a_missing_key_a_strange_one_and_a_wrong_type_are_seen(self):
        for change in (lambda d: d["functions"][0].pop("blocking"), lambda d: d["functions"][0].update(since=1),
                       lambda d: d["structs"][0]["fields"][0].update(note=""), lambda d: d["dtypes"][0].update(name="F32"),
                       lambda d: d["types"]["const char*"].pop("to"), lambda d: d["operations"][3].pop("operands"),
                       lambda d: d["functions"][5]["params"][0].update(role="thing")):
            changed = copy.deepcopy(self.description)
            change(changed)
            self.assertTrue(self.wrong(changed))


class Sense(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = json.loads(text_of(PATH))
        cls.functions = {f["name"]: f for f in cls.d["functions"]}
        cls.callbacks = {c["name"]: c for c in cls.d["callbacks"]}
        cls.structs = {s["name"]: s for s in cls.d["structs"]}

    def members(self):
        """(where, members that stand beside each other)"""
        for kind, key in (("functions", "params"), ("callbacks", "params"), ("structs", "fields")):
            for entry in self.d[kind]:
                yield entry["name"], entry[key]

    def test_every_name_that_is_said_exists(self):
        d, bad = self.d, []
        for where, members in self.members():
            names = {m["name"] for m in members}
            for m in members:
                length = m.get("length", {})
                said = set(m.get("of", [])) | ({length["param"]} if length else set()) | ({length["full"]} if "full" in length else set())
                bad += ["%s.%s: %s" % (where, m["name"], n) for n in said - names]
                bad += ["%s.%s: type %s" % (where, m["name"], m["type"])] if m["type"] not in d["types"] else []
                lender = m.get("lent", {}).get("by", "caller")
                bad += ["%s.%s: lent by %s" % (where, m["name"], lender)] if lender not in names | {"caller", "library"} else []
        for h in d["handles"]:
            bad += [h["name"]] if h["release"] not in self.functions or (h["retain"] or h["release"]) not in self.functions else []
            bad += [h["name"]] if h["parent"] not in [None] + [x["name"] for x in d["handles"]] else []
        codes = {v["name"] for e in d["enums"] if e["name"] == "weft_code" for v in e["values"]}
        bad += [(f["name"], e) for f in d["functions"] for e in f["errors"]["codes"] if "WEFT_" + e not in codes]
        headers = {h["name"] for h in d["headers"]}
        for kind in ("constants", "handles", "enums", "callbacks", "structs", "functions", "opaque"):
            bad += [x["name"] for x in d[kind] if x["header"] not in headers]
        bad += [(name, t["to"]) for name, t in d["types"].items() if t["kind"] == "pointer" and t["to"] not in d["types"]]
        self.assertEqual([], bad)

    def test_every_pointer_says_what_it_is_for_and_how_long(self):
        bad = []
        for where, members in self.members():
            for m in members:
                out = m.get("direction") == "out"
                if m["role"] in ("list", "bytes", "variant") and "length" not in m:
                    bad.append((where, m["name"], "has no length"))
                if m["role"] in ("text", "bytes") and out and m["type"].startswith("const") and "lent" not in m:
                    bad.append((where, m["name"], "is borrowed from nobody"))
                if m["role"] == "handle" and "ownership" not in m:
                    bad.append((where, m["name"], "is owned by nobody"))
                if m["role"] in ("length", "count", "capacity") and not m.get("of"):
                    bad.append((where, m["name"], "measures nothing"))
                if m["type"].rstrip("*") == "int32_t" and m["role"] == "value" and m["name"] not in NUMBERS:
                    bad.append((where, m["name"], "is it a truth value?"))
                at_once = m["role"] == "callback" and self.callbacks[m["type"]]["thread"] == "call"
                if m["role"] == "callback" and not at_once and not [x for x in members if m["name"] in x.get("of", []) and x["role"] == "release"]:
                    bad.append((where, m["name"], "has no release"))
        for f in self.d["functions"]:
            if f["returns"]["role"] in ("text", "bytes", "table", "function") and "lent" not in f["returns"]:
                bad.append((f["name"], "returns what is borrowed from nobody"))
        self.assertEqual([], bad)

    def test_operations_fit_their_functions_and_structs(self):
        dtypes = {t["name"] for t in self.d["dtypes"] if t["computable"]}
        enums = {e["name"]: [v["name"] for v in e["values"]] for e in self.d["enums"]}
        for op in self.d["operations"]:
            params = [p["name"] for p in self.functions[op["function"]]["params"]]
            fields = [f["name"] for f in self.structs[op["opts"]]["fields"]] if op["opts"] else []
            want = ["ctx"] + [n for x in op["operands"] for n in (x["param"], x["count"]) if n]
            for a in op["attributes"]:
                place = params if a["place"] == "param" else fields
                self.assertIn(a["member"], place, (op["c_name"], a["name"]))
                self.assertIn(a["length"], place + [None])
                self.assertEqual(a["required"], a["place"] == "param")
                self.assertEqual([e["enumerator"] for e in a["enumerators"]], enums.get(a["enum"], []))
                self.check_default(op, a, dtypes)
                want += [n for n in (a["member"], a["length"]) if n] if a["place"] == "param" else []
            want += (["opts"] if op["opts"] else []) + [r["param"] for r in op["results"]]
            self.assertEqual(want, params, op["c_name"])
            for x in op["operands"]:
                self.assertTrue(x["dtypes"] and set(x["dtypes"]) <= dtypes, (op["c_name"], x))

    def check_default(self, op, a, dtypes):
        value = a["default"]
        if value is None:
            return
        self.assertFalse(a["required"])
        fits = {"int": type(value) is int, "double": type(value) in (int, float), "bool": type(value) is bool,
                "ints": isinstance(value, list), "doubles": isinstance(value, list), "string": isinstance(value, str),
                "dtype": value in dtypes if isinstance(value, str) else False,
                "enum": value in [e["text"] for e in a["enumerators"]]}[a["type"]]
        self.assertTrue(fits, (op["c_name"], a["name"], value))


# Core functions that give tensors and record nothing: operations by name, handles that exist, reads of files and of other processes.
NOT_RECORDED = set("""weft_scope_keep weft_op_apply weft_op_apply_on weft_op_apply_in weft_op_apply_many weft_function_begin
weft_function_captures weft_function_run weft_tree_get_tensor weft_checkpoint_reader_load weft_checkpoint_reader_load_as
weft_checkpoint_reader_load_box weft_checkpoint_reader_load_sharded weft_checkpoint_reader_load_many weft_idx_read weft_loader_next weft_job_all_reduce weft_job_all_gather
weft_job_reduce_scatter weft_job_all_to_all weft_job_broadcast""".split())


class Recorded(unittest.TestCase):
    def test_core_functions_that_record_tensors_say_what_operations_say(self):
        d = json.loads(text_of(PATH))
        gives = {f["name"]: f["recorded"] for f in d["functions"] if f["kind"] == "core" and any(
            p["type"] == "weft_tensor**" and p.get("direction") == "out" for p in f["params"])}
        self.assertEqual(NOT_RECORDED, {name for name, said in gives.items() if said is None})
        self.assertGreaterEqual(len(gives) - len(NOT_RECORDED), 36)
        for f in d["functions"]:
            self.assertFalse(f["recorded"] and f["kind"] != "core", f["name"])


class Use(unittest.TestCase):
    def test_the_library_gives_this_text_out(self):
        function = getattr(ctypes.CDLL(os.environ["WEFT_LIB"]), "weft_api_json")
        function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        length = ctypes.c_size_t()
        at = function(ctypes.byref(length))
        self.assertEqual(text_of(PATH).encode(), ctypes.string_at(at, length.value))
        self.assertEqual(length.value, len(ctypes.string_at(at)))  # NUL-terminated
        self.assertEqual(at, function(None))
        self.assertLess(length.value, 2100 * 1000)  # some 3,700 bytes an operation and 1,000 each further function

    def test_threads_that_come_first_together_get_one_text(self):
        """Nobody waits for another thread, which a forked child would not have; a process of its own, whose first calls these are."""
        program = (
            "import ctypes, os, threading\n"
            "function = ctypes.CDLL(os.environ['WEFT_LIB']).weft_api_json\n"
            "function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p]\n"
            "together, got = threading.Barrier(8), []\n"
            "def call():\n"
            "    length = ctypes.c_size_t()\n"
            "    together.wait()\n"
            "    at = function(ctypes.byref(length))\n"
            "    got.append((at, length.value, hash(ctypes.string_at(at))))\n"
            "threads = [threading.Thread(target=call) for _ in range(8)]\n"
            "for thread in threads: thread.start()\n"
            "for thread in threads: thread.join()\n"
            "assert len(got) == 8 and len(set(got)) == 1, got\n"
            "print(got[0][1])\n")
        for _ in range(5):
            said = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
            self.assertEqual(len(text_of(PATH).encode()), int(said))

    def test_everything_follows_from_this_text_alone(self):
        sys.path.insert(0, os.path.join(SOURCE, "bindings", "generate"))
        from generator import model, outputs
        for path, text in outputs.derived(model.load_description(PATH)).items():
            home = SOURCE if outputs.is_committed(path) else os.path.join(os.environ["WEFT_BUILD"], "generated")
            self.assertEqual(text_of(os.path.join(home, path)), text, path)


if __name__ == "__main__":
    python, reason = python_env.python_with("jsonschema", [JSONSCHEMA])
    if python is None:
        sys.exit(reason)
    python_env.enter("jsonschema", [JSONSCHEMA], os.path.abspath(__file__))
    unittest.main()
