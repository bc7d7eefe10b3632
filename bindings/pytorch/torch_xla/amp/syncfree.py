"""torch_xla.amp.syncfree: optimizers whose step can be skipped by a tensor, so that the host need not know whether it was.

`step(found_inf=tensor)` changes nothing, neither parameters nor the optimizer's state, where the tensor is not 0; what is
computed for that step is thrown away on the device. Without `found_inf` they are torch's. torch_xla.amp.GradScaler uses
them so.
"""
import torch

from .. import _later


def _flag(found_inf, device):
    if not isinstance(found_inf, torch.Tensor) or found_inf.dim() != 0:
        kind = type(found_inf).__name__
        if isinstance(found_inf, torch.Tensor):
            kind = f"a tensor of shape {list(found_inf.shape)}"
        raise ValueError(f"found_inf has to be a tensor without dimensions, not {kind}")
    return found_inf.to(device) != 0


def _with_gradient(group):
    return [parameter for parameter in group["params"] if parameter.grad is not None]


def _value_of(closure):
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


class _Adam:
    """What Adam and AdamW share: torch's step, taken back where it has to be skipped."""

    def _count_on_device(self):
        """The number of steps taken depends on tensors, so it is one; torch calls that capturable."""
        for group in self.param_groups:
            group["capturable"] = True
            for parameter in group["params"]:
                step = self.state.get(parameter, {}).get("step")
                if step is not None and step.device != parameter.device:
                    self.state[parameter]["step"] = step.to(parameter.device)

    @torch.no_grad()
    def step(self, closure=None, found_inf=None):
        self._count_on_device()
        if found_inf is None:
            return super().step(closure)
        loss = _value_of(closure)
        parameters = [parameter for group in self.param_groups for parameter in _with_gradient(group)]
        skips = {device: _flag(found_inf, device) for device in {parameter.device for parameter in parameters}}
        before = [parameter.clone() for parameter in parameters]
        states = [{name: value.clone() for name, value in self.state.get(parameter, {}).items()} for parameter in parameters]
        super().step()
        for parameter, old, state in zip(parameters, before, states):
            skip = skips[parameter.device]
            parameter.copy_(torch.where(skip, old, parameter))
            for name, value in self.state[parameter].items():
                # A state that this step made begins with zeros.
                value.copy_(torch.where(skip, state.get(name, torch.zeros_like(value)), value))
        return loss


class Adam(_Adam, torch.optim.Adam):
    """torch.optim.Adam whose step takes `found_inf`."""


class AdamW(_Adam, torch.optim.AdamW):
    """torch.optim.AdamW whose step takes `found_inf`."""


class SGD(torch.optim.SGD):
    """torch.optim.SGD whose step takes `found_inf`."""

    @torch.no_grad()
    def step(self, closure=None, found_inf=None):
        counted = any("step" in state for state in self.state.values())
        if found_inf is None and not counted:
            return super().step(closure)
        loss = _value_of(closure)
        for group in self.param_groups:
            for parameter in _with_gradient(group):
                skip = (torch.zeros((), dtype=torch.bool, device=parameter.device) if found_inf is None
                        else _flag(found_inf, parameter.device))
                self._update(parameter, group, skip)
        return loss

    def _update(self, parameter, group, skip):
        if parameter.grad.is_sparse:
            raise RuntimeError("syncfree.SGD takes no sparse gradients")
        gradient = -parameter.grad if group["maximize"] else parameter.grad
        if group["weight_decay"] != 0:
            gradient = gradient.add(parameter, alpha=group["weight_decay"])
        momentum = group["momentum"]
        if momentum != 0:
            state = self.state[parameter]
            buffer = state.get("momentum_buffer")
            if "step" not in state:
                state["step"] = torch.full((), 0.0 if buffer is None else 1.0, device=parameter.device)
            if buffer is None:
                buffer = state["momentum_buffer"] = torch.zeros_like(parameter)
            # Dampening does not hold for the first step that is taken, and which one that is the host does not know.
            moved = torch.where(state["step"] == 0, gradient, buffer * momentum + gradient * (1 - group["dampening"]))
            buffer.copy_(torch.where(skip, buffer, moved))
            state["step"].add_(torch.where(skip, 0.0, 1.0))
            gradient = gradient.add(moved, alpha=momentum) if group["nesterov"] else moved
        parameter.copy_(torch.where(skip, parameter, parameter - gradient * group["lr"]))


def __getattr__(name):
    raise _later.missing(__name__, name)
