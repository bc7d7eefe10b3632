"""Random JAX functions (transform_maker.py) under random chains of grad, vjp, jvp, vmap and checkpoint. JAX transforms the function, lowers
and runs it; Weft reads the text of the function alone, as JAX lowers it, and makes the same of it by its own transforms. The results
are compared, floats within a bound of their type.

    python tests/harness/jax_transforms.py [--seeds FIRST:LAST] [--print]

Wants WEFT_SOURCE, WEFT_BUILD and WEFT_LIB in the environment; installs jax into <build>/venv-harness. --print shows the programs of the
seeds and runs nothing.
"""
import ctypes
import os
import random
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import seeded  # noqa: E402
import transform_maker  # noqa: E402
from outcomes import NAMES, difference, enter  # noqa: E402
from round_trip import Reader, Weft, weft_ffi  # noqa: E402

# Relative to an element and to the largest one: derivatives of derivatives subtract much from much. Where all of it cancels, what is left
# of values of a few units is a part of their rounding: the second number.
BOUNDS = {"float32": 1e-3, "float64": 1e-9}
ROUNDING = {"float32": 1e-8}
LIMIT = 120  # seconds that Weft may take for one of them


class Transforms(Weft):
    def made(self, make, *arguments):
        out = weft_ffi.weft_function()
        weft_ffi.check(self.lib, make(self.context, *arguments, ctypes.byref(out)))
        return out

    def step(self, function, kind, info):
        numbers = lambda values: (ctypes.c_int64 * len(values))(*values)  # noqa: E731
        if kind == "checkpoint":
            return self.made(self.lib.weft_function_checkpoint, function, info["keep"])
        if kind == "vmap":
            axes = [weft_ffi.WEFT_NOT_MAPPED if a is None else a for a in info["in_axes"]]
            return self.made(self.lib.weft_function_vmap, function, info["size"], numbers(axes), len(axes), numbers(info["out_axes"]),
                             len(info["out_axes"]), None)
        options = weft_ffi.weft_derivative_options(struct_size=ctypes.sizeof(weft_ffi.weft_derivative_options), values=int(info["values"]))
        return self.made(getattr(self.lib, f"weft_function_{kind}"), function, numbers(info["wrt"]), len(info["wrt"]), ctypes.byref(options))

    def tensor(self, array):
        out = weft_ffi.weft_tensor()
        dtype = getattr(weft_ffi, f"WEFT_{NAMES[array.dtype.name].upper()}")
        weft_ffi.check(self.lib, self.lib.weft_tensor_from_host(self.context, None, dtype, (ctypes.c_int64 * array.ndim)(*array.shape),
                                                                array.ndim, array.tobytes(), array.nbytes, ctypes.byref(out)))
        return out

    def ran(self, function, inputs):
        tensors = [self.tensor(x) for x in inputs]
        outputs, count = (weft_ffi.weft_tensor * 16)(), ctypes.c_size_t()
        try:
            weft_ffi.check(self.lib, self.lib.weft_function_run(self.context, function, (weft_ffi.weft_tensor * len(tensors))(*tensors),
                                                                len(tensors), None, 0, outputs, 16, ctypes.byref(count)))
            return [self.array(tensor) for tensor in outputs[:count.value]]
        finally:
            for tensor in [*tensors, *outputs[:count.value]]:
                self.lib.weft_tensor_release(tensor)

    def array(self, tensor):
        import numpy
        dims, rank, dtype = (ctypes.c_int64 * 32)(), ctypes.c_size_t(), weft_ffi.weft_dtype()
        weft_ffi.check(self.lib, self.lib.weft_tensor_dims(tensor, dims, 32, ctypes.byref(rank)))
        weft_ffi.check(self.lib, self.lib.weft_tensor_dtype(tensor, ctypes.byref(dtype)))
        kind = next(kind for kind, name in NAMES.items() if getattr(weft_ffi, f"WEFT_{name.upper()}") == dtype.value)
        found = numpy.empty(dims[:rank.value], kind)
        weft_ffi.check(self.lib, self.lib.weft_tensor_to_host(tensor, found.ctypes.data, found.nbytes))
        return found


def transformed(case):
    """("ok", arrays) or (stage, message)."""
    if Transforms.one is None:
        Transforms.one = Transforms()
    weft, made, stage = Transforms.one, [], "read"
    try:
        text = case["text"].encode()
        made.append(weft.made(weft.lib.weft_function_from_stablehlo, text, len(text)))
        for number, (kind, info) in enumerate(case["chain"]):
            stage = f"{kind} ({number})"
            made.append(weft.step(made[-1], kind, info))
        stage = "run"
        return "ok", weft.ran(made[-1], case["inputs"])
    except weft_ffi.Error as error:
        return stage, str(error)
    finally:
        for function in made:
            weft.lib.weft_function_release(function)


