"""PyTorch's operator database against Weft: every OpInfo operator with a counterpart here (mapping.py), all its samples, all
dtypes, gradients too.

usage: opinfo.py [--library FILE] [--all] [--jobs N] [--only NAME[,NAME...]] [--faults FILE] [--resume FILE] [--table docs/conformance.md] [--fixture FILE]

  --all       every sample, not 120 of an operator and dtype, and every gradient of second order, not 8
  --faults    one line a sample that differs
  --resume    keeps what each operator gave in FILE: a run that was interrupted goes on, and operators that differed run again
  --table     rewrites the table between its marks
  --fixture   writes the representative samples that replay_test.py runs without PyTorch

PyTorch runs on the CPU. What is right is its result in float64 from the same inputs; 16-bit results may differ by PyTorch's
own error or by 0.51 units in the last place more than the f32 composite would, whichever is more. Exit code 1 where a sample
differs and is not refused by one of mapping.REFUSALS.
"""
import argparse
import collections
import contextlib
import dataclasses
import multiprocessing
import os
import pathlib
import pickle
import random
import sys
import time
import warnings
import zlib

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db

import mapping
import mapping_elementwise  # noqa: F401, fills mapping.MAPPED
import mapping_factors  # noqa: F401, as well
import mapping_formulas  # noqa: F401, as well
import mapping_images  # noqa: F401, as well
import mapping_linalg  # noqa: F401, as well
import mapping_layers  # noqa: F401, as well
import mapping_masked  # noqa: F401, as well
import mapping_native  # noqa: F401, as well
import mapping_networks  # noqa: F401, as well
import mapping_places  # noqa: F401, as well
import mapping_random  # noqa: F401, as well
import mapping_sequences  # noqa: F401, as well
import mapping_spectra  # noqa: F401, as well
import tape as tapes
import weft

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
COMPLEX = {torch.float64: torch.complex128, torch.float32: torch.complex64}
DTYPES = (*FLOATS, *COMPLEX.values(), torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8, torch.bool)
MOST = 120  # samples of one operator and dtype, drawn with a fixed seed: max_pool2d alone has 1,440
SECOND = 8  # of these with gradients of second order, in f64 and c128


class Sample:
    """One call of PyTorch's: `result` in its own dtype, for mappings that need a shape."""

    def __init__(self, info, sample):
        self.info, self.name, self.variant = info, info.name, info.variant_test_name
        self.input, self.args, self.kwargs = sample.input, list(sample.args), dict(sample.kwargs)
        self.process = sample.output_process_fn_grad if info.name in mapping.PROCESSED else lambda result: result
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
                    y = y.to(dtype) if dtype and self.name in mapping.WIDENED and not y.is_complex() else y
                    y = y.to(dtype) if dtype and y.is_floating_point() else y.to(COMPLEX[dtype]) if dtype and y.is_complex() else y
                    used[id(x)] = y.requires_grad_(x.requires_grad)
                return used[id(x)]
            if dtype and getattr(x, "acc_dtype", None):  # options of a product that is cut
                return dataclasses.replace(x, acc_dtype=None)
            if isinstance(x, torch.dtype):
                return dtype if dtype and x.is_floating_point else COMPLEX[dtype] if dtype and x.is_complex else x
            return type(x)(map(change, x)) if type(x) in (list, tuple) else x
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = self.process(self.info(change(self.input), *map(change, self.args), **{k: change(v) for k, v in self.kwargs.items()}))
        result = list(result) if isinstance(result, (list, tuple)) else [result]
        result = [r for x in result for r in (x if isinstance(x, (list, tuple)) else [x])]
        return [torch.as_tensor(r) if isinstance(r, (bool, int, float, complex)) else r for r in result], used

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


def plain(tensor):
    """As float64; both parts of complex ones along one axis more."""
    x = tensor.detach().resolve_conj()
    return (torch.view_as_real(x) if x.is_complex() else x).double().numpy(force=True)


