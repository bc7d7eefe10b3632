"""Part of numpy_test.py: axis 0 and -1 of a scalar, alone and of many examples, reductions over no axes, axes that are not there,
indices that no i32 holds, and gradients of what is chosen of nothing."""
import numpy as np
import weft
from numpy_judge import CTX, FAILURES, expect, rng

PLAIN = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}
# NumPy refuses their axes of a scalar; PyTorch takes them for those of one element in a row, as NumPy does for the others.
ROWS = {"mean": lambda x: x, "var": np.zeros_like, "std": np.zeros_like, "logsumexp": lambda x: x}
# What NumPy refuses of a scalar is refused here.
REFUSED = {"diff": {}, "layer_norm": {}}


def refused(op, inputs, text, **attrs):
    try:
        CTX.apply(op, [CTX.tensor(np.asarray(x)) for x in inputs], attrs)
        FAILURES.append(f"{op} {attrs}: was taken")
    except weft.WeftError as error:
        if text not in str(error):
            FAILURES.append(f"{op} {attrs}: {error}, which does not say {text!r}")


def scalars():
    for d in ("f4", "f8", "f2", "i4", "u1"):
        x = np.array(3, d)
        for axis in (0, -1):
            for op, f in PLAIN.items():
                want = f(x, axis).astype(d)
                expect(op, [x], want, dims=[axis])
                expect(op, [x], np.asarray(f(x, axis, keepdims=True), d), dims=[axis], keepdims=True)
            for op, f in ROWS.items() if d[0] == "f" else ():
                expect(op, [x], f(x), dims=[axis])
                expect(op, [x], f(x), dims=[axis], keepdims=True)
            for op, f in {"argmax": np.argmax, "argmin": np.argmin}.items():
                for dtype in ("i4", "i8"):
                    expect(op, [x], np.asarray(f(x, axis), dtype), axis=axis, dtype=dtype)
                expect(op, [x], np.asarray(f(x, axis, keepdims=True), "i4"), axis=axis, keepdims=True)
            expect("sort", [x], x, axis=axis)  # of which NumPy has none for scalars; PyTorch's stays a scalar
            expect("top_k", [x], [x, np.int32(0)], axis=axis, k=1)
            expect("argsort", [x], np.argsort(x, axis).astype("i4"), axis=axis)
            for op, f in {"cumsum": np.cumsum, "cumprod": np.cumprod}.items():
                expect(op, [x], f(x, axis, dtype=d), axis=axis)
            for op in ("cummax", "cummin"):  # of which NumPy has none for scalars; as its running sums
                expect(op, [x], [x[None], np.zeros(1, "i4")], axis=axis)
            expect("take", [x, np.array([0, 0, 9])], np.take(x, [0, 0, 9], axis, mode="clip"), axis=axis)
            expect("take", [x, np.array(0)], np.take(x, 0, axis), axis=axis)
            expect("repeat_interleave", [x], np.repeat(x, 3, axis), repeats=3, axis=axis)
            expect("squeeze", [x], np.squeeze(x, axis), dims=[axis])
            if d[0] == "f":  # scipy.special.softmax of a scalar
                expect("softmax", [x], np.ones((), d), axis=axis)
                expect("cosine_similarity", [x, -x], -np.ones((), d), axis=axis)
                expect("softmax", [x], np.ones((), d), axis=axis, safe=True)
                expect("log_softmax", [x], np.zeros((), d), axis=axis)
                expect("categorical", [x], np.zeros((), "i4"), axis=axis)
        for op, attrs in REFUSED.items():
            if op != "layer_norm" or d[0] == "f":
                refused(op, [x], "a tensor of rank 0 has no axes", **attrs)
        for axis in (1, -2):
            for op in (*PLAIN, *(ROWS if d[0] == "f" else ())):
                refused(op, [x], f"dims is {axis}; of a tensor of rank 0 it can be 0 or -1", dims=[axis])
            for op in ("argmax", "argsort", "sort", "top_k", "cumsum", "repeat_interleave"):
                more = {"repeat_interleave": {"repeats": 2}, "top_k": {"k": 1}}.get(op, {})
                refused(op, [x], f"axis is {axis}; of a tensor of rank 0", axis=axis, **more)
        refused("sum", [x], "a tensor of rank 0 has no axes", dims=[0, -1])
        refused("top_k", [x], "k is 0; of a tensor of rank 0 it must be 1", k=0)
    for x in (np.array(True), np.array(False)):
        for op, f in {"any": np.any, "all": np.all}.items():
            for axis in (0, -1):
                expect(op, [x], f(x, axis), dims=[axis])


