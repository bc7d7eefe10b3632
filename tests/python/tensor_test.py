"""Tensors beside NumPy: operators, types, indexing and assignment, values in and out, text, copies. Runs inside the NumPy
environment."""

import copy
import itertools
import os
import pickle
import sys
import unittest

import support

if support.np is None and "WEFT_BUILD" in os.environ:
    from support_env import enter_numpy

    enter_numpy(os.path.abspath(__file__))

import libweft as wf  # noqa: E402

np = support.np
FLOATS, INTS = ("f32", "f64"), ("i8", "i16", "i32", "i64", "u8", "u16", "u32")


def values(shape, kind, seed):
    random = np.random.default_rng(seed)
    if kind == "bool":
        return random.random(shape) < 0.5
    if kind in INTS:
        low = 1 if kind.startswith("u") else -5
        return random.integers(low, 6, shape).astype(wf.dtype(kind).numpy)
    return (random.random(shape) * 4 - 2).astype(wf.dtype(kind).numpy)


@support.needs_numpy
class Operators(unittest.TestCase):
    def same(self, mine, theirs, what):
        self.assertEqual(tuple(mine.shape), theirs.shape, what)
        np.testing.assert_allclose(
            mine.numpy().astype(np.float64), theirs.astype(np.float64), rtol=2e-6, atol=1e-6, err_msg=str(what)
        )

    def test_binary_operators_broadcast_as_numpys(self):
        operators = ["+", "-", "*", "//", "%", "<", "<=", ">", ">=", "==", "!="]
        for kind, shapes in itertools.product(
            FLOATS + INTS, [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 4)), ((), (3,)), ((0, 2), (2,))]
        ):
            a, b = values(shapes[0], kind, 1), values(shapes[1], kind, 2)
            b = np.where(b == 0, 1, b).astype(b.dtype)
            x, y = wf.tensor(a), wf.tensor(b)
            for op in operators:
                self.same(eval("x %s y" % op), np.asarray(eval("a %s b" % op)), (op, kind, shapes))

    def test_numbers_beside_tensors_on_both_sides(self):
        for kind in FLOATS + ("i32", "i64"):
            a = values((2, 3), kind, 3)
            x = wf.tensor(a)
            for text in (
                "x + 2",
                "2 + x",
                "x - 2",
                "2 - x",
                "x * 3",
                "3 * x",
                "x // 2",
                "x % 3",
                "x ** 2",
                "x < 1",
                "-x",
                "abs(x)",
                "+x",
                "x / 2",
                "2 / (abs(x) + 1)",
            ):
                mine = eval(text)
                theirs = np.asarray(eval(text, {"x": a}))
                self.same(mine, theirs, (text, kind))

    def test_bit_operators(self):
        for kind in ("i32", "u8", "bool"):
            a, b = values((7,), kind, 4), values((7,), kind, 5)
            x, y = wf.tensor(a), wf.tensor(b)
            for op in "&|^":
                self.same(eval("x %s y" % op), eval("a %s b" % op), (op, kind))
            self.same(~x, ~a, ("~", kind))
        a = np.array([1, -5, 100], np.int32)
        self.same(wf.tensor(a) << 2, a << 2, "<<")
        self.same(wf.tensor(a) >> 1, a >> 1, ">>")

    def test_types_that_differ_are_promoted(self):
        table = {
            ("f32", "f64"): "f64",
            ("i32", "f32"): "f32",
            ("i8", "i32"): "i32",
            ("u8", "i8"): "i16",
            ("bool", "i32"): "i32",
            ("f16", "bf16"): "f32",
            ("f32", "c64"): "c64",
            ("f64", "c64"): "c128",
            ("u32", "i32"): "i64",
            ("u64", "i64"): "f64",
        }
        for (a, b), c in table.items():
            for x, y in ((a, b), (b, a)):
                self.assertEqual(c, (wf.ones((2,), x) + wf.ones((2,), y)).dtype, (x, y))
                self.assertEqual(c, wf.promote_types(wf.dtype(x), wf.dtype(y)))

    def test_numpy_arrays_leave_the_operation_to_the_tensor(self):
        a, x = np.ones((2, 3), np.float32), wf.ones((2, 3)) * 2
        for made in (a + x, x + a, a @ x.T, a == x):
            self.assertIsInstance(made, wf.Tensor)

    def test_matrix_products(self):
        for s, t in (
            ((2, 3), (3, 4)),
            ((3,), (3, 4)),
            ((2, 3), (3,)),
            ((3,), (3,)),
            ((5, 2, 3), (3, 4)),
            ((5, 2, 3), (5, 3, 2)),
        ):
            a, b = values(s, "f64", 6), values(t, "f64", 7)
            self.same(wf.tensor(a) @ wf.tensor(b), np.asarray(a @ b), (s, t))

    def test_number_that_changes_at_one_place_compiles_twice_at_most(self):
        x = wf.tensor([1.0, 2.0]).eval()
        before = wf.metrics.get("programs_queued")
        for i in range(10):
            self.assertEqual([i + 0.5, 2 * (i + 0.5)], (x * (i + 0.5)).tolist())
        self.assertLessEqual(wf.metrics.get("programs_queued") - before, 2)


