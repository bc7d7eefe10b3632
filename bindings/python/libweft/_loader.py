"""Data sets and loaders of the C library: batches that threads read ahead, with Python's lock free while somebody waits."""

import atexit
import ctypes
import os
import struct
import time
import weakref

from . import _call, _device
from ._call import Handle, bind, byref, c_size_t, c_void_p, check, done, handle_class, handles, now, quick, struct_of, text_of
from ._context import start
from ._convert import tensor
from ._dtypes import BY_NAME, BY_NUMBER, dtype as dtype_of
from ._errors import InvalidArgument, InvalidType
from ._tensor import Tensor
from ._wait import blocking

_create_dataset = bind("weft_dataset_create")
_from_tensors = bind("weft_dataset_from_tensors")
_open = bind("weft_dataset_open")
_zip = bind("weft_dataset_zip")
_count = bind("weft_dataset_count")
_field_count = bind("weft_dataset_field_count")
_field = bind("weft_dataset_field")
_create_sampler = bind("weft_sampler_create")
_batches = bind("weft_sampler_batches")
_create_loader = bind("weft_loader_create")
_next = bind("weft_loader_next")
_state = bind("weft_loader_state")
_load = bind("weft_loader_load")
_error_new = quick("weft_error_new_with_data")
_DatasetHandle = handle_class("DatasetHandle", quick("weft_dataset_release", None))
_SamplerHandle = handle_class("SamplerHandle", quick("weft_sampler_release", None))
_LoaderHandle = handle_class("LoaderHandle", quick("weft_loader_release", None))

# --- Items of Python's ------------------------------------------------------------------------------------------------------

_sources = {}  # What callbacks read, by the number that C has for it: until nobody can call them any more.
_users = weakref.WeakSet()  # Loaders and data sets of such.


class _Rows(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("size", ctypes.c_uint64), ("row_bytes", ctypes.c_uint64)]


class _Items:
    """A sequence whose items are arrays, numbers, or tuples of these, with the types of its first item."""

    def __init__(self, sequence):
        try:
            self.length = len(sequence)
        except (TypeError, ValueError) as error:
            raise InvalidType("a data set needs a length: %s" % error) from None
        self.sequence = sequence
        if self.length == 0:
            raise InvalidArgument("the data set has no items, so that nothing says what one is")
        self.forms = [(dtype, shape) for dtype, shape, _ in self.parts(0)]

    def parts(self, i):
        item = self.sequence[i]
        return [_form(part) for part in (item if isinstance(item, tuple) else (item,))]

    def read(self, items, rows):
        for place, i in enumerate(items):
            parts = self.parts(i)
            if len(parts) != len(self.forms):
                raise InvalidArgument("item %d has %d parts, the first has %d" % (i, len(parts), len(self.forms)))
            for (dtype, shape, data), row, form in zip(parts, rows, self.forms):
                if (dtype, shape) != form:
                    raise InvalidArgument("item %d is %s%s, the first is %s%s" % (i, dtype, list(shape), form[0], list(form[1])))
                ctypes.memmove(row.data + place * row.row_bytes, data, len(data))


def _form(part):
    """Type, shape and bytes of a part of an item. Nothing is recorded: threads of loaders come here."""
    if isinstance(part, Tensor):
        return part.dtype, tuple(part.shape), part.tobytes()
    if isinstance(part, (bool, int, float)):
        name, letter = ("bool", "?") if isinstance(part, bool) else ("i64", "q") if isinstance(part, int) else ("f32", "f")
        return BY_NAME[name], (), struct.pack(letter, part)
    if hasattr(part, "__array_interface__") or hasattr(part, "__array__"):
        array = part if hasattr(part, "dtype") else part.__array__()
        return dtype_of(array.dtype.name), tuple(array.shape), array.astype(array.dtype.newbyteorder("="), copy=False).tobytes()
    made = tensor(part)
    return made.dtype, tuple(made.shape), made.tobytes()


def _read(number, items, count, rows, fields):
    try:
        _sources[number].read(items[:count], rows[:fields])
        return None
    except BaseException as exception:  # It comes out of next().
        kept, text = _call.keep_raised(exception)
        text = text.encode("utf-8", "replace")
        return _error_new(2, text, c_size_t(len(text)), ctypes.c_uint64(kept))


