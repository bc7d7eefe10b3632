"""Optimizers of the C library, schedules, clipping and moving averages.

optimizer = wf.optim.AdamW(model, lr=wf.optim.cosine(3e-4, steps=1000, warmup=50))
with wf.step():
    loss = wf.nn.cross_entropy(model(x), y).keep()
    optimizer.step(loss)
"""

from ctypes import c_double, c_int32, c_int64, c_size_t, c_uint32, c_void_p

from . import _call, files
from ._call import Handle, bind, byref, check, done, handle_class, handles, now, struct_of, structs, text_of
from ._context import evaluate, start, step as _step
from ._errors import InvalidArgument, InvalidType, named_functions
from ._more import zeros
from ._ops import amp_non_finite_check_and_unscale, amp_update_scale, clip, full
from ._tensor import Parameter, Tensor
from ._wait import blocking

_create = bind("weft_optimizer_create")
_optimizer_step = bind("weft_optimizer_step_groups")
_step_if_finite = bind("weft_optimizer_step_if_finite")
_step_clipped = bind("weft_optimizer_step_clipped")
_clip = bind("weft_clip_by_global_norm")
_rate = bind("weft_schedule_rate")
_state = bind("weft_optimizer_state")
_whole_state = bind("weft_optimizer_whole_state")
_load = bind("weft_optimizer_load")
_load_from = bind("weft_optimizer_load_from")
_Handle = handle_class("OptimizerHandle", _call.quick("weft_optimizer_release", None))
_KINDS = ("constant", "linear", "cosine", "step", "exponential", "one_cycle")  # weft_schedule_kind


class Optimizer:
    """The base of all optimizers. `params` is a module, a list of parameters, or a list of groups: dicts with "params" and
    settings of their own. With a `job` (wf.job.Job) each step takes the mean of the gradients of all its processes first; with
    `shard_state` each process keeps its part of the state alone (ZeRO-1)."""

    _kind = None  # the C library's name; by default the class's in small letters

    def __init__(self, params, lr, job=None, shard_state=False, **defaults):
        self.lr, self.count, self.job = lr, 0, job
        self.params, self._rates = [], []
        group_of, settings = [], []
        for number, group in enumerate(_groups(params)):
            own = {**defaults, **{k: v for k, v in group.items() if k not in ("params", "lr")}}
            unknown = set(own) - set(defaults)
            if unknown:
                raise InvalidType(
                    "%s: groups have no setting %s; there are %s" % (type(self).__name__, sorted(unknown), ["lr", *defaults])
                )
            tensors = list(group["params"])
            settings += [_setting(type(self).__name__, name, value, number) for name, value in own.items()]
            self.params += tensors
            self._rates.append(group.get("lr"))
            group_of += [number] * len(tensors)
        if now.body is None:
            # First values that are only recorded would be part of the first step, whose program is then another than those of
            # the later ones; and a step that Ctrl-C ends gives parameters the values before it, which must be there.
            evaluate(*self.params, wait=False)
        array, count = handles(self.params)
        self._handle = _Handle()
        options = struct_of(
            "weft_optimizer_options",
            settings=structs(settings),
            setting_count=len(settings),
            group_of=(c_int32 * count.value)(*group_of),
            group_of_count=count.value,
            group_count=len(self._rates),
            job=None if job is None else job._h,
            shard_state=int(bool(shard_state)),
        )
        kind = (self._kind or type(self).__name__.lower()).encode()
        check(
            blocking(
                _create, now.context or start(), kind, c_size_t(len(kind)), array, count, options, byref(self._handle)
            )
        )

    def step(self, of, lr=None, max_norm=None):
        """One update: of a loss, whose gradients are taken here, or of gradients (a list, or a dict by name from
        value_and_grad). With max_norm they are clipped as clip_by_global_norm does, over the processes of the job if there is
        one, and their norm before is returned."""
        if isinstance(of, Tensor):
            from ._function import gradients

            if now.scope is None:
                with _step(sync=False):  # The gradients die with the step, whoever holds them.
                    norm = self._update(gradients(of, self.params), lr, max_norm=max_norm)
                    return norm if norm is None else norm.keep()
            return self._update(gradients(of, self.params), lr, max_norm=max_norm)
        return self._update(of, lr, max_norm=max_norm)

    def _update(self, grads, lr, found=None, max_norm=None):
        grads = list(grads.values()) if isinstance(grads, dict) else list(grads)
        if len(grads) != len(self.params):
            raise InvalidArgument("step: %d gradients for %d parameters" % (len(grads), len(self.params)))
        array, count = handles(grads)
        rates = [own if own is not None and lr is None else self.lr if lr is None else lr for own in self._rates]
        rates = [_call.doubles(rate(self.count) if callable(rate) else rate, "step", "lr").value for rate in rates]
        _call.mark()
        given = (self._handle, array, count, (c_double * len(rates))(*rates), c_size_t(len(rates)))
        norm = None
        if max_norm is not None:
            norm = Handle()
            most = _call.doubles(max_norm, "step", "max_norm")
            check(_step_clipped(*given, None if found is None else found._h, most, byref(norm)))
        else:
            check(_optimizer_step(*given) if found is None else _step_if_finite(*given, found._h))
        self.count += 1
        return None if norm is None else done(norm)

    @property
    def rate(self):
        """The learning rate of the next step."""
        return self.lr(self.count) if callable(self.lr) else self.lr

    def _weft_tree(self, state_of=_state):
        tree, state = files.new_tree(), files.Tree()
        files.add(tree, 0, "count", self.count)
        check(blocking(state_of, self._handle, byref(state)))
        files.add(tree, 0, "state", _Whole(state))
        return tree

    def state_dict(self):
        """The count of steps, and the state: kind, step and tensors, as the C library has it."""
        return files.value_of(self._weft_tree())

    def whole_state_dict(self):
        """The state with all parts of all processes, each of which calls this: any number of processes goes on from it."""
        return files.value_of(self._weft_tree(_whole_state))

    def load_state_dict(self, state):
        """Goes on from a state: the same kind, and parameters of the same shapes."""
        tree = files.new_tree()
        for key, part in state["state"].items():
            files.add(tree, 0, key, part)
        check(_load(self._handle, tree, c_uint32(0)))
        self.count = int(state["count"])

    def load_from(self, reader, path="optimizer"):
        """Goes on from a state in a file, by a wf.files.Reader: with `shard_state` its own parts are all that is read."""
        check(blocking(_load_from, self._handle, reader._h, *text_of(path + ".state")), file=True)
        self.count = int(self.state_dict()["state"]["step"])


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


