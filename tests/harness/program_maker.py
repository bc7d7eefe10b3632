"""Random JAX programs of nested control flow: made from a seed, printed as Python, made smaller. For jax_programs.py.

A program is a block: parameters, statements, results. A statement makes variables, each of a known type, from variables in sight
and from blocks of its own, which see what is around them. Values stay small and every loop is short, whatever the data: floats are
within [-4, 4] and what makes one of others magnifies errors hardly or not at all; what decides (comparisons, roundings) looks at
floats next to numbers that no arithmetic gives by chance.
"""
import copy
import dataclasses
import random

FLOATS = ("float32", "float64")
SHAPES = ((), (), (), (3,), (4,), (5,), (2, 3), (3, 4), (3, 3), (2, 1, 3), (1,), (17,))
MOST_TRIPS = 5
DEEPEST = 3


@dataclasses.dataclass(frozen=True)
class Var:
    name: str
    dtype: str
    shape: tuple

    @property
    def is_float(self):
        return self.dtype in FLOATS

    @property
    def is_integer(self):
        return not self.is_float and self.dtype != "bool"

    @property
    def type(self):
        return self.dtype, self.shape


@dataclasses.dataclass
class Block:
    params: list
    body: list = dataclasses.field(default_factory=list)
    results: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Statement:
    """`kind` is a key of PRINTERS; `template` of an expression has {0}, {1}, … for the operands."""
    kind: str
    outs: list
    operands: list = dataclasses.field(default_factory=list)
    template: str = ""
    blocks: list = dataclasses.field(default_factory=list)
    info: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Program:
    block: Block
    x64: bool


def dtypes_of(x64):
    return ["float32"] * 5 + ["int32"] * 3 + ["bool", "uint32", "int8"] + (["float64"] * 5 + ["int64"] * 3 if x64 else [])


def tuple_of(names):
    return "(" + "".join(f"{n}, " for n in names).strip() + ")"


def names_of(variables):
    return tuple_of(v.name for v in variables)


# --- What a program is made of -------------------------------------------------------------------------------------------

UNARY = {
    "float": ["jnp.sin({0})", "jnp.cos({0})", "jnp.tanh({0})", "-{0}", "jnp.abs({0})", "jax.nn.sigmoid({0})", "jnp.exp(-jnp.abs({0}))",
              "jnp.log1p(jnp.abs({0}))", "jnp.sqrt(jnp.abs({0}) + 0.5)", "{0} * 0.5", "1.0 / (1.0 + jnp.abs({0}))", "jnp.clip({0}, -1.5, 1.25)",
              "jax.nn.relu({0})", "jnp.arctan({0})", "lax.stop_gradient({0})", "jnp.square({0}) * 0.125", "lax.rsqrt(jnp.abs({0}) + 0.75)"],
    "integer": ["-{0}", "{0} + 1", "{0} * 3", "~{0}", "{0} ^ 5", "jnp.abs({0})", "{0} >> 1", "jnp.sign({0})", "{0} % 7", "{0} // 3", "jnp.square({0})",
                "lax.population_count({0})", "jnp.clip({0}, 2, 9)"],
    "bool": ["~{0}", "jnp.logical_not({0})", "{0} ^ True"],
}
BINARY = {
    "float": ["({0} + {1}) * 0.5", "({0} - {1}) * 0.5", "{0} * jnp.sin({1}) * 0.25", "jnp.maximum({0}, {1})", "jnp.minimum({0}, {1})",
              "{0} / (2.0 + jnp.abs({1}))", "jnp.tanh({0} - {1} * 0.5)", "jnp.hypot({0}, {1} + 0.0371) * 0.5"],
    "integer": ["{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} & {1}", "{0} | {1}", "{0} ^ {1}", "jnp.maximum({0}, {1})", "jnp.minimum({0}, {1})",
                "{0} // (jnp.abs({1}) % 5 + 1)", "{0} % (jnp.abs({1}) % 5 + 2)"],
    "bool": ["{0} & {1}", "{0} | {1}", "{0} ^ {1}", "{0} == {1}"],
}
# Of a vector, along its first axis, of the same type.
ALONG = {
    "float": ["jnp.cumsum({0}, axis=0) / {n}", "jnp.flip({0}, 0)", "jnp.roll({0}, 1, axis=0)", "jnp.sort({0}, axis=0)",
              "lax.associative_scan(jnp.maximum, {0})", "lax.associative_scan(lambda a, b: (a + b) * 0.5, {0})", "lax.cummax({0})",
              "({0} - jnp.mean({0}, axis=0, keepdims=True)) * 0.5", "jax.nn.softmax({0}, axis=0)"],
    "integer": ["jnp.cumsum({0}, axis=0, dtype=jnp.{t})", "jnp.flip({0}, 0)", "jnp.roll({0}, 1, axis=0)", "jnp.sort({0}, axis=0)",
                "lax.associative_scan(jnp.add, {0})", "lax.cummin({0})", "jnp.argsort({0}, axis=0).astype(jnp.{t})",
                "{0}[::-1] + jnp.arange({n}, dtype=jnp.{t}).reshape((-1,) + (1,) * {r})"],
    "bool": ["jnp.flip({0}, 0)", "jnp.roll({0}, 1, axis=0)"],
}
REDUCE = {
    "float": ["jnp.mean({0}, axis={a})", "jnp.max({0}, axis={a})", "jnp.min({0}, axis={a})"],
    "integer": ["jnp.sum({0}, axis={a}, dtype=jnp.{t})", "jnp.max({0}, axis={a})", "jnp.argmax({0}, axis={a}).astype(jnp.{t})", "jnp.prod({0}, axis={a}, dtype=jnp.{t})"],
    "bool": ["jnp.any({0}, axis={a})", "jnp.all({0}, axis={a})"],
}


