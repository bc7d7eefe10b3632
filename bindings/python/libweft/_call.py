"""The way of every call into the C library: handles, positions, errors, options.

A function of C is called without ctypes' prototypes: each argument has its C type already (handles, bytes for what C only
reads,
c_int64, c_double, c_size_t), which halves the time of a call. `bind` gives the functions that let Python's lock go; those that
never wait and never call back (`quick`) keep it.
"""

import ctypes
import struct
import sys
from _thread import _local
from array import array
from operator import index as _index

from . import _errors
from ._abi import STRUCTS
from ._dtypes import DType, number as dtype_number
from ._fast import accelerator, begin
from ._library import open_library

byref, c_double, c_int64, c_size_t, c_void_p = ctypes.byref, ctypes.c_double, ctypes.c_int64, ctypes.c_size_t, ctypes.c_void_p
STRLEN = c_size_t(-1)
PACKAGE = _errors.PACKAGE

path, _library, _quick = open_library()


def bind(name, result=c_void_p, library=_library):
    """A function of the library, which other threads of Python run beside; it gives an error's address or None."""
    function = getattr(library, name)
    function.restype = result
    return function


def quick(name, result=c_void_p):
    return bind(name, result, _quick)


def releasing(release):
    """The __del__ of a class of handles that this function of C releases; it takes a null one, too. It has no line of Python,
    where Ctrl-C could come and be lost: what is raised in a __del__ goes nowhere."""
    try:
        method = ctypes.pythonapi.PyInstanceMethod_New
    except AttributeError:  # Not CPython.
        return lambda self: release(self)
    method.restype, method.argtypes = ctypes.py_object, [ctypes.py_object]
    return method(release)


def handle_class(name, release, **attributes):
    """A class of owned handles: the library's reference is dropped with the object, on whatever thread that happens."""
    return type(name, (c_void_p,), {"__slots__": (), "__del__": releasing(release), **attributes})


_release_tensor = quick("weft_tensor_release", None)
Handle = handle_class("Handle", _release_tensor)


class Now(_local):
    """The surroundings of this thread: a context (None: the process's own, made at its first use), a step, a body."""

    context = None
    scope = None
    body = None
    changed = None  # In a body: what was assigned to, by id.


now = accelerator.Now() if accelerator else Now()
start = None  # Set by _context: the handle of the process's own context, made if need be.


def set_own(handle):
    """Says which handle is the process's own context's, or that there is none any more."""
    if accelerator:
        accelerator.set_own(handle)


_files = {}
_frame = sys._getframe
_position_mark = quick("weft_position_mark")
_position_mark_stack = quick("weft_position_mark_stack")
_MOST_FRAMES = 256  # of weft_position_mark_stack
_stacked = set()  # Addresses of contexts whose option positions is "stack".


def _file(name):
    """The text of a file's name for C, or None for a file of this package."""
    text = None if name.startswith(PACKAGE) else name.encode("utf-8", "surrogateescape")
    _files[name] = found = (text, None if text is None else c_size_t(len(text)))
    return found


def keep_stacks(handle, whole):
    """Says whether what is recorded into a context has all of Python's frames as its position, or the innermost one."""
    (_stacked.add if whole else _stacked.discard)(handle.value)
    if accelerator:
        accelerator.mark_with(_mark_stack if _stacked else None)


def _mark_stack(context, frame):
    """Marks `frame` and those around it, the package's own left out. False where the context at this address wants one alone."""
    if context not in _stacked:
        return False
    frames, texts = bytearray(), []
    size = STRUCTS["weft_frame"][0]
    while frame is not None and len(texts) < _MOST_FRAMES:
        code = frame.f_code
        file = (_files.get(code.co_filename) or _file(code.co_filename))[0]
        if file is not None:
            function = getattr(code, "co_qualname", code.co_name).encode("utf-8", "replace")
            texts.append(
                struct_of(
                    "weft_frame",
                    function=function,
                    function_length=len(function),
                    file=file,
                    file_length=len(file),
                    line=frame.f_lineno or 0,
                )
            )
            frames += texts[-1].ljust(size, b"\0")
        frame = frame.f_back
    error = _position_mark_stack(c_void_p(context), bytes(frames), c_size_t(len(texts)))
    if error:
        _error_release(error)
    return True