def _setting(optimizer, name, value, group):
    """One setting for C, with the memory of its name."""
    key = name.encode()
    number = _call.doubles(value, optimizer, name).value
    return struct_of("weft_optimizer_setting", name=key, name_length=len(key), value=number, group=group)


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum and Nesterov's variant."""

    def __init__(
        self, params, lr, momentum=0.0, weight_decay=0.0, nesterov=False, dampening=0.0, maximize=False,
        *, job=None, shard_state=False
    ):
        settings = dict(momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)
        super().__init__(
            params, lr, **settings, dampening=dampening, maximize=maximize, job=job, shard_state=shard_state
        )


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015), and AMSGrad (Reddi et al. 2018)."""

    def __init__(
        self, params, lr=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.0, amsgrad=False, maximize=False,
        *, job=None, shard_state=False
    ):
        settings = dict(beta1=beta1, beta2=beta2, epsilon=epsilon, weight_decay=weight_decay)
        super().__init__(params, lr, **settings, amsgrad=amsgrad, maximize=maximize, job=job, shard_state=shard_state)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    def __init__(
        self, params, lr=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.01, amsgrad=False, maximize=False,
        *, job=None, shard_state=False
    ):
        super().__init__(
            params, lr, beta1, beta2, epsilon, weight_decay, amsgrad, maximize, job=job, shard_state=shard_state
        )


class Adamax(Optimizer):
    """Adam by the largest gradient (Kingma and Ba 2015)."""

    def __init__(
        self, params, lr=2e-3, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.0, maximize=False,
        *, job=None, shard_state=False
    ):
        settings = dict(beta1=beta1, beta2=beta2, epsilon=epsilon, weight_decay=weight_decay)
        super().__init__(params, lr, **settings, maximize=maximize, job=job, shard_state=shard_state)


class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat 2016)."""

    def __init__(
        self,
        params,
        lr=2e-3,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-8,
        weight_decay=0.0,
        momentum_decay=4e-3,
        decoupled=False,
        maximize=False,
        *,
        job=None,
        shard_state=False,
    ):
        settings = dict(beta1=beta1, beta2=beta2, epsilon=epsilon, weight_decay=weight_decay)
        super().__init__(
            params, lr, **settings, momentum_decay=momentum_decay, decoupled=decoupled, maximize=maximize,
            job=job, shard_state=shard_state
        )


