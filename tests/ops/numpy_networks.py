"""Part of numpy_test.py: sums by labels, recurrent layers, attention layers, bags, alignments, counts of equal elements, and what was once
refused, beside definitions in NumPy."""
import itertools

import numpy as np
import weft
from numpy_judge import CTX, INF, NAN, apply, expect, refused, rng, sigmoid


def labels():
    sizes = {"i": 2, "j": 3, "k": 4, "l": 5, "b": 2, "A": 3}
    plain = ("ij,jk->ik", "ij,jk", "bij,bjk->bik", "ij,ij->", "ij,ij", "i,j->ij", "i,j->ji", "ij->ji", "ij->", "ij->j", "ij,kj->ik", "ijk,jil->kl",
             "ij,jk,kl->il", "ij,jk,kl,li->", "ij,jk,kl,lb->bi", "ij,ij->ij", "ij,i->ij", "Aj,jk", "kA,Aj", "i,->i", "ij,jk,k->i", "b,b,b->b", " i j , j k -> k i ")
    for seed, equation in enumerate(plain):
        parts = equation.replace(" ", "").split("->")[0].split(",")
        xs = [rng(300 + seed).normal(size=[sizes[c] for c in part]) for part in parts]
        expect("einsum", xs, np.einsum(equation, *xs), tolerance=1e-12, floor=1, equation=equation)
    x, y, q = rng(330).normal(size=(2, 3, 4)), rng(331).normal(size=(5, 1, 4, 2)), rng(332).normal(size=(3, 3))
    for equation, xs in (("ii", [q]), ("ii->i", [q]), ("...ij->...ji", [x]), ("...j->...", [x]), ("i...->...", [x]), ("...", [x]), ("...ij,...jk", [x, x.swapaxes(1, 2)]),
                         ("...ij,...jk->...ik", [rng(333).normal(size=(2, 3, 4)), y[:, :, :, :]]), ("i...i->...", [np.stack([q, 2 * q], 1)]), ("ij,ij", [q[:, :1], q]), ("ij,jk->ik", [q[:1], q]),
                         ("iij->j", [np.stack([q] * 3)]), ("i,...i->...i", [q[0], x[:, :, :3]]), ("...,...", [q, q[0]]), ("ijk,ilm,njm,nlk,abc->", [rng(334 + n).normal(size=(2, 2, 2)) for n in range(4)] + [q[:2, :2, None]])):
        expect("einsum", xs, np.einsum(equation, *xs), tolerance=1e-12, floor=1, equation=equation)
    for d in ("i4", "u1", "c16", "f4"):
        a, b = (rng(340 + n).integers(0, 9, (3, 4)).astype(d) for n in range(2))
        expect("einsum", [a, b], np.einsum("ij,kj->ik", a, b), equation="ij,kj->ik")
    t = rng(342).random((3, 4)) < 0.4
    expect("einsum", [t, t], np.einsum("ij,kj->ik", t, t), equation="ij,kj->ik")
    expect("einsum", [t], t.any(0), equation="ij->j")
    expect("einsum", [np.zeros((0, 3)), np.ones((3, 2))], np.zeros((0, 2)), equation="ij,jk")
    expect("einsum", [np.zeros((2, 0)), np.zeros((0, 2))], np.zeros((2, 2)), equation="ij,jk")
    for equation, xs, text in (("ij,jk", [q], "names 2 operands; there are 1"), ("ij->k", [q], "no operand has 'k' of the result"), ("ij->ii", [q], "the result has 'i' twice"),
                               ("i", [q], "has 1 letters; operand 0 has shape [3, 3]"), ("ij,jk", [q, q[:2]], "'j' has sizes 3 and 2 (operand 1); sizes must be equal or 1"),
                               ("ij1", [q], "has '1' where a letter"), ("...i...", [q], "has '.' where a letter"), ("ii", [q[:2]], "a diagonal needs equal ones")):
        refused("einsum", xs, text, equation=equation)
    a, b = rng(343).normal(size=(2, 3, 4)), rng(344).normal(size=(4, 3, 5))
    for dims in (([1, 2], [1, 0]), ([-1], [0]), ([], []), ([1, -1], [-2, 0])):
        expect("tensordot", [a, b], np.tensordot(a, b, dims), tolerance=1e-13, floor=1, x_dims=dims[0], y_dims=dims[1])
    refused("tensordot", [a, b], "have sizes 2 and 4; they must be equal", x_dims=[0], y_dims=[0])
    refused("tensordot", [a, b], "they pair up one to one", x_dims=[0], y_dims=[])


