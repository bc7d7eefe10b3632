"""THIRD_PARTY_NOTICES and a software bill of materials (SPDX 2.3, JSON) of libweft.so, from what the linker read.

Every archive and object of the link that is not ours must belong to a component of the table below; one that does not is an
error, so that nothing comes into the library without its licence. Licence texts are those that the machine's packages and the
private dependencies (scripts/install-deps) brought with the archives, as they stand there.
"""
import argparse
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys


class Component:
    """One third party: whose files the linker read, under which licence, and where text and version are found."""

    def __init__(self, name, inputs, license, url, package=None, private=None, common=(), note=""):
        self.name, self.inputs, self.license, self.url, self.note = name, re.compile(inputs), license, url, note
        self.package = package  # of Debian: its version, and the text of its copyright file
        self.private = private  # of scripts/install-deps: share/licenses
        self.common = common    # licences which that text only refers to


GCC_NOTE = ("Only the run-time libraries, under the GPL version 3 with the GCC Runtime Library Exception, which allows a program "
            "built with GCC to hold them under terms of its own choice.")
COMPONENTS = [
    Component("LLVM", r"/libLLVM\w+\.a$", "Apache-2.0 WITH LLVM-exception", "https://llvm.org", "llvm-19-dev", common=("Apache-2.0",)),
    Component("Abseil", r"/libabsl_\w+\.a$", "Apache-2.0", "https://abseil.io", private="abseil"),
    Component("Cap'n Proto", r"/lib(capnp|kj)\.a$", "MIT", "https://capnproto.org", private="capnproto"),
    Component("Zstandard", r"/libzstd\.a$", "BSD-3-Clause", "https://facebook.github.io/zstd", "libzstd-dev",
              note="Used under the BSD licence, one of the two that its text offers."),
    Component("libffi", r"/libffi_pic\.a$", "MIT", "https://sourceware.org/libffi", "libffi-dev"),
    Component("LAPACK", r"/liblapack_pic\.a$", "BSD-3-Clause", "https://netlib.org/lapack", "liblapack-dev"),
    Component("BLAS (reference)", r"/libblas\.a$", "BSD-3-Clause", "https://netlib.org/blas", "libblas-dev"),
    Component("zlib", r"/libz\.a$", "Zlib", "https://zlib.net", "zlib1g-dev"),
    Component("GCC libstdc++, libgcc and start files", r"/(libstdc\+\+|libgcc|libgcc_eh|libatomic)\.a$|/crt(begin|end)\w*\.o$",
              "GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org", "libstdc++-12-dev", note=GCC_NOTE),
    Component("GNU C Library start files", r"/crt[in1]\.o$|/libc_nonshared\.a$",
              "LGPL-2.1-or-later WITH GCC-exception-2.0", "https://www.gnu.org/software/libc", "libc6-dev", common=("LGPL-2.1",),
              note="Start files, whose own notice allows linking them into anything; the C library itself is not in libweft.so."),
    # Headers alone: nothing that the linker reads tells of them.
    Component("xxHash", r"^xxhash\.h$", "BSD-2-Clause", "https://xxhash.com", "libxxhash-dev",
              note="Used under the BSD licence: the header, not the command line program."),
    Component("JSON for Modern C++", r"^nlohmann/json\.hpp$", "MIT", "https://json.nlohmann.me", "nlohmann-json3-dev"),
]
HEADERS_ONLY = ["xxhash.h", "nlohmann/json.hpp"]


def fail(text):
    sys.exit("notices: " + text)


def linker_inputs(path):
    """The files of a depfile of the linker (make's syntax), without the rules that only name them."""
    with open(path, encoding="utf-8") as handle:
        text = handle.read().replace("\\\n", " ")
    first = text.split("\n\n")[0].split("\n")[0]
    target, _, files = first.partition(":")
    if not files.strip():
        fail(f"{path} names no files; is the linker lld?")
    return [name.replace("\\ ", " ") for name in re.split(r"(?<!\\)\s+", files.strip())]


def read(path, what):
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.read().strip("\n")
    except OSError as error:
        return fail(f"{what}: {error}. Its licence text must ship with the library")


def package_version(package):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"dpkg does not know the package {package}: {done.stderr.strip()}")
    return done.stdout


