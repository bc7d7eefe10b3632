"""Graphs saved as HLO text (save_graphs_format=hlo): jaxlib's parser of HLO reads each, metadata and all, and XLA computes from it what Weft
computed."""
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import python_env  # noqa: E402

python_env.enter("jax", ["jax", "numpy"], os.path.abspath(__file__))

SOURCE, BUILD = os.environ["WEFT_SOURCE"], os.environ["WEFT_BUILD"]
os.environ.setdefault("LIBWEFT_PATH", os.environ.get("WEFT_LIB") or os.path.join(BUILD, "lib"))
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, os.path.join(BUILD, "generated", "bindings", "python"))
import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from jax._src.lib import xla_client  # noqa: E402
from jaxlib import _hlo  # noqa: E402
from jaxlib.mlir import ir  # noqa: E402

import libweft as wf  # noqa: E402

jax.config.update("jax_enable_x64", True)
RANDOM = np.random.default_rng(5)


def normal(*dims, dtype=np.float32):
    return RANDOM.standard_normal(dims).astype(dtype)


def conv(x, k):
    return wf.max_pool(wf.relu(wf.conv(x, k, strides=[1, 2], padding="same")), [2, 2])


def attention(q):
    return wf.scaled_dot_product_attention(q, q, q, causal=True)


def loss(w, x, y):
    return wf.cross_entropy((x @ w).tanh() @ w.T[:, :3], y)


# A name, a function, and its operands: no two of one type, by which the program's parameters are told apart.
CASES = [
    ("elementwise", lambda x, y: ((x * y).exp() - y.abs().sqrt()) / (1.5 + x.sigmoid() ** 2), (normal(3, 4), normal(4))),
    ("integers", lambda a, b: ((a << 2) ^ (a & b)) % 7 + a // b, (RANDOM.integers(-50, 50, (5, 3)).astype(np.int32), np.int32([[3, -2, 7]]))),
    ("bytes", lambda a: ((a + a) | 3).astype("i64") * 5, (RANDOM.integers(0, 255, (9,)).astype(np.uint8),)),
    ("choices", lambda x: wf.where(x > 0, x, -1).clip(-0.5, 2), (normal(4, 3),)),
    ("truth", lambda x: (x > 0).all(axis=0), (normal(4, 2),)),
    ("sums", lambda x: x.sum(axis=1) + x.max(axis=1) - x.mean(axis=(0, 1)), (normal(5, 6),)),
    ("softmax", lambda x: wf.softmax(x, -1).log(), (normal(5, 6),)),
    ("halves", lambda x: (x.astype("bf16") * 3 + 1).astype("f16").astype("f32"), (normal(5, 6),)),
    ("doubles", lambda x: wf.lgamma(x.abs() + 1) + wf.erf(x), (normal(5, 6, dtype=np.float64),)),
    ("complex", lambda x: wf.fft.fft(x) * x.conj(), (normal(8) + 1j * normal(8)).astype(np.complex64)),
    ("shapes", lambda x: wf.concatenate([x.transpose(1, 0).reshape(2, 6), wf.reverse(x.reshape(2, 6)[:, 1:5:2], [0])], 1), (normal(4, 3),)),
    ("padding", lambda x: wf.pad(x, wf.tensor(0.25), [1, 0], [0, 2], [1, 0]), (normal(4, 3),)),
    ("rows", lambda x, i: x[i] + x[1], (normal(6, 3), np.int32([5, 0, 2]))),
    ("sort", lambda x: wf.sort(x, axis=0) + wf.argsort(x, axis=0).astype("f32"), (normal(7, 2),)),
    ("largest", lambda x: wf.top_k(x, 3)[0], (normal(4, 9),)),
    ("prefixes", lambda x: x.cumsum(0), (normal(9, 3),)),
    ("products", lambda x, y: wf.einsum([x, y], "bij,bkj->bki"), (normal(2, 3, 4), normal(2, 5, 4))),
    ("convolution", conv, (normal(2, 6, 6, 3), normal(3, 3, 3, 4))),
    ("attention", attention, (normal(2, 2, 6, 4),)),
    ("gradient", lambda w, x, y: wf.grad(loss)(w, x, y), (normal(8, 8), normal(5, 8), np.int32([0, 2, 1, 1, 0]))),
    ("embedding's gradient", lambda t, i: wf.grad(lambda t: (t[i] ** 2).sum())(t), (normal(6, 3), np.int32([5, 0, 5]))),
    ("loop", lambda x: wf.scan(lambda c, v: (c * 0.5 + v, c + x[0]), x[0] * 0, x)[1], (normal(6, 3),)),
    ("while", lambda x: wf.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * x + 1), (wf.zeros((), "i32"), x))[1], (normal(3),)),
    ("branch", lambda x: wf.switch((x.sum() > 0).astype("i32"), [lambda v: v * 2, lambda v: v - 1], x), (normal(3),)),
    ("determinant", lambda x: wf.triangular_solve(x @ x.T + 9 * wf.eye(4), x), (normal(4, 4),)),
]


