"""The core of torch_xla over Weft: the device `xla` and what the facade asks of it."""
from . import device as _device
from . import autocast as _autocast
from . import attention, conv, elementwise, factory, foreach, index, nn, random, reduce  # noqa: F401
from . import rnn, runtime, scaling, storage  # noqa: F401
from . import register as _register
from .interface import *  # noqa: F401,F403

_device.install()
_register.install()
_autocast.install()
attention.install()
