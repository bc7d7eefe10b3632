"""A reader of Weft's checkpoints written from docs/formats.md alone: no library, no schema, nothing but Python.

    Checkpoint(data)  checks every byte; .tree is plain Python, .tensors {name: (dtype, logical, shape, bytes)}
    python3 independent_reader.py FILE …   says what is in each, or what is wrong
"""
import struct
import sys

MASK = (1 << 64) - 1
P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")


class Bad(Exception):
    pass


def need(true, what):
    if not true:
        raise Bad(what)


# XXH3-64, seed 0
def u64(data, at):
    return int.from_bytes(data[at:at + 8], "little")


def u32(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def fold(a, b):
    product = a * b
    return (product ^ product >> 64) & MASK


def avalanche(h):
    h = (h ^ h >> 37) * 0x165667919E3779F9 & MASK
    return h ^ h >> 32


def avalanche64(h):
    h = (h ^ h >> 33) * P64[1] & MASK
    h = (h ^ h >> 29) * P64[2] & MASK
    return h ^ h >> 32


def mix(data, at, secret):
    return fold(u64(data, at) ^ u64(SECRET, secret), u64(data, at + 8) ^ u64(SECRET, secret + 8))


def short(data):
    n = len(data)
    if n > 8:
        low = u64(data, 0) ^ u64(SECRET, 24) ^ u64(SECRET, 32)
        high = u64(data, n - 8) ^ u64(SECRET, 40) ^ u64(SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return avalanche(n + swapped + high + fold(low, high) & MASK)
    if n >= 4:
        h = (u32(data, n - 4) + (u32(data, 0) << 32)) ^ u64(SECRET, 8) ^ u64(SECRET, 16)
        h ^= ((h << 49 | h >> 15) ^ (h << 24 | h >> 40)) & MASK
        h = h * 0x9FB21C651E98DF25 & MASK
        h = (h ^ (h >> 35) + n) * 0x9FB21C651E98DF25 & MASK
        return h ^ h >> 28
    if n:
        h = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return avalanche64(h ^ u32(SECRET, 0) ^ u32(SECRET, 4))
    return avalanche64(u64(SECRET, 56) ^ u64(SECRET, 64))


def middle(data):
    n = len(data)
    h = n * P64[0]
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            h += mix(data, 16 * i, 32 * i) + mix(data, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(h & MASK)
    h = avalanche(h + sum(mix(data, 16 * i, 16 * i) for i in range(8)) & MASK)
    h += sum(mix(data, 16 * i, 16 * (i - 8) + 3) for i in range(8, n // 16)) + mix(data, n - 16, 119)
    return avalanche(h & MASK)


def stripe(lanes, words, keys):
    for i in range(8):
        value = words[i]
        key = value ^ keys[i]
        lanes[i ^ 1] = lanes[i ^ 1] + value & MASK
        lanes[i] = lanes[i] + (key & 0xFFFFFFFF) * (key >> 32) & MASK


def xxh3(data):
    n = len(data)
    if n <= 240:
        return short(data) if n <= 16 else middle(data)
    lanes = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]]
    keys = [struct.unpack_from("<8Q", SECRET, at) for at in range(0, 129, 8)]
    stripes = (n - 1) // 64
    for k in range(stripes):
        stripe(lanes, struct.unpack_from("<8Q", data, 64 * k), keys[k % 16])
        if k % 16 == 15 and k + 1 <= (n - 1) // 1024 * 16:
            for i in range(8):
                lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ keys[16][i]) * P32[0] & MASK
    stripe(lanes, struct.unpack_from("<8Q", data, n - 64), struct.unpack_from("<8Q", SECRET, 121))
    h = n * P64[0]
    for i in range(4):
        h += fold(lanes[2 * i] ^ u64(SECRET, 11 + 16 * i), lanes[2 * i + 1] ^ u64(SECRET, 19 + 16 * i))
    return avalanche(h & MASK)


class Struct:
    def __init__(self, data, at, words, pointers):
        need(at >= 0 and at + 8 * (words + pointers) <= len(data), "a struct leaves its message")
        self.data, self.at, self.words, self.pointers = data, at, words, pointers

    def number(self, at, size, signed=False):
        if at + size > 8 * self.words:
            return 0
        return int.from_bytes(self.data[self.at + at:self.at + at + size], "little", signed=signed)

    def float64(self, at):
        return struct.unpack("<d", self.number(at, 8).to_bytes(8, "little"))[0]

    def pointer(self, index):
        """(place, kind, high half) or None."""
        if index >= self.pointers:
            return None
        at = self.at + 8 * (self.words + index)
        word = u64(self.data, at)
        if word == 0:
            return None
        low = word & 0xFFFFFFFF
        offset = (low >> 2) - (1 << 30 if low >> 31 else 0)
        return at + 8 + 8 * offset, low & 3, word >> 32

    def struct(self, index):
        found = self.pointer(index)
        if found is None:
            return Struct(b"", 0, 0, 0)
        place, kind, high = found
        need(kind == 0, "a struct was expected")
        return Struct(self.data, place, high & 0xFFFF, high >> 16)

    def list(self, index):
        """Bytes, or structs, or numbers."""
        found = self.pointer(index)
        if found is None:
            return b""
        place, kind, high = found
        size, count = high & 7, high >> 3
        need(kind == 1 and place >= 0, "a list was expected")
        if size == 2:
            need(place + count <= len(self.data), "bytes leave their message")
            return bytes(self.data[place:place + count])
        if size == 5:
            need(place + 8 * count <= len(self.data), "numbers leave their message")
            return list(struct.unpack_from("<%dQ" % count, self.data, place))
        need(size == 7 and place + 8 * (count + 1) <= len(self.data), "a list of another kind")
        tag = u64(self.data, place)
        words, pointers = tag >> 32 & 0xFFFF, tag >> 48
        number = (tag & 0xFFFFFFFF) >> 2
        need(tag & 3 == 0 and number * (words + pointers) <= count, "a list of structs leaves its message")
        each = 8 * (words + pointers)
        return [Struct(self.data, place + 8 + i * each, words, pointers) for i in range(number)]

    def text(self, index):
        raw = self.list(index)
        need(raw == b"" or raw[-1:] == b"\0", "a text without its NUL")
        return raw[:-1].decode("utf-8")


def message(data):
    need(len(data) >= 16 and u32(data, 0) == 0 and 8 * u32(data, 4) + 8 == len(data), "not one segment")
    return Root(data[8:])


class Root(Struct):
    """The struct that the first word of a segment points to."""

    def __init__(self, data):
        super().__init__(data, 0, 0, 1)
        root = self.struct(0)
        super().__init__(data, root.at, root.words, root.pointers)


def align(payload):
    return 65536 if payload >= 1 << 20 else 4096 if payload >= 65536 else 256


def up(value, to):
    return -(-value // to) * to


DTYPES = {1: ("bool8", 8), 3: ("u2", 2), 4: ("u4", 4), 5: ("u8", 8), 6: ("u16", 16), 7: ("u32", 32), 8: ("u64", 64),
          9: ("i2", 2), 10: ("i4", 4), 11: ("i8", 8), 12: ("i16", 16), 13: ("i32", 32), 14: ("i64", 64), 15: ("f16", 16),
          16: ("bf16", 16), 17: ("f32", 32), 18: ("f64", 64), 19: ("c64", 64), 20: ("c128", 128), 21: ("f8e4m3fn", 8),
          22: ("f8e5m2", 8), 23: ("f8e4m3fnuz", 8), 24: ("f8e5m2fnuz", 8), 25: ("f8e8m0fnu", 8), 29: ("f8e3m4", 8),
          30: ("f8e4m3", 8), 31: ("f8e4m3b11fnuz", 8)}


class Type:
    """id, dtype, logical and shape, which stand at the same places of Tensor and IndexEntry but for the shape."""

    def __init__(self, s, shape):
        self.id = s.number(0, 4)
        stored, logical = s.number(4, 2), s.number(6, 2)
        need(stored in DTYPES and logical in DTYPES, f"element type {stored}, seen as {logical}")
        self.dtype, bits = DTYPES[stored]
        self.logical = DTYPES[logical][0]
        self.shape = tuple(s.list(shape))
        elements = 1
        for dim in self.shape:
            elements *= dim
        self.bytes = (elements * bits + 7) // 8

    def key(self):
        return self.id, self.dtype, self.logical, self.shape


class Frame:
    def __init__(self, data, at):
        prefix = data[at:at + 32]
        need(len(prefix) == 32 and prefix[:4] == b"WFrm", f"no frame at {at}")
        need(u32(prefix, 12) == xxh3(prefix[:12] + bytes(4) + prefix[16:]) & 0xFFFFFFFF, f"prefix at {at}")
        self.at, self.kind, flags = at, prefix[4], prefix[5]
        need(flags <= 1 and prefix[6:8] == b"\0\0", "a frame's flags")
        need(1 <= self.kind <= 11 or flags & 1, f"frame of kind {self.kind}")
        meta, self.length = 8 * u32(prefix, 8), u64(prefix, 16)
        end = at + 32 + meta
        self.meta = data[at + 32:end]
        need(u64(prefix, 24) == xxh3(self.meta), f"message at {at}")
        self.payload = up(end, align(self.length)) if self.length else end
        self.end = up(self.payload + self.length, 64)
        need(self.end <= len(data), "a frame ends behind the file")
        for first, last in ((end, self.payload), (self.payload + self.length, self.end)):
            need(not any(data[first:last]), f"padding at {first} is not zero")
        self.whole = data[at:self.end]
        self.bytes = data[self.payload:self.payload + self.length]


class Checkpoint:
    FEATURES, other = 0, staticmethod(lambda f: need(f.kind < 10, "a part"))  # independent_parts.py knows more

    def __init__(self, data):
        need(data[:8] == b"\xd7TCK\r\n\x1a\n" and len(data) >= 160, "no checkpoint")
        need(u64(data, 56) == xxh3(data[:56]), "prologue")
        need(data[8:10] == b"\1\0", "another major version")
        need(u64(data, 16) & ~self.FEATURES == 0, "needs features")
        need(data[12] == 16 and data[13] == 22 and not any(data[14:16]) and not any(data[40:56]), "prologue's fields")
        trailer = struct.unpack("<8Q", data[-64:])
        need(data[-64:-56] == b"\x0a\xd7EndTCK" and trailer[7] == xxh3(data[-64:-8]), "trailer")
        need(trailer[3] == len(data) and trailer[6] == 0 and trailer[1] + trailer[2] + 64 == len(data), "trailer's places")
        frames, at = [], 64
        while at < len(data) - 64:
            frames.append(Frame(data, at))
            at = frames[-1].end
        need(at == len(data) - 64 and frames[-1].kind == 7 and frames[-1].at == trailer[1], "the footer is not the last")
        need(trailer[4] == xxh3(frames[-1].whole), "footer")
        self.footer = message(frames[-1].meta)
        need(self.footer.number(40, 8) == trailer[5], "root hash of the trailer")
        self.header = message(frames[0].meta)
        need(frames[0].kind == 1 and sum(f.kind == 1 for f in frames) == 1, "one header")
        need(self.header.list(0) == data[24:40] and self.header.number(8, 8) == u64(data, 16), "header and prologue")
        self.step, self.producer = self.header.number(32, 8, True), self.header.text(1)
        self.user = {kv.text(0): kv.list(1) for kv in self.header.list(2)}
        self.read_payloads(frames)
        self.read_index(frames)
        self.read_tree(frames)

    def read_payloads(self, frames):
        self.seen, whole, count = {}, None, 0  # id: (type, payload, pack's bytes, inner, pack's sum, sums, bytes)
        for f in frames:
            need((whole is None) == (f.kind != 3), "checksums do not follow their tensor")
            if f.kind == 4:
                whole = Type(message(f.meta).struct(0), 0)
                need(whole.bytes == f.length and whole.id not in self.seen, "a payload's length")
                whole.frame = f
                count += 1
            elif f.kind == 3:
                m = message(f.meta)
                each = 1 << 22
                while whole.bytes > each * 16384:
                    each *= 2
                sums = [xxh3(whole.frame.bytes[i:i + each]) for i in range(0, whole.bytes, each)]
                need(m.number(0, 4) == whole.id and list(m.list(0)) == sums, f"checksums of tensor {whole.id}")
                self.seen[whole.id] = whole, whole.frame.payload, 0, 0, 0, sums, whole.frame.bytes
                whole = None
            elif f.kind == 5:
                m, used = message(f.meta), 0
                count += 1
                need(m.number(0, 8) == xxh3(f.bytes), "checksum of a pack")
                for member in m.list(0):
                    t, inner = Type(member.struct(0), 0), member.number(0, 4)
                    need(inner >= used and not any(f.bytes[used:inner]) and t.id not in self.seen, "a pack's members")
                    used = inner + t.bytes
                    self.seen[t.id] = t, f.payload, f.length, inner, m.number(0, 8), [], f.bytes[inner:used]
                need(used == f.length, "a pack's end")
            else:
                count += bool(self.other(f))
        need(count == self.footer.number(24, 8), "number of payloads")

    def read_index(self, frames):
        self.tensors, self.by_id, last = {}, {}, None
        pages = [f for f in frames if f.kind == 6]
        places = self.footer.list(0)
        need(len(pages) == len(places), "number of pages")
        for f, place in zip(pages, places):
            entries = message(f.meta).list(0)
            need((place.number(0, 8), place.number(8, 8), place.number(16, 4), place.number(20, 4), place.text(0)) ==
                 (f.at, xxh3(f.whole), len(f.whole), len(entries), entries[0].text(0)), "a page of the index")
            need(len(f.whole) <= 262144, "a page's length")
            for e in entries:
                t, name = Type(e, 1), e.text(0)
                need(last is None or last < name.encode(), "order of names")
                last = name.encode()
                need(t.id not in self.by_id, "an id twice")
                inside, sums = e.list(2), list(e.list(3))
                found = (e.number(8, 8), e.number(16, 4), e.number(20, 4), e.number(24, 8), sums)
                if found[0] == 0:
                    need(t.id not in self.seen and found[1:] == (0, 0, 0, []) and len(inside) == t.bytes <= 256, "inside")
                    value = inside
                else:
                    there = self.seen.pop(t.id)
                    need(inside == b"" and there[1:6] == found and there[0].key() == t.key(), f"entry of {name}")
                    value = bytes(there[6])
                if t.dtype == "bool8":
                    need(all(b <= 1 for b in value), "bools")
                self.by_id[t.id] = name
                self.tensors[name] = t.dtype, t.logical, t.shape, value
        need(not self.seen and len(self.by_id) == self.footer.number(16, 8), "number of tensors")
        need(sum(len(t[3]) for t in self.tensors.values()) == self.footer.number(32, 8), "bytes of tensors")

    def read_tree(self, frames):
        parts = [f for f in frames if f.kind == 2]
        need(frames[1].at == self.footer.number(0, 8) and frames[1:1 + len(parts)] == parts, "place of the tree")
        need(len(parts) == self.footer.number(8, 4), "number of the tree's frames")
        nodes = []
        for f in parts:
            m = message(f.meta)
            need(m.number(0, 4) == len(nodes), "a part of the tree")
            nodes += m.list(0)
        need(len(nodes) == self.footer.number(12, 4), "number of nodes")
        values, paths, next_id = [], [], 0
        for i, node in enumerate(nodes):
            which, number = node.number(6, 2), node.number(8, 4)
            need(which <= 10 and node.number(4, 2) <= 1, "a node of another kind")
            parent = node.number(0, 4)
            need(parent < i or i == parent == 0, "a node's container")
            path = ""
            if i:
                key = node.text(0) if node.number(4, 2) else str(len(values[parent][1]))
                need((values[parent][0] == "dict") == (node.number(4, 2) == 1), "keys of a container")
                escaped = key.replace("\\", "\\\\").replace(".", "\\.")
                path = escaped if parent == 0 else paths[parent] + "." + escaped
                values[parent][1].append((key, i))
            paths.append(path)
            kind = ("none", "dict", "list", "tuple", "tensor", "alias", "bool", "int64", "float64", "text", "bytes")[which]
            value = number
            if kind in ("dict", "list", "tuple"):
                value = []
            elif kind == "tensor":
                need(number == next_id and self.by_id[number] == path, "a tensor's number or name")
                next_id += 1
                value = path
            elif kind == "bool":
                value = bool(node.number(8, 1) & 1)
            elif kind == "int64":
                value = node.number(8, 8, True)
            elif kind == "float64":
                value = node.float64(8)
            elif kind in ("text", "bytes"):
                value = node.text(1) if kind == "text" else node.list(1)
            values.append((kind, value))
        need(next_id == len(self.by_id), "tensors of the tree")
        for node, (kind, value) in zip(nodes, values):
            if kind in ("dict", "list", "tuple"):
                need(len(value) == node.number(8, 4), "number of children")
            if kind == "alias":
                need(values[value][0] != "alias", "an alias of an alias")
        self.nodes, self.paths = values, paths
        self.tree = self.plain(0)

    def plain(self, i):
        """("dict", [(key, value) …]), ("alias", path), ("int64", 7) …"""
        kind, value = self.nodes[i]
        if kind in ("dict", "list", "tuple"):
            return kind, [(key if kind == "dict" else None, self.plain(child)) for key, child in value]
        return kind, self.paths[value] if kind == "alias" else value


if __name__ == "__main__":
    for file in sys.argv[1:]:
        with open(file, "rb") as opened:
            made = Checkpoint(opened.read())
        print(f"{file}: step {made.step}, {len(made.tensors)} tensors, every byte checked")
        for tensor, (dtype, _, shape, value) in sorted(made.tensors.items()):
            print(f"  {tensor}: {dtype}{list(shape)}, {len(value)} bytes")