def describe(component, private):
    """Version and licence text."""
    if component.private:
        folder = os.path.join(private, "share", "licenses")
        versions = dict(line.split(" ", 1) for line in read(os.path.join(folder, "versions"), component.name).splitlines())
        return versions[component.private], read(os.path.join(folder, component.private), component.name)
    text = read(f"/usr/share/doc/{component.package}/copyright", component.name)
    for licence in component.common:
        text += "\n\n" + read("/usr/share/common-licenses/" + licence, component.name)
    return package_version(component.package), text


def components_of(inputs, own):
    """Which components the files belong to, in the table's order. Ours, and shared libraries that are only referred to, are none."""
    used, unknown = set(), []
    for name in inputs:
        real = os.path.abspath(os.path.join(own, name))  # the linker ran in the build folder
        ours = real.startswith(os.path.abspath(own) + os.sep) or re.search(r"\.so(\.\d+)*$|\.map$", real)
        if ours and name not in HEADERS_ONLY:
            continue
        found = [c for c in COMPONENTS if c.inputs.search(name)]
        if len(found) == 1:
            used.add(found[0])
        else:
            unknown.append(name)
    if unknown:
        fail("the library holds files that no component of scripts/cmake/notices.py claims, so their licence would not ship: "
             + ", ".join(unknown))
    return [c for c in COMPONENTS if c in used]


def created(source):
    """The time of SOURCE_DATE_EPOCH, else of the commit: the same sources give the same bytes."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if not seconds:
        done = subprocess.run(["git", "-C", source, "log", "-1", "--format=%ct"], capture_output=True, text=True)
        seconds = done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else "0"
    return datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def spdx(found, library, version, when):
    with open(library, "rb") as handle:
        digest = hashlib.sha256(handle.read()).hexdigest()
    packages = [{
        "SPDXID": "SPDXRef-weft", "name": "weft", "versionInfo": version, "downloadLocation": "NOASSERTION",
        "packageFileName": os.path.basename(library), "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
        "filesAnalyzed": False, "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0",
        "copyrightText": "Copyright 2026 The Weft authors"}]
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-weft"}]
    for component, component_version, _ in found:
        identifier = "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", component.name).strip("-")
        packages.append({
            "SPDXID": identifier, "name": component.name, "versionInfo": component_version, "downloadLocation": component.url,
            "filesAnalyzed": False, "licenseConcluded": component.license, "licenseDeclared": component.license,
            "copyrightText": "NOASSERTION"})
        relations.append({"spdxElementId": "SPDXRef-weft", "relationshipType": "STATIC_LINK", "relatedSpdxElement": identifier})
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"weft-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/weft-{version}-{digest[:32]}",
        "creationInfo": {"created": when, "creators": ["Tool: weft-notices"]},
        "packages": packages, "relationships": relations}


def notices(found):
    out = ["Third-party software inside libweft.so", "", "The library holds code of these projects, each under the licence that follows below."
           " Weft's own is in the file LICENSE.", ""]
    width = max(len(c.name) for c, _, _ in found)
    out += [f"  {c.name:<{width}}  {version}  {c.license}" for c, version, _ in found]
    for component, version, text in found:
        out += ["", "=" * 100, f"{component.name} {version}", component.url, component.license]
        out += [component.note] if component.note else []
        out += ["=" * 100, "", text]
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", required=True, help="depfile of the link (lld's --dependency-file)")
    parser.add_argument("--own", required=True, help="build folder: files of the link below it are ours")
    parser.add_argument("--private", required=True, help="where scripts/install-deps put what it built")
    parser.add_argument("--library", required=True, help="the file that ships, for its checksum")
    parser.add_argument("--version", required=True, help="release")
    parser.add_argument("--source", required=True, help="the sources' folder, for the time of the commit")
    parser.add_argument("--out", required=True, help="folder for THIRD_PARTY_NOTICES and weft.spdx.json")
    args = parser.parse_args()
    found = [(c, *describe(c, args.private)) for c in components_of(linker_inputs(args.inputs) + HEADERS_ONLY, args.own)]
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "THIRD_PARTY_NOTICES"), "w", encoding="utf-8") as handle:
        handle.write(notices(found))
    with open(os.path.join(args.out, "weft.spdx.json"), "w", encoding="utf-8") as handle:
        json.dump(spdx(found, args.library, args.version, created(args.source)), handle, indent=2)
        handle.write("\n")


if __name__ == "__main__":
    main()
