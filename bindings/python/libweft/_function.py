"""Functions as values: traced, differentiated, mapped, saved; loops and branches inside the program."""

import ctypes
import functools
import struct

from . import _call, _trees
from ._abi import STRUCTS
from ._call import (
    Handle,
    bind,
    blob_text,
    byref,
    c_int64,
    c_size_t,
    c_void_p,
    check,
    done,
    error_of,
    handle_class,
    handles,
    now,
    quick,
    struct_of,
    text_of,
)
from ._context import _ContextHandle, start
from ._convert import tensor
from ._dtypes import of_number
from ._errors import InvalidArgument, InvalidType, OutOfRange
from ._more import axis_of
from ._tensor import Parameter, Tensor
from ._wait import blocking

_begin = bind("weft_function_begin")
_end = bind("weft_function_end")
_abandon = bind("weft_function_abandon")
_call_function = bind("weft_function_call")
_name = quick("weft_function_name")
_inputs = quick("weft_function_inputs")
_results = quick("weft_function_results")
_captures = quick("weft_function_captures")
_text = bind("weft_function_text")
_key = bind("weft_function_key")
_from_stablehlo = bind("weft_function_from_stablehlo")
_save = bind("weft_function_save")
_load = bind("weft_function_load")
_run = bind("weft_function_run")
_compile = bind("weft_function_compile")
_stats = bind("weft_function_stats")
_vmap = bind("weft_function_vmap")
_grad = bind("weft_function_grad")
_vjp = bind("weft_function_vjp")
_jvp = bind("weft_function_jvp")
_checkpoint = bind("weft_function_checkpoint")
_custom_gradient = bind("weft_function_custom_gradient")
_weft_grad = bind("weft_grad")
_Handle = handle_class("FunctionHandle", bind("weft_function_release", None))
NOT_MAPPED = 2**63 - 1
_INFO = STRUCTS["weft_tensor_info"][0]
_KEEP = {"inputs": 0, "products": 1}
_RANDOMNESS = {"different": 0, "same": 1, "error": 2}


def _info(dtype, shape):
    return struct.pack("II32q", dtype.number, len(shape), *shape, *[0] * (32 - len(shape)))


def _ints(values):
    return (None, c_size_t(0)) if values is None else (struct.pack("%dq" % len(values), *values), c_size_t(len(values)))


def _context():
    return now.context or start()