def mark():
    """Says to the library where the caller's code is, and gives the context of this thread."""
    frame = _frame(2)
    if _stacked:
        context = now.context or start()
        if _mark_stack(context.value, frame):
            return context
    name = frame.f_code.co_filename
    try:
        file, size = _files[name]
    except KeyError:
        file, size = _file(name)
    while file is None:
        frame = frame.f_back
        if frame is None:
            return now.context or start()
        name = frame.f_code.co_filename
        file, size = _files.get(name) or _file(name)
    context = now.context or start()
    error = _position_mark(context, file, size, frame.f_lineno)
    if error:
        _error_release(error)
    return context


_error_code = quick("weft_error_code", ctypes.c_int32)
_error_message = quick("weft_error_message", ctypes.c_char_p)
_error_payload = quick("weft_error_payload", ctypes.c_char_p)
_error_release_ = quick("weft_error_release", None)
_error_data = quick("weft_error_data", ctypes.c_int32)
_raised = {}  # Exceptions of callbacks, by the number that travels with the error.
_raised_count = 0
_MARK = " (exception "


def _error_release(error):
    _error_release_(c_void_p(error or None))


def _detail(error, key):
    text = _error_payload(error, key, c_size_t(len(key)), None)
    return text.decode("utf-8", "replace") if text else None


def error_of(address, file=False):
    """The exception for an error of the library, which is released."""
    error = c_void_p(address)
    code = _error_code(error)
    message = (_error_message(error, None) or b"").decode("utf-8", "replace")
    operation, position = _detail(error, b"weft.operation"), _detail(error, b"weft.position")
    data = ctypes.c_uint64()
    number = data.value if _error_data(error, byref(data)) else _number_in(message)
    _error_release_(error)
    kept = _raised.pop(number, None)
    if kept is not None:
        return kept
    for there, here in _REMEDIES:
        message = message.replace(there, here)
    return _errors.exception(code, message, operation, position, file)


# The library advises in C's words; here are Python's.
_REMEDIES = (
    ("keep it before weft_sync", "call .keep() on it before its step ends"),
    ("weft_tensor_keep", "Tensor.keep()"),
    ("weft_scope_keep", "Tensor.keep()"),
    ("weft_sync", "wf.sync()"),
    ("weft_optimizer_whole_state", "optimizer.whole_state_dict()"),
    ("weft_tensor_require_grad", "Tensor.require_grad()"),
    ("weft_boolean_mask", "boolean_mask"),
)


def fail(error, file=False):
    raise error_of(error, file)


def check(error, file=False):
    """Raises if the library gave an error."""
    if error:
        raise error_of(error, file)


def keep_raised(exception):
    """A number by which an exception of a callback is found again, and the text that the error has."""
    global _raised_count
    _raised_count += 1
    _raised[_raised_count] = exception
    while len(_raised) > 64:  # The oldest go first of those that nobody asked for.
        _raised.pop(next(iter(_raised)), None)
    return _raised_count, "%s: %s%s%d)" % (type(exception).__name__, exception, _MARK, _raised_count)


def _number_in(message):
    """The number in the text of an error that lost it on its way through a launch."""
    head, mark_, rest = message.rpartition(_MARK)
    number = rest.partition(")")[0]
    return int(number) if mark_ and number.isdigit() else None


Tensor = None  # Set by _tensor.
_new = object.__new__
_scope_share = quick("weft_scope_share")


