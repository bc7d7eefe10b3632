"""Optimizers of amp.syncfree against torch's on the CPU, with steps that are skipped, and GradScaler with them."""
import copy
import unittest

import support  # noqa: F401
import torch
import torch_xla
from torch_xla import amp
from torch_xla.amp import syncfree
from torch_xla.debug import metrics as met

DEVICE = torch.device("xla", 0)
CASES = [(syncfree.SGD, torch.optim.SGD, options) for options in (
            {"lr": 0.1}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
            {"lr": 0.1, "momentum": 0.8, "dampening": 0.5, "maximize": True})] + [
        (mine, torchs, options) for mine, torchs in ((syncfree.Adam, torch.optim.Adam), (syncfree.AdamW, torch.optim.AdamW))
        for options in ({"lr": 0.05}, {"lr": 0.05, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1},
                        {"lr": 0.05, "amsgrad": True, "maximize": True})]


def _pairs():
    generator = torch.Generator().manual_seed(3)
    values = [torch.randn(4, 3, generator=generator), torch.randn(5, generator=generator)]
    there = [torch.nn.Parameter(value.to(DEVICE)) for value in values]
    return [torch.nn.Parameter(value.clone()) for value in values], there, generator


class Steps(unittest.TestCase):

    def test_are_torchs_and_skipped_ones_change_nothing(self):
        for mine, torchs, options in CASES:
            with self.subTest(optimizer=mine.__name__, **options):
                host, there, generator = _pairs()
                judge, tried = torchs(host, **options), mine(there, **options)
                # The first step is skipped too: no state is there yet. None is as 0.
                for number, found in enumerate((1.0, 0.0, 2.0, 0.0, None, 0.0, 1.0)):
                    bad = bool(found)
                    for parameter, other in zip(host, there):
                        parameter.grad = torch.randn(parameter.shape, generator=generator)
                        other.grad = (parameter.grad * float("nan") if bad and number else parameter.grad).to(DEVICE)
                    before = [parameter.detach().cpu() for parameter in there]
                    tried.step(found_inf=None if found is None else torch.tensor(found, device=DEVICE))
                    torch_xla.sync()
                    if bad:
                        for parameter, old in zip(there, before):
                            self.assertTrue(torch.equal(parameter.detach().cpu(), old))
                    else:
                        judge.step()
                    for parameter, other in zip(host, there):
                        torch.testing.assert_close(other.detach().cpu(), parameter.detach(), rtol=2e-5, atol=2e-5)
                for parameter, other in zip(host, there):
                    for name, value in judge.state[parameter].items():
                        if value is not None:
                            torch.testing.assert_close(tried.state[other][name].cpu(), value, rtol=2e-5, atol=2e-5)

    def test_a_state_of_torchs_optimizer_goes_on(self):
        for mine, torchs, options in CASES:
            with self.subTest(optimizer=mine.__name__, **options):
                host, there, _ = _pairs()
                judge, tried = torchs(host, **options), mine(there, **options)
                for parameter, other in zip(host, there):
                    parameter.grad = torch.ones_like(parameter)
                    other.grad = torch.ones_like(other)
                judge.step()
                tried.load_state_dict(copy.deepcopy(judge.state_dict()))  # else both count in one tensor
                with torch.no_grad():
                    for parameter, other in zip(host, there):
                        other.copy_(parameter)
                judge.step()
                tried.step(found_inf=torch.tensor(0.0, device=DEVICE))
                for parameter, other in zip(host, there):
                    torch.testing.assert_close(other.detach().cpu(), parameter.detach(), rtol=2e-5, atol=2e-5)

    def test_the_closure_is_evaluated_once(self):
        _, there, _ = _pairs()
        for kind in (syncfree.SGD, syncfree.Adam):
            optimizer, calls = kind(there, lr=0.1), []

            def closure():
                calls.append(torch.is_grad_enabled())
                optimizer.zero_grad()
                loss = there[0].sum()
                loss.backward()
                return loss

            for found in (None, torch.zeros((), device=DEVICE)):
                self.assertIsInstance(optimizer.step(closure, found_inf=found), torch.Tensor)
            self.assertEqual(calls, [True, True])

    def test_found_inf_has_no_dimensions(self):
        _, there, _ = _pairs()
        there[0].grad = torch.ones_like(there[0])
        for kind in (syncfree.SGD, syncfree.Adam, syncfree.AdamW):
            with self.assertRaisesRegex(ValueError, r"a tensor without dimensions, not a tensor of shape \[1\]"):
                kind(there, lr=0.1).step(found_inf=torch.zeros(1, device=DEVICE))
            with self.assertRaisesRegex(ValueError, "a tensor without dimensions, not float"):
                kind(there, lr=0.1).step(found_inf=1.0)


