"""The oracle outside: every operation, its gradient and whole training steps on a real XLA:CPU, through the PJRT backend.

weft_dump_programs runs the programs here and there; the plugin comes from the package registry into a virtual environment
of the build tree. Without the registry the test is SKIPPED and says so. Prints one row an operation.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import python_env  # noqa: E402

BUILD = pathlib.Path(os.environ["WEFT_BUILD"])
PACKAGES = ["lammps-jax-pjrt-cpu==0.11.2", "numpy"]
# NumPy's type of the same bytes.
TYPES = {"bool": "u1", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8",
         "f16": "f2", "f32": "f4", "f64": "f8", "bf16": "u2", "c64": "c8", "c128": "c16"}
# Complex numbers are judged part by part.
PARTS = {"c64": "f32", "c128": "f64"}

FLOATS, INTEGERS = ("f16", "bf16", "f32", "f64"), ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
# The closed list of cases that may differ, each with its reason; one that agrees again fails the test as well.
DIFFERS = {
    "maximum edges": (FLOATS, "XLA:CPU loses a NaN in the second operand, which StableHLO's maximum hands on"),
    "minimum edges": (FLOATS, "XLA:CPU loses a NaN in the second operand, which StableHLO's minimum hands on"),
    "pow edges": (INTEGERS[1:], "XLA:CPU looks at the low bits of an integer exponent only: 7^100 in i16 is 6753"),
}


# Every element is judged by its own size, but for slopes that are a small difference of what the tolerance is about; these
# also by a share of their largest element: {operation: (share, reason)}. A share that nothing needs fails the test.
CANCELS = {
    "gelu": (0.05, "near -3 the slope is the difference of Phi(x) and -x phi(x)"),
    "tanh": (0.2, "the slope 1 - y^2 where y is close to 1"),
}


# Operations whose StableHLO name this XLA:CPU does not run, and why; their expansions run all the same.
UNNAMED = {
    **{name: "its translator to HLO has none of it"
       for name in ("dynamic_conv", "dynamic_gather", "dynamic_pad", "real_dynamic_slice")},
    "collective_broadcast": "XLA:CPU does not support it",
}

# Operations that carry functions, whose programs are written by hand.
CARRYING = ("while", "case", "if", "map", "reduce_by", "reduce_window_by", "scatter_by", "select_and_scatter_by", "sort_by")


def excuse(name):
    stem, _, dtype = name.rpartition(" ")
    types, reason = DIFFERS.get(stem, ((), ""))
    return reason if dtype in types else ""


def main():
    import glob
    import importlib.util

    import numpy

    module = importlib.util.find_spec("lammps_jax_pjrt_cpu")
    plugin = glob.glob(module.submodule_search_locations[0] + "/*.so")[0]

    def decode(raw, dtype):
        array = numpy.frombuffer(raw, TYPES[dtype])
        if dtype in PARTS:
            return array.view(TYPES[PARTS[dtype]]).astype("f8")
        if dtype == "bf16":
            return (array.astype("u4") << 16).view("f4").astype("f8")
        return array.astype("f8") if dtype.startswith("f") else array

    def worst(found, expected, dtype, tolerance, part="forward", share=0.0):
        """Largest error over what is allowed; at most 1 passes."""
        a, b = decode(found, dtype), decode(expected, dtype)
        dtype = PARTS.get(dtype, dtype)
        if a.size == 0:
            return 0.0
        if "f" not in dtype:
            return 0.0 if numpy.array_equal(a, b) else float("inf")
        scale = {"f64": 1e-8, "bf16": 65536.0, "f16": 8192.0}.get(dtype, 1.0)
        # XLA contracts a*b+c and orders sums freely: what cancels there is inside the operation's absolute tolerance.
        relative = tolerance[dtype]
        if part == "edges":  # no sums here; XLA may take denormals for 0
            scale, tolerance = {"f64": 2.3e-308, "f16": 6.2e-5}.get(dtype, 1.2e-38), {"absolute": 1.0}
        with numpy.errstate(all="ignore"):
            allowed = tolerance["absolute"] * scale + relative * (abs(b) + share * numpy.max(abs(b[numpy.isfinite(b)]), initial=0))
        same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
        with numpy.errstate(all="ignore"):
            ratio = numpy.where(same, 0, abs(a - b) / allowed)
        return float(numpy.max(numpy.where(numpy.isnan(ratio), numpy.inf, ratio)))

    with tempfile.TemporaryDirectory() as folder:
        dumped = subprocess.run([str(BUILD / "bin" / "weft_dump_programs"), folder, plugin], capture_output=True, text=True)
        print(dumped.stderr, end="")
        cases = json.load(open(f"{folder}/cases.json"))
        tensors = numpy.memmap(f"{folder}/tensors.bin", "u1", "r") if os.path.getsize(f"{folder}/tensors.bin") else b""

        def raw(tensor):
            size = int(numpy.prod(tensor["dims"], dtype="i8")) * numpy.dtype(TYPES[tensor["dtype"]]).itemsize
            return tensors[tensor["offset"]:tensor["offset"] + size].tobytes() if size else b""

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
        only = sys.argv[2:]
        refused = set()
        for number, case in enumerate(cases):
            if only and case["op"] not in only and case["name"] not in only and not ("edges" in only and " edges " in case["name"]):
                continue
            row = rows.setdefault(case["op"], {"programs": 0, "forward": 0.0, "gradient": 0.0, "failed": 0})
            row["programs"] += 1
            before, earlier = len(failures), dict(row)
            with open(f"{folder}/{number}.mlir", encoding="utf-8") as file:
                text = file.read()
            compare(case, row, case["found"], text)
            # StableHLO's own operation, where what ran is what it expands to.
            if case["op"] in UNNAMED and isinstance(case.get("found_named"), str):
                refused.add(case["op"])
            elif case["named"]:
                compare(case, row, case["found_named"], text)
                named.add(case["op"])
            if excuse(case["name"]):
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
    for name in sorted(set(CANCELS) - cancelled if not only else ()):
        failures.append(f"the slopes of {name} agree element by element: take it off CANCELS")
    for name in sorted(set(UNNAMED) - refused if not only else ()):
        failures.append(f"the plugin runs {name}: take it off UNNAMED")
    # Nothing may be missing silently: every operation that has a C function, and both training steps.
    if not only:
        with open(pathlib.Path(os.environ["WEFT_SOURCE"]) / "include" / "c_api" / "ops.json", encoding="utf-8") as file:
            names = [op["c_name"] for op in json.load(file)["ops"] if op["exported"]]
        absent = [name for name in [*names, *CARRYING, "mlp_step", "cnn_step"] if name not in rows]
        if absent or not named > {"rng_bit_generator", "batch_norm_grad", "all_reduce", "dynamic_reshape"} or len(excused) != sum(len(types) for types, _ in DIFFERS.values()):
            failures.append(f"no program ran for {absent}; {len(excused)} excused; by their StableHLO names {sorted(named)}")
    print(f"{len(rows)} operations, {sum(r['programs'] for r in rows.values())} programs, {len(failures)} differences, "
          f"{len(excused)} excused:")
    for stem, (types, reason) in DIFFERS.items():
        print(f"  {stem} of {', '.join(types)}: {reason}")
    for failure in failures[:20]:
        print(failure)
    sys.exit(1 if failures or dumped.returncode or not rows else 0)


if __name__ == "__main__":
    python_env.enter("oracle", PACKAGES, os.path.abspath(__file__), "--no-deps")
    main()
