"""Every function, option and command that takes a path looks at what is there before it reads it: folders, FIFOs, sockets and devices
are refused by name, at once."""
import ctypes as c
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
PROGRAM = pathlib.Path(os.environ["WEFT_BUILD"]) / "bin" / "weft"
INVALID_ARGUMENT = 3
TEXT = b"func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n  return %a : tensor<4xf32>\n}\n"
KINDS = {"folder": "a directory", "fifo": "a FIFO", "link": "a FIFO", "socket": "a socket", "device": "a device"}
# Parameters called path that name something inside a file or a tree; one called file is the position of a line of source.
INSIDE = {"weft_tree_find", "weft_checkpoint_reader_load", "weft_checkpoint_reader_load_as", "weft_checkpoint_reader_load_box",
          "weft_checkpoint_reader_load_sharded", "weft_checkpoint_reader_find", "weft_optimizer_load_from"}


def parameters():
    """The functions with a parameter that names a file."""
    functions = json.loads((SOURCE / "bindings" / "generate" / "api.json").read_text(encoding="utf-8"))["functions"]
    return {f["name"] for f in functions for p in f["params"]
            if re.search("path|folder|library|directory", p["name"]) and p["type"] == "const char*"} - INSIDE


class Library:
    """Just enough of the C API to hand a path to each function."""

    def __init__(self):
        self.lib = c.CDLL(os.environ["WEFT_LIB"])
        self.lib.weft_error_message.restype = c.c_char_p
        self.lib.weft_error_message.argtypes = [c.c_void_p, c.c_void_p]
        self.lib.weft_error_code.argtypes = [c.c_void_p]
        self.context = self.made("weft_context_create", None)
        self.tree = self.made("weft_tree_create")
        self.function = self.made("weft_function_from_stablehlo", self.context, TEXT, c.c_size_t(len(TEXT)))
        self.job = self.made("weft_job_join", None)  # of this process alone

    def outcome(self, name, *args):
        function = getattr(self.lib, name)
        function.restype = c.c_void_p
        error = function(*args)
        return [self.lib.weft_error_code(error), self.lib.weft_error_message(error, None).decode()] if error else [0, ""]

    def made(self, name, *args):
        out = c.c_void_p()
        code, message = self.outcome(name, *args, c.byref(out))
        assert code == 0, message
        return out

    def calls(self):
        """What each takes besides the path."""
        self.outcome("weft_trace_start", self.context)
        out, size = c.byref(c.c_void_p()), lambda p: c.c_size_t(len(p))
        return {
            "weft_function_save": lambda p: self.outcome("weft_function_save", self.function, p, size(p)),
            "weft_function_load": lambda p: self.outcome("weft_function_load", self.context, p, size(p), out),
            "weft_program_compare": lambda p: self.outcome("weft_program_compare", self.context, p, size(p), p, size(p), out),
            "weft_file_describe": lambda p: self.outcome("weft_file_describe", p, size(p), out),
            "weft_checkpoint_convert": lambda p: self.outcome("weft_checkpoint_convert", self.context, p, size(p), b"/dev/null/x", c.c_size_t(11), None),
            "weft_checkpoint_salvage": lambda p: self.outcome("weft_checkpoint_salvage", self.context, p, size(p), b"/dev/null/x", c.c_size_t(11), out),
            "weft_trace_write": lambda p: self.outcome("weft_trace_write", self.context, p, size(p), c.c_int(0)),
            "weft_checkpoint_save": lambda p: self.outcome("weft_checkpoint_save", self.context, p, size(p), self.tree, None, None),
            "weft_checkpoint_save_job": lambda p: self.outcome("weft_checkpoint_save_job", self.context, self.job, p, size(p), self.tree, None),
            "weft_checkpoint_load": lambda p: self.outcome("weft_checkpoint_load", self.context, p, size(p), None, out),
            "weft_checkpoint_reader_open": lambda p: self.outcome("weft_checkpoint_reader_open", self.context, p, size(p), out),
            "weft_checkpoint_reader_open_with": lambda p: self.outcome("weft_checkpoint_reader_open_with", self.context, p, size(p), None, out),
            "weft_idx_read": lambda p: self.outcome("weft_idx_read", self.context, p, size(p), None, out),
            "weft_dataset_open": lambda p: self.outcome("weft_dataset_open", p, size(p), None, out),
            "weft_custom_register_symbol": lambda p: self.outcome("weft_custom_register_symbol", self.context, b"f", c.c_size_t(1), p, size(p), b"f",
                                                                  c.c_size_t(1), b"float(float)", c.c_size_t(12), None),
        }


