"""Optimizers of the C library, schedules, clipping and moving averages.

optimizer = wf.optim.AdamW(model, lr=wf.optim.cosine(3e-4, steps=1000, warmup=50))
with wf.step():
    loss = wf.nn.cross_entropy(model(x), y).keep()
    optimizer.step(loss)
"""

from ctypes import c_double, c_int32, c_int64, c_size_t, c_uint32, c_void_p

from . import _call, files
from ._call import Handle, bind, byref, check, done, handle_class, handles, now, struct_of, structs
from ._context import evaluate, start, step as _step
from ._errors import InvalidArgument, InvalidType, named_functions
from ._more import zeros
from ._tensor import Parameter, Tensor
from ._wait import blocking

_create = {
    "sgd": bind("weft_sgd_create_groups"),
    "adam": bind("weft_adam_create_groups"),
    "adamw": bind("weft_adamw_create_groups"),
}
_optimizer_step = bind("weft_optimizer_step_groups")
_clip = bind("weft_clip_by_global_norm")
_rate = bind("weft_schedule_rate")
_state = bind("weft_optimizer_state")
_load = bind("weft_optimizer_load")
_Handle = handle_class("OptimizerHandle", _call.quick("weft_optimizer_release", None))
_KINDS = ("constant", "linear", "cosine", "step", "exponential", "one_cycle")  # weft_schedule_kind
# Adam's options set all four bits of `present`: each field counts.
_ALL = 1 | 2 | 4 | 8


class Optimizer:
    """The base of all optimizers. `params` is a module, a list of parameters, or a list of groups: dicts with "params" and
    settings of
    their own."""

    def __init__(self, params, lr, **defaults):
        self.lr, self.count = lr, 0
        self.params, self._rates = [], []
        group_of, options = [], []
        for number, group in enumerate(_groups(params)):
            settings = {**defaults, **{k: v for k, v in group.items() if k not in ("params", "lr")}}
            unknown = set(settings) - set(defaults)
            if unknown:
                raise InvalidType(
                    "%s: groups have no setting %s; there are %s" % (type(self).__name__, sorted(unknown), ["lr", *defaults])
                )
            tensors = list(group["params"])
            kind, struct = self._options(settings)
            self.params += tensors
            self._rates.append(group.get("lr"))
            group_of += [number] * len(tensors)
            options.append(struct)
        if now.body is None:
            # First values that are only recorded would be part of the first step, whose program is then another than those of
            # the later ones; and a step that Ctrl-C ends gives parameters the values before it, which must be there.
            evaluate(*self.params, wait=False)
        array, count = handles(self.params)
        self._handle = _Handle()
        of = (c_int32 * count.value)(*group_of)
        groups = c_size_t(len(options))
        check(blocking(_create[kind], now.context or start(), array, of, count, structs(options), groups, byref(self._handle)))

    def _options(self, settings):
        raise NotImplementedError

    def step(self, of, lr=None):
        """One update: of a loss, whose gradients are taken here, or of gradients (a list, or a dict by name from
        value_and_grad)."""
        if isinstance(of, Tensor):
            from ._function import gradients

            if now.scope is None:
                with _step(sync=False):  # The gradients die with the step, whoever holds them.
                    self._update(gradients(of, self.params), lr)
            else:
                self._update(gradients(of, self.params), lr)
        else:
            self._update(of, lr)

    def _update(self, grads, lr):
        grads = list(grads.values()) if isinstance(grads, dict) else list(grads)
        if len(grads) != len(self.params):
            raise InvalidArgument("step: %d gradients for %d parameters" % (len(grads), len(self.params)))
        array, count = handles(grads)
        rates = [own if own is not None and lr is None else self.lr if lr is None else lr for own in self._rates]
        rates = [_call.doubles(rate(self.count) if callable(rate) else rate, "step", "lr").value for rate in rates]
        _call.mark()
        check(_optimizer_step(self._handle, array, count, (c_double * len(rates))(*rates), c_size_t(len(rates))))
        self.count += 1

    @property
    def rate(self):
        """The learning rate of the next step."""
        return self.lr(self.count) if callable(self.lr) else self.lr

    def _weft_tree(self):
        tree, state = files.new_tree(), files.Tree()
        files.add(tree, 0, "count", self.count)
        check(_state(self._handle, byref(state)))
        files.add(tree, 0, "state", _Whole(state))
        return tree

    def state_dict(self):
        """The count of steps, and the state: kind, step and tensors, as the C library has it."""
        return files.value_of(self._weft_tree())

    def load_state_dict(self, state):
        """Goes on from a state: the same kind, and parameters of the same shapes."""
        tree = files.new_tree()
        for key, part in state["state"].items():
            files.add(tree, 0, key, part)
        check(_load(self._handle, tree, c_uint32(0)))
        self.count = int(state["count"])


class _Whole:
    """A tree of C as a part of another."""

    def __init__(self, tree):
        self._tree = tree

    def _weft_tree(self):
        return self._tree