def family(dtype):
    return "float" if dtype in FLOATS else "bool" if dtype == "bool" else "integer"


class Maker:
    def __init__(self, seed, x64):
        self.rng = random.Random(seed)
        self.dtypes = dtypes_of(x64)
        if x64 and self.chance(0.6):
            self.dtypes = [d for d in self.dtypes if d != "float32"]
        self.integers = ["int32", "int64"] if x64 else ["int32"]
        self.count = 0

    def fresh(self, dtype, shape):
        self.count += 1
        return Var(f"v{self.count}", dtype, tuple(shape))

    def chance(self, p):
        return self.rng.random() < p

    def type(self):
        return self.rng.choice(self.dtypes), self.rng.choice(SHAPES)

    def pick(self, scope, fits, empty=False):
        """A variable in sight that fits, young ones more often, or None; one without elements only if asked for."""
        found = [v for v in scope if (empty or 0 not in v.shape) and fits(v)]
        if not found:
            return None
        return self.rng.choice(found[-5:] if self.chance(0.6) else found)

    # One of the makers below appends statements that make a variable of the type, and returns it.
    def value(self, block, scope, dtype, shape):
        """A variable of the type: one that is there, made of another, or a constant."""
        if self.chance(0.85):
            found = self.pick(scope, lambda v: v.type == (dtype, shape), empty=True)
            if found:
                return found
        if self.chance(0.8):
            found = self.pick(scope, lambda v: v.dtype == dtype) or self.pick(scope, lambda v: True)
            if found:
                return self.shaped(block, scope, self.converted(block, scope, found, dtype), shape)
        return self.constant(block, scope, dtype, shape)

    def expression(self, block, scope, dtype, shape, template, *operands, **info):
        out = self.fresh(dtype, shape)
        n = shape[0] if shape else 1
        text = template.replace("{n}", str(n)).replace("{t}", dtype).replace("{r}", str(max(len(shape) - 1, 0)))
        block.body.append(Statement("expression", [out], list(operands), text, info=info))
        scope.append(out)
        return out

    def constant(self, block, scope, dtype, shape):
        if self.chance(0.3) and len(shape) == 1 and dtype != "bool":
            scale = " * 0.173" if dtype in FLOATS else ""
            return self.expression(block, scope, dtype, shape, "jnp.arange({n}, dtype=jnp.{t})" + scale)
        value = {"float": round(self.rng.uniform(-2, 2), 3), "integer": self.rng.randrange(0, 9), "bool": self.chance(0.5)}[family(dtype)]
        return self.expression(block, scope, dtype, shape, f"jnp.full({shape!r}, {value!r}, jnp.{dtype})")

    def converted(self, block, scope, x, dtype):
        if x.dtype == dtype:
            return x
        to = family(dtype)
        if x.is_float:
            template = {"float": "{0}.astype(jnp.{t})", "integer": "jnp.floor(jnp.abs({0}) * 3.7 + 0.1234567).astype(jnp.{t})",
                        "bool": "{0} > 0.1234567"}[to]
        elif x.dtype == "bool":
            template = "{0}.astype(jnp.{t})"
        else:
            template = {"float": "({0} % 8).astype(jnp.{t}) * 0.375 - 1.0", "integer": "{0}.astype(jnp.{t})", "bool": "({0} % 2) == 0"}[to]
        return self.expression(block, scope, dtype, x.shape, template, x)

    def shaped(self, block, scope, x, shape):
        if x.shape == shape:
            return x
        have = 1
        for d in x.shape:
            have *= d
        if not x.shape:
            template = f"jnp.broadcast_to({{0}}, {shape!r})"
        elif not shape:
            template = self.rng.choice(["{0}.reshape(-1)[0]", f"{{0}}.reshape(-1)[{have - 1}]"] + [r.replace("{a}", "None") for r in REDUCE[family(x.dtype)]])
        else:
            template = f"jnp.resize({{0}}, {shape!r})"
        return self.expression(block, scope, x.dtype, shape, template, x)

    # --- statements without blocks
    def elementwise(self, block, scope):
        dtype, shape = self.type()
        x = self.pick(scope, lambda v: True) if self.chance(0.8) else None
        x = x or self.value(block, scope, dtype, shape)
        kind = family(x.dtype)
        if self.chance(0.4):
            return self.expression(block, scope, x.dtype, x.shape, self.rng.choice(UNARY[kind]), x)
        y = self.value(block, scope, x.dtype, x.shape if self.chance(0.7) else ())
        if self.chance(0.15):
            pred = self.value(block, scope, "bool", x.shape if self.chance(0.5) else ())
            return self.expression(block, scope, x.dtype, x.shape, "jnp.where({0}, {1}, {2})", pred, x, y)
        return self.expression(block, scope, x.dtype, x.shape, self.rng.choice(BINARY[kind]), x, y)

    def comparison(self, block, scope):
        x = self.pick(scope, lambda v: v.dtype != "bool") or self.value(block, scope, "int32", ())
        if x.is_float:
            return self.expression(block, scope, "bool", x.shape, f"{{0}} {self.rng.choice('<>')} {self.rng.uniform(-1, 1):.7f}", x)
        y = self.value(block, scope, x.dtype, x.shape if self.chance(0.5) else ())
        return self.expression(block, scope, "bool", x.shape, f"{{0}} {self.rng.choice(['<', '>=', '==', '!='])} {{1}}", x, y)

    def along(self, block, scope):
        x = self.pick(scope, lambda v: v.shape) or self.value(block, scope, self.rng.choice(self.dtypes), (4,))
        if self.chance(0.5):
            return self.expression(block, scope, x.dtype, x.shape, self.rng.choice(ALONG[family(x.dtype)]), x)
        axis = self.rng.randrange(len(x.shape))
        template = self.rng.choice(REDUCE[family(x.dtype)]).replace("{a}", str(axis))
        return self.expression(block, scope, x.dtype, x.shape[:axis] + x.shape[axis + 1:], template, x)

    def indexed(self, block, scope):
        """Gathers, scatters, dynamic slices and updates of a vector's rows."""
        x = self.pick(scope, lambda v: v.shape) or self.value(block, scope, self.rng.choice(self.dtypes), (5,))
        n, row = x.shape[0], x.shape[1:]
        i = self.value(block, scope, self.rng.choice(self.integers), ())
        way = self.rng.randrange(7)
        if way == 0:
            return self.expression(block, scope, x.dtype, row, f"{{0}}[{{1}} % {n}]", x, i)
        if way == 1:
            return self.expression(block, scope, x.dtype, row, "lax.dynamic_index_in_dim({0}, {1}, keepdims=False)", x, i)
        if way == 2:
            at = self.value(block, scope, "int32", (3,))
            return self.expression(block, scope, x.dtype, (3,) + row, f"{{0}}[{{1}} % {n}]", x, at)
        if way == 3 or x.dtype == "bool":
            new = self.value(block, scope, x.dtype, row)
            return self.expression(block, scope, x.dtype, x.shape, "lax.dynamic_update_index_in_dim({0}, {2}, {1}, 0)", x, i, new)
        if way == 4:
            new = self.value(block, scope, x.dtype, row)
            return self.expression(block, scope, x.dtype, x.shape, f"{{0}}.at[{{1}} % {n}].set({{2}})", x, i, new)
        if way == 5:
            at, new = self.value(block, scope, "int32", (3,)), self.value(block, scope, x.dtype, (3,) + row)
            template = f"{{0}}.at[{{1}} % {n}].{self.rng.choice(['add', 'max', 'min'])}({{2}})"
            if x.is_float:
                template = f"jnp.clip({{0}}.at[{{1}} % {n}].add({{2}}), -4, 4)"
            return self.expression(block, scope, x.dtype, x.shape, template, x, at, new)
        size = self.rng.randint(1, n)
        return self.expression(block, scope, x.dtype, (size,) + row, f"lax.dynamic_slice_in_dim({{0}}, {{1}}, {size})", x, i)

    def rearranged(self, block, scope):
        x = self.pick(scope, lambda v: v.shape) or self.value(block, scope, self.rng.choice(self.dtypes), (2, 3))
        way = self.rng.randrange(4)
        if way == 0:
            return self.expression(block, scope, x.dtype, x.shape[::-1], "{0}.T", x)
        if way == 1:
            y = self.value(block, scope, x.dtype, x.shape)
            return self.expression(block, scope, x.dtype, (2 * x.shape[0],) + x.shape[1:], "jnp.concatenate([{0}, {1}])", x, y) if x.shape[0] < 20 else x
        if way == 2 and x.is_float and len(x.shape) == 2:
            y = self.value(block, scope, x.dtype, (x.shape[1], 3))
            return self.expression(block, scope, x.dtype, (x.shape[0], 3), f"({{0}} @ {{1}}) * {0.25 / x.shape[1]!r}", x, y)
        return self.expression(block, scope, x.dtype, (x.shape[0],) + x.shape[1:], "jnp.pad({0}, [(1, 0)] + [(0, 0)] * {r})[:-1]", x)

    # --- statements with blocks
    def block(self, scope, params, results, depth, smooth, size=None):
        """A block of random statements with results of the wanted types."""
        block = Block(list(params))
        inner = list(scope) + list(params)
        for _ in range(self.rng.randint(1, 4) if size is None else size):
            self.statement(block, inner, depth + 1, smooth)
        for dtype, shape in results:
            found = self.value(block, inner, dtype, shape)
            if found in scope and self.chance(0.7) and found.dtype != "bool":
                found = self.expression(block, inner, dtype, shape, self.rng.choice(UNARY[family(dtype)]), found)
            block.results.append(found)
        return block

    def carries(self, block, scope, floats=False):
        """(first values, parameters, types) of what a loop carries."""
        types = [self.type() for _ in range(self.rng.randint(1, 3))]
        if floats:
            types = [(self.rng.choice([d for d in self.dtypes if d in FLOATS]), s) for _, s in types]
        first = [self.value(block, scope, *t) for t in types]
        return first, [self.fresh(*t) for t in types], types

    def scan(self, block, scope, depth, smooth):
        first, params, types = self.carries(block, scope)
        length = self.rng.choice([0, 1, 2, 3, 3, 4, MOST_TRIPS])
        scanned = [self.value(block, scope, d, (length,) + s) for d, s in [self.type() for _ in range(self.rng.choice([0, 1, 1, 2]))]]
        slices = [self.fresh(x.dtype, x.shape[1:]) for x in scanned]
        given = [self.type() for _ in range(self.rng.choice([0, 1, 1, 2]))]
        body = self.block(scope, params + slices, types + given, depth, smooth)
        outs = [self.fresh(*t) for t in types] + [self.fresh(d, (length,) + s) for d, s in given]
        info = {"carried": len(types), "length": length, "reverse": self.chance(0.3), "unroll": self.rng.choice([1, 1, 1, 2])}
        return Statement("scan", outs, first + scanned, blocks=[body], info=info)

    def fori(self, block, scope, depth, smooth):
        first, params, types = self.carries(block, scope)
        low, high = self.rng.choice([(0, 3), (0, 1), (2, MOST_TRIPS), (0, MOST_TRIPS), (3, 3), (4, 2), (-2, 1)])
        operands = list(first)
        traced = not smooth and self.chance(0.5)
        if traced:
            operands.append(self.value(block, scope, "int32", ()))
        index = self.fresh("int32", ())
        body = self.block(scope, [index] + params, types, depth, smooth)
        return Statement("fori", [self.fresh(*t) for t in types], operands, blocks=[body],
                         info={"low": low, "high": high, "traced": traced})

    def while_(self, block, scope, depth, smooth):
        """Counts on its own and may stop before, as the carried values want it."""
        first, params, types = self.carries(block, scope)
        asked = [self.fresh(*t) for t in types]
        condition = self.block(scope, asked, [("bool", ())], depth, smooth, size=self.rng.randint(0, 1))
        body = self.block(scope, params, types, depth, smooth)
        return Statement("while", [self.fresh(*t) for t in types], first, blocks=[condition, body],
                         info={"trips": self.rng.randint(0, MOST_TRIPS), "counts": self.chance(0.4)})

    def branches(self, block, scope, depth, smooth):
        count = self.rng.choice([2, 2, 2, 3, 4])
        chooser = self.value(block, scope, "bool", ()) if count == 2 else self.value(block, scope, "int32", ())
        operands = [self.value(block, scope, *self.type()) for _ in range(self.rng.randint(0, 2))]
        types = [self.type() for _ in range(self.rng.randint(1, 3))]
        blocks = [self.block(scope, [self.fresh(*x.type) for x in operands], types, depth, smooth) for _ in range(count)]
        return Statement("cond" if count == 2 else "switch", [self.fresh(*t) for t in types], [chooser] + operands, blocks=blocks)

    def called(self, block, scope, depth, smooth):
        """An inner function: called under jit, twice, rematerialised, mapped over rows, vectorised."""
        how = self.rng.choice(["jit", "twice", "checkpoint", "map", "vmap"])
        if how == "twice":
            operands, params, types = self.carries(block, scope)
        else:
            operands = [self.value(block, scope, *self.type()) for _ in range(self.rng.randint(1, 3))]
            types = [self.type() for _ in range(self.rng.randint(1, 2))]
        rows = self.rng.randint(1, 4)
        if how in ("map", "vmap"):
            operands = [self.value(block, scope, d, (rows,) + s) for d, s in [x.type for x in operands[:2]]]
            params = [self.fresh(x.dtype, x.shape[1:]) for x in operands]
        elif how != "twice":
            params = [self.fresh(*x.type) for x in operands]
        body = self.block(scope, params, types, depth, smooth)
        outs = [self.fresh(d, (rows,) + s if how in ("map", "vmap") else s) for d, s in types]
        return Statement(how, outs, operands, blocks=[body])

    def gradient(self, block, scope, depth, smooth):
        how = self.rng.choice(["grad", "grad", "grad", "value_and_grad", "jvp"])
        first, params, types = self.carries(block, scope, floats=True)
        body = self.block(scope, params, types, depth, smooth or how != "jvp")
        outs = [self.fresh(*t) for t in types]
        if how == "jvp":
            outs += [self.fresh(*t) for t in types]
        if how == "value_and_grad":
            outs = [self.fresh(first[0].dtype, ())] + outs
        return Statement(how, outs, first, blocks=[body])

    def statement(self, block, scope, depth, smooth):
        if self.chance(0.45 if depth == 0 else 0.3 if depth < DEEPEST else 0):
            make = self.rng.choice([self.scan, self.scan, self.fori, self.branches, self.branches, self.called, self.gradient] +
                                   ([] if smooth else [self.while_, self.while_]))
            made = make(block, scope, depth, smooth)
            block.body.append(made)
            scope += made.outs
            return
        self.rng.choice([self.elementwise] * 5 + [self.comparison, self.along, self.indexed, self.indexed, self.rearranged])(block, scope)


