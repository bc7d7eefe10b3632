"""The complete description as text: one entry a line where it fits, so that a change shows as the lines that changed."""
import json

WIDTH = 160
PATH = "include/c_api/weft_api.json"


def dump(value, indent=0):
    flat = json.dumps(value, ensure_ascii=False, separators=(",", ":"))  # the library carries every byte
    if len(flat) + indent <= WIDTH or not isinstance(value, (dict, list)):
        return flat
    if isinstance(value, list):
        inner = ",\n".join(" " * (indent + 1) + dump(v, indent + 1) for v in value)
        return "[\n%s]" % inner
    # Keys of plain values share lines; what is long or nested gets its own.
    lines, line = [], ""
    for key, v in value.items():
        piece = "%s:%s" % (json.dumps(key), dump(v, indent + 1))
        if line and ("\n" in piece or len(line) + len(piece) + indent > WIDTH):
            lines.append(line)
            line = ""
        line += ("," if line else "") + piece
        if "\n" in piece:
            lines.append(line)
            line = ""
    lines += [line] if line else []
    return "{%s}" % (",\n" + " " * (indent + 1)).join(lines)


def files(api):
    return {PATH: dump(api.description) + "\n"}
