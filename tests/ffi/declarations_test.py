"""The declarations of bindings/ffi, in each language's own words: sizes, offsets and values are those of the C compiler, and the
golden calls of vectors.json give what they should, values and errors. Nothing here is skipped: scripts/install-deps installs the
tools."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE, BUILD, LIB = os.environ["WEFT_SOURCE"], os.environ["WEFT_BUILD"], os.environ["WEFT_LIB"]
FFI = os.path.join(BUILD, "generated", "bindings", "ffi")
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(SOURCE, "bindings", "generate"))
import programs  # noqa: E402
import vectors  # noqa: E402
from generator import model  # noqa: E402

VECTORS = os.path.join(HERE, "vectors.json")


def tool(name, *elsewhere):
    """A program on the path or in one of the places where its installer puts it."""
    found = shutil.which(name) or next((p for p in map(os.path.expanduser, elsewhere) if os.access(p, os.X_OK)), None)
    assert found, "%s is needed; scripts/install-deps installs it" % name
    return found


def run(*args, **more):
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        raise AssertionError("%s exited %d:\n%s" % (" ".join(args), done.returncode, done.stdout[-5000:]))
    return done.stdout


class Declarations:
    """The two tests of each language; a language says how it shows its layout and how it replays."""

    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.mkdtemp(prefix="weft-ffi.")
        cls.api = model.load_description(os.path.join(SOURCE, "include", "c_api", "weft_api.json"))
        program = os.path.join(cls.work, "layout")
        run("cc", "-std=c99", "-I", os.path.join(SOURCE, "include", "c_api"), os.path.join(BUILD, "generated", "tests", "abi", "print_layout.c"),
            "-o", program)
        cls.wanted = run(program).splitlines()
        cls.names = "".join(line.rsplit(" ", 1)[0] + "\n" for line in cls.wanted)
        with open(VECTORS, encoding="utf-8") as f:
            cls.vectors = json.load(f)["vectors"]
        cls.build()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work)

    @classmethod
    def build(cls):
        pass

    def foreign(self):
        """Vectors that the language cannot replay: how their lines begin."""
        return "ok"

    def test_sizes_offsets_and_values_are_those_of_the_c_compiler(self):
        self.assertGreater(len(self.wanted), 800)
        said = self.layout().splitlines()
        self.assertEqual([], [pair for pair in zip(self.wanted, said) if pair[0] != pair[1]])
        self.assertEqual(len(self.wanted), len(said))

    def test_the_golden_calls_give_what_they_should(self):
        with tempfile.TemporaryDirectory() as folder:
            said = self.replay(folder).splitlines()
        wanted = [(self.foreign() if v.get("any_thread") else "ok") + " " + v["name"] for v in self.vectors]
        self.assertEqual(wanted, said)


class Python(Declarations, unittest.TestCase):
    def layout(self):
        return run(sys.executable, "-B", os.path.join(HERE, "layout.py"), os.path.join(FFI, "python"), input=self.names)

    def replay(self, folder):
        return run(sys.executable, "-B", os.path.join(HERE, "replay.py"), os.path.join(FFI, "python"), LIB, VECTORS, folder)


class LuaJIT(Declarations, unittest.TestCase):
    def foreign(self):
        return "foreign"  # LuaJIT takes no call from a thread that it did not make

    def layout(self):
        return run(tool("luajit"), os.path.join(HERE, "layout.lua"), os.path.join(FFI, "luajit"), LIB, input=self.names)

    def replay(self, folder):
        return run(tool("luajit"), os.path.join(HERE, "replay.lua"), os.path.join(FFI, "luajit"), LIB, VECTORS, folder)


class Rust(Declarations, unittest.TestCase):
    @classmethod
    def build(cls):
        rustc = tool("rustc", "~/.cargo/bin/rustc")
        source = os.path.join(cls.work, "replay.rs")
        with open(source, "w", encoding="utf-8") as f:
            f.write(programs.rust_program(cls.api, cls.vectors, cls.wanted))
        library = ["-L", "native=" + os.path.dirname(LIB)]
        run(rustc, "--edition", "2021", "--crate-type", "rlib", "--crate-name", "weft_ffi", "-D", "warnings", *library, "--out-dir", cls.work,
            os.path.join(FFI, "rust", "src", "lib.rs"))
        cls.program = os.path.join(cls.work, "replay")
        run(rustc, "--edition", "2021", *library, "--extern", "weft_ffi=" + os.path.join(cls.work, "libweft_ffi.rlib"), source, "-o", cls.program)

    def run_it(self, *args):
        return run(self.program, *args, env=dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(LIB)))

    def layout(self):
        return self.run_it()

    def replay(self, folder):
        return self.run_it(folder)


class Go(Declarations, unittest.TestCase):
    @classmethod
    def build(cls):
        module = os.path.join(cls.work, "go")
        shutil.copytree(os.path.join(FFI, "go"), module)
        os.mkdir(os.path.join(module, "replay"))
        shutil.copy(os.path.join(HERE, "replay.go"), os.path.join(module, "replay"))
        with open(os.path.join(module, "replay", "tables.go"), "w", encoding="utf-8") as f:
            f.write(programs.go_tables(cls.api, cls.wanted))
        cls.program = os.path.join(cls.work, "replay")
        # Packages stay below the build tree, so that only the first run fetches purego.
        environment = dict(os.environ, CGO_ENABLED="0", GOTOOLCHAIN="auto", GOFLAGS="-mod=readonly -modcacherw", GOMODCACHE=os.path.join(BUILD, "go", "packages"),
                           GOCACHE=os.path.join(BUILD, "go", "objects"))
        run(tool("go", "/usr/local/go/bin/go"), "build", "-o", cls.program, "./replay", cwd=module, env=environment)

    def layout(self):
        return run(self.program, "layout")

    def replay(self, folder):
        return run(self.program, LIB, VECTORS, folder)


class Vectors(unittest.TestCase):
    def test_the_file_is_what_its_script_writes(self):
        with open(VECTORS, encoding="utf-8") as f:
            self.assertEqual(f.read(), vectors.document(), "run tests/ffi/vectors.py > tests/ffi/vectors.json")

    def test_there_are_enough_of_each_kind(self):
        made = json.loads(vectors.document())["vectors"]
        self.assertGreaterEqual(len(made), 40)
        self.assertEqual(len(made), len({v["name"] for v in made}))
        codes = {c["error"]["code"] for v in made for c in v["calls"] if "error" in c}
        self.assertGreaterEqual(len(codes), 7)
        self.assertGreater(len({c["call"] for v in made for c in v["calls"]}), 80)


if __name__ == "__main__":
    unittest.main()
