"""Compresses the library's description for src/c_api/description.cc: the data as zlib writes it, and a header with its size.
Files that would be the same are left as they are, so that nothing is built anew for them."""
import sys
import zlib


def write(path, data):
    try:
        with open(path, "rb") as f:
            if f.read() == data:
                return
    except FileNotFoundError:
        pass
    with open(path, "wb") as f:
        f.write(data)


source, packed, header = sys.argv[1:]
with open(source, "rb") as f:
    text = f.read()
write(packed, zlib.compress(text, 9))
write(header, b"#define WEFT_DESCRIPTION_SIZE %d\n" % len(text))
