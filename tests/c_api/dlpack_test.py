"""DLPack in both directions and both forms, through ctypes alone. dlpack_numpy_test.py has NumPy on the other side."""
import ctypes
import os
import unittest

LIB = ctypes.CDLL(os.environ["WEFT_LIB"])
VOID = ctypes.c_void_p
LIB.weft_error_message.restype = ctypes.c_char_p
LIB.weft_error_message.argtypes = [VOID, VOID]
LIB.weft_error_release.argtypes = [VOID]
LIB.weft_error_code.argtypes = [VOID]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", VOID), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Legacy(ctypes.Structure):
    pass


class Versioned(ctypes.Structure):
    pass


DELETE_LEGACY = ctypes.CFUNCTYPE(None, ctypes.POINTER(Legacy))
DELETE_VERSIONED = ctypes.CFUNCTYPE(None, ctypes.POINTER(Versioned))
Legacy._fields_ = [("tensor", DLTensor), ("context", VOID), ("deleter", DELETE_LEGACY)]
Versioned._fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", VOID),
                      ("deleter", DELETE_VERSIONED), ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


class WeftError(Exception):
    pass


def call(name, *args):
    function = getattr(LIB, name)
    function.restype = VOID
    error = function(*[VOID(a) if isinstance(a, int) and not isinstance(a, bool) else a for a in args])
    if error:
        text = LIB.weft_error_message(error, None).decode()
        code = LIB.weft_error_code(error)
        LIB.weft_error_release(error)
        raise WeftError(code, text)


def out(name, *args):
    value = VOID()
    call(name, *args, ctypes.byref(value))
    return value.value


