"""mapping.py's entries for discrete Fourier transforms and what is made of the parts of complex numbers. See there."""
import math

import torch

from mapping import NAMES, Refused, argument, maps

COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


def moved_last(t, x, rank, dims, back=False):
    order = [d for d in range(rank) if d not in dims] + list(dims)
    if order == list(range(rank)):
        return x
    return t.op("transpose", x, permutation=[order.index(d) for d in range(rank)] if back else order)


def resized(t, x, dtype, shape, sizes):
    """Cut off or filled with zeros to `sizes` of the last dimensions."""
    lead = len(shape) - len(sizes)
    limit = [*shape[:lead], *[min(a, b) for a, b in zip(shape[lead:], sizes)]]
    if limit != shape:
        x = t.op("slice", x, start_indices=[0] * len(shape), limit_indices=limit, strides=[1] * len(shape))
    high = [0] * lead + [b - a for a, b in zip(limit[lead:], sizes)]
    if any(high):
        x = t.op("pad", x, t(0, dtype), edge_padding_low=[0] * len(shape), edge_padding_high=high, interior_padding=[0] * len(shape))
    return x


def transform(t, x, dtype, kind, sizes, norm):
    """One of PyTorch's kinds over the last dimensions; hfft and ihfft are the others of conjugates."""
    inverse = kind.startswith("i")
    core = kind.lstrip("i").rstrip("2n")
    if core == "hfft":
        x = t.op("conj", x) if not inverse else x
        own = "RFFT" if inverse else "IRFFT"
    else:
        own = {"fft": "IFFT" if inverse else "FFT", "rfft": "IRFFT" if inverse else "RFFT"}[core]
    if len(sizes) > 3:
        raise Refused("four dimensions")
    if core == "hfft" and inverse:
        x = t.op("conj", t.op("fft", x, fft_type=own, fft_length=sizes))
    else:
        x = t.op("fft", x, fft_type=own, fft_length=sizes)
    count = math.prod(sizes)
    ours = 1 / count if own in ("IFFT", "IRFFT") else 1.0
    theirs = {"ortho": count ** -0.5, "forward": 1.0 if inverse else 1 / count}.get(norm, 1 / count if inverse else 1.0) if count else 1.0
    if count and theirs != ours:
        x = t.op("mul", x, t(theirs / ours, dtype))
    return x


KINDS = [inverse + core + dims for inverse in ("", "i") for core in ("fft", "rfft", "hfft") for dims in ("", "2", "n")]


