"""Layers that are one kernel each: dense ones, attention, recurrent ones, lists of tensors; values and gradients as torch's CPU."""

import copy
import gc
import itertools
import json
import unittest
import warnings

from common import DEVICE, core, host_operations
import torch
from torch import nn
from torch.nn import functional as F


def gradients(function, tensors, device):
    """Result and gradients of a function of tensors, on a device."""
    moved = [t.clone().to(device) for t in tensors]
    for t in moved:
        t.requires_grad_(t.is_floating_point() or t.is_complex())
    result = function(*moved)
    arriving = torch.randn(result.shape, generator=torch.Generator().manual_seed(7)).to(result.dtype).to(device)
    result.backward(arriving)
    return [result.detach().cpu()] + [t.grad.cpu() for t in moved if t.grad is not None]


class Layers(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        core.clear_counters()

    def same(self, function, *tensors, message=None):
        for expected, actual in zip(gradients(function, tensors, "cpu"), gradients(function, tensors, DEVICE), strict=True):
            torch.testing.assert_close(actual, expected, rtol=2e-5, atol=2e-5, msg=message and (lambda text: f"{message}: {text}"))

    def test_linear(self):
        for lead, bias, dtype in itertools.product(((), (2,), (4, 3), (0,)), (True, False), (torch.float32, torch.complex64)):
            tensors = [torch.randn(*lead, 5, dtype=dtype), torch.randn(7, 5, dtype=dtype)]
            tensors += [torch.randn(7, dtype=dtype)] if bias else []
            self.same(F.linear, *tensors, message=f"{lead} {bias} {dtype}")
        self.assertEqual(host_operations(), [])

    def test_linear_refuses(self):
        x = torch.ones(2, 3, 4, device=DEVICE)
        for weight, text in ((torch.ones(5, 6), r"cannot be multiplied \(6x4 and 6x5\)"), (torch.ones(5, 4).half(), "same dtype")):
            with self.assertRaisesRegex(RuntimeError, text):
                F.linear(x, weight.to(DEVICE))
        with self.assertRaisesRegex(RuntimeError, "not an XLA tensor"):
            F.linear(x, torch.ones(5, 4))

    def test_linear_twice(self):
        x, w = torch.randn(3, 4), torch.randn(5, 4)

        def twice(x, w):
            inner = (F.linear(x, w) ** 2).sum()
            return torch.autograd.grad(inner, x, create_graph=True)[0] ** 2

        self.same(twice, x, w)

    def test_attention(self):
        q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 6, 8), torch.randn(2, 4, 6, 9)
        hidden, added = torch.rand(2, 1, 5, 6) > 0.4, torch.randn(5, 6)
        hidden[0, :, 2] = False  # a query that sees nothing
        attend = F.scaled_dot_product_attention
        self.same(attend, q, k, v)
        self.same(lambda q, k, v: attend(q, k, v, is_causal=True, scale=0.3), q, k, v)
        self.same(lambda q, k, v: attend(q, k, v, hidden.to(q.device)), q, k, v)
        self.same(lambda q, k, v: attend(q, k, v, added.to(q.device)), q, k, v)
        self.same(lambda q, k, v, mask: attend(q, k, v, mask), q, k, v, added)  # whose mask has a gradient
        self.same(lambda q, k, v: attend(q, k, v, enable_gqa=True), torch.randn(2, 4, 5, 8), torch.randn(2, 2, 6, 8),
                  torch.randn(2, 2, 6, 8))
        self.assertEqual(host_operations(), [])

    def attended(self, device, *inputs, training=True, alike=True, batch_first=True, bias=True, **options):
        """Results and gradients of nn.MultiheadAttention; masks among the options move with it."""
        torch.manual_seed(3)
        layer = nn.MultiheadAttention(12, 3, bias=bias, batch_first=batch_first).train(training).to(device)
        moved = [t.clone().to(device).requires_grad_() for t in inputs]
        options = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in options.items()}
        result, shares = layer(*(moved * 3 if alike else moved), **options)
        (result * torch.arange(12.0, device=device)).sum().backward()
        found = [result, shares, *(t.grad for t in moved), *(p.grad for p in layer.parameters())]
        return [None if t is None else t.detach().cpu() for t in found]

    def test_multi_head_attention(self):
        """The layer that torch puts together in Python: self-attention with every mask, and what stays torch's own."""
        x, keys = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
        added, each, causal = torch.randn(5, 5), torch.randn(6, 5, 5), nn.Transformer.generate_square_subsequent_mask(5)
        padding, sees = torch.tensor([[False] * 5, [False] * 3 + [True] * 2]), torch.rand(5, 5) > 0.7
        sees.fill_diagonal_(False)
        self_attention = [{}, {"attn_mask": added}, {"attn_mask": each}, {"attn_mask": causal, "is_causal": True}, {"attn_mask": sees},
                          {"key_padding_mask": padding}, {"key_padding_mask": padding.float() * -9, "attn_mask": each},
                          {"key_padding_mask": padding, "attn_mask": sees},
                          {"key_padding_mask": padding, "attn_mask": causal.isinf(), "is_causal": True}]
        cases = [((x,), {**masks, "need_weights": weights, "batch_first": first}) for masks, weights, first in
                 itertools.product(self_attention, (False, True), (True, False)) if first or not masks]
        cases += [((x[0],), {"need_weights": False}), ((x,), {"need_weights": False, "bias": False}),
                  ((x,), {"need_weights": False, "training": False}), ((x, keys, keys), {"need_weights": False, "alike": False})]
        for inputs, options in cases:
            expected, actual = (self.attended(device, *inputs, **options) for device in ("cpu", DEVICE))
            for a, b in zip(expected, actual, strict=True):
                self.assertEqual(a is None, b is None, options)
                if a is not None:
                    torch.testing.assert_close(b, a, rtol=2e-5, atol=2e-5, msg=lambda text, options=options: f"{options}: {text}")
        self.assertEqual(host_operations(), [])

    def test_multi_head_attention_is_few_nodes(self):
        x = torch.randn(2, 5, 12, device=DEVICE)
        seen, left = set(), [nn.MultiheadAttention(12, 3, batch_first=True).to(DEVICE)(x, x, x, need_weights=False)[0].grad_fn]
        while left:
            node = left.pop()
            if node is not None and node not in seen and "AccumulateGrad" not in node.name():
                seen.add(node)
                left += [other for other, _ in node.next_functions]
        most = 10 if core.runtime.VERSION >= (2, 13) else 16  # before, a dense layer is torch's own three or four
        self.assertLessEqual(len(seen), most, sorted(node.name() for node in seen))

    def test_multi_head_attention_is_scripted(self):
        """torch.jit.script compiles torch's own function, whose source it finds through the one that stands for it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            layer = nn.MultiheadAttention(12, 3)
            scripted = torch.jit.script(layer)
        x = torch.randn(5, 2, 12)
        torch.testing.assert_close(scripted(x, x, x)[0], layer(x, x, x)[0])

    def test_multi_head_attention_by_position(self):
        """Programs that call torch's function themselves may name nothing."""
        x, padding = torch.randn(5, 2, 12), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        layer = nn.MultiheadAttention(12, 3)
        results = []
        for device in ("cpu", DEVICE):
            own, q, hidden = copy.deepcopy(layer).to(device), x.to(device), padding.to(device)
            results.append(F.multi_head_attention_forward(
                q, q, q, 12, 3, own.in_proj_weight, own.in_proj_bias, None, None, False, 0.0, own.out_proj.weight, own.out_proj.bias, True,
                hidden, False, torch.zeros(5, 5, device=device))[0].detach().cpu())
        torch.testing.assert_close(results[1], results[0], rtol=2e-5, atol=2e-5)

    def test_multi_head_attention_refuses(self):
        layer, x = nn.MultiheadAttention(12, 3).to(DEVICE), torch.randn(5, 2, 12, device=DEVICE)
        for arguments, text in (({"is_causal": True}, "Need attn_mask if specifying"),
                                ({"attn_mask": torch.zeros(4, 5, device=DEVICE)}, "2D attn_mask is torch.Size"),
                                ({"key_padding_mask": torch.zeros(2, 4, device=DEVICE)}, r"shape\[1\] to be 5, but got 4")):
            with self.assertRaisesRegex((RuntimeError, AssertionError), text):
                layer(x, x, x, need_weights=False, **arguments)

    def test_parts(self):
        for index in (1, -2, slice(1, 7, 3), slice(-3, None), slice(20, None), (slice(None), 1), (Ellipsis, slice(1, None, 2))):
            self.same(lambda x, index=index: x[index], torch.randn(9, 4), message=str(index))

    def test_batch_norm(self):
        """Results, gradients and running statistics, where the statistics are the batch's and where they are given."""
        shapes = ((6, 5), (4, 3, 7), (2, 3, 4, 5), (2, 3, 2, 3, 4), (3, 4, 1))
        for shape, dtype, affine, (kept, training) in itertools.product(
            shapes, (torch.float32, torch.float64), (True, False), ((True, True), (True, False), (False, True))
        ):
            x, others = torch.randn(shape, dtype=dtype) * 3 + 1, [torch.rand(shape[1], dtype=dtype) + 0.5 for _ in range(4)]
            running = {}

            def norm(x, w, b, mean, variance):
                statistics = [t.detach().clone() if kept else None for t in (mean, variance)]
                y = F.batch_norm(x, *statistics, *((w, b) if affine else ()), training=training, momentum=0.3, eps=1e-3)
                running[x.device.type] = [t.cpu() for t in statistics if t is not None]
                return y

            self.same(norm, x, *others, message=f"{shape} {dtype} {affine} {kept} {training}")
            for expected, actual in zip(running["cpu"], running["xla"], strict=True):
                torch.testing.assert_close(actual, expected)
        self.assertEqual(host_operations(), [])

    def test_norms_of_halves(self):
        """Narrow numbers are computed as float32: closer to the exact result than they can tell. Weights may be float32."""
        for dtype, narrow in itertools.product((torch.float16, torch.bfloat16), (True, False)):
            x, w = torch.randn(4, 3, 5).to(dtype), torch.rand(3).to(dtype if narrow else torch.float32)
            for name, function in {
                "batch": lambda x, w: F.batch_norm(x, None, None, w, w, True),
                "layer": lambda x, w: F.layer_norm(x.mT, (3,), w, w),
            }.items():
                if name == "layer" and not narrow:
                    continue
                exact, actual = gradients(function, [x.double(), w.double()], "cpu"), gradients(function, [x, w], DEVICE)
                self.assertEqual([t.dtype for t in actual], [dtype, dtype, w.dtype])
                for a, b in zip(exact, actual, strict=True):
                    torch.testing.assert_close(b.double(), a, rtol=2e-2, atol=4e-2, msg=lambda text: f"{name} {dtype}: {text}")

    def test_norms_refuse(self):
        x, one = torch.randn(3, 4, 5, device=DEVICE), torch.ones(4, device=DEVICE)
        batch, layer = torch.ops.aten.native_batch_norm, torch.ops.aten.native_layer_norm
        back = torch.ops.aten.native_batch_norm_backward
        for function, text in (
            (lambda: batch(x, one[:3], None, None, None, True, 0.1, 1e-5), "weight should contain 4 elements not 3"),
            (lambda: batch(x, torch.ones(()), None, None, None, True, 0.1, 1e-5), "weight should contain 4 elements not 1"),
            (lambda: batch(x, None, None, None, None, False, 0.1, 1e-5), "running_mean and running_var to be defined"),
            (lambda: batch(x, None, None, torch.ones(4), one, True, 0.1, 1e-5), "not an XLA tensor: torch.FloatTensor"),
            (lambda: batch(one, None, None, None, None, True, 0.1, 1e-5), "2 to 32 dimensions, not one of 1"),
            (lambda: back(x, x, None, None, None, None, None, True, 1e-5, [True] * 3), "lacks the statistics"),
            (lambda: back(x, x, None, None, None, one, one[:2], True, 1e-5, [True] * 3), "save_invstd should contain 4 elements"),
            (lambda: layer(x, [4], None, None, 1e-5), r"expected input with shape \[\*, 4\], but got input of size\[3, 4, 5\]"),
            (lambda: layer(x, [5], one, None, 1e-5), r"weight of shape \[4\] and normalized_shape = \[5\]"),
            (lambda: layer(x, [1] * 40, None, None, 1e-5), "Given normalized_shape"),
        ):
            with self.assertRaisesRegex(RuntimeError, text):
                function()

    def test_numbers_of_lists(self):
        """A number is one argument of the program for the whole list, in each dtype that it is needed in."""
        dtypes = (torch.float32, torch.float64, torch.float32, torch.bfloat16, torch.int32, torch.int64)
        tensors = [torch.arange(1, 4).to(dtype) for dtype in dtypes]
        many = [torch.ones(2) for _ in range(9)]
        for function in (
            lambda t, m: torch._foreach_add(t, 3), lambda t, m: torch._foreach_mul(t, 0.1), lambda t, m: torch._foreach_div(t, 3),
            lambda t, m: torch._foreach_add(m, [0.5 * i for i in range(9)]),
            lambda t, m: torch._foreach_mul(m, [1, 2.0, True, 1.0, 0.0, -0.0, 1, 2, 3]),
            lambda t, m: torch._foreach_addcmul(m, m, m, value=0.2), lambda t, m: torch._foreach_sub(t[:4], t[:4], alpha=2),
        ):
            ours = function([t.to(DEVICE) for t in tensors], [t.to(DEVICE) for t in many])
            for x, y in zip(function(tensors, many), ours, strict=True):
                torch.testing.assert_close(y.cpu(), x)
                self.assertEqual(torch.signbit(y.cpu()).tolist(), torch.signbit(x).tolist())
        made = json.loads(core.weft_metrics_json())["counters"]["tensors_made"]
        results = torch._foreach_mul([t.to(DEVICE) for t in many], 0.5)
        made = json.loads(core.weft_metrics_json())["counters"]["tensors_made"] - made
        self.assertEqual(made, 2 * len(results) + 1)  # those of `to`, the results, one number
        self.assertEqual(host_operations(), [])

    def test_nothing_is_kept(self):
        """Kernels release what they make, also where they fail."""
        x, w = (torch.randn(n, device=DEVICE, requires_grad=True) for n in ((4, 3, 5), (3,)))
        labels = torch.tensor([0, 2, 1, 1], device=DEVICE)

        def step():
            y = F.layer_norm(F.batch_norm(x, w.detach(), w.detach(), w, w, True).mT, (3,), w, w).softmax(1).log_softmax(2)
            F.cross_entropy(y[:, 1:3, :].clone()[:, 0], labels).backward()
            torch._foreach_mul_([w.detach(), x.detach()], 0.99)
            x.grad = w.grad = None
            for wrong in (
                lambda: torch.ops.aten.native_layer_norm(x, [4], w, None, 1e-5), lambda: x.softmax(3),
                lambda: torch.ops.aten.native_batch_norm(x, w[:2], None, None, None, True, 0.1, 1e-5),
                lambda: torch.ops.aten.nll_loss_forward(x, labels, None, 1, -100),
                lambda: torch._foreach_mul_([w.detach(), x.detach()], ["a", "b"]),
                lambda: torch._foreach_add_([w.detach(), x.detach()], [w.detach(), labels[:3].view(3, 1, 1, 1)]),
            ):
                with self.assertRaises((RuntimeError, IndexError, TypeError)):
                    wrong()
            core.sync()

        def alive():
            core.wait()
            gc.collect()
            counters = json.loads(core.weft_metrics_json())["counters"]
            return counters["tensors_made"] - counters["tensors_released"]

        step()
        before = alive()
        for _ in range(20):
            step()
        self.assertEqual(alive(), before)

    def test_lists(self):
        tensors = [torch.randn(3, 2) + 3, torch.randn(4) + 3, torch.randn(()) + 3]
        others = [t * 0.5 + 1 for t in tensors]
        calls = [
            ("_foreach_add", (others,), {"alpha": 0.3}), ("_foreach_add", (2.5,), {}), ("_foreach_add", ([1.0, 2.0, 3.0],), {}),
            ("_foreach_mul", (0.9,), {}), ("_foreach_mul", (others,), {}), ("_foreach_sub", (others,), {}), ("_foreach_div", (others,), {}),
            ("_foreach_addcmul", (others, others), {"value": 0.2}), ("_foreach_addcdiv", (others, others, [0.1, 0.2, 0.3]), {}),
            ("_foreach_lerp", (others, 0.7), {}), ("_foreach_sqrt", (), {}), ("_foreach_maximum", (others,), {}), ("_foreach_neg", (), {})]

        def move(value):
            return [move(v) for v in value] if isinstance(value, list) else value.to(DEVICE) if isinstance(value, torch.Tensor) else value

        for name, args, kwargs in calls:
            expected = getattr(torch, name)(tensors, *args, **kwargs)
            actual = getattr(torch, name)(move(tensors), *map(move, args), **kwargs)
            inside = move(tensors)
            getattr(torch, name + "_")(inside, *map(move, args), **kwargs)
            for x, y, z in zip(expected, actual, inside, strict=True):
                torch.testing.assert_close(y.cpu(), x, msg=lambda text, name=name: f"{name}: {text}")
                self.assertTrue(torch.equal(y.cpu(), z.cpu()), name)
        with self.assertRaisesRegex(RuntimeError, "same number of tensors"):
            torch._foreach_add(move(tensors), move(others[:2]))
        self.assertEqual(host_operations(), [])


