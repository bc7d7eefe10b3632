"""Cells of recurrent layers, forward and backward, as torch asks devices of third parties for them."""
import torch

from .nn import like
from .runtime import C
from .table import layer, lower

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


# Whole layers. torch's own way is a handful of operations for each step of time, forward and backward; here the products over all
# steps are one, and autograd keeps one node.


def _times(a, b, axes_a, axes_b):
    """The product that sums over these axes of both."""
    return op("dot_general", a, b, lhs_batching_dimensions=(), rhs_batching_dimensions=(),
              lhs_contracting_dimensions=axes_a, rhs_contracting_dimensions=axes_b)


def _at(x, t):
    """One step of time, which stays a dimension."""
    return op("slice_in_dim", x, axis=0, start=t, limit=t + 1)


def _joined(parts, axis=0):
    return op("concatenate", *parts, dimension=axis) if len(parts) > 1 else parts[0]


def _steps(values, order, size):
    """Values by their order in time as one value of all times; at most so many operands go into one operation."""
    values = [values[t] for t in sorted(order)]
    while len(values) > size:
        values = [_joined(values[i:i + size]) for i in range(0, len(values), size)]
    return _joined(values)


_MOST = 48  # operands of one concatenation


def _first_state(h):
    return op("expand_dims", C.read(h), dims=(0,))


def _weight_gradients(x, before, of_x, of_h, w_ih, biased):
    """Gradients of the input, both weights and both biases from those of the gates, over all times at once."""
    bias = [op("sum", g, dims=(0, 1), keepdims=False) if biased else None for g in (of_x, of_h)]
    return (_times(of_x, w_ih, (2,), (0,)), _times(of_x, x, (0, 1), (0, 1)), _times(of_h, before, (0, 1), (0, 1)), *bias)


class _Layer(torch.autograd.Function):
    """One layer in one direction. `kind` has the cell's forward and backward, of values; torch's own way differentiates twice."""

    @staticmethod
    def forward(ctx, kind, reverse, x, w_ih, w_hh, b_ih, b_hh, *states):
        order = range(x.shape[0])[::-1] if reverse else range(x.shape[0])
        values = [None if t is None else C.read(t) for t in (x, w_ih, w_hh, b_ih, b_hh)]
        results, kept = kind.forward(order, *values, *(_first_state(s) for s in states))
        results = tuple(C.wrap(value) for value in results)
        ctx.kind, ctx.order, ctx.reverse = kind, order, reverse
        ctx.save_for_backward(x, w_ih, w_hh, b_ih, b_hh, *states, results[0], *(C.wrap(value) for value in kept))
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx, *grads):
        count = ctx.kind.states
        x, w_ih, w_hh, b_ih, b_hh, *rest = ctx.saved_tensors
        inputs = (x, w_ih, w_hh, b_ih, b_hh, *rest[:count])
        if torch.is_grad_enabled():
            return None, None, *_twice(ctx, inputs, grads)
        values = [C.read(t) for t in (x, w_ih, w_hh)]
        states, saved = [_first_state(s) for s in rest[:count]], [C.read(t) for t in rest[count:]]
        arriving = [None if g is None else C.read(g) for g in grads]
        found = ctx.kind.backward(ctx.order, *values, b_ih is not None, states, saved, arriving)
        return None, None, *(None if value is None else C.wrap(value) for value in found)


def _twice(ctx, inputs, grads):
    """The gradients by torch's own way, which can be differentiated again."""
    x, w_ih, w_hh, b_ih, b_hh, *states = inputs
    weights = [w_ih, w_hh] + ([b_ih, b_hh] if b_ih is not None else [])
    outputs, last = [], [s for s in states]
    for t in ctx.order:
        last = ctx.kind.cell(x[t], last, weights)
        outputs.append(last[0])
    outputs = outputs[::-1] if ctx.reverse else outputs
    results = [torch.stack(outputs), *last]
    pairs = [(result, grad) for result, grad in zip(results, grads) if grad is not None]
    wanted = [i for i, t in enumerate(inputs) if t is not None and ctx.needs_input_grad[i + 2]]
    found = torch.autograd.grad([r for r, _ in pairs], [inputs[i] for i in wanted], [g for _, g in pairs], create_graph=True,
                                allow_unused=True)
    out = [None] * len(inputs)
    for i, gradient in zip(wanted, found):
        out[i] = gradient
    return out


