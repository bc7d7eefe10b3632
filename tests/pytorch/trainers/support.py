"""What the trainers' tests share: data that a small network can learn, the same training by hand, the device's counters."""
import importlib.util
import unittest

import torch

CLASSES, WIDTH, BATCH, BATCHES = 4, 8, 16, 12


def needs(*packages):
    """Skips, and names what is missing; the distribution torch_xla (bindings/pytorch/wheel.py) is not optional."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, "not installed: " + ", ".join(missing))


def data():
    """Points around one centre for each class, in an order that mixes them: (inputs, targets)."""
    generator = torch.Generator().manual_seed(1)
    centres = 3 * torch.randn(CLASSES, WIDTH, generator=generator)
    targets = torch.randint(0, CLASSES, (BATCH * BATCHES,), generator=generator)
    return centres[targets] + torch.randn(len(targets), WIDTH, generator=generator), targets


def network():
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 16), torch.nn.Tanh(), torch.nn.Linear(16, CLASSES))


def dataset():
    return torch.utils.data.TensorDataset(*data())


def loader():
    return torch.utils.data.DataLoader(dataset(), batch_size=BATCH)


def by_hand(epochs, make_optimizer):
    """The same training by torch alone: (losses by step, parameters)."""
    model, losses = network(), []
    optimizer = make_optimizer(model.parameters())
    for _ in range(epochs):
        for inputs, targets in loader():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, [parameter.detach() for parameter in model.parameters()]


class Watch:
    """Counters of the device, from where training is in its stride."""

    def __init__(self):
        from torch_xla.debug import metrics
        self._metrics = metrics
        metrics.clear_all()

    def check(self, case, least_runs):
        """Programs ran on the device, none was compiled, and the host computed nothing."""
        runs = self._metrics.metric_data("ExecuteTime")
        case.assertIsNotNone(runs, "nothing ran on the device")
        case.assertGreaterEqual(runs[0], least_runs)
        case.assertEqual(self._metrics.executed_fallback_ops(), [])
        case.assertIsNone(self._metrics.counter_value("UncachedCompile"))


def check_equal(case, parameters, losses, epochs, make_optimizer):
    """Losses and parameters are those of the training by hand, and the loss fell."""
    expected_losses, expected = by_hand(epochs, make_optimizer)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected_losses), rtol=1e-3, atol=1e-4)
    for got, want in zip(parameters, expected, strict=True):
        torch.testing.assert_close(got.detach().cpu(), want, rtol=1e-3, atol=1e-4)
    case.assertLess(sum(losses[-BATCHES:]), 0.2 * sum(losses[:BATCHES]))