@maps(*["fft." + kind for kind in KINDS], sums=True)
def fft(t, s):
    kind, x = s.name.split(".")[1], s.input
    real_result, real_operand = "irfft" in kind or kind.startswith("hfft"), kind.startswith("rfft") or "ihfft" in kind
    dtype = x.dtype if x.dtype.is_floating_point or x.is_complex() else torch.float32
    if dtype in (torch.float16, torch.bfloat16):
        raise Refused("dtype")
    dtype = dtype if real_operand or dtype.is_complex else COMPLEX[dtype]
    if kind[-1] in "2n":
        sizes, dims = argument(s, 0, "s"), argument(s, 1, "dim", (-2, -1) if kind[-1] == "2" else None)
        dims = list(range(x.ndim - (len(sizes) if sizes is not None else x.ndim), x.ndim)) if dims is None else dims
        dims = [dims] if isinstance(dims, int) else list(dims)
        sizes = None if sizes is None else [sizes] if isinstance(sizes, int) else list(sizes)
    else:
        sizes, dims = argument(s, 0, "n"), [argument(s, 1, "dim", -1)]
        sizes = None if sizes is None else [sizes]
    dims = [int(d) % x.ndim for d in dims]
    if not dims:
        return t(x, dtype)
    sizes = [x.shape[d] if sizes is None or sizes[i] == -1 else int(sizes[i]) for i, d in enumerate(dims)]
    asked = argument(s, 0, "s" if kind[-1] in "2n" else "n")
    if real_result and (asked is None or asked == -1 or isinstance(asked, (list, tuple)) and asked[-1] == -1):
        sizes[-1] = 2 * (x.shape[dims[-1]] - 1)
    shape = [x.shape[d] for d in range(x.ndim) if d not in dims] + [x.shape[d] for d in dims]
    taken = [*sizes[:-1], sizes[-1] // 2 + 1] if real_result else sizes
    y = resized(t, moved_last(t, t(x, dtype), x.ndim, dims), dtype, shape, taken)
    result = s.result.dtype
    y = transform(t, y, result, kind, sizes, argument(s, 2, "norm"))
    y.dtype = NAMES[result]
    return moved_last(t, y, x.ndim, dims, back=True)


@maps("fft.fftshift", "fft.ifftshift")
def shifted(t, s):
    dims = argument(s, 0, "dim")
    dims = range(s.input.ndim) if dims is None else [dims] if isinstance(dims, int) else dims
    dims = [d % s.input.ndim for d in dims]
    halves = [s.input.shape[d] // 2 if s.name == "fft.fftshift" else (s.input.shape[d] + 1) // 2 for d in dims]
    return t.op("roll", t(s.input), shifts=halves, dims=dims)


def as_real(t, x, rank):
    return t.op("concatenate", [t.op("expand_dims", t.op(part, x), dims=[rank]) for part in ("real", "imag")], dimension=rank)


@maps("view_as_real", "view_as_complex")
def viewed(t, s):
    if s.input.dtype == torch.float16:
        raise Refused("dtype")
    x = t(s.input)
    if s.name == "view_as_real":
        return as_real(t, x, s.input.ndim)
    last = s.input.ndim - 1
    parts = [t.op("squeeze", t.op("slice_in_dim", x, axis=last, start=i, limit=i + 1), dims=[last]) for i in range(2)]
    return t.op("complex", *parts)


@maps("complex", "polar")
def composed(t, s):
    if s.input.dtype == torch.float16:
        raise Refused("dtype")
    shape = list(s.result.shape)
    return t.op(s.name, *[t.op("broadcast_to", t(x), shape=shape) for x in (s.input, s.args[0])])


@maps("nn.functional.silu/complex")
def silu(t, s):
    x = t(s.input)
    return t.op("mul", x, t.op("sigmoid", x))


SPECTRA = ("n_fft", "hop_length", "win_length", "window")


def given(t, s, dtype):
    """size and hop, and the window in a type: where there is none of a width, ones."""
    size, hop, width, window = (argument(s, i, name) for i, name in enumerate(SPECTRA))
    if window is None and width not in (None, size):
        window = torch.ones(width, dtype=dtype)
    return {"size": size, "hop": hop or None, "normalized": bool(s.kwargs.get("normalized")), "center": s.kwargs.get("center", True)}, None if window is None else t(window, dtype)


@maps("stft", sums=True)
def stft(t, s):
    window, own = argument(s, 3, "window"), s.input.dtype
    dtype = own if window is None else torch.promote_types(own, window.dtype)
    how, window = given(t, s, dtype)
    x = t.op("stft", t(s.input, dtype), window, onesided=s.kwargs.get("onesided", not dtype.is_complex), pad=s.kwargs.get("pad_mode", "reflect"), **how)
    x.dtype = NAMES[dtype if dtype.is_complex else COMPLEX[dtype]]
    return x if s.kwargs.get("return_complex", True) else as_real(t, x, s.input.ndim + 1)


@maps("istft", sums=True)
def istft(t, s):
    real, size = not s.kwargs.get("return_complex", False), argument(s, 0, "n_fft")
    how, window = given(t, s, s.result.dtype)
    x = t.op("slice_in_dim", t(s.input), axis=s.input.ndim - 2, start=0, limit=size // 2 + 1) if real else t(s.input)  # PyTorch takes one of both sides
    y = t.op("istft", x, window, onesided=real, length=s.result.shape[-1], **how)
    y.dtype = NAMES[s.result.dtype]
    return y
