"""torch_xla.distributed.xla_backend: importing it makes torch.distributed know the backend `xla`.

Starting a process group of it is refused by name: several processes come later.
"""
import torch.distributed as dist

from .. import _later


def _create_xla_process_group(*args, **kwargs):
    raise NotImplementedError("torch.distributed: a process group 'xla' needs several processes of torch_xla, which come "
                              "later; one process needs none")


def _register():
    if dist.is_available() and "xla" not in dist.Backend.backend_list:
        dist.Backend.register_backend("xla", _create_xla_process_group, devices="xla")


_register()


def __getattr__(name):
    raise _later.missing(__name__, name)
