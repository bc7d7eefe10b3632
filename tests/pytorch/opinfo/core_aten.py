"""PyTorch/XLA's own test of the core operators, by hand on a public checkout of it: torch's CPU beside the device xla.

usage: core_aten.py CHECKOUT/test/test_core_aten_ops.py [--json FILE] [--only NAME]

The file is not changed. What it does with an operator (`run_export_and_compare`) is answered here: it compares with its own bounds,
and says whether the device computed everything (native) or torch did something on the host. The export to StableHLO that
follows there is a later issue's. Prints a table and fails where a result is wrong or an operator raises.
"""

import argparse
import collections
import importlib.util
import json
import pathlib
import sys
import types
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bindings" / "pytorch"))

import torch  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import torch_xla  # noqa: E402
import torch_xla._weft as core  # noqa: E402


def load(path):
    """The file as a module. It imports the exporter, which is not there yet: a module without effect stands in for the import."""
    exporter = types.ModuleType("torch_xla.stablehlo")
    exporter.exported_program_to_stablehlo = None
    sys.modules["torch_xla.stablehlo"] = exporter
    spec = importlib.util.spec_from_file_location("test_core_aten_ops", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def judge(module, found):
    def run(test, function, args, kwargs, atol=1e-3, rtol=1e-5, equal_nan=True):
        name = test.id().rpartition(".")[2]
        expected = function(*args, **kwargs)
        move = lambda value: value.to(torch_xla.device())  # noqa: E731
        core.clear_counters()
        try:
            moved = pytree.tree_map_only(torch.Tensor, move, (args, kwargs))
            actual = function(*moved[0], **moved[1])
        except Exception as error:  # noqa: BLE001
            found[name] = ("raises", f"{type(error).__name__}: {error}")
            return
        try:
            module.diff_output(test, expected, actual, rtol=rtol, atol=atol, equal_nan=equal_nan)
        except Exception as error:  # noqa: BLE001
            found[name] = ("wrong", str(error))
            return
        hosted = sorted(counter for counter in core.counters() if counter.startswith("aten::"))
        found[name] = ("host", " ".join(hosted)) if hosted else ("native", "")

    module.run_export_and_compare = run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="test/test_core_aten_ops.py of a checkout of PyTorch/XLA")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--only", default="", metavar="NAME", help="tests whose name has this in it")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    module, found = load(options.file), {}
    judge(module, found)
    suite = unittest.TestLoader().loadTestsFromModule(module)
    chosen = unittest.TestSuite(test for each in suite for test in each if options.only in test.id())
    result = unittest.TextTestRunner(verbosity=0, stream=sys.stderr).run(chosen)
    for test, trace in result.errors + result.failures:
        found[test.id().rpartition(".")[2]] = ("raises", trace.strip().splitlines()[-1])
    counts = collections.Counter(kind for kind, _ in found.values())
    print("| tests | skipped there | native | host | wrong | raise |\n|---|---|---|---|---|---|")
    print(f"| {result.testsRun} | {len(result.skipped)} | {counts['native']} | {counts['host']} | {counts['wrong']} | {counts['raises']} |")
    for kind in ("host", "wrong", "raises"):
        for name, (of, text) in found.items():
            if of == kind:
                print(f"{kind}: {name}: {text[:160]}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1))
    return 1 if counts["wrong"] or counts["raises"] or not found else 0


if __name__ == "__main__":
    sys.exit(main())
