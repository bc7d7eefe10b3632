"""Results that are as large as the data say: weft_nonzero, weft_masked_select, weft_boolean_mask and weft_unique against NumPy, over
element types and ranks; that each waits once and counts it; their gradients by differences; where they are refused, and the
operations with a size that work there: in functions, loops, under vmap and in every mode."""
import ctypes
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "conformance"))
import unittest  # noqa: E402

import numpy as np  # noqa: E402
import weft  # noqa: E402

LIB = weft.load()
CTX = weft.Context()
DTYPES = ("f2", "f4", "f8", "?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
SHAPES = [(), (1,), (7,), (0,), (2, 0), (2, 3, 4), (2, 1, 3, 2)]


def numbers(shape, dtype, seed=0):
    x = np.random.default_rng(seed).integers(0, 4, shape).astype(dtype)
    if x.dtype.kind == "f" and x.size > 4:
        x.flat[0], x.flat[2], x.flat[3] = np.nan, -0.0, np.nan
    return x


def chosen(shape, seed=1):
    return np.asarray(np.random.default_rng(seed).random(shape) < 0.5)


def one(function, *args, ctx=CTX):
    out = ctypes.c_void_p()
    function(ctx.handle, *[a.handle if isinstance(a, weft.Tensor) else a for a in args], ctypes.byref(out))
    return weft.Tensor(ctx, out)


def unique(x, equal_nan=True, ctx=CTX):
    outs = [ctypes.c_void_p() for _ in range(4)]
    LIB.unique(ctx.handle, x.handle, int(equal_nan), *map(ctypes.byref, outs))
    return [weft.Tensor(ctx, out) for out in outs]


def metric(name, ctx=CTX):
    value = ctypes.c_int64()
    LIB.metric_get(ctx.handle, name.encode(), len(name), ctypes.byref(value))
    return value.value


class Sizes(unittest.TestCase):
    def same(self, have, want, dtype=None):
        have = have.numpy()
        self.assertEqual((have.shape, have.dtype), (want.shape, np.dtype(dtype or want.dtype)))
        np.testing.assert_array_equal(have, want)

    def fails(self, code, text, function, *args):
        with self.assertRaises(weft.WeftError) as raised:
            function(*args)
        self.assertEqual((code, text), (raised.exception.code, raised.exception.message))

    def test_each_is_numpys(self):
        for shape in (*SHAPES, (3, 4)):
            mask = chosen(shape)
            for dtype in DTYPES if shape == (3, 4) else ("f4",):
                x = numbers(shape, dtype)
                with self.subTest(shape=shape, dtype=dtype):
                    t = CTX.tensor(x)
                    rows = np.argwhere(x) if shape else np.zeros((int(x != 0), 0))
                    self.same(one(LIB.nonzero, t), rows.astype("i4"))
                    self.same(one(LIB.masked_select, t, CTX.tensor(mask)), np.atleast_1d(x)[np.atleast_1d(mask)])
                    for axis in range(-len(shape), len(shape)):
                        at = axis % len(shape)
                        for rank in range(1, len(shape) - at + 1):
                            m = chosen(shape[at:at + rank])
                            self.same(one(LIB.boolean_mask, t, CTX.tensor(m), axis), x[(slice(None),) * at + (m,)])
                    for equal_nan in (True, False):
                        want, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True,
                                                                 equal_nan=equal_nan)
                        values, at, often, where = unique(t, equal_nan)
                        self.same(values, want)
                        self.same(at, inverse.reshape(shape), "i4")
                        self.same(often, counts, "i4")
                        self.same(where, first, "i4")

    def test_shapes_broadcast(self):
        x, mask = np.arange(3, dtype="f4"), np.array([[True], [False], [True]])
        self.same(one(LIB.masked_select, CTX.tensor(x), CTX.tensor(mask)), np.float32([0, 1, 2, 0, 1, 2]))

    def test_each_waits_once_and_counts_it(self):
        x, mask = CTX.tensor(numbers((50,), "f4")), CTX.tensor(chosen((50,)))
        for function, args in ((LIB.nonzero, (x,)), (LIB.masked_select, (x, mask)), (LIB.boolean_mask, (x, mask, 0))):
            before = {name: metric(name) for name in ("cut_size", "cuts", "cut_host_read")}
            y = one(function, *args)
            self.assertEqual(before["cut_size"] + 1, metric("cut_size"))
            self.assertEqual(before["cuts"] + 1, metric("cuts"))
            self.assertGreater(y.shape[0], 0)
            y.numpy()
            self.assertEqual(before["cuts"] + 2, metric("cuts"))
        before = metric("cut_size"), metric("cuts")
        values = unique(x)
        self.assertEqual((before[0] + 1, before[1] + 1), (metric("cut_size"), metric("cuts")))
        CTX.eval(values)
        self.assertEqual(before[1] + 2, metric("cuts"))
        self.assertIn('"cut_size": ', self.report())
        # Those with a size record and no more.
        before = metric("cuts")
        kept = [CTX.nonzero_static(x, size=4), CTX.masked_select_static(x, mask, size=4), CTX.boolean_mask_static(x, mask, size=4),
                CTX.unique_static(x, size=4)]
        self.assertEqual(before, metric("cuts"))
        del kept

    def report(self):
        blob = ctypes.c_void_p()
        LIB.metrics_json(CTX.handle, ctypes.byref(blob))
        text = ctypes.string_at(LIB.blob_data(blob), LIB.blob_size(blob)).decode()
        LIB.blob_release(blob)
        return text

    def test_what_is_pending_is_computed_once(self):
        x = CTX.tensor(np.linspace(-1, 1, 40, dtype="f4"))
        y = CTX.exp(CTX.sin(x))
        before = metric("cut_nodes_computed")
        kept = one(LIB.masked_select, y, CTX.gt(y, CTX.tensor(np.float32(1))))
        kept.numpy()
        first = metric("cut_nodes_computed")
        y.numpy()  # known by then
        self.assertEqual(first, metric("cut_nodes_computed"))
        self.assertGreater(first, before)

    def test_gradients_go_back_by_differences(self):
        x, mask = np.random.default_rng(3).normal(size=(4, 5)), chosen((4, 5))
        ways = {
            "masked_select": (lambda t: one(LIB.masked_select, t, CTX.tensor(mask)), lambda v: v[mask]),
            "boolean_mask": (lambda t: one(LIB.boolean_mask, t, CTX.tensor(mask[0]), 1), lambda v: v[:, mask[0]]),
            "unique": (lambda t: unique(t)[0], lambda v: np.unique(v)),
            "masked_select_static": (lambda t: CTX.masked_select_static(t, CTX.tensor(mask), size=30)[0], lambda v: v[mask]),
            "boolean_mask_static": (lambda t: CTX.boolean_mask_static(t, CTX.tensor(mask[0]), size=2, axis=1)[0],
                                    lambda v: v[:, mask[0]][:, :2]),
            "unique_static": (lambda t: CTX.unique_static(t, size=7)[0], lambda v: np.unique(v)[:7]),
        }
        for name, (ours, numpys) in ways.items():
            with self.subTest(name):
                weight = np.random.default_rng(4).random(numpys(x).shape)

                def total(v):
                    return (weight * np.sin(numpys(v))).sum()

                t = CTX.tensor(x).require_grad()
                y = ours(t)
                padded = np.zeros(y.shape)
                padded[tuple(slice(0, n) for n in weight.shape)] = weight
                grad = CTX.grad(CTX.sum(CTX.mul(CTX.sin(y), CTX.tensor(padded))), [t])[0].numpy()
                want, h = np.empty_like(x), 1e-6
                for i in np.ndindex(x.shape):
                    step = np.zeros_like(x)
                    step[i] = h
                    want[i] = (total(x + step) - total(x - step)) / (2 * h)
                np.testing.assert_allclose(grad, want, rtol=1e-7, atol=1e-8)

    def test_bodies_take_those_with_a_size(self):
        body = weft.Body(CTX, [("f32", (6,)), ("i1", (6,))])
        x, mask = body.parameters
        for function, args, name in ((LIB.nonzero, (x,), "nonzero"), (LIB.masked_select, (x, mask), "masked_select"),
                                     (LIB.boolean_mask, (x, mask, 0), "boolean_mask")):
            for ctx in (body.context, CTX):
                with self.assertRaises(weft.WeftError) as raised:
                    one(function, *args, ctx=ctx)
                self.assertEqual("FAILED_PRECONDITION", raised.exception.code)
                self.assertRegex(raised.exception.message, f"{name} in .*f.*: the size of its result depends on values, and nothing has a "
                                 f"value while a function is recorded; {name}_static takes a size and works there")
        with self.assertRaisesRegex(weft.WeftError, "unique in .*unique_static takes a size"):
            unique(x, ctx=body.context)
        kept, count = body.context.masked_select_static(x, mask, size=4, fill=-1)
        values = body.context.unique_static(x, size=6, fill=9)
        function = body.end([kept, count, values[0], body.context.cumsum(x)])
        v, m = np.float32([3, 1, 3, 2, 1, 5]), np.array([True, False, True, True, False, False])
        results = function(CTX.tensor(v), CTX.tensor(m))
        for have, want in zip(results, (np.float32([3, 3, 2, -1]), np.int32(3), np.float32([1, 2, 3, 5, 9, 9]), np.cumsum(v))):
            self.same(have, np.asarray(want))
        # Each example of vmap, each step of a scan: as one after the other.
        vs, ms = np.stack([v, v[::-1], v * 2]), np.stack([m, ~m, m])
        many = [CTX.tensor(vs), CTX.tensor(ms)]
        outs, count = (ctypes.c_void_p * 4)(), ctypes.c_size_t()
        LIB.scan(CTX.handle, function.handle, None, 0, weft._handles(many), 2, None, outs, 4, ctypes.byref(count))
        scanned = [weft.Tensor(CTX, ctypes.c_void_p(o)) for o in outs]
        for together in (function.vmap(3)(*many), scanned):
            for i in range(3):
                for have, want in zip(together, function(CTX.tensor(vs[i]), CTX.tensor(ms[i]))):
                    np.testing.assert_array_equal(have.numpy()[i], want.numpy())

    def test_eager_and_debug_modes_give_the_same(self):
        x, mask = numbers((3, 4), "f4"), chosen((3, 4))
        for mode in ("eager", "debug"):
            ctx = weft.Context(mode=mode)
            t = ctx.tensor(x)
            self.same(one(LIB.nonzero, t, ctx=ctx), np.argwhere(x).astype("i4"))
            self.same(one(LIB.masked_select, t, ctx.tensor(mask), ctx=ctx), x[mask])
            self.same(unique(t, ctx=ctx)[0], np.unique(x))

    def test_mistakes_are_named(self):
        x, mask, f = (CTX.tensor(v) for v in (np.ones((2, 3), "f4"), np.ones((2, 3), "?"), np.ones((2, 3), "f4")))
        for text, function, *args in (
                ("masked_select_static(f32[2, 3], f32[2, 3]): operand mask has dtype f32", one, LIB.masked_select, x, f),
                ("mask must have the sizes of x from axis 1 on: [2, 3] are not there in [2, 3]", one, LIB.boolean_mask, x, mask, 1),
                ("boolean_mask_static(f32[2, 3], bool[2, 3]): axis is 2; a tensor of rank 2 has axes -2 to 1", one, LIB.boolean_mask, x, mask, 2),
                ("shapes [2, 3] and [2] do not broadcast", one, LIB.masked_select, x, CTX.tensor(np.ones(2, "?"))),
                ("x belongs to another context", one, LIB.nonzero, weft.Context().tensor(np.ones(2, "f4"))),
                ("size is -1; it must be 0 to 2147483647", lambda: CTX.nonzero_static(x, size=-1)),
                ("fill 0.5 is not a whole number and dtype is i32",
                 lambda: CTX.masked_select_static(CTX.tensor(np.ones(3, "i4")), CTX.tensor(np.ones(3, "?")), size=2, fill=0.5)),
                ("fill 300 does not fit i8",
                 lambda: CTX.unique_static(CTX.tensor(np.ones(3, "i1")), size=2, fill=300.0)),
                ("fill is 4294967296; it must fit i32", lambda: CTX.nonzero_static(x, size=1, fill=2 ** 32)),
                ("cumsum(f32[2, 3]): axis is 2", lambda: CTX.cumsum(x, axis=2)),
                ("size", lambda: CTX.unique_static(x))):
            with self.assertRaises(weft.WeftError) as raised:
                function(*args)
            self.assertEqual("INVALID_ARGUMENT", raised.exception.code)
            self.assertIn(text, raised.exception.message)
        with self.assertRaisesRegex(weft.WeftError, "weft_nonzero: x .*NULL"):
            LIB.nonzero(CTX.handle, None, ctypes.byref(ctypes.c_void_p()))
        with self.assertRaisesRegex(weft.WeftError, "weft_nonzero: out .*NULL"):
            LIB.nonzero(CTX.handle, x.handle, None)


if __name__ == "__main__":
    unittest.main()
