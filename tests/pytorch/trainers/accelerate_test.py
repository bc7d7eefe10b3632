"""Accelerate trains on the device: prepare, backward, gather, autocast and its checkpoints."""
import functools
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import unittest

import support
import torch

EPOCHS = 6


# In each of two processes: half of the batches, gradients that are the mean of both, and what both have, gathered.
TWO = """
import sys, torch
import torch_xla.distributed.xla_multiprocessing as xmp
sys.path.insert(0, sys.argv[1])
import support

def train(index):
    from accelerate import Accelerator
    accelerator = Accelerator()
    assert (accelerator.num_processes, accelerator.process_index, str(accelerator.device)) == (2, index, "xla:0")
    model = support.network()
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), support.loader())
    for inputs, targets in loader:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()
    assert accelerator.gather(torch.tensor([float(index)], device=accelerator.device)).tolist() == [0.0, 1.0]
    expected = support.network()
    optimizer, batches = torch.optim.SGD(expected.parameters(), lr=0.1), list(support.loader())
    for pair in zip(batches[::2], batches[1::2]):
        optimizer.zero_grad()
        inputs, targets = (torch.cat(parts) for parts in zip(*pair))
        torch.nn.functional.cross_entropy(expected(inputs), targets).backward()
        optimizer.step()
    for got, want in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=0, atol=1e-5)
    accelerator.wait_for_everyone()
    accelerator.print("trained")

if __name__ == "__main__":
    xmp.spawn(train, nprocs=2, start_method="fork")
"""


@support.needs("accelerate")
class Accelerate(unittest.TestCase):

    def _train(self, accelerator, make_optimizer):
        model = support.network()
        model, optimizer, loader = accelerator.prepare(model, make_optimizer(model.parameters()), support.loader())
        losses, watch = [], None
        for epoch in range(EPOCHS):
            if epoch == 2:
                watch = support.Watch()
            kept = []
            for inputs, targets in loader:
                self.assertEqual((inputs.device.type, inputs.device.index), ("xla", 0))
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                kept.append(loss.detach())
            losses += [loss.item() for loss in kept]
        watch.check(self, (EPOCHS - 2) * support.BATCHES)
        return model, losses

    def test_it_finds_the_device_and_trains_as_torch_does(self):
        import accelerate
        from accelerate.utils import DistributedType, is_torch_xla_available
        self.assertTrue(is_torch_xla_available())
        self.assertEqual(importlib.metadata.version("torch_xla"), "2.9.0+weft")
        accelerator = accelerate.Accelerator()
        self.assertEqual((str(accelerator.device), accelerator.distributed_type), ("xla:0", DistributedType.XLA))
        make = functools.partial(torch.optim.AdamW, lr=0.01)
        model, losses = self._train(accelerator, make)
        support.check_equal(self, model.parameters(), losses, EPOCHS, make)
        inputs, targets = (tensor.to(accelerator.device) for tensor in support.data())
        right = accelerator.gather_for_metrics((model(inputs).argmax(1) == targets).float()).mean().item()
        self.assertGreater(right, 0.95)
        with tempfile.TemporaryDirectory() as folder:
            before = [parameter.detach().cpu() for parameter in model.parameters()]
            accelerator.save_state(folder)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()
            accelerator.load_state(folder)
            for parameter, old in zip(model.parameters(), before):
                self.assertTrue(torch.equal(parameter.detach().cpu(), old))

    def test_two_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(TWO)
            done = subprocess.run([sys.executable, path, os.path.dirname(os.path.abspath(__file__))], capture_output=True,
                                  text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "trained\n")


if __name__ == "__main__":
    unittest.main()
