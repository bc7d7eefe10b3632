"""docs/formats.md says at which byte each field of a checkpoint's messages lies: compared with what the schema's compiler made.

WEFT_UPDATE_GOLDENS=1 writes the tables anew.
"""
import os
import re
import sys

SOURCE, BUILD = os.environ["WEFT_SOURCE"], os.environ["WEFT_BUILD"]
PAGE = os.path.join(SOURCE, "docs/formats.md")
BEGIN, END = "<!-- fields: begin -->\n", "<!-- fields: end -->\n"
SIZES = {"uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "uint64_t": 8, "int64_t": 8, "double": 8}


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def places(header):
    """{struct: (words, pointers)}, {(struct, field): (byte or pointer's number, bytes or None)} of the generated header."""
    sizes = {}
    for name, body in re.findall(r"struct (\w+) \{\s*\1\(\) = delete;.*?CAPNP_DECLARE_STRUCT_HEADER\((.*?)\)", header, re.S):
        sizes[name] = tuple(int(n) for n in body.split(",")[1:3])
    found = {}
    getter = re.compile(r"(\w+)::Reader::(?:get)?(\w+)\(\) const \{(.*?)\n\}", re.S)
    for struct, field, body in getter.findall(header):
        field = field[0].lower() + field[1:]
        data = re.search(r"getDataField<\s*(?:::)?([\w:]+)\s*>\(\s*::capnp::bounded<(\d+)>", body)
        pointer = re.search(r"getPointerField\(\s*::capnp::bounded<(\d+)>", body)
        if data and data[1] == "bool":
            found[struct, field] = (int(data[2]) // 8, 1)
        elif data:
            size = SIZES.get(data[1], 2)  # others are enums and the union's tag
            found[struct, field] = (int(data[2]) * size, size)
        elif pointer:
            found[struct, field] = (int(pointer[1]), None)
    return sizes, found


def tables(schema, header):
    sizes, found = places(header)
    out = []
    for name, body in re.findall(r"^(?:struct) (\w+) \{(.*?)^\}", schema, re.S | re.M):
        words, pointers = sizes[name]
        out.append(f"**{name}**: {words} words, {pointers} pointers\n")
        out.append("| field | type | at | |")
        out.append("|---|---|---|---|")
        tag = -1
        for line in body.splitlines():
            if line.strip() == "union {":
                tag = 0
                out.append(f"| (which) | UInt16 | byte {found[name, 'which'][0]} | which of the following there is |")
                continue
            if line.strip() == "}":
                tag = -1
            field = re.match(r"\s*(\w+) @\d+ :([\w()]+);(?:\s*#\s*(.*))?", line)
            if not field:
                continue
            what, kind, comment = field[1], field[2], field[3] or ""
            if tag >= 0:
                comment = f"which = {tag}" + (f"; {comment}" if comment else "")
                tag += 1
            if kind == "Void":
                at = ""
            else:
                place, size = found[name, what]
                at = f"pointer {place}" if size is None else f"byte {place}"
            out.append(f"| {what} | {kind} | {at} | {comment} |")
        out.append("")
    for name, body in re.findall(r"^enum (\w+) \{(.*?)\}", schema, re.S | re.M):
        values = ", ".join(f"{number} {value}" for value, number in re.findall(r"(\w+) @(\d+);", body))
        out.append(f"**{name}** (UInt16): {values}.\n")
    return "\n".join(out).rstrip("\n") + "\n"


def main():
    wanted = tables(read(os.path.join(SOURCE, "serialization/schema/checkpoint.capnp")),
                    read(os.path.join(BUILD, "generated/serialization/schema/checkpoint.capnp.h")))
    page = read(PAGE)
    before, rest = page.split(BEGIN)
    there, after = rest.split(END)
    if there == wanted:
        return 0
    if os.environ.get("WEFT_UPDATE_GOLDENS"):
        with open(PAGE, "w", encoding="utf-8") as f:
            f.write(before + BEGIN + wanted + END + after)
        return 0
    print("docs/formats.md does not say where the fields lie; WEFT_UPDATE_GOLDENS=1 writes it:\n" + wanted)
    return 1


if __name__ == "__main__":
    sys.exit(main())