class Function:
    """A program as a value: tensors in, tensors out. `wf.function(f).trace(x)` makes one, `Function.load` reads one.

    >>> f = wf.function(lambda x: (x * x).sum()).trace(wf.zeros((3,)))
    >>> f.grad()(wf.tensor([1.0, 2.0, 3.0])).tolist()
    [2.0, 4.0, 6.0]
    """

    def __init__(self, handle):
        self._h = handle
        self._counts = None

    @classmethod
    def load(cls, path):
        """The function that `save` wrote into a file."""
        handle = _Handle()
        check(blocking(_load, _context(), *text_of(path), byref(handle)), file=True)
        return cls(handle)

    def save(self, path):
        """Writes the function into a file, which appears whole or not at all."""
        check(blocking(_save, self._h, *text_of(path)), file=True)

    def _infos(self, function):
        count = c_size_t()
        check(function(self._h, None, c_size_t(0), byref(count)))
        data = (ctypes.c_char * (_INFO * count.value))()
        check(function(self._h, data, count, byref(count)))
        rows = [struct.unpack_from("II32q", data, i * _INFO) for i in range(count.value)]
        return [(of_number(r[0]), tuple(r[2 : 2 + r[1]])) for r in rows]

    @property
    def name(self):
        blob = c_void_p()
        check(_name(self._h, byref(blob)))
        return blob_text(blob)

    @property
    def inputs(self):
        """[(element type, shape)] of the inputs."""
        return self._infos(_inputs)

    @property
    def results(self):
        """[(element type, shape)] of the results."""
        return self._infos(_results)

    @property
    def captures(self):
        """The tensors around it that the body used, with the values of then."""
        count, capacity = c_size_t(), 16
        while True:
            out = (c_void_p * capacity)()
            error = _captures(self._h, out, c_size_t(capacity), byref(count))
            if not error:
                return [done(Handle(h)) for h in out[: count.value]]
            failure = error_of(error)
            if not isinstance(failure, OutOfRange) or capacity > 1 << 20:
                raise failure
            capacity *= 8

    def has_captures(self):
        error = _captures(self._h, None, c_size_t(0), byref(c_size_t()))
        if error:
            failure = error_of(error)
            if not isinstance(failure, OutOfRange):
                raise failure
        return bool(error)

    def _count(self):
        if self._counts is None:
            self._counts = len(self.results)
        return self._counts

    def _apply(self, function, tensors, *more):
        tensors = [t if isinstance(t, Tensor) else tensor(t) for t in tensors]
        array, count = handles(tensors)
        out, given = (c_void_p * self._count())(), c_size_t()
        check(blocking(function, _call.mark(), self._h, array, count, *more, out, c_size_t(len(out)), byref(given)))
        return [done(Handle(h)) for h in out[: given.value]]

    def call(self, *tensors):
        """The results as a list."""
        return self._apply(_call_function, tensors)

    def __call__(self, *tensors):
        """The result, or a tuple of several; recorded like an operation, and gradients flow through."""
        out = self.call(*tensors)
        return out[0] if len(out) == 1 else tuple(out)

    def run(self, *tensors, donate=()):
        """Launches the function as a program of its own; inputs of these numbers give their memory up."""
        numbers, count = _ints(list(donate))
        out = self._apply(_run, tensors, numbers, count)
        return out[0] if len(out) == 1 else tuple(out)

    def compile(self, donate=()):
        """Makes the program that `run` launches, now."""
        check(blocking(_compile, _context(), self._h, None, None, c_size_t(0), *_ints(list(donate)), None))
        return self

    def stats(self):
        """The cost of a run: flops, bytes, kernels."""
        out = _call.empty_struct("weft_program_stats")
        check(blocking(_stats, _context(), self._h, None, None, c_size_t(0), out))
        return {
            k: _call.field(out, "weft_program_stats", k)
            for k in STRUCTS["weft_program_stats"][1]
            if k not in ("struct_size", "next")
        }

    def _blob(self, function, *arguments):
        blob = c_void_p()
        check(function(self._h, *arguments, byref(blob)))
        return blob_text(blob)

    def text(self, format="ir"):
        """The program as text: "ir" or "stablehlo"."""
        return self._blob(_text, _call.enumerator(format, {"ir": 0, "stablehlo": 1}, "text", "format"))

    @property
    def key(self):
        return self._blob(_key)

    def _derived(self, function, *arguments):
        handle = _Handle()
        check(function(_context(), self._h, *arguments, byref(handle)))
        return Function(handle)

    def grad(self, wrt=None, values=False):
        """The gradient of the first result, with `values` behind the function's own results."""
        return self._derived(_grad, *_ints(wrt), struct_of("weft_derivative_options", values=1 if values else 0))

    def vjp(self, wrt=None, values=False):
        """A function of the inputs and one cotangent for each float result; it gives the inputs' cotangents."""
        return self._derived(_vjp, *_ints(wrt), struct_of("weft_derivative_options", values=1 if values else 0))

    def jvp(self, wrt=None, values=False):
        """A function of the inputs and one tangent for each of wrt; it gives the tangents of the results."""
        return self._derived(_jvp, *_ints(wrt), struct_of("weft_derivative_options", values=1 if values else 0))

    def vmap(self, size, in_axes=None, out_axes=None, randomness="different"):
        """The function of many examples; None in a list of axes: all examples share it."""
        axes = [None if a is None else [NOT_MAPPED if v is None else v for v in a] for a in (in_axes, out_axes)]
        mode = _call.enumerator(randomness, _RANDOMNESS, "vmap", "randomness")
        return self._derived(
            _vmap, c_int64(size), *_ints(axes[0]), *_ints(axes[1]), struct_of("weft_vmap_options", randomness=mode)
        )

    def checkpoint(self, keep="inputs"):
        """The same function, whose gradient keeps little and computes the rest again."""
        return self._derived(_checkpoint, _call.enumerator(keep, _KEEP, "checkpoint", "keep"))

    def __repr__(self):
        def text(infos):
            return ", ".join("%s%s" % (d, list(s)) for d, s in infos)

        return "<libweft.Function %s: (%s) -> (%s)>" % (self.name, text(self.inputs), text(self.results))


def from_stablehlo(text):
    """The function @main of a StableHLO module, as jax.jit(f).lower(...).as_text() gives it."""
    handle = _Handle()
    check(_from_stablehlo(_context(), *text_of(text), byref(handle)))
    return Function(handle)


