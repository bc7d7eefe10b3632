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


@maps("view_as_real", "view_as_complex")
def viewed(t, s):
    if s.input.dtype == torch.float16:
        raise Refused("dtype")
    x = t(s.input)
    if s.name == "view_as_real":
        parts = [t.op("expand_dims", t.op(part, x), dims=[s.input.ndim]) for part in ("real", "imag")]
        return t.op("concatenate", parts, dimension=s.input.ndim)
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


@maps("stft", sums=True)
def stft(t, s):
    """Windows one beside the other, centred where asked for, and each one's spectrum."""
    given = {name: argument(s, i, name, d) for i, (name, d) in enumerate((("n_fft", None), ("hop_length", None), ("win_length", None), ("window", None)))}
    size = given["n_fft"]
    hop, width = given["hop_length"] or size // 4, given["win_length"] or size
    x, rank, dtype = t(s.input), s.input.ndim, s.input.dtype
    if s.kwargs.get("center", True):
        mode = s.kwargs.get("pad_mode", "reflect")
        low = [0] * (rank - 1) + [size // 2]
        x = t.op("pad_" + mode, x, low=low, high=low) if mode != "constant" else t.op(
            "pad", x, t(0, dtype), edge_padding_low=low, edge_padding_high=low, interior_padding=[0] * rank)
    x = t.op("unfold", x, axis=rank - 1, size=size, step=hop)
    window = torch.ones(width, dtype=dtype) if given["window"] is None else given["window"]
    left = (size - width) // 2
    w = t(window) if given["window"] is not None else t.constant(window.numpy())
    if width != size:
        w = t.op("pad", w, t(0, window.dtype), edge_padding_low=[left], edge_padding_high=[size - width - left], interior_padding=[0])
    half = s.kwargs.get("onesided", not (s.input.is_complex() or window.is_complex()))
    dtype = torch.promote_types(dtype, window.dtype)
    complex_type = dtype if dtype.is_complex else COMPLEX[dtype]
    x = t.op("mul", t.convert(x, dtype), t.convert(w, dtype))
    x = t.op("fft", x if half else t.convert(x, complex_type), fft_type="RFFT" if half else "FFT", fft_length=[size])
    x.dtype = NAMES[complex_type]
    if s.kwargs.get("normalized"):
        x = t.op("mul", x, t(size ** -0.5, complex_type))
    x = t.op("transpose", x, permutation=[*range(rank - 1), rank, rank - 1])
    if s.kwargs.get("return_complex", True):
        return x
    return t.op("concatenate", [t.op("expand_dims", t.op(part, x), dims=[rank + 1]) for part in ("real", "imag")], dimension=rank + 1)


@maps("istft", sums=True)
def istft(t, s):
    """Spectra back as windows, added up where they stand, over the sum of the windows' squares there."""
    given = {name: argument(s, i, name, d) for i, (name, d) in enumerate((("n_fft", None), ("hop_length", None), ("win_length", None), ("window", None)))}
    size, x, result = given["n_fft"], s.input, s.result.dtype
    hop, width, (bins, frames) = given["hop_length"] or size // 4, given["win_length"] or size, x.shape[-2:]
    window = torch.ones(width, dtype=x.real.dtype) if given["window"] is None else given["window"].detach()
    half = not s.kwargs.get("return_complex", False)  # PyTorch takes one of both sides
    left = (size - width) // 2
    window = torch.nn.functional.pad(window, (left, size - width - left)).to(result)
    batches = x.numel() // max(1, bins * frames)
    rows = t.op("transpose", t.op("reshape", t(x), shape=[batches, bins, frames]), permutation=[0, 2, 1])
    rows = t.op("slice_in_dim", rows, axis=2, start=0, limit=size // 2 + 1) if half else rows
    y = t.op("fft", rows, fft_type="IRFFT" if half else "IFFT", fft_length=[size])
    y.dtype = NAMES[x.real.dtype] if half else y.dtype
    y = t.convert(y, result)
    if s.kwargs.get("normalized"):
        y = t.op("mul", y, t(size ** 0.5, result))
    length = size + hop * (frames - 1)
    added = lambda rows: t.op("reshape", t.op("col2im", rows, size=[length], window=[size], strides=[hop]), shape=[batches, length])
    weights = added(t((window ** 2).expand(batches, frames, size).contiguous()))
    start = size // 2 if s.kwargs.get("center", True) else 0
    count = s.result.shape[-1]
    cut = lambda v: t.op("slice_in_dim", v, axis=1, start=start, limit=min(start + count, length))
    y = t.op("div", cut(added(t.op("mul", y, t(window)))), cut(weights))
    short = count - (min(start + count, length) - start)
    if short:
        y = t.op("pad", y, t(0, result), edge_padding_low=[0, 0], edge_padding_high=[0, short], interior_padding=[0, 0])
    return t.op("reshape", y, shape=list(s.result.shape))