def cell(kind, x, h, c, weights):
    w, u, *biases = weights
    b, v = biases if biases else (0, 0)
    if kind in ("tanh", "relu"):
        y = x @ w.T + b + h @ u.T + v
        return (np.tanh(y) if kind == "tanh" else np.maximum(y, 0)), c
    gates, inner = np.split(x @ w.T + b, len(w) // h.shape[1], 1), np.split(h @ u.T + v, len(w) // h.shape[1], 1)
    if kind == "gru":
        r, z = (sigmoid(gates[i] + inner[i]) for i in range(2))
        return (1 - z) * np.tanh(gates[2] + r * inner[2]) + z * h, c
    i, f, g, o = (gates[n] + inner[n] for n in range(4))
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def recurrent():
    for kind, gates in (("tanh", 1), ("relu", 1), ("gru", 3), ("lstm", 4)):
        op = kind if gates > 1 else "rnn"
        for seed, (layers, both, bias, steps) in enumerate(itertools.product((1, 2), (False, True), (False, True), (1, 4))):
            n, batch, hidden, features = 1 + both, 2, 3, 5
            draw = lambda *shape: rng(400 + seed).uniform(-1, 1, shape) + rng(17).uniform(-0.1, 0.1, shape)
            x, first, cells = draw(batch, steps, features), draw(layers * n, batch, hidden), draw(layers * n, batch, hidden) / 2
            weights = []
            for i in range(layers * n):
                weights += [draw(gates * hidden, features if i < n else n * hidden) / 2, draw(gates * hidden, hidden) / 2] + [draw(gates * hidden) / 3] * (2 * bias)
            per, y, hs, cs = 2 + 2 * bias, x, [], []
            for layer in range(layers):
                sides = []
                for side in range(n):
                    i = layer * n + side
                    h, c, found = first[i], cells[i], []
                    for step in (range(steps) if side == 0 else reversed(range(steps))):
                        h, c = cell(kind, y[:, step], h, c, weights[i * per:(i + 1) * per])
                        found.append(h)
                    sides.append(np.stack(found if side == 0 else found[::-1], 1))
                    hs.append(h), cs.append(c)
                y = np.concatenate(sides, 2)
            wanted, states = [y, np.stack(hs)], [first]
            if kind == "lstm":
                wanted, states = wanted + [np.stack(cs)], [first, cells]
            attrs = {"layers": layers, "bidirectional": both, "bias": bias, **({"activation": kind} if gates == 1 else {})}
            expect(op, [x, *states, *weights], wanted, tolerance=1e-12, **attrs)
            expect(op, [v.astype("f4") for v in (x, *states, *weights)], wanted, tolerance=2e-5, floor=1e-2, **attrs)
    x, w, u = np.ones((2, 3, 5)), np.ones((4, 5)), np.ones((4, 1))
    expect("lstm", [x, None, None, w, u], apply("lstm", [x, np.zeros((1, 2, 1)), np.zeros((1, 2, 1)), w, u], {"bias": False}), bias=False, tolerance=1e-15)
    refused("lstm", [x, np.zeros((1, 2, 1)), np.zeros((1, 2, 1)), w, u], "2 weights are given; 1 layers of 1 directions with 4 weights each have 4")
    refused("gru", [x, np.zeros((1, 2, 1)), w, u], "weights 0 must have shape [3, 5], not [4, 5]", bias=False)
    refused("rnn", [x, np.zeros((2, 2, 4)), w, np.ones((4, 4))], "h must have shape [1, 2, 4], not [2, 2, 4]", bias=False)
    refused("rnn", [x[0], np.zeros((1, 2, 4)), w, np.ones((4, 4))], "[batch, steps, features] is needed", bias=False)
    refused("rnn", [x, np.zeros((1, 2, 4)), w, np.ones((4, 4))], "layers is 0; it must be 1 to 1024", bias=False, layers=0)


def heads():
    def definition(q, k, v, wq, wk, wv, wo, bq, bk, bv, bo, mask, n, causal=False):
        split = lambda x: np.moveaxis(x.reshape(*x.shape[:2], n, -1), 2, 1)
        q, k, v = split(q @ wq + bq), split(k @ wk + bk), split(v @ wv + bv)
        scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
        if mask is not None:
            scores = np.where(mask, scores, -INF) if mask.dtype == bool else scores + mask
        if causal:
            scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -INF)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        y = np.moveaxis(e / e.sum(-1, keepdims=True) @ v, 1, 2)
        return y.reshape(*y.shape[:2], -1) @ wo + bo

    draw = lambda seed, *shape: rng(430 + seed).normal(size=shape)
    q, k, v = draw(0, 2, 4, 6), draw(1, 2, 5, 3), draw(2, 2, 5, 7)
    w = [draw(3, 6, 8), draw(4, 3, 8), draw(5, 7, 4), draw(6, 4, 6)]
    b = [draw(7, 8), draw(8, 8), draw(9, 4), draw(10, 6)]
    some = rng(441).random((4, 5)) < 0.7
    some[:, 0] = True
    for mask in (None, some, draw(11, 2, 1, 4, 5)):
        expect("multi_head_attention", [q, k, v, *w, *b, mask], definition(q, k, v, *w, *b, mask, 2), tolerance=1e-12, floor=1, heads=2)
    expect("multi_head_attention", [q, q, q, w[0], w[0], w[0], draw(12, 8, 3)], definition(q, q, q, w[0], w[0], w[0], draw(12, 8, 3), 0, 0, 0, 0, None, 4, True),
           tolerance=1e-12, floor=1, heads=4, causal=True)
    refused("multi_head_attention", [q, k, v, *w], "query_weight has shape [6, 8], whose width is no multiple of 3 heads", heads=3)
    refused("multi_head_attention", [q, k, v[:, :4], *w], "batches and numbers of keys must agree", heads=2)


