"""Names of environment variables that this package or the library below it reads."""
from .. import _later

PJRT_DEVICE = "PJRT_DEVICE"
TPU_VISIBLE_CHIPS = "TPU_VISIBLE_CHIPS"
# XRT's: they chose a server, which nobody asks any more; setting one makes `xla:1` mean the first device.
TPU_CONFIG = "XRT_TPU_CONFIG"
DEVICE_MAP = "XRT_DEVICE_MAP"
WORKERS = "XRT_WORKERS"


def __getattr__(name):
    raise _later.missing(__name__, name)
