"""weft_split, weft_chunk and weft_unstack against NumPy, their errors, and their gradients: pieces of the cotangent where
the pieces of the value were."""
import ctypes
import itertools
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
SHAPES = [(6,), (5, 3), (2, 7, 4), (0, 3), (4, 0), (1, 1)]


def array(shape):
    return np.arange(int(np.prod(shape)), dtype="f4").reshape(shape) - 3


def split(x, sizes, axis):
    outs = (ctypes.c_void_p * max(len(sizes), 1))()
    LIB.split(CTX.handle, x.handle, (ctypes.c_int64 * max(len(sizes), 1))(*sizes), len(sizes), axis, outs)
    return [weft.Tensor(CTX, outs[i]) for i in range(len(sizes))]


def counted(function, x, *args, capacity=64):
    outs, count = (ctypes.c_void_p * max(capacity, 1))(), ctypes.c_size_t()
    function(CTX.handle, x.handle, *args, outs, capacity, ctypes.byref(count))
    return [weft.Tensor(CTX, outs[i]) for i in range(count.value)]


def torch_chunk(x, chunks, axis):
    """PyTorch's definition: pieces of the rounded-up quotient, the last shorter, as many as that gives."""
    size = x.shape[axis]
    if size == 0:
        return [x] * chunks
    step = -(-size // chunks)
    return [np.take(x, range(at, min(at + step, size)), axis) for at in range(0, size, step)]


class Parts(unittest.TestCase):
    def same(self, have, want):
        self.assertEqual([w.shape for w in want], [h.shape for h in have])
        for h, w in zip(have, want):
            np.testing.assert_array_equal(h.numpy(), w)

    def fails(self, code, text, function, *args, **keywords):
        with self.assertRaises(weft.WeftError) as raised:
            function(*args, **keywords)
        self.assertEqual((code, text), (raised.exception.code, raised.exception.message))

    def test_split_cuts_where_the_sizes_say(self):
        for shape in SHAPES:
            x = array(shape)
            for axis in range(-len(shape), len(shape)):
                size = shape[axis]
                for sizes in {(size,), (0, size), (size // 2, size - size // 2), (1,) * size, (size // 3, 0, size - size // 3)}:
                    want = np.split(x, np.cumsum(sizes)[:-1], axis) if sizes else []
                    self.same(split(CTX.tensor(x), sizes, axis), want)

    def test_chunk_is_pytorchs_and_where_it_divides_numpys(self):
        for shape in SHAPES:
            x = array(shape)
            for axis, chunks in itertools.product(range(-len(shape), len(shape)), range(1, 9)):
                have = counted(LIB.chunk, CTX.tensor(x), chunks, axis)
                self.same(have, torch_chunk(x, chunks, axis))
                if shape[axis] % chunks == 0 and shape[axis] > 0:
                    self.same(have, np.split(x, chunks, axis))

    def test_unstack_undoes_stack(self):
        for shape in SHAPES:
            x = array(shape)
            for axis in range(-len(shape), len(shape)):
                have = counted(LIB.unstack, CTX.tensor(x), axis)
                self.same(have, [np.take(x, i, axis) for i in range(shape[axis])])
                if have:
                    place = axis % len(shape)
                    np.testing.assert_array_equal(CTX.stack(*have, axis=place).numpy(), x)

    def test_capacity_is_what_there_must_be_room_for(self):
        x = CTX.tensor(array((5, 3)))
        self.assertEqual(3, len(counted(LIB.chunk, x, 3, 0, capacity=3)))
        self.assertEqual(5, len(counted(LIB.unstack, x, 0, capacity=5)))
        self.fails("OUT_OF_RANGE", "weft_chunk: axis 0 of f32[5, 3] gives 3 tensors; capacity is 2",
                   counted, LIB.chunk, x, 3, 0, capacity=2)
        self.fails("OUT_OF_RANGE", "weft_unstack: axis 0 of f32[5, 3] gives 5 tensors; capacity is 0",
                   counted, LIB.unstack, x, -2, capacity=0)

    def test_what_cannot_be_is_said(self):
        x, scalar = CTX.tensor(array((5, 3))), CTX.tensor(np.float32(1))
        self.fails("INVALID_ARGUMENT", "weft_split: sizes must add up to 5, axis 0 of f32[5, 3]; they are 4 together",
                   split, x, [2, 2], 0)
        self.fails("INVALID_ARGUMENT", "weft_split: sizes must add up to 5, axis 0 of f32[5, 3]; they are more",
                   split, x, [2, 2 ** 62, 2 ** 62, 2 ** 62], 0)
        self.fails("INVALID_ARGUMENT", "weft_split: sizes[1] is -1; it must not be negative", split, x, [6, -1], 0)
        self.fails("INVALID_ARGUMENT", "weft_chunk: chunks is 0; it must be at least 1", counted, LIB.chunk, x, 0, 0)
        for function, args in ((LIB.split, ((ctypes.c_int64 * 1)(5), 1, 2)), (LIB.chunk, (1, 2)), (LIB.unstack, (2,))):
            with self.assertRaisesRegex(weft.WeftError, r"axis.* 2.*rank"):
                counted(function, x, *args) if function != LIB.split else split(x, [5], 2)
        with self.assertRaises(weft.WeftError):
            counted(LIB.unstack, scalar, 0)
        other = weft.Context()
        self.fails("INVALID_ARGUMENT", "weft_unstack: x belongs to another context",
                   counted, LIB.unstack, other.tensor(array((2,))), 0)

    def test_gradients_go_back_to_where_the_parts_were(self):
        for cut in (lambda x: split(x, [1, 3, 2], 0), lambda x: counted(LIB.chunk, x, 4, 0), lambda x: counted(LIB.unstack, x, 0)):
            x = CTX.tensor(np.linspace(-1, 2, 12, dtype="f8").reshape(6, 2)).require_grad()
            parts = cut(x)
            weights = [np.random.default_rng(i).random(p.shape) for i, p in enumerate(parts)]
            total = None
            for part, weight in zip(parts, weights):
                term = CTX.sum(CTX.mul(CTX.square(part), CTX.tensor(weight)))
                total = term if total is None else CTX.add(total, term)
            grads = (ctypes.c_void_p * 1)()
            LIB.grad(CTX.handle, total.handle, None, (ctypes.c_void_p * 1)(x.handle), 1, grads)
            whole = np.concatenate([w.reshape(-1, 2) for w in weights])
            value, have, h = x.numpy(), weft.Tensor(CTX, grads[0]).numpy(), 1e-6
            # By differences, from NumPy's own sum.
            want = (whole * (value + h) ** 2 - whole * (value - h) ** 2) / (2 * h)
            np.testing.assert_allclose(have, want, rtol=1e-8, atol=1e-8)


if __name__ == "__main__":
    unittest.main()
