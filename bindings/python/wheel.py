"""Makes the wheel `libweft` that pip installs: the Python package with the library and the accelerator inside. Needs a C compiler,
the headers of Python 3.11 or later, and no network.

    python3 bindings/python/wheel.py --library build/release/lib/libweft.so.1 --out build/wheels
    python3 bindings/python/wheel.py --accelerator build/accelerator.so      # for a checkout: LIBWEFT_ACCELERATOR names the file

The accelerator is data of the package, opened by its path where Python is new enough, so that one wheel serves all of them. The platform in its name is what the library asks for, read from its symbols. The same commit gives the same bytes.
"""

import argparse
import importlib.util
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
OLDEST_PYTHON = "3.9"
LARGEST = 18 << 20
ACCELERATOR = "_accelerator.abi3.so"


def shared():
    """The parts that both wheels are made with (bindings/pytorch/wheel.py)."""
    home = HERE.parent / "pytorch"
    sys.path.insert(0, str(home))
    spec = importlib.util.spec_from_file_location("weft_pytorch_wheel", home / "wheel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def accelerator(parts, output, sanitize=False):
    """Compiles the accelerator, for the limited API, into a file; it asks for no newer glibc than the library does."""
    with tempfile.TemporaryDirectory(prefix="weft-glibc.") as folder:
        # A sanitizer asks for the system's glibc anyway.
        extra = (
            ["-g", "-O1", "-fsanitize=address,undefined"]
            if sanitize
            else [*parts.build.old_glibc(folder, "cc"), "-g0", "-s", "-Wl,--build-id=none"]
        )
        sources = sorted(str(path) for path in (HERE / "accelerator").glob("*.c"))
        try:
            return parts.build.build(output, sys.executable, "cc", extra, sources)
        except (OSError, subprocess.CalledProcessError) as error:
            return parts.die(f"the accelerator could not be compiled, which needs cc and Python's headers: {error}")


def sources():
    """{path in the package: bytes} of its Python files: those that people write and those that bindings/generate makes."""
    sys.path.insert(0, str(HERE.parent / "generate"))
    from generator import outputs

    files = {
        path.relative_to(HERE): path.read_bytes()
        for path in (HERE / "libweft").rglob("*")
        if path.suffix in (".py", ".pyi") or path.name == "py.typed"
    }
    home = HERE.relative_to(outputs.ROOT)
    made = {pathlib.Path(path): text for path, text in outputs.built().items()}
    return files | {path.relative_to(home): text.encode() for path, text in made.items() if home in path.parents}


def package(parts, out, version, library, fast, licences):
    """Writes the wheel; gives its path."""
    tag = "py3-none-" + parts.platform_tag([library, fast])
    wheel = parts.Wheel(out, "libweft", version, tag, pure=False)
    for path, content in sorted(sources().items()):
        wheel.add(path.as_posix(), content)
    wheel.add("libweft/" + library.name, library.read_bytes(), executable=True)
    wheel.add("libweft/" + fast.name, fast.read_bytes(), executable=True)
    for path in licences:
        folder = "sboms" if path.name.endswith(".spdx.json") else "licenses"
        wheel.add(f"{wheel.info}/{folder}/{path.name}", path.read_bytes())
    names = [path.name for path in licences if not path.name.endswith(".spdx.json")]
    wheel.add(
        wheel.info + "/METADATA",
        parts.metadata(
            "libweft",
            version,
            "Lazy tensors that are compiled: NumPy's way of writing, gradients, one library",
            [],
            names,
            (parts.SOURCE / "docs" / "python.md").read_text(encoding="utf-8"),
            OLDEST_PYTHON,
        ),
    )
    return wheel.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="libweft.so.1, as the release preset builds it")
    parser.add_argument("--out", help="where the wheel goes; it is made, a file of the same name is replaced")
    parser.add_argument("--notices", help="where THIRD_PARTY_NOTICES and weft.spdx.json are (notices in the build)")
    parser.add_argument("--accelerator", help="a file: only the accelerator is made, and no wheel")
    parser.add_argument("--sanitize", action="store_true", help="the accelerator with AddressSanitizer and UBSan")
    options = parser.parse_args()
    parts = shared()
    if options.accelerator:
        output = pathlib.Path(options.accelerator)
        output.parent.mkdir(parents=True, exist_ok=True)
        return print(accelerator(parts, output, options.sanitize))
    if not options.library or not options.out:
        parser.error("--library and --out are needed for a wheel")
    library = pathlib.Path(options.library).resolve()
    if not library.is_file():
        parts.die(f"there is no library at {library}")
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    version = parts.only_match(
        parts.SOURCE / "scripts" / "cmake" / "WeftOptions.cmake", r"^set\(WEFT_RELEASE_VERSION ([0-9.]+)\)$"
    )
    with tempfile.TemporaryDirectory(prefix="weft-wheel.") as work:
        work = pathlib.Path(work)
        fast = accelerator(parts, work / ACCELERATOR)
        made = package(parts, out, version, parts.stripped(library, work), fast, parts.notices(library, options.notices))
    if made.stat().st_size > LARGEST:
        parts.die(f"{made.name} has {made.stat().st_size} bytes; at most {LARGEST} are promised")
    return print(made)


if __name__ == "__main__":
    main()
