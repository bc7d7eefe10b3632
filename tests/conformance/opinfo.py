"""PyTorch's operator database against Weft: every OpInfo operator with a counterpart here (mapping.py), all its samples, all
dtypes, gradients too.

usage: opinfo.py [--library FILE] [--only NAME[,NAME...]] [--faults FILE] [--table docs/conformance.md] [--fixture FILE]

  --faults    one line a sample that differs
  --table     rewrites the table between its marks
  --fixture   writes the representative samples that replay_test.py runs without PyTorch

PyTorch runs on the CPU. What is right is its result in float64 from the same inputs; 16-bit results may differ by PyTorch's
own error or by 0.51 units in the last place more than the f32 composite would, whichever is more. Exit code 1 where a sample
differs and is not refused by one of mapping.REFUSALS.
"""
import argparse
import collections
import os
import pathlib
import random
import sys
import time
import warnings

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db

import mapping
import mapping_elementwise  # noqa: F401, fills mapping.MAPPED
import mapping_formulas  # noqa: F401, as well
import mapping_images  # noqa: F401, as well
import mapping_linalg  # noqa: F401, as well
import mapping_layers  # noqa: F401, as well
import mapping_networks  # noqa: F401, as well
import mapping_places  # noqa: F401, as well
import mapping_sequences  # noqa: F401, as well
import tape as tapes
import weft

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DTYPES = (*FLOATS, torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8, torch.bool)
MOST = 120  # samples of one operator and dtype, drawn with a fixed seed: max_pool2d alone has 1,440


class Sample:
    """One call of PyTorch's: `result` in its own dtype, for mappings that need a shape."""

    def __init__(self, info, sample):
        self.info, self.name, self.variant = info, info.name, info.variant_test_name
        self.input, self.args, self.kwargs = sample.input, list(sample.args), dict(sample.kwargs)
        self._result = None

    def describe(self):
        def text(x):
            if isinstance(x, torch.Tensor):
                return f"{mapping.NAMES.get(x.dtype, x.dtype)}{list(x.shape)}"
            return f"[{', '.join(map(text, x))}]" if isinstance(x, (list, tuple)) else str(x).removeprefix("torch.")
        return ", ".join([text(self.input), *map(text, self.args), *[f"{k}={text(v)}" for k, v in self.kwargs.items()]])

    def run(self, dtype=None):
        """(results, {id of the sample's tensor: the one used}) with floats in `dtype`; None keeps them."""
        used = {}

        def change(x):
            if isinstance(x, torch.Tensor):
                if id(x) not in used:
                    y = x.detach().clone()
                    y = y.to(dtype) if dtype and y.is_floating_point() else y
                    used[id(x)] = y.requires_grad_(x.requires_grad)
                return used[id(x)]
            if isinstance(x, torch.dtype):
                return dtype if dtype and x.is_floating_point else x
            return type(x)(map(change, x)) if type(x) in (list, tuple) else x
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = self.info(change(self.input), *map(change, self.args), **{k: change(v) for k, v in self.kwargs.items()})
        return list(result) if isinstance(result, (list, tuple)) else [result], used

    @property
    def result(self):
        if self._result is None:
            result = self.run()[0]
            self._result = result[0] if len(result) == 1 and not self.listed else result
        return self._result

    listed = False  # results that are lists even of one


def rounded_arguments(sample, dtype):
    """Numbers among the arguments as the 16-bit type has them: Weft's are tensors of that type."""
    change = lambda x: float(torch.tensor(x, dtype=dtype)) if isinstance(x, float) else x
    sample.args = [change(a) for a in sample.args]
    sample.kwargs = {k: change(v) for k, v in sample.kwargs.items()}


def expectation(dtype, reference, own, own32, scale):
    """What is right, and how far each element may be from it. `reference`, `own` and `own32` are PyTorch's results in f64, in
    the dtype and in f32; `scale` is what cancels where numbers are summed, 0 where none are."""
    if dtype not in weft.FLOATS:
        return dtype, mapping.raw(reference), None
    right, mine = reference.detach().double().numpy(force=True), own.detach().double().numpy(force=True)
    with np.errstate(all="ignore"):
        if dtype == "f64":
            return dtype, right, np.where(np.isnan(right), 0, 1e-12 * np.abs(right) + 1e-13 * scale)
        error = tapes.error_of(dtype, mine, right)
        single = error if dtype == "f32" else tapes.error_of("f32", own32.detach().double().numpy(force=True), right)
        allowed = 2 * single + 4e-6 * np.abs(right) + 1e-6 * scale
        if dtype == "f32":
            # Where PyTorch's own f32 overflows or has lost itself, ours may have too.
            return dtype, right, np.where(np.isnan(right), 0, np.where(np.isnan(allowed), np.inf, allowed))
        allowed = np.fmax(error, 0.51 * weft.ulp(dtype, right) + allowed)
    return dtype, right, np.where(np.isnan(right), 0, np.where(np.isnan(error), np.inf, allowed))