def done(handle):
    """The tensor of a handle that an operation gave; a step has a share of it."""
    tensor = _new(Tensor)
    tensor._h = handle
    scope = now.scope
    if scope is not None:
        error = _scope_share(scope, handle)
        if error:
            raise error_of(error)
    return tensor


NUMBERS = {}  # The number that stood beside a tensor at a place of the program when it was last there.
CHANGED = object()  # Stands there where another did before.
if accelerator:
    # In the order of struct library (accelerator.h), and then of its begin().
    functions = (_position_mark, _scope_share, _release_tensor, _error_release_)
    functions += tuple(map(quick, ("weft_tensor_dtype", "weft_tensor_constant_like", "weft_tensor_argument_like")))
    begin(functions, Handle, fail, lambda: start(), DType, PACKAGE, NUMBERS, CHANGED)
    mark, done = accelerator.mark, accelerator.done


def again(function, error, x, y):
    """An operation of two tensors that failed: if their types differ it is tried once more with the type that holds both."""
    if x.dtype is y.dtype:
        raise error_of(error)
    failure = error_of(error)
    from ._dtypes import promoted

    common = promoted(x.dtype, y.dtype)
    first, second = x.astype(common), y.astype(common)
    if first is x and second is y:
        raise failure
    return function(first, second)


def of_floats(function, error, x):
    """An operation of floats that failed: whole numbers and truth values are taken as f32, as `/` takes them."""
    failure = error_of(error)
    if not (x.dtype.is_integer or x.dtype == "bool"):
        raise failure
    return function(x.astype("f32"))


class Packed(bytes):
    """A struct of C, with the memory that it points to."""


def struct_of(name, /, **fields):
    """A struct of the core from the values of some fields; the others are zero. What may be None stays zero."""
    size, places = STRUCTS[name]
    data = bytearray(size)
    if "struct_size" in places:
        struct.pack_into("Q", data, 0, size)
    kept = []
    for field, value in fields.items():
        offset, letters = places[field]
        if value is None:
            continue
        if letters == "P" and not isinstance(value, int):
            kept.append(value)
            value = address(value)
        try:
            struct.pack_into(letters, data, offset, value)
        except (struct.error, OverflowError):
            kind = "a number" if letters in "df" else "an integer that %d bytes hold" % struct.calcsize(letters)
            raise _errors.InvalidType("%s.%s is %r, and should be %s" % (name, field, value, kind)) from None
    packed = Packed(data)
    packed.kept = kept
    return packed


def structs(packed):
    """Structs of one kind, one behind the other."""
    many = Packed(b"".join(packed))
    many.kept = [one.kept for one in packed]
    return many


def empty_struct(name):
    """Memory for a struct that the library fills, with its size in front."""
    size, places = STRUCTS[name]
    data = bytearray(size)
    if "struct_size" in places:
        struct.pack_into("Q", data, 0, size)
    return (ctypes.c_char * size).from_buffer(data)


def field(data, name, key):
    offset, letters = STRUCTS[name][1][key]
    values = struct.unpack_from(letters, data, offset)
    return values if len(values) > 1 else values[0]


def address(value):
    """Where the bytes of an object lie; the caller keeps the object."""
    if isinstance(value, c_void_p):
        return value.value or 0
    if isinstance(value, bytes):
        return ctypes.cast(ctypes.c_char_p(value), c_void_p).value
    if isinstance(value, array):
        return value.buffer_info()[0]
    if isinstance(value, ctypes._CFuncPtr):
        return ctypes.cast(value, c_void_p).value
    return ctypes.addressof(value)


_ints_cache = {}