def bags():
    table, ids = rng(450).normal(size=(6, 3)), np.array([[1, 4, 4, 2], [5, 0, 2, 2]], "i4")
    weights = rng(451).normal(size=(2, 4))
    rows = table[ids]
    expect("embedding_bag", [table, ids], rows.mean(1), tolerance=1e-14, floor=1)
    expect("embedding_bag", [table, ids], rows.sum(1), tolerance=1e-14, floor=1, mode="sum")
    expect("embedding_bag", [table, ids], rows.max(1), tolerance=0, mode="max")
    expect("embedding_bag", [table, ids, None, weights], (rows * weights[..., None]).sum(1), tolerance=1e-14, floor=1, mode="sum")
    kept = ids != 2
    expect("embedding_bag", [table, ids], (rows * kept[..., None]).sum(1) / kept.sum(1)[:, None], tolerance=1e-14, floor=1, padding=-4)
    expect("embedding_bag", [table, ids], np.where(kept[..., None], rows, -INF).max(1), tolerance=0, mode="max", padding=2)
    row, offsets = ids.ravel().astype("i8"), np.array([0, 3, 3, 7], "i4")
    parts = [table[row[a:b]] for a, b in zip(offsets, [*offsets[1:], 8])]
    for mode, f in (("sum", np.sum), ("mean", np.mean), ("max", np.max)):
        want = np.stack([f(p, 0) if len(p) else np.zeros(3) for p in parts])
        expect("embedding_bag", [table, row, offsets], want, tolerance=1e-14, floor=1, mode=mode)
        expect("embedding_bag", [table, row, offsets], want[:3], tolerance=1e-14, floor=1, mode=mode, include_last_offset=True)
    refused("embedding_bag", [table, row], "[bags, n] is needed without offsets")
    refused("embedding_bag", [table, ids, offsets], "[n] with offsets [bags]")
    refused("embedding_bag", [table, ids], "padding is 6; a table of 6 entries allows -6 to 5", padding=6)
    expect("embedding", [table, ids], rows, tolerance=0, padding=4)
    t = CTX.tensor(table)
    t.require_grad()
    y = CTX.apply("embedding", [t, CTX.tensor(ids)], {"padding": -2})[0]
    slope = CTX.grad(CTX.apply("sum", [y], {})[0], [t])[0].numpy()
    want = np.zeros((6, 3))
    np.add.at(want, ids[ids != 4], 1)
    expect("add", [slope, np.zeros((6, 3))], want, tolerance=0, note=" slope of embedding")