def largest(tensor):
    finite = tensor.detach().double().abs()
    finite = finite[torch.isfinite(finite)]
    return float(finite.max()) if finite.numel() else 0.0


def make_case(name, sample, dtype):
    """The case of one sample. Raises mapping.Refused."""
    t = mapping.Writer()
    sample.listed = name.split("/")[0] in ("split", "unsafe_split", "chunk", "unsafe_chunk", "split_with_sizes", "split_with_sizes_copy",
                                           "tensor_split", "hsplit", "vsplit", "dsplit", "unbind", "unbind_copy", "broadcast_tensors")
    values = mapping.MAPPED[name](t, sample)
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    own, own_used = sample.run()
    reference, used = sample.run(torch.float64)
    single, single_used = sample.run(torch.float32) if dtype in (torch.float16, torch.bfloat16) else (own, own_used)
    if len(values) != len(own):
        raise AssertionError(f"{name}: {len(values)} values are mapped, PyTorch has {len(own)}")
    case = tapes.Case(f"{name}({sample.describe()})", name, t.tape)
    case.tape.outputs = [v.index for v in values]
    summed = name in mapping.SUMS
    for value, right, mine, mine32 in zip(values, reference, own, single):
        if not mine.is_floating_point():
            # Indices: PyTorch's i64 are our i32.
            right = right.to({"i32": torch.int32}.get(value.dtype, right.dtype)) if right.dtype == torch.int64 else right
        case.expected.append(expectation(value.dtype, right, mine, mine32, largest(right) if summed else 0.0))
    wanted = [(i, x) for i, x in enumerate(t.sources) if x is not None and x.requires_grad and x.is_floating_point()]
    if not wanted or t.no_gradient:
        return case
    for k, right in enumerate(reference):
        if not right.is_floating_point() or not right.requires_grad or values[k].dtype not in weft.FLOATS:
            continue
        generator = torch.Generator().manual_seed(k + 1)
        cotangent = torch.randn(right.shape, generator=generator, dtype=torch.float64).to(own[k].dtype)
        slopes = []
        for results, tensors in ((reference, used), (own, own_used), (single, single_used)):
            found = torch.autograd.grad(results[k], [tensors[id(x)] for _, x in wanted], cotangent.to(results[k].dtype),
                                        allow_unused=True, retain_graph=True)
            slopes.append([torch.zeros_like(tensors[id(x)]) if g is None else g for g, (_, x) in zip(found, wanted)])
        pairs = []
        for (i, x), right_slope, mine, mine32 in zip(wanted, *slopes):
            # Sums of thousands wander as far as the root of their number.
            terms = cotangent.numel() / max(1, right_slope.numel())
            scale = max(largest(cotangent) * (terms ** 0.5 if terms > 4096 else 1), largest(right_slope))
            pairs.append((i, expectation(mapping.NAMES[x.dtype], right_slope, mine, mine32, scale)))
        case.gradients.append((k, (values[k].dtype, mapping.raw(cotangent)), pairs))
    return case


def samples_of(info, dtype):
    torch.manual_seed(0)
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(info.sample_inputs("cpu", dtype, requires_grad=dtype.is_floating_point and info.supports_autograd))
    drawn = sorted(random.Random(0).sample(range(len(found)), min(MOST, len(found))))
    return [Sample(info, found[i]) for i in drawn]


