"""Layers of neural networks and their gradients: activations, softmax, losses, normalisation, embedding, dropout."""

import torch

from . import runtime
from .factory import converted
from .generator import draw
from .reduce import axis_of, reduced
from .runtime import BOOL, C, DTYPES, F32, FLOATS, I32
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


lower("_softmax")(C.softmax)
lower("_log_softmax")(C.log_softmax)


@lower("_safe_softmax")
def safe_softmax(self, dim, dtype=None):
    x = C.read(self)
    return C.wrap(op("softmax", converted(x, DTYPES[dtype]) if dtype else x, axis=axis_of(dim, x.ndim), safe=True))


@lower("_softmax_backward_data")
def softmax_backward(grad_output, output, dim, input_dtype):
    return C.softmax_backward(grad_output, output, dim, DTYPES[input_dtype])


@lower("_log_softmax_backward_data")
def log_softmax_backward(grad_output, output, dim, input_dtype):
    return C.log_softmax_backward(grad_output, output, dim, DTYPES[input_dtype])


lower("nll_loss_forward", "nll_loss2d_forward")(C.nll_loss)
lower("nll_loss_backward", "nll_loss2d_backward")(C.nll_loss_backward)

REDUCTION = ("none", "mean", "sum")


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


lower("native_layer_norm")(C.layer_norm)
lower("native_layer_norm_backward")(C.layer_norm_backward)


lower("native_batch_norm", "_native_batch_norm_legit")(C.batch_norm)
lower("native_batch_norm_backward")(C.batch_norm_backward)


@lower("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(self, weight, bias, training, momentum, eps):
    return C.batch_norm(self, weight, bias, None, None, training, momentum, eps)


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


def turned(x):
    """The last two dimensions in each other's place."""
    return op("transpose", x, permutation=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@lower("_grouped_mm")
def grouped_mm(self, mat2, offs=None, bias=None, out_dtype=None):
    """One product for each group; `offs` are the ends of groups along the dimension that has them one behind the other. Elements
    behind the last end, which torch leaves as they are in memory, are 0.
    """
    a, b = C.read(self), C.read(mat2)
    if bias is not None or not (2 <= a.ndim <= 3 and 2 <= b.ndim <= 3) or (offs is None) != (a.ndim == b.ndim == 3):
        raise RuntimeError("_grouped_mm takes matrices in groups by their offsets, or two lists of matrices, and no bias")
    wanted = a.dtype if out_dtype is None else DTYPES[out_dtype]
    if offs is None:
        return C.wrap(converted(op("matmul", a, b), wanted))
    ends = converted(C.read(offs), I32)
    groups = ends.shape[0]
    starts = op("pad", ends, C.scalar(I32, 0, a.device), edge_padding_low=(1,), edge_padding_high=(-1,), interior_padding=(0,))
    sizes = op("sub", ends, starts)
    if a.ndim == 2 and b.ndim == 3:
        out = op("ragged_dot", a, b, sizes)
    elif a.ndim == 3:
        out = turned(op("ragged_dot", turned(b), turned(a), sizes))
    else:  # the gradient of ragged_dot's matrices
        m, n = a.shape[0], b.shape[1]
        matrices = op("full", shape=(groups, m, n), value=0.0, dtype=a.dtype, device=a.device)
        out = gradient("ragged_dot", (turned(a), matrices, sizes), (b,), (False, True, False))[1]
    return C.wrap(converted(out, wanted))
