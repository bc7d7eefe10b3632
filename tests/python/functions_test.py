"""Functions, gradients, maps, loops, layers and optimizers beside NumPy and finite differences."""

import itertools
import os
import tempfile
import unittest

import support

if support.np is None and "WEFT_BUILD" in os.environ and "LIBWEFT_INSTALLED" not in os.environ:
    from support_env import enter_numpy

    enter_numpy(os.path.abspath(__file__))

import libweft as wf  # noqa: E402
from libweft import nn, optim  # noqa: E402

np = support.np


def slope(f, x, h=1e-6):
    """Central differences of a function of one f64 array."""
    out = np.zeros_like(x)
    for i in np.ndindex(*x.shape):
        a, b = x.copy(), x.copy()
        a[i] += h
        b[i] -= h
        out[i] = (f(a) - f(b)) / (2 * h)
    return out


@support.needs_numpy
class Transforms(unittest.TestCase):
    def near(self, theirs, mine, rtol=1e-6, atol=1e-7):
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=rtol, atol=atol)

    def test_gradients_are_slopes(self):
        x = np.random.default_rng(1).random((3, 4)) + 0.5
        for f in (
            lambda v: (v.sin() * v).sum(),
            lambda v: v.softmax().square().sum(),
            lambda v: (v @ v.T).log().sum(),
            lambda v: v[1:, ::2].exp().sum(),
            lambda v: wf.concat([v, v * 2], 1).prod(axis=1).sum(),
            lambda v: v[[0, 0, 2]].sqrt().sum(),
            lambda v: wf.scan(lambda c, r: (c * 0.5 + r, c), wf.zeros((4,), "f64"), v)[0].sum(),
            lambda v: wf.fori_loop(0, 3, lambda i, c: c * v, wf.ones((3, 4), "f64")).sum(),
            lambda v: wf.cond(v[0, 0] > 0, lambda a: (a**2).sum(), lambda a: a.sum(), v),
        ):
            self.near(slope(lambda a: f(wf.tensor(a)).item(), x), wf.grad(f)(wf.tensor(x)), rtol=1e-5, atol=1e-6)
            self.near(wf.grad(f)(wf.tensor(x)).numpy(), wf.grad(wf.checkpoint(f))(wf.tensor(x)))

    def test_nested_arguments_aux_and_argnums(self):
        def f(p, x, scale=1.0):
            y = (p["w"] * x).sum() * scale
            return y, {"y": y, "name": "aux"}

        p, x = {"w": wf.tensor([1.0, 2.0]), "unused": [wf.tensor(0.0)]}, wf.tensor([3.0, 4.0])
        (value, aux), grads = wf.value_and_grad(f, has_aux=True)(p, x, scale=2.0)
        self.assertEqual((22.0, 22.0, "aux"), (value.item(), aux["y"].item(), aux["name"]))
        self.assertEqual(([6.0, 8.0], 0.0), (grads["w"].tolist(), grads["unused"][0].item()))
        both = wf.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x)
        self.assertEqual(([3, 4], [3, 4]), (both[0].tolist(), both[1].tolist()))

    def test_forward_and_reverse_mode_agree(self):
        def f(x, y):
            return {"a": wf.sin(x) * y, "b": (x * y).sum()}

        x, y = wf.tensor([0.5, 1.5], "f64"), wf.tensor([2.0, 3.0], "f64")
        value, pull = wf.vjp(f, x, y)
        _, push = wf.jvp(f, (x, y), (wf.tensor([1.0, 0.5], "f64"), wf.tensor([-1.0, 2.0], "f64")))
        dx, dy = pull({"a": wf.tensor([0.3, 0.7], "f64"), "b": wf.tensor(1.1, "f64")})
        left = (push["a"] * wf.tensor([0.3, 0.7], "f64")).sum().item() + push["b"].item() * 1.1
        right = (dx * wf.tensor([1.0, 0.5], "f64")).sum().item() + (dy * wf.tensor([-1.0, 2.0], "f64")).sum().item()
        self.assertAlmostEqual(left, right, places=10)
        self.near(np.sin([0.5, 1.5]) * [2, 3], value["a"])

    def test_maps(self):
        a = np.random.default_rng(2).random((5, 3))
        b = np.random.default_rng(3).random((3, 5))
        x, y = wf.tensor(a), wf.tensor(b)
        self.near(np.array([a[i] @ b[:, i] for i in range(5)]), wf.vmap(wf.dot, in_axes=(0, 1))(x, y))
        self.near(a * 2, wf.vmap(lambda r, s: r * s, in_axes=(0, None))(x, 2.0))
        self.near(a.T, wf.vmap(lambda r: r, out_axes=1)(x))
        self.near(3 * a**2, wf.vmap(wf.vmap(wf.grad(lambda v: v**3)))(x))
        with self.assertRaisesRegex(ValueError, "should have one"):
            wf.vmap(lambda p, q: p)(x, y)

    def test_traced_once_a_signature(self):
        calls = []

        @wf.function
        def f(x, times=2):
            calls.append(times)
            return x * times

        for shape, times in itertools.product(((2,), (3,), (2,)), (2, 3)):
            self.near(np.ones(shape) * times, f(wf.ones(shape), times))
        self.assertEqual(4, len(calls))
        self.assertEqual(4, f.signatures)

    def test_closures_never_see_old_values(self):
        w = wf.Parameter([1.0])
        f = wf.function(lambda x: x * w)
        self.assertEqual([2.0], f(wf.tensor([2.0])).tolist())
        w += 1
        self.assertEqual([4.0], f(wf.tensor([2.0])).tolist())

    def test_custom_gradient_and_stablehlo_and_files(self):
        clipped = wf.custom_gradient(lambda x: x * 1, lambda x: (x * 1, x), lambda x, c: c.clip(low=-1.0, high=1.0))
        self.assertEqual(1.0, wf.grad(lambda x: clipped(x) * 5)(2.0).item())
        f = wf.function(lambda x, y: (x @ y, x.sum())).trace(wf.zeros((2, 3)), wf.zeros((3, 2)))
        x, y = wf.arange(6, dtype="f32").reshape(2, 3), wf.ones((3, 2))
        with tempfile.TemporaryDirectory() as folder:
            f.save(os.path.join(folder, "f"))
            for g in (wf.from_stablehlo(f.text("stablehlo")), wf.Function.load(os.path.join(folder, "f"))):
                for mine, theirs in zip(g(x, y), f(x, y)):
                    self.near(theirs.numpy(), mine)
                self.assertEqual(f.inputs, g.inputs)
        self.assertGreater(f.stats()["flops"], 10)

    def test_wrong_functions(self):
        for call, kind, text in (
            (lambda: wf.grad(lambda x: x)(wf.ones((2,))), ValueError, "of one float"),
            (lambda: wf.grad(lambda x: x, argnums=1)(1.0), ValueError, "argnums"),
            (lambda: wf.grad(lambda n: wf.ones(()))(3), TypeError, "no floats"),
            (lambda: wf.scan(lambda c, x: c, wf.zeros(()), wf.zeros((3,))), TypeError, "pair"),
            (lambda: wf.scan(lambda c, x: (c, x), wf.zeros(())), ValueError, "length"),
            (lambda: wf.cond(True, lambda: wf.ones(()), lambda: (wf.ones(()),)), TypeError, "nested differently"),
            (lambda: wf.function(lambda x: x)({1, 2}, object()), TypeError, "tensor|argument"),
            (lambda: wf.grad(lambda x: wf.while_loop(lambda v: v < 9, lambda v: v * 2, x))(1.0), NotImplementedError, ""),
        ):
            with self.assertRaisesRegex(kind, text):
                call()


