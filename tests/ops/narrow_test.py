"""Conversions of f8, i4, u4, i2 and u2 against ml_dtypes and NumPy, through the C API: every bit pattern of every type of 16 bits or
less, and patterns of the wider ones, of which WEFT_NARROW_PATTERNS says how many (200000; the long tier of scripts/test takes 10^8).
ml_dtypes comes into a virtual environment of the build tree; without the registry the test is SKIPPED and says so.

Where ml_dtypes rounds twice (f64 and 64-bit integers go through its f32), the judge gets the f32 that is rounded to odd, which
makes its second rounding the only one. Floats become integers by C's rules there, which say nothing about numbers out of range: those
saturate here, NaN is 0, and that is what is asked for.
"""
import ctypes
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import python_env  # noqa: E402

python_env.enter("ml_dtypes", ["numpy", "ml_dtypes"], os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "conformance"))
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import weft  # noqa: E402

LIB = weft.load()
CONVERT = ctypes.CDLL(LIB.path).weft_convert  # of the operations' C functions, which weft.py calls by name with types of its own
CONVERT.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
CONVERT.restype = ctypes.c_void_p
CODE = weft._ENUMS["weft_dtype"]
PATTERNS = int(os.environ.get("WEFT_NARROW_PATTERNS", "200000"))
CHUNK = 1 << 20

F8 = {f"F8{name}": getattr(ml_dtypes, f"float8_{name.lower()}")
      for name in ("E3M4", "E4M3", "E4M3B11FNUZ", "E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ", "E8M0FNU")}