def expectation(dtype, reference, own, own32, scale, second=False):
    """What is right, and how far each element may be from it. `reference`, `own` and `own32` are PyTorch's results in f64, in
    the dtype and in f32; `scale` is what cancels where numbers are summed, 0 where none are. Both parts of a complex number may
    be as far off as its size allows."""
    part = weft.PARTS.get(dtype, dtype)
    if part not in weft.FLOATS:
        return dtype, mapping.raw(reference), None
    right, mine = plain(reference), plain(own)
    with np.errstate(all="ignore"):
        both = (lambda x: np.broadcast_to(np.max(x, -1, keepdims=True), x.shape)) if dtype in weft.PARTS and right.size else (lambda x: x)
        size = both(np.minimum(np.abs(right), tapes.TOP[part]))
        exact = np.isnan(right) | np.isinf(right)  # an infinity, or NaN, is there or it isn't
        if part == "f64":
            relative, absolute = (1e-10, 1e-11) if second else (1e-12, 1e-13)
            return dtype, right, np.where(exact, 0, relative * size + absolute * scale)
        error = both(tapes.error_of(part, mine, right))
        single = error if part == "f32" else tapes.error_of("f32", plain(own32), right)
        allowed = 2 * single + 4e-6 * size + 1e-6 * scale
        if part == "f32":
            # Where PyTorch's own f32 overflows or has lost itself, ours may have too.
            return dtype, right, np.where(exact, 0, np.where(np.isnan(allowed), np.inf, allowed))
        allowed = np.fmax(error, 0.51 * weft.ulp(dtype, right) + allowed)
    return dtype, right, np.where(exact, 0, np.where(np.isnan(error), np.inf, allowed))


def largest(tensor):
    finite = tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64).abs()
    finite = finite[torch.isfinite(finite)]
    return float(finite.max()) if finite.numel() else 0.0


def make_case(name, sample, dtype, seconds):
    """The case of one sample, with gradients of gradients where asked for. Raises mapping.Refused."""
    t = mapping.Writer()
    sample.listed = name.split("/")[0] in ("split", "unsafe_split", "chunk", "unsafe_chunk", "split_with_sizes", "split_with_sizes_copy",
                                           "tensor_split", "hsplit", "vsplit", "dsplit", "unbind", "unbind_copy", "broadcast_tensors")
    values = mapping.MAPPED[name](t, sample)
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    own, own_used = sample.run()
    reference, used = (own, own_used) if name in mapping.OF_TYPES else sample.run(torch.float64)
    single, single_used = sample.run(torch.float32) if dtype in (torch.float16, torch.bfloat16) else (own, own_used)
    if len(values) != len(own):
        raise AssertionError(f"{name}: {len(values)} values are mapped, PyTorch has {len(own)}")
    case = tapes.Case(f"{name}({sample.describe()})", name, t.tape)
    case.shapes_only = t.no_values
    case.tape.outputs = [v.index for v in values]
    summed = name in mapping.SUMS
    for right, mine, mine32 in zip(reference, own, single):
        if t.no_values:
            case.expected.append((mapping.NAMES[mine.dtype], *any_values(mine)))
            continue
        expected = expectation(mapping.NAMES[mine.dtype], right, mine, mine32, largest(right) if summed else 0.0)
        if t.off and expected[2] is None:
            expected = (expected[0], plain(right), np.full(right.shape, t.off))
        if t.loose and expected[2] is not None:
            expected = (*expected[:2], np.where(np.isfinite(expected[1]), expected[2] + t.loose * np.maximum(np.abs(expected[1]), summed), expected[2]))
        if t.skipped is not None:
            expected = (*expected[:2], np.where(t.skipped.numpy(), np.inf, expected[2]))
        case.expected.append(expected)
    wanted = [(i, x) for i, x in enumerate(t.sources) if x is not None and x.requires_grad and differentiable(x)]
    if not wanted or t.no_gradient or t.no_values:
        return case
    for k, right in enumerate(reference):
        if not differentiable(right) or not right.requires_grad or (values[k].index[0] == "input" and t.sources[values[k].index[1]] is None):
            continue
        cotangent = drawn_like(right, k + 1).to(own[k].dtype)
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
        case.gradients.append((k, (mapping.NAMES[own[k].dtype], mapping.raw(cotangent)), pairs))
        if seconds and not t.no_second and all(x.dtype in (torch.float64, torch.complex128) for x in (own[k], *(x for _, x in wanted))):
            add_second(case, k, (mapping.NAMES[own[k].dtype], cotangent), reference[k], [(i, used[id(x)]) for i, x in wanted])
    return case


