"""The stubs: a program that uses the package is checked by mypy, strictly, and a wrong one is not let through. And each
stub names
what its module has."""

import ast
import importlib
import os
import subprocess
import sys
import tempfile
import unittest

import support

try:
    import mypy  # noqa: F401
except ImportError:
    mypy = None
    if "WEFT_BUILD" in os.environ:
        from support_env import enter_checkers

        enter_checkers(os.path.abspath(__file__))

PACKAGE = os.path.join(support.PACKAGE, "libweft")
PROGRAM = '''\
import libweft as wf
from libweft import nn, optim

class Net(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(2, 3)

    def forward(self, x: wf.Tensor) -> wf.Tensor:
        return nn.relu(self.first(x) * 2 + 1)

def loss_of(net: Net, x: wf.Tensor) -> wf.Tensor:
    return nn.mse(net(x), 0.0, reduction="sum")

net, x = Net(), wf.random.uniform((4, 2))
optimizer = optim.AdamW(net, lr=optim.cosine(0.1, 10))
for i in wf.bar(range(3), "training"):
    with wf.step() as step:
        loss, grads = wf.value_and_grad(loss_of)(net, x)
        optimizer.step(grads)
        step.keep(loss)

@wf.function
def double(t: wf.Tensor, n: int = 2) -> wf.Tensor:
    return t * n

values, indices = x.top_k(1)
here = wf.tensor([1.0], device="cpu:0") + wf.full((1,), 2.0, device=wf.devices()[0]) + wf.zeros((1,), device="cpu:0")
largest: float = double(x, 3).sum(axis=0, keepdims=True).max().item()
print(x.astype("f64").softmax(axis=-1), values[0], x @ x.T, -x, 1 / x, x == 2, wf.concat([x, x], 1))
'''


class Stubs(unittest.TestCase):
    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            env = {**os.environ, "MYPYPATH": support.PACKAGE}
            return subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder, path],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            ).stdout

    @unittest.skipIf(mypy is None, "mypy is not installed")
    def test_a_program_passes_strictly_and_wrong_ones_do_not(self):
        self.assertIn("Success", self.check(PROGRAM))
        for right, wrong in (
            ('"sum"', '"total"'),
            ("top_k(1)", 'top_k("one")'),
            ("keepdims=True", "keepdim=True"),
            ("double(x, 3)", "double(3)"),
        ):
            self.assertIn("Found 1 error", self.check(PROGRAM.replace(right, wrong)), wrong)

    def test_stubs_name_what_modules_have(self):
        for folder, _, files in os.walk(PACKAGE):
            for name in files:
                if not name.endswith(".pyi") or name in ("_methods.pyi", "array_api.pyi"):
                    continue
                module = (
                    os.path.relpath(os.path.join(folder, name), support.PACKAGE)[:-4]
                    .replace(os.sep, ".")
                    .replace(".__init__", "")
                )
                loaded = importlib.import_module(module)
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    tree = ast.parse(f.read())
                for node in tree.body:
                    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                        self.assertTrue(hasattr(loaded, node.name), "%s.%s" % (module, node.name))
                    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                        for member in node.body:
                            if isinstance(member, ast.FunctionDef):
                                self.assertTrue(
                                    hasattr(getattr(loaded, node.name), member.name),
                                    "%s.%s.%s" % (module, node.name, member.name),
                                )


if __name__ == "__main__":
    unittest.main()
