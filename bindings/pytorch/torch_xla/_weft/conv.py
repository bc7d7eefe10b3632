"""Convolution and pooling of channels-first tensors, with their gradients."""
import torch

from . import runtime
from .factory import converted
from .nn import gradient, like
from .runtime import C, I64
from .table import lower

op = C.op


def _spread(values, n):
    values = list(values)
    return values * n if len(values) == 1 and n > 1 else values


def _layout(n, transposed):
    """Dimension numbers of channels-first data with n spatial dimensions."""
    space = tuple(range(2, 2 + n))
    kernel = (0, 1) if transposed else (1, 0)
    return {"input_dimensions": (0, 1) + space, "kernel_dimensions": kernel + space, "output_dimensions": (0, 1) + space}


def _attributes(x_shape, w_shape, stride, padding, dilation, transposed, output_padding, groups):
    n = len(x_shape) - 2
    stride, padding, dilation = _spread(stride, n), _spread(padding, n), _spread(dilation, n)
    output_padding = _spread(output_padding, n)
    if not transposed:
        pads = [p for p in padding for _ in (0, 1)]
        return dict(window_strides=tuple(stride), padding=tuple(pads), lhs_dilation=(1,) * n, rhs_dilation=tuple(dilation),
                    feature_group_count=groups, **_layout(n, False))
    pads = []
    for i in range(n):
        reach = dilation[i] * (w_shape[2 + i] - 1)
        pads += [reach - padding[i], reach - padding[i] + output_padding[i]]
    return dict(window_strides=(1,) * n, padding=tuple(pads), lhs_dilation=tuple(stride), rhs_dilation=tuple(dilation),
                feature_group_count=groups, window_reversal=(1,) * n, **_layout(n, True))


