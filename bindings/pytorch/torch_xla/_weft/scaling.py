"""What torch.amp.GradScaler asks for: both kernels stay on the device, so that scaling reads nothing back."""
import torch

from .table import lower


@lower("_amp_foreach_non_finite_check_and_unscale_")
def unscale(grads, found_inf, inv_scale):
    """Multiplies gradients by `inv_scale`; `found_inf` becomes 1 where one of them is not finite, else it stays."""
    found = found_inf
    for grad in grads:
        found = torch.where(grad.isfinite().all(), found, 1.0)
        # In f16 the usual factor, 2**-16, would be subnormal.
        grad.copy_(grad.to(torch.promote_types(grad.dtype, inv_scale.dtype)).mul(inv_scale))
    found_inf.copy_(found)


@lower("_amp_update_scale_")
def update_scale(scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval):
    """The next scale: smaller after an overflow, larger after so many steps without one unless it would be infinite."""
    overflow = found_inf != 0
    steps = growth_tracker + 1
    grows = steps == growth_interval
    grown = scale * growth_factor
    after = torch.where(grows & grown.isfinite(), grown, scale)
    growth_tracker.copy_(torch.where(overflow | grows, 0, steps))
    scale.copy_(torch.where(overflow, scale * backoff_factor, after))
    return scale
