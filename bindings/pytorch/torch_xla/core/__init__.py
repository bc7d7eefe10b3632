"""torch_xla.core: devices, barrier and collectives (xla_model), names of variables (xla_env_vars)."""
from .. import _later


def __getattr__(name):
    raise _later.missing(__name__, name)
