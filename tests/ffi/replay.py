#!/usr/bin/env python3
"""Replays vectors.json through the generated declarations for ctypes. usage: replay.py DECLARATIONS LIBRARY VECTORS FOLDER
(vectors.py says what the forms mean). Prints `ok NAME` or `failed NAME: reason` for each vector."""
import ctypes as c
import json
import sys

sys.path.insert(0, sys.argv[1])
import weft_ffi as w  # noqa: E402

ELEMENTS = {"f32": c.c_float, "f64": c.c_double, "i32": c.c_int32, "i64": c.c_int64, "u8": c.c_uint8}
SCALARS = {"int32_t": c.c_int32, "int64_t": c.c_int64, "uint32_t": c.c_uint32, "uint64_t": c.c_uint64, "size_t": c.c_size_t,
           "double": c.c_double, "const char*": c.c_void_p, "const void*": c.c_void_p}


class Failed(Exception):
    pass


def number(x):
    if isinstance(x, str):
        return getattr(w, x)
    return int(x["u64"]) if isinstance(x, dict) else x


def type_of(name):
    """A C type that an out parameter has, as the declarations call it."""
    return SCALARS.get(name) or getattr(w, name.rstrip("*"))


class Vector:
    def __init__(self, lib, folder, entry):
        self.lib, self.folder, self.entry = lib, folder, entry
        self.registers, self.counters, self.keep = {}, {}, []

    def kept(self, x):
        self.keep.append(x)
        return x

    def register(self, name):
        if name.endswith("]"):
            name, at = name[:-1].split("[")
            held = self.registers[name][int(at)]
            return held if isinstance(held, c.c_void_p) else self.kept(self.registers[name]._type_(held))
        return self.registers[name]

    def callback(self, a):
        counter = self.counters.setdefault(a["callback"], [0, 0])

        def called(user_data, *_):
            counter[0] += 1
            counter[1] += user_data or 0
        return self.kept(getattr(w, a["type"])(called))

    def fill(self, struct, fields):
        types = dict(struct._fields_)
        for name, value in fields.items():
            if name == "present" and isinstance(value, list):
                value = sum(getattr(w, bit) for bit in value)
            value = self.argument(value)
            if isinstance(value, (c.Array, c.c_void_p)) and types[name] is not c.c_char_p:
                value = c.cast(value, types[name])
            setattr(struct, name, value)
        return struct

    def struct(self, a):
        made = getattr(w, a["struct"])()
        if a["struct"] + "_init" in w.FUNCTIONS:
            getattr(self.lib, a["struct"] + "_init")(c.byref(made), c.sizeof(made))
        if "out" in a:
            self.registers[a["out"]] = made
        return c.pointer(self.kept(self.fill(made, a["fields"])))

    def argument(self, a):
        if a is None or isinstance(a, (int, float)):
            return a
        if isinstance(a, str):
            return self.register(a[1:]) if a.startswith("$") else getattr(w, a)
        if "struct" in a:
            return self.struct(a)
        if "structs" in a:
            kind = getattr(w, a["structs"])
            return self.kept((kind * len(a["items"]))(*[self.fill(kind(), item) for item in a["items"]]))
        if "text" in a:
            return self.kept(a["text"].replace("{tmp}", self.folder).encode())
        if "handles" in a:
            kind = getattr(w, a["type"])
            return self.kept((kind * len(a["handles"]))(*[kind() if h is None else self.argument(h) for h in a["handles"]]))
        if "out" in a:
            self.registers[a["out"]] = type_of(a["type"])()
            return c.byref(self.registers[a["out"]])
        if "outs" in a:
            self.registers[a["outs"]] = (type_of(a["type"]) * a["count"])()
            return self.registers[a["outs"]]
        if "callback" in a:
            return self.callback(a)
        if "address" in a:
            return getattr(w, a["type"])(a["address"]) if "type" in a else c.c_void_p(a["address"])
        if "u64" in a:
            return int(a["u64"])
        (kind, values), = a.items()
        return self.kept((ELEMENTS[kind] * len(values))(*values))

    def passed(self, a, kind):
        """An argument for a parameter of this type; ctypes writes a NULL function as one made of nothing."""
        return kind() if a is None and issubclass(kind, c._CFuncPtr) else self.argument(a)

    def must(self, what, wanted, got):
        if wanted != got:
            raise Failed("%s is %r, not %r" % (what, got, wanted))

    def error(self, wanted, given):
        said = None
        if given:
            length = c.c_size_t()
            message = self.lib.weft_error_message(given, c.byref(length))
            said = (self.lib.weft_error_code(given), w.text(message, length.value).replace(self.folder, "{tmp}"))
            self.lib.weft_error_release(given)
        self.must("error", wanted and (getattr(w, wanted["code"]), wanted["message"]), said)

    def returned(self, wanted, given):
        if isinstance(given, c.c_void_p) and "reg" not in (wanted or {}):
            given = given.value
        if wanted is None:
            return self.must("what is returned", None, given or None)
        if isinstance(wanted, dict) and "reg" in wanted:
            self.registers[wanted["reg"]] = given
        elif isinstance(wanted, dict) and "not_null" in wanted:
            self.must("what is returned", True, bool(given))
        else:
            self.must("what is returned", wanted["text"] if isinstance(wanted, dict) else number(wanted),
                      w.text(given) if isinstance(wanted, dict) else given)

    def blob(self, name):
        held = self.register(name)
        return w.text(self.lib.weft_blob_data(held), self.lib.weft_blob_size(held))

    def elements(self, name, dtype):
        size = c.c_uint64()
        w.check(self.lib, self.lib.weft_tensor_size(self.register(name), c.byref(size)))
        data = (ELEMENTS[dtype] * (size.value // c.sizeof(ELEMENTS[dtype])))()
        w.check(self.lib, self.lib.weft_tensor_to_host(self.register(name), data, size))
        return list(data)

    def held(self, e):
        """The number, list or text that a register or a field of one holds."""
        x = self.registers[e["reg"]]
        if "field" in e:
            value = getattr(x, e["field"])
            return value[:getattr(x, e["length"])].decode() if "length" in e else value
        if "length" in e:
            return w.text(x, self.registers[e["length"]].value)
        return list(x) if isinstance(x, c.Array) else x.value or 0

    def expect(self, e):
        if "counter" in e:
            calls, user_data = self.counters.get(e["counter"], (0, 0))
            if "at_least" in e:
                return self.must("calls of " + e["counter"], True, calls >= e["at_least"])
            return self.must("calls and user_data of " + e["counter"], (e["calls"], e["user_data"]), (calls, user_data))
        if "blob" in e and "has" in e:
            return self.must("the blob has " + e["has"], True, e["has"] in self.blob(e["blob"]))
        if "blob" in e:
            return self.must("the blob", e["is"], self.blob(e["blob"]))
        if "tensor" in e:
            return self.must("tensor " + e["tensor"], e["is"], self.elements(e["tensor"], e["dtype"]))
        wanted = e["is"]
        if "length" not in e and not isinstance(wanted, list):
            wanted = number(wanted)
        return self.must(e["reg"], wanted, self.held(e))

    def run(self):
        for call in self.entry["calls"]:
            function = getattr(self.lib, call["call"])
            result = function(*[self.passed(a, kind) for a, kind in zip(call["args"], function.argtypes)])
            try:
                if function.restype is w.weft_error and "returns" not in call:
                    self.error(call.get("error"), result)
                elif function.restype is not None:
                    self.returned(call.get("returns"), result)
                for e in call.get("expect", []):
                    self.expect(e)
            except Failed as failed:
                raise Failed("%s: %s" % (call["call"], failed)) from None


def main():
    _, _, library, vectors, folder = sys.argv
    lib = w.load(library)
    with open(vectors, encoding="utf-8") as f:
        for entry in json.load(f)["vectors"]:
            try:
                Vector(lib, folder, entry).run()
                print("ok", entry["name"], flush=True)
            except Failed as failed:
                print("failed %s: %s" % (entry["name"], failed), flush=True)


if __name__ == "__main__":
    main()
