"""The gradient of a tensor that is used in slices has their cotangents side by side: each is written once, where it belongs, not
padded to the whole and added up. Counted by kernels and memory of the compiled gradient; values by differences."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "conformance"))
import functools  # noqa: E402
import unittest  # noqa: E402

import numpy as np  # noqa: E402
import weft  # noqa: E402

LIB = weft.load()
CTX = weft.Context()
SHAPE = (12, 8, 24)
BYTES = 8 * int(np.prod(SHAPE))


def piece(c, x, axis, start, limit, step=1, shape=SHAPE):
    starts, limits, steps = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], limits[axis], steps[axis] = start, limit, step
    return c.slice(x, start_indices=starts, limit_indices=limits, strides=steps)


def chain(c, parts):
    """A recurrence over the parts, like an LSTM's over time."""
    return c.sum(functools.reduce(lambda h, part: c.tanh(c.add(part, h)), parts[1:], c.tanh(parts[0])))


def squares(c, parts):
    return functools.reduce(c.add, [c.sum(c.mul(c.tanh(part), part)) for part in parts])


def places(c, *at):
    return [c.full(shape=[], value=float(i), dtype="i32") for i in at]


def updates(c, x):
    """Rows written one after the other into one tensor, which is read as a whole."""
    y = c.full(shape=list(SHAPE), value=0.0, dtype="f64")
    for t in range(SHAPE[0]):
        y = c.dynamic_update_slice(y, c.tanh(piece(c, x, 0, t, t + 1)), *places(c, t, 0, 0))
    return c.sum(c.mul(y, y))


class SliceGradients(unittest.TestCase):
    def gradient(self, loss):
        body = weft.Body(CTX, [("f64", SHAPE)])
        return body.end([loss(body.context, *body.parameters)])

    def check(self, loss, memory, kernels):
        """The gradient takes at most so many times the tensor's bytes beside its result, and so many kernels; it is right."""
        f = self.gradient(loss)
        g = f.grad()
        stats = g.stats()
        self.assertLessEqual(stats["temporary_bytes"], memory * BYTES)
        self.assertLessEqual(stats["kernels"], kernels)
        r = np.random.default_rng(1)
        x, d, h = r.normal(size=SHAPE), r.normal(size=SHAPE), 1e-5
        have = (g(CTX.tensor(x))[0].numpy() * d).sum()
        up, down = (f(CTX.tensor(x + s * h * d))[0].numpy() for s in (1, -1))
        self.assertLess(abs(have - (up - down) / (2 * h)), 1e-6 * max(1, abs(have)))

    def test_of_time_slices_along_any_axis(self):
        for axis in range(3):
            for squeezed in (False, True):
                def loss(c, x):
                    parts = [piece(c, x, axis, t, t + 1) for t in range(SHAPE[axis])]
                    return chain(c, [c.squeeze(p, dims=[axis]) for p in parts] if squeezed else parts)
                with self.subTest(axis=axis, squeezed=squeezed):
                    self.check(loss, 1.8, 6 * SHAPE[axis] + 4)

    def test_of_parts_in_any_order_with_gaps(self):
        for axis, cuts in ((0, ((8, 10), (0, 3), (3, 4))), (1, ((6, 8), (0, 2))), (2, ((0, 5), (9, 24), (7, 8), (5, 7)))):
            with self.subTest(axis=axis):
                self.check(lambda c, x: squares(c, [piece(c, x, axis, a, b) for a, b in cuts]), 1.8, 3 * len(cuts) + 2)

    def test_of_every_nth_slice(self):
        for axis, step in ((0, 2), (0, 3), (1, 4), (2, 2)):
            with self.subTest(axis=axis, step=step):
                self.check(lambda c, x: squares(c, [piece(c, x, axis, i, SHAPE[axis], step) for i in range(step)]), 1.8,
                           3 * step + 2)

    def test_of_boxes_at_places_that_are_numbers(self):
        def loss(c, x):
            return chain(c, [c.dynamic_slice(x, *places(c, t, 0, 0), slice_sizes=[1, *SHAPE[1:]]) for t in range(SHAPE[0])])
        self.check(loss, 1.8, 6 * SHAPE[0] + 4)

    def test_of_rows_written_into_one_tensor(self):
        self.check(updates, 3.2, 6 * SHAPE[0] + 4)

    def test_of_split_chunk_and_unstack(self):
        import ctypes
        for name, args, count in (("split", ((ctypes.c_int64 * 3)(5, 1, 6), 3, 0), 3), ("chunk", (4, 0), 4), ("unstack", (0,), 12)):
            def loss(c, x):
                outs, used = (ctypes.c_void_p * count)(), ctypes.c_size_t()
                rest = (outs,) if name == "split" else (outs, count, ctypes.byref(used))
                getattr(LIB, name)(c.handle, x.handle, *args, *rest)
                return squares(c, [weft.Tensor(c, ctypes.c_void_p(o)) for o in outs])
            with self.subTest(name):
                self.check(loss, 1.8, 3 * count + 2)


if __name__ == "__main__":
    unittest.main()
