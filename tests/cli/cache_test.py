"""`weft cache` and `weft show` on functions, programs and cache entries: a cache that programs of this test filled."""
import hmac
import json
import os
import subprocess
import tempfile
import unittest

PROGRAM = os.path.join(os.environ["WEFT_BUILD"], "bin", "weft")
TEXT = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{\n  %0 = stablehlo.{} %a, %a : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}}\n"
HEAD = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }".ljust(117) + b"\n"


class Cache(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = work.name
        with open(self.path("a.npy"), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + len(HEAD).to_bytes(2, "little") + HEAD + b"\0\0\x80\x3f" * 4)

    def path(self, *names):
        return os.path.join(self.work, *names)

    def weft(self, *words, status=0, **env):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=120, check=False, cwd=self.work, env=dict(clean, **env))
        self.assertEqual(status, done.returncode, done.stdout + done.stderr)
        return json.loads(done.stdout) if "--json" in words and done.stdout else done.stdout + done.stderr

    def run_program(self, operation, cache, **env):
        with open(self.path("p.mlir"), "w", encoding="ascii") as file:
            file.write(TEXT.format(operation))
        return self.weft("run", "p.mlir", "--input", "a.npy", WEFT_CACHE_DIR=cache, **env)

    def cache(self, *words, status=0):
        return self.weft("cache", *words, "--dir", self.path("cache"), "--json", status=status)

    def test_lists_and_explains(self):
        self.assertEqual("none", self.cache("path")["folders"][0]["use"])
        self.assertFalse(os.path.exists(self.path("cache")))  # who only looks makes nothing
        self.run_program("add", self.path("cache"))
        first = self.cache("ls")["entries"]
        self.assertEqual(("cpu", 1), (first[0]["backend"], len(first)))
        self.assertGreater(first[0]["bytes"], 100)
        self.assertEqual([], self.cache("explain", first[0]["name"])["differences"])
        self.run_program("multiply", self.path("cache"))
        self.run_program("add", self.path("cache"), WEFT_ISA="portable")
        names = [entry["name"] for entry in self.cache("ls")["entries"]]
        other, isa = (name for name in sorted(names, key=lambda n: self.created(n)) if name != first[0]["name"])
        self.assertEqual(names[0], self.cache("explain")["name"])
        said = self.cache("explain", other)
        self.assertEqual(first[0]["name"], said["nearest"])
        self.assertEqual(["program"], [row["part"] for row in said["differences"]])
        self.assertIn("multiply", said["differences"][0]["here"])
        self.assertIn("add", said["differences"][0]["there"])
        said = self.cache("explain", isa[:16])
        self.assertEqual(first[0]["name"], said["nearest"])
        self.assertNotIn("program", [row["part"] for row in said["differences"]])
        self.assertIn("portable", said["differences"][0]["here"])
        self.assertEqual((3, 0), (self.cache("stat")["entries"], self.cache("stat")["unreadable"]))
        self.assertIn(other[:16], self.weft("cache", "ls", "--dir", self.path("cache")))

    def created(self, name):
        return self.weft("show", self.path("cache", "v1", name[:2], name + ".tce"), "--json")["created"], os.stat(self.path("cache", "v1", name[:2], name + ".tce")).st_mtime_ns

    def test_a_key_signs_entries(self):
        with open(self.path("key"), "wb") as file:
            file.write(bytes(range(48)))
        said = self.weft("doctor", status=1, WEFT_CACHE_KEY_FILE=self.path("nothing"))
        self.assertIn("cache_key_file", said)
        os.chmod(self.path("key"), 0o644)
        self.assertIn("chmod 600", self.weft("doctor", status=1, WEFT_CACHE_KEY_FILE=self.path("key")))
        os.chmod(self.path("key"), 0o600)
        self.run_program("add", self.path("cache"), WEFT_CACHE_KEY_FILE=self.path("key"))
        name = self.cache("ls")["entries"][0]["name"]
        with open(self.path("cache", "v1", name[:2], name + ".tce"), "rb") as file:
            entry = file.read()
        self.assertEqual(hmac.digest(bytes(range(48)), entry[:88] + entry[128:], "sha256"), entry[88:120])
        self.run_program("multiply", self.path("cache"))
        verify = ("cache", "verify", "--dir", self.path("cache"), "--json")
        said = self.weft(*verify, status=1, WEFT_CACHE_KEY_FILE=self.path("key"))
        self.assertEqual((1, 1), (said["good"], len(said["problems"])))
        self.assertIn("no MAC", said["problems"][0])
        self.assertEqual({"good": 2}, self.weft(*verify))

    def test_finds_damage_and_removes(self):
        for operation in ("add", "multiply", "subtract"):
            self.run_program(operation, self.path("cache"))
        self.assertEqual({"good": 3}, self.cache("verify"))
        name = self.cache("ls")["entries"][0]["name"]
        entry = self.path("cache", "v1", name[:2], name + ".tce")
        with open(entry, "r+b") as file:
            file.seek(-5, os.SEEK_END)
            byte = file.read(1)
            file.seek(-5, os.SEEK_END)
            file.write(bytes([byte[0] ^ 1]))
        said = self.cache("verify", status=1)
        self.assertEqual((2, 1), (said["good"], len(said["problems"])))
        self.assertIn(name, said["problems"][0])
        self.assertIn("checksum", self.weft("show", entry, status=1))
        self.assertEqual(0, self.cache("prune", "--unused", "1")["removed"])
        sizes = [e["bytes"] for e in self.cache("ls")["entries"]]
        self.assertEqual(1, self.cache("prune", "--max-bytes", str(sum(sizes) - 1))["removed"])
        self.assertEqual(2, self.cache("clear")["removed"])
        self.assertEqual([], self.cache("ls")["entries"])

    def test_several_folders(self):
        self.run_program("add", self.path("lower"))
        both = self.path("cache") + ":" + self.path("lower")
        self.run_program("add", both)
        said = self.weft("cache", "stat", "--dir", both, "--json")
        self.assertEqual([("read", 1), ("read", 1)], [(f["use"], f["entries"]) for f in said["folders"]])
        upper, lower = ({n for _, _, names in os.walk(self.path(f)) for n in names if n.endswith(".tce")} for f in ("cache", "lower"))
        self.assertEqual(lower, upper)
        os.chmod(self.path("lower", "v1"), 0o777)
        said = self.weft("cache", "verify", "--dir", both, "--json", status=1)
        self.assertIn("others may write to it", said["problems"][0])

    def test_functions(self):
        import ctypes as c
        import sys
        sys.path.insert(0, os.path.join(os.environ["WEFT_BUILD"], "generated", "bindings", "ffi", "python"))
        import weft_ffi as w
        lib, ctx, f = w.load(os.environ["WEFT_LIB"]), w.weft_context(), w.weft_function()
        w.check(lib, lib.weft_context_create(None, c.byref(ctx)))
        text, path = TEXT.format("add").encode(), self.path("f.weftf").encode()
        w.check(lib, lib.weft_function_from_stablehlo(ctx, text, len(text), c.byref(f)))
        w.check(lib, lib.weft_function_save(f, path, len(path)))
        lib.weft_function_release(f)
        lib.weft_context_release(ctx)
        said = self.weft("show", "f.weftf", "--json")
        self.assertEqual(("function", ["f32[4]"], ["f32[4]"]), (said["format"], said["inputs"], said["results"]))
        self.assertEqual(["2", "2", "2", "2"], self.weft("run", "f.weftf", "--input", "a.npy", "--json", WEFT_CACHE_MODE="off")["results"][0]["values"])
        with open(self.path("p.mlir"), "wb") as file:
            file.write(text)
        self.assertEqual(("stablehlo", said["key"]), (self.weft("show", "p.mlir", "--json")["format"], said["key"]))
        with open(self.path("f.weftf"), "r+b") as file:
            file.seek(-3, os.SEEK_END)
            file.write(b"\0\0\0")
        self.assertIn("checksum", self.weft("run", "f.weftf", status=1))

    def test_misuse(self):
        self.assertIn("there is no 'frob'; there are path, ls, stat, verify, explain, prune, clear", self.cache("frob", status=2))
        self.assertIn("explain takes one entry's name", self.cache("explain", "abcd", "abce", status=2))
        self.assertEqual({"name": "", "nearest": "", "differences": []}, self.cache("explain"))
        self.assertIn("prune wants --max-bytes or --unused", self.cache("prune", status=2))
        self.assertIn("too few digits", self.cache("explain", "ab", status=1))
        self.assertIn("has no entry whose name begins with 'abcdef'", self.cache("explain", "abcdef", status=1))


if __name__ == "__main__":
    unittest.main()
