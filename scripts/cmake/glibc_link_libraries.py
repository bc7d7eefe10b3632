"""Writes libraries to link against, made of this machine's C library, in which nothing newer than a given glibc exists.

usage: glibc_link_libraries.py --version 2.28 --out FOLDER --cc COMPILER [FLAG...]

Each link library has the real library's name and, of each of its symbols, the newest version up to the given one, and no code, as
a linker reads none; so a program that is linked with `-L FOLDER` asks for no newer one, and what only a newer glibc has is a link
error that names it. Where code was moved between the library's files since (2.34 took threads and dlopen into libc.so.6) the
version is what counts: the loader looks through all that are loaded.
"""
import argparse
import os
import re
import subprocess

LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1")
SYMBOL = re.compile(r"^\s*\d+:\s+(?P<value>[0-9a-f]+)\s+(?P<size>\d+|0x[0-9a-f]+)\s+(?P<type>\w+)\s+\w+\s+\w+\s+(?P<section>\w+)"
                    r"\s+(?P<name>\w+)@@?(?P<version>GLIBC_(?P<number>[0-9.]+))(?:\s|$)")


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def number(text):
    return tuple(int(part) for part in text.split("."))


def symbols(path, newest):
    """Name to what readelf says about its newest version that is not too new. Thread-local ones (errno) are glibc's own."""
    found = {}
    for line in run("readelf", "-W", "--dyn-syms", path).splitlines():
        match = SYMBOL.match(line)
        if match is None or match["section"] in ("UND", "ABS") or match["type"] == "TLS" or number(match["number"]) > newest:
            continue
        known = found.get(match["name"])
        if known is None or number(known["number"]) < number(match["number"]):
            found[match["name"]] = match
    return found


def assembly(found):
    """Functions are labels; variables keep their sizes and which of them are one, for copies that a program makes of them."""
    lines, variables = [".section .note.GNU-stack,\"\",@progbits", ".text"], {}
    for name, match in sorted(found.items()):
        if match["type"] == "OBJECT":
            variables.setdefault(match["value"], []).append(match)
        else:
            lines += [f'.globl "{name}"', f'.type "{name}", @function', f'"{name}": .byte 0']
    lines.append(".data")
    for _, same in sorted(variables.items()):
        sizes = [int(match["size"], 0) for match in same]
        lines.append(".balign 32")
        for match, size in zip(same, sizes):
            lines += [f'.globl "{match["name"]}"', f'.type "{match["name"]}", @object', f'.size "{match["name"]}", {size}',
                      f'"{match["name"]}":']
        lines.append(f".skip {max(sizes + [1])}")
    return "\n".join(lines) + "\n"


def version_script(found):
    nodes = {}
    for name, match in found.items():
        nodes.setdefault(match["version"], []).append(name)
    return "".join(f"{node} {{ global: {' '.join(chr(34) + name + chr(34) + ';' for name in sorted(names))} }};\n"
                   for node, names in sorted(nodes.items()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--cc", required=True, nargs=argparse.REMAINDER)
    args = parser.parse_args()
    newest = number(args.version)
    os.makedirs(args.out, exist_ok=True)

    def real(name):
        return run(*args.cc, "-print-file-name=" + name).strip()

    # The loader is a library, too: it has __tls_get_addr.
    loader = re.search(r"\(NEEDED\).*\[(ld-linux.*)\]", run("readelf", "-dW", real("libc.so.6")))[1]
    for name in (*LIBRARIES, loader):
        found = symbols(real(name), newest)
        source, script = (os.path.join(args.out, name + ending) for ending in (".s", ".map"))
        with open(source, "w", encoding="ascii") as out:
            out.write(assembly(found))
        with open(script, "w", encoding="ascii") as out:
            out.write(version_script(found) or "NOTHING { };\n")
        run(*args.cc, "-nostdlib", "-shared", "-Wl,-soname," + name, "-Wl,--version-script=" + script, source, "-o", os.path.join(args.out, name))
        if name not in ("libc.so.6", loader):
            link = os.path.join(args.out, name[:name.index(".so") + 3])
            if os.path.lexists(link):
                os.unlink(link)
            os.symlink(name, link)
    # Last: a build system takes this file for the whole. The archive has what every program carries itself (atexit and the like).
    with open(os.path.join(args.out, "libc.so"), "w", encoding="utf-8") as out:
        out.write(f'GROUP ( "{os.path.join(args.out, "libc.so.6")}" "{real("libc_nonshared.a")}" '
                  f'AS_NEEDED ( "{os.path.join(args.out, loader)}" ) )\n')


if __name__ == "__main__":
    main()