def recurrent(network, data, states, device, twice):
    network, data = copy.deepcopy(network).to(device), data.clone().to(device).requires_grad_()
    states = [s.clone().to(device).requires_grad_() for s in states]
    y, last = network(data, tuple(states) if len(states) > 1 else states[0])
    results = [y, *(last if isinstance(last, tuple) else [last])]
    generator = torch.Generator().manual_seed(1)
    loss = sum((t * torch.randn(t.shape, generator=generator).to(device)).sum() for t in results)
    wanted = [data, *states, *network.parameters()]
    if twice:
        loss = sum((g**2).sum() for g in torch.autograd.grad(loss, wanted, create_graph=True))
    found = torch.autograd.grad(loss, wanted)
    return [t.detach().cpu() for t in (*results, *found)]


class Recurrent(unittest.TestCase):
    OPTIONS = ({}, {"num_layers": 2}, {"bidirectional": True}, {"num_layers": 2, "bidirectional": True, "bias": False, "batch_first": True})

    def test_as_torch(self):
        torch.manual_seed(0)
        core.clear_counters()
        for (kind, count), options, twice in itertools.product(((nn.LSTM, 2), (nn.GRU, 1)), self.OPTIONS, (False, True)):
            network = kind(3, 5, **options)
            batch = 4 if options.get("batch_first") else 6
            layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
            data, states = torch.randn(4, 6, 3), [torch.randn(layers, batch, 5) for _ in range(count)]
            expected, actual = (recurrent(network, data, states, device, twice) for device in ("cpu", DEVICE))
            for x, y in zip(expected, actual, strict=True):
                torch.testing.assert_close(y, x, rtol=1e-4, atol=1e-5, msg=lambda text: f"{kind} {options} {twice}: {text}")
        self.assertEqual(host_operations(), [])

    def test_long_and_short(self):
        torch.manual_seed(0)
        for (kind, count), length in itertools.product(((nn.LSTM, 2), (nn.GRU, 1)), (1, 100)):
            network, data = kind(3, 5), torch.randn(length, 2, 3)
            states = [torch.randn(1, 2, 5) for _ in range(count)]
            for x, y in zip(recurrent(network, data, states, "cpu", False), recurrent(network, data, states, DEVICE, False), strict=True):
                torch.testing.assert_close(y, x, rtol=1e-4, atol=1e-5)
            with torch.no_grad():
                torch.testing.assert_close(copy.deepcopy(network).to(DEVICE)(data.to(DEVICE))[0].cpu(), network(data)[0])

    def test_what_torch_does_itself(self):
        """Projections, packed sequences and dropout between layers are put together by torch."""
        torch.manual_seed(0)
        core.clear_counters()
        network, data = nn.LSTM(3, 6, proj_size=2), torch.randn(4, 2, 3)
        torch.testing.assert_close(copy.deepcopy(network).to(DEVICE)(data.to(DEVICE))[0].cpu(), network(data)[0])
        network = nn.GRU(3, 6)
        packed = nn.utils.rnn.pack_padded_sequence(data, torch.tensor([4, 2]))
        ours = nn.utils.rnn.pack_padded_sequence(data.to(DEVICE), torch.tensor([4, 2]))
        torch.testing.assert_close(copy.deepcopy(network).to(DEVICE)(ours)[0].data.cpu(), network(packed)[0].data)
        self.assertEqual(host_operations(), [])


if __name__ == "__main__":
    unittest.main()