class RAdam(Optimizer):
    """Adam whose variance is rectified in the first steps (Liu et al. 2020)."""

    def __init__(
        self, params, lr=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.0, decoupled=False, maximize=False,
        *, job=None, shard_state=False
    ):
        settings = dict(beta1=beta1, beta2=beta2, epsilon=epsilon, weight_decay=weight_decay)
        super().__init__(
            params, lr, **settings, decoupled=decoupled, maximize=maximize, job=job, shard_state=shard_state
        )


class RMSprop(Optimizer):
    """Gradients over the root of their mean square (Hinton 2012)."""

    def __init__(
        self, params, lr=1e-2, alpha=0.99, epsilon=1e-8, weight_decay=0.0, momentum=0.0, centered=False, maximize=False,
        *, job=None, shard_state=False
    ):
        settings = dict(alpha=alpha, epsilon=epsilon, weight_decay=weight_decay, momentum=momentum)
        super().__init__(params, lr, **settings, centered=centered, maximize=maximize, job=job, shard_state=shard_state)


class Adagrad(Optimizer):
    """Gradients over the root of the sum of all their squares (Duchi et al. 2011)."""

    def __init__(
        self, params, lr=1e-2, lr_decay=0.0, weight_decay=0.0, initial=0.0, epsilon=1e-10, maximize=False,
        *, job=None, shard_state=False
    ):
        settings = dict(lr_decay=lr_decay, weight_decay=weight_decay, initial=initial, epsilon=epsilon)
        super().__init__(params, lr, **settings, maximize=maximize, job=job, shard_state=shard_state)


class Adadelta(Optimizer):
    """Steps in the units of the parameters (Zeiler 2012)."""

    def __init__(
        self, params, lr=1.0, rho=0.9, epsilon=1e-6, weight_decay=0.0, maximize=False, *, job=None, shard_state=False
    ):
        super().__init__(
            params, lr, rho=rho, epsilon=epsilon, weight_decay=weight_decay, maximize=maximize,
            job=job, shard_state=shard_state
        )


class Lion(Optimizer):
    """The sign of a momentum (Chen et al. 2023)."""

    def __init__(
        self, params, lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0, maximize=False, *, job=None, shard_state=False
    ):
        super().__init__(
            params, lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, maximize=maximize,
            job=job, shard_state=shard_state
        )


class Rprop(Optimizer):
    """Step sizes by signs alone (Riedmiller and Braun 1993)."""

    def __init__(
        self, params, lr=1e-2, eta_minus=0.5, eta_plus=1.2, step_min=1e-6, step_max=50.0, maximize=False,
        *, job=None, shard_state=False
    ):
        settings = dict(eta_minus=eta_minus, eta_plus=eta_plus, step_min=step_min, step_max=step_max)
        super().__init__(params, lr, **settings, maximize=maximize, job=job, shard_state=shard_state)


class ASGD(Optimizer):
    """SGD whose state has the average of all parameters on the way (Polyak and Juditsky 1992)."""

    def __init__(
        self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0.0, maximize=False,
        *, job=None, shard_state=False
    ):
        super().__init__(
            params, lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, maximize=maximize,
            job=job, shard_state=shard_state
        )


class LAMB(Optimizer):
    """Adam with a rate for each parameter by its length (You et al. 2020)."""

    def __init__(
        self, params, lr=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-6, weight_decay=0.0, maximize=False,
        *, job=None, shard_state=False
    ):
        settings = dict(beta1=beta1, beta2=beta2, epsilon=epsilon, weight_decay=weight_decay)
        super().__init__(params, lr, **settings, maximize=maximize, job=job, shard_state=shard_state)