class Scaling(unittest.TestCase):

    def test_nothing_is_read_and_nothing_compiled_while_steps_overflow_or_not(self):
        for kind, options in ((syncfree.SGD, {"momentum": 0.9}), (syncfree.Adam, {}), (syncfree.AdamW, {})):
            weight = torch.nn.Parameter(torch.ones(4, device=DEVICE))
            optimizer, scaler = kind([weight], lr=0.01, **options), amp.GradScaler(init_scale=8.0, growth_interval=2)

            def step(factor):
                optimizer.zero_grad()
                scaler.scale((weight * factor).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
                torch_xla.sync()

            factors = [torch.tensor(value).to(DEVICE) for value in (1.0, float("inf"), 1.0, 1.0, float("nan"), 1.0)]
            for factor in factors[:3]:
                step(factor)
            torch_xla.sync(wait=True)
            met.clear_all()
            for factor in factors:
                step(factor)
            torch_xla.sync(wait=True)
            self.assertIsNone(met.metric_data("TransferFromDeviceTime"), kind)
            self.assertIsNone(met.counter_value("UncachedCompile"), kind)
            self.assertEqual(met.executed_fallback_ops(), [])
            self.assertTrue(weight.detach().cpu().isfinite().all())
            self.assertEqual(scaler.get_scale(), self._scale_on_the_host(factors))

    def _scale_on_the_host(self, factors):
        """torch's own scaler on the CPU, with the same steps."""
        weight = torch.nn.Parameter(torch.ones(4))
        optimizer, scaler = torch.optim.SGD([weight], lr=0.01), torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        for factor in [factor.cpu() for factor in factors[:3] + factors]:
            optimizer.zero_grad()
            scaler.scale((weight * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        return scaler.get_scale()

    def test_both_kernels_give_what_torchs_give(self):
        for values in ([1.0, 2.0], [1.0, float("inf")], [float("nan"), 0.0], [65504.0, -65504.0]):
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                grads, scale = torch.tensor(values).to(dtype), torch.tensor(2.0**-16)
                got = [grads.to(DEVICE), torch.zeros((), device=DEVICE)]
                torch._amp_foreach_non_finite_check_and_unscale_([got[0]], got[1], scale.to(DEVICE))
                self.assertEqual(got[1].item(), float(not grads.isfinite().all()))
                torch.testing.assert_close(got[0].cpu(), (grads.double() * 2.0**-16).to(dtype), rtol=0, atol=0, equal_nan=True)
        for found in (0.0, 1.0):
            for tracker in (0, 1, 2):
                for scale in (1.0, 3e38, 1e-45):
                    host = [torch.tensor(scale), torch.tensor(tracker, dtype=torch.int32)]
                    there = [value.to(DEVICE) for value in host]
                    torch._amp_update_scale_(*host, torch.tensor(found), 2.0, 0.5, 3)
                    torch._amp_update_scale_(*there, torch.tensor(found, device=DEVICE), 2.0, 0.5, 3)
                    got, want = ([value.item() for value in values] for values in (there, host))
                    self.assertEqual(got, want, (found, tracker, scale))


if __name__ == "__main__":
    unittest.main()