def make(seed, x64):
    """The program of a seed."""
    maker = Maker(seed, x64)
    params = [maker.fresh(*maker.type()) for _ in range(maker.rng.randint(2, 4))]
    block = Block(params)
    scope = list(params)
    for _ in range(maker.rng.randint(3, 8)):
        maker.statement(block, scope, 0, False)
    made = [v for s in block.body for v in s.outs]
    nested = [v for s in block.body if s.blocks for v in s.outs]
    block.results = list(dict.fromkeys(nested + made[-3:]))
    if not nested:
        return make(seed + 1_000_003, x64)
    return Program(block, x64)


# --- Python text ---------------------------------------------------------------------------------------------------------

def print_function(name, block, indent, params=None):
    lines = [f"{indent}def {name}({params or ', '.join(v.name for v in block.params)}):"]
    return lines + print_block(block, indent + "    ")


def print_block(block, indent, returns=None):
    lines = []
    for statement in block.body:
        lines += PRINTERS[statement.kind](statement, indent)
    return lines + [f"{indent}return {returns or names_of(block.results)}"]


def print_expression(s, indent):
    return [f"{indent}{s.outs[0].name} = {s.template.format(*(v.name for v in s.operands))}"]


def print_scan(s, indent):
    carried, name, body = s.info["carried"], "step" + s.outs[0].name, s.blocks[0]
    lines = [f"{indent}def {name}(carried, slices):"]
    if carried:
        lines.append(f"{indent}    {names_of(body.params[:carried])} = carried")
    if body.params[carried:]:
        lines.append(f"{indent}    {names_of(body.params[carried:])} = slices")
    lines += print_block(body, indent + "    ", f"{names_of(body.results[:carried])}, {names_of(body.results[carried:])}")
    call = (f"lax.scan({name}, {names_of(s.operands[:carried])}, {names_of(s.operands[carried:])}, length={s.info['length']}, "
            f"reverse={s.info['reverse']}, unroll={s.info['unroll']})")
    return lines + [f"{indent}{names_of(s.outs[:carried])}, {names_of(s.outs[carried:])} = {call}"]


