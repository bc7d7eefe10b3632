"""Nothing is left behind: handles, memory over many steps, and threads that train at the same time."""

import copy
import gc
import os
import threading
import unittest

from common import DEVICE, core
import torch
from torch import nn
from torch.nn import functional as F

ALIVE = core.runtime.C.alive


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.0),
        nn.Linear(4 * 16, 10))  # fmt: skip


class Training:
    """A model with its data, trained one step after the other."""

    def __init__(self, device, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.model = copy.deepcopy(model()).to(device)
        self.data = torch.randn(8, 1, 8, 8, generator=generator).to(device)
        self.labels = torch.randint(0, 10, (8,), generator=generator).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)

    def step(self):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.data), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss


def everything():
    """Each kind of kernel, of view, of error, once; nothing of it is kept."""
    x = torch.arange(24.0, device=DEVICE).reshape(4, 6).requires_grad_()
    y = (x.t()[1:, ::2] * 2 + x.as_strided((5, 2), (1, 6), 1)).unfold(0, 2, 1).sum() + x.view(torch.int32).sum()
    y.backward()
    x.detach()[1:3, ::2].add_(1).mul_(torch.tensor(2.0))
    torch.add(x.detach(), 1, out=torch.empty(0, device=DEVICE))
    torch.linalg.pinv(x.detach())
    torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x.detach()))
    x.detach().untyped_storage().clone().tolist()
    generator = torch.Generator(DEVICE)
    F.dropout(torch.rand(4, device=DEVICE, generator=generator), 0.5)
    copy.deepcopy(x)
    for wrong in (
        lambda: x + torch.ones(4, 6), lambda: x @ x, lambda: x.view(5), lambda: x.as_strided((99,), (9,)),
        lambda: x.detach().add_(torch.ones(9, 4, 6, device=DEVICE)), lambda: torch.ones(2, device="xla:9"),
        lambda: torch.empty(1 << 50, device=DEVICE), lambda: x.unfold(0, 9, 1), lambda: torch.relu(x, out=1),
        lambda: torch.cat([x, torch.ones(4, 6)]), lambda: x.sum(7), lambda: torch.mm(x.detach().long(), x.detach()),
    ):  # fmt: skip
        try:
            wrong()
        except (RuntimeError, TypeError, IndexError):
            continue
        raise AssertionError("an error is missing")


class Handles(unittest.TestCase):
    def test_all_are_given_back(self):
        def round_of():
            everything()
            training = Training(DEVICE)
            for _ in range(3):
                training.step()
                core.sync()
            del training
            gc.collect()
            core.wait()
            return ALIVE()

        round_of()
        first = round_of()
        for _ in range(3):
            self.assertEqual(round_of(), first)
        x = torch.ones(3, device=DEVICE)
        self.assertEqual(ALIVE(), (first[0] + 1, first[1]))
        value = core.runtime.C.read(x)
        self.assertEqual(ALIVE(), (first[0] + 1, first[1] + 1))
        del x, value
        self.assertEqual(ALIVE(), first)


class Threads(unittest.TestCase):
    def test_four_train_at_once(self):
        expected, results, failures = {}, {}, []
        for seed in range(4):
            training = Training("cpu", seed)
            expected[seed] = [training.step().item() for _ in range(20)]

        def train(training, seed):
            try:
                results[seed] = []
                for _ in range(20):
                    loss = training.step()
                    if seed % 2:
                        core.sync()
                    results[seed].append(loss.item())
            except Exception as error:  # noqa: BLE001
                failures.append(repr(error))

        threads = [threading.Thread(target=train, args=(Training(DEVICE, seed), seed)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        for seed in range(4):
            torch.testing.assert_close(torch.tensor(results[seed]), torch.tensor(expected[seed]), rtol=1e-4, atol=1e-4)

    def test_four_share_a_tensor(self):
        x, failures = torch.arange(64.0, device=DEVICE), []

        def work(i):
            for k in range(100):
                part = x[i * 16:(i + 1) * 16]
                if not torch.equal((part * 2 + k).cpu(), torch.arange(i * 16.0, (i + 1) * 16) * 2 + k):
                    failures.append((i, k))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


class Steps(unittest.TestCase):
    @unittest.skipUnless(os.environ.get("WEFT_LONG"), "WEFT_LONG=1 takes 10,000 steps")
    def test_memory_is_flat_over_10000_steps(self):
        training = Training(DEVICE)
        everything()

        def steps(count):
            for _ in range(count):
                training.step()
                core.sync()
            gc.collect()
            core.wait()
            return resident(), core.memory_info()["bytes_used"], ALIVE()

        memory, used, alive = steps(1000)
        last, used_last, alive_last = steps(9000)
        print(f"10,000 steps: {memory >> 10} KiB after 1,000, {last >> 10} KiB after 10,000", flush=True)
        self.assertLess(last - memory, 4 << 20)
        self.assertLessEqual(used_last, used)
        self.assertEqual(alive_last, alive)


if __name__ == "__main__":
    unittest.main()
