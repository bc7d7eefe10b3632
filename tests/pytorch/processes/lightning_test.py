"""Lightning's Trainer with two processes: it puts the samplers in by itself, each process sees its half, and no item comes twice."""
import importlib.util
import os
import sys
import tempfile
import unittest

import begin  # noqa: F401
import support
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "seeds"))
import seeds_test  # noqa: E402

PROGRAM = """
import sys, warnings
import pytorch_lightning, torch
import torch_xla.core.xla_model as xm
warnings.simplefilter("ignore")

class Classifier(pytorch_lightning.LightningModule):

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.network, self.seen = torch.nn.Linear(8, 4), []

    def training_step(self, batch, index):
        self.seen += batch[0].tolist()
        loss = torch.nn.functional.cross_entropy(self.network(batch[1]), batch[2])
        self.log("loss", loss, sync_dist=True)
        return loss

    def on_train_epoch_end(self):
        seen = xm.mesh_reduce("seen", self.seen, lambda all: all)
        self.seen = []
        xm.master_print([len(one) for one in seen], sorted(sum(seen, [])) == list(range(64)), self.network.weight.device)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def data():
    generator = torch.Generator().manual_seed(1)
    return torch.utils.data.TensorDataset(torch.arange(64), torch.rand(64, 8, generator=generator),
                                          torch.randint(0, 4, (64,), generator=generator))

def train():
    trainer = pytorch_lightning.Trainer(accelerator="tpu", devices=2, max_epochs=3, logger=False, enable_progress_bar=False,
                                        enable_model_summary=False, default_root_dir=sys.argv[1], num_sanity_val_steps=0)
    module = Classifier()
    trainer.fit(module, torch.utils.data.DataLoader(data(), batch_size=8))
    torch.save((trainer.state.finished, trainer.callback_metrics["loss"].item(),
                {name: tensor.cpu() for name, tensor in module.state_dict().items()}), sys.argv[1] + "/end.pt")
"""


@unittest.skipUnless(importlib.util.find_spec("pytorch_lightning"), "pytorch_lightning is not installed")
class Lightning(unittest.TestCase):

    def test_two_processes_share_the_data_and_train_as_one(self):
        with tempfile.TemporaryDirectory() as folder:
            seeds_test.describe(folder)
            done = support.run(PROGRAM + "\nif __name__ == '__main__':\n    train()\n", folder, path=[folder], CPU_NUM_DEVICES="2")
            lines = [line for line in support.check(self, done).splitlines() if line.startswith("[")]
            self.assertEqual(lines, ["[32, 32] True xla:0"] * 3)
            finished, loss, weights = torch.load(folder + "/end.pt")
        self.assertTrue(finished)
        scope = {}
        exec(PROGRAM.partition("def train():")[0].replace("import torch_xla.core.xla_model as xm\n", ""), scope)
        model, parts = scope["Classifier"](), scope["data"]().tensors
        optimizer = model.configure_optimizers()
        samplers = [torch.utils.data.distributed.DistributedSampler(range(64), num_replicas=2, rank=rank) for rank in range(2)]
        for epoch in range(3):
            halves = []
            for sampler in samplers:  # As Lightning makes them: shuffled, and by epoch.
                sampler.set_epoch(epoch)
                halves.append(list(sampler))
            for at in range(0, 32, 8):
                batch = halves[0][at:at + 8] + halves[1][at:at + 8]
                optimizer.zero_grad()
                expected = torch.nn.functional.cross_entropy(model.network(parts[1][batch]), parts[2][batch])
                expected.backward()
                optimizer.step()
        self.assertAlmostEqual(loss, expected.item(), places=4)
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(weights[name], tensor, rtol=0, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
