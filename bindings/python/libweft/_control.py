"""Loops and branches inside the program, and operations from any function of C or Python."""

import ctypes

from . import _call, _convert, _trees
from ._call import Handle, bind, byref, c_size_t, c_void_p, check, done, handles, now, struct_of, text_of
from ._context import start
from ._dtypes import dtype as dtype_of
from ._errors import InvalidArgument, InvalidType
from ._function import _name_of, _trace
from ._wait import blocking

_while = bind("weft_while")
_for = bind("weft_for")
_scan = bind("weft_scan")
_if = bind("weft_if")
_case = bind("weft_case")
_register = bind("weft_custom_register")
_register_symbol = bind("weft_custom_register_symbol")
_apply = bind("weft_custom_apply")
_error_new = _call.quick("weft_error_new_with_data")
_retain = _call.quick("weft_tensor_retain", None)


def _nest(*parts):
    """The structure of a call with these arguments."""
    return (tuple, None, ((tuple, None, tuple(parts)), (dict, (), ())))


def _carried(tree):
    leaves, structure = _trees.flatten(tree)
    return leaves, structure, [(t.dtype, t.shape) for t in leaves]


def _results(out):
    return [done(Handle(h)) for h in out]


def scan(f, init, xs=None, length=None, reverse=False, unroll=1, keep_every=0):
    """Runs f(carry, slice) -> (carry, result) over the slices of xs along their first axis: (last carry, results stacked).

    >>> wf.scan(lambda total, x: (total + x, total + x), wf.tensor(0), wf.arange(4))[1].tolist()
    [0, 1, 3, 6]
    """
    first, carry, infos = _carried(init)
    scanned, slices, _ = _carried(xs)
    lengths = {t.shape[0] if t.shape else None for t in scanned}
    if None in lengths or len(lengths) > 1:
        raise InvalidArgument("scan: the first axes of xs have the sizes %s, and should have one" % sorted(map(str, lengths)))
    if not scanned and length is None:
        raise InvalidArgument("scan: nothing is scanned, so length must say how often f runs")
    each = [(t.dtype, t.shape[1:]) for t in scanned]
    traced = _trace(f, _nest(carry, slices), [], _name_of(f), infos + each)
    _same_carry("scan", traced.structure, carry)
    options = struct_of(
        "weft_scan_options", length=length or 0, unroll=unroll, reverse=1 if reverse else 0, keep_every=keep_every
    )
    a, n = handles(first)
    b, m = handles(scanned)
    out, given = (c_void_p * (traced.count or 1))(), c_size_t()
    check(_scan(_call.mark(), traced.function._h, a, n, b, m, options, out, c_size_t(len(out)), byref(given)))
    return _trees.unflatten(traced.structure, _results(out[: given.value]))


def _same_carry(name, structure, carry):
    """f's result is (carry, result), the carry nested as it came."""
    if not (isinstance(structure, tuple) and structure[0] is tuple and len(structure[2]) == 2):
        raise InvalidType("%s: f should give a pair (carry, result)" % name)
    if _trees.key(structure[2][0]) != _trees.key(carry):
        raise InvalidType("%s: f gives a carry nested as %r, and takes one nested as %r" % (name, structure[2][0], carry))


def while_loop(condition, body, init):
    """Runs body(value) as long as condition(value) holds; both are inside the program.

    >>> wf.while_loop(lambda x: x < 100, lambda x: x * 2, wf.tensor(3)).item()
    192
    """
    first, carry, infos = _carried(init)
    asked = _trace(condition, _nest(carry), [], _name_of(condition), infos)
    traced = _trace(body, _nest(carry), [], _name_of(body), infos)
    a, n = handles(first)
    out = (c_void_p * len(first))()
    check(_while(_call.mark(), asked.function._h, traced.function._h, a, n, out))
    return _trees.unflatten(carry, _results(out))


