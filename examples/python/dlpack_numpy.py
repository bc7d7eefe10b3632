"""NumPy's arrays as Weft's tensors and back without copying an element, by DLPack: ctypes and the library, no binding.

usage: dlpack_numpy.py [--library PATH]
"""
import argparse
import ctypes as c
import sys

try:
    import numpy as np
except ImportError:
    sys.exit("this program exchanges arrays with NumPy: apt-get install python3-numpy, or pip install numpy")

STRLEN = c.c_size_t(-1).value
PY = c.pythonapi
PY.PyCapsule_New.restype = c.py_object
PY.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
PY.PyCapsule_GetPointer.restype = c.c_void_p
PY.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]
PY.PyCapsule_SetName.argtypes = [c.py_object, c.c_char_p]
# A capsule keeps the pointer to its name, not the text: these live as long as the program. Whoever takes the tensor renames it.
FRESH, USED = b"dltensor", b"used_dltensor"


class Weft:
    def __init__(self, path):
        self.lib = c.CDLL(path)
        self.lib.weft_error_message.restype = c.c_char_p
        self.lib.weft_error_message.argtypes = [c.c_void_p, c.c_void_p]
        self.lib.weft_error_release.argtypes = [c.c_void_p]
        self.lib.weft_tensor_release.argtypes = [c.c_void_p]
        self.ctx = self.call("weft_context_create", None)

    def call(self, name, *args):
        """A function whose last parameter is where the result goes."""
        function, out = getattr(self.lib, name), c.c_void_p()
        function.restype = c.c_void_p
        error = function(*args, c.byref(out))
        if error:
            text = self.lib.weft_error_message(error, None).decode()
            self.lib.weft_error_release(error)
            raise RuntimeError(text)
        return out

    def tensor(self, array):
        """Takes the array's memory over: it stays alive, and must not be written, as long as the tensor needs it."""
        capsule = array.__dlpack__()
        handle = self.call("weft_tensor_from_dlpack_legacy", self.ctx, c.c_void_p(PY.PyCapsule_GetPointer(capsule, FRESH)))
        PY.PyCapsule_SetName(capsule, USED)  # now the memory is Weft's to give back
        return Tensor(self, handle)


class Tensor:
    """Knows the two methods that numpy.from_dlpack, torch.from_dlpack and others ask for."""

    def __init__(self, weft, handle):
        self.weft, self.handle = weft, handle

    def __del__(self):
        self.weft.lib.weft_tensor_release(self.handle)

    def __dlpack__(self, **_):
        managed = self.weft.call("weft_tensor_to_dlpack_legacy", self.handle)  # computes what is pending
        return PY.PyCapsule_New(managed, FRESH, None)

    def __dlpack_device__(self):
        return (1, 0)  # the host's memory

    def __matmul__(self, other):
        return Tensor(self.weft, self.weft.call("weft_matmul", self.weft.ctx, self.handle, other.handle, None))

    def tanh(self):
        return Tensor(self.weft, self.weft.call("weft_tanh", self.weft.ctx, self.handle))


def aligned(shape, dtype):
    """Weft's kernels want memory at multiples of 64 bytes; what begins elsewhere is copied. Large arrays of NumPy begin 16 further."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start:start + size].view(dtype).reshape(shape)


def main():
    parser = argparse.ArgumentParser(description="NumPy to Weft and back by DLPack")
    parser.add_argument("--library", default="libweft.so.1", help="libweft.so.1, where the loader does not find it by itself")
    weft = Weft(parser.parse_args().library)

    x = aligned((512, 512), np.float32)
    x[...] = np.random.default_rng(1).standard_normal(x.shape) / 16
    there = weft.tensor(x)
    back = np.from_dlpack(there)
    shared = back.ctypes.data == x.ctypes.data
    print(f"there and back: {'the same memory' if shared else 'a copy'}, {np.array_equal(x, back)}")

    y = np.from_dlpack((there @ there).tanh())
    error = np.abs(y - np.tanh(x.astype("f8") @ x.astype("f8"))).max()
    print(f"tanh(x @ x) computed by Weft differs from NumPy's in f64 by at most {error:.1e}")

    view = np.from_dlpack(weft.tensor(x[::2, ::3]))  # strides: copied into rows
    print(f"a view with strides arrives as it looks: {np.array_equal(view, x[::2, ::3])}")

    del there, x  # NumPy's memory lives on in `back`, Weft's in `y`
    print(f"memory outlives its owners: {bool(np.isfinite(back).all() and np.isfinite(y).all())}")
    return 0 if shared and error < 1e-5 else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, RuntimeError) as problem:
        sys.exit(str(problem))
