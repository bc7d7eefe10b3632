"""Layers of neural networks and their gradients: activations, softmax, losses, normalisation, embedding, dropout."""

import torch

from . import runtime
from .factory import converted
from .generator import draw
from .reduce import axis_of, dims_of, reduced
from .runtime import BOOL, C, DTYPES, F32, FLOATS
from .table import lower

op = C.op


def like(value, x):
    """A number as a value of x's type."""
    return C.scalar(x.dtype, value, x.device)


def read_float(tensor):
    x = C.read(tensor)
    return x if x.dtype in FLOATS else converted(x, F32)


def gradient(name, inputs, arriving, wanted=None, results=(), **attributes):
    """Gradients of one operation of Weft's by its own rule."""
    return C.vjp(name, tuple(inputs), tuple(arriving), tuple(wanted or [True] * len(inputs)), tuple(results), **attributes)


@lower("sigmoid_backward")
def sigmoid_backward(grad_output, output):
    g, y = C.read(grad_output), C.read(output)
    return C.wrap(op("mul", op("mul", g, op("sub", like(1.0, y), y)), y))


@lower("tanh_backward")
def tanh_backward(grad_output, output):
    g, y = C.read(grad_output), C.read(output)
    return C.wrap(op("mul", g, op("sub", like(1.0, y), op("square", y))))


@lower("gelu")
def gelu(self, *, approximate="none"):
    return C.wrap(op("gelu", C.read(self), form="tanh" if approximate == "tanh" else "erf"))


@lower("gelu_backward")
def gelu_backward(grad_output, self, *, approximate="none"):
    form = "tanh" if approximate == "tanh" else "erf"
    return C.wrap(gradient("gelu", [C.read(self)], [C.read(grad_output)], form=form)[0])


@lower("silu")
def silu(self):
    return C.wrap(op("silu", C.read(self)))


@lower("silu_backward")
def silu_backward(grad_output, self):
    return C.wrap(gradient("silu", [C.read(self)], [C.read(grad_output)])[0])


@lower("leaky_relu")
def leaky_relu(self, negative_slope=0.01):
    x = C.read(self)
    return C.wrap(op("where", op("gt", x, like(0.0, x)), x, op("mul", x, like(float(negative_slope), x))))


@lower("leaky_relu_backward")
def leaky_relu_backward(grad_output, self, negative_slope, self_is_result):
    g, x = C.read(grad_output), C.read(self)
    return C.wrap(op("where", op("gt", x, like(0.0, x)), g, op("mul", g, like(float(negative_slope), g))))


@lower("elu")
def elu(self, alpha=1, scale=1, input_scale=1):
    x = C.read(self)
    low = op("mul", op("expm1", op("mul", x, like(float(input_scale), x))), like(float(alpha), x))
    out = op("where", op("gt", x, like(0.0, x)), x, low)
    return C.wrap(out if scale == 1 else op("mul", out, like(float(scale), x)))


@lower("hardtanh")
def hardtanh(self, min_val=-1, max_val=1):
    x = C.read(self)
    return C.wrap(op("clamp", like(min_val, x), x, like(max_val, x)))


@lower("hardtanh_backward")
def hardtanh_backward(grad_output, self, min_val, max_val):
    g, x = C.read(grad_output), C.read(self)
    outside = op("bitwise_or", op("le", x, like(min_val, x)), op("ge", x, like(max_val, x)))
    return C.wrap(op("where", outside, like(0.0, g), g))


@lower("softplus")
def softplus(self, beta=1, threshold=20):
    x = C.read(self)
    scaled = x if beta == 1 else op("mul", x, like(float(beta), x))
    soft = op("log1p", op("exp", scaled))
    soft = soft if beta == 1 else op("div", soft, like(float(beta), x))
    return C.wrap(op("where", op("gt", scaled, like(float(threshold), x)), x, soft))


@lower("softplus_backward")
def softplus_backward(grad_output, self, beta, threshold):
    g, x = C.read(grad_output), C.read(self)
    scaled = op("mul", x, like(float(beta), x))
    return C.wrap(op("where", op("gt", scaled, like(float(threshold), x)), g, op("mul", g, op("sigmoid", scaled))))


@lower("threshold")
def threshold(self, threshold, value):  # noqa: A002
    x = C.read(self)
    return C.wrap(op("where", op("le", x, like(threshold, x)), like(value, x), x))


def _softmax(name):
    def function(self, dim, half_to_float=False):
        x = C.read(self)
        x = converted(x, F32) if half_to_float else x
        if x.ndim == 0:
            flat = op(name, op("reshape", x, shape=(1,)), axis=0)
            return C.wrap(op("reshape", flat, shape=()))
        return C.wrap(op(name, x, axis=axis_of(dim, x.ndim)))

    return function