@support.needs_numpy
class Indexing(unittest.TestCase):
    KEYS = [
        "0",
        "-1",
        "1, 2",
        "1:3",
        "::2",
        "::-1",
        "..., 0",
        "0, ...",
        "None",
        ":, None, 1",
        "1:1",
        "3:1",
        "-3:-1",
        "::-2, 1:",
        "..., ::-1",
        "[0, 2]",
        "[0, 2], [1, 1]",
        ":, [1, 0, 1]",
        "[[0, 1], [2, 3]]",
        ":, :, [0, 1, 1]",
        "[0, 1], :, [1, 2]",
        "1, :, [0, 3]",
        "np.array([3, -1])",
        "np.array([[0], [1]]), np.array([2, 0])",
        "slice(None), np.array([1, 2])",
        "a > 0",
        "a[:, 0, 0] > 0",
        "np.array([True, False, True, True])",
        "2, [0, 1]",
        "None, [1, 2]",
        "()",
        "...",
    ]

    def test_reads_are_numpys(self):
        a = values((4, 3, 4), "f64", 8)
        x = wf.tensor(a)
        for key in self.KEYS:
            k = eval("np.index_exp[%s]" % key)
            theirs = a[k]
            mine = x[tuple(wf.tensor(i) if isinstance(i, np.ndarray) and i.dtype == bool else i for i in k)]
            self.assertEqual(theirs.shape, mine.shape, key)
            np.testing.assert_array_equal(theirs, mine.numpy(), key)

    def test_assignments_are_numpys(self):
        for key in self.KEYS:
            a = values((4, 3, 4), "f64", 8)
            x = wf.tensor(a)
            k = eval("np.index_exp[%s]" % key, {"np": np, "a": a})
            part = a[k]
            for value in (7.0, np.arange(part.size, dtype=np.float64).reshape(part.shape)):
                if key in ("[0, 2], [1, 1]", "[[0, 1], [2, 3]]", ":, [1, 0, 1]", ":, :, [0, 1, 1]") and not isinstance(
                    value, float
                ):
                    continue  # Places that occur twice take either value.
                a[k] = value
                x[k] = value
                np.testing.assert_array_equal(a, x.numpy(), "%s = %s" % (key, type(value)))

    def test_assigned_numbers_keep_their_digits(self):
        keys = [(), 1, slice(0, 2), slice(None, None, 2), [0, 2], [True, False, True]]
        for dtype, value in (
            ("f64", 0.1), ("f64", 2**53 + 2), ("i64", 2**53 + 1), ("i64", -(2**63)), ("u64", 2**64 - 1), ("c128", 16777217j), ("c128", 0.1 - 0.1j),
            ("c128", 2**53 + 2), ("f32", 0.1), ("c64", 0.1j), ("i32", 2**31 - 1), ("i64", 1.75), ("bool", True),
        ):
            name = wf.zeros(1, dtype).numpy().dtype
            for key, several in itertools.product(keys, (False, True)):
                if several and key == 1:
                    continue
                want, have = np.zeros(3, name), wf.zeros(3, dtype)
                given = [value] * len(want[key]) if several else value
                place = wf.tensor(key) if isinstance(key, list) else key
                want[key], have[place] = given, given
                np.testing.assert_array_equal(want, have.numpy(), "%s[%s] = %r" % (dtype, key, given), strict=True)

    def test_numbers_that_elements_do_not_hold_are_refused(self):
        for dtype, value, kind, text in (
            ("f32", 1j, TypeError, "a complex value cannot be assigned to elements of f32"),
            ("i64", wf.tensor([1j, 2j]), TypeError, "a complex value cannot be assigned to elements of i64"),
            ("f64", [1j, 2], ValueError, "a number of the list is none of type f64"),
            ("i64", [1j, 2], ValueError, "a number of the list is none of type i64"),
            ("u8", [300, 1], ValueError, "a number of the list is none of type u8"),
            ("u8", 300, ValueError, "300 does not fit u8"),
        ):
            x = wf.ones(2, dtype)
            with self.assertRaisesRegex(kind, text):
                x[:] = value
            self.assertEqual([1, 1], x.tolist())
        with self.assertRaisesRegex(ValueError, "full: value is 9007199254740993, which no float holds: the nearest is 9007199254740992"):
            wf.full((2,), 2**53 + 1, dtype="i64")
        with self.assertRaisesRegex(ValueError, "clip: high is 9007199254740993, which no float holds"):
            wf.clip(wf.tensor([1]), 0, 2**53 + 1)
        with self.assertRaisesRegex(ValueError, "full: value is beyond what a float holds"):
            wf.full((2,), 10**400)
        with self.assertRaisesRegex(ValueError, "is beyond what f64 holds"):
            wf.tensor(10**400, "f64")
        self.assertEqual([2**53 + 1] * 2, wf.full_like(wf.tensor([1, 2]), 2**53 + 1).tolist())
        x = wf.full_like(wf.tensor([1.0, 2.0], "f64"), 10**20)
        x[1] = -(10**20)
        self.assertEqual([1e20, -1e20], x.tolist())
        self.assertEqual([2**53 + 1] * 2, wf.full((2,), 0, dtype="i64", integer=2**53 + 1).tolist())

    def test_ranges_of_large_whole_numbers_are_exact(self):
        for given in ((2**53 + 1, 2**53 + 4), (0, 2**53 + 1, 2**53), (0, 2**53 + 1, 2**53 + 1), (2**53 + 5, 2**53, -2), (2**62, 0, -(2**61) - 1), (2**53 + 1, 5)):
            self.assertEqual(list(range(*given)), wf.arange(*given).tolist(), given)
        self.assertEqual([float(2**53 + i) for i in range(8)], wf.arange(2**53, 2**53 + 8, dtype="f64").tolist())

    def test_a_tensor_as_index_stays_in_the_program(self):
        x, i = wf.arange(10), wf.tensor([3, -1])
        self.assertEqual([3, 9], x[i].tolist())
        self.assertEqual(4, x[wf.tensor(4)].item())

    def test_what_is_no_index_is_an_index_error(self):
        x = wf.zeros((2, 3))
        for key in (2, -3, (0, 3), (0, 0, 0), [0, 5], [1.5], (Ellipsis, Ellipsis), wf.zeros((5,), "bool"), wf.zeros((2,))):
            with self.assertRaises(IndexError, msg=str(key)):
                x[key]
        with self.assertRaises(ValueError):
            x[0] = [1.0, 2.0]

    def test_gradients_flow_through_indexing_and_assignment(self):
        w = wf.Parameter([1.0, 2.0, 3.0])
        self.assertEqual([0, 2, 1], wf.gradients(w[[1, 1, 2]].sum(), w).tolist())
        y = w * 1.0
        y[0] = 5.0
        self.assertEqual([0, 1, 1], wf.gradients(y.sum(), w).tolist())

    def test_iteration_and_containment(self):
        self.assertEqual([[0, 1], [2, 3]], [row.tolist() for row in wf.arange(4).reshape(2, 2)])
        self.assertIn(3, wf.arange(4))
        self.assertNotIn(9, wf.arange(4))
        self.assertEqual(2, len(wf.zeros((2, 5))))


