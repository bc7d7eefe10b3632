"""torch_xla.utils.utils: sample data, variables of the environment, walks through nested containers."""
import collections
import collections.abc
import os
import threading

from .. import _later


class SampleGenerator:
    """A loader that gives the same `data` `sample_count` times."""

    def __init__(self, data, sample_count):
        self._data = data
        self._sample_count = sample_count
        self._count = 0

    def __iter__(self):
        return SampleGenerator(self._data, self._sample_count)

    def __len__(self):
        return self._sample_count

    def __next__(self):
        return self.next()

    def next(self):
        if self._count >= self._sample_count:
            raise StopIteration
        self._count += 1
        return self._data


def getenv_as(name, type, defval=None):
    """The variable as `type`, or `defval` where it is not set. A bool is true unless it is 0, false, no or off."""
    value = os.environ.get(name)
    if value is None:
        return defval
    if type is bool:
        return value.strip().lower() not in ("", "0", "false", "no", "off")
    return type(value)


def take_apart(data, select, chosen):
    """Appends to `chosen` what `select` chooses in nested containers; gives a function that puts others in their place.

    The containers are lists, tuples, named tuples, dictionaries and sets; a container is made anew. Each place is one
    entry of `chosen`, also where the same object comes again.
    """
    if select(data):
        at = len(chosen)
        chosen.append(data)
        return lambda results: results[at]
    if isinstance(data, collections.abc.Mapping):
        parts = [(key, take_apart(value, select, chosen)) for key, value in data.items()]
        return lambda results: _mapping(data, [(key, part(results)) for key, part in parts])
    if isinstance(data, (list, tuple, set, frozenset)):
        parts = [take_apart(value, select, chosen) for value in data]
        return lambda results: _sequence(data, [part(results) for part in parts])
    return lambda results: data


def _mapping(like, items):
    if isinstance(like, collections.defaultdict):
        return type(like)(like.default_factory, items)
    made = type(like)(items)
    # A module's state dictionary carries versions in this attribute, and load_state_dict reads them.
    if hasattr(like, "_metadata"):
        made._metadata = like._metadata
    return made


def _sequence(like, values):
    return type(like)(*values) if hasattr(like, "_fields") else type(like)(values)


def replace_file(path, write):
    """Writes a file beside `path` and moves it there: whoever reads `path` sees the old one or the new one, whole."""
    path = os.path.abspath(os.fspath(path))
    beside = f"{path}.{os.getpid()}.{threading.get_ident()}.new"
    try:
        with open(beside, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise



def __getattr__(name):
    raise _later.missing(__name__, name)
