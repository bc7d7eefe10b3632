"""Trains the network of examples/c/train_fashion_mnist.c from Python's ctypes: dlopen and nothing else of Weft's.

No binding and no compiled code: every operation is called by name through weft_op_apply, NumPy only holds the data.
usage: train_fashion_mnist.py [--library PATH] [--epochs N] [--limit STEPS] [--data DIR] [--seed S]
"""
import argparse
import ctypes as c
import gzip
import os
import sys
import time
import zlib

try:
    import numpy as np
except ImportError:
    sys.exit("this program keeps its data in NumPy: apt-get install python3-numpy, or pip install numpy")

F32, I32, U8 = 0x12002, 0x12000, 0x10801
BATCH, EVAL = 64, 500
STRLEN = c.c_size_t(-1).value


class Attr(c.Structure):
    """weft_attr: which field holds the value follows from type."""
    _fields_ = [("name", c.c_char_p), ("name_length", c.c_size_t), ("type", c.c_int32), ("reserved", c.c_int32),
                ("i", c.c_int64), ("d", c.c_double), ("data", c.c_void_p), ("count", c.c_size_t)]


class WeftError(RuntimeError):
    pass


class Weft:
    """The library, with errors as exceptions. `int64 dims + size_t rank`, pointers and numbers: all that ctypes needs."""

    def __init__(self, path):
        try:
            self.lib = c.CDLL(path)
        except OSError as e:
            raise WeftError(f"{e} (build it, or give its path with --library)") from None
        self.lib.weft_abi_version.restype = c.c_uint32
        major = self.lib.weft_abi_version() >> 16
        if major != 1:
            raise WeftError(f"{path} speaks ABI {major}, this program speaks 1")
        self.lib.weft_error_message.restype = c.c_char_p
        self.lib.weft_error_message.argtypes = [c.c_void_p, c.c_void_p]
        self.lib.weft_error_release.argtypes = [c.c_void_p]
        self.lib.weft_tensor_release.argtypes = [c.c_void_p]
        self.ctx = c.c_void_p()
        self("weft_context_create", None, c.byref(self.ctx))

    def __call__(self, name, *args):
        function = getattr(self.lib, name)
        function.restype = c.c_void_p
        error = function(*args)
        if error:
            text = self.lib.weft_error_message(error, None).decode()
            self.lib.weft_error_release(error)
            raise WeftError(text)

    def tensor(self, array):
        array = np.ascontiguousarray(array)
        dtype = {"float32": F32, "int32": I32, "uint8": U8}[array.dtype.name]
        dims = (c.c_int64 * array.ndim)(*array.shape)
        out = c.c_void_p()
        self("weft_tensor_from_host", self.ctx, None, c.c_uint32(dtype), dims, c.c_size_t(array.ndim),
             c.c_void_p(array.ctypes.data), c.c_size_t(array.nbytes), c.byref(out))
        return Tensor(self, out)

    def scalar(self, value):
        out = c.c_void_p()
        self("weft_tensor_from_f64", self.ctx, c.c_uint32(F32), c.c_double(value), c.byref(out))
        return Tensor(self, out)

    def op(self, name, *inputs, **attrs):
        """One operation by name. Attributes: int, float, str (an enumerator), list of ints, ("dtype", number)."""
        handles = (c.c_void_p * len(inputs))(*[x.handle if x is not None else None for x in inputs])
        array, keep = (Attr * len(attrs))(), []
        for slot, (key, value) in zip(array, attrs.items()):
            slot.name, slot.name_length = key.encode(), STRLEN
            if isinstance(value, tuple):
                slot.type, slot.i = 5, value[1]
            elif isinstance(value, bool):
                slot.type, slot.i = 3, value
            elif isinstance(value, int):
                slot.type, slot.i = 1, value
            elif isinstance(value, float):
                slot.type, slot.d = 2, value
            elif isinstance(value, str):
                keep.append(value.encode())
                slot.type, slot.data, slot.count = 4, c.cast(keep[-1], c.c_void_p), len(keep[-1])
            else:
                keep.append((c.c_int64 * len(value))(*value))
                slot.type, slot.data, slot.count = 6, c.cast(keep[-1], c.c_void_p), len(value)
        out, count = (c.c_void_p * 1)(), c.c_size_t()
        self("weft_op_apply", self.ctx, name.encode(), STRLEN_ARG, handles, c.c_size_t(len(inputs)), array,
             c.c_size_t(len(attrs)), out, c.c_size_t(1), c.byref(count))
        return Tensor(self, c.c_void_p(out[0]))

    def grad(self, loss, params):
        outs = (c.c_void_p * len(params))()
        self("weft_grad", self.ctx, loss.handle, None, handles_of(params), c.c_size_t(len(params)), outs)
        return [Tensor(self, c.c_void_p(h)) for h in outs]

    def sync(self):
        self("weft_sync", self.ctx, None, None)