def ints(values, operation, name):
    """A list of integers as C has it: the bytes and how many."""
    try:
        return _ints_cache[values]
    except (KeyError, TypeError):
        pass
    try:
        numbers = (
            (_index(values),)
            if hasattr(values, "__index__") and not hasattr(values, "__len__")
            else tuple(map(_index, values))
        )
        packed = (struct.pack("%dq" % len(numbers), *numbers), c_size_t(len(numbers)))
    except (TypeError, struct.error):
        raise _errors.InvalidType(
            "%s: %s is %r, and should be an integer or a list of integers" % (operation, name, values), operation
        ) from None
    if len(_ints_cache) > 4096:
        _ints_cache.clear()
    _ints_cache[numbers] = packed
    return packed


def whole(value, operation, name):
    """An integer of Python; a float is none."""
    try:
        return _index(value)
    except TypeError:
        raise _errors.InvalidType("%s: %s is %r, and should be an integer" % (operation, name, value), operation) from None


def int64(value, operation, name):
    number = whole(value, operation, name)
    if not -(2**63) <= number < 2**63:
        raise _errors.InvalidArgument("%s: %s is %d, which 64 bits do not hold" % (operation, name, number), operation)
    return c_int64(number)


def words(value, operation, name):
    """A text as C has it: the bytes and how many."""
    if not isinstance(value, str):
        raise _errors.InvalidType("%s: %s is %r, and should be a text" % (operation, name, value), operation)
    data = value.encode()
    return data, c_size_t(len(data))


def doubles(value, operation, name):
    try:
        number = c_double(value)
    except TypeError:
        raise _errors.InvalidType("%s: %s is %r, and should be a number" % (operation, name, value), operation) from None
    except OverflowError:
        raise _errors.InvalidArgument("%s: %s is beyond what a float holds" % (operation, name), operation) from None
    if type(value) is int and number.value != value:
        raise _errors.InvalidArgument(
            "%s: %s is %d, which no float holds: the nearest is %d" % (operation, name, value, number.value), operation
        )
    return number


def enumerator(value, values, operation, name):
    try:
        return values[value]
    except (KeyError, TypeError):
        raise _errors.InvalidArgument(
            "%s: %s is %r, and should be one of %s" % (operation, name, value, ", ".join(map(repr, values))), operation
        ) from None


class Options:
    """Packs an option struct. Each combination of values is packed once."""

    __slots__ = ("operation", "letters", "size", "fields", "kinds", "cache")

    def __init__(self, operation, letters, size, fields, kinds):
        self.operation, self.letters, self.size, self.fields, self.kinds = operation, "@" + letters, size, fields, kinds
        self.cache = {}

    def __call__(self, *values):
        try:
            return self.cache[values]
        except (KeyError, TypeError):
            return self.pack(values)

    def pack(self, values):
        items, kept, present, at = [self.size, 0, 0], [], 0, 0
        for kind in self.kinds:
            if kind == "0":
                items.append(0)
                continue
            value, described = values[at], self.fields[at]
            if value is not None and described[1] != "device":
                present |= 1 << at
            elif value is not None:
                from ._device import chosen

                value = chosen(value)
                kept.append(value)
            at += 1
            if kind in "ld":
                read = self.list if kind == "l" else self.numbers
                numbers = array("q" if kind == "l" else "d", () if value is None else read(value, described[0]))
                kept.append(numbers)
                items += [numbers.buffer_info()[0], len(numbers)]
            else:
                items.append(0 if value is None else self.value(value, described))
        items[2] = present
        packed = Packed(struct.pack(self.letters, *items).ljust(self.size, b"\0"))
        packed.kept = kept
        # 0.0 and -0.0 are one key and two values.
        if not any((v == 0 and f[1] == "double") or f[1] == "doubles" for v, f in zip(values, self.fields)):
            self.keep(values, packed)
        return packed

    def keep(self, values, packed):
        if any(f[1] == "device" and v is not None for v, f in zip(values, self.fields)):
            return  # Devices of two contexts may be equal, and each is its own context's.
        try:
            if len(self.cache) > 1024:
                self.cache.clear()
            self.cache[values] = packed
        except TypeError:
            pass

    def list(self, value, name):
        raw, count = ints(value, self.operation, name)
        return struct.unpack("%dq" % count.value, raw)

    def numbers(self, values, name):
        try:
            return [float(value) for value in values]
        except (TypeError, ValueError):
            raise _errors.InvalidType(
                "%s: %s is %r, and should be a list of numbers" % (self.operation, name, values), self.operation
            ) from None

    def value(self, value, described):
        name, kind = described[0], described[1]
        if kind == "int":
            return int64(value, self.operation, name).value
        if kind == "double":
            return doubles(value, self.operation, name).value
        if kind == "bool":
            return 1 if value else 0
        if kind == "dtype":
            return dtype_number(value)
        if kind == "device":
            return address(value)
        return enumerator(value, described[2], self.operation, name)


