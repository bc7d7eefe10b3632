"""What each parameter or field is for: direction, ownership, lengths, who lends. api.json says what cannot be seen from
types and names; the rest follows from the house's few forms (text and its length, list and count, list, capacity and count)."""

OUT_TEXT = ("const char**", "const void**")


def said(entry, *needed):
    """Without what is not there: the schema says what an absent key means."""
    return {key: value for key, value in entry.items() if key in needed or value not in (None, False, "", [])}


def lengths(members, types, from_weft):
    """name of data -> its length; name of a length -> the data that it belongs to."""
    of_data, of_length = {}, {}
    names = {m["name"] for m in members}
    for m in members:
        if "len" in m:
            base, depth = types.base(m["type"])
            plain = base in ("char", "void") and depth == 1
            unit = "variant" if m.get("role") == "variant" else "bytes" if plain else "elements"
            full = [n for n in ("out_count", "out_rank") if m["len"] == "capacity" and n in names]
            of_data[m["name"]] = said({"param": m["len"], "unit": unit, "strlen": base == "char" and plain and not from_weft,
                                       "full": full[0] if full else None})
            of_length.setdefault(m["len"], []).append(m["name"])
            of_length.update({n: [m["name"]] for n in full})
        elif m.get("dir") == "out" and m["type"] in OUT_TEXT and "out_length" in names:
            of_data[m["name"]] = {"param": "out_length", "unit": "bytes"}
            of_length["out_length"] = [m["name"]]
    return of_data, of_length


def role_of(m, types, data, of_length):
    if "role" in m:
        return m["role"]
    name = m["name"]
    if name in of_length:
        unit = next(iter(data[d]["unit"] for d in of_length[name]))
        return "capacity" if name == "capacity" else "length" if unit == "bytes" else "count"
    if m.get("truth"):
        return "truth"
    base, depth = types.base(m["type"])
    kind = types.of(base)["kind"]
    if (depth or "array" in m) and name in data and data[name]["unit"] == "elements":
        return "list"
    if kind in ("handle", "callback", "opaque"):
        return kind
    if kind == "struct":
        return "struct"
    if base == "char":
        return "text"
    if base == "void":
        return "bytes" if name in data else "user_data"
    if name.startswith("reserved"):
        return "reserved"
    return "value"


def hooks(members):
    """name of user_data or release -> the callbacks that it goes with."""
    out = {}
    for m in members:
        for key in ("user_data", "release"):
            if key in m:
                out.setdefault(m[key], []).append((key, m["name"]))
    return out


def direction(m, types):
    if m.get("dir") != "out":
        return None  # in
    base, depth = types.base(m["type"])
    # A versioned struct says its size before it is filled.
    return "inout" if types.of(base)["kind"] == "struct" and depth == 1 and "len" not in m else "out"


def ownership(m, role, types):
    if "own" in m:
        return m["own"]
    base, _ = types.base(m["type"])
    return "borrow" if types.of(base)["kind"] == "handle" and role in ("handle", "list") else None


def lent(m):
    if "lent" not in m:
        return None
    by, until = m["lent"][:2]
    return said({"by": by, "until": until, "of": m["lent"][2] if len(m["lent"]) > 2 else by if until in ("release", "change") else None})


def members(given, types, from_weft=False):
    """Parameters of a function or callback, or fields of a struct, in the form of the complete description."""
    given = [dict(m, type=m["type"].replace("*const*", "* const*")) for m in given]
    for m in given:
        types.of(m["type"])
    data, of_length = lengths(given, types, from_weft)
    hooked = hooks(given)
    out = []
    for m in given:
        name = m["name"]
        role, of = role_of(m, types, data, of_length), of_length.get(name, [])
        if name in hooked:
            role, of = hooked[name][0][0], [callback for _, callback in hooked[name]]
        out.append(said({"name": name, "type": m["type"], "role": role, "of": of, "direction": direction(m, types),
                         "nullable": m.get("nullable"), "null_elements": m.get("null_elements"),
                         "ownership": ownership(m, role, types), "length": data.get(name), "lent": lent(m),
                         "doc": m.get("doc")}))
    return out


def returned(f, types):
    """What a function gives back itself."""
    ctype = f["returns"].replace("*const*", "* const*")
    base, depth = types.base(ctype)
    kind = types.of(base)["kind"]
    names = {p["name"] for p in f["params"]}
    role = {"void": "none", "const char*": "text", "const void*": "bytes", "weft_proc": "function",
            "weft_error*": "handle" if f["name"].startswith("weft_error_new") else "error"}.get(ctype)
    role = role or ("handle" if kind == "handle" else "table" if kind == "struct" else "value")
    length = {"param": "out_length", "unit": "bytes"} if "out_length" in names and role == "text" else None
    return said({"type": ctype, "role": role, "ownership": f.get("returns_own"), "length": length, "lent": lent(f)})
