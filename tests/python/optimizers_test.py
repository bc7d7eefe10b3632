"""Every optimizer of the C library, through the package, beside PyTorch's and optax's parameters after 100 steps; a state half way;
groups; 16-bit and complex parameters; what is refused."""

import os
import unittest

import support

if support.np is None and "WEFT_BUILD" in os.environ and "LIBWEFT_INSTALLED" not in os.environ:
    from support_env import enter_numpy

    enter_numpy(os.path.abspath(__file__))

import libweft as wf  # noqa: E402
from libweft import optim  # noqa: E402

np = support.np
if np is not None:
    from optimizer_cases import CASES, STEPS, gradients, start

FIXTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizers_fixture.npz")


def parameters(case, kind):
    return [wf.Parameter(wf.tensor(x.astype(kind))) for x in start(case)]


def made(case, params):
    name, settings, _ = CASES[case]
    return getattr(optim, name)(params, **settings)


def steps(optimizer, case, kind, first, last):
    for step in range(first, last):
        with wf.step():
            optimizer.step([wf.tensor(g.astype(kind)) for g in gradients(case, step)])


@support.needs_numpy
class Optimizers(unittest.TestCase):
    # The share of the largest element: 100 steps round 100 times, and judges in another order.
    NEAR = {"f4": 2e-5, "f8": 2e-13}
    # PyTorch keeps the product of NAdam's momentums and ASGD's rates in f32, whatever the parameters are.
    OWN = {("nadam", "f8"): 2e-7, ("nadam decoupled", "f8"): 2e-7, ("asgd", "f8"): 2e-8}

    def test_parameters_after_a_hundred_steps_are_the_judges(self):
        wanted = np.load(FIXTURE)
        for case in CASES:
            for kind in ("f4", "f8"):
                with self.subTest(case=case, kind=kind):
                    params = parameters(case, kind)
                    optimizer = made(case, params)
                    steps(optimizer, case, kind, 0, STEPS)
                    near = self.OWN.get((case, kind), self.NEAR[kind])
                    for i, p in enumerate(params):
                        want = wanted["%s/%s/%d" % (case, kind, i)]
                        self.assertLessEqual(np.max(np.abs(p.numpy() - want)), near * max(1.0, np.max(np.abs(want))))
                        self.assertGreater(np.max(np.abs(want - start(case)[i])), 1e-2)  # it went somewhere

    def test_a_saved_state_goes_on_as_if_nothing_had_been(self):
        for case in CASES:
            with self.subTest(case=case):
                params = parameters(case, "f4")
                optimizer = made(case, params)
                steps(optimizer, case, "f4", 0, 7)
                others = [wf.Parameter(wf.tensor(p.numpy())) for p in params]
                again = made(case, others)
                again.load_state_dict(optimizer.state_dict())
                for each in (optimizer, again):
                    steps(each, case, "f4", 7, 12)
                for p, q in zip(params, others):
                    np.testing.assert_array_equal(p.numpy(), q.numpy())

    def test_no_step_compiles_anew(self):
        for case in ("radam", "nadam", "asgd", "adafactor"):
            with self.subTest(case=case):
                optimizer = made(case, parameters(case, "f4"))
                steps(optimizer, case, "f4", 0, 2)
                before = wf.metrics.get("programs_compiled")
                steps(optimizer, case, "f4", 2, 12)  # RAdam's variance is certain from step 6 on
                self.assertEqual(before, wf.metrics.get("programs_compiled"))

    def test_groups_are_optimizers_side_by_side(self):
        for name, settings in (("RMSprop", {"centered": True, "momentum": 0.5}), ("Lion", {"beta1": 0.5}), ("Adam", {"amsgrad": True})):
            with self.subTest(name=name):
                kind = getattr(optim, name)
                both, one, other = (parameters("sgd", "f4") for _ in range(3))
                groups = kind([{"params": both[:2]}, {"params": both[2:], "lr": 0.03, **settings}], lr=0.01)
                alone = [kind(one[:2], lr=0.01), kind(other[2:], lr=0.03, **settings)]
                for step in range(6):
                    grads = [wf.tensor(g.astype("f4")) for g in gradients("sgd", step)]
                    with wf.step():
                        groups.step(grads)
                        alone[0].step(grads[:2])
                        alone[1].step(grads[2:])
                for p, q in zip(both, one[:2] + other[2:]):
                    np.testing.assert_array_equal(p.numpy(), q.numpy())

    def test_sixteen_bit_parameters_have_states_of_f32_and_complex_ones_are_two(self):
        for case in CASES:
            with self.subTest(case=case):
                half = [wf.Parameter(wf.tensor(x.astype("f4")).astype("bf16")) for x in start(case)]
                optimizer = made(case, half)
                for step in range(3):
                    with wf.step():
                        optimizer.step([wf.tensor(g.astype("f4")).astype("bf16") for g in gradients(case, step)])
                whole = parameters(case, "f4")
                steps(made(case, whole), case, "f4", 0, 3)
                for p, q in zip(half, whole):
                    self.assertLess(np.max(np.abs(p.astype("f32").numpy() - q.numpy())), 0.05)
                if CASES[case][0] in ("LAMB", "Adafactor", "Muon"):
                    continue
                first, slope = start(case)[0], gradients(case, 0)[0]
                z = wf.Parameter(wf.tensor((first + 1j * slope).astype("c8")))
                parts = [wf.Parameter(wf.tensor(x.astype("f4"))) for x in (first, slope)]
                with wf.step():
                    made(case, [z]).step([wf.tensor((slope - 2j * first).astype("c8"))])
                    made(case, parts).step([wf.tensor(slope.astype("f4")), wf.tensor((-2 * first).astype("f4"))])
                np.testing.assert_array_equal(z.numpy().real, parts[0].numpy())
                np.testing.assert_array_equal(z.numpy().imag, parts[1].numpy())

    def test_a_scaled_step_is_the_step_and_one_that_overflows_changes_nothing(self):
        for name in ("Adam", "SGD", "RMSprop"):
            with self.subTest(name=name):
                scaled, plain = ([wf.Parameter(wf.tensor(np.float32([1, -2, 3])))] for _ in range(2))
                optimizer, other = (getattr(optim, name)(p, lr=0.1) for p in (scaled, plain))
                scaler = optim.GradScaler(scale=1024.0, growth_interval=2)
                values, targets, compiled = [], np.float32([[1, 2, 3], [0, 1, 0], [2, 2, 2], [5, 0, 1], [1, 1, 1]]), []
                for step, x in enumerate(targets):
                    bad = step == 2
                    factor = wf.tensor(np.float32(np.inf if bad else 1.0))
                    before = scaled[0].numpy(), {k: [t.numpy() for t in v] for k, v in optimizer.state_dict()["state"]["slots"].items()}
                    with wf.step():
                        scaler.step(optimizer, ((scaled[0] - wf.tensor(x)).square() * factor).sum())
                    compiled.append(wf.metrics.get("programs_compiled"))
                    if bad:
                        np.testing.assert_array_equal(before[0], scaled[0].numpy())
                        for k, v in optimizer.state_dict()["state"]["slots"].items():
                            np.testing.assert_array_equal(before[1][k][0], v[0].numpy())
                    values.append(scaler.value.item())
                    if not bad:
                        with wf.step():
                            other.step((plain[0] - wf.tensor(x)).square().sum())
                    else:
                        other.count += 1
                self.assertEqual([1024, 2048, 1024, 1024, 2048], values)
                self.assertEqual(compiled[1], compiled[4])  # neither the overflow nor the growth compiled anything
                if name != "Adam":  # its bias correction counts every step
                    np.testing.assert_allclose(scaled[0].numpy(), plain[0].numpy(), rtol=1e-6)

    def test_what_unscale_gives_can_be_clipped_and_the_state_goes_on(self):
        p = wf.Parameter(wf.tensor(np.float32([3.0, 4.0])))
        optimizer, scaler = optim.SGD([p], lr=1.0), optim.GradScaler(scale=8.0, growth_interval=1)
        with wf.step():
            grads = wf.gradients(scaler.scale((p * p).sum() * 0.5), [p])
            grads, found = scaler.unscale(grads)
            grads, norm = optim.clip_by_global_norm(grads, 1.0)
            scaler.step(optimizer, grads, found=found)
        np.testing.assert_allclose(p.numpy(), [2.4, 3.2], rtol=1e-5)
        again = optim.GradScaler()
        again.load_state_dict(scaler.state_dict())
        self.assertEqual((16.0, 16.0), (scaler.value.item(), again.value.item()))
        self.refused("scale is 0; it must be above 0", optim.GradScaler, 0)
        self.refused("growth_interval", optim.GradScaler, growth_interval=0)

    def refused(self, text, call, *arguments, **settings):
        with self.assertRaises(wf.Error) as caught:
            call(*arguments, **settings)
        self.assertIn(text, str(caught.exception))

    def test_what_cannot_be_is_said(self):
        p = parameters("sgd", "f4")
        self.refused("momentum is -1; it must be in [0, inf)", optim.RMSprop, p, momentum=-1)
        self.refused("beta2 is 1; it must be in [0, 1)", optim.Lion, p, beta2=1)
        self.refused("nesterov needs a momentum above 0", optim.SGD, p, 0.1, nesterov=True)
        self.refused("nesterov needs a dampening of 0", optim.SGD, p, 0.1, nesterov=True, momentum=0.9, dampening=0.1)
        self.refused("amsgrad is 2; it must be 0 or 1", optim.Adam, p, amsgrad=2)
        self.refused("muon takes tensors of 2 dimensions", optim.Muon, p)
        self.refused("lamb takes floats", optim.LAMB, [wf.tensor(np.ones(3, "c8"))])
        self.refused("step_min is 2 and step_max 1", optim.Rprop, p, step_min=2.0, step_max=1.0)
        self.refused("clip is 0; it must be above 0", optim.Adafactor, p, clip=0)
        self.refused("limit is -1", optim.clip_by_value, [p[0]], -1)

    def test_gradients_are_held_to_a_value(self):
        g = np.array([-3.0, 0.5, 2.0], "f4")
        held = optim.clip_by_value({"w": wf.tensor(g), "b": None}, 1)
        np.testing.assert_array_equal(held["w"].numpy(), np.clip(g, -1, 1))
        self.assertIsNone(held["b"])


if __name__ == "__main__":
    unittest.main()
