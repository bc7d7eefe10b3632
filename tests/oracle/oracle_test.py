"""The oracle outside: every operation, its gradient and whole training steps on a real XLA:CPU, through the PJRT backend.

    oracle_test.py [--plugin 0.115|0.106|0.81] [--every N] [OPERATION|PROGRAM|edges|narrow...]

weft_dump_programs runs the programs here and there; the plugin, of that version of PJRT, comes from the package registry into a virtual
environment of the build tree. Without the registry the test is SKIPPED and says so. Prints one row an operation. --every N: each N-th
program alone, the tenth unless some are named; scripts/test --full runs all, and older_plugins_test.py the older two plugins.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import xla_cpu  # noqa: E402

BUILD = pathlib.Path(os.environ["WEFT_BUILD"])
LEAST_PROGRAMS, LEAST_NARROW, MOST_REFUSED = 3600, 200, 0.02
FLOATS, INTEGERS = ("f16", "bf16", "f32", "f64"), ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
# The closed list of cases that may differ, each with its reason; one that agrees again fails the test as well.
DIFFERS = {
    "maximum edges": (FLOATS, "XLA:CPU loses a NaN in the second operand, which StableHLO's maximum hands on"),
    "minimum edges": (FLOATS, "XLA:CPU loses a NaN in the second operand, which StableHLO's minimum hands on"),
    "pow edges": (INTEGERS[1:], "XLA:CPU looks at the low bits of an integer exponent only: 7^100 in i16 is 6753"),
}
OLDER_DIFFERS = {
    "0.106": {},
    "0.81": {"cbrt edges": (("f64",), "its cbrt of f64 is less exact, by 1.3 times what ours may be")},
}

# Operations whose StableHLO name XLA:CPU does not run, and what it says; their expansions run all the same.
UNNAMED = {
    **{name: f"'stablehlo.{name}' op can't be translated to XLA HLO" for name in ("dynamic_conv", "dynamic_gather", "dynamic_pad", "real_dynamic_slice")},
    "collective_broadcast": "HLO opcode `collective-broadcast` is not supported by XLA:CPU",
}

# What StableHLO has no operation for: the host computes them between two programs (tests/pjrt/decompositions_test.py), so a program by
# itself is refused. All samples of these, or some.
ON_HOST = {"matrix_factors", "lu", "qr", "eigh", "eigvalsh", "svd", "svdvals", "eig", "eigvals", "solve_square", "solve", "inv", "det", "slogdet", "pinv",
           "lstsq", "matrix_rank", "matrix_norm", "cond", "tensorsolve", "tensorinv", "matrix_exp", "matrix_power", "geqrf", "logdet", "ldl", "ldl_solve"}

# Programs of the narrow types that XLA:CPU does not take as they are (our own, of bytes, it does), and what it says; and those in which it
# is wrong: integers below a byte lie in a byte there, and what is above their bits is not always cut off.
NARROW_REFUSED = {
    "all_reduce narrow u2": "AllReduce for datatype 'u2' is not supported",
    "argsort narrow u2": "Inputs must have the same shape",
    "dot_general narrow i2": "unsupported operand type S2 in op dot",
    "kthvalue narrow i2": "Inputs must have the same shape",
    "reduce_scatter narrow i2": "ReduceScatter for datatype 's2' is not supported",
}
NARROW_WRONG = {
    "clip narrow i2": "is -1 everywhere",
    "convolution narrow i4": "bits above the four are left",
    "select_and_scatter narrow f8e4m3b11fnuz": "its NaN is equal to itself",
    "sub narrow u4": "bits above the four are left",
}
# What may differ and need not, by the instruction set that XLA:CPU compiles for.
BY_PROCESSOR = {
    "atan #4 f32": "with AVX2 and atan2's slope beside it, its atan2(x, 1) gives lanes the results of others",
    "scaled_dot_product_attention narrow f8e8m0fnu": "its slopes cancel to nothing in a type of powers of two, and one below 0 is NaN",
}

# Operations that carry functions, whose programs are written by hand.
CARRYING = ("while", "case", "if", "map", "reduce_by", "reduce_window_by", "scatter_by", "select_and_scatter_by", "sort_by")


def differs(version):
    return {**DIFFERS, **OLDER_DIFFERS.get(version, {})}


def excuse(name, version=xla_cpu.NEWEST):
    stem, _, dtype = name.rpartition(" ")
    types, reason = differs(version).get(stem, ((), ""))
    return reason if dtype in types else ""


def main(args):
    import numpy

    from judge import CANCELS, bytes_of, decode, worst

    only, whole, newest = args.only, args.every == 1 and not args.only, args.plugin == xla_cpu.NEWEST
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **({"WEFT_NARROW_PROGRAMS": "1"} if newest else {})}
        dumped = subprocess.run([str(BUILD / "bin" / "weft_dump_programs"), folder, xla_cpu.plugin(), str(args.every)], capture_output=True, text=True, env=environment)
        print(dumped.stderr, end="")
        cases = json.load(open(f"{folder}/cases.json"))
        tensors = numpy.memmap(f"{folder}/tensors.bin", "u1", "r") if os.path.getsize(f"{folder}/tensors.bin") else b""

        def raw(tensor):
            return bytes_of(tensors, tensor)

        def compare(case, row, results, text):
            """What differs goes into `failures`."""
            if isinstance(results, str):
                row["failed"] += 1
                failures.append(f"{case['name']}: {results[:600]}")
                return
            for index, (result, expected) in enumerate(zip(results, case["results"], strict=True)):
                found = raw(result)
                if (result["dtype"], result["dims"]) != (expected["dtype"], expected["dims"]):
                    failures.append(f"{case['name']} result {index} is {result}, not {expected}")
                    continue
                part = "forward" if index < case["forward"] else "gradient"
                judged = "edges" if " edges " in case["name"] else part
                error = worst(found, raw(expected), expected["dtype"], case["tolerance"], judged)
                if error > 1 and case["name"] in BY_PROCESSOR:
                    continue
                if error > 1 and judged == "gradient" and case["op"] in CANCELS:
                    cancelled.add(case["op"])
                    error = worst(found, raw(expected), expected["dtype"], case["tolerance"], judged, CANCELS[case["op"]][0])
                row[part] = max(row[part], error)
                if error > 1:
                    row["failed"] += 1
                    a, b = decode(found, expected["dtype"]), decode(raw(expected), expected["dtype"])
                    at = numpy.flatnonzero(~((a == b) | (numpy.isnan(a) & numpy.isnan(b))))[:8] if a.dtype.kind == "f" \
                        else numpy.flatnonzero(a != b)[:8]
                    given = [decode(raw(t), t["dtype"])[at] for t in case["inputs"]] if judged == "edges" else ""
                    failures.append(f"{case['name']} {part} {index}: {error:.3g} times the tolerance at {at}\n"
                                    f"  XLA  {a[at]}\n  Weft {b[at]}\n  of {given}\n{text}")

        rows, failures, named, excused, cancelled = {}, [], set(), [], set()
        narrow = collections.Counter()
        refused, on_host = set(), set()
        for number, case in enumerate(cases):
            if only and not {case["op"], case["name"], *case["name"].split(" ")[1:2]} & set(only):
                continue
            row = rows.setdefault(case["op"], {"programs": 0, "forward": 0.0, "gradient": 0.0, "failed": 0})
            row["programs"] += 1
            before, earlier = len(failures), dict(row)
            if isinstance(case["found"], str) and "matrix decompositions are no part of StableHLO" in case["found"]:
                if case["op"] not in ON_HOST:
                    failures.append(f"{case['op']} has a program of the host: put it into ON_HOST")
                on_host.add(case["op"])
                continue
            with open(f"{folder}/{number}.mlir", encoding="utf-8") as file:
                text = file.read()
            compare(case, row, case["found"], text)
            # StableHLO's own operation, where what ran is what it expands to.
            if isinstance(case.get("found_named"), str) and UNNAMED.get(case["op"], "\n") in case["found_named"]:
                refused.add(case["op"])
            elif isinstance(case.get("found_named"), str) and NARROW_REFUSED.get(case["name"], "\n") in case["found_named"]:
                narrow["refused"] += 1
            elif case["name"] in NARROW_WRONG:
                compare(case, row, case["found_named"], text)
                narrow["wrong"] += 1
                row.update(earlier)
                if len(failures) == before:
                    failures.append(f"{case['name']} agrees: take it off NARROW_WRONG")
                del failures[before:]
            elif case["named"]:
                compare(case, row, case["found_named"], text)
                named.add(case["op"])
                narrow["equal"] += case["narrow"] and len(failures) == before
            if excuse(case["name"], args.plugin):
                excused.append(case["name"])
                row.update(earlier)
                if len(failures) == before:
                    failures.append(f"{case['name']} agrees: take it off the list of cases that may differ")
                else:
                    del failures[before:]
    # The comparison must be able to fail: a result that is off by more than its tolerance does.
    wrong = numpy.array([1.0, 2.0], "f4")
    near = worst((wrong * numpy.float32(1 + 1e-7)).tobytes(), wrong.tobytes(), "f32", {"f32": 1e-6, "absolute": 0})
    far = worst((wrong * numpy.float32(1.01)).tobytes(), wrong.tobytes(), "f32", {"f32": 1e-6, "absolute": 0})
    if not near <= 1 < far:
        failures.append(f"the comparison itself is broken: {near} and {far}")
    print(f"{'operation':28}{'programs':>9}{'forward':>10}{'gradient':>10}   (largest error / tolerance)")
    for name, row in rows.items():
        print(f"{name:28}{row['programs']:9}{row['forward']:10.3g}{row['gradient']:10.3g}"
              f"{'   FAILED' if row['failed'] else ''}")
    for name in sorted(set(CANCELS) - cancelled if whole else ()):
        failures.append(f"the slopes of {name} agree element by element: take it off CANCELS")
    for name in sorted(ON_HOST - on_host if whole else ()):
        failures.append(f"the plugin runs {name}: take it off ON_HOST")
    for name in sorted(set(UNNAMED) - refused if whole else ()):
        failures.append(f"the plugin runs {name}: take it off UNNAMED")
    if whole and newest and (narrow["equal"] < LEAST_NARROW or (narrow["refused"], narrow["wrong"]) != (len(NARROW_REFUSED), len(NARROW_WRONG))):
        failures.append(f"of the narrow types: {dict(narrow)}; at least {LEAST_NARROW} equal, {len(NARROW_REFUSED)} refused, {len(NARROW_WRONG)} wrong")
    ran = sum(row["programs"] for row in rows.values())
    # Nothing may be missing silently: every operation that has a C function, and both training steps.
    if whole:
        with open(pathlib.Path(os.environ["WEFT_SOURCE"]) / "include" / "c_api" / "ops.json", encoding="utf-8") as file:
            names = [op["c_name"] for op in json.load(file)["ops"] if op["exported"]]
        absent = [name for name in [*names, *CARRYING, "mlp_step", "cnn_step"] if name not in rows]
        if absent or not named > {"rng_bit_generator", "batch_norm_grad", "all_reduce", "dynamic_reshape"} or len(excused) != sum(len(types) for types, _ in differs(args.plugin).values()):
            failures.append(f"no program ran for {absent}; {len(excused)} excused; by their StableHLO names {sorted(named)}")
        if ran < LEAST_PROGRAMS or len(refused) > MOST_REFUSED * ran:
            failures.append(f"{ran} programs, at least {LEAST_PROGRAMS} are expected; {len(refused)} refused by their names")
    print(f"PJRT {args.plugin}: {len(rows)} operations, {ran} programs, {len(failures)} differences, {len(refused)} refused by their names, {len(excused)} excused:")
    if newest:
        print(f"  of the narrow types: {', '.join(f'{n} {what}' for what, n in sorted(narrow.items()))}")
    for stem, (types, reason) in differs(args.plugin).items():
        print(f"  {stem} of {', '.join(types)}: {reason}")
    for failure in failures[:20]:
        print(failure)
    sys.exit(1 if failures or dumped.returncode or not rows else 0)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", choices=xla_cpu.PLUGINS, default=xla_cpu.NEWEST)
    parser.add_argument("--every", type=int)
    parser.add_argument("only", nargs="*")
    given = parser.parse_args()
    given.every = given.every or (1 if given.only else 10)
    return given


if __name__ == "__main__":
    arguments = parse()
    xla_cpu.enter(__file__, arguments.plugin)
    main(arguments)
