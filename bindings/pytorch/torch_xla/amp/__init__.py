"""torch_xla.amp: autocast and gradient scaling for the device type `xla`."""
import torch

from .. import _later
from . import syncfree


class autocast(torch.amp.autocast_mode.autocast):
    """torch.autocast for a device of ours: bfloat16, or `dtype`, for the operations of PyTorch/XLA's list."""

    def __init__(self, device, enabled=True, dtype=torch.bfloat16, cache_enabled=None):
        kind = torch.device(device).type
        if kind != "xla":
            raise ValueError(f"torch_xla.amp.autocast: '{device}' is not an XLA device; torch.autocast('{kind}') serves it")
        super().__init__("xla", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler for the device type `xla`.

    Whether a step overflowed stays on the device: optimizers of `syncfree` are told by a tensor, and with `use_zero_grad`
    gradients that are not finite become zero and the step is taken. Only for other optimizers the host reads it.
    """

    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True,
                 use_zero_grad=False):
        super().__init__("xla", init_scale=init_scale, growth_factor=growth_factor, backoff_factor=backoff_factor,
                         growth_interval=growth_interval, enabled=enabled)
        self._use_zero_grad = use_zero_grad

    def _maybe_opt_step(self, optimizer, optimizer_state, *args, **kwargs):
        if not self._use_zero_grad and isinstance(optimizer, (syncfree.SGD, syncfree.Adam, syncfree.AdamW)):
            found = list(optimizer_state["found_inf_per_device"].values())
            return optimizer.step(*args, found_inf=sum(found[1:], found[0]), **kwargs)
        if not self._use_zero_grad:
            return super()._maybe_opt_step(optimizer, optimizer_state, *args, **kwargs)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        return optimizer.step(*args, **kwargs)


def __getattr__(name):
    raise _later.missing(__name__, name)