def _release(number):
    _sources.pop(number, None)


_READ = ctypes.CFUNCTYPE(
    c_void_p, c_void_p, ctypes.POINTER(ctypes.c_int64), c_size_t, ctypes.POINTER(_Rows), c_size_t
)(_read)
_RELEASE = ctypes.CFUNCTYPE(None, c_void_p)(_release)


@atexit.register
def _end():
    """Threads of loaders must not be in Python when it ends: a data set ends with the last of them."""
    if not _sources:
        return
    for user in list(_users):
        user.close()
    late = time.monotonic() + 5
    while _sources and time.monotonic() < late:
        time.sleep(0.005)
    time.sleep(0.01)  # The last one is on its way out.


# --- Data sets --------------------------------------------------------------------------------------------------------------


class Dataset:
    """Items by number. `Dataset.of(x, y)` has the rows of tensors or arrays, `Dataset.open(path)` those of a file (IDX, .npy,
    .npz, safetensors, a table of numbers as text), `Dataset.items(sequence)` what an object with `len()` and `[i]` gives.

    >>> data = wf.data.Dataset.of(wf.arange(6), wf.ones((6, 2)))
    >>> len(data), data.fields
    (6, [('', libweft.i64, ()), ('', libweft.f32, (2,))])
    """

    def __init__(self, handle):
        self._h = handle

    @classmethod
    def of(cls, *tensors):
        """The rows of tensors, or of what becomes tensors, side by side; copied."""
        if not tensors:
            raise InvalidArgument("Dataset.of: there is nothing to make a data set of")
        kept = [t if isinstance(t, Tensor) else tensor(t) for t in tensors]
        array, count = handles(kept)
        handle = _DatasetHandle()
        check(blocking(_from_tensors, array, count, byref(handle)))
        return cls(handle)

    @classmethod
    def open(cls, path, dtype="f32", separator=","):
        """A file's; `dtype` and `separator` are of tables of numbers."""
        if len(separator) != 1:
            raise InvalidArgument("Dataset.open: separator is %r; it is one character" % separator)
        options = struct_of("weft_csv_options", dtype=BY_NAME[str(dtype)].number, separator=ord(separator))
        handle = _DatasetHandle()
        check(blocking(_open, *text_of(os.fspath(path)), options, byref(handle)), file=True)
        return cls(handle)

    @classmethod
    def items(cls, sequence, at_once=0):
        """What `sequence[i]` gives: an array, a number, or a tuple of these, all with the types of item 0. At most so many threads
        are in it at once; 0: any number."""
        source = _Items(sequence)
        infos = b"".join(
            struct.pack("II32q", dtype.number, len(shape), *shape, *[0] * (32 - len(shape))) for dtype, shape in source.forms
        )
        number = id(source)
        _sources[number] = source
        options = struct_of(
            "weft_dataset_options",
            count=source.length,
            fields=infos,
            field_count=len(source.forms),
            read=_READ,
            user_data=number,
            release=_RELEASE,
            most_at_once=at_once,
        )
        handle = _DatasetHandle()
        check(_create_dataset(options, byref(handle)))
        made = cls(handle)
        _users.add(made)
        return made

    def close(self):
        """Lets go of its items, once no loader needs them."""
        self._h = None

    def zip(self, *others):
        """The fields of this and other data sets of one length side by side."""
        several = (c_void_p * (1 + len(others)))(*(d._h.value for d in (self, *others)))
        handle = _DatasetHandle()
        check(_zip(several, c_size_t(len(several)), byref(handle)))
        made = Dataset(handle)
        _users.add(made)
        return made

    def __len__(self):
        out = ctypes.c_int64()
        check(_count(self._h, byref(out)))
        return out.value

    @property
    def fields(self):
        """Name, type and shape of each part of an item."""
        count = c_size_t()
        check(_field_count(self._h, byref(count)))
        out = []
        for i in range(count.value):
            info, name, length = ctypes.create_string_buffer(264), ctypes.c_char_p(), c_size_t()
            check(_field(self._h, c_size_t(i), info, byref(name), byref(length)))
            dtype, rank, *dims = struct.unpack("II32q", info.raw)
            out.append((ctypes.string_at(name, length.value).decode(), BY_NUMBER[dtype], tuple(dims[:rank])))
        return out