class Adafactor(Optimizer):
    """Mean squares of rows and columns in the place of all (Shazeer and Stern 2018)."""

    def __init__(
        self,
        params,
        lr=1e-2,
        beta2_decay=-0.8,
        epsilon1=0.0,
        epsilon2=1e-3,
        clip=1.0,
        weight_decay=0.0,
        maximize=False,
        *,
        job=None,
        shard_state=False,
    ):
        settings = dict(beta2_decay=beta2_decay, epsilon1=epsilon1, epsilon2=epsilon2, clip=clip)
        super().__init__(
            params, lr, **settings, weight_decay=weight_decay, maximize=maximize, job=job, shard_state=shard_state
        )


class Muon(Optimizer):
    """Momentum made orthogonal, of matrices (Jordan et al. 2024)."""

    def __init__(
        self, params, lr=1e-3, momentum=0.95, nesterov=True, epsilon=1e-7, weight_decay=0.1, maximize=False,
        *, job=None, shard_state=False
    ):
        settings = dict(momentum=momentum, nesterov=nesterov, epsilon=epsilon, weight_decay=weight_decay)
        super().__init__(params, lr, **settings, maximize=maximize, job=job, shard_state=shard_state)


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


def clip_by_value(grads, limit):
    """All gradients with each element held between -limit and limit, as PyTorch's clip_grad_value_."""
    limit = _call.doubles(limit, "clip_by_value", "limit").value
    if not limit >= 0:
        raise InvalidArgument("clip_by_value: limit is %r; it must be 0 or more" % limit)
    held = [None if g is None else clip(g, -limit, limit) for g in (grads.values() if isinstance(grads, dict) else grads)]
    return dict(zip(grads, held)) if isinstance(grads, dict) else held


class GradScaler:
    """The scale of a loss of 16-bit arithmetic, so that small gradients do not vanish: it shrinks after a step whose gradients were not
    finite, which changes nothing then, and grows after many that were. Nothing is read on the host.

    scaler = wf.optim.GradScaler()
    with wf.step():
        scaler.step(optimizer, nn.mse(model(x), y))
    """

    def __init__(self, scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        number = _call.doubles(scale, "GradScaler", "scale").value
        if not number > 0:
            raise InvalidArgument("GradScaler: scale is %r; it must be above 0" % (scale,))
        self._rule = dict(growth_factor=growth_factor, backoff_factor=backoff_factor, growth_interval=growth_interval)
        self.value = Parameter(full((), number, dtype="f32"), trainable=False)
        self._tracker = Parameter(zeros((), "i32"), trainable=False)
        amp_update_scale(self.value, self._tracker, self.value, **self._rule)  # says here what is wrong with the rule
        if now.body is None:
            evaluate(self.value, self._tracker, wait=False)

    def scale(self, loss):
        """The loss times the scale, in the loss's type."""
        return loss * self.value.astype(loss.dtype)

    def unscale(self, grads):
        """(gradients of the loss itself, found): found is above 0 where one was not finite. To be clipped, for example, before
        step."""
        found, inverse = zeros((), "f32"), 1.0 / self.value
        values, made = list(grads.values()) if isinstance(grads, dict) else list(grads), []
        for grad in values:
            if grad is not None:
                grad, found = amp_non_finite_check_and_unscale(grad, found, inverse)
            made.append(grad)
        return (dict(zip(grads, made)) if isinstance(grads, dict) else made), found

    def step(self, optimizer, of, lr=None, found=None):
        """One update, and the next scale: of a loss, which is scaled here; of gradients of the scaled loss; or, with found, of what
        unscale gave."""
        from ._function import gradients

        if now.scope is None:
            with _step(sync=False):
                return self.step(optimizer, of, lr, found)
        grads = gradients(self.scale(of), optimizer.params) if isinstance(of, Tensor) else of
        if found is None:
            grads, found = self.unscale(grads)
        if optimizer.job is not None:  # One process's found is that of all, so that their scales stay the same.
            found = optimizer.job.reduce([found], "sum")[0]
        optimizer._update(grads, lr, found)
        scale, tracker = amp_update_scale(self.value, self._tracker, found, **self._rule)
        self.value.assign(scale)
        self._tracker.assign(tracker)

    def state_dict(self):
        return {"scale": self.value, "tracker": self._tracker}

    def load_state_dict(self, state):
        self.value.assign(state["scale"])
        self._tracker.assign(state["tracker"])


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