def _groups(params):
    if hasattr(params, "parameters"):
        params = params.parameters()
    params = (
        list(params.values())
        if isinstance(params, dict) and "params" not in params
        else list(params)
        if not isinstance(params, dict)
        else [params]
    )
    if not params:
        raise InvalidArgument("an optimizer needs parameters, and there are none")
    groups = params if isinstance(params[0], dict) else [{"params": params}]
    for group in groups:
        if hasattr(group["params"], "parameters"):
            group = group["params"] = group["params"].parameters()
        for p in group["params"] if isinstance(group, dict) else group:
            if not isinstance(p, Tensor):
                raise InvalidType("an optimizer takes parameters, and one is %s" % type(p).__name__)
            if not isinstance(p, Parameter):
                p.require_grad()
    return groups


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum and Nesterov's variant."""

    def __init__(self, params, lr, momentum=0.0, weight_decay=0.0, nesterov=False):
        super().__init__(params, lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)

    def _options(self, s):
        return "sgd", struct_of(
            "weft_sgd_options", momentum=s["momentum"], weight_decay=s["weight_decay"], nesterov=int(s["nesterov"])
        )


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015)."""

    _kind = "adam"

    def __init__(self, params, lr=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.0):
        super().__init__(params, lr, beta1=beta1, beta2=beta2, epsilon=epsilon, weight_decay=weight_decay)

    def _options(self, s):
        return self._kind, struct_of("weft_adam_options", **{k: float(v) for k, v in s.items()}, present=_ALL)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    _kind = "adamw"

    def __init__(self, params, lr=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.01):
        super().__init__(params, lr, beta1, beta2, epsilon, weight_decay)


def warmup(schedule, steps):
    """A rate or schedule that grows from 0 over so many steps."""
    steps = _call.whole(steps, "warmup", "steps")
    return lambda n: (schedule(n) if callable(schedule) else schedule) * min((n + 1) / steps, 1.0) if steps else schedule


def _schedule(kind, rate, **fields):
    """A function from the step to its rate, which the C library says; what is wrong with it is said here, not at the first step."""
    packed = struct_of("weft_schedule_options", kind=_KINDS.index(kind), rate=rate, **fields)
    out = c_double()

    def schedule(step):
        check(_rate(packed, c_int64(step), byref(out)))
        return out.value

    schedule(0)
    return schedule


def cosine(rate, steps, warmup=0, end=0.0):
    """Half a wave from rate down to end, behind a linear warm-up.

    >>> [round(wf.optim.cosine(1.0, steps=4)(n), 3) for n in range(5)]
    [1.0, 0.854, 0.5, 0.146, 0.0]
    """
    return _schedule("cosine", rate, steps=steps, warmup=warmup, end=end)


def linear(rate, steps, warmup=0, end=0.0):
    """A line from rate down to end, behind a linear warm-up.

    >>> [wf.optim.linear(1.0, steps=4)(n) for n in range(5)]
    [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    return _schedule("linear", rate, steps=steps, warmup=warmup, end=end)


def step_decay(rate, every, factor=0.1, warmup=0):
    """The rate times factor, once more after every so many steps behind a linear warm-up."""
    return _schedule("step", rate, every=every, factor=factor, warmup=warmup)


def exponential(rate, factor, warmup=0):
    """The rate times factor at every step behind a linear warm-up."""
    return _schedule("exponential", rate, factor=factor, warmup=warmup)


def one_cycle(rate, steps, start=0.3, divide=25.0, final=1e4):
    """Up to rate over a share of the steps and down to almost nothing, both by cosines (Smith 2018), as PyTorch's
    OneCycleLR."""
    return _schedule("one_cycle", rate, steps=steps, start=start, divide=divide, final_divide=final)


def clip_by_global_norm(grads, max_norm):
    """(gradients, norm): all gradients times one factor, so that together they are no longer than max_norm. Nothing is
    read."""
    values = list(grads.values()) if isinstance(grads, dict) else list(grads)
    array, count = handles(values)
    out, norm = (c_void_p * count.value)(), Handle()
    check(_clip(_call.mark(), array, count, _call.doubles(max_norm, "clip_by_global_norm", "max_norm"), out, byref(norm)))
    clipped = [None if h is None else done(Handle(h)) for h in out]
    return (dict(zip(grads, clipped)) if isinstance(grads, dict) else clipped), done(norm)


class EMA:
    """Moving averages of a module's parameters: average = decay * average + (1 - decay) * parameter."""

    def __init__(self, module, decay=0.999):
        self.decay = _call.doubles(decay, "EMA", "decay").value
        if not 0 <= self.decay <= 1:
            raise InvalidArgument("EMA: decay is %r; it must be from 0 to 1" % (decay,))
        self._names = [n for n, _ in module.named_parameters()]
        self._params = module.parameters()
        self.averages = []
        for p in self._params:
            average = Parameter(zeros(p.shape, p.dtype), trainable=False)
            average.assign(p.detach())
            self.averages.append(average)

    def update(self):
        """To be called in a step, behind the optimizer's."""
        for average, p in zip(self.averages, self._params):
            average.assign(average * self.decay + p.detach() * (1 - self.decay))

    def state_dict(self):
        return dict(zip(self._names, self.averages))

    def swap(self):
        """The averages into the module and its parameters here; a second call takes that back."""
        for average, p in zip(self.averages, self._params):
            kept = p.copy()
            p.assign(average)
            average.assign(kept)


named_functions(globals(), [name for name in list(globals()) if getattr(globals()[name], "__module__", None) == __name__])
