"""Makes the two wheels that pip installs; needs the C compiler, and no network; with Debian's advancecomp they are smaller.

    python3 bindings/pytorch/wheel.py --library build/release/lib/libweft.so.1 --out build/wheels

libweft_torch-VERSION-py3-none-manylinux_2_28_x86_64.whl   the package torch_xla: Python, the C module, libweft.so.1,
                                                           licences
torch_xla-2.9.0+weft-py3-none-any.whl                      no files: trainers ask for a distribution of this name

The platform in the first name is what the two libraries ask for, read from their symbols. The same commit gives the same
bytes: times are those of SOURCE_DATE_EPOCH, or of the commit.
"""
import argparse
import base64
import csv
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

import build

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
OLDEST_TORCH = "2.10"
OLDEST_PYTHON = "3.11"
# What every glibc system has. A library that needs another one would have to carry it.
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}


def say(text):
    print("wheel: " + text, file=sys.stderr)


def die(text):
    say(text)
    sys.exit(1)


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def only_match(path, pattern):
    """The one value that a file of the project gives; the file is its home."""
    found = re.findall(pattern, path.read_text(encoding="utf-8"), re.M)
    if len(found) != 1:
        die(f"{path} was expected to say once '{pattern}', and says it {len(found)} times")
    return found[0]


def epoch():
    """Seconds since 1970 that files in the wheels have. A zip file knows no time before 1980."""
    text = os.environ.get("SOURCE_DATE_EPOCH") or ""
    if not text:
        command = ["git", "-C", str(SOURCE), "log", "-1", "--format=%ct"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        text = done.stdout.strip()
    if not text.isdigit():
        die(f"SOURCE_DATE_EPOCH is '{text}', no number of seconds" if text else
            "no commit to take the time from: set SOURCE_DATE_EPOCH")
    return max(int(text), 315532800)


def glibc_needed(path):
    """The newest glibc, as a pair of numbers, that a shared library asks for; ends where it needs other libraries."""
    header = run("readelf", "-hW", str(path))
    if "X86-64" not in header:
        die(f"{path} is no library for x86-64")
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-dW", str(path))))
    if needed - SYSTEM_LIBRARIES:
        die(f"{path} needs {', '.join(sorted(needed - SYSTEM_LIBRARIES))}, which not every system has")
    versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", run("readelf", "-VW", str(path)))
    return max((int(major), int(minor)) for major, minor in versions)


def platform_tag(libraries):
    """manylinux_2_28_x86_64, or a later one where a library asks for it: pip then refuses it where it could not be loaded."""
    promised = tuple(int(part) for part in build.OLDEST_GLIBC.split("."))
    newest, path = max((glibc_needed(path), path) for path in libraries)
    if newest > promised:
        say(f"{path.name} asks for glibc {newest[0]}.{newest[1]}, newer than {build.OLDEST_GLIBC}; the wheel says so")
    major, minor = max(newest, promised)
    return f"manylinux_{major}_{minor}_x86_64"


def pack(path):
    """Compresses a zip file's members again, by libdeflate in place of zlib: 4 % smaller. Times, modes and names stay."""
    if shutil.which("advzip"):
        run("advzip", "--recompress", "--shrink-normal", "--quiet", str(path))
    else:
        say("advzip (Debian's advancecomp) is not installed: the wheel is some 4 % larger")


class Wheel:
    """One zip file with the list of hashes that the format wants; nothing in it says when or where it was made."""

    def __init__(self, folder, name, version, tag, pure):
        self.path = folder / f"{name.replace('-', '_')}-{version}-{tag}.whl"
        self.info = f"{name.replace('-', '_')}-{version}.dist-info"
        self._beside = self.path.with_suffix(".tmp")
        self._zip = zipfile.ZipFile(self._beside, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self._time = time.gmtime(epoch())[:6]
        self._rows = []
        self._wheel = f"Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: {'true' if pure else 'false'}\nTag: {tag}\n"

    def add(self, name, content, executable=False):
        entry = zipfile.ZipInfo(name, self._time)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3  # Unix, so that the mode counts
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        self._zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode("ascii").rstrip("=")
        self._rows.append((name, "sha256=" + digest, len(content)))

    def close(self):
        self.add(self.info + "/WHEEL", self._wheel.encode("utf-8"))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*self._rows, (self.info + "/RECORD", "", "")])
        self._rows = []
        self.add(self.info + "/RECORD", text.getvalue().encode("utf-8"))
        self._zip.close()
        pack(self._beside)
        self._beside.replace(self.path)
        say(f"{self.path.name}: {self.path.stat().st_size // 1024} KiB")
        return self.path