@support.needs_numpy
class Exchange(unittest.TestCase):
    def test_numpy_both_ways_for_every_type(self):
        for kind in FLOATS + INTS + ("bool", "f16", "u64", "c64", "c128"):
            a = (np.arange(6).reshape(2, 3) - 2 * (kind not in ("bool", "u8", "u16", "u32", "u64"))).astype(
                wf.dtype(kind).numpy
            )
            x = wf.tensor(a)
            self.assertEqual((kind, (2, 3)), (x.dtype, x.shape))
            for back in (
                x.numpy(),
                np.asarray(x),
                np.from_dlpack(x),
                wf.from_dlpack(a).numpy(),
                wf.tensor(a.T).numpy().T,
                pickle.loads(pickle.dumps(x)).numpy(),
                copy.deepcopy(x).numpy(),
                copy.copy(x).numpy(),
            ):
                np.testing.assert_array_equal(a, back)
                self.assertEqual(a.dtype, back.dtype)
            self.assertEqual(a.tolist(), x.tolist())
            self.assertEqual(a.tobytes(), x.tobytes())

    def test_dlpack_shares_and_outlives(self):
        a = np.arange(1024.0)
        x = wf.from_dlpack(a)
        del a
        self.assertEqual(1023.0, x[-1].item())
        b = np.from_dlpack(x * 2)
        del x
        self.assertEqual(2046.0, b[-1])
        capsule = (wf.ones((3,)) * 2).__dlpack__()
        del capsule  # Nobody took it: it gives its tensor back.

    @unittest.skipUnless(wf._call.accelerator or sys.version_info >= (3, 12), "Python asks no class for its buffer before 3.12")
    def test_the_buffer_of_a_tensor(self):
        x = wf.tensor([[1, 2, 3], [4, 5, 6]], "i16")
        view = memoryview(x)
        self.assertEqual(("h", (2, 3), [[1, 2, 3], [4, 5, 6]]), (view.format, view.shape, view.tolist()))
        self.assertEqual(x.tobytes(), bytes(view))
        del x  # The view keeps the elements.
        self.assertEqual((6, True), (view[1, 2], view.readonly))
        for wrong, text in ((wf.tensor([1.0], "bf16"), "no letter in a buffer"), (wf.zeros((0, 2)), "without elements")):
            with self.assertRaisesRegex(BufferError, text):
                memoryview(wrong)

    def test_empty_and_scalar(self):
        for shape in ((), (0,), (2, 0, 3), (1,)):
            self.assertEqual(np.zeros(shape).tolist(), wf.zeros(shape, "f64").tolist())
            self.assertEqual((shape, np.float32), (np.asarray(wf.zeros(shape)).shape, np.asarray(wf.zeros(shape)).dtype))

    def test_text_is_numpys(self):
        x = wf.tensor([[1.5, -2.0], [3.25, 0.0]])
        self.assertEqual("[[ 1.5  -2.  ]\n [ 3.25  0.  ]]", str(x))
        self.assertEqual("tensor([[ 1.5  -2.  ]\n        [ 3.25  0.  ]], dtype=f32)", repr(x))
        self.assertIn("<pre>", x._repr_html_())
        self.assertEqual("3.25", "%.2f" % x[1, 0])
        self.assertEqual("1.500", format(x[0, 0], ".3f"))

    def test_lists(self):
        self.assertEqual("i64", wf.tensor([1, 2]).dtype)
        self.assertEqual("f32", wf.tensor([1, 2.5]).dtype)
        self.assertEqual("bool", wf.tensor([True, False]).dtype)
        self.assertEqual("c64", wf.tensor([1j, 2]).dtype)
        self.assertEqual((2, 1), wf.tensor([[wf.tensor(1.0)], [wf.tensor(2.0)]]).shape)
        self.assertEqual([2**63 - 1], wf.tensor([2**63 - 1]).tolist())
        for bad in ([[1], [1, 2]], [1, [2]], [[1, 2], 3]):
            with self.assertRaises(ValueError):
                wf.tensor(bad)
        with self.assertRaises(TypeError):
            wf.tensor(["a"])
        with self.assertRaises(ValueError):
            wf.tensor([300], "u8")


