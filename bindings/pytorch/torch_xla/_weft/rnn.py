"""Cells of recurrent layers, forward and backward, as torch asks devices of third parties for them."""
from .nn import like
from .runtime import C
from .table import lower

op = C.op


def _part(x, i, count):
    """The i-th of `count` equal parts along the last axis."""
    size = x.shape[-1] // count
    return op("slice_in_dim", x, axis=x.ndim - 1, start=i * size, limit=(i + 1) * size)


def _biased(gates, bias):
    return gates if bias is None else op("add", gates, C.read(bias))


@lower("_thnn_fused_lstm_cell")
def lstm_cell(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    gates = op("add", _biased(C.read(input_gates), input_bias), _biased(C.read(hidden_gates), hidden_bias))
    i, f, o = (op("sigmoid", _part(gates, k, 4)) for k in (0, 1, 3))
    g = op("tanh", _part(gates, 2, 4))
    cy = op("add", op("mul", f, C.read(cx)), op("mul", i, g))
    hy = op("mul", o, op("tanh", cy))
    workspace = op("concatenate", i, f, g, o, dimension=gates.ndim - 1)
    return C.wrap(hy), C.wrap(cy), C.wrap(workspace)


@lower("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    gates, c0, c1 = C.read(workspace), C.read(cx), C.read(cy)
    i, f, g, o = (_part(gates, k, 4) for k in range(4))
    one = like(1.0, gates)
    along = op("tanh", c1)
    grad_c = None if grad_cy is None else C.read(grad_cy)
    grad_o = None
    if grad_hy is not None:
        h = C.read(grad_hy)
        grad_o = op("mul", h, along)
        through = op("mul", op("mul", h, o), op("sub", one, op("square", along)))
        grad_c = through if grad_c is None else op("add", grad_c, through)

    def gate(grad, y):
        return op("mul", grad, op("mul", y, op("sub", one, y)))

    parts = [gate(op("mul", grad_c, g), i), gate(op("mul", grad_c, c0), f),
             op("mul", op("mul", grad_c, i), op("sub", one, op("square", g))),
             gate(grad_o, o) if grad_o is not None else op("mul", o, like(0.0, o))]
    grad_gates = op("concatenate", *parts, dimension=gates.ndim - 1)
    bias = C.wrap(op("sum", grad_gates, dims=(0,), keepdims=False)) if has_bias else None
    return C.wrap(grad_gates), C.wrap(op("mul", grad_c, f)), bias


@lower("_thnn_fused_gru_cell")
def gru_cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    x, h = _biased(C.read(input_gates), input_bias), C.read(hidden_gates)
    h = _biased(h, hidden_bias)
    before = C.read(hx)
    r, z = (op("sigmoid", op("add", _part(x, k, 3), _part(h, k, 3))) for k in (0, 1))
    hidden = _part(h, 2, 3)
    n = op("tanh", op("add", _part(x, 2, 3), op("mul", r, hidden)))
    hy = op("add", op("mul", z, op("sub", before, n)), n)
    workspace = op("concatenate", r, z, n, before, hidden, dimension=x.ndim - 1)
    return C.wrap(hy), C.wrap(workspace)


@lower("_thnn_fused_gru_cell_backward")
def gru_cell_backward(grad_hy, workspace, has_bias):
    g, kept = C.read(grad_hy), C.read(workspace)
    r, z, n, before, hidden = (_part(kept, k, 5) for k in range(5))
    one = like(1.0, g)
    grad_n = op("mul", op("mul", g, op("sub", one, z)), op("sub", one, op("square", n)))
    grad_z = op("mul", op("mul", g, op("sub", before, n)), op("mul", z, op("sub", one, z)))
    grad_r = op("mul", op("mul", grad_n, hidden), op("mul", r, op("sub", one, r)))
    axis = g.ndim - 1
    of_input = op("concatenate", grad_r, grad_z, grad_n, dimension=axis)
    of_hidden = op("concatenate", grad_r, grad_z, op("mul", grad_n, r), dimension=axis)
    biases = ([C.wrap(op("sum", value, dims=(0,), keepdims=False)) for value in (of_input, of_hidden)] if has_bias
              else [None, None])
    return (C.wrap(of_input), C.wrap(of_hidden), C.wrap(op("mul", g, z)), *biases)
