"""The program `weft`: help, version, doctor (what it says is true), misuse, and the commands of docs/command_line.md."""
import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD, LIB = (pathlib.Path(os.environ[name]) for name in ("WEFT_SOURCE", "WEFT_BUILD", "WEFT_LIB"))
PROGRAM = BUILD / "bin" / "weft"
COMMANDS = sorted(name for path in (SOURCE / "src" / "cli").glob("*.cc")
                  for name in re.findall(r'Registration \w+\(\s*\{\.name = "([\w-]+)"', path.read_text(encoding="utf-8")))
with open(SOURCE / "bindings" / "generate" / "api.json", encoding="utf-8") as file:
    OPTIONS = json.load(file)["options"]


class Cli(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)

    def weft(self, *words, status=0, env=(), **more):
        """stdout and stderr; the environment has no option but those given."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=120,
                              env=dict(clean, XDG_CACHE_HOME=self.work.name, **dict(env)), **more)
        self.assertEqual(status, done.returncode, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def misused(self, text, *words):
        self.assertEqual(("", text + "\n"), self.weft(*words, status=2))

    def doctor(self, status=0, **env):
        return json.loads(self.weft("doctor", "--json", status=status, env=env.items())[0])


class Dispatch(Cli):
    def test_help_names_every_command_and_its_switches(self):
        self.assertTrue({"doctor", "version"} <= set(COMMANDS), COMMANDS)
        for word in ("--help", "-h"):
            out, err = self.weft(word)
            self.assertEqual("", err)
            self.assertEqual(COMMANDS, re.findall(r"^  ([\w-]+)", out, re.MULTILINE))
            self.assertIn("--json", out)
        for command in COMMANDS:
            out, _ = self.weft(command, "--help")
            self.assertIn(f"usage: weft {command}", out)
            self.assertIn("--help", out)

    def test_who_dispatches_knows_no_command_by_name(self):
        for name in ("main.cc", "command.cc", "command.h"):
            text = re.sub(r"//.*", "", (SOURCE / "src" / "cli" / name).read_text(encoding="utf-8"))
            self.assertEqual([], [c for c in COMMANDS if re.search(rf"\b{c}\b", text)], name)

    def test_what_is_not_there_is_said_with_a_guess_and_status_2(self):
        self.misused("weft: there is no command 'docter'; did you mean 'doctor'? 'weft --help' lists all", "docter")
        self.misused("weft: there is no command 'versoin'; did you mean 'version'? 'weft --help' lists all", "versoin", "--json")
        self.misused("weft: there is no command '--version'; did you mean 'version'? 'weft --help' lists all", "--version")
        self.misused("weft: there is no command 'transmogrify'; 'weft --help' lists all", "transmogrify")
        self.misused("weft: there is no command ''; 'weft --help' lists all", "")
        self.misused("weft: which command? 'weft --help' lists all")
        self.misused("weft doctor: there is no option '--jsno'; did you mean '--json'? 'weft doctor --help' lists all", "doctor", "--jsno")
        self.misused("weft doctor: there is no option '-x'; 'weft doctor --help' lists all", "doctor", "-x")
        self.misused("weft version: 'now' is too much: it takes no arguments but options; 'weft version --help' lists them",
                     "version", "now")

    def test_an_answer_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([PROGRAM, "version"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual((1, "weft: what there was to say could not be written\n"), (done.returncode, done.stderr))

    def test_it_needs_the_library_and_libc_alone(self):
        said = subprocess.run(["readelf", "-d", PROGRAM], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", said))
        self.assertIn("libweft.so.1", needed)
        self.assertLessEqual(needed, {"libweft.so.1", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0",
                                      "librt.so.1", "ld-linux-x86-64.so.2"})


class Version(Cli):
    def test_it_says_what_the_library_says(self):
        library = ctypes.CDLL(str(LIB))
        library.weft_release_version.restype = ctypes.c_char_p
        abi = library.weft_abi_version()
        said = json.loads(self.weft("version", "--json")[0])
        self.assertEqual({"release", "abi", "library"}, set(said))
        self.assertEqual(library.weft_release_version().decode(), said["release"])
        self.assertEqual(f"{abi >> 16}.{abi & 0xFFFF}", said["abi"])
        self.assertEqual(os.path.realpath(LIB), os.path.realpath(said["library"]))
        out, _ = self.weft("version")
        for name, value in said.items():
            self.assertRegex(out, rf"(?m)^{name} +{re.escape(value)}$")


class Doctor(Cli):
    def test_what_it_says_of_the_machine_is_true(self):
        said = self.doctor()
        self.assertTrue(said["ok"])
        self.assertEqual([], said["problems"])
        self.assertEqual(len(os.sched_getaffinity(0)), said["cpu"]["usable_cores"])
        self.assertEqual(os.cpu_count(), said["cpu"]["cores"])
        self.assertEqual(os.uname().machine, said["cpu"]["architecture"])
        cpu = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
        self.assertIn(said["cpu"]["model"], cpu)
        self.assertEqual(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), said["memory"]["total_bytes"])
        self.assertLess(0, said["memory"]["available_bytes"])
        self.assertLessEqual(said["memory"]["available_bytes"], said["memory"]["total_bytes"])
        flags = set(re.search(r"^flags\s*:(.*)$", cpu, re.MULTILINE).group(1).split())
        vectors = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
        possible = [isa for isa, needs in (("amx", vectors | {"amx_tile", "amx_bf16"}), ("avx512", vectors),
                                           ("avx2", {"avx2", "fma"}), ("portable", set()), ("amx-model", set())) if needs <= flags]
        self.assertEqual({"chosen": possible[0], "possible": possible}, said["cpu"]["isa"])
        self.assertEqual({"name": "cpu:0", "kind": "x86-64 " + possible[0]}, said["device"])

    def test_it_lists_devices_and_where_they_are(self):
        said = self.doctor(WEFT_PLATFORM="pjrt", WEFT_PLUGIN=os.environ["WEFT_PJRT_FAKE"], WEFT_PLUGIN_OPTIONS="devices=2")
        self.assertEqual([{"name": f"pjrt:{i}", "kind": "interpreter", "coords": "0, 1"} for i in range(2)], said["devices"])

    def test_every_option_is_listed_with_its_value_and_who_said_it(self):
        rows = {row["name"]: row for row in self.doctor(WEFT_THREADS="2", WEFT_ISA="portable")["options"]}
        self.assertEqual([o["name"] for o in OPTIONS], list(rows))
        said = {"threads": "2", "isa": "portable"}
        for option in OPTIONS:
            name = option["name"]
            self.assertEqual(said.get(name, option["default"]), rows[name]["value"], name)
            self.assertEqual(f"environment: WEFT_{name.upper()}" if name in said else "default", rows[name]["source"])

    def test_a_forced_path_is_the_chosen_one(self):
        self.assertEqual("portable", self.doctor(WEFT_ISA="portable")["cpu"]["isa"]["chosen"])

    def test_it_counts_the_entries_of_the_cache(self):
        cache = self.doctor()["cache"]
        folder = os.path.join(self.work.name, "weft")
        self.assertEqual({"folder": folder, "mode": "write", "exists": True, "writable": True, "entries": 0, "bytes": 0}, cache)
        for name, size in (("ab/" + "0" * 32 + ".tce", 10), ("cd/" + "1" * 32 + ".tce", 32), ("cd/x.tmp", 5), ("bad/z.tce", 7)):
            path = pathlib.Path(folder, "v1", name)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.write_bytes(b"x" * size)
        cache = self.doctor()["cache"]
        self.assertEqual((2, 42), (cache["entries"], cache["bytes"]))
        cache = self.doctor(WEFT_CACHE_MODE="off")["cache"]
        self.assertEqual(("", "off", False), (cache["folder"], cache["mode"], cache["exists"]))

    def test_a_cache_that_cannot_be_used_is_a_problem(self):
        path = os.path.join(self.work.name, "a_file")
        pathlib.Path(path).write_text("", encoding="utf-8")
        said = self.doctor(status=1, WEFT_CACHE_DIR=path)
        self.assertFalse(said["ok"])
        self.assertFalse(said["cache"]["writable"])
        self.assertEqual(1, len(said["problems"]), said["problems"])
        self.assertIn(path, said["problems"][0])

    def test_a_variable_that_cannot_be_is_named(self):
        said = self.doctor(status=1, WEFT_THREADS="many")
        self.assertFalse(said["ok"])
        self.assertEqual(["no context can be made: weft_context_create: WEFT_THREADS: 'many' is not a number of 0 to 1024"], said["problems"])

    def test_a_misspelt_and_a_deprecated_variable_are_noted(self):
        said = self.doctor(WEFT_THREAD="2", WEFT_HASH_BITS="4", WEFT_LIB="/elsewhere")
        self.assertTrue(said["ok"])
        self.assertEqual({"WEFT_THREAD is set and no option; did you mean WEFT_THREADS?",
                          "WEFT_HASH_BITS is deprecated: accepted and without effect"}, set(said["notes"]))

    def test_variables_of_pytorch_xla_without_a_meaning_are_noted(self):
        said = self.doctor(XLA_SAVE_HLO_FILE="x", XLA_IR_DEBUG="1", XLA_SAVE_TENSORS_FMT="text", XLA_NO_SPECIAL_SCALARS="1", XLA_FLAGS="")
        self.assertTrue(said["ok"])
        self.assertEqual({f"{name} is set, for PyTorch/XLA, and has no meaning here" for name in ("XLA_SAVE_HLO_FILE", "XLA_NO_SPECIAL_SCALARS")},
                         set(said["notes"]))

    def test_variables_of_what_is_no_more_are_noted(self):
        said = self.doctor(XRT_TPU_CONFIG="tpu_worker;0;10.255.255.1:8470", XRT_WORKERS="x")
        self.assertTrue(said["ok"])
        self.assertEqual(["XRT_TPU_CONFIG, XRT_WORKERS are set, for XRT, and ignored on the platform cpu"], said["notes"])
        said = self.doctor(XRT_DEVICE_MAP="", PJRT_DEVICE="CPU")
        self.assertEqual(["XRT_DEVICE_MAP is set, for XRT, and ignored on the platform cpu"], said["notes"])
        said = self.doctor(XRT_TPU_CONFIG="", PJRT_DEVICE="TPU", status=1)
        self.assertIn("XRT_TPU_CONFIG is set, for XRT, which is no more: unset it", said["problems"][0])

    def test_the_text_says_the_same_as_the_json(self):
        out, _ = self.weft("doctor", env={"WEFT_SEED": "11"}.items())
        said = self.doctor()
        for name in said:
            self.assertRegex(out, rf"(?m)^{name}\b")
        self.assertRegex(out, r"(?m)^  seed +11 +environment: WEFT_SEED$")
        self.assertIn(f"  chosen    {said['cpu']['isa']['chosen']}\n", out)
        self.assertRegex(out, r"(?m)^problems +none$")
        out, _ = self.weft("doctor", env={"WEFT_LOG": "loud"}.items(), status=1)
        self.assertIn("\nproblems\n  no context can be made: weft_context_create: WEFT_LOG: 'loud' is not one of debug, info, warning, error, off\n", out)
        self.assertRegex(out, r"(?m)^ok +no$")

    def test_names_that_are_not_utf8_leave_the_json_readable(self):
        folder = os.fsencode(self.work.name) + b"/caf\xe9"
        said = self.doctor(WEFT_CACHE_DIR=os.fsdecode(folder))
        self.assertTrue(said["cache"]["folder"].endswith("/caf\ufffd"), said["cache"])


class Show(Cli):
    def checkpoint(self, name="c.weft"):
        """A file of step 7 with a word and two tensors, written through the C ABI."""
        lib, path = ctypes.CDLL(str(LIB)), os.path.join(self.work.name, name)
        strlen, ctx, tree, node, tensor = ctypes.c_size_t(-1), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint32(), ctypes.c_void_p()

        def call(function, *args):
            getattr(lib, function).restype = ctypes.c_void_p
            self.assertIsNone(getattr(lib, function)(*args), function)

        class Setting(ctypes.Structure):
            _fields_ = [("name", ctypes.c_char_p), ("name_length", ctypes.c_size_t), ("value", ctypes.c_char_p), ("value_length", ctypes.c_size_t)]

        class Options(ctypes.Structure):
            _fields_ = [("struct_size", ctypes.c_size_t), ("next", ctypes.c_void_p), ("metadata", ctypes.POINTER(Setting)),
                        ("metadata_count", ctypes.c_uint64), ("step", ctypes.c_int64), ("durable", ctypes.c_int32), ("reserved", ctypes.c_int32)]

        call("weft_context_create", None, ctypes.byref(ctx))
        call("weft_tree_create", ctypes.byref(tree))
        call("weft_tree_add_dict", tree, 0, b"model", strlen, ctypes.byref(node))
        values, dims = (ctypes.c_float * 6)(*range(6)), (ctypes.c_int64 * 2)(2, 3)
        call("weft_tensor_from_host", ctx, None, ctypes.c_uint32(0x12002), dims, ctypes.c_size_t(2), values, ctypes.c_size_t(24), ctypes.byref(tensor))
        call("weft_tree_add_tensor", tree, node, b"w", strlen, tensor, None)
        call("weft_tree_add_tensor", tree, node, b"again", strlen, tensor, None)
        words = Setting(b"learning rate", 13, b"0.1", 3)
        options = Options(ctypes.sizeof(Options), None, ctypes.pointer(words), 1, 7, -1, 0)
        call("weft_checkpoint_save", ctx, path.encode(), strlen, tree, ctypes.byref(options), None)
        for kind, handle in (("tensor", tensor), ("tree", tree), ("context", ctx)):
            getattr(lib, f"weft_{kind}_release")(handle)
        return path

    def test_it_says_what_the_writer_gave_and_what_is_inside(self):
        path = self.checkpoint()
        said = json.loads(self.weft("show", path, "--json")[0])
        self.assertEqual(["format", "step", "created", "producer", "file_bytes", "tensor_bytes", "metadata", "tensors"], list(said))
        self.assertEqual((7, 24, os.path.getsize(path), {"learning rate": "0.1"}),
                         (said["step"], said["tensor_bytes"], said["file_bytes"], said["metadata"]))
        self.assertEqual({"path": "model.w", "type": "f32[2,3]", "bytes": 24}, said["tensors"][0])
        self.assertRegex(said["created"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        text = self.weft("show", path)[0]
        for word in ("step", "7", "learning rate", "model.w", "f32[2,3]"):
            self.assertIn(word, text)

    def test_files_of_others_are_named_and_listed(self):
        header = json.dumps({"__metadata__": {"step": "5"}, "w.x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                             "q": {"dtype": "F4", "shape": [4], "data_offsets": [8, 10]}}).encode()
        other = os.path.join(self.work.name, "other.safetensors")
        with open(other, "wb") as out:
            out.write(len(header).to_bytes(8, "little") + header + bytes(10))
        said = json.loads(self.weft("show", other, "--json")[0])
        self.assertEqual({"format": "safetensors", "step": 5, "file_bytes": 18 + len(header), "tensor_bytes": 10, "metadata": {"step": "5"},
                          "tensors": [{"path": "w.x", "type": "f32[2]", "bytes": 8},
                                      {"path": "q", "type": "u8[2]", "bytes": 2, "encoding": "F4[4]"}]}, said)

    def test_what_is_no_checkpoint_is_said(self):
        other = os.path.join(self.work.name, "other")
        with open(other, "w", encoding="utf-8") as out:
            out.write("no checkpoint " * 9)
        out, said = self.weft("show", other, status=1)
        self.assertEqual("", out)
        self.assertIn(f"weft show: weft_checkpoint_reader_open: '{other}' is not a Weft checkpoint", said)
        self.assertIn("No such file or directory", self.weft("show", other + "x", status=1)[1])
        self.misused("weft show: which FILE? 'weft show --help' says more", "show")


class Page(Cli):
    def test_its_commands_run(self):
        checkpoint = Show.checkpoint(self)
        text = (SOURCE / "docs" / "command_line.md").read_text(encoding="utf-8")
        lines = [line.split("  #")[0].strip() for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
                 for line in block.splitlines()]
        self.assertGreaterEqual(len(lines), 3)
        for line in lines:
            self.assertTrue(line.startswith("build/release/bin/weft "), line)
            self.weft(*[checkpoint if word.endswith(".weft") else word for word in line.split()[1:]], cwd=SOURCE)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