def fori_loop(lower, upper, body, init, max_count=None, keep_every=0):
    """Runs body(i, value) for i from lower to upper - 1. Gradients need max_count, which whole numbers as bounds give."""
    first, carry, infos = _carried(init)
    lower = lower if isinstance(lower, _call.Tensor) else _call.whole(lower, "fori_loop", "lower")
    upper = upper if isinstance(upper, _call.Tensor) else _call.whole(upper, "fori_loop", "upper")
    if isinstance(lower, int) and isinstance(upper, int) and max_count is None:
        max_count = max(upper - lower, 0)
    offset = lower if isinstance(lower, int) else _convert.tensor(lower).astype("i32")
    i32 = dtype_of("i32")
    traced = _trace(
        lambda i, value: body(i if isinstance(offset, int) and offset == 0 else i + offset, value),
        _nest(_trees.LEAF, carry),
        [],
        _name_of(body),
        [(i32, ())] + infos,
    )
    count = upper - lower
    count = _convert.scalar(count, i32) if isinstance(count, int) else _convert.tensor(count).astype("i32")
    a, n = handles(first)
    out = (c_void_p * len(first))()
    options = struct_of("weft_for_options", max_count=max_count or 0, keep_every=keep_every)
    check(_for(_call.mark(), count._h, traced.function._h, a, n, options, out))
    return _trees.unflatten(carry, _results(out))


def cond(condition, if_true, if_false, *operands):
    """if_true(*operands) or if_false(*operands), of which only one runs, inside the program."""
    leaves, structure, infos = _carried(tuple(operands))
    branches = [_trace(f, _nest(*structure[2]), [], _name_of(f), infos) for f in (if_true, if_false)]
    _same_results("cond", branches)
    condition = condition if isinstance(condition, _call.Tensor) else _convert.tensor(bool(condition))
    a, n = handles(leaves)
    out, given = (c_void_p * max(branches[0].count, 1))(), c_size_t()
    check(
        _if(
            _call.mark(),
            condition._h,
            branches[0].function._h,
            branches[1].function._h,
            a,
            n,
            out,
            c_size_t(len(out)),
            byref(given),
        )
    )
    return _trees.unflatten(branches[0].structure, _results(out[: given.value]))


def switch(index, branches, *operands):
    """The function that index chooses, at the operands; the last one if there is none of that number."""
    leaves, structure, infos = _carried(tuple(operands))
    traced = [_trace(f, _nest(*structure[2]), [], _name_of(f), infos) for f in branches]
    if not traced:
        raise InvalidArgument("switch: there are no branches")
    _same_results("switch", traced)
    index = _convert.tensor(index).astype("i32")
    functions = (c_void_p * len(traced))(*[t.function._h.value for t in traced])
    a, n = handles(leaves)
    out, given = (c_void_p * max(traced[0].count, 1))(), c_size_t()
    check(_case(_call.mark(), index._h, functions, c_size_t(len(traced)), a, n, out, c_size_t(len(out)), byref(given)))
    return _trees.unflatten(traced[0].structure, _results(out[: given.value]))


def _same_results(name, traced):
    keys = {_trees.key(t.structure) for t in traced}
    if len(keys) > 1:
        raise InvalidType(
            "%s: the branches give results nested differently: %s" % (name, " and ".join(sorted(map(repr, keys))))
        )


_C_TYPES = {
    "f32": ("float", ctypes.c_float),
    "f64": ("double", ctypes.c_double),
    "i8": ("int8_t", ctypes.c_int8),
    "i16": ("int16_t", ctypes.c_int16),
    "i32": ("int32_t", ctypes.c_int32),
    "i64": ("int64_t", ctypes.c_int64),
    "u8": ("uint8_t", ctypes.c_uint8),
    "u16": ("uint16_t", ctypes.c_uint16),
    "u32": ("uint32_t", ctypes.c_uint32),
    "u64": ("uint64_t", ctypes.c_uint64),
    "bool": ("bool", ctypes.c_bool),
}
_TRACE = ctypes.CFUNCTYPE(
    c_void_p,
    c_void_p,
    c_void_p,
    ctypes.POINTER(c_void_p),
    c_size_t,
    ctypes.POINTER(c_void_p),
    c_size_t,
    ctypes.POINTER(c_size_t),
)


