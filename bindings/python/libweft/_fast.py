"""Opens the accelerator, a small extension in C, where it is there and fits; the package is the same without it, and slower.

The environment variable LIBWEFT_ACCELERATOR is a path of another file, or 0 for none."""

import os
import sys

ENVIRONMENT = "LIBWEFT_ACCELERATOR"
NAME = "_accelerator.abi3.so"


def _open():
    said = os.environ.get(ENVIRONMENT)
    path = said or __file__.rpartition("/")[0] + "/" + NAME
    # It is built for the limited API of 3.11, which builds without a lock do not have.
    if said == "0" or sys.version_info < (3, 11) or sys.implementation.name != "cpython" or "t" in sys.abiflags:
        return None
    if not os.path.exists(path):
        return None
    from importlib.machinery import ExtensionFileLoader, ModuleSpec

    import _imp

    try:
        spec = ModuleSpec("libweft._accelerator", ExtensionFileLoader("libweft._accelerator", path), origin=path)
        module = _imp.create_dynamic(spec)
        _imp.exec_dynamic(module)
        module.__file__ = path
    except ImportError:  # Another interpreter of this process has it.
        return None
    return module


accelerator = _open()


def resolve(function, options, operands, values, names):
    """The packed option struct of a call with these values behind its operands, b"" where each is the default, or None: the
    function itself is then called."""
    code = function.__code__
    count = code.co_argcount
    parameters = code.co_varnames[: count + code.co_kwonlyargcount]
    names = names or ()
    positional = len(values) - len(names)
    if operands + positional > count:
        return None
    given = dict(zip(parameters[operands:], values[:positional]))
    for name, value in zip(names, values[positional:]):
        if name in given or name not in parameters[operands:]:
            return None
        given[name] = value
    defaults = function.__defaults__ or ()
    every = dict(zip(parameters[count - len(defaults) : count], defaults))
    if all(name == "axis" and value is None or name in every and every[name] is value for name, value in given.items()):
        return b""
    every.update(given)
    if code.co_kwonlyargcount and every.get("axis") is not None:  # Another name of dims.
        every["dims"] = every["axis"]
    for field in options.fields:
        # 0.0 and -0.0 are one key and two values.
        if field[1] == "doubles" or (field[1] == "double" and field[0] in given and every[field[0]] == 0):
            return None
    try:
        return options(*[every[field[0]] for field in options.fields])
    except Exception:
        return None


def explain(function, error):
    """The error of a call that did not reach its function, better said, or None."""
    from ._errors import unknown_keyword

    return unknown_keyword(function.__name__, function, error)


def tensor_class(cls):
    """The class that the body of `cls` describes: the accelerator's own, if it is there, with these methods."""
    if not accelerator:
        return cls
    made = accelerator.Tensor
    has = {"__slots__", "__dict__", "__weakref__", "_h", "_type", "_shape", "__module__", "__qualname__"}
    has |= {"__eq__", "__ne__", "__hash__"}
    for name, value in vars(cls).items():
        if name not in has:
            setattr(made, name, value)
    return made


def address(function):
    """Where a function of C is."""
    from ctypes import c_void_p, cast

    return cast(function, c_void_p).value


def begin(functions, *rest):
    """Gives the accelerator the functions of C that it calls, and what of Python it needs."""
    accelerator.begin(tuple(map(address, functions)), *rest[:3], resolve, explain, *rest[3:])


def _text(function, first):
    """The documentation of a function of C, with its signature in front as inspect reads it."""
    code, defaults = function.__code__, function.__defaults__ or ()
    count = code.co_argcount
    names = list(code.co_varnames[: count + code.co_kwonlyargcount])
    for i, value in enumerate(defaults):
        names[count - len(defaults) + i] += "=%r" % (value,)
    if code.co_kwonlyargcount:
        names[count:] = ["*"] + [name + "=None" for name in names[count:]]
    names[0] = first + names[0]
    return "%s(%s)\n--\n\n%s" % (function.__name__, ", ".join(names), function.__doc__)


# The operators of the accelerator, in its order.
OPERATORS = (
    "add",
    "sub",
    "mul",
    "floor_divide",
    "mod",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "shift_left",
    "matmul",
    "neg",
    "bitwise_not",
    "lt",
    "le",
    "eq",
    "ne",
    "gt",
    "ge",
)


def install(ops, tensor):
    """The operations that the accelerator can call take the places of their functions: in the module and as methods."""
    methods = set(ops.METHODS)
    for name, (needed, most) in ops.FAST.items():
        function = getattr(ops, name)
        options = getattr(ops, "_%s_options" % name, None)
        method = _text(function, "$") if name in methods and name not in tensor.__dict__ else None
        where = address(getattr(ops, "_" + name))
        fast, bound = accelerator.function(name, _text(function, ""), method, where, needed, most, function, options, ops)
        setattr(ops, name, fast)
        if bound is not None:
            setattr(tensor, name, bound)
        if name in OPERATORS:
            accelerator.operator(OPERATORS.index(name), where, needed, function, options)