def print_fori(s, indent):
    name, body, low, high = "step" + s.outs[0].name, s.blocks[0], s.info["low"], s.info["high"]
    first = s.operands[:len(s.outs)]
    lines = [f"{indent}def {name}(index, carried):", f"{indent}    {body.params[0].name} = jnp.asarray(index, jnp.int32)",
             f"{indent}    {names_of(body.params[1:])} = carried", *print_block(body, indent + "    ")]
    bounds = f"{low}, {high}"
    if s.info["traced"]:
        bounds = f"jnp.int32({low}), {s.operands[-1].name} % {MOST_TRIPS}"
    return lines + [f"{indent}{names_of(s.outs)} = lax.fori_loop({bounds}, {name}, {names_of(first)})"]


def print_while(s, indent):
    name, (condition, body), trips = s.outs[0].name, s.blocks, s.info["trips"]
    asks = f"(count < {trips})" + ("" if s.info["counts"] else f" & {condition.results[0].name}")
    return [f"{indent}def more{name}(carried):", f"{indent}    count, {names_of(condition.params)} = carried",
            *print_block(condition, indent + "    ", asks),
            f"{indent}def step{name}(carried):", f"{indent}    count, {names_of(body.params)} = carried",
            *print_block(body, indent + "    ", f"count + 1, {names_of(body.results)}"),
            f"{indent}_, {names_of(s.outs)} = lax.while_loop(more{name}, step{name}, (jnp.int32(0), {names_of(s.operands)}))"]


