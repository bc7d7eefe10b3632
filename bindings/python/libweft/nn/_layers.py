"""The layers."""

import math

from .. import _ops
from .._call import doubles, whole
from .._errors import InvalidArgument, named_functions
from .._more import ones, split, zeros
from .._tensor import Parameter
from . import init
from ._module import Module


def _size(layer, least=1, **sizes):
    """A size of a layer, or several: whole numbers, and not below the least."""
    for name, value in sizes.items():
        if whole(value, layer, name) < least:
            raise InvalidArgument("%s: %s is %d; it must be %d or more" % (layer, name, value, least))


class Linear(Module):
    """x w + b with a weight [inputs, outputs]."""

    def __init__(self, inputs, outputs, bias=True, dtype="f32"):
        _size("Linear", inputs=inputs, outputs=outputs)
        self.w = Parameter(init.lecun_uniform((inputs, outputs), dtype))
        self.b = Parameter(zeros((outputs,), dtype)) if bias else None

    def forward(self, x):
        return _ops.linear(x, self.w, self.b)


def _pair(layer, least=1, **setting):
    """Two whole numbers, of height and width, from one or two."""
    ((name, value),) = setting.items()
    pair = tuple(value) if isinstance(value, (list, tuple)) else (value, value)
    if len(pair) != 2:
        raise InvalidArgument("%s: %s has %d numbers; it is one for both axes, or two" % (layer, name, len(pair)))
    for number in pair:
        _size(layer, least, **{name: number})
    return pair


