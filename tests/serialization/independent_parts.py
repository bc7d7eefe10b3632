"""The reader of independent_reader.py with what docs/formats.md says of tensors in parts: compressed ones, and parts that stand in
files beside the file. From that page alone; zstd is the system's.
"""
import ctypes
import os

from independent_reader import Checkpoint, Type, message, need, u64, xxh3

ZSTD = ctypes.CDLL("libzstd.so.1")
ZSTD.ZSTD_decompress.restype = ctypes.c_size_t
ZSTD.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
NUMBER = {"f16": 2, "bf16": 2, "i16": 2, "u16": 2, "f32": 4, "i32": 4, "u32": 4, "c64": 4, "f64": 8, "i64": 8, "u64": 8, "c128": 8}


def expand(stored, codec, dtype, length):
    if codec == 0:
        return stored
    need(codec == 1 and len(stored) < length, "codec of a part")
    out = ctypes.create_string_buffer(length)
    need(ZSTD.ZSTD_decompress(out, length, stored, len(stored)) == length, "zstd")
    each = NUMBER.get(dtype, 1)
    count, raw = length // each, bytearray(length)
    for k in range(each):
        raw[k::each] = out.raw[k * count:(k + 1) * count]
    return bytes(raw)


class WithParts(Checkpoint):
    FEATURES = 6

    def __init__(self, path):
        self.folder, self.parts, self.of = os.path.dirname(path), {}, None
        with open(path, "rb") as f:
            super().__init__(f.read())

    def base(self, number):
        """The bytes of a file that parts are taken from."""
        name, uuid = [(b.text(0), b.list(1)) for b in self.footer.list(1)][number]
        need("/" not in name and name not in (".", ".."), "a base's name")
        with open(os.path.join(self.folder, name), "rb") as f:
            data = f.read()
        need(data[24:40] == uuid and u64(data, 56) == xxh3(data[:56]), f"{name} is another file")
        return data

    def other(self, f):
        if f.kind == 10:
            m = message(f.meta)
            t, index = Type(m.struct(0), 0), m.number(0, 4)
            need(self.of in (None, t.id) and m.number(8, 8) == xxh3(f.bytes), "a part")
            self.of, self.parts[index] = t.id, (f.payload, f.length, m.number(4, 2), 0, m.number(8, 8), f.bytes)
            return True
        need(self.of is None or f.kind == 11, "places do not follow their parts")
        if f.kind == 11:
            m = message(f.meta)
            t, value, each = Type(m.struct(0), 0), b"", 1 << 22
            need(self.of in (None, t.id), "parts of another tensor")
            while t.bytes > each * 16384:
                each *= 2
            places, sums = m.list(1), list(m.list(2))
            need(len(places) == len(sums) == -(-t.bytes // each), "number of parts")
            for i, p in enumerate(places):
                place = p.number(0, 8), p.number(8, 4), p.number(12, 2), p.number(14, 2), p.number(16, 8)
                if place[3]:
                    need(i not in self.parts, "a part that is in two files")
                    stored = self.base(place[3] - 1)[place[0]:place[0] + place[1]]
                    need(xxh3(stored) == place[4], "a part of another file")
                else:
                    need(place == self.parts[i][:5], "place of a part")
                    stored = self.parts.pop(i)[5]
                raw = expand(stored, place[2], t.dtype, min(each, t.bytes - i * each))
                need(xxh3(raw) == sums[i], "checksum of a part")
                value += raw
            need(not self.parts, "parts that no place names")
            self.of = None
            self.seen[t.id] = t, f.at, 0, len(f.whole), xxh3(f.whole), [], value
        return False