def print_branches(s, indent):
    lines, names = [], [f"branch{i}{s.outs[0].name}" for i in range(len(s.blocks))]
    for name, block in zip(names, s.blocks):
        lines += print_function(name, block, indent)
    functions = ", ".join(names) if s.kind == "cond" else f"[{', '.join(names)}]"
    return lines + [f"{indent}{names_of(s.outs)} = lax.{s.kind}({', '.join([s.operands[0].name, functions, *(v.name for v in s.operands[1:])])})"]


def print_called(s, indent):
    name, arguments = "inner" + s.outs[0].name, ", ".join(v.name for v in s.operands)
    lines = print_function(name, s.blocks[0], indent, f"{names_of(s.blocks[0].params)}" if s.kind == "map" else None)
    if s.kind == "map":
        lines[0] = f"{indent}def {name}(row):"
        lines.insert(1, f"{indent}    {names_of(s.blocks[0].params)} = row")
    call = {"jit": f"jax.jit({name})({arguments})", "checkpoint": f"jax.checkpoint({name})({arguments})",
            "twice": f"jax.jit({name})(*jax.jit({name})({arguments}))", "map": f"lax.map({name}, {names_of(s.operands)})",
            "vmap": f"jax.vmap({name})({arguments})"}[s.kind]
    return lines + [f"{indent}{names_of(s.outs)} = {call}"]