def results(operation, names):
    """A tuple with names, as NumPy's functions of several results give."""
    fields = {name: property(lambda self, i=i: self[i]) for i, name in enumerate(names)}

    def new(cls, *values):
        return tuple.__new__(cls, values)

    def text(self):
        return "%s(%s)" % (operation, ", ".join("%s=%r" % pair for pair in zip(names, self)))

    return type(
        operation,
        (tuple,),
        {
            "__slots__": (),
            "__new__": new,
            "__repr__": text,
            "_fields": names,
            "__reduce__": lambda self: (tuple, (tuple(self),)),
            **fields,
        },
    )


def handles(tensors):
    """Handles in an array, and how many."""
    count = len(tensors)
    return (c_void_p * count)(*[None if t is None else t._h.value for t in tensors]), c_size_t(count)


_beside = _tensor = None  # Set by _convert.


def operands(operation, described, values):
    """Operands that are not all tensors: numbers take the type of a tensor of their group, the rest is converted."""
    if len(values) == 2 and described[0][1] == described[1][1]:  # A tensor and a number, by far the most frequent.
        x, y = values
        if type(y) is float or type(y) is int:
            if isinstance(x, Tensor):
                return x, _beside(x, y)
        elif (type(x) is float or type(x) is int) and isinstance(y, Tensor):
            return _beside(y, x), y
    like = {}
    for (name, group), value in zip(described, values):
        if isinstance(value, Tensor):
            value._h  # A tensor without a value would come back here without end.
            like.setdefault(group, value)
    out = []
    for (name, group), value in zip(described, values):
        if isinstance(value, Tensor) or (value is None and name.endswith("?")):
            out.append(value)
        elif value is None or isinstance(value, (str, bytes)):
            raise _errors.InvalidType(
                "%s: %s is %r, and should be a tensor, a number or an array" % (operation, name.rstrip("?"), value), operation
            )
        elif isinstance(value, (bool, int, float, complex)) and group in like:
            out.append(_beside(like[group], value))
        else:
            out.append(_tensor(value))
    return out


def several(operation, name, values, group, first):
    """The tensors of an operand that takes any number of them."""
    if isinstance(values, Tensor) or not hasattr(values, "__iter__"):
        raise _errors.InvalidType("%s: %s should be a list of tensors" % (operation, name), operation)
    values = list(values)
    if all(isinstance(v, Tensor) for v in values):
        return values
    if group == "I" or (first is not None and not any(isinstance(v, Tensor) for v in values)):
        from ._convert import argument

        return [v if isinstance(v, Tensor) else argument(v, "i32") for v in values]
    return operands(operation, [(name, group)] * len(values), values)


def text_of(value):
    """UTF-8 of a name or path, and its length."""
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
    return data, c_size_t(len(data))


_blob_data = quick("weft_blob_data", c_void_p)
_blob_size = quick("weft_blob_size", c_size_t)
_blob_release = quick("weft_blob_release", None)


def blob_text(blob):
    """The text of a blob, which is released."""
    data = ctypes.string_at(_blob_data(blob), _blob_size(blob))
    _blob_release(blob)
    return data.decode("utf-8", "replace")
