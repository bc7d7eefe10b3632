"""Random streams: of the device, of generators of its own and of the CPU's; states that are read, set and restored."""

import copy
import json
import pickle
import unittest

from common import DEVICE, core, host_operations
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

X = torch.full((6,), 0.5, device=DEVICE)
# What draws with a generator, by name.
DRAWS = {
    "rand": lambda g: torch.rand(6, generator=g, device=DEVICE),
    "randn": lambda g: torch.randn(6, generator=g, device=DEVICE),
    "randint": lambda g: torch.randint(0, 1000, (6,), generator=g, device=DEVICE),
    "randperm": lambda g: torch.randperm(60, generator=g, device=DEVICE),
    "normal": lambda g: torch.normal(1.0, 2.0, (6,), generator=g, device=DEVICE),
    "normal of tensors": lambda g: torch.normal(X, X, generator=g),
    "normal of a mean": lambda g: torch.normal(X, 2.0, generator=g),
    "normal of a deviation": lambda g: torch.normal(1.0, X, generator=g),
    "bernoulli": lambda g: torch.bernoulli(torch.full((60,), 0.5, device=DEVICE), generator=g),
    "bernoulli of a number": lambda g: torch.bernoulli(torch.empty(60, device=DEVICE), 0.5, generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(60, device=DEVICE), 30, generator=g),
    "multinomial again": lambda g: torch.multinomial(torch.ones(60, device=DEVICE), 30, True, generator=g),
    "uniform_": lambda g: torch.empty(6, device=DEVICE).uniform_(2, 3, generator=g),
    "normal_": lambda g: torch.empty(6, device=DEVICE).normal_(2, 3, generator=g),
    "bernoulli_": lambda g: torch.empty(60, device=DEVICE).bernoulli_(0.5, generator=g),
    "bernoulli_ of a tensor": lambda g: torch.empty(6, device=DEVICE).bernoulli_(X, generator=g),
    "exponential_": lambda g: torch.empty(6, device=DEVICE).exponential_(2, generator=g),
    "random_": lambda g: torch.empty(6, device=DEVICE, dtype=torch.int64).random_(generator=g),
    "random_ below": lambda g: torch.empty(6, device=DEVICE, dtype=torch.int32).random_(1000, generator=g),
    "random_ between": lambda g: torch.empty(6, device=DEVICE).random_(-500, 500, generator=g),
    "init": lambda g: nn.init.kaiming_uniform_(torch.empty(3, 4, device=DEVICE), generator=g),
    "trunc": lambda g: nn.init.trunc_normal_(torch.empty(3, 4, device=DEVICE), generator=g),
}


class Generators(unittest.TestCase):
    def test_made(self):
        for device in ("xla", "xla:0", torch.device("xla"), torch.device("xla", 0)):
            generator = torch.Generator(device=device)
            self.assertEqual(generator.device, torch.device("xla:0"))
            self.assertIsInstance(generator, torch.Generator)
            self.assertEqual(generator.initial_seed(), torch.Generator().initial_seed())
        with self.assertRaisesRegex(RuntimeError, "xla:3 is no device"):
            torch.Generator("xla:3")

    def test_those_of_the_cpu_are_torchs(self):
        for generator in (torch.Generator(), torch.Generator("cpu"), torch.default_generator):
            self.assertIs(type(generator), torch._C.Generator)
            self.assertIsInstance(generator, torch.Generator)
            self.assertEqual(generator.device.type, "cpu")
        self.assertTrue(issubclass(torch._C.Generator, torch.Generator))
        self.assertNotIsInstance(1, torch.Generator)
        expected = torch.rand(3, generator=torch._C.Generator().manual_seed(4))
        self.assertTrue(torch.equal(torch.rand(3, generator=torch.Generator().manual_seed(4)), expected))
        with self.assertRaisesRegex(RuntimeError, "device type"):
            torch.Generator("nonsense")

        class Own(torch.Generator):
            pass

        self.assertIs(type(Own()), Own)

    def test_every_draw(self):
        for name, draw in DRAWS.items():
            with self.subTest(name):
                generator = torch.Generator(DEVICE).manual_seed(11)
                before = torch.xla.get_rng_state()
                core.clear_counters()
                first, state, second = draw(generator).cpu(), generator.get_state(), draw(generator).cpu()
                self.assertEqual(host_operations(), [])
                self.assertFalse(torch.equal(first, second))
                self.assertTrue(torch.equal(draw(generator.manual_seed(11)).cpu(), first))
                self.assertTrue(torch.equal(draw(generator.set_state(state)).cpu(), second))
                self.assertTrue(torch.equal(torch.xla.get_rng_state(), before), "the device's stream")
                torch.manual_seed(11)
                self.assertTrue(torch.equal(draw(None).cpu(), first), "equal seeds give equal numbers")

    def test_those_of_the_cpu_draw_on_the_host(self):
        expected = torch.randn(5, generator=torch.Generator().manual_seed(3))
        core.clear_counters()
        actual = torch.randn(5, generator=torch.Generator().manual_seed(3), device=DEVICE)
        self.assertTrue(torch.equal(actual.cpu(), expected))
        self.assertEqual(host_operations(), ["aten::normal_"])

    def test_states(self):
        generator = torch.Generator(DEVICE)
        self.assertIs(generator.manual_seed(-1), generator)
        self.assertEqual(generator.initial_seed(), 2**64 - 1)
        self.assertEqual(generator.seed(), generator.initial_seed())
        self.assertNotEqual(generator.seed(), generator.seed())
        generator.manual_seed(9)
        torch.rand(7, generator=generator, device=DEVICE)
        state = generator.get_state()
        self.assertEqual((state.dtype, state.device.type, state.shape), (torch.uint8, "cpu", (24,)))
        copies = (generator.clone_state(), copy.deepcopy(generator), pickle.loads(pickle.dumps(generator)),
                  torch.Generator(DEVICE).set_state(state), generator.graphsafe_get_state(),
                  torch.Generator(DEVICE).graphsafe_set_state(generator))
        expected = torch.rand(7, generator=generator, device=DEVICE).cpu()
        for other in copies:
            self.assertTrue(torch.equal(torch.rand(7, generator=other, device=DEVICE).cpu(), expected))
        for wrong, error in (
            (torch.zeros(3, dtype=torch.uint8), RuntimeError),
            (torch.zeros(24), TypeError),
            ("x", TypeError),
        ):
            with self.assertRaises(error):
                generator.set_state(wrong)
        for wrong in (2**70, "seed", 1.5):
            with self.assertRaises((TypeError, RuntimeError, ValueError, OverflowError)):
                generator.manual_seed(wrong)

    def test_the_host_cannot_draw_from_it(self):
        with self.assertRaisesRegex(NotImplementedError, "aten::poisson runs on the host, which cannot draw"):
            torch.poisson(X, generator=torch.Generator(DEVICE))

    def test_numbers_are_arguments_of_the_program(self):
        generator = torch.Generator(DEVICE).manual_seed(1)

        def step():
            value = torch.rand(64, generator=generator, device=DEVICE).sum()
            core.sync()
            return value.item()

        drawn = [step() for _ in range(4)]
        before = json.loads(core.weft_metrics_json())["counters"]["programs_compiled"]
        drawn += [step() for _ in range(8)]
        self.assertEqual(json.loads(core.weft_metrics_json())["counters"]["programs_compiled"], before)
        self.assertEqual(len(set(drawn)), 12)