lower("_softmax")(_softmax("softmax"))
lower("_log_softmax")(_softmax("log_softmax"))


@lower("_safe_softmax")
def safe_softmax(self, dim, dtype=None):
    x = C.read(self)
    return C.wrap(op("softmax", converted(x, DTYPES[dtype]) if dtype else x, axis=axis_of(dim, x.ndim), safe=True))


def _working(grad_output):
    """The value of a gradient in the type that sums are kept in."""
    g = C.read(grad_output)
    return converted(g, F32) if g.dtype in (runtime.F16, runtime.BF16) else g


@lower("_softmax_backward_data")
def softmax_backward(grad_output, output, dim, input_dtype):
    g, y = _working(grad_output), _working(output)
    if g.ndim == 0:
        return C.wrap(converted(op("mul", g, like(0.0, g)), DTYPES[input_dtype]))
    product = op("mul", g, y)
    total = reduced("sum", product, dims_of(dim, g.ndim), True)
    return C.wrap(converted(op("sub", product, op("mul", y, total)), DTYPES[input_dtype]))


@lower("_log_softmax_backward_data")
def log_softmax_backward(grad_output, output, dim, input_dtype):
    g, y = _working(grad_output), _working(output)
    if g.ndim == 0:
        return C.wrap(converted(op("mul", g, like(0.0, g)), DTYPES[input_dtype]))
    total = reduced("sum", g, dims_of(dim, g.ndim), True)
    return C.wrap(converted(op("sub", g, op("mul", op("exp", y), total)), DTYPES[input_dtype]))


REDUCTION = ("none", "mean", "sum")


def _class_axis(x):
    return 0 if x.ndim == 1 else 1


def _picked(target, ignore_index, x):
    """Mask of the classes that count: one-hot along the class axis, nothing where the label is ignored."""
    axis = _class_axis(x)
    labels = op("expand_dims", target, dims=(axis,)) if x.ndim > target.ndim else target
    classes = op("iota", shape=tuple(x.shape), dimension=axis, dtype=target.dtype, device=x.device)
    chosen = op("eq", classes, labels)
    return op("bitwise_and", chosen, op("ne", labels, C.scalar(target.dtype, ignore_index, x.device)))


def _class_weights(weight, x, axis):
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return op("reshape", C.read(weight), shape=tuple(shape))