SUB_BYTE = {"I2": ml_dtypes.int2, "I4": ml_dtypes.int4, "U2": ml_dtypes.uint2, "U4": ml_dtypes.uint4}
RANGE = {"I2": (-2, 1), "I4": (-8, 7), "U2": (0, 3), "U4": (0, 15)}
NARROW = {**F8, **SUB_BYTE}
OTHERS = {"BOOL": np.bool_, "I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64, "U8": np.uint8, "U16": np.uint16,
          "U32": np.uint32, "U64": np.uint64, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F32": np.float32, "F64": np.float64}
TYPES = {**NARROW, **OTHERS}
FLOATS = ("F16", "BF16", "F32", "F64")  # NumPy's kind of a bf16 is not that of a float
FAILURES = []


def converted(ctx, values, source, target):
    """The raw bytes of `values` (of `source`) as `target`, by the library."""
    values = np.ascontiguousarray(values)
    dims = (ctypes.c_int64 * 1)(values.size)
    x, y = ctypes.c_void_p(), ctypes.c_void_p()
    LIB.tensor_from_host(ctx.handle, None, CODE["WEFT_" + source], dims, 1, values.ctypes.data, values.nbytes, ctypes.byref(x))
    error = CONVERT(ctx.handle, x, CODE["WEFT_" + target], ctypes.byref(y))
    if error:
        raise RuntimeError(LIB.error_message(error, None).decode())
    out = np.empty(values.size, TYPES[target])
    LIB.tensor_to_host(y, out.ctypes.data, out.nbytes)
    LIB.tensor_release(x)
    LIB.tensor_release(y)
    return out


def to_odd(x):
    """f64 as the f32 towards zero, with its low bit set where that is not exact."""
    near = x.astype("f4")
    back = near.astype("f8")
    bits = near.view("u4") - (np.abs(back) > np.abs(x)).astype("u4")
    return np.where((back == x) | np.isnan(x), near.view("u4"), bits | np.uint32(1)).astype("u4").view("f4")


def integers_to_odd(x):
    """64-bit integers as the f64 with a low bit that says what was cut off."""
    magnitude = np.where(x < 0, -x, x).astype("u8") if x.dtype.kind == "i" else x
    sticky = np.where(magnitude & np.uint64(0x7FF), np.uint64(0x800), np.uint64(0))
    cut = np.where(magnitude >> np.uint64(53), (magnitude & ~np.uint64(0x7FF)) | sticky, magnitude)
    return np.where(x < 0, -cut.astype("f8"), cut.astype("f8"))


def wanted(values, source, target):
    """What ml_dtypes says, as an array of the target."""
    kind = TYPES[target]
    if source in SUB_BYTE and target in F8:
        return values.astype("f4").astype(kind)
    if source in F8 or target in F8 or source in FLOATS:
        if source == "F64" and target in F8:
            return to_odd(values).astype(kind)
        if source in ("I32", "U32", "I64", "U64") and target in F8:
            return to_odd(integers_to_odd(values)).astype(kind)
        if target in OTHERS and np.dtype(kind).kind in "iu" or target in SUB_BYTE:
            least, most = RANGE.get(target) or (np.iinfo(kind).min, np.iinfo(kind).max)
            exact = values.astype("f8") if source != "F64" else values
            whole = np.trunc(np.nan_to_num(exact, nan=0.0, posinf=np.inf, neginf=-np.inf))
            low, high = whole <= float(least), whole >= float(most)
            inside = np.where(low | high, 0, whole).astype("i8" if least < 0 or target in SUB_BYTE else "u8")
            return np.where(low, least, np.where(high, most, inside)).astype(np.int64 if least < 0 else np.uint64).astype(
                np.int8 if target in SUB_BYTE else kind).astype(kind)
        if target == "BOOL":
            return (values.astype("f8") != 0).astype(bool)
        if source in F8:
            return values.astype("f4").astype(kind)
        return values.astype(kind)
    if source in SUB_BYTE:
        return values.astype(np.int64).astype(kind) if target not in SUB_BYTE else values.astype(np.int8).astype(kind)
    if target in SUB_BYTE:  # the low bits
        return (values.astype(np.uint64) & np.uint64(15)).astype(np.uint8).astype(kind)
    raise AssertionError((source, target))


def check(ctx, values, source, target, title):
    with np.errstate(all="ignore"):
        want = wanted(values, source, target)
    got = converted(ctx, values, source, target)
    if target in SUB_BYTE:
        same = got.astype(np.int64) == want.astype(np.int64)
    elif np.dtype(TYPES[target]).kind in "biu":
        same = got == want
    else:
        width = np.dtype(TYPES[target]).itemsize
        bits = f"u{width}"
        a, b = got.astype("f8") if width > 1 else got.astype("f4"), want.astype("f8") if width > 1 else want.astype("f4")
        same = (got.view(bits) == want.view(bits)) | (np.isnan(a) & np.isnan(b))
    if not np.all(same):
        at = np.flatnonzero(~same)
        FAILURES.append(f"{title}: {at.size} of {values.size}: {values[at[:4]]!r} is {got[at[:4]]!r}, not {want[at[:4]]!r}")


def patterns(source, count, seed):
    """All bit patterns of a type of at most 16 bits, or so many of a wider one."""
    kind = np.dtype(TYPES[source])
    if source in SUB_BYTE:
        return np.arange(*(lambda r: (r[0], r[1] + 1))(RANGE[source])).astype(np.int8).astype(kind)
    if source == "BOOL":
        return np.array([False, True])
    if kind.itemsize <= 2:
        return np.arange(1 << 8 * kind.itemsize, dtype=np.uint32).astype(f"u{kind.itemsize}").view(kind)
    random = np.random.default_rng(seed)
    bits = random.integers(0, 1 << 63, count, dtype=np.uint64) * np.uint64(2) + random.integers(0, 2, count, dtype=np.uint64)
    if source in ("I64", "U64", "I32", "U32"):  # of all magnitudes
        bits >>= random.integers(0, 8 * kind.itemsize, count, dtype=np.uint64)
    elif source == "F64":  # half of them where f8 has numbers
        near = (bits & np.uint64(0x800FFFFFFFFFFFFF)) | (random.integers(1023 - 150, 1023 + 140, count, dtype=np.uint64) << np.uint64(52))
        bits = np.where(random.integers(0, 2, count) == 1, near, bits)
    return bits.astype(f"u{kind.itemsize}").view(kind)


def main():
    runs = 0
    for platform in ("cpu", "reference"):
        ctx = weft.Context(platform=platform)
        for source in TYPES:
            small = np.dtype(TYPES[source]).itemsize <= 2
            total = 0 if small else PATTERNS if platform == "cpu" else 20000
            for start in range(0, max(total, 1), CHUNK):
                values = patterns(source, min(CHUNK, total - start), start)
                for target in TYPES:
                    if source != target and (source in NARROW or target in NARROW):
                        check(ctx, values, source, target, f"{platform}: {source} to {target}")
                        runs += values.size
    print(f"{runs} conversions of {len(TYPES)} types")
    for failure in FAILURES[:40]:
        print("FAILED", failure)
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