def alignments():
    """Every way to lay labels along the steps, added up one by one."""
    def likelihood(p, labels, blank):
        total = 0.0
        for path in itertools.product(range(p.shape[1]), repeat=len(p)):
            said = [c for i, c in enumerate(path) if i == 0 or path[i - 1] != c]
            if [c for c in said if c != blank] == list(labels):
                total += np.prod([row[c] for row, c in zip(p, path)])
        return total

    for blank, classes in ((0, 3), (2, 3)):
        letters = [c for c in range(classes) if c != blank]
        raw = rng(460 + blank).normal(size=(5, 4, classes))
        x = raw - np.log(np.exp(raw).sum(-1, keepdims=True))
        labels = np.array([[letters[0], letters[0], letters[1]], [letters[1], letters[0], letters[1]], [letters[0]] * 3, [letters[1]] * 3], "i4")
        steps, lengths = np.array([5, 4, 5, 1], "i8"), np.array([3, 2, 0, 2], "i4")
        with np.errstate(divide="ignore"):
            each = np.array([-np.log(likelihood(np.exp(x[:steps[i], i]), labels[i, :lengths[i]], blank)) for i in range(4)])
        assert np.isinf(each[3])  # two labels do not fit into one step
        finite = np.where(np.isinf(each), 0, each)
        expect("ctc_loss", [x, labels, steps, lengths], each, tolerance=1e-12, blank=blank, reduction="none")
        expect("ctc_loss", [x, labels, steps, lengths], finite.sum(), tolerance=1e-12, blank=blank, reduction="sum", zero_infinity=True)
        expect("ctc_loss", [x, labels, steps, lengths], (finite / np.maximum(lengths, 1)).mean(), tolerance=1e-12, blank=blank, zero_infinity=True)
        expect("ctc_loss", [x.astype("f4"), labels, steps, lengths], finite.sum(), tolerance=2e-5, blank=blank, reduction="sum", zero_infinity=True)
        t = CTX.tensor(x)
        t.require_grad()
        y = CTX.apply("ctc_loss", [t, *map(CTX.tensor, (labels, steps, lengths))], {"blank": blank, "reduction": "sum", "zero_infinity": True})[0]
        slope = CTX.grad(y, [t])[0].numpy()
        moved, h = np.zeros(x.shape), 1e-6
        for at in np.ndindex(*x.shape):
            up, down = x.copy(), x.copy()
            up[at] += h
            down[at] -= h
            f = lambda v, i=at[1]: -np.log(likelihood(np.exp(v[:steps[i], i]), labels[i, :lengths[i]], blank))
            moved[at] = (f(up) - f(down)) / (2 * h) if at[1] < 3 and at[0] < steps[at[1]] else 0
        expect("add", [slope, np.zeros(x.shape)], moved, tolerance=1e-6, floor=1, note=" slope of ctc_loss")
    refused("ctc_loss", [x, labels, steps, lengths], "blank is 3; there are 3 classes", blank=3)
    refused("ctc_loss", [x, labels[:2], steps, lengths], "labels must have shape [4, most labels]")