class Conv2d(Module):
    """A convolution of images [batch, height, width, channels] with a kernel [height, width, inputs / groups, outputs]."""

    def __init__(self, inputs, outputs, kernel, stride=1, padding="valid", dilation=1, groups=1, bias=True, dtype="f32"):
        _size("Conv2d", inputs=inputs, outputs=outputs, groups=groups)
        if inputs % groups or outputs % groups:
            raise InvalidArgument("Conv2d: %d inputs and %d outputs are not %d equal groups" % (inputs, outputs, groups))
        window = _pair("Conv2d", kernel=kernel)
        self.w = Parameter(init.lecun_uniform((*window, inputs // groups, outputs), dtype))
        self.b = Parameter(zeros((outputs,), dtype)) if bias else None
        self.stride, self.dilation, self.groups = _pair("Conv2d", stride=stride), _pair("Conv2d", dilation=dilation), groups
        self.padding, self.pads = (padding, None) if isinstance(padding, str) else ("explicit", _pads(padding))

    def forward(self, x):
        y = _ops.conv(
            x, self.w, strides=self.stride, padding=self.padding, pads=self.pads, dilation=self.dilation, groups=self.groups
        )
        return y if self.b is None else y + self.b


def _pads(padding):
    height, width = _pair("Conv2d", 0, padding=padding)
    return (height, height, width, width)


class MaxPool2d(Module):
    def __init__(self, window, stride=None):
        name = type(self).__name__
        self.window, self.stride = _pair(name, window=window), _pair(name, stride=window if stride is None else stride)

    def forward(self, x):
        return _ops.max_pool(x, self.window, strides=self.stride)


class AvgPool2d(MaxPool2d):
    def forward(self, x):
        return _ops.avg_pool(x, self.window, strides=self.stride)


class Flatten(Module):
    """All axes but the first as one."""

    def forward(self, x):
        return x.reshape(x.shape[0], -1)


class Embedding(Module):
    """Rows of a table [count, size] by whole numbers."""

    def __init__(self, count, size, deviation=1.0, dtype="f32"):
        _size("Embedding", count=count, size=size)
        self.table = Parameter(init.normal((count, size), deviation, dtype=dtype))

    def forward(self, ids):
        return _ops.embedding(self.table, ids)


class LayerNorm(Module):
    def __init__(self, size, epsilon=1e-5, dtype="f32"):
        _size("LayerNorm", size=size)
        self.scale, self.offset, self.epsilon = Parameter(ones((size,), dtype)), Parameter(zeros((size,), dtype)), epsilon

    def forward(self, x):
        return _ops.layer_norm(x, self.scale, self.offset, epsilon=self.epsilon)


class RMSNorm(Module):
    def __init__(self, size, epsilon=1e-6, dtype="f32"):
        _size("RMSNorm", size=size)
        self.scale, self.epsilon = Parameter(ones((size,), dtype)), epsilon

    def forward(self, x):
        return _ops.rms_norm(x, self.scale, epsilon=self.epsilon)


class BatchNorm(Module):
    """Batch statistics in training, running ones in evaluation; the features are the last axis."""

    def __init__(self, size, epsilon=1e-5, momentum=0.1, dtype="f32"):
        _size("BatchNorm", size=size)
        self.scale, self.offset = Parameter(ones((size,), dtype)), Parameter(zeros((size,), dtype))
        self.mean, self.variance = (
            Parameter(zeros((size,), dtype), trainable=False),
            Parameter(ones((size,), dtype), trainable=False),
        )
        self.epsilon, self.momentum = epsilon, momentum

    def forward(self, x):
        if not self.training:
            return _ops.batch_norm_inference(x, self.scale, self.offset, self.mean, self.variance, epsilon=self.epsilon)
        y, mean, variance = _ops.batch_norm_running(
            x, self.scale, self.offset, self.mean, self.variance, epsilon=self.epsilon, momentum=self.momentum
        )
        self.mean.assign(mean.detach())
        self.variance.assign(variance.detach())
        return y


class Dropout(Module):
    def __init__(self, rate=0.5):
        self.rate = doubles(rate, "Dropout", "rate").value
        if not 0 <= self.rate < 1:
            raise InvalidArgument("Dropout: rate is %r; it must be at least 0 and below 1" % (rate,))

    def forward(self, x):
        return _ops.dropout(x, rate=self.rate) if self.training and self.rate else x


class Sequential(Module):
    """Layers and functions one after the other."""

    def __init__(self, *layers):
        self.layers = list(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def __getitem__(self, index):
        return self.layers[index]

    def __len__(self):
        return len(self.layers)


class MultiHeadAttention(Module):
    """Self-attention over [batch, time, size]."""

    def __init__(self, size, heads, causal=False, bias=True, dtype="f32"):
        _size("MultiHeadAttention", size=size, heads=heads)
        if size % heads:
            raise InvalidArgument("MultiHeadAttention: %d features are not %d equal heads" % (size, heads))
        self.inner, self.outer = Linear(size, 3 * size, bias, dtype), Linear(size, size, bias, dtype)
        self.heads, self.causal = heads, causal

    def forward(self, x, mask=None):
        batch, time, size = x.shape
        q, k, v = (
            part.reshape(batch, time, self.heads, size // self.heads).transpose(0, 2, 1, 3)
            for part in split(self.inner(x), 3, -1)
        )
        y = _ops.scaled_dot_product_attention(q, k, v, mask, causal=self.causal)
        return self.outer(y.transpose(0, 2, 1, 3).reshape(batch, time, size))


class LSTM(Module):
    """A long short-term memory over [time, batch, inputs], as one loop of the program: (outputs, (h, c))."""

    def __init__(self, inputs, size, dtype="f32"):
        _size("LSTM", inputs=inputs, size=size)
        bound = 1.0 / math.sqrt(size)
        self.w = Parameter(init.uniform((inputs, 4 * size), -bound, bound, dtype))
        self.u = Parameter(init.uniform((size, 4 * size), -bound, bound, dtype))
        self.b = Parameter(zeros((4 * size,), dtype))
        self.size = size

    def forward(self, x, state=None):
        from .._control import scan

        if state is None:
            state = (zeros((x.shape[1], self.size), x.dtype), zeros((x.shape[1], self.size), x.dtype))
        projected = _ops.linear(x, self.w, self.b)

        def cell(carry, gates):
            h, c = carry
            i, f, g, o = split(gates + _ops.matmul(h, self.u), 4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            return (h, c), h

        state, outputs = scan(cell, state, projected)
        return outputs, state


class _Recurrent(Module):
    """Layers of one kind over [batch, time, inputs], one upon the other, with PyTorch's weights: (outputs, last states)."""

    _gates = 1
    _settings = {}

    def __init__(self, inputs, size, layers=1, bidirectional=False, bias=True, dtype="f32"):
        _size(type(self).__name__, inputs=inputs, size=size, layers=layers)
        bound, self.weights = 1.0 / math.sqrt(size), []
        directions = 2 if bidirectional else 1
        for layer in range(layers):
            features = inputs if layer == 0 else directions * size
            shapes = [(self._gates * size, features), (self._gates * size, size)] + [(self._gates * size,)] * (2 if bias else 0)
            for _ in range(directions):
                self.weights += [Parameter(init.uniform(shape, -bound, bound, dtype)) for shape in shapes]
        self.size, self.layers, self.bidirectional, self.bias = size, layers, bidirectional, bias

    def forward(self, x, state=None):
        how = dict(layers=self.layers, bidirectional=self.bidirectional, bias=self.bias, **self._settings)
        return self._op(x, self.weights, state, **how)


class RNN(_Recurrent):
    """Elman's layers: h' = tanh(W x + b + U h + c), or relu in tanh's place."""

    def __init__(self, inputs, size, layers=1, bidirectional=False, bias=True, activation="tanh", dtype="f32"):
        super().__init__(inputs, size, layers, bidirectional, bias, dtype)
        if activation not in ("tanh", "relu"):
            raise InvalidArgument("RNN: activation is %r; it is 'tanh' or 'relu'" % (activation,))
        self._settings = {"activation": activation}

    _op = staticmethod(_ops.rnn)


class GRU(_Recurrent):
    """Gated recurrent units (Cho et al. 2014); the reset comes behind the hidden product, as in PyTorch."""

    _gates = 3

    _op = staticmethod(_ops.gru)


named_functions(globals(), [name for name in list(globals()) if getattr(globals()[name], "__module__", None) == __name__])
