"""Random JAX functions that have derivatives, and random chains of transforms of them: made from a seed. For jax_transforms.py.

A function is straight-line code of floats, with calls, branches and loops in between. Values stay within a few units, functions are
smooth where they are evaluated but for chance, and the first result is one element, so that it has a gradient. stop_gradient is not
among them: the text of a function does not have it; nor are factorisations, for which JAX calls LAPACK
by name, and scatters that multiply, which have no gradient here.
"""
import random

SHAPES = ((), (3,), (4,), (2, 3), (3, 4), (3, 3), (2, 2, 3))
SMOOTH = ["jnp.sin({0})", "jnp.cos({0})", "jnp.tanh({0})", "-{0}", "jax.nn.sigmoid({0})", "jnp.exp(-jnp.square({0}))", "jnp.log1p(jnp.square({0}))",
          "jnp.sqrt(jnp.square({0}) + 0.5)", "{0} * 0.5", "1.0 / (1.5 + jnp.square({0}))", "jnp.arctan({0})", "jax.nn.softplus({0})", "jnp.clip({0}, -1.53, 1.27)",
          "jax.nn.gelu({0})", "jnp.where({0} > 0.1371, {0}, jnp.sin({0}))", "lax.rsqrt(jnp.square({0}) + 0.75)", "jnp.expm1({0} * 0.25)", "jnp.cbrt(jnp.square({0}) + 0.5)",
          "lax.erf({0})", "jnp.abs({0} + 0.0371)", "{0} ** 3 * 0.125", "jax.nn.relu({0} - 0.0713)", "jnp.arcsinh({0})", "jnp.power(jnp.square({0}) + 0.5, 0.7)"]
BINARY = ["({0} + {1}) * 0.5", "({0} - {1}) * 0.5", "{0} * jnp.sin({1}) * 0.5", "jnp.maximum({0}, {1} + 0.0173)", "jnp.minimum({0}, {1} + 0.0131)",
          "{0} / (2.0 + jnp.square({1}))", "jnp.tanh({0} - {1} * 0.5)", "jnp.arctan2({0}, jnp.square({1}) + 1.0)", "jnp.logaddexp({0}, {1}) * 0.5", "jnp.hypot({0} + 0.0211, {1} + 1.5) * 0.5"]
# Of what has a first axis, of the same shape; {n} is that axis.
ALONG = ["jnp.cumsum({0}, axis=0) / {n}", "jnp.flip({0}, 0)", "jnp.roll({0}, 1, axis=0)", "jnp.sort({0}, axis=0)", "jax.nn.softmax({0}, axis=0)", "jax.nn.log_softmax({0}, axis=-1) * 0.25",
         "({0} - jnp.mean({0}, axis=0, keepdims=True)) * 0.5", "lax.associative_scan(lambda a, b: (a + b) * 0.5, {0})", "{0}[jnp.array([{n} - 1] + list(range({n} - 1)))]",
         "{0}.at[0].set(jnp.sin({0}[-1]))", "{0}.at[jnp.array([0, {n} - 1, 0])].add(0.25)", "jnp.pad({0}, [(1, 0)] + [(0, 0)] * {r})[:-1]",
         "lax.dynamic_update_slice_in_dim({0}, jnp.cos({0}[1:]), 1, 0)", "jnp.concatenate([{0}[1:], {0}[:1] * 0.5])", "jnp.take_along_axis({0}, jnp.argsort({0}, axis=0), axis=0)",
         "lax.cummax({0}, axis=0)", "lax.reduce_window({0}, 0.0, lax.add, (2,) + (1,) * {r}, (1,) * ({r} + 1), 'SAME') * 0.5", "jnp.diff({0}, axis=0, prepend=0.0) * 0.5",
         "{0} / jnp.sqrt(jnp.var({0}) + 0.5)"]
REDUCE = ["jnp.mean({0}, axis={a})", "jnp.max({0}, axis={a})", "jnp.sum({0}, axis={a}) * 0.25", "jax.nn.logsumexp({0}, axis={a}) * 0.5", "jnp.prod(jnp.cos({0} * 0.5), axis={a})", "jnp.linalg.norm({0} + 0.5, axis={a}) * 0.5"]
SQUARE = ["{0}.T", "{0} @ {0} * 0.25", "jnp.tril({0}) @ jnp.sin({0})", "jnp.trace({0}) * 0.25 * jnp.eye({n}) + {0} * 0.5"]