def print_gradient(s, indent):
    name, body, arguments = "of" + s.outs[0].name, s.blocks[0], ", ".join(v.name for v in s.operands)
    if s.kind == "jvp":
        half = len(s.outs) // 2
        return [*print_function(name, body, indent),
                f"{indent}{names_of(s.outs[:half])}, {names_of(s.outs[half:])} = jax.jvp({name}, {names_of(s.operands)}, {names_of(s.operands)})"]
    wide = s.operands[0].dtype
    loss = " + ".join(f"jnp.mean({v.name}).astype(jnp.{wide}) * 0.3" for v in body.results)
    lines = [f"{indent}def {name}({', '.join(v.name for v in body.params)}):", *print_block(body, indent + "    ", loss)]
    wrt = tuple_of(str(i) for i in range(len(s.operands)))
    outs = names_of(s.outs) if s.kind == "grad" else f"{s.outs[0].name}, {names_of(s.outs[1:])}"
    return lines + [f"{indent}{outs} = jax.{s.kind}({name}, {wrt})({arguments})"]


PRINTERS = {"expression": print_expression, "scan": print_scan, "fori": print_fori, "while": print_while, "cond": print_branches,
            "switch": print_branches, "jit": print_called, "twice": print_called, "checkpoint": print_called, "map": print_called,
            "vmap": print_called, "grad": print_gradient, "value_and_grad": print_gradient, "jvp": print_gradient}


