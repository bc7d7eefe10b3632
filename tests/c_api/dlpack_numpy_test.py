"""NumPy arrays into Weft and back without a copy, by DLPack: the older form, which every NumPy knows, and the versioned one
(2.1 on). And tensors print as their arrays do."""
import ctypes
import gc
import os
import sys
import unittest

sys.path[:0] = [os.path.join(os.environ["WEFT_SOURCE"], "tests"), os.path.dirname(os.path.abspath(__file__))]
from support import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))

import numpy  # noqa: E402
from dlpack_test import LIB, VOID, call, out  # noqa: E402

PY = ctypes.pythonapi
PY.PyCapsule_New.restype = ctypes.py_object
PY.PyCapsule_New.argtypes = [VOID, ctypes.c_char_p, VOID]
PY.PyCapsule_GetPointer.restype = VOID
PY.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
PY.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
# Capsules keep the pointer to their name, not the text.
LEGACY, VERSIONED = (b"dltensor", b"used_dltensor", "_legacy"), (b"dltensor_versioned", b"used_dltensor_versioned", "")


class Producer:
    """What numpy.from_dlpack wants: a tensor of Weft as a capsule of either form."""

    def __init__(self, tensor, form):
        self.pointer = out("weft_tensor_to_dlpack" + form[2], tensor)
        self.form = form

    def __dlpack__(self, **_):
        return PY.PyCapsule_New(self.pointer, self.form[0], None)

    def __dlpack_device__(self):
        return (1, 0)


class NumPy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["WEFT_CACHE_MODE"] = "off"
        cls.ctx = out("weft_context_create", None)

    def forms(self):
        new = tuple(int(x) for x in numpy.__version__.split(".")[:2]) >= (2, 1)
        return [LEGACY, VERSIONED] if new else [LEGACY]

    def into_weft(self, array, form):
        capsule = array.__dlpack__() if form is LEGACY else array.__dlpack__(max_version=(1, 0))
        tensor = out("weft_tensor_from_dlpack" + form[2], self.ctx, PY.PyCapsule_GetPointer(capsule, form[0]))
        PY.PyCapsule_SetName(capsule, form[1])  # its deleter is Weft's to call
        return tensor

    def release(self, *tensors):
        for tensor in tensors:
            LIB.weft_tensor_release(VOID(tensor))

    def test_there_and_back(self):
        for form in self.forms():
            for dtype in ("float32", "float64", "float16", "int8", "int64", "uint8", "uint32", "complex64", "complex128"):
                array = numpy.arange(6, dtype=dtype).reshape(2, 3) * numpy.array(1j if dtype[0] == "c" else 1, dtype)
                tensor = self.into_weft(array, form)
                double = out("weft_add", self.ctx, tensor, tensor)
                back = numpy.from_dlpack(Producer(double, form))
                self.release(double, tensor)
                self.assertEqual((array.dtype, array.shape), (back.dtype, back.shape))
                numpy.testing.assert_array_equal(array + array, back)
                del back
                gc.collect()

    def test_views_with_strides_arrive_as_they_look(self):
        array = numpy.arange(24, dtype="float32").reshape(4, 6)
        for form in self.forms():
            for view in (array[::2, 1:5], array.T, array[1]):
                tensor = self.into_weft(view, form)
                same = numpy.from_dlpack(Producer(tensor, form))
                numpy.testing.assert_array_equal(view, same)
                self.release(tensor)
                del same

    def test_memory_outlives_the_tensor_that_lent_it(self):
        for form in self.forms():
            tensor = self.into_weft(numpy.full(1000, 2.5, "float32"), form)
            square = out("weft_square", self.ctx, tensor)
            back = numpy.from_dlpack(Producer(square, form))
            self.release(square, tensor)
            other = self.into_weft(numpy.zeros(1000, "float32"), form)  # would land in memory that was freed
            again = out("weft_square", self.ctx, other)
            call("weft_sync", self.ctx, None, None)
            self.assertTrue((back == 6.25).all())
            self.release(other, again)

    def as_text(self, array, precision):
        tensor = self.into_weft(array, LEGACY)
        # weft_print_options: struct_size, next, threshold, edge_items, precision (-1 = none), line_width, header, reserved
        options = (ctypes.c_int64 * 7)(56, 0, 0, 0, precision or -1, 0, 0)
        text = out("weft_tensor_to_string", tensor, options)
        LIB.weft_blob_data.restype = VOID
        result = ctypes.string_at(LIB.weft_blob_data(VOID(text))).decode()
        LIB.weft_blob_release(VOID(text))
        self.release(tensor)
        return result

    def test_tensors_print_as_arrays_do(self):
        random = numpy.random.default_rng(5)
        arrays = [numpy.array([1, numpy.nan, -numpy.inf]), numpy.array([0.0, -0.0]), numpy.array([1e-10, 1]), numpy.zeros((3, 0)),
                  numpy.array([1e300, -1e-300]), numpy.array([5e-324]), numpy.arange(3000.0).reshape(3, 20, 50)]
        for shape in ((7,), (3, 5), (2, 3, 4), (60,), (40, 40), (2, 1001), (1001, 1, 1)):
            for scale in (1, 1e-3, 30, 1e-6):
                arrays.append(random.standard_normal(shape) * scale)
        for array in arrays:
            for dtype in ("float64", "float32", "float16"):
                with numpy.errstate(all="ignore"):
                    cast = array.astype(dtype)
                for precision in (0, 1, 4, 8):
                    # Since 2.2 NumPy turns to exponents earlier for the narrow types.
                    if dtype != "float64" and numpy.abs(cast[numpy.isfinite(cast)]).max(initial=0) >= 1000:
                        continue
                    with numpy.printoptions(precision=precision):
                        self.assertEqual(str(cast), self.as_text(cast, precision), (dtype, precision))
        for shape in ((1,), (7,), (3, 5), (2, 1001)):
            for scale in (1, 1e-3, 30, 1e-6):
                array = (random.standard_normal(shape) + 1j * random.standard_normal(shape)) * scale
                for precision in (1, 4, 8):
                    with numpy.printoptions(precision=precision):
                        self.assertEqual(str(array), self.as_text(array, precision), precision)
        edges = numpy.array([1 + 2j, complex(numpy.nan, 1), complex(-numpy.inf, -10), complex(0.5, numpy.nan), complex(0, numpy.inf)])
        for array in (edges, numpy.array([1 + 10j, 1 - 2j]), numpy.array([1e300 - 1e-300j])):
            with numpy.printoptions(precision=8):
                self.assertEqual(str(array), self.as_text(array, 8))
        for dtype in ("int8", "int64", "uint64"):
            ends = numpy.iinfo(dtype)
            for array in (numpy.array([ends.min, ends.max, 0], dtype), numpy.arange(3000).astype(dtype).reshape(50, 60)):
                self.assertEqual(str(array), self.as_text(array, 4))


if __name__ == "__main__":
    unittest.main()