class _Lstm:
    states, gates = 2, 4

    @staticmethod
    def cell(x, states, weights):
        return torch.lstm_cell(x, states, *weights)

    @staticmethod
    def forward(order, x, w_ih, w_hh, b_ih, b_hh, h, c):
        inner = _times(x, w_ih, (2,), (1,))
        if b_ih is not None:
            inner = op("add", inner, op("add", b_ih, b_hh))
        hidden, cells, kept = {}, {}, {}
        for t in order:
            gates = op("add", _at(inner, t), _times(h, w_hh, (2,), (1,)))
            i, f, o = (op("sigmoid", _part(gates, k, 4)) for k in (0, 1, 3))
            g = op("tanh", _part(gates, 2, 4))
            c = op("add", op("mul", f, c), op("mul", i, g))
            h = op("mul", o, op("tanh", c))
            hidden[t], cells[t], kept[t] = h, c, op("concatenate", i, f, g, o, dimension=2)
        y, all_cells, all_gates = (_steps(values, order, _MOST) for values in (hidden, cells, kept))
        shape = tuple(h.shape[1:])
        return (y, op("reshape", h, shape=shape), op("reshape", c, shape=shape)), (all_cells, all_gates)

    @staticmethod
    def backward(order, x, w_ih, w_hh, biased, states, saved, arriving):
        y, cells, gates = saved
        of_y, of_h, of_c = arriving[0], *(None if g is None else op("expand_dims", g, dims=(0,)) for g in arriving[1:])
        one, found = like(1.0, x), {}
        times = list(order)
        for place in range(len(times) - 1, -1, -1):
            t = times[place]
            c, before = _at(cells, t), _at(cells, times[place - 1]) if place > 0 else states[1]
            kept = _at(gates, t)
            i, f, g, o = (_part(kept, k, 4) for k in range(4))
            grad = None if of_y is None else _at(of_y, t)
            grad = of_h if grad is None else grad if of_h is None else op("add", grad, of_h)
            grad = op("mul", c, like(0.0, c)) if grad is None else grad
            along = op("tanh", c)
            through = op("mul", op("mul", grad, o), op("sub", one, op("square", along)))
            of_c = through if of_c is None else op("add", of_c, through)
            found[t] = op("concatenate", _of_sigmoid(op("mul", of_c, g), i, one), _of_sigmoid(op("mul", of_c, before), f, one),
                          op("mul", op("mul", of_c, i), op("sub", one, op("square", g))),
                          _of_sigmoid(op("mul", grad, along), o, one), dimension=2)
            of_h, of_c = _times(found[t], w_hh, (2,), (0,)), op("mul", of_c, f)
        of_gates = _steps(found, order, _MOST)
        before = _earlier(y, states[0], order)
        shape = tuple(of_h.shape[1:])
        return (*_weight_gradients(x, before, of_gates, of_gates, w_ih, biased), op("reshape", of_h, shape=shape),
                op("reshape", of_c, shape=shape))


def _of_sigmoid(grad, y, one):
    return op("mul", grad, op("mul", y, op("sub", one, y)))


def _earlier(y, first, order):
    """The hidden state that each time began with."""
    count = y.shape[0]
    if count == 1:
        return first
    if order[0] == 0:
        return op("concatenate", first, op("slice_in_dim", y, axis=0, start=0, limit=count - 1), dimension=0)
    return op("concatenate", op("slice_in_dim", y, axis=0, start=1, limit=count), first, dimension=0)


