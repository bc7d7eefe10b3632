"""What two implementations of an operation may differ by: tensors as weft_dump_programs writes them, in NumPy."""
import numpy

# NumPy's type of the same bytes.
TYPES = {"bool": "u1", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8",
         "f16": "f2", "f32": "f4", "f64": "f8", "bf16": "u2", "c64": "c8", "c128": "c16"}
# Complex numbers are judged part by part.
PARTS = {"c64": "f32", "c128": "f64"}

# Every element is judged by its own size, but for slopes that are a small difference of what the tolerance is about; these
# also by a share of their largest element: {operation: (share, reason)}. A share that nothing needs fails the test.
CANCELS = {
    "gelu": (0.05, "near -3 the slope is the difference of Phi(x) and -x phi(x)"),
    "tanh": (0.2, "the slope 1 - y^2 where y is close to 1"),
}


def decode(raw, dtype):
    array = numpy.frombuffer(raw, TYPES[dtype])
    if dtype in PARTS:
        return array.view(TYPES[PARTS[dtype]]).astype("f8")
    if dtype == "bf16":
        return (array.astype("u4") << 16).view("f4").astype("f8")
    return array.astype("f8") if dtype.startswith("f") else array


def worst(found, expected, dtype, tolerance, part="forward", share=0.0):
    """Largest error over what is allowed; at most 1 passes."""
    a, b = decode(found, dtype), decode(expected, dtype)
    dtype = PARTS.get(dtype, dtype)
    if a.size == 0:
        return 0.0
    if "f" not in dtype:
        return 0.0 if numpy.array_equal(a, b) else float("inf")
    scale = {"f64": 1e-8, "bf16": 65536.0, "f16": 8192.0}.get(dtype, 1.0)
    # XLA contracts a*b+c and orders sums freely: what cancels there is inside the operation's absolute tolerance.
    relative = tolerance[dtype]
    if part == "edges":  # no sums here; XLA may take denormals for 0
        scale, tolerance = {"f64": 2.3e-308, "f16": 6.2e-5}.get(dtype, 1.2e-38), {"absolute": 1.0}
    with numpy.errstate(all="ignore"):
        allowed = tolerance["absolute"] * scale + relative * (abs(b) + share * numpy.max(abs(b[numpy.isfinite(b)]), initial=0))
    same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
    with numpy.errstate(all="ignore"):
        ratio = numpy.where(same, 0, abs(a - b) / allowed)
    return float(numpy.max(numpy.where(numpy.isnan(ratio), numpy.inf, ratio)))


def bytes_of(tensors, tensor):
    """Of one tensor of a case, out of all of tensors.bin."""
    size = int(numpy.prod(tensor["dims"], dtype="i8")) * numpy.dtype(TYPES[tensor["dtype"]]).itemsize
    return tensors[tensor["offset"]:tensor["offset"] + size].tobytes() if size else b""


def worst_of(case, results, tensors):
    """Of a whole case: the largest error over what is allowed; infinite where the results have other types."""
    worst_yet = 0.0
    for index, (result, expected) in enumerate(zip(results, case["results"], strict=True)):
        if (result["dtype"], result["dims"]) != (expected["dtype"], expected["dims"]):
            return float("inf")
        part = "edges" if " edges " in case["name"] else "forward" if index < case["forward"] else "gradient"
        share = CANCELS[case["op"]][0] if part == "gradient" and case["op"] in CANCELS else 0.0
        error = worst(bytes_of(tensors, result), bytes_of(tensors, expected), expected["dtype"], case["tolerance"], part, share)
        worst_yet = max(worst_yet, error)
    return worst_yet