@support.needs_numpy
class NumPysForms(unittest.TestCase):
    def test_functions_that_are_no_operations(self):
        a = values((4, 6), "f64", 9)
        x = wf.tensor(a)
        pairs = [
            (wf.concat([x, x], 1), np.concatenate([a, a], 1)),
            (wf.moveaxis(x, 0, 1), np.moveaxis(a, 0, 1)),
            (wf.eye(3, k=1), np.eye(3, k=1)),
            (wf.stack([x, x], 1), np.stack([a, a], 1)),
            (wf.outer(x[0], x[1]), np.outer(a[0], a[1])),
            (wf.arange(2, 9, 3), np.arange(2, 9, 3)),
            (wf.argwhere(x > 0), np.argwhere(a > 0)),
            (x.T, a.T),
            (wf.sum(x, axis=(0, 1)), a.sum()),
            (x.mean(axis=1, keepdims=True), a.mean(1, keepdims=True)),
            (wf.unique(wf.tensor([3, 1, 3]))[0], np.unique([3, 1, 3])),
            (x.reshape(3, -1), a.reshape(3, -1)),
            (wf.split(x, [2, 4], 1)[1], a[:, 2:]),
            (wf.chunk(x, 4, 1)[2], a[:, 4:6]),
        ]
        for i, (mine, theirs) in enumerate(pairs):
            np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-6, err_msg=str(i))
        for mine, theirs in zip(wf.nonzero(x > 0), np.nonzero(a > 0)):
            np.testing.assert_array_equal(np.asarray(mine), theirs)


if __name__ == "__main__":
    unittest.main()
