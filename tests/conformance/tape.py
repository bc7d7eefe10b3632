"""What an outside judge says about Weft, free of the judge: calls by name on given inputs, the results and gradients
that are right, and by how much each element may differ. PyTorch's runner (opinfo.py) writes such cases, this module runs
them; a fixture of them (fixture.npz) needs NumPy alone.
"""
import collections
import io
import json
import zipfile

import numpy as np

import weft


class Value:
    """A result of a tape's call or one of its inputs: where it stands, its dtype and shape as far as the mapping knows."""

    def __init__(self, index):
        self.index = index


class Tape:
    """Calls in order. Inputs come first in the numbering of values, calls append their results."""

    def __init__(self):
        self.inputs = []  # (dtype, raw array)
        self.calls = []  # (operation, operand numbers or None, attributes)
        self.outputs = []  # numbers of values

    def input(self, dtype, raw):
        self.inputs.append((dtype, np.ascontiguousarray(raw).reshape(np.shape(raw))))
        return Value(("input", len(self.inputs) - 1))

    def op(self, name, *operands, **attrs):
        flat = [x for o in operands for x in (o if isinstance(o, (list, tuple)) else [o])]
        count = len(weft.OPS[name]["results"]) if name != "grad" else 1  # the client's own, of a result along an input
        self.calls.append((name, [x.index if x is not None else None for x in flat],
                           {k: v for k, v in attrs.items() if v is not None}))
        results = [Value(("call", len(self.calls) - 1, r)) for r in range(count)]
        return results[0] if count == 1 else results


class Case:
    """A tape, and what is right: `expected` one per output, `gradients` per (output, input) pair that is differentiable.

    Each expectation is (dtype, reference, allowed): float64 values with the error each may have, or integers and bools
    as they must be (allowed None)."""

    def __init__(self, name, operator, tape):
        self.name, self.operator, self.tape = name, operator, tape
        self.expected = []
        self.gradients = []  # (output number, (dtype, raw cotangent), [(input number, expectation)])
        self.seconds = []  # as gradients, with [(input number, (dtype, raw cotangent of its gradient))] before the expectations


def run(ctx, case):
    """Faults of one case: [(where, text)], empty where Weft agrees. Raises weft.WeftError where a call is refused."""
    tape = case.tape
    wanted = {i for _, _, pairs in case.gradients for i, _ in pairs} | {i for *_, pairs in case.seconds for i, _ in pairs}
    inputs = [ctx.tensor(raw, dtype) for dtype, raw in tape.inputs]
    for i in wanted:
        inputs[i].require_grad()
    made = []
    look = lambda index: None if index is None else inputs[index[1]] if index[0] == "input" else made[index[1]][index[2]]
    for op, operands, attrs in tape.calls:
        tensors = [look(tuple(i) if i is not None else None) for i in operands]
        if op == "grad":
            tensors[1].require_grad()
        made.append(ctx.grad(tensors[0], tensors[1:2], tensors[2]) if op == "grad" else ctx.apply(op, tensors, attrs))
    outputs = [look(tuple(i)) for i in tape.outputs]
    grads = []
    for output, (dtype, raw), pairs in case.gradients:
        try:
            grads.append(slopes_of(ctx, outputs[output], [inputs[i] for i, _ in pairs], ctx.tensor(raw, dtype)))
        except weft.WeftError as error:
            raise weft.WeftError(error.code, f"gradient: {error.message}") from None
    seconds = [second_order(ctx, outputs, inputs, second) for second in case.seconds]
    faults = []
    for number, (tensor, expectation) in enumerate(zip(outputs, case.expected, strict=True)):
        text = compare(tensor.dtype, tensor.numpy(), expectation)
        if text:
            faults.append((f"result {number}" if len(outputs) > 1 else "result", text))
    for (output, _, pairs), tensors in zip(case.gradients, grads, strict=True):
        for (i, expectation), tensor in zip(pairs, tensors, strict=True):
            text = compare(tensor.dtype, tensor.numpy(), expectation)
            if text:
                faults.append((f"gradient of input {i}", text))
    for (*_, pairs), tensors in zip(case.seconds, seconds, strict=True):
        for (i, expectation), tensor in zip(pairs, tensors, strict=True):
            text = compare(tensor.dtype, tensor.numpy(), expectation)
            if text:
                faults.append((f"second gradient of input {i}", text))
    return faults


