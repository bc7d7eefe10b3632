"""`weft ckpt`: list, verify, compare and convert files of tensors of any format, with NumPy as the judge."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))
import numpy as np  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serialization"))
import files  # noqa: E402

PROGRAM = os.path.join(os.environ["WEFT_BUILD"], "bin", "weft")
PYTORCH = os.path.join(os.environ["WEFT_SOURCE"], "tests", "serialization", "pytorch", "old.pt")


class Ckpt(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        self.a = {"w": np.arange(6, dtype="f4").reshape(2, 3), "b.x": np.array([1, 2], "i8"), "n": np.float64(0.5)}
        np.savez(self.path("a.npz"), **self.a)

    def path(self, name):
        return os.path.join(self.work.name, name)

    def ckpt(self, *words, status=0):
        done = subprocess.run([PROGRAM, "ckpt", *words], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(status, done.returncode, done.stdout + done.stderr)
        return json.loads(done.stdout) if "--json" in words and done.stdout else done.stdout + done.stderr

    def test_lists(self):
        self.assertEqual({"tensors": [{"path": "w", "type": "f32[2,3]"}, {"path": "b.x", "type": "i64[2]"}, {"path": "n", "type": "f64[]"}]},
                         self.ckpt("ls", self.path("a.npz"), "--json"))
        self.assertEqual(["b.x"], [t["path"] for t in self.ckpt("ls", self.path("a.npz"), "--only", "b.*", "--json")["tensors"]])
        self.assertEqual("pytorch", self.ckpt("show", PYTORCH, "--json")["format"])

    def test_converts_there_and_back(self):
        for name in ("a.safetensors", "a.weft", "again.npz"):
            self.ckpt("convert", self.path("a.npz"), self.path(name))
            self.assertEqual({"differences": []}, self.ckpt("diff", self.path("a.npz"), self.path(name), "--json"))
        with np.load(self.path("again.npz")) as found:
            for name, array in self.a.items():
                np.testing.assert_array_equal(array, found[name])
        self.ckpt("convert", self.path("a.weft"), self.path("one.npy"), "--only", "*w")
        np.testing.assert_array_equal(self.a["w"], np.load(self.path("one.npy")))
        self.ckpt("convert", PYTORCH, self.path("p.out"), "--format", "safetensors", "--only", "layer.*")
        self.assertEqual(["layer.weight"], [t["path"] for t in self.ckpt("ls", self.path("p.out"), "--json")["tensors"]])
        self.assertIn("holds tensors only; 'optimizer.groups.0.lr' is a float64", self.ckpt("convert", PYTORCH, self.path("p.safetensors"), status=1))
        self.assertFalse(os.path.exists(self.path("p.safetensors")))

    def test_finds_differences(self):
        np.savez(self.path("b.npz"), w=self.a["w"] + np.float32([[0, 0.25, 0], [0, 0, 0]]), n=np.float32(0.5), more=np.zeros(1))
        found = self.ckpt("diff", self.path("a.npz"), self.path("b.npz"), "--json", status=1)
        self.assertEqual({"differences": [{"path": "w", "what": "apart by at most 0.25"}, {"path": "b.x", "what": "only in the first"},
                                          {"path": "n", "what": "f64[] and f32[]"}, {"path": "more", "what": "only in the second"}]}, found)

    def test_verifies(self):
        self.assertEqual({"good": 3}, self.ckpt("verify", self.path("a.npz"), "--json"))
        with open(self.path("a.npz"), "rb") as file:
            raw = bytearray(file.read())
        raw[raw.index(self.a["w"].tobytes()) + 4] ^= 1
        with open(self.path("bad.npz"), "wb") as file:
            file.write(raw)
        said = self.ckpt("verify", self.path("bad.npz"), "--json", status=1)
        self.assertEqual((2, 1), (said["good"], len(said["problems"])))
        self.assertIn("w.npy' is damaged", said["problems"][0])
        self.assertIn("No such file", self.ckpt("verify", self.path("none"), status=1))

    def test_converts_types_and_names(self):
        np.savez(self.path("t.npz"), **{"m.a": np.linspace(-3, 3, 5000, dtype="f4"), "m.b": np.array([1 / 3, 1e300, -0.0]), "n": np.arange(3)})
        self.ckpt("convert", self.path("t.npz"), self.path("t.weft"), "--nest", "--dtype", "f32=f16", "--dtype", "f64=f32", "--rename", "m.*=model.*")
        self.assertEqual([("model.a", "f16[5000]"), ("model.b", "f32[3]"), ("n", "i64[3]")],
                         [(t["path"], t["type"]) for t in self.ckpt("ls", self.path("t.weft"), "--json")["tensors"]])
        self.ckpt("convert", self.path("t.weft"), self.path("back.npz"))
        with np.load(self.path("t.npz")) as was, np.load(self.path("back.npz")) as now, np.errstate(over="ignore"):
            self.assertEqual(was["m.a"].astype("f2").tobytes(), now["model.a"].tobytes())
            self.assertEqual(was["m.b"].astype("f4").tobytes(), now["model.b"].tobytes())
        said = self.ckpt("convert", self.path("t.npz"), self.path("x.npz"), "--dtype", "i64=f32", status=1)
        self.assertIn("tensor 'n' of i64 cannot become f32: only floats become other floats", said)
        self.assertIn("cannot be called 'm.b'", self.ckpt("convert", self.path("t.npz"), self.path("x.npz"), "--rename", "m.a=m.b", status=1))
        self.assertIn("no tensor of the file matches", self.ckpt("convert", self.path("t.npz"), self.path("x.npz"), "--only", "q*", status=1))
        self.assertFalse(os.path.exists(self.path("x.npz")))

    def test_shards(self):
        arrays = {f"w{i}": np.full(1000, i, "f4") for i in range(5)}
        np.savez(self.path("s.npz"), **arrays)
        self.ckpt("convert", self.path("s.npz"), self.path("s.safetensors"), "--shard-size", "9kB")
        names = sorted(n for n in os.listdir(self.work.name) if n.startswith("s") and n != "s.npz")
        self.assertEqual([f"s-0000{i}-of-00003.safetensors" for i in (1, 2, 3)] + ["s.safetensors.index.json"], names)
        with open(self.path("s.safetensors.index.json")) as file:
            index = json.load(file)
        self.assertEqual(20000, index["metadata"]["total_size"])
        self.assertEqual(sorted(arrays), sorted(index["weight_map"]))
        self.assertEqual({"differences": []}, self.ckpt("diff", self.path("s.npz"), self.path("s.safetensors.index.json"), "--json"))
        self.assertIn("s.safetensors.index.json' is there already", self.ckpt("convert", self.path("s.npz"), self.path("s.safetensors"), "--shard-size", "9kB", status=1))
        os.remove(self.path("s.safetensors.index.json"))
        self.assertIn("s-00001-of-00003.safetensors' is there already",
                      self.ckpt("convert", self.path("s.npz"), self.path("s.safetensors"), "--shard-size", "9kB", status=1))

    def test_converts_in_little_memory(self):
        big = self.path("big.npy")
        array = np.lib.format.open_memmap(big, mode="w+", dtype="f4", shape=(64 << 20,))  # 256 MiB
        array[::4096] = np.arange(len(array) // 4096)
        del array
        source = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
                  "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        used = [int(subprocess.run([sys.executable, "-c", source, PROGRAM, "ckpt", *words], check=True, capture_output=True, timeout=300).stdout.split()[-1])
                for words in (("ls", self.path("a.npz")), ("convert", big, self.path("big.safetensors"), "--dtype", "f32=bf16"),
                              ("convert", self.path("big.safetensors"), self.path("big.weft")))]
        for more in used[1:]:
            self.assertLess(more - used[0], 64 << 10, used)

    def test_shows_progress_on_a_terminal(self):
        ours, theirs = os.openpty()
        subprocess.run([PROGRAM, "ckpt", "convert", self.path("a.npz"), self.path("p.weft")], stderr=theirs, timeout=60, check=True)
        os.close(theirs)
        shown = os.read(ours, 4096)
        os.close(ours)
        self.assertRegex(shown, rb"^\rconverting: \d+ % of 0 MiB\x1b\[K[^\n]*\r\x1b\[K$")

    def test_writes_one_tensor(self):
        self.ckpt("cat", self.path("a.npz"), "w", self.path("w.npy"))
        np.testing.assert_array_equal(self.a["w"], np.load(self.path("w.npy")))
        piped = subprocess.run([PROGRAM, "ckpt", "cat", self.path("a.npz"), "b.x"], capture_output=True, timeout=60, check=True).stdout
        np.save(self.path("x.npy"), self.a["b.x"])
        self.assertEqual(self.a["b.x"].tobytes(), piped[-16:])
        self.assertEqual(b"\x93NUMPY", piped[:6])
        self.assertIn("did you mean 'b.x'", self.ckpt("cat", self.path("a.npz"), "b.y", status=1))

    def test_repairs(self):
        rng = np.random.default_rng(5)
        np.savez(self.path("r.npz"), **{f"layer.{i}": rng.random((300, 1000)) for i in range(6)})
        self.ckpt("convert", self.path("r.npz"), self.path("r.weft"), "--nest")
        self.assertEqual({"whole": 6, "lost": []}, self.ckpt("repair", self.path("r.weft"), self.path("same.weft"), "--json"))
        self.assertEqual({"differences": []}, self.ckpt("diff", self.path("r.weft"), self.path("same.weft"), "--json"))
        with open(self.path("r.weft"), "rb") as file:
            whole = file.read()
        for part in (0.2, 0.5, 0.9, 0.999):
            with self.subTest(part=part):
                with open(self.path("cut.weft"), "wb") as file:
                    file.write(whole[:int(len(whole) * part)])
                self.ckpt("verify", self.path("cut.weft"), status=1)
                said = self.ckpt("repair", self.path("cut.weft"), self.path("new.weft"), "--json", status=1)
                self.assertGreaterEqual(said["whole"], int(6 * part) - 1)
                self.assertIn("cut.weft' is damaged at byte", said["problem"])
                self.assertEqual({"good": said["whole"]}, self.ckpt("verify", self.path("new.weft"), "--json"))
                apart = self.ckpt("diff", self.path("r.weft"), self.path("new.weft"), "--json", status=0 if said["whole"] == 6 else 1)["differences"]
                self.assertEqual(6 - said["whole"], len(apart))
                self.assertTrue(all(row["what"] == "only in the first" for row in apart), apart)
        with open(self.path("none.weft"), "wb") as file:
            file.write(whole[:3000])
        self.assertIn("no tensor of it is whole", self.ckpt("repair", self.path("none.weft"), self.path("no.weft"), status=1))
        self.assertIn("is not a Weft checkpoint", self.ckpt("repair", self.path("a.npz"), self.path("no.weft"), status=1))
        self.assertEqual([], [n for n in os.listdir(self.work.name) if n == "no.weft" or n.startswith(".")])

    def test_prunes(self):
        self.ckpt("convert", self.path("a.npz"), self.path("step-0.weft"))
        with open(self.path("step-0.weft"), "rb") as file:
            whole = file.read()
        for step in (1, 2, 10, 11, 12, 20):
            with open(self.path(f"step-{step}.weft"), "wb") as file:
                file.write(whole)
        for name, content in (("step-3.weft", b"mine"), ("step-x.weft", whole), ("step-4.weft.old", whole), ("step-5", whole)):
            with open(self.path(name), "wb") as file:
                file.write(content)
        os.symlink(self.path("step-0.weft"), self.path("step-6.weft"))
        pattern, before = self.path("step-{step}.weft"), sorted(os.listdir(self.work.name))
        wanted = [self.path(f"step-{n}.weft") for n in (1, 2, 11)]
        said = self.ckpt("prune", pattern, "--keep-last", "2", "--keep-every", "10", "--dry-run", "--json")
        self.assertEqual((wanted, before), (said["removed"], sorted(os.listdir(self.work.name))))
        self.assertEqual(said, self.ckpt("prune", pattern, "--keep-last", "2", "--keep-every", "10", "--json"))
        self.assertEqual(sorted(set(before) - {os.path.basename(name) for name in wanted}), sorted(os.listdir(self.work.name)))

    def test_compresses_and_makes_whole(self):
        w = np.arange(1 << 18, dtype="f4")
        np.savez(self.path("w.npz"), w=w)
        self.ckpt("convert", self.path("w.npz"), self.path("plain.weft"))
        self.ckpt("convert", self.path("w.npz"), self.path("small.weft"), "--compress")
        self.assertLess(2 * os.path.getsize(self.path("small.weft")), os.path.getsize(self.path("plain.weft")))
        self.assertEqual({"differences": []}, self.ckpt("diff", self.path("w.npz"), self.path("small.weft"), "--json"))
        self.ckpt("verify", self.path("small.weft"))
        ctx, made = files.weft.Context(), {"w": ("f32", w.shape, w.tobytes())}
        files.save(ctx, self.path("step-1.weft"), made, step=1)
        for step in (2, 3):
            files.save(ctx, self.path(f"step-{step}.weft"), made, step=step, base=f"step-{step - 1}.weft")
        said = self.ckpt("prune", self.path("step-{step}.weft"), "--keep-last", "1", "--json")
        self.assertEqual(([self.path("step-2.weft")], [self.path("step-1.weft"), self.path("step-3.weft")]), (said["removed"], said["kept"]))
        self.ckpt("convert", self.path("step-3.weft"), self.path("whole.weft"))
        os.remove(self.path("step-1.weft"))
        self.assertIn("step-3.weft' takes parts from 'step-1.weft' beside it", self.ckpt("verify", self.path("step-3.weft"), status=1))
        self.assertEqual({"differences": []}, self.ckpt("diff", self.path("w.npz"), self.path("whole.weft"), "--json"))

    def test_misuse(self):
        self.assertIn("there is no 'frob'; there are ls, show, verify, diff, convert, repair, cat, prune", self.ckpt("frob", "x", status=2))
        self.assertIn("diff takes two files", self.ckpt("diff", "x", status=2))
        self.assertIn("which ACTION?", self.ckpt(status=2))
        self.assertIn("what format is", self.ckpt("convert", self.path("a.npz"), self.path("x.bin"), status=2))
        self.assertIn("'pytorch' is no format that is written", self.ckpt("convert", self.path("a.npz"), self.path("x"), "--format", "pytorch", status=2))
        for words, said in ((("--dtype", "f32"), "does not name two types"), (("--dtype", "f32=f31"), "does not name two types"),
                            (("--rename", "a"), "is not A=B"), (("--rename", "a*=b"), "is not A=B"), (("--shard-size", "5XB"), "is no size"),
                            (("--shard-size", "5GB"), "is for safetensors"), (("--compress",), "--compress is for weft files")):
            self.assertIn(said, self.ckpt("convert", self.path("a.npz"), self.path("x.npz"), *words, status=2))
        self.assertIn("has no {step}", self.ckpt("prune", "x.weft", "--keep-last", "1", status=2))
        self.assertIn("how many last steps", self.ckpt("prune", "{step}.weft", status=2))
        self.assertIn("whole numbers above 0", self.ckpt("prune", "{step}.weft", "--keep-last", "0", status=2))
        self.assertIn("repair writes a new file", self.ckpt("repair", self.path("a.npz"), self.path("a.npz"), status=2))
        self.assertIn("there is no option '--frob'", self.ckpt("ls", "--frob", status=2))


if __name__ == "__main__":
    unittest.main()