def nothing():
    for d in ("f4", "f8", "i4"):
        for x in (np.arange(1, 7).reshape(2, 3).astype(d), np.array(3, d), np.zeros((0, 3), d)):
            for keep in (False, True):
                for op, f in PLAIN.items():
                    expect(op, [x], f(x, axis=(), keepdims=keep).astype(d), dims=[], keepdims=keep)
                for op, f in {"mean": np.mean, "var": np.var, "std": np.std}.items() if d[0] == "f" else ():
                    expect(op, [x], f(x, axis=(), keepdims=keep), dims=[], keepdims=keep)
                if d[0] == "f":
                    expect("logsumexp", [x], x, dims=[], keepdims=keep)
    for op, f in {"any": np.any, "all": np.all}.items():
        x = np.array([[True, False]])
        expect(op, [x], f(x, axis=()), dims=[])
        expect(op, [x], f(x), note=" (all of them, where none is named)")
    x = rng(90).normal(size=(2, 3))
    for op, f in PLAIN.items():
        expect(op, [x], f(x), tolerance=1e-13)
    # Gradients go through both.
    for value, attrs in ((x, {"dims": []}), (np.array(2.0), {"dims": [0]}), (np.array(2.0), {"dims": [-1], "keepdims": True})):
        for op, slope in (("sum", 1), ("max", 1), ("mean", 1), ("prod", 1), ("logsumexp", 1), ("var", 0)):
            t = CTX.tensor(value)
            t.require_grad()
            got = CTX.grad(CTX.apply("sum", CTX.apply(op, [t], attrs), {})[0], [t])[0].numpy()
            if got.shape != value.shape or not np.all(got == slope):
                FAILURES.append(f"{op} {attrs}: gradient {got}")
    for op, attrs, slope in (("cumsum", {}, 1), ("cumprod", {}, 1), ("cummax", {}, 1), ("softmax", {}, 0), ("log_softmax", {}, 0),
                             ("repeat_interleave", {"repeats": 3}, 3), ("squeeze", {"dims": [0]}, 1)):
        t = CTX.tensor(np.array(2.0))
        t.require_grad()
        got = CTX.grad(CTX.apply("sum", [CTX.apply(op, [t], attrs)[0]], {})[0], [t])[0].numpy()
        if got.shape != () or got != slope:
            FAILURES.append(f"{op} of a scalar: gradient {got}")


def long_axes():
    """Shapes alone: nothing of this is computed."""
    most = 2**31 - 1
    for n in (most, most + 1, most + 4100):
        for shape, axis in (([n], 0), ([2, n], 1)):
            body = weft.Body(CTX, [("f32", shape)])
            for op in ("argmax", "argmin", "categorical"):
                for dtype in (None, "i32", "i64"):
                    fits = n <= most or dtype == "i64"
                    try:
                        got = body.context.apply(op, [body.parameters[0]], {"axis": axis, "dtype": dtype})[0].dtype
                        good = fits and got == (dtype or "i32")
                    except weft.WeftError as error:
                        text = f"axis {axis} has {n} elements; their positions must fit i32, unless dtype is i64"
                        got, good = str(error), not fits and text in str(error)
                    if not good:
                        FAILURES.append(f"{op} of {shape} to {dtype}: {got}")
    x = rng(91).normal(size=(3, 50))
    x[1, 7] = np.nan
    for op, f in {"argmax": np.argmax, "argmin": np.argmin}.items():
        for axis in (0, 1):
            for dtype in ("i4", "i8"):
                expect(op, [x], f(x, axis).astype(dtype), axis=axis, dtype=dtype)
                expect(op, [x], f(x, axis, keepdims=True).astype(dtype), axis=axis, keepdims=True, dtype=dtype)
        refused(op, [x], "dtype is f32; an index can be i32 or i64", dtype="f32")


def examples():
    """vmap over scalars: none of them sees another."""
    x = np.array([1, 2, 5], "f4")
    for op, attrs, want in (("softmax", {}, np.ones(3)), ("softmax", {"axis": 0, "safe": True}, np.ones(3)),
                            ("log_softmax", {"axis": 0}, np.zeros(3)), ("argmax", {"axis": 0}, np.zeros(3)),
                            ("argsort", {}, np.zeros((3, 1))), ("squeeze", {"dims": [0]}, x),
                            ("repeat_interleave", {"repeats": 2}, np.repeat(x[:, None], 2, 1)), ("sum", {"dims": [-1]}, x),
                            ("std", {"dims": [0]}, np.zeros(3)), ("logsumexp", {"dims": [0]}, x),
                            ("cumsum", {"axis": 0}, x[:, None]), ("cumprod", {}, x[:, None]), ("cummax", {}, x[:, None])):
        body = weft.Body(CTX, [("f32", [])])
        got = body.end(body.context.apply(op, body.parameters, attrs)).vmap(3)(CTX.tensor(x))[0].numpy()
        if got.shape != want.shape or not np.array_equal(got, want):
            FAILURES.append(f"vmap of {op} {attrs}: {got}")


def chosen_of_nothing():
    """A gradient comes back, of the operand's shape, whether there is nothing or nothing is chosen."""
    empty, four, none = np.zeros((0, 3), "f4"), np.ones(4, "f4"), np.zeros(4, bool)
    for op, inputs, attrs in (("masked_select_static", [empty, np.zeros((0, 3), bool)], {"size": 2}),
                              ("masked_select_static", [empty, np.zeros((0, 3), bool)], {"size": 0}),
                              ("masked_select_static", [four, none], {"size": 0}), ("masked_select_static", [four, none], {"size": 3}),
                              ("boolean_mask_static", [empty, np.zeros(0, bool)], {"size": 2}),
                              ("boolean_mask_static", [np.ones((4, 0), "f4"), np.ones(4, bool)], {"size": 3}),
                              ("unique_static", [empty], {"size": 2}), ("take", [np.ones((2, 3), "f4"), np.zeros(0, "i4")], {"axis": 0}),
                              ("bincount", [np.ones(3, "f4"), np.zeros(3, "i4")], {"length": 0}),
                              ("bincount", [np.ones(0, "f4"), np.zeros(0, "i4")], {"length": 2})):
        tensors = [CTX.tensor(x) for x in inputs]
        tensors[0].require_grad()
        given = tensors[::-1] if op == "bincount" else tensors
        try:
            got = CTX.grad(CTX.apply("sum", [CTX.apply(op, given, attrs)[0]], {})[0], tensors[:1])[0].numpy()
            if got.shape != inputs[0].shape or got.any():
                FAILURES.append(f"{op} of {inputs[0].shape} {attrs}: gradient {got}")
        except weft.WeftError as error:
            FAILURES.append(f"{op} of {inputs[0].shape} {attrs}: {error}")


def axes():
    scalars()
    nothing()
    long_axes()
    examples()
    chosen_of_nothing()