def child(path):
    """Each call's code and message, as JSON."""
    library = Library()
    print(json.dumps({name: call(os.fsencode(path)) for name, call in library.calls().items()}))


class Paths(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.folder.name)
        cls.at = {"folder": root / "folder", "fifo": root / "fifo", "link": root / "link", "socket": root / "socket", "device": pathlib.Path("/dev/zero")}
        cls.at["folder"].mkdir()
        os.mkfifo(cls.at["fifo"])
        cls.at["link"].symlink_to(cls.at["fifo"])
        cls.listener = socket.socket(socket.AF_UNIX)
        cls.listener.bind(str(cls.at["socket"]))
        (root / "p.mlir").write_bytes(TEXT)
        head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }".ljust(117) + b"\n"
        (root / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(16))
        cls.root = root

    @classmethod
    def tearDownClass(cls):
        cls.listener.close()
        cls.folder.cleanup()

    def run_program(self, *words, **env):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_") or k in ("WEFT_LIB", "WEFT_SOURCE", "WEFT_BUILD")}
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60, cwd=self.root,
                              env=dict(clean, XDG_CACHE_HOME=str(self.root / "cache"), **env))

    def test_of_every_function(self):
        for kind, what in KINDS.items():
            done = self.run_program(sys.executable, __file__, "child", self.at[kind])
            self.assertEqual(0, done.returncode, f"{kind}: {done.stderr}")
            outcomes = json.loads(done.stdout)
            self.assertEqual(parameters(), set(outcomes), "a function that takes a path is not tried here")
            for name, (code, message) in outcomes.items():
                with self.subTest(kind=kind, function=name):
                    self.assertEqual(INVALID_ARGUMENT, code, message)
                    if name.endswith(("_save", "_save_job", "_write")):
                        wanted = {"folder": "it is a directory", "link": "it is a symbolic link"}.get(kind, "it is not a regular file")
                        self.assertIn(f"cannot write '{self.at[kind]}': {wanted}", message)
                    else:
                        self.assertIn(f"'{self.at[kind]}' is {what}, not a regular file", message)
        self.assertTrue(self.at["fifo"].is_fifo() and self.at["link"].is_symlink() and self.at["socket"].is_socket() and self.at["device"].is_char_device())

    def test_of_a_plugin_and_of_a_cache(self):
        for kind, what in KINDS.items():
            path = self.at[kind]
            with self.subTest(kind=kind):
                done = self.run_program(PROGRAM, "run", "p.mlir", WEFT_PLATFORM="pjrt", WEFT_PLUGIN=str(path))
                real = os.path.realpath(path)
                self.assertEqual((1, f"weft run: weft_context_create: '{real}' is {what}, not a regular file\n"), (done.returncode, done.stderr))
                done = self.run_program(PROGRAM, "doctor", "--json", WEFT_PLATFORM="tpu", TPU_LIBRARY_PATH=str(path))
                self.assertIn(f"is {what}, not a regular file", done.stdout + done.stderr)
                done = self.run_program(PROGRAM, "run", "p.mlir", "--input", "a.npy", WEFT_CACHE_DIR=str(path), WEFT_CACHE_MODE="write")
                self.assertEqual((0, ""), (done.returncode, done.stderr), "a cache that cannot be is none")

    def test_of_every_command(self):
        for kind, what in KINDS.items():
            path = self.at[kind]
            with self.subTest(kind=kind):
                refused = f"{path}: cannot be read: it is {what}, not a regular file"
                self.fails(f"weft run: {refused}", "run", path)
                self.fails(f"weft run: weft_checkpoint_reader_open: '{path}' is {what}, not a regular file", "run", "p.mlir", "--input", path)
                self.fails(f"'{path}' is {what}, not a regular file", "show", path)
                if kind != "folder":
                    self.fails(f"weft run: --output {path}: there is no such folder", "run", "p.mlir", "--input", "a.npy", "--output", path)

    def test_results_do_not_replace_what_is_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            name = "result0.npy"
            os.mkfifo(os.path.join(folder, name))
            self.fails(f"cannot write '{folder}/{name}': it is not a regular file", "run", "p.mlir", "--input", "a.npy", "--output", folder)
            self.assertEqual([name], os.listdir(folder))

    def fails(self, text, *words):
        done = self.run_program(PROGRAM, *words)
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertIn(text, done.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2])
    else:
        unittest.main(verbosity=1)
