"""Builds the C module of torch_xla._weft and puts it, with the library, where the package looks for them.

    python3 bindings/pytorch/build.py --library build/release/lib/libweft.so.1 [--python PYTHON]

The module needs the C library alone, so that one file serves every Python from 3.11 and every torch from 2.10. It asks
for no glibc newer than libweft.so.1 does, whatever this machine has.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE / "torch_xla" / "_weft"
MODULE = "_weft_torch.abi3.so"
OLDEST_GLIBC = "2.28"  # as WEFT_OLDEST_GLIBC in scripts/cmake/WeftOldGlibc.cmake


def include_folder(python):
    command = "import sysconfig; print(sysconfig.get_path('include'))"
    return subprocess.run([python, "-c", command], check=True, capture_output=True, text=True).stdout.strip()


def old_glibc(folder, compiler):
    """Makes link libraries in which no symbol is newer than OLDEST_GLIBC, and gives the options that link against them."""
    script = HERE.parents[1] / "scripts" / "cmake" / "glibc_link_libraries.py"
    subprocess.run([sys.executable, str(script), "--version", OLDEST_GLIBC, "--out", folder, "--cc", compiler], check=True)
    # Before 2.34 threads and dlopen had libraries of their own; their names are needed.
    return ["-L" + folder, "-Wl,--push-state,--no-as-needed", "-lpthread", "-ldl", "-Wl,--pop-state"]


def build(output, python, compiler, extra, sources=None):
    """Compiles a module of some sources, of torch_xla's by default. `extra` are options of the compiler, and the libraries to link
    against."""
    sources = sources or sorted(str(path) for path in (HERE / "native").glob("*.c"))
    beside = output.with_suffix(".tmp")  # a process that imports meanwhile finds the old file or the new one, whole
    command = [compiler, "-std=c11", "-O2", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-fexceptions", "-D_GNU_SOURCE",
               "-DPy_LIMITED_API=0x030B0000", "-Wall", "-Wextra", "-I", str(HERE.parents[1] / "include" / "c_api"),
               "-I", include_folder(python), "-o", str(beside), *sources, *extra]
    subprocess.run(command, check=True)
    beside.replace(output)
    return output


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, help="libweft.so.1, as built")
    parser.add_argument("--python", default=sys.executable, help="the Python whose headers are used")
    parser.add_argument("--compiler", default="cc")
    parser.add_argument("--sanitize", action="store_true", help="with the address sanitizer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-glibc.") as folder:
        # A sanitizer asks for the system's glibc anyway.
        sanitizer = ["-fsanitize=address", "-O1", "-ldl", "-lpthread"]
        extra = sanitizer if options.sanitize else old_glibc(folder, options.compiler)
        print(build(TARGET / MODULE, options.python, options.compiler, extra))
    library = pathlib.Path(options.library).resolve()
    target = TARGET / "libweft.so.1"
    if not target.exists() or not target.samefile(library):
        target.unlink(missing_ok=True)
        shutil.copyfile(library, target)
    print(target)


if __name__ == "__main__":
    main()