class _Body:
    """The body of a function while it is recorded: this thread's context, without a step around it."""

    def __init__(self, name, infos):
        self.handle, self.parameters = _ContextHandle(), (c_void_p * len(infos))()
        check(
            _begin(
                _context(),
                *text_of(_c_name(name)),
                b"".join(_info(*i) for i in infos),
                c_size_t(len(infos)),
                byref(self.handle),
                self.parameters,
            )
        )

    def __enter__(self):
        self.outer = (now.context, now.scope, now.body, getattr(now, "changed", None))
        now.context = now.body = self.handle
        now.scope, now.changed = None, {}
        return self

    def __exit__(self, kind, value, trace):
        now.context, now.scope, now.body, now.changed = self.outer
        if kind is not None:
            _call._error_release(_abandon(self.handle) or 0)

    def end(self, tensors):
        array, count = handles(tensors)
        function = _Handle()
        check(_end(self.handle, array, count, byref(function)))
        return Function(function)


def _c_name(name):
    return "".join(c if c.isalnum() and c.isascii() or c in "_." else "_" for c in name) or "function"


class _Traced:
    """A traced call: the function, how its results nest, and which inputs it assigned to."""

    __slots__ = ("function", "structure", "count", "changed", "captures")


def _trace(function, structure, leaves, name, infos=None):
    """Records function(*args, **kwargs) for leaves of these types."""
    infos = infos or [(t.dtype, t.shape) for t in leaves]
    body = _Body(name, infos)
    with body:
        inside = [done(Handle(h)) for h in body.parameters]
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Parameter):
                inside[i] = _stand_in(leaf, inside[i])
        args, kwargs = _trees.unflatten(structure, inside)
        given = function(*args, **kwargs)
        results, made = _trees.flatten(given)
        changed = [i for i, t in enumerate(inside) if id(t) in now.changed]
        traced = _Traced()
        traced.function = body.end(results + [inside[i] for i in changed])
    traced.structure, traced.count, traced.changed = made, len(results), changed
    traced.captures = traced.function.has_captures()
    return traced


def _stand_in(parameter, inner):
    made = object.__new__(type(parameter))
    made._h = inner._h
    made.trainable = parameter.trainable
    return made


def _name_of(function):
    return getattr(function, "__name__", None) or type(function).__name__


class _Transformed:
    """A function of Python that is traced once for each signature of its arguments.

    What it captures of the tensors around it would be as it was when it was traced; a function that captures is therefore
    traced
    at each call. Modules and tensors that are arguments cost that once."""

    def __init__(self, function, name=None):
        functools.update_wrapper(self, function, updated=())
        self._function, self._cache = function, {}
        self._name = name or _name_of(function)

    def _derive(self, traced, structure, leaves):
        return traced.function

    def _prepared(self, args, kwargs):
        leaves, structure = _trees.flatten((args, kwargs))
        # A body's own context: what is traced inside of it lives as long as it does.
        place = (now.context or start()).value
        key = (place, *_trees.signature(structure, leaves))
        found = self._cache.get(key)
        if found is None:
            traced = _trace(self._function, structure, leaves, self._name)
            found = (traced, self._derive(traced, structure, leaves))
            if not traced.captures:
                self._cache[key] = found
        return leaves, structure, found

    def _finish(self, traced, leaves, results):
        """The function's own results, nested; what it assigned to is assigned."""
        for i, value in zip(traced.changed, results[traced.count :]):
            leaves[i].assign(value)
        return _trees.unflatten(traced.structure, results[: traced.count])

    def __call__(self, *args, **kwargs):
        leaves, _, (traced, function) = self._prepared(args, kwargs)
        return self._finish(traced, leaves, function.call(*leaves))

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def trace(self, *args, **kwargs):
        """The Function for these arguments."""
        return self._prepared(args, kwargs)[2][1]

    @property
    def signatures(self):
        """How many signatures it was traced for."""
        return len(self._cache)


def function(f=None, *, name=None):
    """Makes a function of tensors one program: traced once for each signature (types and shapes of tensors, other arguments).

    Tensors, floats and what nests them (dicts, lists, tuples, modules) may change from call to call; whole numbers, text
    and None are part of
    the program.

    >>> @wf.function
    ... def double(x):
    ...     return {"twice": x * 2}
    >>> double(wf.ones((2,)))["twice"].tolist()
    [2.0, 2.0]
    """
    return (lambda g: _Transformed(g, name)) if f is None else _Transformed(f, name)


jit = function


class _Checkpointed(_Transformed):
    def __init__(self, f, keep):
        super().__init__(f)
        self._keep = keep

    def _derive(self, traced, structure, leaves):
        return traced.function.checkpoint(self._keep)


def checkpoint(f=None, *, keep="inputs"):
    """The same function, whose gradient keeps its inputs alone (or, with "products", matrix products too) and computes the
    rest again."""
    return (lambda g: _Checkpointed(g, keep)) if f is None else _Checkpointed(f, keep)


