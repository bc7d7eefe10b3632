"""Operations against torch's CPU: dtypes, special values, shapes, promotions, in-place and out overloads."""

import copy
import unittest

from common import DEVICE, core, host_operations, same
import torch
from torch.nn import functional as F

SPECIAL = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, float("inf"), float("-inf"), float("nan"), 1e-30, 88.0, -104.0, 1e30]
)
INTEGERS = torch.tensor([0, 1, -1, 5, -7, 100, 2**30])

UNARY = (
    "abs neg sign floor ceil round trunc exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan tanh sigmoid erf erfinv "
    "sinh cosh asinh acosh atanh asin acos atan relu reciprocal square isnan isinf isfinite signbit logical_not"
).split()
BINARY = (
    "add sub mul div maximum minimum atan2 fmod remainder floor_divide pow eq ne lt le gt ge fmax fmin hypot logical_and "
    "logical_or logical_xor"
).split()


class Elementwise(unittest.TestCase):
    def check(self, name, function, *tensors, bits=False):
        with self.subTest(name):
            expected = function(*tensors)
            actual = function(*(t.to(DEVICE) if isinstance(t, torch.Tensor) else t for t in tensors))
            for one, other in zip(*((v if isinstance(v, (tuple, list)) else (v,)) for v in (expected, actual))):
                same(self, one, other, name, bits=bits)

    def test_unary(self):
        for name in UNARY:
            function = getattr(torch, name)
            self.check(name, function, SPECIAL if name not in ("sin", "cos", "tan", "erfinv") else SPECIAL[SPECIAL.abs() < 80])
            self.check(name + " f64", function, torch.linspace(-3, 3, 13, dtype=torch.float64))
            if name not in ("asin", "acos", "erfinv", "acosh", "atanh", "log", "log2", "log10", "sqrt", "rsqrt", "log1p"):
                self.check(name + " i32", function, torch.arange(-4, 5, dtype=torch.int32))

    def test_binary(self):
        for name in BINARY:
            function = getattr(torch, name)
            self.check(name, function, SPECIAL[:, None], SPECIAL[None, :])
            if name not in ("hypot", "atan2", "fmax", "fmin"):
                self.check(
                    name + " i64",
                    function,
                    INTEGERS[3:, None].abs() if name == "pow" else INTEGERS[3:, None],
                    INTEGERS[1:4].abs(),
                )
            self.check(name + " mixed", function, torch.arange(1, 5, dtype=torch.int32), torch.tensor([0.5, 1.5, 2.5, 4.0]))

    def test_promotion(self):
        kinds = (
            torch.bool,
            torch.uint8,
            torch.int8,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.float64,
            torch.complex64,
        )
        for a in kinds:
            for b in kinds:
                x, y = torch.tensor([1, 0, 1]).to(a), torch.tensor([1, 1, 0]).to(b)
                for one, other in ((x, y), (x, y[0]), (x[0], y), (x[0], y[0])):
                    if torch.result_type(one, other) not in kinds:  # half as wide complex numbers are not there
                        continue
                    self.check(f"{a} {b}", torch.mul, one, other)
                    self.check(f"{a} {b} add", torch.add, one, other)
        for a in kinds:
            for number in (True, 2, 2.5):
                self.check(f"{a} {number}", lambda t, n=number: t * n, torch.tensor([1, 0, 1]).to(a))
                self.check(f"{a} {number} +", lambda t, n=number: n + t, torch.tensor(1).to(a))

    def test_numbers(self):
        x = torch.linspace(-2, 2, 9)
        for name, function in {
            "alpha": lambda t: torch.add(t, t, alpha=0.3),
            "rsub": lambda t: 3 - t,
            "rdiv": lambda t: 2 / t,
            "pow": lambda t: t**3,
            "rpow": lambda t: 2**t,
            "clamp": lambda t: t.clamp(-1, 0.5),
            "lerp": lambda t: t.lerp(t * 2, 0.7),
            "addcmul": lambda t: torch.addcmul(t, t, t, value=0.2),
            "addcdiv": lambda t: torch.addcdiv(t, t, t + 5, value=-2),
            "mod": lambda t: t % 0.7,
            "floordiv": lambda t: t // 0.3,
            "threshold": lambda t: F.threshold(t, 0.1, 20),
            "elu": F.elu,
            "selu": F.selu,
            "celu": F.celu,
            "gelu": F.gelu,
            "silu": F.silu,
            "mish": F.mish,
            "tanh gelu": lambda t: F.gelu(t, approximate="tanh"),
            "softplus": F.softplus,
            "glu": lambda t: F.glu(t[:8]),
            "hardswish": F.hardswish,
            "hardsigmoid": F.hardsigmoid,
            "hardtanh": F.hardtanh,
            "relu6": F.relu6,
            "logsigmoid": F.logsigmoid,
            "leaky": F.leaky_relu,
            "softsign": F.softsign,
        }.items():
            self.check(name, function, x)

    def test_in_place_and_out(self):
        for name in ("add", "mul", "sub", "div", "maximum", "pow", "atan2"):
            x, y = torch.linspace(0.5, 2, 6), torch.linspace(1, 3, 6)
            a, b = x.to(DEVICE), y.to(DEVICE)
            expected = getattr(torch, name)(x, y)
            if hasattr(a, name + "_"):
                same(self, expected, getattr(a.clone(), name + "_")(b), name, bits=False)
            same(self, expected, getattr(torch, name)(a, b, out=torch.empty(6, device=DEVICE)), name, bits=False)