class _Gru:
    states, gates = 1, 3

    @staticmethod
    def cell(x, states, weights):
        return [torch.gru_cell(x, states[0], *weights)]

    @staticmethod
    def forward(order, x, w_ih, w_hh, b_ih, b_hh, h):
        inner = _times(x, w_ih, (2,), (1,))
        inner = inner if b_ih is None else op("add", inner, b_ih)
        hidden, kept = {}, {}
        for t in order:
            of_x, of_h = _at(inner, t), _biased_value(_times(h, w_hh, (2,), (1,)), b_hh)
            r, z = (op("sigmoid", op("add", _part(of_x, k, 3), _part(of_h, k, 3))) for k in (0, 1))
            own = _part(of_h, 2, 3)
            n = op("tanh", op("add", _part(of_x, 2, 3), op("mul", r, own)))
            h = op("add", op("mul", z, op("sub", h, n)), n)
            hidden[t], kept[t] = h, op("concatenate", r, z, n, own, dimension=2)
        y, all_gates = (_steps(values, order, _MOST) for values in (hidden, kept))
        return (y, op("reshape", h, shape=tuple(h.shape[1:]))), (all_gates,)

    @staticmethod
    def backward(order, x, w_ih, w_hh, biased, states, saved, arriving):
        y, gates = saved
        of_y, of_h = arriving[0], None if arriving[1] is None else op("expand_dims", arriving[1], dims=(0,))
        one, inner, outer = like(1.0, x), {}, {}
        before = _earlier(y, states[0], order)
        for t in reversed(order):
            kept, h = _at(gates, t), _at(before, t)
            r, z, n, own = (_part(kept, k, 4) for k in range(4))
            grad = None if of_y is None else _at(of_y, t)
            grad = of_h if grad is None else grad if of_h is None else op("add", grad, of_h)
            grad = op("mul", n, like(0.0, n)) if grad is None else grad
            of_n = op("mul", op("mul", grad, op("sub", one, z)), op("sub", one, op("square", n)))
            of_z = _of_sigmoid(op("mul", grad, op("sub", h, n)), z, one)
            of_r = _of_sigmoid(op("mul", of_n, own), r, one)
            inner[t] = op("concatenate", of_r, of_z, of_n, dimension=2)
            outer[t] = op("concatenate", of_r, of_z, op("mul", of_n, r), dimension=2)
            of_h = op("add", _times(outer[t], w_hh, (2,), (0,)), op("mul", grad, z))
        of_x, of_hidden = _steps(inner, order, _MOST), _steps(outer, order, _MOST)
        return (*_weight_gradients(x, before, of_x, of_hidden, w_ih, biased), op("reshape", of_h, shape=tuple(of_h.shape[1:])))


def _biased_value(x, bias):
    return x if bias is None else op("add", x, bias)


def _fits(tensors, gates, hidden):
    """Whether the layers here are for these tensors: of one float dtype, on the device, without projections or autocast."""
    first = tensors[0]
    if first.dim() != 3 or first.numel() == 0 or first.dtype not in (torch.float32, torch.float64):
        return False
    if torch.is_autocast_enabled("xla") or not all(t.device == first.device and t.dtype == first.dtype for t in tensors):
        return False
    return all(t.shape[0] == gates * hidden for t in tensors if t.dim() <= 2)


def _run(kind, x, states, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    """All layers of a network: its output, and the last states of each layer and direction."""
    x = x.transpose(0, 1) if batch_first else x
    directions, width = 2 if bidirectional else 1, 4 if has_biases else 2
    last = []
    for layer_number in range(num_layers):
        outputs = []
        for direction in range(directions):
            place = layer_number * directions + direction
            w_ih, w_hh, *bias = params[place * width:(place + 1) * width]
            b_ih, b_hh = bias if has_biases else (None, None)
            y, *ends = _Layer.apply(kind, direction == 1, x, w_ih, w_hh, b_ih, b_hh, *(s[place] for s in states))
            outputs.append(y)
            last.append(ends)
        x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout and train and layer_number < num_layers - 1:
            x = torch.dropout(x, dropout, True)
    ends = [torch.stack(each) if len(each) > 1 else each[0].unsqueeze(0) for each in zip(*last)]
    return x.transpose(0, 1) if batch_first else x, ends


@layer("lstm.input")
def lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):  # noqa: A002
    if not _fits([input, *hx, *params], 4, hx[0].shape[-1]) or hx[0].shape != hx[1].shape:
        return torch.ops.aten.lstm.input.decompose(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
    y, (h, c) = _run(_Lstm, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
    return y, h, c


@layer("gru.input")
def gru(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):  # noqa: A002
    if not _fits([input, hx, *params], 3, hx.shape[-1]):
        return torch.ops.aten.gru.input.decompose(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
    y, (h,) = _run(_Gru, input, [hx], params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
    return y, h
