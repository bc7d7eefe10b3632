"""Discrete Fourier transforms by the names of numpy.fft and of the array API standard's extension.

Real and whole numbers become complex where a transform is of complex ones: those of 8 bytes c128, others c64. `norm` says where the
factor 1/n stands: "backward" at the inverse, "forward" at the transform, and "ortho" its root at both.
"""

import math as _math

from . import _ops
from ._errors import InvalidArgument as _Invalid, named_functions as _named_functions
from ._more import arange as _arange, as_tensor as _as, axis_of as _axis_of, moveaxis as _moveaxis

__all__ = (
    "fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift"
).split()
_OTHER = {"backward": "forward", "forward": "backward", "ortho": "ortho", None: "forward"}


def fft(x, /, n=None, axis=-1, norm="backward"):
    """The transform along an axis, of n elements: zeros are added, or what is beyond is left out."""
    return fftn(x, s=None if n is None else (n,), axes=(axis,), norm=norm)


def ifft(x, /, n=None, axis=-1, norm="backward"):
    """The inverse of fft."""
    return ifftn(x, s=None if n is None else (n,), axes=(axis,), norm=norm)


def fftn(x, /, s=None, axes=None, norm="backward"):
    """The transform along several axes, by default all or the last of which s has sizes."""
    x = _complex(x)
    return _along(x, "FFT", *_sizes(x, s, axes), norm)


def ifftn(x, /, s=None, axes=None, norm="backward"):
    """The inverse of fftn."""
    x = _complex(x)
    return _along(x, "IFFT", *_sizes(x, s, axes), norm)


def rfft(x, /, n=None, axis=-1, norm="backward"):
    """The first n // 2 + 1 elements of the transform of real numbers along an axis; the others are their conjugates."""
    return rfftn(x, s=None if n is None else (n,), axes=(axis,), norm=norm)


def irfft(x, /, n=None, axis=-1, norm="backward"):
    """The inverse of rfft: n real numbers, by default 2 (m - 1) of m elements."""
    return irfftn(x, s=None if n is None else (n,), axes=(axis,), norm=norm)


def rfftn(x, /, s=None, axes=None, norm="backward"):
    """rfft along the last of the axes, then fftn along the others."""
    x = _as(x)
    x = x if x.dtype.name in ("f32", "f64") else x.astype("f32")
    s, axes = _sizes(x, s, axes)
    x = _along(x, "RFFT", s[-1:], axes[-1:], norm)
    return _along(x, "FFT", s[:-1], axes[:-1], norm)


def irfftn(x, /, s=None, axes=None, norm="backward"):
    """The inverse of rfftn."""
    x = _complex(x)
    whole = s is not None
    s, axes = _sizes(x, s, axes)
    last = s[-1] if whole else 2 * (s[-1] - 1)
    x = _along(x, "IFFT", s[:-1], axes[:-1], norm)
    return _along(_resized(x, last // 2 + 1, axes[-1]), "IRFFT", [last], axes[-1:], norm)


def fft2(x, /, s=None, axes=(-2, -1), norm="backward"):
    """fftn along two axes."""
    return fftn(x, s, axes, norm)


def ifft2(x, /, s=None, axes=(-2, -1), norm="backward"):
    """ifftn along two axes."""
    return ifftn(x, s, axes, norm)


def rfft2(x, /, s=None, axes=(-2, -1), norm="backward"):
    """rfftn along two axes."""
    return rfftn(x, s, axes, norm)


def irfft2(x, /, s=None, axes=(-2, -1), norm="backward"):
    """irfftn along two axes."""
    return irfftn(x, s, axes, norm)


def hfft(x, /, n=None, axis=-1, norm="backward"):
    """The transform of a signal with conjugate symmetry, of which the first half is given: n real numbers."""
    return irfft(_ops.conj(_complex(x)), n, axis, _other(norm))


def ihfft(x, /, n=None, axis=-1, norm="backward"):
    """The inverse of hfft."""
    return _ops.conj(rfft(x, n, axis, _other(norm)))


def fftfreq(n, /, *, d=1.0, dtype=None, device=None):
    """The frequencies of fft's n elements, in cycles per unit of the spacing d: 0, 1, …, -2, -1, over n d."""
    k = _arange(_count(n), device=device)
    return (_ops.where(k < (n + 1) // 2, k, k - n).astype(dtype or "f32")) / (n * float(d))


def rfftfreq(n, /, *, d=1.0, dtype=None, device=None):
    """The frequencies of rfft's n // 2 + 1 elements."""
    return _arange(_count(n) // 2 + 1, device=device).astype(dtype or "f32") / (n * float(d))


def fftshift(x, /, axes=None):
    """The elements moved so that frequency 0 is in the middle."""
    return _shifted(x, axes, lambda size: size // 2)


def ifftshift(x, /, axes=None):
    """The inverse of fftshift."""
    return _shifted(x, axes, lambda size: -(size // 2))


def _shifted(x, axes, places):
    x = _as(x)
    axes = range(x.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    axes = [_axis_of(x, axis, "fftshift", "axes") for axis in axes]
    return _ops.roll(x, [places(x.shape[axis]) for axis in axes], axes) if axes else x


def _complex(x):
    x = _as(x)
    return x if x.dtype.is_complex else x.astype("c128" if x.dtype.itemsize == 8 else "c64")


def _count(n):
    if n < 1:
        raise _Invalid("n is %d; it must be at least 1" % n)
    return n


def _other(norm):
    if norm not in _OTHER:
        raise _Invalid("norm is %r; 'backward', 'ortho' and 'forward' are known" % (norm,))
    return _OTHER[norm]


def _sizes(x, s, axes):
    """The sizes of a transform and its axes, counted from the beginning."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    axes = [_axis_of(x, axis, "fft", "axes") for axis in axes]
    s = [-1] * len(axes) if s is None else list(s)
    if not axes or len(s) != len(axes) or len(set(axes)) != len(axes):
        raise _Invalid("sizes %s and axes %s: a transform needs an axis at least, each once, and as many sizes" % (s, axes))
    s = [x.shape[axis] if n == -1 else n for n, axis in zip(s, axes)]
    return [_count(n) for n in s], axes


def _resized(x, size, axis):
    """x with so many elements along an axis: cut, or followed by zeros."""
    if x.shape[axis] >= size:
        return x if x.shape[axis] == size else _ops.slice_in_dim(x, axis, 0, size)
    high = [size - n if i == axis else 0 for i, n in enumerate(x.shape)]
    return _ops.pad(x, 0, [0] * x.ndim, high, [0] * x.ndim)


def _along(x, kind, sizes, axes, norm):
    """A transform along axes, three of them at a time."""
    _other(norm)
    for i in range(0, len(axes), 3):
        some, lengths = axes[i : i + 3], sizes[i : i + 3]
        if kind != "IRFFT":
            for axis, size in zip(some, lengths):
                x = _resized(x, size, axis)
        last = range(-len(some), 0)
        x = _moveaxis(_ops.fft(_moveaxis(x, some, last), kind, lengths), last, some)
    n = _math.prod(sizes)
    inverse = kind in ("IFFT", "IRFFT")
    factor = {"ortho": n**0.5 if inverse else n**-0.5, "forward": n if inverse else 1 / n}.get(norm, 1)
    return x if factor == 1 else x * factor


_named_functions(globals(), __all__)