class Others(unittest.TestCase):
    check = Elementwise.check

    def setUp(self):
        self.x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))

    def test_reductions(self):
        for name in ("sum", "mean", "amax", "amin", "prod", "logsumexp", "all", "any", "argmax", "argmin", "std", "var"):
            function = getattr(torch, name)
            if name not in ("argmax", "argmin", "logsumexp", "amax", "amin"):
                self.check(name, function, self.x)
            for dim in (0, -1, (0, 2)) if name in ("sum", "mean", "amax", "amin", "logsumexp", "std", "var") else (0, -1):
                for keep in (False, True):
                    self.check(f"{name} {dim} {keep}", lambda t, f=function, d=dim, k=keep: f(t, d, keepdim=k), self.x)
        for name in ("max", "min", "sort", "cummax", "cummin", "median"):
            self.check(name, lambda t, f=getattr(torch, name): tuple(f(t, 1)), self.x)
        for name in ("cumsum", "cumprod"):
            self.check(name, lambda t, f=getattr(torch, name): f(t, 1), self.x)
        self.check("topk", lambda t: tuple(t.topk(2, 1)), self.x)
        self.check("smallest", lambda t: tuple(t.topk(2, 1, largest=False)), self.x)
        self.check("norm", lambda t: t.norm(dim=1), self.x)
        self.check("scalar", lambda t: tuple((t.sum(0), t.max(), t.mean(), t.argmax())), torch.tensor(3.0))
        self.check("empty", lambda t: (t.sum(), t.sum(0), t.prod()), torch.empty(0, 3))
        self.check("ints", lambda t: (t.sum(), t.prod(), t.max()), torch.arange(1, 6, dtype=torch.int32))

    def test_indexing(self):
        rows, mask = torch.tensor([2, 0, -1]), self.x > 0
        self.check("index", lambda t, i: t[i], self.x, rows)
        self.check("index 2", lambda t, i: t[i, :, i], self.x, rows)
        self.check("index 3", lambda t, i: t[:, i, i], self.x, rows)
        self.check("mask", lambda t, m: t[m], self.x, mask)
        self.check("row mask", lambda t, m: t[m], self.x, torch.tensor([True, False, True]))
        self.check("nonzero", lambda m: m.nonzero(), mask)
        self.check("where", lambda m, t: torch.where(m, t, 0.5), mask, self.x)
        self.check("fill", lambda t, m: t.masked_fill(m, -1), self.x, mask)
        self.check("select", lambda t, m: t.masked_select(m), self.x, mask)
        ids = torch.randint(0, 3, (3, 4, 5), generator=torch.Generator().manual_seed(1))
        self.check("gather", lambda t, i: t.gather(0, i), self.x, ids)
        self.check("scatter", lambda t, i: t.scatter_add(0, i, t), self.x, ids)
        self.check("scatter number", lambda t, i: t.scatter(0, i, 2.0), self.x, ids)

        def put(t, i, m):
            t = t.clone()
            t[i] = 1
            t[m] = 2
            t[i, 1] += 5
            t.index_add_(0, i.abs(), t.clone())
            t.index_copy_(1, i.abs(), t[:, :3].clone())
            t[:, 1:3] = t[:, :2].clone()
            return t

        self.check("put", put, self.x, rows, mask)
        self.check("take", lambda t, i: torch.take(t, i), self.x, torch.tensor([[0, 59], [-1, 7]]))
        self.check("cat", lambda t: torch.cat([t, t[:1], torch.empty(0, device=t.device)]), self.x)
        self.check("stack", lambda t: torch.stack([t, t], 1), self.x)
        self.check("many", lambda t: torch.cat([t] * 150), self.x)
        self.check("tril", lambda t: (t.tril(1), t.triu(-1)), self.x)
        self.check("roll", lambda t: (t.roll(2, 1), t.flip(0, 2), t.repeat(2, 1, 1), t.rot90(1, (1, 2))), self.x)
        self.check("pad", lambda t: (F.pad(t, (1, 2, 0, 1), value=3.0), F.pad(t, (-1, 1))), self.x)

    def test_layers(self):
        image = torch.randn(2, 4, 9, 8, generator=torch.Generator().manual_seed(2), requires_grad=True)
        weight = torch.randn(6, 2, 3, 3, generator=torch.Generator().manual_seed(3), requires_grad=True)
        other = torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(4), requires_grad=True)
        cases = {
            "conv": lambda x, w, o: F.conv2d(x, w, stride=2, padding=1, groups=2),
            "dilated": lambda x, w, o: F.conv2d(x, w, dilation=2, groups=2),
            "transposed": lambda x, w, o: F.conv_transpose2d(x, o, stride=2, padding=1, output_padding=1, groups=2),
            "max pool": lambda x, w, o: F.max_pool2d(x, 3, 2, 1),
            "ceil": lambda x, w, o: F.max_pool2d(x, 3, 2, ceil_mode=True),
            "avg pool": lambda x, w, o: F.avg_pool2d(x, 3, 2, 1),
            "avg ceil": lambda x, w, o: F.avg_pool2d(x, 3, 2, 1, True, False),
            "adaptive": lambda x, w, o: F.adaptive_avg_pool2d(x, (4, 3)),
            "group norm": lambda x, w, o: F.group_norm(x, 2),
            "layer norm": lambda x, w, o: F.layer_norm(x, (9, 8)),
            "instance": lambda x, w, o: F.instance_norm(x),
            "softmax": lambda x, w, o: x.softmax(1),
            "log softmax": lambda x, w, o: x.log_softmax(1),
            "nearest": lambda x, w, o: F.interpolate(x, scale_factor=2),
            "attention": lambda x, w, o: F.scaled_dot_product_attention(x, x, x, is_causal=True),
            "bilinear": lambda x, w, o: F.interpolate(x, size=(5, 11), mode="bilinear"),
            "unfold": lambda x, w, o: F.unfold(x, 3, padding=1),
            "shuffle": lambda x, w, o: F.pixel_shuffle(x, 2),
            "gelu": lambda x, w, o: F.gelu(x),
            "silu": lambda x, w, o: F.silu(x),
        }
        for name, function in cases.items():
            with self.subTest(name):
                core.clear_counters()
                leaves = [[t.detach().to(d).requires_grad_() for t in (image, weight, other)] for d in ("cpu", DEVICE)]
                outputs = [function(*group) for group in leaves]
                torch.testing.assert_close(outputs[1].cpu(), outputs[0], rtol=2e-5, atol=2e-5)
                for output, group in zip(outputs, leaves):
                    (
                        output * torch.linspace(0, 1, output.numel(), device="cpu").view(output.shape).to(output.device)
                    ).sum().backward()
                for a, b in zip(*leaves):
                    self.assertEqual(a.grad is None, b.grad is None)
                    if a.grad is not None:
                        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-4, atol=2e-5)
                self.assertEqual(host_operations(), [])

    def test_encoder_layers_in_evaluation(self):
        for norm_first in (False, True):
            layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first).eval()
            x, hidden = torch.randn(3, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
            ahead = torch.nn.Transformer.generate_square_subsequent_mask(5)
            ours = copy.deepcopy(layer).to(DEVICE)
            for given in ({}, {"src_key_padding_mask": hidden}, {"src_mask": ahead}):
                with torch.no_grad():
                    core.clear_counters()
                    moved = {name: value.to(DEVICE) for name, value in given.items()}
                    torch.testing.assert_close(ours(x.to(DEVICE), **moved).cpu(), layer(x, **given), rtol=2e-5, atol=2e-5)
                    self.assertEqual(host_operations(), [])

    def test_losses(self):
        x = torch.randn(6, 5, generator=torch.Generator().manual_seed(5))
        labels, weight = torch.tensor([0, 4, 2, -100, 1, 1]), torch.linspace(0.5, 2, 5)
        for reduction in ("mean", "sum", "none"):
            for function in (
                lambda t, y, w, r: F.cross_entropy(t, y, reduction=r),
                lambda t, y, w, r: F.cross_entropy(t, y, w, reduction=r),
                lambda t, y, w, r: F.cross_entropy(t, y, label_smoothing=0.1, reduction=r),
                lambda t, y, w, r: F.mse_loss(t, t * 2, reduction=r),
                lambda t, y, w, r: F.l1_loss(t, t * 2, reduction=r),
                lambda t, y, w, r: F.smooth_l1_loss(t, t * 2, reduction=r),
                lambda t, y, w, r: F.huber_loss(t, t * 3, reduction=r),
                lambda t, y, w, r: F.binary_cross_entropy_with_logits(t, t.sigmoid().detach(), reduction=r),
                lambda t, y, w, r: F.kl_div(t.log_softmax(1), t.softmax(1), reduction=r),
            ):
                grads = []
                for device in ("cpu", DEVICE):
                    leaf = x.to(device).detach().requires_grad_()
                    loss = function(leaf, labels.to(device), weight.to(device), reduction)
                    loss.sum().backward()
                    grads.append((loss.detach().cpu(), leaf.grad.cpu()))
                torch.testing.assert_close(grads[1], grads[0], rtol=2e-5, atol=2e-6)

    def test_factories(self):
        for function in (
            lambda d: torch.arange(7, device=d),
            lambda d: torch.arange(1, 2, 0.3, device=d),
            lambda d: torch.arange(5, 0, -2, device=d),
            lambda d: torch.linspace(0, 1, 7, device=d),
            lambda d: torch.eye(3, 4, device=d),
            lambda d: torch.full((2, 3), 2.5, device=d),
            lambda d: torch.zeros(0, 2, device=d),
            lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
            lambda d: torch.ones(2, dtype=torch.bool, device=d),
            lambda d: torch.tril_indices(3, 3, device=d),
            lambda d: torch.full((2,), True, device=d),
        ):
            same(self, function("cpu"), function(DEVICE))

    def test_products(self):
        a, b = torch.randn(4, 3, 5), torch.randn(4, 5, 2)
        self.check("bmm", torch.bmm, a, b)
        self.check("baddbmm", lambda x, y: torch.baddbmm(torch.ones(2, device=x.device), x, y, beta=0.5, alpha=2), a, b)
        self.check("addmm", lambda x, y: torch.addmm(torch.ones(2, device=x.device), x[0], y[0], beta=0.5, alpha=2), a, b)
        self.check("mv", lambda x, y: (x[0].mv(y[0][:, 0]), x[0, 0].dot(y[0, :, 0]), torch.outer(x[0, 0], y[0, :, 0])), a, b)
        self.check("einsum", lambda x, y: torch.einsum("bij,bjk->ik", x, y), a, b)
        self.check("f64", lambda x, y: x.double() @ y.double(), a, b)
        self.check("i64", lambda x: x @ x.t(), torch.arange(6).view(2, 3))
        self.check(
            "fft", lambda x: (torch.fft.fft(x), torch.fft.ifft(torch.fft.rfft2(x)), torch.fft.irfft(torch.fft.rfft(x), 5)), a
        )

    def test_medians_and_modes(self):
        core.clear_counters()
        generator = torch.Generator().manual_seed(0)
        nan, ties = float("nan"), torch.tensor([[1.0, 2, 2, 0], [3, 1, 1, 3], [0, 0, 0, 0]])
        holes = torch.tensor([[1.0, nan, 3, 2], [nan, nan, nan, nan], [2, 1, 5, 4]])
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8):
            x = (torch.randn(4, 7, generator=generator) * 3).to(dtype)
            for name in ("median", "nanmedian"):
                function = getattr(torch, name)
                self.check(name, lambda x: (function(x), function(x, 1)[0], function(x, 0, True)[0], function(x[0, 0])), x, bits=True)
            self.check("mode", lambda x: (torch.mode(x)[0], torch.mode(x, 0, True)[0], torch.mode(x[0, 0])[0]), x, bits=True)
        for name in ("median", "nanmedian"):
            function = getattr(torch, name)
            self.check(name + " of NaN", lambda x: (function(x), function(x, 1)[0], function(x, 0)[0]), holes)
            self.check(name + " of nothing", lambda x: (function(x[:0]), function(x[:0], 1)[0]), holes)
            with self.assertRaisesRegex(IndexError, "reduction dim 0 to have non-zero size"):
                function(holes.to(DEVICE)[:0], 0)
        self.check("ties", lambda x: (torch.mode(x, 1)[0], torch.median(x, 1)[0]), ties)
        for function in (lambda x: x.median(1)[0].sum(), torch.median, lambda x: x.mode(1)[0].sum()):
            slopes = []
            for device in ("cpu", DEVICE):
                x = torch.arange(12.0).reshape(3, 4).to(device).requires_grad_()
                function(x).backward()
                slopes.append(x.grad)
            same(self, *slopes)
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            self.check("frexp", lambda x: tuple(torch.frexp(x)), torch.tensor([0.0, -0.0, 1, -3.5, 1e-30]).to(dtype), bits=True)
        self.assertEqual(host_operations(), [])

    def test_special_functions(self):
        """Beside torch's CPU where both are accurate, and their limits, where torch often has NaN."""
        core.clear_counters()
        names = (
            "i0 i0e i1 i1e modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 "
            "scaled_modified_bessel_k0 scaled_modified_bessel_k1 bessel_j0 bessel_j1 bessel_y0 bessel_y1 airy_ai erfcx"
        ).split()
        for name in names:
            function = getattr(torch.special, name)
            self.check(name, function, torch.linspace(0.1, 8, 41, dtype=torch.float64))
            self.check(name + " of integers", function, torch.arange(1, 6))
        for dtype in (torch.float32, torch.float64):
            inside = torch.linspace(0.05, 0.95, 19, dtype=dtype)
            self.check("ndtri", torch.special.ndtri, inside)
            for name in ("gammainc", "gammaincc"):
                self.check(name, getattr(torch.special, name), inside[:, None] * 10, inside * 12)
            steps = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), 1e-45], dtype=dtype)
            self.check("nextafter", torch.nextafter, steps[:, None], steps.flip(0), bits=True)
        ends = torch.tensor([float("inf"), float("-inf")], device=DEVICE)
        for name, limits in (("i0", ["inf", "inf"]), ("i1", ["inf", "-inf"]), ("bessel_j0", ["0.0", "0.0"]), ("i0e", ["0.0", "0.0"])):
            self.assertEqual([str(x) for x in getattr(torch.special, name)(ends).tolist()], limits, name)
        self.assertEqual(host_operations(), [])

    def test_histc(self):
        core.clear_counters()
        special = torch.tensor([0.0, 1.0, 2.0, 3.0, 3.0, -1.0, float("inf"), float("nan")])
        for bins in (1, 3, 4):
            self.check("given range", lambda x: torch.histc(x, bins=bins, min=0, max=3), special, bits=True)
            self.check("range of the numbers", lambda x: torch.histc(x, bins=bins), torch.linspace(-2, 5, 40), bits=True)
            self.check("one number", lambda x: torch.histc(x, bins=bins), torch.ones(4, dtype=torch.float64), bits=True)
        for count in (2, 3, 7, 60):  # torch's CPU takes no integers, its accelerators do
            x = torch.randint(0, count, (200,), generator=torch.Generator().manual_seed(count))
            for dtype in (torch.int32, torch.int64, torch.uint8):
                found = torch.histc(x.to(dtype).to(DEVICE), bins=count, min=0, max=count - 1)
                self.assertEqual((found.dtype, found.tolist()), (dtype, torch.bincount(x, minlength=count).tolist()))
        self.assertEqual(host_operations(), [])

    def test_grouped_mm(self):
        """Products of groups, empty ones too, in the three forms, and both gradients."""
        core.clear_counters()
        generator = torch.Generator().manual_seed(0)
        x, w, planes = (torch.randn(*shape, generator=generator) for shape in ((16, 8), (4, 8, 16), (4, 16, 8)))
        for ends in ([3, 3, 9, 16], [0, 5, 5, 16], [16, 16, 16, 16], [1, 2, 3, 4]):
            offs, last = torch.tensor(ends, dtype=torch.int32), ends[-1]

            def rows(x, w):
                x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
                out = torch._grouped_mm(x, w, offs=offs.to(x.device))[:last]
                out.square().sum().backward()
                return out.detach(), x.grad[:last], w.grad

            self.check(f"rows {ends}", rows, x, w)
            ends_here = offs.to(DEVICE)
            self.assertEqual(torch._grouped_mm(x.to(DEVICE), w.to(DEVICE), offs=ends_here)[last:].abs().sum().item(), 0)
            self.assertEqual(torch._grouped_mm(planes.to(DEVICE), x.to(DEVICE).t(), offs=ends_here)[:, last:].abs().sum().item(), 0)
            self.check("inner", lambda x: torch._grouped_mm(x.t(), x.clone(), offs=offs.to(x.device)), x)
            self.check("columns", lambda p, x: torch._grouped_mm(p, x.t(), offs=offs.to(x.device))[:, :last], planes, x)
        self.check("lists", lambda p, w: torch._grouped_mm(p, w), planes, w)
        self.assertEqual(host_operations(), [])


if __name__ == "__main__":
    unittest.main()
