"""Bad input: each is an exception of Python's with its text, nothing is lost, and the process goes on."""

import json
import os
import pathlib
import threading
import unittest

from common import DEVICE, ROOT, child, core, same
import torch


BUILD = pathlib.Path(os.environ.get("WEFT_BUILD") or ROOT.parents[1] / "build" / "release")
TWO_DEVICES = """
import json, torch_xla._weft
F, found = torch.nn.functional, {}
a, b = torch.ones(2, device="xla:0"), torch.full((2,), 2.0, device="xla:1")
with torch.xla.device(1):
    chosen = torch.ones(1, device="xla").device
found["devices"] = [str(d) for d in (a.device, b.device, chosen, torch.ones(1, device="xla").device)]
found["copies"] = [a.clone().copy_(b).tolist(), (b.to("xla:0") + a).tolist(), b.tolist()]
m, n = torch.outer(a, a), torch.outer(b, b)
for name, wrong in {
    "native": lambda: a * b, "number": lambda: torch.add(a, b, alpha=2), "product": lambda: m @ n,
    "addmm": lambda: torch.addmm(m, n, n), "addcmul": lambda: torch.addcmul(a, b, b), "cat": lambda: torch.cat([a, b]),
    "where": lambda: torch.where(a > 0, a, b), "in place": lambda: a.add_(b), "out": lambda: torch.add(a, 1, out=b),
    "zero dimensions": lambda: a + b[0], "index": lambda: a[torch.tensor([0], device="xla:1")],
    "convolution": lambda: F.conv2d(m.view(1, 1, 2, 2), n.view(1, 1, 2, 2)), "host": lambda: torch.linalg.lstsq(m, n),
    "norm": lambda: F.layer_norm(a, (2,), b, b), "third": lambda: torch.ones(1, device="xla:2"),
    "generator": lambda: torch.rand(1, device="xla:0", generator=torch.Generator("xla:1")),
}.items():
    try: found[name] = str(wrong())
    except RuntimeError as error: found[name] = str(error)
at = lambda n: torch.ones(2, device=f"xla:{n}", requires_grad=True)
for name, backward in {
    "backward": lambda leaf: (leaf * 2).sum().backward(), "grad": lambda leaf: torch.autograd.grad((leaf * 2).sum(), leaf)[0],
    "backward across": lambda leaf: ((leaf.to("xla:0") * 2).sum().to("xla:1") * leaf).sum().cpu().backward(),
}.items():
    leaf = at(1)
    result = backward(leaf)
    gradient = leaf.grad if result is None else result
    found[name] = [str(gradient.device), gradient.tolist()]
print(json.dumps(found))
"""


