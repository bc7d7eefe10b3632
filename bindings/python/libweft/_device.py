"""Devices of a context."""

import ctypes

from . import _call
from ._call import bind, byref, c_size_t, check, empty_struct, field, handle_class, quick, text_of

_Handle = handle_class("DeviceHandle", quick("weft_device_release", None))
_name = quick("weft_device_name")
_kind = quick("weft_device_kind")
_memory = quick("weft_device_memory")
_trim = bind("weft_device_trim")
_count = quick("weft_device_count")
_at = quick("weft_device_at")
_by_name = quick("weft_device_by_name")
_dlpack = quick("weft_device_dlpack")


class Device:
    """One device: `cpu:0`. Two objects of one device are equal."""

    __slots__ = ("_h",)

    def __init__(self, handle):
        self._h = handle

    def _text(self, function):
        out, size = ctypes.c_char_p(), c_size_t()
        check(function(self._h, byref(out), byref(size)))
        return ctypes.string_at(out, size.value).decode()

    @property
    def name(self):
        return self._text(_name)

    @property
    def kind(self):
        return self._text(_kind)

    @property
    def memory(self):
        """Bytes in use, the most that were, and the limit (0: what there is)."""
        stats = empty_struct("weft_memory_stats")
        check(_memory(self._h, stats))
        return {key: field(stats, "weft_memory_stats", key) for key in ("bytes_in_use", "peak_bytes", "bytes_limit")}

    def trim(self):
        """Gives memory that is kept for reuse back to the system."""
        check(_trim(self._h))

    def dlpack(self):
        """The device in DLPack's numbers: type and id."""
        kind, number = ctypes.c_int32(), ctypes.c_int32()
        check(_dlpack(self._h, byref(kind), byref(number)))
        return kind.value, number.value

    def __eq__(self, other):
        return isinstance(other, Device) and self.name == other.name or isinstance(other, str) and self.name == other

    def __hash__(self):
        return hash(self.name)

    def __repr__(self):
        return "libweft.device(%r)" % self.name


def all_of(context):
    count = c_size_t()
    check(_count(context, byref(count)))
    out = []
    for i in range(count.value):
        handle = _Handle()
        check(_at(context, c_size_t(i), byref(handle)))
        out.append(Device(handle))
    return out


def named(context, name):
    if isinstance(name, Device):
        return name
    handle = _Handle()
    check(_by_name(context, *text_of(name), byref(handle)))
    return Device(handle)


def chosen(device):
    """The handle of a device, which may be named, for an argument of C; None for none."""
    return None if device is None else named(_call.now.context or _call.start(), device)._h


def adopt(handle):
    return Device(handle)


def empty():
    return _Handle()