def derivative(f, kind, wrt, values):
    """JAX's, of a function of arrays to a tuple of arrays, as Weft orders what goes in and comes out."""
    import jax
    import jax.numpy as jnp

    def part(primals):
        def moved(*slots):
            all_in = list(primals)
            for i, x in zip(wrt, slots):
                all_in[i] = x
            every = f(*all_in)
            return tuple(y for y in every if jnp.issubdtype(y.dtype, jnp.floating)), every
        return moved

    def made(*inputs):
        behind = {"grad": 0, "jvp": len(wrt), "vjp": None}[kind]
        if behind is None:
            behind = made.cotangents
        primals, given = inputs[:len(inputs) - behind], inputs[len(inputs) - behind:]
        slots = [primals[i] for i in wrt]
        if kind == "grad":
            slopes, every = jax.grad(lambda *s: (lambda few, every: (few[0], every))(*part(primals)(*s)), tuple(range(len(wrt))), has_aux=True)(*slots)
        elif kind == "vjp":
            _, pull, every = jax.vjp(part(primals), *slots, has_aux=True)
            slopes = pull(tuple(given))
        else:
            _, slopes, every = jax.jvp(part(primals), tuple(slots), tuple(given), has_aux=True)
        return (tuple(every) if values else ()) + tuple(slopes)
    return made


def under(f, chain, types):
    """The function under the chain; `types`: of its inputs."""
    import jax
    import numpy
    for kind, info in chain:
        if kind == "checkpoint":
            f = jax.checkpoint(f, policy=jax.checkpoint_policies.dots_saveable if info["keep"] else None)
            continue
        if kind == "vmap":
            f = jax.vmap(f, tuple(info["in_axes"]), tuple(info["out_axes"]), axis_size=info["size"])
            size = info["size"]
            types = [(s if a is None else (*s[:a], size, *s[a:]), d) for (s, d), a in zip(types, info["in_axes"])]
            continue
        made = derivative(f, kind, info["wrt"], info["values"])
        more = []
        if kind == "vjp":
            results = jax.eval_shape(f, *[jax.ShapeDtypeStruct(*t) for t in types])
            more = [(r.shape, r.dtype.name) for r in results if numpy.issubdtype(r.dtype, numpy.floating)]
            made.cotangents = len(more)
        elif kind == "jvp":
            more = [types[i] for i in info["wrt"]]
        f, types = made, types + more
    return f


def case_of(seed):
    """{source, text, chain, inputs, results} by JAX."""
    import jax
    import numpy
    made = transform_maker.Function(seed)
    jax.config.update("jax_enable_x64", made.x64)
    names = {}
    exec(compile("import jax, jax.numpy as jnp\nfrom jax import lax\n" + made.source, "<function>", "exec"), names)  # noqa: S102
    function = names["function"]
    types = [(shape, dtype) for _, shape, dtype in made.params]
    structs = [jax.ShapeDtypeStruct(*t) for t in types]
    results = [(r.shape, r.dtype.name) for r in jax.eval_shape(function, *structs)]
    chain, inputs = transform_maker.chain_of(random.Random(seed + 1), types, results, made.loops)
    draw = numpy.random.default_rng(seed)
    arrays = [numpy.asarray(draw.uniform(-1, 1, s) if d.startswith("f") else draw.integers(0, 3, s), d) for s, d in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = jax.jit(function, keep_unused=True).lower(*structs).as_text()
        lowered = jax.jit(under(function, chain, types), keep_unused=True).lower(*arrays)
        results = [numpy.asarray(r) for r in jax.tree.leaves(lowered.compile()(*arrays))]
    return {"source": made.source, "text": text, "chain": chain, "inputs": arrays, "results": results, "x64": made.x64}


def judge(seed, weft):
    """(kind of failure, what is wrong, case); ("", "", case) if nothing is, ("jax", reason, None) for what JAX refuses."""
    import numpy
    try:
        case = case_of(seed)
    except Exception as error:  # noqa: BLE001: not ours to judge
        return "jax", f"{type(error).__name__}: {error}", None
    if not all(numpy.isfinite(r).all() and abs(r).max(initial=0) < 1e6 for r in case["results"]):
        return "jax", "the values are not finite or too large", None
    stage, answer = weft.run(case)
    if stage != "ok":
        return stage, answer, case
    wrong = difference(answer, case["results"], case["text"], BOUNDS, rounding=ROUNDING)
    return ("wrong" if wrong else ""), wrong, case


def spelled(chain):
    return "".join(f"{kind}(" for kind, _ in reversed(chain)) + "f" + ")" * len(chain)


def shown(seed):
    case = case_of(seed)
    return f"# {case['chain']}\n{case['source']}"


def failed(seed, kind, wrong, case, _):
    print(f"seed {seed}: {spelled(case['chain'])}: {kind}: {wrong}\n{case['chain']}\n{case['source']}", flush=True)


def features(case):
    return {name for name, _ in case["chain"]} | ({"two or more"} if len(case["chain"]) > 1 else set())


def main():
    weft = Reader(LIMIT, transformed)
    try:
        return seeded.main(__doc__, lambda seed: judge(seed, weft), shown, failed, features)
    finally:
        weft.close()


if __name__ == "__main__":
    enter(__file__)
    sys.exit(main())
