"""Compresses the library's description for src/c_api/description.cc: the data as zlib writes it, and a header with its size."""
import sys
import zlib

source, data, header = sys.argv[1:]
with open(source, "rb") as f:
    text = f.read()
with open(data, "wb") as f:
    f.write(zlib.compress(text, 9))
with open(header, "w", encoding="ascii") as f:
    f.write("#define WEFT_DESCRIPTION_SIZE %d\n" % len(text))