class Function:
    """`source` defines `function`; params are (name, shape, dtype); `loops`: there is a loop, which text has no reverse mode of."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.x64 = self.chance(0.6)
        self.float = "float64" if self.x64 else "float32"
        self.loops = False
        self.count = 0
        self.lines, self.scope = [], []  # (name, shape)
        self.params = []
        for i in range(self.rng.randint(1, 3)):
            self.params.append((f"p{i}", self.rng.choice(SHAPES), self.float))
        if self.chance(0.25):
            self.params.insert(self.rng.randrange(len(self.params) + 1), ("k", (), "int32"))
        self.scope = [(name, shape) for name, shape, dtype in self.params if dtype != "int32"]
        allowed = self.chance(0.35)
        for _ in range(self.rng.randint(3, 8)):
            makers = [self.unary, self.unary, self.binary, self.binary, self.along, self.reduce, self.product, self.square, self.call, self.branch, self.convolution]
            self.rng.choice(makers + ([self.loop, self.loop] if allowed else []))()
        self.finish()

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, fits=lambda shape: True):
        found = [v for v in self.scope if fits(v[1])]
        return self.rng.choice(found[-4:] if self.chance(0.7) else found) if found else None

    def add(self, text, shape):
        self.count += 1
        self.lines.append(f"v{self.count} = {text}")
        self.scope.append((f"v{self.count}", tuple(shape)))

    def unary(self):
        x, shape = self.pick()
        self.add(self.rng.choice(SMOOTH).format(x), shape)

    def like(self, shape):
        """Something of the shape: that is there, or made of another."""
        found = self.pick(lambda s: s == shape)
        if found and self.chance(0.8):
            return found[0]
        x, have = self.pick()
        self.add(f"jnp.resize({x}, {shape!r})" if have != shape else f"jnp.sin({x})", shape)
        return self.scope[-1][0]

    def binary(self):
        x, shape = self.pick()
        self.add(self.rng.choice(BINARY).format(x, self.like(shape if self.chance(0.7) else ())), shape)

    def along(self):
        found = self.pick(lambda s: s and s[0] > 1)
        if found:
            x, shape = found
            self.add(self.rng.choice(ALONG).format(x, n=shape[0], r=len(shape) - 1), shape)

    def reduce(self):
        found = self.pick(bool)
        if found:
            x, shape = found
            axis = self.rng.randrange(len(shape))
            self.add(self.rng.choice(REDUCE).format(x, a=axis), shape[:axis] + shape[axis + 1:])

    def product(self):
        found = self.pick(lambda s: len(s) >= 2)
        if found:
            x, shape = found
            columns = self.rng.randint(1, 3)
            y = self.like((shape[-1], columns))
            self.add(f"jnp.matmul({x}, {y}) * 0.5", shape[:-1] + (columns,))

    def square(self):
        found = self.pick(lambda s: len(s) == 2 and s[0] == s[1])
        if found:
            x, shape = found
            self.add(self.rng.choice(SQUARE).format(x, n=shape[0]), shape)

    def convolution(self):
        if self.chance(0.5):
            return
        x, k = self.like((1, 2, 5)), self.like((2, 2, 3))
        padding = self.rng.choice(["'SAME'", "'VALID'", "[(2, 1)]"])
        size = {"'SAME'": 5, "'VALID'": 3, "[(2, 1)]": 6}[padding]
        self.add(f"lax.conv_general_dilated({x}, {k}, (1,), {padding}) * 0.5", (1, 2, size))

    def body(self, names, shape):
        """An expression of the shape of the variables of these names."""
        x = self.rng.choice(names)
        text = self.rng.choice(SMOOTH).format(x)
        return self.rng.choice(BINARY).format(f"({text})", self.rng.choice(names)) if self.chance(0.6) else text

    def call(self):
        x, shape = self.pick()
        y = self.like(shape)
        wrapper = self.rng.choice(["jax.jit", "jax.jit", "jax.checkpoint"])
        self.add(f"{wrapper}(lambda a, b: {self.body(['a', 'b'], shape)})({x}, {y})", shape)

    def branch(self):
        x, shape = self.pick()
        y = self.like(shape)
        first, second = self.body(["a", "b"], shape), self.body(["a", "b"], shape)
        chooser = "k" if any(name == "k" for name, _, _ in self.params) and self.chance(0.6) else f"(jnp.sum({x}) > 0.1234).astype(jnp.int32)"
        third = f", lambda a, b: {self.body(['a', 'b'], shape)}" if self.chance(0.4) else ""
        self.add(f"lax.switch({chooser}, [lambda a, b: {first}, lambda a, b: {second}{third}], {x}, {y})", shape)

    def loop(self):
        self.loops = True
        x, shape = self.pick()
        y = self.like(shape)
        body = self.body(["a", y], shape)
        kind = self.rng.randrange(3)
        if kind == 0:
            self.add(f"lax.fori_loop(0, {self.rng.randint(1, 4)}, lambda i, a: {body} + 0.01 * i, {x})", shape)
        elif kind == 1:
            self.add(f"lax.while_loop(lambda c: (c[0] < {self.rng.randint(2, 5)}) & (jnp.sum(c[1]) < 2.0371), lambda c: (c[0] + 1, (lambda a: {body} + 0.1)(c[1])), (0, {x}))[1]", shape)
        else:
            self.add(f"lax.scan(lambda a, i: ({body} + 0.05 * i, None), {x}, jnp.arange(3.0, dtype=jnp.{self.float}))[0]", shape)

    def finish(self):
        last = [name for name, _ in self.scope[-5:]]
        results = [f"({' + '.join(f'jnp.mean(jnp.sin({name}))' for name in last)}).astype(jnp.{self.float})"]
        if self.chance(0.4):
            results.append(self.rng.choice(self.scope)[0])
        if self.chance(0.15) and any(name == "k" for name, _, _ in self.params):
            results.append("k + 1")
        lines = "".join(f"    {line}\n" for line in self.lines)
        parameters = ", ".join(name for name, _, _ in self.params)
        self.source = f"def function({parameters}):\n{lines}    return ({', '.join(results)},)\n"


def chain_of(rng, inputs, results, loops):
    """Transforms one after the other as (name, arguments); inputs and results are (shape, dtype), and change on the way."""
    chain = []
    floats = lambda types: [i for i, (_, dtype) in enumerate(types) if dtype.startswith("f")]  # noqa: E731
    for _ in range(rng.choice((1, 2, 2, 3, 3, 4))):
        kinds = ["vmap", "vmap", "jvp", "checkpoint"]
        if not loops:
            kinds += ["vjp"] + (["grad"] * 4 if results[0] == ((), results[0][1]) and floats(results[:1]) else [])
        kind = rng.choice(kinds)
        if kind == "vmap" and (max(len(s) for s, _ in inputs + results) > 5 or sum(k == "vmap" for k, _ in chain) > 1):
            continue
        if kind == "checkpoint":
            chain.append((kind, {"keep": rng.randrange(2)}))
            continue
        if kind == "vmap":
            size = rng.randint(2, 3)
            axes = [rng.randrange(len(shape) + 1) if rng.random() < 0.75 else None for shape, _ in inputs]
            if all(axis is None for axis in axes):
                axes[0] = 0
            outs = [rng.randrange(len(shape) + 1) for shape, _ in results]
            chain.append((kind, {"size": size, "in_axes": axes, "out_axes": outs}))
            inputs = [(shape if a is None else (*shape[:a], size, *shape[a:]), dtype) for (shape, dtype), a in zip(inputs, axes)]
            results = [((*shape[:a], size, *shape[a:]), dtype) for (shape, dtype), a in zip(results, outs)]
            continue
        if not floats(inputs) or not floats(results):
            continue
        wrt = sorted(rng.sample(floats(inputs), rng.randint(1, len(floats(inputs)))))
        values = rng.random() < 0.4
        chain.append((kind, {"wrt": wrt, "values": values}))
        slopes = [inputs[i] for i in wrt]
        if kind == "vjp":
            inputs = inputs + [results[r] for r in floats(results)]
        if kind == "jvp":
            inputs, slopes = inputs + slopes, [results[r] for r in floats(results)]
        results = (results if values else []) + slopes
    return chain, inputs