def slopes_of(ctx, y, xs, cotangent):
    """Gradients; zeros where y depends on none of xs, which Weft says as an error."""
    try:
        return ctx.grad(y, xs, cotangent)
    except weft.WeftError as error:
        if "does not depend on any tensor" not in error.message:
            raise
        return [ctx.tensor(np.zeros(x.shape, weft.storage(x.dtype)), x.dtype) for x in xs]


def second_order(ctx, outputs, inputs, second):
    """Gradients of an output's gradients: one a wanted input, added up over the gradients that have cotangents."""
    output, (dtype, raw), first, pairs = second
    xs = [inputs[i] for i, _ in pairs]
    try:
        slopes = slopes_of(ctx, outputs[output], [inputs[i] for i, _ in first], ctx.tensor(raw, dtype))
        total = None
        for slope, (_, (dtype, raw)) in zip(slopes, first, strict=True):
            found = slopes_of(ctx, slope, xs, ctx.tensor(raw, dtype))
            total = found if total is None else [ctx.add(a, b) for a, b in zip(total, found)]
        return total
    except weft.WeftError as error:
        raise weft.WeftError(error.code, f"second gradient: {error.message}") from None


def plain(dtype, raw):
    """Elements as float64; both parts of complex ones, along one axis more."""
    if dtype not in weft.PARTS:
        return np.asarray(weft.decode(dtype, raw))
    return np.asarray(raw).reshape((*np.shape(raw), 1)).view(weft.storage(weft.PARTS[dtype])).astype("f8")


def compare(dtype, raw, expectation):
    """"" where the elements are right, else the worst of them. Complex numbers that are not finite are equal to one
    another, and places and counts may be i32 where PyTorch has i64."""
    want_dtype, reference, allowed = expectation
    shape = reference.shape[:-1] if want_dtype in weft.PARTS else reference.shape
    if raw.shape != shape:
        return f"shape {list(raw.shape)}, not {list(shape)}"
    if dtype != want_dtype and (dtype, want_dtype) != ("i32", "i64"):  # places and counts
        return f"dtype {dtype}, not {want_dtype}"
    if allowed is None:
        bad = raw.astype(object) != reference.astype(object) if raw.dtype != reference.dtype else raw != reference
        if not np.any(bad):
            return ""
        at = np.argwhere(bad)[0]
        return f"{bad.sum()} of {bad.size} elements differ: {raw[tuple(at)]}, not {reference[tuple(at)]} at {at.tolist()}"
    found = plain(dtype, raw)
    excess = error_of(weft.PARTS.get(dtype, dtype), found, reference)
    with np.errstate(all="ignore"):
        bad = ~((excess <= allowed) | (allowed == np.inf))
        if dtype in weft.PARTS:
            bad &= np.isfinite(found).all(-1, keepdims=True) | np.isfinite(reference).all(-1, keepdims=True)
        if not np.any(bad):
            return ""
        ratio = np.where(bad, np.where(np.isnan(excess), np.inf, excess / np.maximum(allowed, 1e-320)), 0)
    at = np.unravel_index(np.argmax(ratio), ratio.shape)
    return (f"{bad.sum()} of {bad.size} elements: {found[at]:.9g}, not {reference[at]:.9g} at {list(map(int, at))}; "
            f"off by {excess[at]:.3g}, allowed {allowed[at]:.3g}")


TOP = {"f16": 2.0 ** 16, "f64": np.finfo("f8").max}  # what the overflow of a type counts as
TOP |= dict.fromkeys(("f32", "bf16"), 2.0 ** 128)


