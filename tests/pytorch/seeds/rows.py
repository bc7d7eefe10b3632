"""Each Python block of the five documents, by document and line: what is put around it, and what has to come out.

`before` and `after` are Python. They stand in front of the block and behind it, with stubs.py in front of both; `after`
checks what the block printed and computed. `follows` are blocks of the same document that come first. `wrap` changes a
fragment into something that can stand alone. `error` is what the block has to end with. `fresh` blocks run in a new
interpreter, which imports everything itself; the others in forks of one that has torch.
"""
import dataclasses
import textwrap
from typing import Callable, Optional


@dataclasses.dataclass
class Row:
    seed: str
    line: int
    after: str = ""
    before: str = ""
    follows: tuple = ()
    wrap: Optional[Callable] = None
    error: str = ""
    needs: str = ""
    not_run: str = ""
    fresh: bool = False


_REPORT = """
import torch_xla.core.xla_model as xm
_x = torch.ones(3, 3, device=xm.xla_device()).nonzero()
xm.mark_step(wait=True)
"""
_REPORT_AFTER = r"""
import re
_report = torch_xla._XLAC._xla_metrics_report()
_time = r"(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?\d+\.\d{3}us"
assert re.search(rf"^Metric: ExecuteTime\n  TotalSamples: \d+\n  Counter: {_time}\n", _report, re.M), _report
assert re.search(rf"^  Percentiles: 1%={_time}; 5%={_time}; 10%={_time}; 20%={_time}; 50%={_time}; 80%={_time}; 90%={_time}; "
                 rf"95%={_time}; 99%={_time}$", _report, re.M), _report
assert re.search(r"^Counter: MarkStep\n  Value: 1$", _report, re.M), _report
assert_printed("")
"""
# Two blocks leave out that the model has to be on the device, so it goes there itself when the program may use it.
_MODEL_ON_THE_DEVICE = """
import torch_xla
_init = MNIST.__init__
def _on_the_device(self):
    _init(self)
    self.to('xla')
MNIST.__init__ = _on_the_device
"""
_TRAINED = "assert_trained(MNIST.made[0], 1)\n"


def _clip_grad_norm(text):
    """The fragment begins with `...` in place of the branch before its `else`: that branch gets a condition."""
    lines = text.splitlines()
    assert lines[0] == "...", lines[0]
    head = "def clip_grad_norm_(parameters, max_norm, norm_type=2.0):\n    if norm_type == float('inf'):\n        ...\n"
    return head + textwrap.indent("\n".join(lines[1:]), "    ") + "\n"


_CLIPPED = """
for _max_norm in (0.1, 2.0, 1000.0):
    _model, _reference = MNIST().to('xla'), MNIST()
    for _one in (_model, _reference):
        _data, _target = train_loader[0]
        nn.NLLLoss()(_one(_data.to(next(_one.parameters()).device)), _target.to(next(_one.parameters()).device)).backward()
    torch.nn.utils.clip_grad_norm_(_reference.parameters(), _max_norm)
    import torch_xla.debug.metrics as met
    met.clear_all()
    clip_grad_norm_(list(_model.parameters()), _max_norm)
    assert 'aten::_local_scalar_dense' not in met.counter_names(), 'item() was used'
    for _ours, _theirs in zip(_model.parameters(), _reference.parameters()):
        torch.testing.assert_close(_ours.grad.cpu(), _theirs.grad, rtol=1e-4, atol=1e-6)
"""

_SAVED = "path = 'model.pt'\nmodel = MNIST().to('xla')\n"
_LOADER_PARTS = """
from torch.utils.data import DataLoader
class transforms:
    class ToTensor:
        def __call__(self, image):
            return torch.from_numpy(image).unsqueeze(0).float() / 255
use_tpu = True
class MNIST(torch.utils.data.Dataset):
    def __init__(self, root, train, download, transform):
        self.images = (torch.arange(100 * 64) % 256).to(torch.uint8).reshape(100, 8, 8).numpy()
        self.transform = transform
    def __len__(self):
        return 100
    def __getitem__(self, at):
        return self.transform(self.images[at]), at
"""
_LOADED = """
_loader = train_dataloader(None)
_seen = [target for _, target in _loader]
assert sorted(torch.cat(_seen).tolist()) == list(range(100))
assert [len(one) for one in _seen] == [32, 32, 32, 4]
assert isinstance(_loader.sampler, torch.utils.data.distributed.DistributedSampler)
assert (_loader.sampler.num_replicas, _loader.sampler.rank) == (1, 0)
"""
_LIGHTNING = """
import lightning_seed
lightning_seed.install()
class MyLightningModule(lightning_seed.FashionClassifier):
    images = 8000
"""
_FITTED = """
assert trainer.state.finished, trainer.state
assert trainer.strategy.root_device.type == 'xla', trainer.strategy.root_device
assert trainer.global_step > 0
_accuracy = my_model.accuracy()
assert _accuracy > 0.6, _accuracy
"""

