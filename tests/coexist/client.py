"""A client through ctypes alone: softmax(a + b) and its gradient, compared with values computed here.

usage: client.py LIBRARY... [--global SHARED_OBJECT]... [--beside jax|torch]

Each LIBRARY is a copy of libweft.so.1 of its own. What --global names is loaded first, with its symbols
visible to everything after it, as a host program does; --beside works with another framework before,
between and after. Prints "ok" or fails with what differed.
"""
import ctypes
import math
import sys

F32 = 0x12002
INVALID_ARGUMENT = 3


class Weft:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
        for name in ("weft_context_create", "weft_tensor_from_host", "weft_add", "weft_softmax", "weft_grad",
                     "weft_tensor_require_grad", "weft_tensor_to_host"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.lib.weft_error_message.restype = ctypes.c_char_p
        self.lib.weft_error_message.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.lib.weft_error_code.argtypes = [ctypes.c_void_p]
        self.lib.weft_error_release.argtypes = [ctypes.c_void_p]
        self.context = self.out("weft_context_create", None)

    def error(self, name, *args):
        """Calls; None, or (code, message)."""
        error = getattr(self.lib, name)(*args)
        if not error:
            return None
        found = (self.lib.weft_error_code(error), self.lib.weft_error_message(error, None).decode())
        self.lib.weft_error_release(error)
        return found

    def call(self, name, *args):
        error = self.error(name, *args)
        if error:
            raise AssertionError(f"{name}: {error}")

    def out(self, name, *args):
        handle = ctypes.c_void_p()
        self.call(name, *args, ctypes.byref(handle))
        return handle

    def tensor(self, values):
        data = (ctypes.c_float * len(values))(*values)
        dims = (ctypes.c_int64 * 1)(len(values))
        return self.out("weft_tensor_from_host", self.context, None, F32, dims, ctypes.c_size_t(1), data,
                        ctypes.c_size_t(ctypes.sizeof(data)))

    def read(self, tensor, count):
        data = (ctypes.c_float * count)()
        self.call("weft_tensor_to_host", tensor, data, ctypes.c_size_t(ctypes.sizeof(data)))
        return list(data)

    def work(self, shift):
        a, b, seed = [0.5, -1.0, 2.0, shift], [1.0, 1.0, -1.0, 0.25], [1.0, 0.0, 2.0, -1.0]
        x, y = self.tensor(a), self.tensor(b)
        self.call("weft_tensor_require_grad", x, 1)
        total = self.out("weft_add", self.context, x, y)
        result = self.out("weft_softmax", self.context, total, None)
        inputs, grads = (ctypes.c_void_p * 1)(x), (ctypes.c_void_p * 1)()
        self.call("weft_grad", self.context, result, self.tensor(seed), inputs, ctypes.c_size_t(1), grads)
        exponentials = [math.exp(p + q) for p, q in zip(a, b)]
        want = [e / sum(exponentials) for e in exponentials]
        inner = sum(s * w for s, w in zip(seed, want))
        want_grad = [w * (s - inner) for s, w in zip(seed, want)]
        close(self.read(result, 4), want, "softmax(a + b)")
        close(self.read(ctypes.c_void_p(grads[0]), 4), want_grad, "its gradient")
        return x


def close(have, want, what):
    if any(not abs(h - w) <= 1e-5 for h, w in zip(have, want)):
        raise AssertionError(f"{what}: have {have}, want {want}")


def beside(name):
    """A function that makes the other framework compile and run something."""
    if name == "jax":
        import jax
        import jax.numpy as jnp
        step = jax.jit(jax.grad(lambda x: jnp.sum(jnp.tanh(x @ x))))
        return lambda n: step(jnp.ones((n, n))).block_until_ready()
    if name == "torch":
        import torch

        def step(n):
            x = torch.ones(n, n, requires_grad=True)
            torch.tanh(x @ x).sum().backward()
            assert x.grad.shape == (n, n)
        return step
    return lambda n: None


def main(args):
    libraries, other = [], "none"
    while args:
        arg = args.pop(0)
        if arg == "--global":
            ctypes.CDLL(args.pop(0), mode=ctypes.RTLD_GLOBAL)
        elif arg == "--beside":
            other = args.pop(0)
        else:
            libraries.append(arg)
    step = beside(other)
    step(3)
    copies = [Weft(path) for path in libraries]
    for round_number in range(3):
        for copy in copies:
            handle = copy.work(float(round_number))
        step(4 + round_number)
    if len(copies) == 2:
        code, message = copies[0].error("weft_tensor_require_grad", handle, 1)
        assert code == INVALID_ARGUMENT, f"a handle of the other copy gave {code}: {message}"
    print("ok")


if __name__ == "__main__":
    main(sys.argv[1:])