def counted():
    for d in ("i4", "f8", "i1"):
        x = rng(470).integers(-3, 4, (5, 9)).astype(d)
        values = np.stack([np.unique(r)[np.argmax(np.unique(r, return_counts=True)[1])] for r in x])
        places = np.array([np.flatnonzero(r == v)[-1] for r, v in zip(x, values)], "i4")
        expect("most_frequent", [x], [values, places], tolerance=0)
        expect("most_frequent", [x.T], [values[None], places[None]], tolerance=0, axis=0, keepdims=True)
        runs = [(k, len(list(g))) for k, g in itertools.groupby(x.ravel())]
        want, counts = (np.array([r[i] for r in runs], t) for i, t in ((0, d), (1, "i4")))
        inverse = np.repeat(np.arange(len(runs)), counts).reshape(x.shape).astype("i4")
        expect("unique_consecutive_static", [x], [np.append(want, [7, 7]).astype(d), np.int32(len(runs)), inverse, np.append(counts, [0, 0]).astype("i4")], tolerance=0, size=len(runs) + 2, fill=7.0)
        expect("unique_consecutive_static", [x], [want[:4], np.int32(len(runs)), inverse, counts[:4]], tolerance=0, size=4)
    expect("most_frequent", [np.float64(3)], [np.float64(3), np.int32(0)])
    refused("most_frequent", [np.zeros((2, 0))], "axis 1 has size 0")
    x, edges, w = rng(471).normal(size=(4, 30)), np.array([-2, -0.5, 0, 0.25, 2]), rng(472).random((4, 30))
    x[0, :4] = 2, -2, NAN, 0.25
    clean = x[~np.isnan(x)]
    expect("histogram", [x, edges], np.histogram(clean, edges)[0].astype("f8"), tolerance=0)
    expect("histogram", [x, edges, w], np.histogram(clean, edges, weights=w[~np.isnan(x)])[0], tolerance=1e-13)
    expect("histogram", [x, edges], np.histogram(clean, edges, density=True)[0], tolerance=1e-14, density=True)
    refused("histogram", [x, edges[:1]], "[bins + 1] with at least one bin is needed")
    for op, attrs, x, slope in (("most_frequent", {}, [3.0, 1, 2, 1, 3, 0], [0, 0, 0, 1, 0, 0]), ("unique_consecutive_static", {"size": 4}, [1.0, 1, 2, 1, 1, 1], [1, 0, 1, 1, 0, 0])):
        t = CTX.tensor(np.array(x))
        t.require_grad()
        y = CTX.apply("sum", CTX.apply(op, [t], attrs)[:1], {})[0]
        expect("add", [CTX.grad(y, [t])[0].numpy(), np.zeros(6)], np.array(slope, "f8"), tolerance=0, note=f" slope of {op}")
    v, g = rng(473).normal(size=(3, 4, 2)), rng(474).normal(size=(3, 1, 1))
    expect("weight_norm", [v, g], g * v / np.sqrt((v * v).sum((1, 2), keepdims=True)), tolerance=1e-13)
    expect("weight_norm", [v, g[:1].repeat(4, 1)], g[0, 0] * v / np.sqrt((v * v).sum((0, 2), keepdims=True)), tolerance=1e-13, axis=-2)
    refused("weight_norm", [v, g[:2]], "g must have shape [3, 1, 1], not [2, 1, 1]")


def dropped():
    x = rng(480).normal(size=(40, 50, 6)) + 3
    CTX.seed(3)
    y = apply("dropout", [x], {"rate": 0.25, "shared": [1]})[0]
    kept = y[:, 0] != 0
    expect("add", [y, np.zeros(x.shape)], np.where(kept[:, None], x / 0.75, 0), tolerance=1e-14, note=" whole features")
    if not 0.6 < kept.mean() < 0.9:
        expect("neg", [kept.mean()], 0.75, note=" share that stays")
    unit = rng(481).normal(size=200000)
    y = apply("dropout", [unit], {"rate": 0.3, "alpha": True})[0]
    low = -1.7580993408473766
    a = 1 / np.sqrt(0.7 * (1 + 0.3 * low * low))
    gone = np.abs(y - (a * low - a * 0.3 * low)) < 1e-9
    expect("add", [y, np.zeros(len(y))], np.where(gone, a * low - a * 0.3 * low, a * unit - a * 0.3 * low), tolerance=1e-12, note=" alpha")
    if not (abs(y.mean()) < 0.02 and abs(y.std() - 1) < 0.02 and abs(gone.mean() - 0.3) < 0.01):
        expect("neg", [y.mean()], 0.0, note=" mean 0 and variance 1")


