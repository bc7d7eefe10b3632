"""PyTorch's values and gradients of the functions in complex_cases.py, for complex_test.py: no registry has a small PyTorch.

    python tests/ops/make_complex_fixture.py tests/ops/complex_fixture.npz

with a Python that has PyTorch."""
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from complex_cases import CASES  # noqa: E402


def names():
    t = torch
    m = {name: getattr(t, name) for name in
         ("add", "sub", "mul", "div", "pow", "neg", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "sigmoid",
          "square", "abs", "real", "complex", "matmul", "cumsum", "cumprod", "broadcast_to", "reshape", "tile", "tril", "diff", "stack")}
    m.update(
        sign=t.sgn, imag=t.imag, conj=lambda z: t.conj(z).resolve_conj(), to_real=t.real,
        to_complex=lambda x: t.complex(x, t.zeros_like(x)), abs_as_complex=lambda z: t.complex(t.abs(z), t.zeros_like(t.abs(z))),
        where=lambda mask, a, b: t.where(t.tensor(mask), a, b), transpose=t.permute, reverse=t.flip, concatenate=t.cat,
        slice=lambda z, low, high, step: z[tuple(slice(*s) for s in zip(low, high, step))],
        pad=lambda z, low, high: t.nn.functional.pad(z, [n for pair in reversed(list(zip(low, high))) for n in pair]),
        roll=lambda z, by, axis: t.roll(z, by, axis), take=lambda z, at, axis: t.index_select(z, axis, t.tensor(at)),
        put=lambda z, at, u: t.index_copy(z, 0, t.tensor(at), u), put_add=lambda z, at, u: t.index_add(z, 0, t.tensor(at), u),
        dynamic_slice=lambda z, at, size: z[tuple(slice(a, a + s) for a, s in zip(at, size))],
        dynamic_update_slice=updated,
        sum=lambda z, axes: t.sum(z, axes) if axes else z, mean=lambda z, axes: t.mean(z, axes) if axes else z, prod=product,
        window_sum=lambda z, size, stride: z.unfold(0, size, stride).sum(1),
        convolution=lambda x, w, stride, pad: t.nn.functional.conv1d(x, w, stride=stride, padding=pad))
    for name in ("fft", "ifft", "rfft", "irfft"):
        m[name] = lambda z, lengths, f=getattr(t.fft, name + "n"): f(z, s=lengths, dim=list(range(-len(lengths), 0)))
    return type("Torch", (), {name: staticmethod(f) for name, f in m.items()})


def updated(z, u, at):
    z = z.clone()
    z[tuple(slice(a, a + n) for a, n in zip(at, u.shape))] = u
    return z


def product(z, axes):
    for axis in sorted(axes, reverse=True):
        z = torch.prod(z, axis)
    return z


def main():
    m, kept = names(), {}
    for case in CASES:
        for bits in (64, 128):
            arrays, draw = case.arrays(bits)
            inputs = [torch.tensor(array, requires_grad=True) for array in arrays]
            y = case.function(m, *inputs)
            cotangent = draw(y.detach().resolve_conj().numpy().dtype.str[1:], tuple(y.shape))
            slopes = torch.autograd.grad(y, inputs, torch.tensor(cotangent))
            key = f"{case.name}/{bits}"
            kept[key] = y.detach().resolve_conj().numpy()
            kept.update({f"{key}/{i}": slope.resolve_conj().numpy() for i, slope in enumerate(slopes)})
    np.savez_compressed(sys.argv[1], **kept)
    print(f"{len(CASES)} functions of PyTorch {torch.__version__}")


main()
