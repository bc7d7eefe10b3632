"""Accelerate trains on the device: prepare, backward, gather, autocast and its checkpoints."""
import functools
import importlib.metadata
import tempfile
import unittest

import support
import torch

EPOCHS = 6


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


if __name__ == "__main__":
    unittest.main()