def source(program):
    """The program as a Python function `program` of its parameters."""
    head = ["import jax", "import jax.numpy as jnp", "from jax import lax", "", ""]
    if program.x64:
        head.insert(3, 'jax.config.update("jax_enable_x64", True)')
    types = ", ".join(f"{v.dtype}[{','.join(map(str, v.shape))}]" for v in program.block.params)
    return "\n".join([*head, f"# of {types}", *print_function("program", program.block, "")]) + "\n"


# --- Smaller ones --------------------------------------------------------------------------------------------------------

def blocks_of(block):
    """The block and those within it, outer ones first."""
    yield block
    for statement in block.body:
        for inner in statement.blocks:
            yield from blocks_of(inner)


def substitute(block, old, new):
    for inner in blocks_of(block):
        inner.results = [new if v == old else v for v in inner.results]
        for statement in inner.body:
            statement.operands = [new if v == old else v for v in statement.operands]


def drop_unused(block):
    """Statements of which nothing is used."""
    changed = True
    while changed:
        used = {v for b in blocks_of(block) for v in b.results} | {v for b in blocks_of(block) for s in b.body for v in s.operands}
        changed = False
        for inner in blocks_of(block):
            kept = [s for s in inner.body if used.intersection(s.outs)]
            changed = changed or len(kept) < len(inner.body)
            inner.body = kept


def with_constants(whole, block, at):
    """The block's statement `at` replaced by constants of its types."""
    gone = block.body[at]
    value = {"float": "0.625", "integer": "1", "bool": "True"}
    block.body[at:at + 1] = [Statement("expression", [v], [], f"jnp.full({v.shape!r}, {value[family(v.dtype)]}, jnp.{v.dtype})") for v in gone.outs]


