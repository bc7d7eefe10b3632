"""What the array API standard asks beyond wf's own functions, compared with NumPy."""

import os
import unittest

import support  # noqa: F401

try:
    import numpy as np
except ImportError:
    if "WEFT_BUILD" not in os.environ:
        raise unittest.SkipTest("NumPy is not installed") from None
    from support_env import enter_checkers

    enter_checkers(os.path.abspath(__file__))

import libweft as wf  # noqa: E402
from libweft import array_api as xp  # noqa: E402

NAN = complex("nan")


class ArrayApi(unittest.TestCase):
    def test_unique_takes_complex_numbers_and_tells_each_nan(self):
        for of in ([1 + 2j, 1 + 2j, -1j, NAN, NAN, -1j, 1 + 1j], [], [[2j, 1], [1, 2j]], [NAN]):
            a = np.array(of, "c16")
            values, indices, inverse, counts = (part.numpy() for part in xp.unique_all(wf.tensor(a)))
            wanted = np.unique(a, equal_nan=False, return_index=True, return_inverse=True, return_counts=True)
            for mine, theirs in zip((values, indices, inverse, counts), wanted):
                np.testing.assert_array_equal(mine, theirs)
            np.testing.assert_array_equal(xp.unique_values(wf.tensor(a)).numpy(), wanted[0])
            np.testing.assert_array_equal(xp.unique_inverse(wf.tensor(a)).inverse_indices.numpy(), wanted[2])
            np.testing.assert_array_equal(xp.unique_counts(wf.tensor(a)).counts.numpy(), wanted[3])

    def test_all_and_any_take_numbers(self):
        for a in (np.array([[0, 1], [2, 3]], "u1"), np.array([[0.0, -0.0], [np.nan, 1]]), np.array([[0j, 1j], [0, 0]]), np.zeros((0, 2))):
            for name in ("all", "any"):
                for more in ({}, {"axis": 0}, {"axis": -1, "keepdims": True}):
                    mine = getattr(xp, name)(wf.tensor(a), **more).numpy()
                    np.testing.assert_array_equal(mine, getattr(np, name)(a, **more))
                    self.assertEqual(np.bool_, mine.dtype)

    def test_a_mask_of_no_elements_chooses_none(self):
        a = np.arange(12.0).reshape(3, 4)
        for shape in ((0,), (0, 4), (3, 0), (0, 0)):
            mask = np.ones(shape, bool)
            np.testing.assert_array_equal(wf.tensor(a)[wf.tensor(mask)].numpy(), a[mask])
        for shape in ((2,), (3, 3), (4, 0)):
            with self.assertRaisesRegex(IndexError, "does not fit axes"):
                wf.tensor(a)[wf.tensor(np.ones(shape, bool))]

    def test_products_promote_and_refuse_lengths_that_differ(self):
        x, y = np.array([1, 2], "u1"), np.array([3, 4], "u2")
        for name in ("matmul", "vecdot"):
            for module in (xp, wf.linalg):
                mine = getattr(module, name)(wf.tensor(x), wf.tensor(y)).numpy()
                self.assertEqual((11, np.uint16), (mine[()], mine.dtype))
                for length in (0, 1, 3):
                    with self.assertRaises(ValueError, msg=(name, length)):
                        getattr(module, name)(wf.tensor(x), wf.full((length,), 1, dtype="u8"))

    def test_atanh_beside_its_poles(self):
        points = [s + 1j * b for s in (-1.0, 1.0) for b in (3e-95, -2e-160, 1e-9, 1e-4, 0.5)] + [0.3 - 2j, 1e-12 + 1e-12j, -5 + 0.1j]
        np.testing.assert_allclose(xp.atanh(wf.tensor(points, "c128")).numpy(), np.arctanh(np.array(points)), rtol=1e-13)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(xp.atanh(wf.tensor([1 + 0j, -1 + 0j], "c128")).numpy().real, [np.inf, -np.inf])


if __name__ == "__main__":
    unittest.main()