def _as_error(exception):
    """An exception of a callback as an error of the library, which gives the exception back where it comes out."""
    number, text = _call.keep_raised(exception)
    text = text.encode("utf-8", "replace")
    return _error_new(2, text, c_size_t(len(text)), ctypes.c_uint64(number))


def _spec(text):
    """("f64", ["m", "2*k"]) of "f64[m, 2*k]"."""
    name, bracket, rest = text.replace(" ", "").partition("[")
    if name not in _C_TYPES or (bracket and not rest.endswith("]")):
        raise InvalidArgument(
            "custom_op: %r is no operand: say it as 'f64[m, 2*k]' or 'f32[n...]'; types are %s" % (text, ", ".join(_C_TYPES))
        )
    return name, [size for size in rest.rstrip("]").split(",") if size]


def _view(address, name, sizes):
    """The memory of a tensor as a NumPy array where NumPy is, else as a memoryview."""
    count = 1
    for size in sizes:
        count *= size
    data = (_C_TYPES[name][1] * count).from_address(address or 0) if count else (_C_TYPES[name][1] * 0)()
    try:
        import numpy
    except ImportError:
        view = memoryview(data).cast("B").cast(dtype_of(name).letter)
        return view.cast("B").cast(dtype_of(name).letter, list(sizes)) if len(sizes) > 1 and count else view
    return (
        numpy.frombuffer(data, dtype_of(name).numpy, count).reshape(sizes)
        if count
        else numpy.empty(sizes, dtype_of(name).numpy)
    )


def _callback(function, operands, results):
    """(signature, C function) of a function of Python that reads arrays and writes into arrays."""
    parts, types, specs = [], [], []
    for spec, form in [(s, "const %s*") for s in operands] + [(s, "%s*") for s in results]:
        name, sizes = _spec(spec)
        parts.append(form % _C_TYPES[name][0] + ("[%s]" % ", ".join(sizes) if sizes else ""))
        parts += ["int64_t=%s" % size.replace("...", "") for size in sizes]
        types += [c_void_p] + [ctypes.c_int64] * len(sizes)
        specs.append((name, len(sizes)))

    def called(*arguments):
        try:
            arrays, at = [], 0
            for name, rank in specs:
                arrays.append(_view(arguments[at], name, arguments[at + 1 : at + 1 + rank]))
                at += 1 + rank
            function(*arrays)
        except BaseException as exception:  # It comes out where the results are read.
            return _as_error(exception)
        return None

    return "weft_error*(%s)" % ", ".join(parts), ctypes.CFUNCTYPE(c_void_p, *types)(called)


def _gradient_callback(gradient):
    """The gradient as the library asks for it: recorded into a body, with operands, results and cotangents as parameters."""

    def called(_, body, parameters, count, results, capacity, out_count):
        outer = (now.context, now.scope, now.body, now.changed)
        now.context = now.body = c_void_p(body)
        now.scope, now.changed = None, {}
        try:
            tensors = []
            for i in range(count):
                handle = Handle(parameters[i])
                _retain(handle)
                tensors.append(done(handle))
            given = gradient(*tensors)
            given = list(given) if isinstance(given, (tuple, list)) else [given]
            if len(given) > capacity:
                raise InvalidArgument("the gradient gave %d tensors, and there are at most %d" % (len(given), capacity))
            for i, t in enumerate(given):
                _retain(t._h)
                results[i] = t._h.value
            out_count[0] = len(given)
        except BaseException as exception:
            return _as_error(exception)
        finally:
            now.context, now.scope, now.body, now.changed = outer
        return None

    return _TRACE(called)