class Streams(unittest.TestCase):
    def test_state_goes_on(self):
        torch.manual_seed(5)
        torch.rand(5, device=DEVICE)
        state = torch.xla.get_rng_state()
        expected, after = torch.randn(7, device=DEVICE).cpu(), torch.xla.get_rng_state()
        for device in (None, 0, "xla", DEVICE):
            torch.xla.set_rng_state(state, *([] if device is None else [device]))
            self.assertTrue(torch.equal(torch.randn(7, device=DEVICE).cpu(), expected))
            self.assertTrue(torch.equal(torch.xla.get_rng_state(), after))
        torch.xla.set_rng_state_all([state])
        self.assertTrue(torch.equal(torch.xla.get_rng_state_all()[0], state))
        number = core.get_rng_state()
        expected = torch.rand(3, device=DEVICE).cpu()
        core.set_rng_state(number)
        self.assertTrue(torch.equal(torch.rand(3, device=DEVICE).cpu(), expected))
        with self.assertRaisesRegex(RuntimeError, "has 24 bytes, not 5056"):
            torch.xla.set_rng_state(torch.get_rng_state())

    def test_fork_rng(self):
        torch.manual_seed(6)
        for options in ({"devices": [0]}, {}):
            before, host = torch.xla.get_rng_state(), torch.get_rng_state()
            with torch.random.fork_rng(device_type="xla", **options):
                torch.manual_seed(1)
                torch.rand(9, device=DEVICE)
                torch.rand(9)
                self.assertFalse(torch.equal(torch.xla.get_rng_state(), before))
            self.assertTrue(torch.equal(torch.xla.get_rng_state(), before))
            self.assertTrue(torch.equal(torch.get_rng_state(), host))

    def test_seeds(self):
        torch.manual_seed(77)
        self.assertEqual(torch.xla.initial_seed(), 77)
        torch.xla.manual_seed(78)
        self.assertEqual(torch.xla.initial_seed(), 78)
        torch.xla.seed()
        self.assertNotEqual(torch.xla.initial_seed(), 78)

    def test_default_generator(self):
        default = torch.xla.default_generators[0]
        self.assertEqual(len(torch.xla.default_generators), 1)
        with self.assertRaises(IndexError):
            torch.xla.default_generators[1]
        torch.manual_seed(8)
        self.assertEqual(default.initial_seed(), 8)
        expected = torch.rand(4, device=DEVICE).cpu()
        torch.manual_seed(8)
        self.assertTrue(torch.equal(torch.rand(4, device=DEVICE, generator=default).cpu(), expected))
        self.assertTrue(torch.equal(default.get_state(), torch.xla.get_rng_state()))

    def test_checkpointing_draws_the_same_again(self):
        torch.manual_seed(3)
        seen = []

        def part(value):
            out = nn.functional.dropout(value, 0.5)
            seen.append(out.detach().cpu())
            return out * 2

        for reentrant in (True, False):
            seen.clear()
            x = torch.ones(100, device=DEVICE, requires_grad=True)
            with set_checkpoint_early_stop(False):
                checkpoint(part, x, use_reentrant=reentrant).sum().backward()
            self.assertEqual(len(seen), 2)
            self.assertTrue(torch.equal(*seen))
            self.assertTrue(torch.equal(x.grad.cpu(), seen[0] * 2))


if __name__ == "__main__":
    unittest.main()