class Loader:
    """Batches of a data set, or of tensors, which threads read ahead and copy to a device. Each time over it is one epoch.

    >>> loader = wf.data.Loader(wf.arange(6), size=4, drop_last=False)
    >>> [(x.tolist(), mask.tolist()) for x, mask in loader]
    [([0, 1, 2, 3], [True, True, True, True]), ([4, 5, 0, 1], [True, True, False, False])]

    With `shuffle` the order is a function of seed and epoch alone. With drop_last=False the last batch is filled up and each batch
    has a mask behind its tensors. `rank` of `ranks` processes takes its part of each batch of all: see docs/data.md;
    with a `job` (wf.job.Job) they find out at an epoch's beginning that they would read differently.
    `state_dict()` goes into a checkpoint; after `load_state_dict` the next epoch goes on there, also with another number of ranks.
    """

    def __init__(
        self,
        *data,
        size,
        shuffle=False,
        seed=0,
        drop_last=True,
        rank=0,
        ranks=1,
        weights=None,
        draws=0,
        prefetch=2,
        threads=0,
        timeout=300.0,
        device=None,
        batches_per_execution=0,
        job=None,
    ):
        self._h = None
        self.dataset = data[0] if len(data) == 1 and isinstance(data[0], Dataset) else Dataset.of(*data)
        self.size = size
        several = None if weights is None else (ctypes.c_double * len(weights))(*weights)
        options = struct_of(
            "weft_sampler_options",
            batch=size,
            order=2 if weights is not None else int(bool(shuffle)),
            tail=int(not drop_last),
            seed=seed % 2**64,
            rank=rank,
            ranks=ranks,
            weights=several,
            weight_count=0 if several is None else len(several),
            draws=draws,
        )
        self._sampler = _SamplerHandle()
        check(_create_sampler(ctypes.c_int64(len(self.dataset)), options, byref(self._sampler)))
        options = struct_of(
            "weft_loader_options",
            device=_device.chosen(device),
            depth=prefetch,
            threads=threads,
            timeout_ms=max(int(timeout * 1000), 1),
            batches_per_execution=batches_per_execution,
            job=None if job is None else job._h,
        )
        self._capacity = len(self.dataset.fields) + 1
        self._out = (c_void_p * self._capacity)()
        self._h = _LoaderHandle()
        check(_create_loader(now.context or start(), self.dataset._h, self._sampler, options, byref(self._h)))
        _users.add(self)

    def close(self):
        """Ends its threads; a read that runs goes on by itself."""
        self._h = None

    def _handle(self):
        if self._h is None:
            raise InvalidArgument("the loader is closed")
        return self._h

    def __len__(self):
        """Batches of an epoch."""
        out = ctypes.c_int64()
        check(_batches(self._sampler, ctypes.c_int64(0), byref(out)))
        return out.value

    def __iter__(self):
        while True:
            batch = self.next()
            if batch is None:
                return
            yield batch

    def next(self):
        """The next batch as a tuple, or None at the end of an epoch; the call after that begins the next."""
        count = c_size_t()
        check(blocking(_next, self._handle(), self._out, c_size_t(self._capacity), byref(count)))
        if count.value == 0:
            return None
        return tuple([done(Handle(self._out[i])) for i in range(count.value)])

    def _weft_tree(self):
        from . import files

        tree = files.Tree()
        check(_state(self._handle(), byref(tree)))
        return tree

    def state_dict(self):
        """Seed, epoch, position, and the number of items."""
        from . import files

        return files.value_of(self._weft_tree())

    def load_state_dict(self, state):
        """Goes on from a state."""
        from . import files

        tree = files.new_tree()
        for key, value in state.items():
            files.add(tree, 0, key, value)
        check(_load(self._handle(), tree, ctypes.c_uint32(0)))