def _positions(structure, argnums):
    """[(numbers of the leaves, structure)] of the chosen arguments."""
    parts, at, spans = structure[2][0][2], 0, []
    for part in parts:
        size = _trees.count(part)
        spans.append((list(range(at, at + size)), part))
        at += size
    try:
        return [spans[n] for n in argnums]
    except IndexError:
        raise InvalidArgument(
            "argnums has %s, and the function was called with %d arguments" % (list(argnums), len(parts))
        ) from None


class _Gradient(_Transformed):
    def __init__(self, f, argnums, has_aux, value):
        super().__init__(f)
        self._one = not isinstance(argnums, (list, tuple))
        self._argnums = tuple(_call.whole(n, "grad", "argnums") for n in ([argnums] if self._one else argnums))
        self._aux, self._value = has_aux, value

    def _wanted(self, structure, leaves):
        parts = _positions(structure, self._argnums)
        return parts, [
            i
            for part, _ in parts
            for i in part
            if not (isinstance(leaves[i], Parameter) and not leaves[i].trainable)
            and (leaves[i].dtype.is_float or leaves[i].dtype.is_complex)
        ]

    def _derive(self, traced, structure, leaves):
        if traced.count < 1:
            raise InvalidType("%s gave no tensor to differentiate" % self._name)
        wrt = self._wanted(structure, leaves)[1]
        if not wrt:
            raise InvalidType("%s: the arguments %s have no floats to differentiate by" % (self._name, list(self._argnums)))
        return traced.function.grad(wrt, values=True)

    def __call__(self, *args, **kwargs):
        leaves, structure, (traced, derived) = self._prepared(args, kwargs)
        parts, wrt = self._wanted(structure, leaves)
        results = derived.call(*leaves)
        own = traced.count + len(traced.changed)
        value = self._finish(traced, leaves, results[:own])
        by_leaf = dict(zip(wrt, results[own:]))
        grads = [
            _gradients_of(args[n], part, [by_leaf.get(i) for i in numbers]) for n, (numbers, part) in zip(self._argnums, parts)
        ]
        grads = grads[0] if self._one else tuple(grads)
        if self._value:
            return value, grads
        return (grads, value[1]) if self._aux else grads


def _gradients_of(argument_, part, grads):
    if hasattr(argument_, "named_parameters"):
        return argument_._weft_gradients(grads)
    return _trees.unflatten(part, grads)


def grad(f, argnums=0, has_aux=False):
    """The gradient of f's result, a scalar, by the arguments of these numbers; by a module, a dict with a gradient for
    each parameter.

    >>> wf.grad(lambda x: x ** 3)(2.0).item()
    12.0
    """
    return _Gradient(f, argnums, has_aux, False)


def value_and_grad(f, argnums=0, has_aux=False):
    """The value and the gradient. With has_aux f gives (scalar, anything else), and so does the value."""
    return _Gradient(f, argnums, has_aux, True)


class _Mapped(_Transformed):
    def __init__(self, f, in_axes, out_axes, randomness):
        super().__init__(f)
        self._in, self._out, self._randomness = in_axes, out_axes, randomness

    def _axes(self, args, kwargs):
        """For each leaf the axis of the examples, or None."""
        axes = self._in if isinstance(self._in, (list, tuple)) else [self._in] * len(args)
        if len(axes) != len(args):
            raise InvalidArgument("vmap: in_axes has %d entries for %d arguments" % (len(axes), len(args)))
        out = []
        for axis, value in zip(axes, args):
            out += [axis] * len(_trees.flatten(value)[0])
        return out + [0 if self._in is not None else None] * len(_trees.flatten(kwargs)[0])

    def __call__(self, *args, **kwargs):
        leaves, structure = _trees.flatten((args, kwargs))
        axes = [None if a is None else axis_of(t, a, "vmap", "in_axes") for t, a in zip(leaves, self._axes(args, kwargs))]
        sizes = {t.shape[a] for t, a in zip(leaves, axes) if a is not None}
        if len(sizes) != 1:
            raise InvalidArgument("vmap: the mapped axes have the sizes %s, and should have one" % sorted(sizes))
        size = sizes.pop()
        infos = [(t.dtype, t.shape if a is None else _without(t.shape, a)) for t, a in zip(leaves, axes)]
        key = ((now.context or start()).value, _trees.key(structure), tuple(infos), tuple(axes), size)
        found = self._cache.get(key)
        if found is None:
            traced = _trace(self._function, structure, leaves, self._name, infos)
            own = traced.count + len(traced.changed)
            out_axes = self._out if isinstance(self._out, (list, tuple)) else [self._out] * own
            found = (traced, traced.function.vmap(size, axes, out_axes, self._randomness))
            if not traced.captures:
                self._cache[key] = found
        traced, mapped = found
        return _trees.unflatten(traced.structure, mapped.call(*leaves)[: traced.count])