class CustomOp:
    """An operation of one's own; called with tensors."""

    def __init__(self, name, signature, target, kind, gradient, threads, kept):
        self.name, self.signature, self._target, self._kept = name, signature, target, kept
        self._gradient = None if gradient is None else _gradient_callback(gradient)
        self._kind, self._threads, self._registered = kind, threads, set()

    def _register(self, context):
        options = struct_of("weft_custom_options", kind=self._kind, threads=self._threads, gradient_trace=self._gradient)
        name, text = text_of(self.name), text_of(self.signature)
        if isinstance(self._target, tuple):
            library, symbol = self._target
            check(
                _register_symbol(
                    context, *name, *(text_of(library) if library else (None, c_size_t(0))), *text_of(symbol), *text, options
                )
            )
        else:
            check(_register(context, *name, ctypes.cast(self._target, c_void_p), *text, options))
        self._registered.add(context.value)
        _forever.append(self)  # The library calls it as long as a program has it.

    def __call__(self, *tensors):
        outermost = now.context if now.body is None else None
        context = outermost or start()
        if context.value not in self._registered:
            self._register(context)
        tensors = [t if isinstance(t, _call.Tensor) else _convert.tensor(t) for t in tensors]
        a, n = handles(tensors)
        out, given = (c_void_p * 16)(), c_size_t()
        check(blocking(_apply, _call.mark(), *text_of(self.name), a, n, out, c_size_t(16), byref(given)))
        made = _results(out[: given.value])
        return made[0] if len(made) == 1 else tuple(made)


_forever = []


def _pointer_of(function):
    """The address of a function of C: one of ctypes or cffi, or the address itself; None for anything else."""
    if isinstance(function, ctypes._CFuncPtr):
        return ctypes.cast(function, c_void_p)
    if type(function).__module__ == "_cffi_backend":
        import _cffi_backend

        try:
            function = int(_cffi_backend.cast(_cffi_backend.new_primitive_type("uintptr_t"), function))
        except TypeError:
            raise InvalidType("custom_op: %r of cffi is no function pointer" % (function,)) from None
    if isinstance(function, int) and not isinstance(function, bool):
        if not 0 < function < 2**64:
            raise InvalidArgument("custom_op: %d is no address of a function" % function)
        return c_void_p(function)
    return None


def custom_op(
    name,
    signature=None,
    *,
    function=None,
    library=None,
    symbol=None,
    operands=None,
    results=None,
    gradient=None,
    buffers=None,
    threads=False,
):
    """An operation from a function of C, or from one of Python.

    From C: a signature (docs/custom_operations.md) and a symbol, with the library that it is in, or a function of ctypes or cffi, or
    its address. From Python, as a decorator: operands and results as "f64[m, k]"; the function gets arrays and writes into those of
    the results.
    `gradient(*operands, *results, *cotangents)` records the gradient.

    >>> hypot = wf.custom_op("c_hypot", "double(double, double)", library="libm.so.6", symbol="hypot")
    >>> hypot(wf.tensor(3.0, "f64"), wf.tensor(4.0, "f64")).item()
    5.0
    """
    many = 1 if threads else 0
    if symbol is not None:
        return CustomOp(name, signature, (library, symbol), 1 if buffers else 0, gradient, many, None)
    pointer = _pointer_of(function)
    if pointer is not None:
        if signature is None:
            raise InvalidType('custom_op: a function of C needs a signature, such as "double(double, double)"')
        return CustomOp(name, signature, pointer, 1 if buffers else 0, gradient, many, function)
    if operands is None or results is None:
        raise InvalidType(
            "custom_op: give a symbol, a function of ctypes or cffi, or operands and results of a function of Python"
        )

    def decorate(f):
        text, thunk = _callback(f, operands, results)
        return CustomOp(name, text, thunk, 1, gradient, 0, (f, thunk))

    return decorate if function is None else decorate(function)
