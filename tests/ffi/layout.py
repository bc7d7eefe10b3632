"""Says size, offset or value of what standard input names, a line each, as the declarations for ctypes have it.
usage: layout.py DECLARATIONS"""
import ctypes as c
import sys

sys.path.insert(0, sys.argv[1])
import weft_ffi as w  # noqa: E402

for line in sys.stdin:
    kind, name = line.split()[0], line.split()[-1]
    if kind == "size":
        n = c.sizeof(getattr(w, name))
    elif kind == "offset":
        struct, field = name.split(".")
        n = getattr(getattr(w, struct), field).offset
    else:
        n = c.c_int64(getattr(w, name)).value
    print(line.rstrip("\n"), n)