class Errors(unittest.TestCase):
    def setUp(self):
        self.x, self.y = torch.ones(2, 3), torch.ones(2, 3, device=DEVICE)

    def test_tensors_of_the_cpu(self):
        text = "Input tensor is not an XLA tensor: torch.FloatTensor"
        for name, function in {
            "add": lambda: self.y + self.x,
            "mul": lambda: self.y * self.x,
            "mul reversed": lambda: self.x * self.y,
            "mm": lambda: self.y @ self.x.t(),
            "addmm": lambda: torch.addmm(self.y, self.y, torch.ones(3, 3)),
            "cat": lambda: torch.cat([self.y, self.x]),
            "where": lambda: torch.where(self.y > 0, self.y, self.x),
            "in place": lambda: self.y.add_(self.x),
            "layer": lambda: torch.nn.Linear(3, 4)(self.y),
            "convolution": lambda: torch.nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 2, 2, device=DEVICE)),
            "host": lambda: torch.linalg.lstsq(self.y, self.x),
        }.items():
            with self.subTest(name), self.assertRaisesRegex(RuntimeError, text):
                function()
        same(self, self.x, self.y)

    def test_numbers_of_the_cpu(self):
        same(self, self.x * torch.tensor(2.5), self.y * torch.tensor(2.5))
        same(self, torch.tensor(2) + self.x, torch.tensor(2) + self.y)
        ints = torch.arange(3)
        for number in (2, 2.5, True, torch.tensor(2.5), torch.tensor(2, dtype=torch.int8)):
            same(self, ints * number, ints.to(DEVICE) * number, str(number))
            same(self, ints[0] + number, ints.to(DEVICE)[0] + number, str(number))

    def test_shapes_and_dtypes(self):
        for function, kind, text in (
            (lambda: self.y @ self.y, RuntimeError, r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 2x3\)"),
            (lambda: self.y.view(4), RuntimeError, r"shape '\[4\]' is invalid|shape is invalid for input of size 6"),
            (lambda: self.y.t().view(6), RuntimeError, "view size is not compatible"),
            (lambda: self.y.add_(torch.ones(5, 2, 3, device=DEVICE)), RuntimeError, "doesn't match the broadcast shape"),
            (lambda: torch.ones(3, device=DEVICE, dtype=torch.int64).add_(0.5), RuntimeError, "can't be cast to the desired"),
            (lambda: self.y + torch.ones(4, device=DEVICE), RuntimeError, "add"),
            (lambda: self.y.as_strided((9, 9), (9, 1)), RuntimeError, "out of bounds for storage"),
            (lambda: self.y.sum(5), IndexError, "Dimension out of range"),
            (lambda: self.y[0, 5], IndexError, "index 5 is out of bounds"),
            (lambda: self.y[:, :1].expand(2, 3).add_(1), RuntimeError, "single memory location"),
            (lambda: torch.ones(2, device=DEVICE, dtype=torch.quint8), (RuntimeError, NotImplementedError), ""),
            (lambda: self.y.item(), RuntimeError, "2 elements|6 elements|cannot be converted"),
        ):
            with self.assertRaisesRegex(kind, text):
                function()

    def test_numpy(self):
        with self.assertRaisesRegex(TypeError, "Use Tensor.cpu"):
            self.y.numpy()

    def test_devices_that_are_not_there(self):
        with self.assertRaisesRegex(RuntimeError, "xla:1 is no device: there is 1"):
            torch.ones(2, device="xla:1")
        with self.assertRaisesRegex(RuntimeError, "xla:7"):
            self.x.to("xla:7")
        with self.assertRaisesRegex(RuntimeError, "xla:1"):
            core.sync(1)

    def test_two_devices(self):
        """On a plugin of the tests that has two."""
        plugin = BUILD / "tests" / "libweft_pjrt_fake.so"
        if not plugin.exists():
            self.skipTest(f"{plugin} is not built")
        run = child(TWO_DEVICES, WEFT_PLATFORM="pjrt", WEFT_PLUGIN=str(plugin), WEFT_FAKE="devices=2")
        self.assertEqual(run.returncode, 0, run.stderr)
        found = json.loads(run.stdout)
        self.assertEqual(found.pop("copies"), [[2.0, 2.0], [3.0, 3.0], [2.0, 2.0]])
        self.assertEqual(found.pop("devices"), ["xla:0", "xla:1", "xla:1", "xla:0"])
        self.assertEqual(found.pop("third"), "xla:2 is no device: there are 2")
        self.assertEqual(found.pop("generator"), "Expected a generator of xla:0 but found one of xla:1")
        for name, gradient in (("backward", 2.0), ("grad", 2.0), ("backward across", 8.0)):
            self.assertEqual(found.pop(name), ["xla:1", [gradient, gradient]], name)
        self.assertEqual(len(found), 14)
        for name, text in found.items():
            with self.subTest(name):
                self.assertRegex(text, "Expected all tensors to be on the same device, but found at least two devices, xla:")

    def test_options_after_the_first_use(self):
        torch.ones(1, device=DEVICE)
        with self.assertRaisesRegex(RuntimeError, "first use"):
            core.configure(threads=1)

    def test_a_wrong_option(self):
        run = child(
            "import torch_xla._weft as core\ncore.configure(no_such_option=1)\n"
            "try: torch.ones(2, device='xla')\nexcept RuntimeError as error: print('said', error)\n"
        )
        self.assertIn("no_such_option", run.stdout, run.stderr)

    def test_after_fork(self):
        run = child(
            "import os, torch_xla._weft\nx = torch.ones(2, device='xla') + 1\nprint(x.sum().item(), flush=True)\n"
            "if os.fork() == 0:\n"
            "    try: print(x * 2)\n"
            "    except RuntimeError as error: print('said', error, flush=True)\n"
            "    os._exit(0)\n"
            "os.wait(); print((x * 3).sum().item())\n"
        )
        self.assertIn("said", run.stdout, run.stderr)
        self.assertIn("fork", run.stdout)
        self.assertIn("12.0", run.stdout)
        self.assertEqual(run.returncode, 0)

    def test_variables_before_the_first_use(self):
        run = child(
            "import os, torch_xla._weft as core\nos.environ['XLA_USE_BF16'] = '1'\n"
            "x = torch.full((2,), 1.001, device='xla')\nprint(x.dtype, (x * 1).cpu().tolist())\n"
        )
        self.assertIn("torch.float32 [1.0, 1.0]", run.stdout, run.stderr)

    def test_operations_that_are_not_there(self):
        with self.assertRaisesRegex(NotImplementedError, "float4|no dtype|complex32"):
            torch.ones(2, device=DEVICE).to(torch.complex32)
        core.clear_counters()
        value = torch.linalg.svdvals(self.y)
        torch.testing.assert_close(value.cpu(), torch.linalg.svdvals(self.x))
        self.assertIn("aten::_linalg_svd", core.counters())

    def test_threads(self):
        failures = []

        def work(seed):
            try:
                x = torch.full((16, 16), float(seed), device=DEVICE)
                layer = torch.nn.Linear(16, 16).to(DEVICE)
                for _ in range(50):
                    layer(x).square().mean().backward()
                    x.add_(1)
                    x.t()[0].mul_(1)
                expected = torch.full((16, 16), seed + 50.0)
                if not torch.equal(x.cpu(), expected):
                    failures.append(f"{seed}: {x.cpu()}")
            except Exception as error:  # noqa: BLE001
                failures.append(repr(error))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()
