"""What the parts of numpy_test.py share: an operation through the C API beside what NumPy says, and values to try. Wants NumPy, and
tests/conformance on the path."""
import numpy as np
import weft

weft.load()
CTX = weft.Context()


def apply(op, inputs, attrs, ctx=CTX):
    """One operation's results as arrays. NumPy's names stand for dtypes."""
    if "dtype" in attrs:
        attrs = {**attrs, "dtype": weft.name_of(np.empty(0, attrs["dtype"]))}
    return [result.numpy() for result in ctx.apply(op, [None if x is None else ctx.tensor(x) for x in inputs], attrs)]


FAILURES, RUNS, SEEN = [], 0, set()


def expect(op, inputs, wanted, tolerance=None, exact_sign=False, floor=1e-3, note="", ctx=CTX, **attrs):
    """`wanted`: one array, or a list of one per result. Floats within tolerance (0 where the operation rounds once),
    relative to at least `floor`: sums of products cancel."""
    global RUNS
    RUNS += 1
    SEEN.add(op)
    inputs = [np.asarray(x) if x is not None else None for x in inputs]
    title = f"{op}({', '.join('-' if x is None else x.dtype.str[1:] + str(list(x.shape)) for x in inputs)}) {attrs or ''}{note}"
    try:
        found = apply(op, inputs, attrs, ctx)
    except weft.WeftError as error:
        FAILURES.append(f"{title}: {error}")
        return
    wanted = wanted if isinstance(wanted, list) else [wanted]
    if len(found) != len(wanted):
        FAILURES.append(f"{title}: {len(found)} results, not {len(wanted)}")
        return
    for got, want in zip(found, wanted):
        want = np.asarray(want)
        if got.shape != want.shape:
            FAILURES.append(f"{title}: shape {got.shape}, not {want.shape}")
            continue
        if got.dtype.kind == "c":
            # Both parts, relative to the whole number; infinite and NaN at the same places.
            rel = {8: 4e-6, 16: 2e-14}[got.dtype.itemsize] if tolerance is None else tolerance
            with np.errstate(all="ignore"):
                a, b = got.astype("c16"), want.astype("c16")
                size = np.maximum(np.abs(b), floor)
                close = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.isinf(a) & np.isinf(b)) | (np.abs(a - b) <= rel * size)
            bad = None if np.all(close) and got.dtype == want.dtype else f"{got[~close][:6]} is not {want[~close][:6]}"
        elif got.dtype.kind != "f":
            same = np.array_equal(got, want) and got.dtype.kind == want.dtype.kind
            bad = None if same else f"{got} is not {want}"
        else:
            rel = {2: 2e-3, 4: 4e-6, 8: 1e-13}[got.dtype.itemsize] if tolerance is None else tolerance
            with np.errstate(all="ignore"):
                a, b = got.astype("f8"), want.astype(got.dtype).astype("f8") if rel == 0 else want.astype("f8")
                close = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= rel * np.maximum(np.abs(b), floor if rel else 0))
            if exact_sign:
                close &= (np.signbit(a) == np.signbit(b)) | np.isnan(b)
            bad = None if np.all(close) else f"{got[~close][:6]} is not {want[~close][:6]}"
        if bad:
            FAILURES.append(f"{title}: {bad}")


def refused(op, inputs, text, **attrs):
    """The call fails while it is recorded, and its error says so."""
    global RUNS
    RUNS += 1
    try:
        apply(op, [np.asarray(x) for x in inputs], attrs)
    except weft.WeftError as error:
        if text not in error.message:
            FAILURES.append(f"{op} {attrs}: the error is {error.message!r}, not {text!r}")
    else:
        FAILURES.append(f"{op} {attrs}: is not refused")


NAN, INF = float("nan"), float("inf")
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -3.7, 1e-3, -1e-3, 20.0, -20.0, NAN, INF, -INF])
INTS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")


def limits(dtype):
    info = np.iinfo(dtype)
    return np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 7], dtype)


def rng(seed):
    return np.random.default_rng(seed)


def away(x):
    """Half away from zero, NumPy has only half to even."""
    return np.where(np.isfinite(x), np.copysign(np.floor(np.abs(x) + 0.5), x), x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.where(np.isnan(x), NAN, np.logaddexp(0, x))
