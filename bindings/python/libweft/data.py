"""Reading, batching and loading of data."""

import os
import queue
import random as _random
import threading
from array import array

from . import _call, _device, _ops
from ._call import Handle, bind, byref, check, done, now, text_of
from ._context import start
from ._convert import from_bytes, tensor
from ._dtypes import BY_NAME
from ._errors import InvalidArgument
from ._loader import Dataset, Loader
from ._tensor import Tensor
from ._wait import blocking

__all__ = ["Batches", "Dataset", "Loader", "prefetch", "read_idx"]

_idx = bind("weft_idx_read")


def read_idx(path, device=None):
    """The tensor of an IDX file, as the MNIST sets come in; `.gz` too."""
    handle = Handle()
    check(
        blocking(
            _idx, now.context or start(), *text_of(os.fspath(path)), _device.chosen(device), byref(handle)
        ),
        file=True,
    )
    return done(handle)


class Batches:
    """Batches of tensors of one length along the first axis. The rows are gathered by the program, so each batch is the
    same program.

    >>> [x.tolist() for x, in wf.data.Batches(wf.arange(5), size=2)]
    [[0, 1], [2, 3]]
    """

    def __init__(self, *tensors, size, shuffle=False, seed=None, drop_last=True):
        if not tensors:
            raise InvalidArgument("Batches: there is nothing to make batches of")
        self.tensors = [t if isinstance(t, Tensor) else tensor(t) for t in tensors]
        size = _call.whole(size, "Batches", "size")
        if size < 1:
            raise InvalidArgument("Batches: size is %d; it must be 1 or more" % size)
        if not all(t.shape for t in self.tensors):
            raise InvalidArgument("Batches: a tensor is a scalar, and has no first axis to take rows of")
        lengths = {t.shape[0] for t in self.tensors}
        if len(lengths) != 1:
            raise InvalidArgument("Batches: the tensors have the lengths %s, and should have one" % sorted(lengths))
        self.length, self.size, self.shuffle, self.drop_last = lengths.pop(), size, shuffle, drop_last
        self._random = _random.Random(seed)

    def __len__(self):
        return self.length // self.size if self.drop_last else -(-self.length // self.size)

    def __iter__(self):
        order = array("i", range(self.length))
        if self.shuffle:
            self._random.shuffle(order)
        for i in range(len(self)):
            part = order[i * self.size : (i + 1) * self.size]
            index = from_bytes(part.tobytes(), (len(part),), BY_NAME["i32"])
            yield tuple(_ops.take(t, index) for t in self.tensors)


def prefetch(iterable, count=2, convert=None):
    """The items of an iterable, made by a thread of their own ahead of time; its exception comes out where the item would.

    >>> list(wf.data.prefetch(range(3), convert=lambda x: x * 10))
    [0, 10, 20]
    """
    box, stop = queue.Queue(maxsize=max(count, 1)), threading.Event()
    context = now.context

    def put(item):
        while not stop.is_set():
            try:
                box.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work():
        now.context = context
        try:
            for item in iterable:
                if not put((True, item if convert is None else convert(item))):
                    return
            put((False, None))
        except BaseException as error:
            put((False, error))

    threading.Thread(target=work, name="libweft prefetch", daemon=True).start()
    try:
        while True:
            more, item = box.get()
            if more:
                yield item
            elif item is not None:
                raise item
            else:
                return
    finally:
        stop.set()
