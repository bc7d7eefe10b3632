"""Module: a class whose attributes are parameters, tensors, modules, lists and dicts of them, and settings."""

from .._errors import InvalidArgument
from .._tensor import Parameter, Tensor


class Module:
    """A layer or a network. Its parameters are found by looking at its attributes; nothing is registered.

    >>> class Line(wf.nn.Module):
    ...     def __init__(self):
    ...         self.w, self.b = wf.Parameter(2.0), wf.Parameter(1.0)
    ...     def forward(self, x):
    ...         return self.w * x + self.b
    >>> Line()(wf.tensor(3.0)).item()
    7.0
    """

    training = True

    def forward(self, *args, **kwargs):
        raise NotImplementedError("%s has no forward" % type(self).__name__)

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    # Transforms need the attributes as a nested value, and a module of the same class with other tensors.

    def _weft_children(self):
        names = tuple(sorted(self.__dict__))
        return names, [self.__dict__[n] for n in names]

    def _weft_rebuild(self, names, values):
        made = object.__new__(type(self))
        made.__dict__.update(zip(names, values))
        return made

    def _weft_gradients(self, grads):
        return {name: g for (name, _), g in zip(self.named_tensors(), grads) if g is not None}

    def named_tensors(self):
        """(name, tensor) of every parameter and buffer; the names have dots."""
        return list(_named(self, ""))

    def named_parameters(self):
        """(name, parameter) of what is trained."""
        return [(n, t) for n, t in self.named_tensors() if isinstance(t, Parameter) and t.trainable]

    def parameters(self):
        return [t for _, t in self.named_parameters()]

    def modules(self):
        """This module and all inside it."""
        return list(_modules(self))

    def train(self, on=True):
        """Training behaviour (dropout, batch statistics) on or off, here and inside; gives the module."""
        for module in self.modules():
            module.training = bool(on)
        return self

    def eval(self):
        return self.train(False)

    def state_dict(self):
        """{name: tensor} of parameters and buffers."""
        return dict(self.named_tensors())

    def load_state_dict(self, state, strict=True):
        """Assigns tensors by name (with dots, or in dicts within dicts); a missing, unknown or misshapen one is an error,
        before anything is assigned."""
        from ..files import flat

        own, state = dict(self.named_tensors()), flat(state)
        missing, unknown = sorted(set(own) - set(state)), sorted(set(state) - set(own))
        if strict and (missing or unknown):
            raise InvalidArgument("load_state_dict: missing %s, unknown %s" % (missing or "nothing", unknown or "nothing"))
        for name in set(own) & set(state):
            if tuple(state[name].shape) != own[name].shape:
                raise InvalidArgument(
                    "load_state_dict: %s has shape %s, and should have %s"
                    % (name, list(state[name].shape), list(own[name].shape))
                )
        for name in own:
            if name in state:
                own[name].assign(state[name])

    def __repr__(self):
        parts = [
            "%s=%s" % (n, "%s%s" % (v.dtype, list(v.shape)) if isinstance(v, Tensor) else repr(v))
            for n, v in self.__dict__.items()
            if not n.startswith("_")
        ]
        return "%s(%s)" % (type(self).__name__, ", ".join(parts))


def _named(value, prefix):
    if isinstance(value, Tensor):
        yield prefix, value
        return
    for name, part in _parts(value):
        yield from _named(part, "%s.%s" % (prefix, name) if prefix else str(name))


def _parts(value):
    if isinstance(value, Module):
        return list(zip(*value._weft_children()))
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    return []


def _modules(value):
    if isinstance(value, Module):
        yield value
    if not isinstance(value, Tensor):
        for _, part in _parts(value):
            yield from _modules(part)