class Row:
    def __init__(self):
        self.samples = self.equal = self.gradients = 0
        self.refused, self.faults = collections.Counter(), []


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--library", default=os.environ.get("WEFT_LIB"))
    parser.add_argument("--only", default="")
    for name in ("faults", "table", "fixture"):
        parser.add_argument("--" + name)
    options = parser.parse_args()
    weft.load(options.library)
    only = set(filter(None, options.only.split(",")))
    torch.set_num_threads(1)
    ctx, rows, kept, unable = weft.Context(), {}, [], 0
    started = time.monotonic()
    names = set()
    for info in op_db:
        name = info.name + ("/" + info.variant_test_name if info.variant_test_name else "")
        names.add(name)
        if name not in mapping.MAPPED or (only and name not in only):
            continue
        row = rows[name] = Row()
        for dtype in DTYPES:
            if dtype not in info.dtypes:
                continue
            for sample in samples_of(info, dtype):
                if dtype in (torch.float16, torch.bfloat16):
                    rounded_arguments(sample, dtype)
                try:
                    sample.run()
                except Exception:
                    unable += 1  # PyTorch itself does not take it (a dtype of a kernel)
                    continue
                row.samples += 1
                try:
                    case = make_case(name, sample, dtype)
                except mapping.Refused as refusal:
                    row.refused[refusal.reason] += 1
                    continue
                except Exception as error:
                    row.faults.append((f"{name}({sample.describe()})", [("not mapped", f"{type(error).__name__}: {error}")]))
                    continue
                row.gradients += bool(case.gradients)
                try:
                    faults = tapes.run(ctx, case)
                except weft.WeftError as error:
                    faults = [("refused", str(error))]
                if faults:
                    row.faults.append((case.name, faults))
                else:
                    row.equal += 1
                kept.append(case)
        if only or row.faults:
            print(f"{name}: {row.samples} samples, {row.equal} equal, {dict(row.refused)}, {len(row.faults)} faults", flush=True)
    missing = set(mapping.MAPPED) - names
    assert not missing or only, f"PyTorch has no {sorted(missing)}"
    report(rows, options, unable, time.monotonic() - started)
    if options.fixture:
        tapes.save(options.fixture, representative(kept))
    sys.exit(any(row.faults for row in rows.values()))


def representative(cases):
    """Small ones of every operator and dtype, of as many kinds of arguments as possible: floats have more."""
    groups = collections.defaultdict(list)
    for case in cases:
        elements = sum(raw.size for _, raw in case.tape.inputs) + sum(e[1].size for e in case.expected)
        if 0 < elements <= 1300:
            groups[case.operator, case.tape.inputs[0][0] if case.tape.inputs else ""].append(case)
    chosen = []
    for (_, dtype), group in groups.items():
        most = 6 if dtype in weft.FLOATS else 2
        chosen += group[::-(-len(group) // most)]
    return chosen


def report(rows, options, unable, seconds):
    total = Row()
    for row in rows.values():
        total.samples += row.samples
        total.equal += row.equal
        total.gradients += row.gradients
        total.refused += row.refused
        total.faults += row.faults
    print(f"{len(rows)} operators, {total.samples} samples ({total.gradients} with gradients), {total.equal} equal, "
          f"{sum(total.refused.values())} refused, {len(total.faults)} faults of {sum(bool(r.faults) for r in rows.values())} operators; "
          f"PyTorch {torch.__version__} itself does not take {unable} more; {seconds:.0f} s")
    if options.faults:
        with open(options.faults, "w", encoding="utf-8") as out:
            for name, row in rows.items():
                for case, faults in row.faults:
                    out.write(f"{case}\n" + "".join(f"    {where}: {text}\n" for where, text in faults))
    if options.table:
        path = pathlib.Path(options.table)
        before, _, rest = path.read_text(encoding="utf-8").partition("<!-- table -->\n")
        _, _, after = rest.partition("<!-- end of table -->\n")
        lines = [f"PyTorch {torch.__version__.split('+')[0]}: {len(rows)} operators, {total.samples} samples, {total.gradients} of them with "
                 f"gradients, {total.equal} equal, {sum(total.refused.values())} refused by name.\n\n",
                 "| operator | samples | equal | refused with reason |\n|---|---:|---:|---|\n"]
        for name, row in sorted(rows.items()):
            reasons = [f"{count} {reason}" for reason, count in sorted(row.refused.items())]
            reasons += [f"**{len(row.faults)} differ**"] if row.faults else []
            lines.append(f"| {name} | {row.samples} | {row.equal} | {', '.join(reasons)} |\n")
        lines.append("\n| reason | samples | what it stands for |\n|---|---:|---|\n")
        lines += [f"| {reason} | {total.refused[reason]} | {text} |\n" for reason, text in mapping.REFUSALS.items() if total.refused[reason]]
        path.write_text(f"{before}<!-- table -->\n{''.join(lines)}<!-- end of table -->\n{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