def once_refused():
    t = rng(490).random((3, 5)) < 0.6
    expect("sum", [t], t.sum(1), dims=[1])
    expect("sum", [t], t.sum())
    expect("prod", [t], t.prod(0), dims=[0])
    for reverse in (False, True):
        turn = (lambda v: v[:, ::-1]) if reverse else (lambda v: v)
        expect("cumsum", [t], turn(np.cumsum(turn(t), 1)), axis=1, reverse=reverse)
        expect("cumprod", [t], turn(np.cumprod(turn(t), 1)), axis=1, reverse=reverse)
    long_ = rng(491).random((2, 300)) < 0.5
    expect("cumsum", [long_], np.cumsum(long_, 1))
    expect("matmul", [t, t.T], t @ t.T)
    expect("relu", [np.array([0, 7, 2**64 - 1], "u8")], np.array([0, 7, 2**64 - 1], "u8"))
    expect("relu", [np.array([0, 7, 255], "u1")], np.array([0, 7, 255], "u1"))
    expect("clip", [np.array([-3.0, 0, 3])], np.clip([-3.0, 0, 3], 1, -1), low=1.0, high=-1.0)
    expect("clip", [np.array([-3, 0, 3])], np.clip([-3, 0, 3], 2, 1), low=2.0, high=1.0)
    for op in ("argmax", "argmin"):
        expect(op, [np.float64(3)], np.int32(0))
    expect("softmax", [np.float64(3)], 1.0)
    x = rng(492).normal(size=(3, 4))
    expect("var", [x], ((x - x.mean(1, keepdims=True)) ** 2).sum(1) / 6, tolerance=1e-13, dims=[1], correction=-2)
    expect("std", [x], np.full(3, INF), dims=[1], correction=5)
    expect("layer_norm", [x, None, None], (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) - 0.01), tolerance=1e-12, epsilon=-0.01)
    expect("rms_norm", [x], x / np.sqrt((x * x).mean(1, keepdims=True) - 100), epsilon=-100.0)
    rows = {"update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1}
    expect("scatter", [np.zeros((0, 3)), np.array([0, 1]), np.ones((2, 3))], np.zeros((0, 3)), reducer="sum", **rows)
    expect("index_add", [np.zeros((0, 3)), np.array([], "i4"), np.zeros((0, 3))], np.zeros((0, 3)))
    images = rng(493).integers(-100, 100, (1, 5, 6, 2)).astype("i2")
    expect("max_pool", [images], images[:, :4].reshape(1, 2, 2, 3, 2, 2).max((2, 4)), window=[2, 2])
    z = x + 1j * rng(494).normal(size=(3, 4))
    parts = lambda f: f(z.real) + f(z.imag)
    for op, want in {"log2": np.log2(z), "exp2": np.exp2(z), "is_finite": np.isfinite(z), "is_nan": np.isnan(z)}.items():
        expect(op, [z], want, tolerance=1e-13)
    odd = np.array([complex(NAN, 0), complex(0, NAN), complex(INF, 1), complex(1, -INF), 1j])
    expect("is_nan", [odd], np.isnan(odd))
    expect("is_finite", [odd], np.isfinite(odd))
    expect("logsumexp", [z], np.log(np.exp(z).sum(1)), tolerance=1e-13, dims=[1])
    expect("logsumexp", [z + 1000], np.log(np.exp(z).sum()) + 1000, tolerance=1e-13)
    expect("var", [z], parts(lambda v: v.var(0, ddof=1)), tolerance=1e-13, dims=[0], correction=1)
    expect("std", [z], np.sqrt(parts(np.var)), tolerance=1e-13)
    expect("var_mean", [z], [parts(lambda v: v.var(1)), z.mean(1)], tolerance=1e-13, dims=[1])
    expect("rms_norm", [z, z[0]], z / np.sqrt((z * z).mean(1, keepdims=True) + 1e-6) * z[0], tolerance=1e-12)
    expect("linspace", [], np.linspace(1, 3 - 2j, 5), tolerance=1e-15, start=1.0, stop=3.0, count=5, stop_imaginary=-2.0, dtype="c16")
    expect("linspace", [], np.linspace(0, 3j, 4, False).astype("c8"), start=0.0, stop=0.0, count=4, endpoint=False, stop_imaginary=3.0, dtype="c8")
    expect("full", [], np.full((2, 2), 1 - 2j, "c8"), shape=[2, 2], value=1.0, imaginary=-2.0, dtype="c8")
    refused("full", [], "imaginary is 1 and dtype is f32", shape=[1], value=0.0, imaginary=1.0, dtype="f4")


def slopes():
    """Products and extremes under windows and at places, beside small changes."""
    def check(op, inputs, attrs, which=0, zeros=()):
        arrays = [np.array(x) for x in inputs]
        for at in zeros:
            arrays[which][at] = 0
        weights = rng(499).normal(size=apply(op, arrays, attrs)[0].shape)
        t = [CTX.tensor(x) for x in arrays]
        t[which].require_grad()
        y = CTX.apply("sum", [CTX.apply("mul", [CTX.apply(op, t, attrs)[0], CTX.tensor(weights)], {})[0]], {})[0]
        found = CTX.grad(y, [t[which]])[0].numpy()
        want, h = np.zeros(arrays[which].shape), 1e-6
        for at in np.ndindex(*want.shape):
            ends = []
            for by in (h, -h):
                moved = [x.copy() for x in arrays]
                moved[which][at] += by
                ends.append((apply(op, moved, attrs)[0] * weights).sum())
            want[at] = (ends[0] - ends[1]) / (2 * h)
        expect("add", [found, np.zeros(want.shape)], want, tolerance=1e-6, floor=1, note=f" slope of {op} {attrs}")

    x = rng(495).normal(size=(6, 5))
    for reducer in ("prod", "max", "min"):
        check("reduce_window", [x], {"window_dimensions": [3, 2], "reducer": reducer, "window_strides": [1, 2], "window_dilations": [2, 1], "padding": [1, 1, 0, 1]})
    check("reduce_window", [x], {"window_dimensions": [2, 3], "reducer": "prod"}, zeros=[(1, 1), (1, 2), (4, 4)])
    check("reduce_window", [x], {"window_dimensions": [2, 2], "reducer": "prod", "base_dilations": [2, 1], "padding": [0, 1, 1, 0]}, zeros=[(0, 0)])
    rows = {"update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1, "reducer": "prod"}
    places, updates = np.array([1, 4, 1, 9, 0, 4], "i4"), rng(496).normal(size=(6, 5))
    check("scatter", [x, places, updates], rows)
    check("scatter", [x, places, updates], rows, which=2)
    check("scatter", [x, places, updates], rows, zeros=[(1, 0), (4, 2)])
    check("scatter", [x, places, updates], rows, which=2, zeros=[(0, 0), (0, 1), (2, 1), (1, 3)])
    # The first of equal elements has the slope; NaN is the largest.
    t = CTX.tensor(np.array([1.0, 3, 0, 3, NAN, 2]))
    t.require_grad()
    y = CTX.apply("sum", CTX.apply("reduce_window", [t], {"window_dimensions": [2], "reducer": "max", "window_dilations": [2]}), {})[0]
    expect("add", [CTX.grad(y, [t])[0].numpy(), np.zeros(6)], np.array([1.0, 1, 0, 1, 1, 0]), tolerance=0, note=" slope of equal elements")
    # At the margin itself the slope is 0, as PyTorch's losses have it.
    one, two = np.ones(1), np.full(1, 2.0)
    for op, inputs, wanted in (("hinge_embedding", [one, -one], 0), ("margin_ranking", [two, one, one], 0), ("hinge_embedding", [one / 2, -one], -1)):
        tensors = [CTX.tensor(v) for v in inputs]
        tensors[0].require_grad()
        loss = CTX.apply(op, tensors, {"margin": 1.0})[0]
        expect("add", [CTX.grad(loss, tensors[:1])[0].numpy(), np.zeros(1)], np.full(1, float(wanted)), tolerance=0, note=f" slope of {op} at its margin")



def running_statistics():
    x, scale, offset = rng(70).normal(size=(6, 3, 4)) * 2 + 1, rng(71).normal(size=4), rng(72).normal(size=4)
    mean, variance = rng(73).normal(size=4), rng(74).uniform(0.5, 2, 4)
    even = (x - x.mean((0, 1))) / np.sqrt(x.var((0, 1)) + 1e-5)
    want = [even * scale + offset, 0.7 * mean + 0.3 * x.mean((0, 1)), 0.7 * variance + 0.3 * x.var((0, 1), ddof=1)]
    expect("batch_norm_running", [x, scale, offset, mean, variance], want, tolerance=1e-12, floor=1, momentum=0.3)
    expect("batch_norm_running", [np.moveaxis(x, -1, 1), scale, offset, mean, variance], [np.moveaxis(want[0], -1, 1), *want[1:]], tolerance=1e-12, floor=1, momentum=0.3, axis=1)
    one = x[:1, :1]
    expect("batch_norm_running", [one, scale, offset, mean, variance], [offset + 0 * one, 0.9 * mean + 0.1 * one[0, 0], 0.9 * variance], tolerance=1e-12, floor=1)
    refused("batch_norm_running", [x, scale, offset, mean[:3], variance], "running_mean must have shape [4], not [3]")
    refused("batch_norm_running", [x, scale, offset, mean, variance], "momentum is inf; it must be finite", momentum=INF)


PARTS = (running_statistics, labels, recurrent, heads, bags, alignments, counted, dropped, once_refused, slopes)
