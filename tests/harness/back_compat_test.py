"""The programs of JAX's export_back_compat_test_data: StableHLO that past releases of JAX exported, as portable artifacts, most of
them for other devices. Each is read by Weft, written, read again and written again, or refused by a message that names what is
missing. What was written must read back, compute the same and be written with the same bytes. What Weft reads also runs, on the
inputs that are recorded beside it, and gives what is recorded.

    python tests/harness/back_compat_test.py [--only PART] [--texts DIR]

Wants WEFT_SOURCE, WEFT_BUILD and WEFT_LIB in the environment; installs jax into <build>/venv-harness. --texts writes each program's
text into DIR/NAME.mlir, and what Weft writes of it into DIR/NAME.weft.mlir.
"""
import argparse
import collections
import importlib
import os
import pathlib
import pkgutil
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from outcomes import BOUNDS, Runner, difference, enter, missing  # noqa: E402
from round_trip import Reader, same_results  # noqa: E402

PROGRAMS = 142  # of jax 0.10.2


def entries(name, data):
    """(name, record) of each program of a module's nested data."""
    if isinstance(data, dict) and "mlir_module_serialized" in data:
        yield name, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from entries(f"{name}.{key}", value)
    elif isinstance(data, (list, tuple)):
        for number, value in enumerate(data):
            yield from entries(f"{name}.{number}", value)


def programs():
    """[{name, text, inputs, results, targets, devices}]"""
    import numpy
    from jax._src.internal_test_util import export_back_compat_test_data as data
    from jax._src.interpreters import mlir
    from jaxlib.mlir.dialects import stablehlo
    found = []
    for module in pkgutil.walk_packages(data.__path__, data.__name__ + "."):
        if module.ispkg:
            continue
        short = module.name.rsplit(".", 1)[-1]
        for name, value in sorted(vars(importlib.import_module(module.name)).items()):
            for whole, record in entries(f"{short}.{name}", value):
                with mlir.make_ir_context() as context:
                    text = str(stablehlo.deserialize_portable_artifact(context, record["mlir_module_serialized"]))
                found.append({"name": whole, "text": text, "targets": record["custom_call_targets"],
                              "inputs": [numpy.asarray(x) for x in record["inputs"]],
                              "results": [numpy.asarray(x) for x in record["expected_outputs"]],
                              "devices": record.get("nr_devices", 1)})
    return found


def named(message):
    """What a refusal names: what is missing, or the operation that it is about."""
    if re.search(r"(?:operations|types): ", message):
        return missing(message)
    return re.findall(r"(?:stablehlo|chlo|sdy)\.\w+", message)[:1]


def unique(results, text):
    """What is compared of the results. The eigenvectors of an eigenvalue that occurs several times are any basis of its space, so the
    matrix that values and vectors rebuild stands for the vectors, beside their products with each other."""
    if not re.search(r"@lapack_(?:ssy|dsy|che|zhe)evd_ffi", text):
        return results
    vectors, values = results
    adjoint = vectors.conj().swapaxes(-1, -2)
    return [vectors * values[..., None, :] @ adjoint, adjoint @ vectors, values]


def judge(program, reader, runner):
    """(outcome, what to say of it); outcomes are ran, read, refused and, wrong, the others."""
    outcome, answer = reader.run(program["text"])
    if outcome == "refused":
        names = named(answer)
        return ("refused", ", ".join(names)) if names else ("unnamed", answer)
    if outcome != "read":
        return outcome, answer
    program["written"] = answer
    if program["devices"] > 1:
        return "read", "for several devices"
    stage, results = runner.run(program)
    if stage != "ok":
        return (stage, results) if stage == "crash" or not named(results) else ("read", "runs not: " + ", ".join(missing(results)))
    other = same_results(runner, {**program, "text": answer}, results)
    if other:
        return "wrong", other
    # Other devices rounded otherwise, and other releases of libraries.
    found, expected = unique(results, program["text"]), unique(program["results"], program["text"])
    wrong = difference(found, expected, program["text"], {name: 50 * bound for name, bound in BOUNDS.items()})
    return ("wrong", wrong) if wrong else ("ran", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="programs whose names hold this")
    parser.add_argument("--texts", type=pathlib.Path)
    args = parser.parse_args()
    every = programs()
    reader, runner, totals, bad = Reader(), Runner(), collections.Counter(), 0
    print("| program | outcome | what |\n|---|---|---|")
    for program in every:
        if args.only not in program["name"]:
            continue
        outcome, said = judge(program, reader, runner)
        totals[outcome] += 1
        print(f"| {program['name']} | {outcome} | {said if outcome in ('ran', 'read', 'refused') else '**see below**'} |", flush=True)
        if args.texts:
            args.texts.mkdir(parents=True, exist_ok=True)
            (args.texts / f"{program['name']}.mlir").write_text(program["text"], encoding="utf-8")
            (args.texts / f"{program['name']}.weft.mlir").write_text(program.get("written", ""), encoding="utf-8")
        if outcome not in ("ran", "read", "refused"):
            bad += 1
            print(f"{program['name']}: {outcome}: {said}\n{program['text'][:4000]}", flush=True)
    print(f"{sum(totals.values())} programs: " + ", ".join(f"{n} {outcome}" for outcome, n in sorted(totals.items())))
    if len(every) != PROGRAMS:
        print(f"there are {len(every)} programs, not {PROGRAMS}")
        return 1
    return 1 if bad else 0


if __name__ == "__main__":
    enter(__file__)
    sys.exit(main())
