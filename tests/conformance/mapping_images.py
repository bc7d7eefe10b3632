"""mapping.py's entries for what networks do with images: adaptive pools, padding, resizing, sampling, features and places, norms."""
import torch

from mapping import Refused, argument, maps
from mapping_networks import channels_first, channels_last, many


def image(t, x, n):
    """[N, C, spatial…] channels last, and whether it has a batch."""
    batched = x.ndim == n + 2
    return channels_last(t, t(x), n, batched), batched


def of_i32(value):
    value.dtype = "i32"
    return value


# --- pools -----------------------------------------------------------------------------------------------------------

@maps(*[f"nn.functional.adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3)], sums=True)
def adaptive(t, s):
    n, average = int(s.name[-2]), "avg" in s.name
    x, batched = image(t, s.input, n)
    size = argument(s, 0, "output_size")
    size = [size] * n if isinstance(size, int) else list(size) * (n if len(size) == 1 else 1)
    size = [given if given is not None else own for given, own in zip(size, s.input.shape[-n:])]
    if average:
        return channels_first(t, t.op("adaptive_avg_pool", x, size=size), n, batched)
    values, places = t.op("adaptive_max_pool", x, size=size)
    values = channels_first(t, values, n, batched)
    return [values, channels_first(t, of_i32(places), n, batched)] if s.kwargs.get("return_indices") or len(s.args) > 1 and s.args[1] else values


@maps("nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d")
def fractional(t, s):
    """PyTorch's numbers from 0 to 1 are given to both; of images its first one is across."""
    n, x = int(s.name[-2]), s.input
    drawn = torch.rand(*x.shape[:2], n, generator=torch.Generator().manual_seed(1)).to(x.dtype).clamp(max=0.99)
    s.kwargs["_random_samples"] = drawn
    size, own = s.kwargs.get("output_size"), drawn.flip(-1) if n == 2 else drawn
    size = many(size, n) if size is not None else [int(r * v) for r, v in zip(s.kwargs["output_ratio"], x.shape[2:])]
    found = t.op("fractional_max_pool", t(x), t(own), window=many(s.args[0], n), size=size, channels_first=True)
    return [found[0], of_i32(found[1])] if s.kwargs.get("return_indices") else found[0]


@maps(*[f"nn.functional.max_unpool{n}d{grad}" for n in (1, 2, 3) for grad in ("", "/grad")])
def unpool(t, s):
    n = int(s.name[-2])
    t.no_gradient = s.variant != "grad"  # two elements for one place: the one that stays has our slope, with PyTorch both
    x, batched = image(t, s.input, n)
    places = channels_last(t, t(s.args[0]), n, batched)
    return channels_first(t, t.op("max_unpool", x, places, size=list(s.result.shape[-n:])), n, batched)


@maps("nn.functional.unfold", sums=True)
def unfold(t, s):
    x, batched = image(t, s.input, 2)
    window, dilation, padding, stride = (many(argument(s, i, name, d), 2) for i, (name, d) in enumerate(
        (("kernel_size", None), ("dilation", 1), ("padding", 0), ("stride", 1))))
    y = t.op("im2col", x, window=window, dilation=dilation, strides=stride, pads=[p for p in padding for _ in range(2)])
    y = t.op("transpose", y, permutation=[0, 2, 1])
    return y if batched else t.op("squeeze", y, dims=[0])


# --- padding and sizes -----------------------------------------------------------------------------------------------

@maps("nn.functional.pad/reflect", "nn.functional.pad/replicate", "nn.functional.pad/replicate_negative", "nn.functional.pad/circular")
def pad(t, s):
    pads, rank = list(argument(s, 0, "pad")), s.input.ndim
    low, high = [0] * rank, [0] * rank
    for i in range(len(pads) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = pads[2 * i], pads[2 * i + 1]
    return t.op("pad_" + s.variant.split("_")[0], t(s.input), low=low, high=high)


@maps(*["nn.functional.interpolate/" + mode for mode in ("nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area")],
      "nn.functional.upsample_nearest", "nn.functional.upsample_bilinear", sums=True)
def resize(t, s):
    n = s.input.ndim - 2
    mode = s.variant or s.name.rsplit("_", 1)[1]
    if s.input.dtype == torch.uint8 and mode == "bicubic" and bool((s.input > 127).any()):
        raise Refused("fixed point")
    x, batched = image(t, s.input, n)
    x = t.convert(x, torch.float32) if s.input.dtype == torch.uint8 else x
    own = {"nearest": "nearest", "nearest-exact": "nearest_exact", "bicubic": "cubic", "area": "area"}.get(mode, "linear")
    scale, align = argument(s, 1, "scale_factor"), bool(s.kwargs.get("align_corners", s.name.endswith("upsample_bilinear")))
    scales = None if scale is None or s.kwargs.get("recompute_scale_factor") or own == "area" else [float(v) for v in (scale if isinstance(scale, (list, tuple)) else [scale] * n)]
    y = t.op("resize", x, size=list(s.result.shape[2:]), mode=own, align_corners=align, scales=scales, antialias=bool(s.kwargs.get("antialias")))
    return channels_first(t, as_bytes(t, y, s), n, batched)


def as_bytes(t, y, s):
    """Pixels that are bytes, resized as f32, are rounded and held. PyTorch's are fixed-point numbers, rounded after each axis: one off."""
    if s.input.dtype != torch.uint8:
        return y
    t.off = float("nearest" not in s.variant)
    return t.convert(t.op("clip", t.op("round", y), low=0.0, high=255.0), torch.uint8)


@maps("nn.functional.grid_sample", "grid_sampler_2d", "grid_sampler_3d", sums=True)
def grid_sample(t, s):
    modes, outsides = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    mode, outside, align = argument(s, 1, "mode", "bilinear"), argument(s, 2, "padding_mode", "zeros"), bool(argument(s, 3, "align_corners", False))
    mode, outside = modes[mode] if isinstance(mode, int) else mode, outsides[outside] if isinstance(outside, int) else outside
    n = s.input.ndim - 2
    x, _ = image(t, s.input, n)
    own = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}[mode]
    return channels_first(t, t.op("grid_sample", x, t(s.args[0]), mode=own, outside=outside, align_corners=align), n, True)


@maps("_upsample_bilinear2d_aa", sums=True)
def smooth(t, s):
    x, _ = image(t, s.input, 2)
    x = t.convert(x, torch.float32) if s.input.dtype == torch.uint8 else x
    given = [s.kwargs.get(name) for name in ("scales_h", "scales_w")]
    scales = [float(v) for v in given] if None not in given else None
    y = t.op("resize", x, size=list(s.result.shape[2:]), mode="linear", align_corners=bool(s.kwargs.get("align_corners")), antialias=True, scales=scales)
    return channels_first(t, as_bytes(t, y, s), 2, True)


@maps("nn.functional.pixel_shuffle", "nn.functional.pixel_unshuffle", "nn.functional.channel_shuffle")
def shuffle(t, s):
    name, lead = s.name.rsplit(".", 1)[1], list(s.input.shape[:-3])
    if name == "channel_shuffle":
        x = t.op("transpose", t(s.input), permutation=[0, *range(2, s.input.ndim), 1])
        y = t.op("channel_shuffle", x, groups=argument(s, 0, "groups"))
        return t.op("transpose", y, permutation=[0, s.input.ndim - 1, *range(1, s.input.ndim - 1)])
    count = 1
    for size in lead:
        count *= size
    x = t.op("reshape", t(s.input), shape=[count, *s.input.shape[-3:]])
    y = t.op(name, t.op("transpose", x, permutation=[0, 2, 3, 1]), factor=next(v for v in (*s.args, *s.kwargs.values())))
    return t.op("reshape", t.op("transpose", y, permutation=[0, 3, 1, 2]), shape=list(s.result.shape))


# --- norms -----------------------------------------------------------------------------------------------------------

@maps("nn.functional.group_norm", sums=True)
def group_norm(t, s):
    scale, offset = argument(s, 1, "weight"), argument(s, 2, "bias")
    eps = float(argument(s, 3, "eps", 1e-5))
    return t.op("group_norm", t(s.input), t(scale) if scale is not None else None, t(offset) if offset is not None else None, axis=1,
                groups=argument(s, 0, "num_groups"), epsilon=eps)


@maps("nn.functional.instance_norm", sums=True)
def instance_norm(t, s):
    scale, offset = s.kwargs.get("weight"), s.kwargs.get("bias")
    eps = float(s.kwargs.get("eps", 1e-5))
    if not s.kwargs.get("use_input_stats", True):
        raise Refused("running statistics")
    return t.op("instance_norm", t(s.input), t(scale) if scale is not None else None, t(offset) if offset is not None else None, axis=1, epsilon=eps)


@maps("nn.functional.local_response_norm", sums=True)
def local_response_norm(t, s):
    given = {name: float(argument(s, i + 1, name, d)) for i, (name, d) in enumerate((("alpha", 1e-4), ("beta", 0.75), ("k", 1.0)))}
    if not s.input.is_floating_point():
        raise Refused("fixed point")
    return t.op("local_response_norm", t(s.input), size=argument(s, 0, "size"), axis=1, **given)


@maps("torch.ops.aten._safe_softmax.default", sums=True)
def safe_softmax(t, s):
    x = t(s.input, argument(s, 1, "dtype"))
    return t.op("softmax", x, axis=int(argument(s, 0, "dim")) % max(1, s.input.ndim), safe=True)