def _grouped(w, groups):
    """A transposed convolution's kernel [in, out / groups, …] as [in / groups, out, …], which `convolution` takes."""
    if groups == 1:
        return w
    inputs, outputs, *space = w.shape
    parts = op("reshape", w, shape=(groups, inputs // groups, outputs, *space))
    moved = op("transpose", parts, permutation=(1, 0, 2, *range(3, 3 + len(space))))
    return op("reshape", moved, shape=(inputs // groups, groups * outputs, *space))


def _ungrouped(w, groups):
    if groups == 1:
        return w
    inputs, outputs, *space = w.shape
    parts = op("reshape", w, shape=(inputs, groups, outputs // groups, *space))
    moved = op("transpose", parts, permutation=(1, 0, 2, *range(3, 3 + len(space))))
    return op("reshape", moved, shape=(groups * inputs, outputs // groups, *space))


@lower("convolution", "convolution_overrideable")
def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):  # noqa: A002
    x, w = C.read(input), C.read(weight)
    if x.ndim != w.ndim or x.ndim < 3:
        raise RuntimeError(f"Expected a batch and {w.ndim - 2} spatial dimensions, but got input of size {list(input.shape)}")
    if x.shape[1] != (w.shape[0] if transposed else w.shape[1] * groups):
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(w.shape)}, expected input{list(x.shape)} to have "
            f"{w.shape[0] if transposed else w.shape[1] * groups} channels, but got {x.shape[1]} channels instead")
    attributes = _attributes(x.shape, w.shape, stride, padding, dilation, transposed, output_padding, groups)
    out = op("convolution", x, _grouped(w, groups) if transposed else w, **attributes)
    if bias is not None:
        b = C.read(bias)
        out = op("add", out, op("reshape", b, shape=(1, b.shape[0]) + (1,) * (x.ndim - 2)))
    return C.wrap(out)


@lower("convolution_backward", "convolution_backward_overrideable")
def convolution_backward(grad_output, input, weight, *rest):  # noqa: A002
    if len(rest) == 8:  # with the sizes of the bias
        rest = rest[1:]
    stride, padding, dilation, transposed, output_padding, groups, mask = rest
    x, w, g = C.read(input), C.read(weight), C.read(grad_output)
    attributes = _attributes(x.shape, w.shape, stride, padding, dilation, transposed, output_padding, groups)
    kernel = _grouped(w, groups) if transposed else w
    grad_x = grad_w = grad_b = None
    if mask[0] or mask[1]:
        grad_x, grad_w = gradient("convolution", [x, kernel], [g], [bool(mask[0]), bool(mask[1])], **attributes)
        grad_w = _ungrouped(grad_w, groups) if transposed and grad_w is not None else grad_w
    if mask[2]:
        grad_b = op("sum", g, dims=(0, *range(2, g.ndim)), keepdims=False)
    return tuple(None if value is None else C.wrap(value) for value in (grad_x, grad_w, grad_b))


def _window(x, n, kernel_size, stride, padding, dilation=(1,), ceil_mode=False):
    """Window attributes for the last n dimensions; in ceil mode the last window may reach over the edge."""
    kernel, padding, dilation = _spread(kernel_size, n), _spread(padding, n), _spread(dilation, n)
    stride = _spread(stride, n) if len(stride) else kernel
    lead = x.ndim - n
    pads = [0, 0] * lead
    for i in range(n):
        size, reach = x.shape[lead + i] + 2 * padding[i], dilation[i] * (kernel[i] - 1) + 1
        over = 0
        if ceil_mode:
            out = -(-(size - reach) // stride[i]) + 1
            if (out - 1) * stride[i] >= x.shape[lead + i] + padding[i]:
                out -= 1
            over = max(0, (out - 1) * stride[i] + reach - size)
        pads += [padding[i], padding[i] + over]
    ones = (1,) * lead
    return dict(window_dimensions=ones + tuple(kernel), window_strides=ones + tuple(stride), padding=tuple(pads),
                window_dilations=ones + tuple(dilation))


def _max_pool(n):
    def forward(self, kernel_size, stride=(), padding=(0,), dilation=(1,), ceil_mode=False):
        x = C.read(self)
        window = _window(x, n, kernel_size, stride, padding, dilation, ceil_mode)
        out = op("reduce_window", x, reducer="max", **window)
        return C.wrap(out), C.wrap(_indices(x, out, n, window))

    return forward


def _indices(x, out, n, window):
    """Where in its plane each window's largest element stands first: the smallest place at which it is found."""
    lead = x.ndim - n
    plane = 1
    for size in x.shape[lead:]:
        plane *= size
    offsets = [(0,) * n]
    for i in range(n):
        steps = [k * window["window_dilations"][lead + i] for k in range(window["window_dimensions"][lead + i])]
        offsets = [head[:i] + (step,) + head[i + 1:] for head in offsets for step in steps]
    low = window["padding"][2 * lead::2]
    high = window["padding"][2 * lead + 1::2]
    limits = (0,) * lead
    places = op("reshape", op("iota", shape=(plane,), dimension=0, dtype=I64, device=x.device), shape=tuple(x.shape[lead:]))
    floor = like(float("-inf"), x)
    padded = op("pad", x, floor, edge_padding_low=limits + tuple(low), edge_padding_high=limits + tuple(high),
                interior_padding=(0,) * x.ndim)
    placed = op("pad", places, C.scalar(I64, plane, x.device), edge_padding_low=tuple(low), edge_padding_high=tuple(high),
                interior_padding=(0,) * n)
    best = None
    for offset in offsets:
        strides = window["window_strides"][lead:]
        limit = tuple(offset[i] + (out.shape[lead + i] - 1) * strides[i] + 1 for i in range(n))
        part = op("slice", padded, start_indices=limits + offset, limit_indices=tuple(x.shape[:lead]) + limit,
                  strides=(1,) * lead + tuple(strides))
        place = op("slice", placed, start_indices=offset, limit_indices=limit, strides=tuple(strides))
        hit = op("bitwise_or", op("eq", part, out), op("ne", part, part))
        here = op("where", hit, place, C.scalar(I64, plane, x.device))
        best = here if best is None else op("minimum", best, here)
    return best


def _max_pool_backward(n):
    def backward(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices):
        x, g = C.read(self), C.read(grad_output)
        window = _window(x, n, kernel_size, stride, padding, dilation, ceil_mode)
        return C.wrap(gradient("reduce_window", [x], [g], reducer="max", **window)[0])

    return backward


lower("max_pool2d_with_indices")(_max_pool(2))
lower("max_pool3d_with_indices")(_max_pool(3))
lower("max_pool2d_with_indices_backward")(_max_pool_backward(2))
lower("max_pool3d_with_indices_backward")(_max_pool_backward(3))


def _divisors(x, n, window, padding, count_include_pad, divisor_override):
    """What each window's sum is divided by: a number, or a value of the plane's shape."""
    if divisor_override:
        return like(float(divisor_override), x)
    lead = x.ndim - n
    kernel = 1
    for size in window["window_dimensions"][lead:]:
        kernel *= size
    pads = window["padding"]
    even = all(pads[2 * (lead + i)] == pads[2 * (lead + i) + 1] for i in range(n))
    if even and (count_include_pad or not any(pads)):
        return like(float(kernel), x)
    plane = tuple(x.shape[lead:])
    ones = op("full", shape=plane, value=1.0, dtype=x.dtype, device=x.device)
    attributes = {"window_dimensions": window["window_dimensions"][lead:], "window_strides": window["window_strides"][lead:],
                  "padding": tuple(pads[2 * lead:])}
    if count_include_pad:
        wide = tuple(_spread(padding, n))
        ones = op("pad", ones, like(1.0, x), edge_padding_low=wide, edge_padding_high=wide, interior_padding=(0,) * n)
        over = [value for i in range(n) for value in (0, pads[2 * (lead + i) + 1] - wide[i])]
        attributes["padding"] = tuple(over)
    return op("reduce_window", ones, reducer="sum", **attributes)


def _avg_pool(n):
    def forward(self, kernel_size, stride=(), padding=(0,), ceil_mode=False, count_include_pad=True, divisor_override=None):
        x = C.read(self)
        window = _window(x, n, kernel_size, stride, padding, (1,), ceil_mode)
        total = op("reduce_window", x, reducer="sum", **window)
        return C.wrap(op("div", total, _divisors(x, n, window, padding, count_include_pad, divisor_override)))

    return forward


def _avg_pool_backward(n):
    def backward(grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
        x, g = C.read(self), C.read(grad_output)
        window = _window(x, n, kernel_size, stride, padding, (1,), ceil_mode)
        g = op("div", g, _divisors(x, n, window, padding, count_include_pad, divisor_override))
        return C.wrap(gradient("reduce_window", [x], [g], reducer="sum", **window)[0])

    return backward


for _n in (2, 3):
    lower(f"avg_pool{_n}d")(_avg_pool(_n))
    lower(f"avg_pool{_n}d_backward")(_avg_pool_backward(_n))


def _even(shape, output, n):
    lead = len(shape) - n
    return all(shape[lead + i] % output[i] == 0 for i in range(n))


def _spans(size, output):
    return [(i * size // output, -(-(i + 1) * size // output)) for i in range(output)]


def _averaging(size, output, x):
    """A matrix [output, size] whose rows average the spans of an adaptive pool."""
    rows = torch.zeros(output, size)
    for i, (start, stop) in enumerate(_spans(size, output)):
        rows[i, start:stop] = 1.0 / (stop - start)
    return C.upload(runtime.F32, rows.shape, rows.data_ptr(), rows.numel() * 4, x.device)


def _along(x, matrix, axis):
    """Multiplies one axis of x by a matrix [out, in]."""
    last = x.ndim - 1
    order = tuple(i for i in range(x.ndim) if i != axis) + (axis,)
    moved = op("transpose", x, permutation=order) if axis != last else x
    out = op("matmul", moved, op("transpose", converted(matrix, x.dtype), permutation=(1, 0)))
    if axis == last:
        return out
    back = [0] * x.ndim
    for place, dim in enumerate(order):
        back[dim] = place
    return op("transpose", out, permutation=tuple(back))


def _adaptive(n):
    def forward(self, output_size):
        x = C.read(self)
        lead = x.ndim - n
        output = [size if size is not None else x.shape[lead + i] for i, size in enumerate(output_size)]
        if _even(x.shape, output, n):
            kernel = [x.shape[lead + i] // output[i] for i in range(n)]
            window = _window(x, n, kernel, kernel, (0,))
            area = 1
            for k in kernel:
                area *= k
            return C.wrap(op("div", op("reduce_window", x, reducer="sum", **window), like(float(area), x)))
        for i in range(n):
            x = _along(x, _averaging(x.shape[lead + i], output[i], x), lead + i)
        return C.wrap(x)

    return forward


def _adaptive_backward(n):
    def backward(grad_output, self):
        g, shape = C.read(grad_output), self.shape
        lead = len(shape) - n
        for i in range(n):
            rows = _averaging(shape[lead + i], g.shape[lead + i], g)
            g = _along(g, op("transpose", rows, permutation=(1, 0)), lead + i)
        return C.wrap(g)

    return backward


for _n in (2, 3):
    lower(f"_adaptive_avg_pool{_n}d")(_adaptive(_n))
    lower(f"_adaptive_avg_pool{_n}d_backward")(_adaptive_backward(_n))


def _resampling(name, size, output, align, scale):
    """One axis of an interpolation as a matrix [output, size]: what torch's own gives for the rows of the identity."""
    rows = torch.eye(size).view(size, 1, size)
    if name == "bicubic":
        made = torch.ops.aten.upsample_bicubic2d(rows.view(size, 1, 1, size), [1, output], align, None, scale)
    elif name == "linear":
        made = torch.ops.aten.upsample_linear1d(rows, [output], align, scale)
    else:
        made = getattr(torch.ops.aten, name)(rows, [output], scale)
    return made.view(size, output).t().contiguous()


def _resampled_backward(name, n, aligned):
    def backward(grad_output, output_size, input_size, *rest):
        align = bool(rest[0]) if aligned else False
        scales = list(rest[1:] if aligned else rest) + [None] * n
        g = C.read(grad_output)
        for i in range(n):
            rows = _resampling(name, input_size[2 + i], output_size[i], align, scales[i])
            turned = rows.t().contiguous()
            matrix = C.upload(runtime.F32, turned.shape, turned.data_ptr(), turned.numel() * 4, g.device)
            g = _along(g, matrix, 2 + i)
        return C.wrap(g)

    return backward


for _n, _linear in ((1, "linear"), (2, "bilinear"), (3, "trilinear")):
    lower(f"upsample_nearest{_n}d_backward")(_resampled_backward("upsample_nearest1d", _n, False))
    lower(f"_upsample_nearest_exact{_n}d_backward")(_resampled_backward("_upsample_nearest_exact1d", _n, False))
    lower(f"upsample_{_linear}{_n}d_backward")(_resampled_backward("linear", _n, True))
lower("upsample_bicubic2d_backward")(_resampled_backward("bicubic", 2, True))