def metadata(name, version, summary, requires, licences, description, python=OLDEST_PYTHON):
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", f"Summary: {summary}",
             "Author: The Weft authors", f"Requires-Python: >={python}",
             *(f"License-File: {each}" for each in licences),
             "Classifier: Operating System :: POSIX :: Linux", *(f"Requires-Dist: {each}" for each in requires),
             "Description-Content-Type: text/markdown", "", description]
    return "\n".join(lines).encode("utf-8")


def stripped(library, work):
    """The library without symbols."""
    beside = library.parent / "stripped" / library.name
    target = work / "libweft.so.1"
    shutil.copyfile(beside if beside.exists() else library, target)
    if not beside.exists():
        run("strip", "--strip-unneeded", str(target))
    return target


def binaries(library, compiler, work):
    """The stripped library and the module, compiled anew: no symbols and no path of this machine is in them."""
    target = stripped(library, work)
    module = work / build.MODULE
    glibc = work / "glibc"
    options = [*build.old_glibc(str(glibc), compiler), f"-ffile-prefix-map={SOURCE}=.", "-s", "-Wl,--build-id=none"]
    build.build(module, sys.executable, compiler, options)
    return target, module


def notices(library, given):
    """LICENSE and what the build says of the code inside the library, which has to go where the library goes."""
    folder = pathlib.Path(given) if given else library.parents[1] / "notices"
    files = [SOURCE / "LICENSE", folder / "THIRD_PARTY_NOTICES", folder / "weft.spdx.json"]
    for path in files:
        if not path.is_file():
            die(f"there is no {path}: the release build makes it beside its library (--notices says where else it is)")
    return files


def package_wheel(out, version, library, module, licences):
    tag = "py3-none-" + platform_tag([library, module])
    wheel = Wheel(out, "libweft-torch", version, tag, pure=False)
    for path in sorted((HERE / "torch_xla").rglob("*.py")):
        wheel.add(path.relative_to(HERE).as_posix(), path.read_bytes())
    for path in (module, library):
        wheel.add("torch_xla/_weft/" + path.name, path.read_bytes(), executable=True)
    for path in licences:
        wheel.add(f"{wheel.info}/licenses/{path.name}", path.read_bytes())
    wheel.add(wheel.info + "/METADATA", metadata(
        "libweft-torch", version, "torch_xla over Weft: PyTorch/XLA's programs run as they are", [f"torch>={OLDEST_TORCH}"],
        [path.name for path in licences], (SOURCE / "docs" / "pytorch.md").read_text(encoding="utf-8")))
    return wheel.close()


def name_wheel(out, version):
    """The distribution torch_xla: no files, and libweft-torch of the same release, which has the package."""
    facade = only_match(HERE / "torch_xla" / "__init__.py", r'^__version__ = "(.+)"$')
    wheel = Wheel(out, "torch_xla", facade, "py3-none-any", pure=True)
    wheel.add(wheel.info + "/METADATA", metadata(
        "torch_xla", facade, "The name under which libweft-torch is found", [f"libweft-torch=={version}"], [],
        "It holds no files: the package `torch_xla` is in the distribution libweft-torch.\n"))
    return wheel.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libweft.so.1, as the release preset builds it")
    parser.add_argument("--out", required=True, help="where the wheels go; it is made, files of the same names are replaced")
    parser.add_argument("--notices", help="where THIRD_PARTY_NOTICES and weft.spdx.json are (notices in the build)")
    parser.add_argument("--compiler", default="cc")
    options = parser.parse_args()
    library = pathlib.Path(options.library).resolve()
    if not library.is_file():
        die(f"there is no library at {library}")
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    version = only_match(SOURCE / "scripts" / "cmake" / "WeftOptions.cmake", r"^set\(WEFT_RELEASE_VERSION ([0-9.]+)\)$")
    licences = notices(library, options.notices)
    with tempfile.TemporaryDirectory(prefix="weft-wheel.") as work:
        stripped, module = binaries(library, options.compiler, pathlib.Path(work))
        print(package_wheel(out, version, stripped, module, licences))
    print(name_wheel(out, version))


if __name__ == "__main__":
    main()