ROWS = [
    Row("000", 272, before="import torch_xla\n" + _REPORT, after=_REPORT_AFTER),
    Row("001", 8, after="assert_printed('xla:0', shown(x))\nassert x.shape == (4, 2) and x.std() > 0\n"),
    Row("001", 30, after=_TRAINED,
        before=_MODEL_ON_THE_DEVICE),
    Row("001", 74, before="import torch_xla.distributed.data_parallel as dp\n" + _MODEL_ON_THE_DEVICE, after=_TRAINED),
    Row("001", 107, after="assert_trained(model_parallel.models[0], 2)\n"),
    Row("001", 141, before="import torch_xla\n", wrap=_clip_grad_norm, after=_CLIPPED),
    Row("001", 191, before="import torch_xla\n" + _REPORT, after=_REPORT_AFTER),
    Row("002", 14, after="assert_printed('xla:0', shown(t))\nassert t.shape == (2, 2) and t.std() > 0\n"),
    Row("002", 35, before="import torch_xla.core.xla_model as xm\n",
        after="_sum = t0.cpu() + t1.cpu()\nassert_printed(shown(_sum.to('xla')))\n"
              "assert not torch.equal(t0.cpu(), t1.cpu())\n"),
    Row("002", 43, before="import torch_xla.core.xla_model as xm\n", follows=(35,),
        after="_product = t0.mm(t1)\ntorch.testing.assert_close(_product.cpu(), t0.cpu().mm(t1.cpu()))\n"
              "assert_printed(shown(t0 + t1), shown(_product))\n"),
    Row("002", 49, before="import torch_xla.core.xla_model as xm\n",
        after="assert_printed(shown(l_out))\nassert l_out.shape == (20,)\n"
              "torch.testing.assert_close(l_out.cpu(), linear.to('cpu')(l_in.cpu()))\n"),
    Row("002", 59, before="import torch_xla.core.xla_model as xm\n",
        error=r"RuntimeError: .*Input tensor is not an XLA tensor: torch\.FloatTensor"),
    Row("002", 80, after=_TRAINED, fresh=True),
    Row("002", 114, after=_TRAINED),
    Row("002", 254, after="_saved = torch.load('tensors.pt')\n"
                          "assert all(one.device.type == 'cpu' for one in _saved)\n"
                          "assert (t0.device, t1.device) == (device, device)\n"
                          "assert torch.equal(t0.cpu(), _saved[0]) and torch.equal(t1.cpu(), _saved[1])\n"),
    Row("002", 283, before="import torch_xla\n" + _SAVED,
        after="_loaded = torch.load(path)\nassert list(_loaded) == list(model.state_dict())\n"
              "assert all(t.device.type == 'cpu' for t in _loaded.values())\n"
              "assert all(torch.equal(_loaded[n], t.cpu()) for n, t in model.state_dict().items())\n"),
    Row("002", 297, before="import torch_xla\n" + _SAVED,
        after="_loaded = xser.load(path)\n"
              "assert all(torch.equal(_loaded[n], t.cpu()) for n, t in model.state_dict().items())\n"),
    Row("002", 306, before="import torch_xla\n" + _SAVED + "for _p in model.parameters(): _p.data.mul_(3)\n", follows=(297,),
        after="assert all(torch.equal(t.cpu(), model.state_dict()[n].cpu()) for n, t in state_dict.items())\n"
              "assert torch.equal(model.fc.weight.cpu(), 3 * MNIST().fc.weight)\n"),
    Row("002", 332, before="import torch_xla\n",
        after="import torch_xla.core.xla_model as xm\n(torch.ones(7, device=xm.xla_device()) * 3).cpu()\n"
              "assert [f for _, _, files in os.walk('YOUR_CACHE_PATH') for f in files], 'the folder is empty'\n"),
    Row("003", 56, not_run="it asks a Colab TPU's server for another version of XRT, and names wheels of a bucket (gs://) "
                           "that is gone; both are no more, and pip install is what replaces them (docs/pytorch.md)"),
    Row("003", 123, before=_LOADER_PARTS, after=_LOADED),
    Row("003", 156, before=_LIGHTNING, after=_FITTED, needs="pytorch_lightning"),
    Row("003", 195, before=_LIGHTNING, after=_FITTED + "assert trainer.precision == 'bf16-true', trainer.precision\n",
        needs="pytorch_lightning"),
    Row("004", 71, after="assert_printed(shown(t1 + t2))\nassert str(dev) == 'xla:0' and t1.shape == (3, 3)\n"),
]