def _without(shape, axis):
    return shape[:axis] + shape[axis + 1 :]


def vmap(f, in_axes=0, out_axes=0, randomness="different"):
    """f of many examples at once, which lie along an axis of each argument; None: all examples share the argument.

    >>> wf.vmap(lambda x, y: x * y, in_axes=(0, None))(wf.arange(3), wf.tensor(2)).tolist()
    [0, 2, 4]
    """
    return _Mapped(f, in_axes, out_axes, randomness)


def _floats(leaves):
    return [i for i, t in enumerate(leaves) if t.dtype.is_float or t.dtype.is_complex]


def jvp(f, primals, tangents):
    """(value, tangent): f at primals, and its derivative along tangents, in forward mode."""
    leaves, structure = _trees.flatten((tuple(primals), {}))
    along = _trees.flatten(tuple(tangents))[0]
    traced = _trace(f, structure, leaves, _name_of(f))
    if len(along) != len(leaves):
        raise InvalidArgument("jvp: %d tangents for %d tensors" % (len(along), len(leaves)))
    wrt = _floats(leaves)
    results = traced.function.jvp(wrt, values=True).call(*leaves, *[along[i].astype(leaves[i].dtype) for i in wrt])
    own = traced.count + len(traced.changed)
    values = results[: traced.count]
    moved = dict(zip(_floats(results[:own]), results[own:]))
    return (
        _trees.unflatten(traced.structure, values),
        _trees.unflatten(traced.structure, [moved.get(i) for i in range(traced.count)]),
    )


def vjp(f, *primals):
    """(value, pull): f at primals, and the function that takes a cotangent of the value to those of the primals."""
    leaves, structure = _trees.flatten((primals, {}))
    traced = _trace(f, structure, leaves, _name_of(f))
    wrt = _floats(leaves)
    pulled = traced.function.vjp(wrt)
    results = traced.function.call(*leaves)
    extra = [t * 0 for t in results[traced.count :] if t.dtype.is_float]

    def pull(cotangent):
        given = [t for t, r in zip(_trees.flatten(cotangent)[0], results) if r.dtype.is_float or r.dtype.is_complex]
        grads = dict(zip(wrt, pulled.call(*leaves, *given, *extra)))
        return _trees.unflatten(structure[2][0], [grads.get(i) for i in range(len(leaves))])

    return _trees.unflatten(traced.structure, results[: traced.count]), pull


def custom_gradient(f, forward, backward):
    """f, whose gradient two others say: forward gives (f's result, residuals), backward takes the residuals and a
    cotangent for each
    result, and gives a cotangent for each argument."""

    @functools.wraps(f)
    def made(*args):
        leaves, structure = _trees.flatten((args, {}))
        main = _trace(f, structure, leaves, _name_of(f))
        ahead = _trace(forward, structure, leaves, _name_of(forward))
        residuals = ahead.function.results[main.count :]
        out = [i for i in main.function.results if i[0].is_float or i[0].is_complex]
        shapes = residuals + out
        inside = (tuple, None, ((tuple, None, tuple([_trees.LEAF] * len(shapes))), (dict, (), ())))
        nested = ahead.structure[2][1] if isinstance(ahead.structure, tuple) else _trees.LEAF

        def back(*tensors):
            given = _trees.unflatten(nested, tensors[: len(residuals)])
            grads = backward(given, *tensors[len(residuals) :])
            return grads if isinstance(grads, tuple) else (grads,)

        behind = _trace(back, inside, [], _name_of(backward), shapes) if shapes else None
        handle = _Handle()
        check(_custom_gradient(_context(), main.function._h, ahead.function._h, behind.function._h, byref(handle)))
        return _trees.unflatten(main.structure, Function(handle).call(*leaves)[: main.count])

    return made


def gradients(y, xs, cotangent=None):
    """The gradients of y, a scalar unless a cotangent is given, by tensors that require_grad() (parameters do): a list, or
    one.

    >>> w = wf.Parameter([1.0, 2.0])
    >>> wf.gradients((w * w).sum(), w).tolist()
    [2.0, 4.0]
    """
    one = isinstance(xs, Tensor)
    array, count = handles([xs] if one else list(xs))
    out = (c_void_p * count.value)()
    check(_weft_grad(_call.mark(), y._h, None if cotangent is None else cotangent._h, array, count, out))
    made = [done(Handle(h)) for h in out]
    return made[0] if one else made
