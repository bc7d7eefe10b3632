"""Lightning finds the device as a TPU of one core, and trains on it."""
import functools
import tempfile
import unittest
import warnings

import support
import torch

EPOCHS = 6


def _module(losses):
    import lightning

    class Classifier(lightning.LightningModule):

        def __init__(self):
            super().__init__()
            self.network = support.network()

        def training_step(self, batch, index):
            loss = torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])
            losses.append(loss.detach())
            return loss

        def validation_step(self, batch, index):
            self.log("right", (self.network(batch[0]).argmax(1) == batch[1]).float().mean())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Classifier()


def _callback(case):
    """Counts from the third epoch to the end of training, before Lightning moves the network to the host."""
    import lightning

    class Watcher(lightning.Callback):
        watch = devices = None

        def on_train_epoch_start(self, trainer, module):
            if trainer.current_epoch == 2:
                self.watch = support.Watch()
                self.devices = {str(parameter.device) for parameter in module.parameters()}

        def on_train_end(self, trainer, module):
            self.watch.check(case, (EPOCHS - 2) * support.BATCHES)

    return Watcher()


@support.needs("lightning")
class Lightning(unittest.TestCase):

    def test_it_finds_the_device_and_trains_as_torch_does(self):
        import lightning
        from lightning.pytorch.accelerators import XLAAccelerator
        self.assertTrue(XLAAccelerator.is_available())
        losses, watcher = [], _callback(self)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = lightning.Trainer(accelerator="tpu", devices=1, max_epochs=EPOCHS, logger=False, callbacks=[watcher],
                                        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
                                        num_sanity_val_steps=0)
            module = _module(losses)
            trainer.fit(module, support.loader())
            self.assertEqual(watcher.devices, {"xla:0"})
            right = trainer.validate(module, support.loader(), verbose=False)[0]["right"]
            self.assertGreater(right, 0.95)
            path = folder + "/last.ckpt"
            trainer.save_checkpoint(path)
            saved = torch.load(path, weights_only=False)["state_dict"]
        support.check_equal(self, module.parameters(), [loss.item() for loss in losses], EPOCHS,
                            functools.partial(torch.optim.SGD, lr=0.1))
        for name, parameter in module.state_dict().items():
            self.assertTrue(torch.equal(saved[name].cpu(), parameter.cpu()), name)


if __name__ == "__main__":
    unittest.main()