@lower("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(self, target, weight, reduction, ignore_index):
    x, labels = C.read(self), C.read(target)
    axis = _class_axis(x)
    chosen = _picked(labels, ignore_index, x)
    counted = op("where", chosen, like(1.0, x), like(0.0, x))
    if weight is not None:
        counted = op("mul", counted, _class_weights(weight, x, axis))
    loss = op("neg", op("where", chosen, op("mul", x, counted), like(0.0, x)))
    if reduction == 0:
        return C.wrap(reduced("sum", loss, (axis,), False)), C.wrap(
            op("full", shape=(), value=0.0, dtype=x.dtype, device=x.device)
        )
    every = tuple(range(x.ndim))
    total, weights = reduced("sum", loss, every, False), reduced("sum", counted, every, False)
    return C.wrap(op("div", total, weights) if reduction == 1 else total), C.wrap(weights)


@lower("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(grad_output, self, target, weight, reduction, ignore_index, total_weight):
    g, x, labels = C.read(grad_output), C.read(self), C.read(target)
    axis = _class_axis(x)
    chosen = _picked(labels, ignore_index, x)
    if reduction == 1:
        g = op("div", g, C.read(total_weight))
    elif reduction == 0 and x.ndim > 1:
        g = op("expand_dims", g, dims=(axis,))
    factor = op("neg", g)
    if weight is not None:
        factor = op("mul", factor, _class_weights(weight, x, axis))
    return C.wrap(op("where", chosen, factor, like(0.0, x)))


@lower("mse_loss")
def mse_loss(self, target, reduction=1):
    common = DTYPES[torch.promote_types(self.dtype, target.dtype)]
    squares = op("square", op("sub", converted(C.read(self), common), converted(C.read(target), common)))
    if reduction == 0:
        return C.wrap(squares)
    return C.wrap(reduced(REDUCTION[reduction] if reduction == 1 else "sum", squares, tuple(range(squares.ndim)), False))


@lower("mse_loss_backward")
def mse_loss_backward(grad_output, self, target, reduction):
    x, y, g = C.read(self), C.read(target), C.read(grad_output)
    factor = 2.0 / max(self.numel(), 1) if reduction == 1 else 2.0
    return C.wrap(op("mul", op("mul", op("sub", x, y), like(factor, x)), g))


def _rows(shape, normalized):
    """A shape as rows of what is normalised."""
    count = 1
    for n in shape[len(shape) - len(normalized) :]:
        count *= n
    outer = 1
    for n in shape[: len(shape) - len(normalized)]:
        outer *= n
    return outer, count


@lower("native_layer_norm")
def native_layer_norm(self, normalized_shape, weight, bias, eps):
    x = C.read(self)
    wide = converted(x, F32) if x.dtype in (runtime.F16, runtime.BF16) else x
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    mean = reduced("mean", wide, dims, True)
    centred = op("sub", wide, mean)
    variance = reduced("mean", op("square", centred), dims, True)
    rstd = op("rsqrt", op("add", variance, like(float(eps), wide)))
    out = op("mul", centred, rstd)
    if weight is not None:
        out = op("mul", out, converted(C.read(weight), wide.dtype))
    if bias is not None:
        out = op("add", out, converted(C.read(bias), wide.dtype))
    return C.wrap(converted(out, x.dtype)), C.wrap(mean), C.wrap(rstd)


@lower("native_layer_norm_backward")
def native_layer_norm_backward(grad_out, self, normalized_shape, mean, rstd, weight, bias, output_mask):
    x, g = _working(self), _working(grad_out)
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    outer = tuple(range(x.ndim - len(normalized_shape)))
    m, r = C.read(mean), C.read(rstd)
    normal = op("mul", op("sub", x, m), r)
    scaled = op("mul", g, converted(C.read(weight), g.dtype)) if weight is not None else g
    results = [None, None, None]
    if output_mask[0]:
        first = reduced("mean", scaled, dims, True)
        second = reduced("mean", op("mul", scaled, normal), dims, True)
        inner = op("sub", op("sub", scaled, first), op("mul", normal, second))
        results[0] = C.wrap(converted(op("mul", inner, r), C.read(self).dtype))
    if output_mask[1] and weight is not None:
        product = op("mul", g, normal)
        results[1] = C.wrap(converted(op("sum", product, dims=outer) if outer else product, C.read(weight).dtype))
    if output_mask[2] and bias is not None:
        results[2] = C.wrap(converted(op("sum", g, dims=outer) if outer else g, C.read(bias).dtype))
    return tuple(results)


def _channels(value, x):
    """A value of one number a channel in a shape that broadcasts with x."""
    return op("reshape", value, shape=(1, x.shape[1]) + (1,) * (x.ndim - 2))


def _others(x):
    return (0, *range(2, x.ndim))


@lower("native_batch_norm")
def native_batch_norm(self, weight, bias, running_mean, running_var, training, momentum, eps):
    x = C.read(self)
    wide = converted(x, F32) if x.dtype in (runtime.F16, runtime.BF16) else x
    n = self.numel() // max(x.shape[1], 1)
    if training:
        mean = reduced("mean", wide, _others(x), False)
        centred = op("sub", wide, _channels(mean, x))
        variance = reduced("mean", op("square", centred), _others(x), False)
        if running_mean is not None:
            _move(running_mean, mean, momentum)
        if running_var is not None:
            _move(running_var, op("mul", variance, like(n / max(n - 1, 1), variance)), momentum)
    else:
        mean, variance = converted(C.read(running_mean), wide.dtype), converted(C.read(running_var), wide.dtype)
        centred = op("sub", wide, _channels(mean, x))
    invstd = op("rsqrt", op("add", variance, like(float(eps), wide)))
    factor = invstd if weight is None else op("mul", invstd, converted(C.read(weight), wide.dtype))
    out = op("mul", centred, _channels(factor, x))
    if bias is not None:
        out = op("add", out, _channels(converted(C.read(bias), wide.dtype), x))
    out = C.wrap(converted(out, x.dtype))
    if training:
        return out, C.wrap(mean), C.wrap(invstd)
    empty = [C.empty(wide.dtype, [0], x.device) for _ in range(2)]
    return out, empty[0], empty[1]


@lower("_native_batch_norm_legit")
def batch_norm_legit(self, weight, bias, running_mean, running_var, training, momentum, eps):
    return native_batch_norm(self, weight, bias, running_mean, running_var, training, momentum, eps)


@lower("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(self, weight, bias, training, momentum, eps):
    return native_batch_norm(self, weight, bias, None, None, training, momentum, eps)


def _move(running, batch, momentum):
    """running = (1 - momentum) * running + momentum * batch"""
    old = C.read(running)
    batch = converted(batch, old.dtype)
    C.write(running, op("add", op("mul", old, like(1.0 - momentum, old)), op("mul", batch, like(float(momentum), old))))


@lower("native_batch_norm_backward")
def native_batch_norm_backward(
    grad_out, self, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask
):
    x, g = _working(self), _working(grad_out)
    n = self.numel() // max(x.shape[1], 1)
    if train:
        mean, invstd = C.read(save_mean), C.read(save_invstd)
    else:
        mean = converted(C.read(running_mean), x.dtype)
        invstd = op("rsqrt", op("add", converted(C.read(running_var), x.dtype), like(float(eps), x)))
    centred = op("sub", x, _channels(mean, x))
    total = reduced("sum", g, _others(x), False)
    along = reduced("sum", op("mul", g, centred), _others(x), False)
    results = [None, None, None]
    if output_mask[0]:
        factor = invstd if weight is None else op("mul", invstd, converted(C.read(weight), x.dtype))
        inner = g
        if train:
            slope = op("mul", op("square", invstd), op("mul", along, like(1.0 / n, x)))
            inner = op(
                "sub", op("sub", g, _channels(op("mul", total, like(1.0 / n, x)), x)), op("mul", centred, _channels(slope, x))
            )
        results[0] = C.wrap(converted(op("mul", inner, _channels(factor, x)), C.read(self).dtype))
    if output_mask[1]:
        results[1] = C.wrap(op("mul", along, invstd))
    if output_mask[2]:
        results[2] = C.wrap(op("reshape", total, shape=total.shape))
    return tuple(results)


@lower("embedding")
def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return C.wrap(op("take", C.read(weight), C.read(indices), axis=0))


@lower("embedding_dense_backward")
def embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq):
    g, ids = C.read(grad_output), C.read(indices)
    width = g.shape[-1]
    count = indices.numel()
    rows = op("reshape", g, shape=(count, width))
    flat = op("reshape", ids, shape=(count, 1))
    if scale_grad_by_freq:
        raise NotImplementedError("embedding with scale_grad_by_freq is not there on the device xla")
    if padding_idx >= 0:
        rows = op("where", op("eq", flat, C.scalar(ids.dtype, padding_idx, ids.device)), like(0.0, rows), rows)
    zeros = op("full", shape=(num_weights, width), value=0.0, dtype=g.dtype, device=g.device)
    return C.wrap(
        op(
            "scatter",
            zeros,
            flat,
            rows,
            update_window_dims=(1,),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,),
            index_vector_dim=1,
            reducer="sum",
        )
    )


@lower("native_dropout")
def native_dropout(self, p, train, generator=None):
    x = C.read(self)
    if train is False or p == 0:
        return C.wrap(op("reshape", x, shape=x.shape)), C.wrap(
            op("full", shape=x.shape, value=1.0, dtype=BOOL, device=x.device)
        )
    mask = keep_mask(x.shape, 1.0 - p, x.device, generator)
    if p == 1:
        return C.wrap(op("mul", x, like(0.0, x))), C.wrap(mask)
    return C.wrap(op("mul", op("mul", x, converted(mask, x.dtype)), like(1.0 / (1.0 - p), x))), C.wrap(mask)


def keep_mask(shape, probability, device, generator=None):
    """Random truth; the probability is an argument of the program."""
    drawn = draw("uniform", generator, shape=tuple(shape), dtype=F32, device=device)
    return op("lt", drawn, C.scalar(F32, float(probability), device))


@lower("native_dropout_backward")
def native_dropout_backward(grad_output, mask, scale):
    g = C.read(grad_output)
    return C.wrap(op("mul", op("mul", g, converted(C.read(mask), g.dtype)), like(float(scale), g)))


@lower("_fused_dropout")
def fused_dropout(self, p, generator=None):
    return native_dropout(self, 1.0 - p, True, generator)


@lower("binary_cross_entropy")
def binary_cross_entropy(self, target, weight=None, reduction=1):
    x, y = C.read(self), C.read(target)
    low = like(-100.0, x)
    first = op("mul", y, op("maximum", op("log", x), low))
    second = op("mul", op("sub", like(1.0, x), y), op("maximum", op("log1p", op("neg", x)), low))
    loss = op("neg", op("add", first, second))
    if weight is not None:
        loss = op("mul", loss, C.read(weight))
    if reduction == 0:
        return C.wrap(loss)
    return C.wrap(reduced("mean" if reduction == 1 else "sum", loss, tuple(range(loss.ndim)), False))


if runtime.VERSION >= (2, 13):  # before, torch refuses gradients of complex dense layers where a device has a kernel for them
    lower("linear")(C.linear)
    lower("linear_backward")(C.linear_backward)