def graphs(function, operands, **settings):
    """What Weft computes, and the HLO texts of the graphs that it launched for that."""
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "graphs")
        with wf.Context(save_graphs=path, save_graphs_format="hlo", cache_mode="off", **settings):
            tensors = [wf.tensor(x) for x in operands]
            out = function(*tensors)
            value = np.asarray(out.numpy())
        with open(path, encoding="utf-8") as file:
            text = file.read()
    return value, re.findall(r"^## BEGIN_GRAPH\n(.*?)^## END_GRAPH\n", text, re.MULTILINE | re.DOTALL)


def run(text, operands):
    """What XLA computes from HLO text; None if a parameter is none of the operands."""
    module = _hlo.hlo_module_from_text(text)
    with mlir.make_ir_context():
        parsed = ir.Module.parse(xla_client._xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto()))
        main = next(op for op in parsed.body.operations if op.attributes["sym_name"].value == "main")
        types = [str(t) for t in main.type.inputs]
        parsed.operation.attributes["sym_name"] = ir.StringAttr.get("main")
        by_type = {}
        for x in operands:
            element = {"int32": "i32", "uint8": "ui8", "float32": "f32", "float64": "f64", "complex64": "complex<f32>"}[x.dtype.name]
            by_type["tensor<" + "".join(f"{d}x" for d in x.shape) + element + ">"] = x
        if any(name not in by_type for name in types):
            return None
        device = jax.devices()[0]
        executable = device.client.compile_and_load(parsed, xla_client.DeviceList((device,)), xla_client.CompileOptions())
    return [np.array(x) for x in executable.execute([jax.device_put(by_type[name], device) for name in types])]


class Hlo(unittest.TestCase):
    def test_programs(self):
        computed = 0
        for name, function, operands in CASES:
            operands = operands if isinstance(operands, tuple) else (operands,)
            with self.subTest(name=name):
                value, texts = graphs(function, operands)
                self.assertGreaterEqual(len(texts), 1)
                for text in texts:
                    self.assertTrue(text.startswith("HloModule weft"), text)
                    parsed = _hlo.hlo_module_from_text(text).to_string()
                    self.assertEqual(text.count("metadata={"), parsed.count("metadata={"))
                results = run(texts[-1], operands)
                if results is None:
                    continue
                computed += 1
                alike = [x for x in results if x.shape == value.shape and x.dtype == value.dtype]
                self.assertTrue(any(np.allclose(x, value, rtol=2e-4, atol=2e-5, equal_nan=True) for x in alike), (value, alike))
        self.assertGreaterEqual(computed, len(CASES) - 4)

    def test_metadata_has_the_line_that_recorded(self):
        def here(x):
            return x.exp()
        _, texts = graphs(here, (normal(3),))
        self.assertIn(f'exponential(%v0), metadata={{op_type="exponential" op_name="exponential" source_file="{__file__}" '
                      f"source_line={here.__code__.co_firstlineno + 1}}}\n", texts[-1])
        _, texts = graphs(here, (normal(3),), positions="stack")
        self.assertIn(f"source_line={here.__code__.co_firstlineno + 1}}}", texts[-1])

    def test_a_long_literal_is_left_out(self):
        text = graphs(lambda x: x + wf.tensor(np.arange(2000, dtype=np.float32)).sum(), (normal(3),))[1][-1]
        _hlo.hlo_module_from_text(text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