def differentiable(x):
    return x.is_floating_point() or x.is_complex()


def drawn_like(x, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(x.shape, generator=generator, dtype=torch.complex128 if x.is_complex() else torch.float64)


def any_values(tensor):
    shape = (*tensor.shape, 2) if tensor.is_complex() else tuple(tensor.shape)
    return np.zeros(shape), np.full(shape, np.inf)


def add_second(case, k, cotangent, result, wanted):
    """The gradients of output k's gradients, where PyTorch has any."""
    dtype, given = cotangent
    xs = [x for _, x in wanted]
    try:
        slopes = torch.autograd.grad(result, xs, given.to(result.dtype), allow_unused=True, retain_graph=True, create_graph=True)
    except RuntimeError:
        return
    first = [(i, g) for (i, _), g in zip(wanted, slopes) if g is not None and g.requires_grad]
    if not first:
        return
    pulls = [drawn_like(g, 100 + i) for i, g in first]
    try:
        found = torch.autograd.grad([g for _, g in first], xs, [u.to(g.dtype) for u, (_, g) in zip(pulls, first)], allow_unused=True, retain_graph=True)
    except RuntimeError:
        return  # no rule of second order, or random
    pairs = []
    for (i, x), right in zip(wanted, found):
        right = torch.zeros_like(x) if right is None else right
        scale = max(largest(right), largest(given), *map(largest, pulls))
        pairs.append((i, expectation(mapping.NAMES[x.dtype], right, right, right, scale, second=True)))
    case.seconds.append((k, (dtype, mapping.raw(given)), [(i, (mapping.NAMES[g.dtype], mapping.raw(u.to(g.dtype)))) for u, (i, g) in zip(pulls, first)], pairs))


def samples_of(info, dtype, most):
    torch.manual_seed(0)
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(info.sample_inputs("cpu", dtype, requires_grad=(dtype.is_floating_point or dtype.is_complex) and info.supports_autograd))
    drawn = sorted(random.Random(0).sample(range(len(found)), min(most, len(found))))
    return [Sample(info, found[i]) for i in drawn]


class Row:
    def __init__(self):
        self.samples = self.equal = self.gradients = self.seconds = self.shapes = self.unable = 0
        self.refused, self.faults = collections.Counter(), []

    def add(self, other):
        for name in ("samples", "equal", "gradients", "seconds", "shapes", "unable"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.refused += other.refused
        self.faults += other.faults


def run_sample(ctx, row, name, sample, dtype, second):
    """The case of one sample, counted in the row; None where there is none."""
    try:
        sample.run()
    except Exception:
        row.unable += 1  # PyTorch itself does not take it (a dtype of a kernel)
        return None
    row.samples += 1
    try:
        case = make_case(name, sample, dtype, second)
    except mapping.Refused as refusal:
        row.refused[refusal.reason] += 1
        return None
    except Exception as error:
        row.faults.append((f"{name}({sample.describe()})", [("not mapped", f"{type(error).__name__}: {error}")]))
        return None
    row.gradients += bool(case.gradients)
    row.seconds += bool(case.seconds)
    try:
        faults = tapes.run(ctx, case)
    except weft.WeftError as error:
        faults = [("refused", str(error))]
    if faults:
        row.faults.append((case.name, faults))
        return None
    row.equal += 1
    row.shapes += case.shapes_only
    return case


def run_operator(info, name, every):
    """(row, the cases for the fixture) of one operator, on a context of its own."""
    ctx, row, kept = weft.Context(), Row(), []
    for dtype in DTYPES:
        if dtype not in info.dtypes:
            continue
        second = 10 ** 9 if every else SECOND
        for sample in samples_of(info, dtype, 10 ** 9 if every else MOST):
            if dtype in (torch.float16, torch.bfloat16):
                rounded_arguments(sample, dtype)
            case = run_sample(ctx, row, name, sample, dtype, second > 0 and info.supports_gradgrad)
            if case is not None:
                second -= bool(case.seconds)
                kept.append(case)
    return row, representative(kept)


def full_name(info):
    return info.name + ("/" + info.variant_test_name if info.variant_test_name else "")


def work(task):
    number, every = task
    name = full_name(op_db[number])
    row, kept = run_operator(op_db[number], name, every)
    return name, row, kept


def finished(path):
    """{operator: (row, cases)} that an earlier run has kept."""
    done = {}
    if path and os.path.exists(path):
        with open(path, "rb") as file, contextlib.suppress(EOFError):
            while True:
                name, *found = pickle.load(file)
                done[name] = found
    return done


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--library", default=os.environ.get("WEFT_LIB"))
    parser.add_argument("--only", default="")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    for name in ("faults", "resume", "table", "fixture"):
        parser.add_argument("--" + name)
    options = parser.parse_args()
    weft.load(options.library)
    only = set(filter(None, options.only.split(",")))
    torch.set_num_threads(1)
    started, done = time.monotonic(), finished(options.resume)
    missing = set(mapping.MAPPED) - {full_name(info) for info in op_db}
    assert not missing, f"PyTorch has no {sorted(missing)}"
    names = {i: full_name(info) for i, info in enumerate(op_db) if full_name(info) in (only or mapping.MAPPED)}
    tasks = [(i, options.all) for i, name in names.items() if name not in done]
    faults = open(options.faults, "w", encoding="utf-8") if options.faults else None
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for name, row, cases in pool.imap_unordered(work, tasks):
            done[name] = row, cases
            if options.resume and not row.faults:
                with open(options.resume, "ab") as file:
                    pickle.dump((name, row, cases), file)
            if only or row.faults:
                print(f"{name}: {row.samples} samples, {row.equal} equal, {dict(row.refused)}, {len(row.faults)} faults", flush=True)
            for case, texts in row.faults if faults else []:
                faults.write(f"{case}\n" + "".join(f"    {where}: {text}\n" for where, text in texts))
                faults.flush()
    rows, kept = {name: done[name][0] for name in names.values()}, [case for name in names.values() for case in done[name][1]]
    report(rows, options, time.monotonic() - started)
    if options.fixture:
        tapes.save(options.fixture, kept)
    sys.exit(any(row.faults for row in rows.values()))


def representative(cases):
    """A small one of every operator in f32, one in f64 or c128, one in a 16-bit type and one of integers or bools, which the operator's
    name draws. All types of all operators would take 90 s to replay."""
    groups = collections.defaultdict(list)
    elements = lambda case: sum(raw.size for _, raw in case.tape.inputs) + sum(e[1].size for e in case.expected)
    least = min((n for case in cases if (n := elements(case)) > 0), default=0)
    for case in cases:
        if 0 < elements(case) <= max(600, least):  # an operator whose samples are all large has the smallest of them
            groups[case.operator, case.tape.inputs[0][0] if case.tape.inputs else ""].append(case)
    chosen = []
    for (operator, dtype), group in groups.items():
        family = next((f for f in (("f16", "bf16"), ("i8", "i16", "i32", "i64", "ui8", "i1"), ("f64", "complex<f64>")) if dtype in f), (dtype,))
        present = [d for d in family if (operator, d) in groups]
        if dtype == present[zlib.crc32(operator.encode()) % len(present)] and (dtype != "complex<f32>" or (operator, "f32") not in groups):
            chosen.append(group[0])
    return chosen


def report(rows, options, seconds):
    total = Row()
    for row in rows.values():
        total.add(row)
    print(f"{len(rows)} operators, {total.samples} samples ({total.gradients} with gradients, {total.seconds} of second order), {total.equal} equal, "
          f"{sum(total.refused.values())} refused, {len(total.faults)} faults of {sum(bool(r.faults) for r in rows.values())} operators; "
          f"PyTorch {torch.__version__} itself does not take {total.unable} more; {seconds:.0f} s")
    if options.table:
        path = pathlib.Path(options.table)
        before, _, rest = path.read_text(encoding="utf-8").partition("<!-- table -->\n")
        _, _, after = rest.partition("<!-- end of table -->\n")
        lines = [f"PyTorch {torch.__version__.split('+')[0]}: {len(rows)} operators of {len(op_db)}, {total.samples} samples, {total.gradients} of them with "
                 f"gradients, {total.seconds} with gradients of second order, {total.equal} equal ({total.shapes} of these by shape and type alone), "
                 f"{sum(total.refused.values())} refused by name.\n\n",
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
