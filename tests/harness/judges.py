"""Programs of StableHLO text run by others: StableHLO's own interpreter (jaxlib's eval_module), which has a process for each program
because it aborts on what it cannot do, and XLA:CPU. For interpreter_test.py and quantized_test.py, inside <build>/venv-harness.
"""
import multiprocessing
import os
import pickle
import re
import signal
import traceback

LIMIT = 60  # seconds for a program

# What neither knows, and the pass that writes it as what they know; the interpreter needs more.
OLD = {r"stablehlo\.(broadcast|create_token|dot|einsum|unary_einsum)\b": "stablehlo-legalize-deprecated-ops"}
EXPANSIONS = {
    **OLD,
    r"chlo\.": "chlo-legalize-to-stablehlo",
    r"stablehlo\.real_dynamic_slice": "stablehlo-canonicalize-dynamism",
    r"!quant\.": "stablehlo-legalize-quantized-op-to-qdq",
}


class Judge:
    """A process that serves: (text, inputs) is answered by (results, "") or (None, why not). Made again when it dies."""

    def __init__(self, serve):
        self.serve, self.child, self.pipe = serve, None, None
        self.start()

    def start(self):
        forks = multiprocessing.get_context("fork")
        self.pipe, theirs = forks.Pipe()
        self.child = forks.Process(target=self.serve, args=(theirs,), daemon=True)
        self.child.start()
        theirs.close()

    def run(self, text, inputs):
        if self.child is None:
            self.start()
        try:
            self.pipe.send((text, inputs))
            if self.pipe.poll(2 * LIMIT):
                return self.pipe.recv()
            why = "no answer in time"
        except (EOFError, ConnectionError):
            why = "the process died"
        self.close()
        return None, why

    def close(self):
        if self.child is not None:
            self.child.kill()
            self.child.join()
        self.child = None


def interpreter():
    return Judge(serve_interpreter)


def xla_cpu():
    return Judge(serve_xla)


def answers(pipe, answer):
    while True:
        try:
            text, inputs = pipe.recv()
        except EOFError:
            return
        pipe.send(answer(text, inputs))


def told(work, *args):
    try:
        return work(*args), ""
    except Exception as error:  # noqa: BLE001: whatever it is, it is told
        return None, "".join(traceback.format_exception_only(error))


def serve_interpreter(pipe):
    """Loads what is needed once. There are no threads here, so a fork is whole."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo
    stablehlo.register_stablehlo_passes()
    context = mlir.make_ir_context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        # What reads an artifact loads the dialect of quantised types.
        empty = stablehlo.serialize_portable_artifact_str("func.func @f() { return }", stablehlo.get_current_version())
        stablehlo.deserialize_portable_artifact(context, empty)
        answers(pipe, lambda text, inputs: in_child(evaluated, text, inputs))


def in_child(work, *args):
    """As told(work, *args), from a process that may die."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.dup2(writing, 2)  # what an abort says comes in the answer's place
            signal.alarm(LIMIT)
            answer = pickle.dumps(told(work, *args))
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(b"answer:" + answer)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    status = os.waitpid(child, 0)[1]
    _, found, answer = said.partition(b"answer:")
    if status == 0 and found:
        return pickle.loads(answer)
    return None, said.decode(errors="replace").strip() or f"status {status}"


def expand(module, text, expansions):
    from jaxlib.mlir.passmanager import PassManager
    for sign, name in expansions.items():
        if re.search(sign, text):
            PassManager.parse(f"builtin.module(func.func({name}))").run(module.operation)


def evaluated(text, inputs):
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo
    module = ir.Module.parse(text)
    expand(module, text, EXPANSIONS)
    main = next(op for op in module.body.operations if ir.StringAttr(op.attributes["sym_name"]).value == "main")
    arguments = [constant(x, kind) for x, kind in zip(inputs, main.type.inputs, strict=True)]
    assemble = as_bits(main)
    return assemble(stablehlo.eval_module(module, arguments))


def constant(x, kind):
    from jaxlib.mlir import ir
    element = ir.RankedTensorType(kind).element_type
    plain = isinstance(element, (ir.IntegerType, ir.FloatType, ir.ComplexType))  # or quantised
    return ir.DenseElementsAttr.get(x, type=kind if plain and x.dtype.kind != "b" else None)


def as_bits(main):
    """Makes `main` return the bits of its floats, which is what the bindings hand over whole; gives what makes arrays of them."""
    import ml_dtypes
    import numpy
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func, stablehlo
    floats = {"f16": "f2", "bf16": ml_dtypes.bfloat16, "f32": "f4", "f64": "f8", "complex<f32>": "c8", "complex<f64>": "c16"}
    last = list(main.regions[0].blocks[0].operations)[-1]
    returned, made = [], []
    with ir.InsertionPoint(last):
        for value in last.operands:
            kind = ir.RankedTensorType(value.type)
            element = str(kind.element_type)
            numbers = [stablehlo.real(value), stablehlo.imag(value)] if "complex" in element else [value]
            made.append((len(numbers), element, list(kind.shape)))
            for number in numbers:
                part = str(ir.RankedTensorType(number.type).element_type)
                if part in floats:
                    bits = ir.IntegerType.get_signless(8 * numpy.dtype(floats[part]).itemsize)
                    number = stablehlo.bitcast_convert(ir.RankedTensorType.get(kind.shape, bits), number)
                returned.append(number)
        func.ReturnOp(returned)
    last.erase()
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(main.type.inputs, [v.type for v in returned]))

    def assemble(found):
        found, results = [numpy.array(x) for x in found], []
        for parts, element, shape in made:
            taken, found = found[:parts], found[parts:]
            if element not in floats:
                unsigned = element.startswith("ui") or "<u" in element
                results.append(taken[0].reshape(shape).astype(f"u{taken[0].itemsize}" if unsigned else taken[0].dtype))
                continue
            result = numpy.empty(shape, floats[element])
            for half, bits in zip([result.real, result.imag] if parts == 2 else [result], taken, strict=True):
                half[...] = bits.astype(f"u{half.itemsize}").reshape(shape).view(half.dtype)
            results.append(result)
        return results
    return assemble


def serve_xla(pipe):
    import jax
    from jaxlib.mlir.dialects import stablehlo
    stablehlo.register_stablehlo_passes()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    answers(pipe, lambda text, inputs: told(compiled, text, inputs))


def compiled(text, inputs):
    import jax
    import numpy
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jaxlib.mlir import ir
    device = jax.devices()[0]
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        expand(module, text, OLD)
        module.operation.attributes["sym_name"] = ir.StringAttr.get("main")
        executable = device.client.compile_and_load(module, xla_client.DeviceList((device,)), xla_client.CompileOptions())
    return [numpy.array(x) for x in executable.execute([jax.device_put(x, device) for x in inputs])]
