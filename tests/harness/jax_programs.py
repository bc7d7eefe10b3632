"""Random JAX programs of nested control flow (program_maker.py): lowered by JAX for the CPU, their StableHLO text run by Weft, the
results compared with JAX's. Integers and bools are equal or wrong, floats within a bound of their type. What Weft writes of each is
read again, written with the same bytes, and gives the same bits.

    python tests/harness/jax_programs.py [--seeds FIRST:LAST] [--print] [--no-shrink]

Wants WEFT_SOURCE, WEFT_BUILD and WEFT_LIB in the environment; installs jax into <build>/venv-harness. Every third program is one of
jax_enable_x64. Of one that fails the smallest found that still fails is printed, as Python and as StableHLO. --print shows the
programs of the seeds and runs nothing.
"""
import os
import re
import sys
import warnings
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program_maker  # noqa: E402
import seeded  # noqa: E402
from outcomes import BOUNDS, Runner, difference, enter  # noqa: E402
from round_trip import Reader, same_results  # noqa: E402

# Loops repeat roundings: their number is bounded, and so is what each of them magnifies.
SLACK = 20
LIMIT = 60  # seconds that Weft may take for one of them


def made(seed):
    return program_maker.make(seed, seed % 3 == 0)


def inputs_of(program, seed):
    import numpy
    arrays = []
    for v in program.block.params:
        draw = numpy.random.default_rng([seed, zlib.crc32(v.name.encode())])
        if v.is_float:
            arrays.append(numpy.asarray(draw.uniform(-2, 2, v.shape), v.dtype))
        else:
            arrays.append(numpy.asarray(draw.integers(0 if v.dtype[0] in "bu" else -9, 2 if v.dtype == "bool" else 10, v.shape), v.dtype))
    return arrays


def case_of(program, seed):
    """{text, inputs, results} by JAX."""
    import jax
    import numpy
    jax.config.update("jax_enable_x64", program.x64)
    names = {}
    exec(compile(program_maker.source(program), "<program>", "exec"), names)  # noqa: S102: that is what it was printed for
    inputs = inputs_of(program, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lowered = jax.jit(names["program"], keep_unused=True).lower(*inputs)
        results = [numpy.asarray(r) for r in jax.tree.leaves(lowered.compile()(*inputs))]
    return {"text": lowered.as_text(), "inputs": inputs, "results": results}


def bounds_of(text):
    """What floats may be off by: whatever is computed in f32 on the way has made it no better."""
    slack = SLACK * (BOUNDS["float32"] if re.search(r"[x<]f32>", text) else BOUNDS["float64"])
    return {"float32": slack, "float64": slack}


def judge(program, seed, runner, reader):
    """(kind of failure, what is wrong, case); ("", "", case) if nothing is, ("jax", reason, None) for what JAX refuses."""
    try:
        case = case_of(program, seed)
    except Exception as error:  # noqa: BLE001: not ours to judge
        return "jax", f"{type(error).__name__}: {error}", None
    if not all(r.dtype.kind != "f" or abs(r).max(initial=0) < 1e6 for r in case["results"]):
        return "jax", "the program's values are not finite or too large", None
    stage, answer = runner.run(case)
    if stage != "ok":
        return stage, answer, case
    wrong = difference(answer, case["results"], case["text"], bounds_of(case["text"]))
    if wrong:
        return "wrong", wrong, case
    outcome, written = reader.run(case["text"])
    if outcome != "read":
        return outcome, written, case
    wrong = same_results(runner, {**case, "text": written}, answer)
    return ("rewritten" if wrong else ""), wrong, case


def report(program, seed, kind, wrong, judges, shrinks):
    print(f"seed {seed}: {kind}: {wrong}", flush=True)
    if shrinks:
        program = program_maker.shrink(program, lambda p: judge(p, seed, *judges)[0] == kind)
    _, wrong, case = judge(program, seed, *judges)
    print(f"smallest: {wrong}\n{program_maker.source(program)}")
    for v, x in zip(program.block.params, case["inputs"]):
        print(f"# {v.name} = {x.tolist()}")
    print(case["text"], flush=True)


def features(case):
    return ["".join(found) for found in re.findall(r"stablehlo\.(while|case|if)\b|(?:func\.)?(call) @", case["text"])]


def main():
    judges = Runner(LIMIT), Reader(LIMIT)
    return seeded.main(__doc__, lambda seed: judge(made(seed), seed, *judges), lambda seed: program_maker.source(made(seed)),
                       lambda seed, kind, wrong, _, args: report(made(seed), seed, kind, wrong, judges, not args.no_shrink), features, ["--no-shrink"])


if __name__ == "__main__":
    enter(__file__)
    sys.exit(main())