def error_of(dtype, found, reference):
    """|found - reference|; overflow counts as the power of two after the largest number, NaN against NaN as 0, against a
    number as NaN."""
    top = TOP.get(dtype, TOP["f32"])
    with np.errstate(all="ignore"):
        a = np.clip(found, -top, top) if dtype != "f64" else found
        b = np.clip(reference, -top, top) if dtype != "f64" else reference
        error = np.abs(a - b)
    return np.where((found == reference) | (np.isnan(found) & np.isnan(reference)), 0.0, error)


def save(path, cases):
    """Cases as one .npz: array "cases" holds JSON, the others the elements. The same cases give the same bytes."""
    arrays, texts = [], []

    def put(array):
        arrays.append(np.ascontiguousarray(array).reshape(np.shape(array)))
        return len(arrays) - 1

    def expectation(e):
        dtype, reference, allowed = e
        # Rounded up, so that what was allowed still is.
        small = None if allowed is None else np.nextafter(np.minimum(allowed, 3e38).astype("f4"), np.float32(np.inf))
        if small is not None and small.size and np.all(small == small.flat[0]):
            return [dtype, put(reference), float(small.flat[0])]
        return [dtype, put(reference), None if small is None else [put(small)]]

    for case in cases:
        tape = case.tape
        texts.append({
            "name": case.name, "operator": case.operator, "inputs": [[d, put(raw)] for d, raw in tape.inputs],
            "calls": tape.calls, "outputs": tape.outputs, "expected": [expectation(e) for e in case.expected],
            "gradients": [[o, [d, put(raw)], [[i, expectation(e)] for i, e in pairs]] for o, (d, raw), pairs in case.gradients],
            "seconds": [[o, [d, put(raw)], [[i, [f, put(r)]] for i, (f, r) in first], [[i, expectation(e)] for i, e in pairs]]
                        for o, (d, raw), first, pairs in case.seconds]})
    # All elements of one type in one stream: thousands of small members would be larger than what they hold.
    streams, sizes, places = collections.defaultdict(list), collections.Counter(), []
    for array in arrays:
        key = array.dtype.kind + str(array.dtype.itemsize)
        places.append([key, sizes[key], list(array.shape)])
        sizes[key] += array.size
        streams[key].append(array.ravel())
    members = {"cases": np.frombuffer(json.dumps({"cases": texts, "arrays": places}, separators=(",", ":")).encode(), "u1")}
    members.update({key: np.concatenate(stream) for key, stream in streams.items()})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, array in members.items():
            data = io.BytesIO()
            np.save(data, array)
            file.writestr(zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0)), data.getvalue(), zipfile.ZIP_DEFLATED, 9)


def load(path):
    with np.load(path) as file:
        text = json.loads(bytes(file["cases"]))
        streams = {name: file[name] for name in file.files if name != "cases"}

    def get(number):
        key, offset, shape = text["arrays"][number]
        return streams[key][offset:offset + int(np.prod(shape, dtype="i8"))].reshape(shape)

    def expectation(e):
        dtype, reference, allowed = e[0], get(e[1]), e[2]
        if allowed is not None:
            allowed = np.full(reference.shape, allowed) if isinstance(allowed, float) else get(allowed[0]).astype("f8")
        return dtype, reference, allowed

    cases = []
    for t in text["cases"]:
        tape = Tape()
        tape.inputs = [(d, get(i)) for d, i in t["inputs"]]
        tape.calls, tape.outputs = t["calls"], t["outputs"]
        case = Case(t["name"], t["operator"], tape)
        case.expected = [expectation(e) for e in t["expected"]]
        case.gradients = [(o, (c[0], get(c[1])), [(i, expectation(e)) for i, e in pairs]) for o, c, pairs in t["gradients"]]
        case.seconds = [(o, (c[0], get(c[1])), [(i, (u[0], get(u[1]))) for i, u in first], [(i, expectation(e)) for i, e in pairs])
                        for o, c, first, pairs in t["seconds"]]
        cases.append(case)
    return cases