class DLPack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["WEFT_CACHE_MODE"] = "off"
        cls.ctx = out("weft_context_create", None)

    def read(self, tensor, count):
        data = (ctypes.c_float * count)()
        call("weft_tensor_to_host", tensor, data, ctypes.c_size_t(4 * count))
        return list(data)

    def release(self, tensor):
        LIB.weft_tensor_release(VOID(tensor))

    def foreign(self, kind, values, shape, strides=None):
        """A DLPack tensor of ours, whose deleter counts."""
        keep = {"data": (ctypes.c_float * len(values))(*values), "shape": (ctypes.c_int64 * len(shape))(*shape), "deleted": 0}
        keep["strides"] = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        managed = kind()

        def delete(_):
            keep["deleted"] += 1
        keep["deleter"] = (DELETE_LEGACY if kind is Legacy else DELETE_VERSIONED)(delete)
        managed.deleter = keep["deleter"]
        if kind is Versioned:
            managed.major, managed.minor = 1, 0
        t = managed.tensor
        t.data = ctypes.addressof(keep["data"])
        t.device_type, t.ndim, t.code, t.bits, t.lanes = 1, len(shape), 2, 32, 1
        t.shape = ctypes.cast(keep["shape"], ctypes.POINTER(ctypes.c_int64))
        if strides:
            t.strides = ctypes.cast(keep["strides"], ctypes.POINTER(ctypes.c_int64))
        keep["managed"] = managed
        return keep

    def take(self, keep):
        name = "weft_tensor_from_dlpack_legacy" if isinstance(keep["managed"], Legacy) else "weft_tensor_from_dlpack"
        return out(name, self.ctx, ctypes.byref(keep["managed"]))

    def test_both_forms_come_in_and_their_deleters_run_once(self):
        for kind in (Legacy, Versioned):
            keep = self.foreign(kind, [1, 2, 3, 4, 5, 6], [2, 3])
            tensor = self.take(keep)
            total = out("weft_add", self.ctx, tensor, tensor)
            self.assertEqual([2, 4, 6, 8, 10, 12], self.read(total, 6))
            self.release(total)
            self.release(tensor)
            self.assertLessEqual(keep["deleted"], 1)
            # What the engine still holds for its last step goes with the next one.
            other = out("weft_tensor_from_f64", self.ctx, 0x12002, ctypes.c_double(1))
            again = out("weft_add", self.ctx, other, other)
            call("weft_sync", self.ctx, None, None)
            self.release(again)
            self.release(other)
            self.assertEqual(1, keep["deleted"], kind.__name__)

    def test_strided_memory_is_copied(self):
        keep = self.foreign(Versioned, [1, 2, 3, 4, 5, 6], [3, 2], strides=[1, 3])
        tensor = self.take(keep)
        self.assertEqual(1, keep["deleted"])
        self.assertEqual([1, 4, 2, 5, 3, 6], self.read(tensor, 6))
        self.release(tensor)

    def test_terabytes_of_one_element_are_refused(self):
        keep = self.foreign(Versioned, [1], [1 << 40], strides=[0])
        with self.assertRaises(WeftError) as raised:
            self.take(keep)
        self.assertEqual((8, "weft_tensor_from_dlpack: no memory for the dense form of a DLPack tensor f32[1099511627776]: 4398046511104 bytes"),
                         raised.exception.args)
        self.assertEqual(0, keep["deleted"])

    def test_what_leads_past_all_memory_is_refused_and_never_read(self):
        top = 1 << 63
        cases = ((dict(shape=[2]), dict(byte_offset=1 << 62)),
                 (dict(shape=[2]), dict(byte_offset=(1 << 64) - 4)),  # wraps round to what is before the data
                 (dict(shape=[2]), dict(byte_offset=(1 << 48) + 4)),
                 (dict(shape=[2], strides=[1 << 62]), {}),
                 (dict(shape=[2], strides=[top - 1]), {}),
                 (dict(shape=[2], strides=[-top]), {}),
                 (dict(shape=[3], strides=[1 << 62]), {}),  # 2 strides are 2^63
                 (dict(shape=[5], strides=[1 << 60]), {}),  # 4 strides of 4 bytes are 2^64
                 (dict(shape=[2, 2], strides=[top - 1, 1]), {}),
                 (dict(shape=[2, 2], strides=[1 << 62, 1 << 62]), {}),
                 (dict(shape=[2, 2], strides=[-(1 << 62), -(1 << 62) - 1]), {}),
                 (dict(shape=[2, 2], strides=[1 << 47, -(1 << 47)]), {}),
                 (dict(shape=[1 << 47]), {}))  # no strides: 2^49 bytes in a row
        for made, changed in cases:
            for kind in (Legacy, Versioned):
                keep = self.foreign(kind, [1, 2], **made)
                for name, value in changed.items():
                    setattr(keep["managed"].tensor, name, value)
                with self.assertRaises(WeftError) as raised:
                    self.take(keep)
                self.assertEqual(3, raised.exception.args[0])
                self.assertIn("past all memory", raised.exception.args[1], (made, changed))
                self.assertEqual(0, keep["deleted"])

    def test_a_stride_of_a_dimension_of_one_means_nothing(self):
        keep = self.foreign(Versioned, [1, 2, 3], [3, 1], strides=[1, (1 << 63) - 1])
        tensor = self.take(keep)
        self.assertEqual([1, 2, 3], self.read(tensor, 3))
        self.release(tensor)
        keep = self.foreign(Versioned, [1, 2, 3, 4], [2, 1, 1], strides=[2, -(1 << 63), (1 << 63) - 1])
        tensor = self.take(keep)
        self.assertEqual([1, 3], self.read(tensor, 2))
        self.release(tensor)

    def test_an_offset_within_memory_is_taken(self):
        keep = self.foreign(Versioned, [1, 2, 3, 4], [2])
        keep["managed"].tensor.byte_offset = 8
        tensor = self.take(keep)
        self.assertEqual([3, 4], self.read(tensor, 2))
        self.release(tensor)
        keep = self.foreign(Versioned, [1, 2, 3, 4], [2], strides=[-2])
        keep["managed"].tensor.byte_offset = 12
        tensor = self.take(keep)
        self.assertEqual([4, 2], self.read(tensor, 2))
        self.release(tensor)

    def test_an_empty_tensor_needs_no_data(self):
        keep = self.foreign(Versioned, [], [0])
        keep["managed"].tensor.data = None
        keep["managed"].tensor.byte_offset = 4
        tensor = self.take(keep)
        self.assertEqual([], self.read(tensor, 0))
        self.release(tensor)

    def test_what_cannot_be_taken_stays_the_callers(self):
        for change, text in (
                (lambda m: setattr(m, "major", 2), "DLPack version 2.0; Weft speaks version 1"),
                (lambda m: setattr(m.tensor, "device_type", 2), "DLPack tensor on device type 2; only host memory (1) can be imported"),
                (lambda m: setattr(m.tensor, "lanes", 4), "dtype 0x42002 is not one that Weft knows"),
                (lambda m: setattr(m.tensor, "ndim", -1), "DLPack tensor with ndim -1")):
            keep = self.foreign(Versioned, [1, 2], [2])
            change(keep["managed"])
            with self.assertRaises(WeftError) as raised:
                self.take(keep)
            self.assertEqual("weft_tensor_from_dlpack: " + text, raised.exception.args[1])
            self.assertEqual(0, keep["deleted"])

    def test_export_lends_the_buffer(self):
        data = (ctypes.c_float * 3)(1, 2, 3)
        dims = (ctypes.c_int64 * 1)(3)
        tensor = out("weft_tensor_from_host", self.ctx, None, 0x12002, dims, ctypes.c_size_t(1), data, ctypes.c_size_t(12))
        for kind, name in ((Legacy, "weft_tensor_to_dlpack_legacy"), (Versioned, "weft_tensor_to_dlpack")):
            pointer = out(name, tensor)
            managed = ctypes.cast(pointer, ctypes.POINTER(kind)).contents
            t = managed.tensor
            self.assertEqual((1, 1, 2, 32, 1), (t.device_type, t.ndim, t.code, t.bits, t.lanes))
            self.assertEqual((3, 1), (t.shape[0], t.strides[0]))
            self.assertEqual([1, 2, 3], list(ctypes.cast(t.data, ctypes.POINTER(ctypes.c_float))[:3]))
            if kind is Versioned:
                self.assertEqual((1, 1), (managed.major, managed.flags))
            managed.deleter(ctypes.cast(pointer, ctypes.POINTER(kind)))
        self.release(tensor)

    def test_a_lent_buffer_is_never_overwritten_and_one_given_back_is_reused(self):
        data = (ctypes.c_float * 3)(1, 2, 3)
        dims = (ctypes.c_int64 * 1)(3)
        tensor = out("weft_tensor_from_host", self.ctx, None, 0x12002, dims, ctypes.c_size_t(1), data, ctypes.c_size_t(12))

        def donated_by_a_step():
            before, after = ctypes.c_int64(), ctypes.c_int64()
            call("weft_metric_get", self.ctx, b"buffers_donated", ctypes.c_size_t(15), ctypes.byref(before))
            twice = out("weft_add", self.ctx, tensor, tensor)
            call("weft_tensor_assign", tensor, twice)
            self.release(twice)
            call("weft_sync", self.ctx, None, None)
            call("weft_metric_get", self.ctx, b"buffers_donated", ctypes.c_size_t(15), ctypes.byref(after))
            return after.value - before.value

        pointer = out("weft_tensor_to_dlpack", tensor)
        managed = ctypes.cast(pointer, ctypes.POINTER(Versioned)).contents
        self.assertEqual(0, donated_by_a_step())
        self.assertEqual([1, 2, 3], list(ctypes.cast(managed.tensor.data, ctypes.POINTER(ctypes.c_float))[:3]))
        managed.deleter(ctypes.cast(pointer, ctypes.POINTER(Versioned)))
        self.assertEqual(1, donated_by_a_step())
        pointer = out("weft_tensor_to_dlpack", tensor)
        managed = ctypes.cast(pointer, ctypes.POINTER(Versioned)).contents
        managed.deleter(ctypes.cast(pointer, ctypes.POINTER(Versioned)))
        self.assertEqual(1, donated_by_a_step())
        self.assertEqual([8, 16, 24], self.read(tensor, 3))
        self.release(tensor)


if __name__ == "__main__":
    unittest.main()