@support.needs_numpy
class Networks(unittest.TestCase):
    def test_optimizers_beside_their_formulas(self):
        def adam(decoupled, decay):
            p, m, v = np.array([1.0, -2.0]), 0.0, 0.0
            for t in range(1, 6):
                g = 2 * p + (0 if decoupled else decay * p)
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
                step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
                p = p - 0.1 * (step + (decay * p if decoupled else 0))
            return p

        def sgd(nesterov):
            p, v = np.array([1.0, -2.0]), 0.0
            for _ in range(5):
                g = 2 * p + 0.01 * p
                v = 0.9 * v + g
                p = p - 0.1 * (g + 0.9 * v if nesterov else v)
            return p

        cases = [
            (lambda p: optim.Adam(p, 0.1, weight_decay=0.2), adam(False, 0.2)),
            (lambda p: optim.AdamW(p, 0.1, weight_decay=0.2), adam(True, 0.2)),
            (lambda p: optim.AdamW(p, 0.1, weight_decay=0.0), adam(True, 0.0)),
            (lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01), sgd(False)),
            (lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True), sgd(True)),
        ]
        for make, wanted in cases:
            p = wf.Parameter([1.0, -2.0], dtype="f64")
            optimizer = make([p])
            for _ in range(5):
                with wf.step():
                    optimizer.step((p * p).sum())
            np.testing.assert_allclose(p.numpy(), wanted, rtol=1e-9)

    def test_groups_schedules_clipping_averages(self):
        a, b = wf.Parameter([1.0]), wf.Parameter([1.0])
        optimizer = optim.AdamW(
            [{"params": [a], "weight_decay": 0.5}, {"params": [b], "weight_decay": 0.0, "lr": 0.0}], lr=0.1
        )
        optimizer.step([wf.zeros((1,)), wf.zeros((1,))])
        self.assertAlmostEqual(0.95, a.item(), places=6)
        self.assertEqual(1.0, b.item())
        self.assertEqual([0.1, 0.1, 0.01], [round(optim.step_decay(0.1, 2)(n), 9) for n in range(3)])
        self.assertEqual([0.5, 1.0, 1.0], [optim.warmup(1.0, 2)(n) for n in range(3)])
        cycle = [optim.one_cycle(1.0, 10)(n) for n in range(10)]
        self.assertAlmostEqual(0.04, cycle[0])
        self.assertAlmostEqual(1.0, max(cycle))
        self.assertLess(cycle[-1], 1e-4)
        clipped, norm = optim.clip_by_global_norm({"x": wf.tensor([3.0]), "y": wf.tensor([4.0])}, 1.0)
        self.assertAlmostEqual(5.0, norm.item(), places=5)
        self.assertAlmostEqual(0.8, clipped["y"].item(), places=5)
        line = nn.Linear(1, 1)
        line.w.assign(wf.ones((1, 1)))
        average = optim.EMA(line, 0.5)
        line.w.assign(wf.zeros((1, 1)))
        average.update()
        average.swap()
        self.assertEqual(0.5, line.w.item())
        with self.assertRaisesRegex(ValueError, "2 gradients for 1"):
            optim.SGD([wf.Parameter(1.0)], 0.1).step([wf.zeros(()), wf.zeros(())])
        with self.assertRaisesRegex(TypeError, "no setting"):
            optim.SGD([{"params": [a], "beta1": 1.0}], 0.1)

    def test_layers_beside_numpy(self):
        x = np.random.default_rng(5).normal(size=(4, 6)).astype(np.float32)
        line = nn.Linear(6, 3)
        np.testing.assert_allclose(line(wf.tensor(x)).numpy(), x @ line.w.numpy() + line.b.numpy(), rtol=1e-5, atol=1e-6)
        norm = nn.LayerNorm(6)
        np.testing.assert_allclose(
            norm(wf.tensor(x)).numpy(),
            (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5),
            rtol=1e-4,
            atol=1e-5,
        )
        batch = nn.BatchNorm(6)
        y = batch(wf.tensor(x))
        np.testing.assert_allclose(y.numpy(), (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(batch.mean.numpy(), 0.1 * x.mean(0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(batch.variance.numpy(), 0.9 + 0.1 * x.var(0, ddof=1), rtol=1e-4)
        batch.eval()
        before = batch.mean.tolist()
        batch(wf.tensor(x))
        self.assertEqual(before, batch.mean.tolist())
        image = np.random.default_rng(6).normal(size=(2, 5, 5, 3)).astype(np.float32)
        conv = nn.Conv2d(3, 4, 3, padding=1)
        padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
        w = conv.w.numpy()
        wanted = sum(padded[:, i : i + 5, j : j + 5] @ w[i, j] for i in range(3) for j in range(3))
        np.testing.assert_allclose(conv(wf.tensor(image)).numpy(), wanted, rtol=1e-4, atol=1e-5)
        self.assertEqual(x.shape, nn.Dropout(0.5).eval()(wf.tensor(x)).shape)

    def test_recurrent_layers_beside_numpy(self):
        x = np.random.default_rng(8).normal(size=(2, 5, 3)).astype(np.float32)

        def sigmoid(v):
            return 1 / (1 + np.exp(-v))

        def gru(v, h, w, u, b, c):
            a, d = np.split(v @ w.T + b, 3, -1), np.split(h @ u.T + c, 3, -1)
            r, z = sigmoid(a[0] + d[0]), sigmoid(a[1] + d[1])
            return (1 - z) * np.tanh(a[2] + r * d[2]) + z * h

        rules = {
            "GRU": gru,
            "RNN": lambda v, h, w, u, b, c: np.tanh(v @ w.T + b + h @ u.T + c),
        }
        for name, rule in rules.items():
            layer = getattr(nn, name)(3, 4, layers=2, bidirectional=True)
            self.assertEqual(16, len(layer.parameters()))
            outputs, h = layer(wf.tensor(x))
            steps, last = x.astype("f8"), []
            for k in range(2):
                halves = []
                for d in range(2):
                    weights, state = [p.numpy() for p in layer.weights[8 * k + 4 * d : 8 * k + 4 * d + 4]], np.zeros((2, 4))
                    states = np.zeros((2, 5, 4))
                    for t in range(5) if d == 0 else reversed(range(5)):
                        states[:, t] = state = rule(steps[:, t], state, *weights)
                    halves.append(states)
                    last.append(state)
                steps = np.concatenate(halves, -1)
            np.testing.assert_allclose(outputs.numpy(), steps, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(h.numpy(), np.stack(last), rtol=1e-4, atol=1e-5)
            again, _ = layer(wf.tensor(x), h)
            self.assertGreater(np.abs(again.numpy() - outputs.numpy()).max(), 1e-3)
        relu = nn.RNN(3, 4, bias=False, activation="relu")
        self.assertEqual((2, True), (len(relu.parameters()), bool((relu(wf.tensor(x))[0].numpy() >= 0).all())))
        with self.assertRaises(wf.Error) as caught:
            nn.RNN(3, 4, activation="sigmoid")
        self.assertIn("activation is 'sigmoid'; it is 'tanh' or 'relu'", str(caught.exception))

    def test_lstm_beside_numpy(self):
        lstm = nn.LSTM(3, 4)
        x = np.random.default_rng(7).normal(size=(6, 2, 3)).astype(np.float32)
        outputs, (h, c) = lstm(wf.tensor(x))

        def sigmoid(v):
            return 1 / (1 + np.exp(-v))

        hh, cc, w, u, b = np.zeros((2, 4)), np.zeros((2, 4)), lstm.w.numpy(), lstm.u.numpy(), lstm.b.numpy()
        for t in range(6):
            i, f, g, o = np.split(x[t] @ w + b + hh @ u, 4, -1)
            cc = sigmoid(f) * cc + sigmoid(i) * np.tanh(g)
            hh = sigmoid(o) * np.tanh(cc)
        np.testing.assert_allclose(h.numpy(), hh, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(outputs[-1].numpy(), hh, rtol=1e-4, atol=1e-5)
        self.assertEqual((3, 16), wf.gradients(outputs.sum(), lstm.w).shape)

    def test_module_as_argument_updates_buffers_and_resumes_with_the_same_bits(self):
        def train(resume, folder):
            wf.seed(4)
            net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm(8), nn.relu, nn.Dropout(0.2), nn.Linear(8, 1))
            x, y = wf.random.normal((16, 3)), wf.random.normal((16, 1))
            wf.sync()
            optimizer, grads_of, out = optim.Adam(net, 0.01), wf.value_and_grad(lambda n, a, b: nn.mse(n(a), b)), []
            for i in range(6):
                if i == 3 and resume:
                    path = os.path.join(folder, "state")
                    wf.save(
                        path,
                        {
                            "net": net,
                            "optimizer": optimizer,
                            "random": [v if v < 2**63 else v - 2**64 for v in wf.random.get_state()],
                        },
                    )
                    for p in net.parameters():
                        p.assign(p * 0)
                    wf.random.uniform((3,)).tolist()
                    state = wf.load(path)
                    net.load_state_dict(state["net"])
                    optimizer.load_state_dict(state["optimizer"])
                    wf.random.set_state([v % 2**64 for v in state["random"]])
                with wf.step():
                    loss, grads = grads_of(net, x, y)
                    optimizer.step(grads)
                    loss.keep()
                out.append(loss.item())
            self.assertNotEqual([0.0] * 8, net[1].mean.tolist())
            return out, {k: v.tobytes() for k, v in net.state_dict().items()}

        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(train(False, folder), train(True, folder))

    def test_state_that_does_not_fit_changes_nothing(self):
        net = nn.Linear(2, 2)
        before = net.w.tolist()
        for state, text in (
            ({"w": wf.zeros((2, 2))}, "missing"),
            ({"w": wf.zeros((3, 2)), "b": wf.zeros((2,))}, "shape"),
            ({"w": wf.zeros((2, 2)), "b": wf.zeros((2,)), "c": wf.zeros(())}, "unknown"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                net.load_state_dict(state)
        self.assertEqual(before, net.w.tolist())


if __name__ == "__main__":
    unittest.main()