def with_operands(whole, block, at):
    """… by its own operands, where the types fit."""
    gone = block.body.pop(at)
    for out in gone.outs:
        same = [v for v in gone.operands if v.type == out.type]
        if not same:
            return False
        substitute(whole, out, same[0])
    return True


def with_body(whole, block, at, number):
    """… by one of its blocks, run once."""
    gone = block.body[at]
    operands = {"cond": gone.operands[1:], "switch": gone.operands[1:], "jit": gone.operands, "twice": gone.operands,
                "checkpoint": gone.operands}.get(gone.kind)
    if operands is None or number >= len(gone.blocks):
        return False
    body = gone.blocks[number]
    block.body[at:at + 1] = body.body
    for param, operand in zip(body.params, operands, strict=True):
        substitute(whole, param, operand)
    results = list(body.results)
    for param, operand in zip(body.params, operands):
        results = [operand if v == param else v for v in results]
    for out, result in zip(gone.outs, results, strict=True):
        substitute(whole, out, result)
    return True


def without_result(whole, block, at, number):
    """… with an output less: of a loop also what it carries there."""
    s = block.body[at]
    used = {v for b in blocks_of(whole) for v in b.results} | {v for b in blocks_of(whole) for t in b.body for v in t.operands}
    if number >= len(s.outs) or len(s.outs) < 2 or s.outs[number] in used or s.kind not in ("scan", "fori", "while", "cond", "switch", "jit", "map", "vmap"):
        return False
    s.outs.pop(number)
    for inner in s.blocks[1:] if s.kind == "while" else s.blocks:
        inner.results.pop(number)
    if s.kind in ("fori", "while") or (s.kind == "scan" and number < s.info["carried"]):
        first = s.operands.pop(number)
        for inner in s.blocks:
            param = inner.params.pop(number + (1 if s.kind == "fori" else 0))
            substitute(inner, param, first)
        if s.kind == "scan":
            s.info["carried"] -= 1
    return True


def simpler(whole, block, at, key):
    s = block.body[at]
    plain = {"reverse": False, "unroll": 1, "traced": False, "counts": True, "trips": 1, "low": 0, "high": 1}.get(key)
    if key not in s.info or s.info[key] == plain or (key == "high" and s.info["high"] <= s.info["low"] + 1):
        return False
    if key == "traced":
        s.operands.pop()
    s.info[key] = plain
    return True


def candidates(program):
    """Programs that are a little smaller, those first that are much smaller."""
    if len(program.block.results) > 1:
        for i in range(len(program.block.results)):
            smaller = copy.deepcopy(program)
            smaller.block.results = [smaller.block.results[i]]
            yield smaller
        for i in range(len(program.block.results)):
            smaller = copy.deepcopy(program)
            smaller.block.results.pop(i)
            yield smaller
    ways = [(with_constants, ()), (with_operands, ())] + [(with_body, (n,)) for n in range(4)]
    ways += [(without_result, (n,)) for n in range(6)]
    ways += [(simpler, (key,)) for key in ("reverse", "unroll", "counts", "traced", "trips", "high", "low")]
    for which, block in enumerate(blocks_of(program.block)):
        for at in reversed(range(len(block.body))):
            for way, more in ways:
                if way is with_constants and not block.body[at].operands and not block.body[at].blocks:
                    continue
                smaller = copy.deepcopy(program)
                inner = list(blocks_of(smaller.block))[which]
                if way(smaller.block, inner, at, *more) is not False:
                    yield smaller
    used = {v for b in blocks_of(program.block) for v in b.results} | {v for b in blocks_of(program.block) for s in b.body for v in s.operands}
    for i, param in enumerate(program.block.params):
        if param not in used and len(program.block.params) > 1:
            smaller = copy.deepcopy(program)
            smaller.block.params.pop(i)
            yield smaller


def shrink(program, fails, tries=400):
    """The smallest program found that still fails."""
    changed = True
    while changed and tries > 0:
        changed = False
        for smaller in candidates(program):
            drop_unused(smaller.block)
            tries -= 1
            if fails(smaller):
                program, changed = smaller, True
                break
            if tries <= 0:
                break
    return program