STRLEN_ARG = c.c_size_t(STRLEN)


def handles_of(tensors):
    return (c.c_void_p * len(tensors))(*[t.handle for t in tensors])


class Tensor:
    """Owns one handle. Temporaries are released as Python drops them, so no barrier computes them for their own sake."""

    def __init__(self, weft, handle):
        self.weft, self.handle = weft, handle

    def __del__(self):
        self.weft.lib.weft_tensor_release(self.handle)

    def item(self):
        value = c.c_double()
        self.weft("weft_tensor_item_f64", self.handle, c.byref(value))
        return value.value


def read_idx(path):
    """IDX as NumPy arrays: big-endian header, bytes behind it."""
    with gzip.open(path) as f:
        data = f.read()
    rank = data[3]
    dims = np.frombuffer(data, ">i4", rank, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(dims)


def read(folder, half):
    try:
        images = read_idx(os.path.join(folder, f"{half}-images-idx3-ubyte.gz"))
        labels = read_idx(os.path.join(folder, f"{half}-labels-idx1-ubyte.gz"))
    except FileNotFoundError as e:
        sys.exit(f"{e.filename} is missing: the images come from Debian's package dataset-fashion-mnist")
    except (OSError, EOFError, IndexError, ValueError, zlib.error) as e:
        sys.exit(f"{folder}: the {half} half cannot be read: {e}")
    if images.shape[1:] != (28, 28) or labels.shape != images.shape[:1] or len(images) < EVAL:
        sys.exit(f"{folder}: the {half} half holds images {images.shape} and labels {labels.shape}; at least {EVAL} of 28x28 are needed")
    return images[..., None], labels.astype(np.int32)


def at_least(low):
    def number(text):
        value = int(text)
        if value < low:
            raise argparse.ArgumentTypeError(f"{value} is less than {low}")
        return value
    return number


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=os.path.join(here, "../../build/release/lib/libweft.so.1"))
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=at_least(1), default=1)
    parser.add_argument("--limit", type=at_least(0), default=0, help="at most this many steps an epoch; 0: all")
    parser.add_argument("--seed", type=at_least(0), default=1)
    args = parser.parse_args()

    w = Weft(args.library)
    op = w.op
    rng = np.random.default_rng(args.seed)
    shapes = [(3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (9216, 128), (128,), (128, 10), (10,)]
    params = []
    for shape in shapes:
        value = np.zeros(shape) if len(shape) == 1 else rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[:-1]))
        params.append(w.tensor(value.astype(np.float32)))
        w("weft_tensor_require_grad", params[-1].handle, c.c_int32(1))

    def images(array):
        return op("mul", op("convert", w.tensor(array), dtype=("dtype", F32)), w.scalar(1 / 255))

    def forward(x):
        h = op("relu", op("add", op("conv", x, params[0]), params[1]))
        h = op("relu", op("add", op("conv", h, params[2]), params[3]))
        h = op("flatten", op("max_pool", h, window=[2, 2]), start_axis=1)
        h = op("relu", op("add", op("matmul", h, params[4]), params[5]))
        return op("add", op("matmul", h, params[6]), params[7])

    optimizer = c.c_void_p()
    w("weft_adamw_create", w.ctx, handles_of(params), c.c_size_t(len(params)), None, c.byref(optimizer))
    x_train, y_train = read(args.data, "train")
    x_test, y_test = read(args.data, "t10k")
    steps = len(x_train) // BATCH
    steps = min(steps, args.limit) if args.limit else steps
    accuracy = 0.0
    for epoch in range(args.epochs):
        order, start, value = rng.permutation(len(x_train)), time.time(), 0.0
        for step in range(steps):
            rows = order[step * BATCH:(step + 1) * BATCH]
            loss = op("cross_entropy", forward(images(x_train[rows])), w.tensor(y_train[rows]), reduction="mean")
            grads = w.grad(loss, params)
            w("weft_optimizer_step", optimizer, handles_of(grads), c.c_size_t(len(params)),
              c.c_double(0.001))
            del grads
            w.sync()
            if step % 50 == 49 or step + 1 == steps:
                value = loss.item()
        seconds = time.time() - start
        right = 0
        for at in range(0, len(x_test), EVAL):
            logits = forward(images(x_test[at:at + EVAL]))
            hits = op("eq", op("argmax", logits), w.tensor(y_test[at:at + EVAL]))
            right += op("sum", op("convert", hits, dtype=("dtype", I32))).item()
        accuracy = right / len(x_test)
        print(f"epoch {epoch + 1}: loss {value:.4f}, test accuracy {accuracy:.4f}, "
              f"{steps * BATCH / seconds:.0f} images/s", flush=True)
    w.lib.weft_optimizer_release.argtypes = [c.c_void_p]
    w.lib.weft_optimizer_release(optimizer)
    return accuracy


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except WeftError as e:
        sys.exit(str(e))
