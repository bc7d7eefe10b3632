"""Every operation that Weft's reader of StableHLO takes, in programs of their own (interpreter_*.py): run by Weft and by StableHLO's own
interpreter, the results compared. Integers, bools and what only moves or rounds once are equal, floats within a bound of their type
and of each element, NaN and the signs of zeros in the same places. Where the interpreter gives nothing, XLA:CPU judges.

    python tests/harness/interpreter_test.py [--all] [--only PART] [--table FILE]

Wants WEFT_SOURCE, WEFT_BUILD and WEFT_LIB in the environment; installs jax into <build>/venv-harness. Takes a part of the programs,
the same ones every time; --all takes every one, and lets Weft run what it writes of each as well. What differs or is judged by nobody
stands in a closed list with its reason: what is listed and agrees again fails the test, as does an operation that no program is about.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import interpreter_chlo  # noqa: E402
import interpreter_elements  # noqa: E402
import interpreter_products  # noqa: E402
import interpreter_refused  # noqa: E402
import interpreter_regions  # noqa: E402
import interpreter_shapes  # noqa: E402
from interpreter_values import SHOWN  # noqa: E402
from judges import interpreter, xla_cpu  # noqa: E402
from outcomes import BOUNDS, BUILD, Runner, difference, enter  # noqa: E402
from round_trip import Reader  # noqa: E402

MAKERS = interpreter_chlo, interpreter_elements, interpreter_shapes, interpreter_regions, interpreter_products
ONE_OF = 4  # of the programs of each operation, without --all

# Programs, by a pattern of their names, where the interpreter gives something else, and why Weft does not follow. What XLA:CPU must
# then agree with is in the first table, and where it too gives something else in the second.
DIFFERS = {
    r"log_plus_one complex<f\d+> edges": "adds 1 to -2.25 - 0i as if the zero had no sign, and is on the other side of the cut",
    r"power complex<f\d+> zeros": "zero to the power of zero is 1",
    r"(compare|sort (?!bf16 GT)).* TOTALORDER": "takes no notice of TOTALORDER",
    r"chlo.top_k .* edges": "takes no notice of TOTALORDER, and of NaN in no order",
    r"dynamic_(update_)?slice .* beyond (a signed range|every unsigned size)": "reads unsigned indices as signed ones",
}
ALONE = {
    r"chlo.lgamma (bf16|f32) edges": "the expansion misses the zeros at 1 and 2 by a few last places of its terms",
    r"chlo.lgamma f64 edges": "the expansion says 744.486 of 5e-324, whose logarithm is -744.440",
    r"atan2 complex<f\d+> edges": "the expansion loses the sign of a zero, which says on what side of a cut a quotient is",
    r"chlo.a(cos|cosh|sin|sinh) complex<f\d+> edges": "the expansion loses the sign of a zero, which says on what side of a cut a number is (C, annex G)",
}
# The functions of LAPACK that JAX calls, each with the letters of its types.
LAPACK = [letter + name for name in ("geev", "geqrf", "gesdd", "getrf", "potrf", "trsm") for letter in "sdcz"] + [
    "sorgqr", "dorgqr", "cungqr", "zungqr", "ssyevd", "dsyevd", "cheevd", "zheevd"]
# Read, but what they give no other program can say.
ELSEWHERE = {
    "stablehlo.custom_call": "calls a function of this process, which others do not have: tests/c_api/custom.c",
    "stablehlo.custom_call @weft.matrix_factors": "calls LAPACK, which others do not have by this name: tests/stablehlo/round_trip_test.cc",
    **{f"stablehlo.custom_call @lapack_{name}_ffi": "vectors have a sign to choose: lapack_calls_test.py" for name in LAPACK},
    "stablehlo.rng": "draws from the generator of the context: functions_random.c computes the numbers by hand",
}
# Operations that neither runs; what they give is the program's own to say.
UNJUDGED = {
    "stablehlo.collective_broadcast": "the interpreter has it between processes only, XLA:CPU not at all",
    "stablehlo.custom_call @xla.sdy.FuncResultSharding": "the interpreter has no custom calls, XLA:CPU aborts on this one",
    "sdy.manual_computation": "both read it after Shardy's passes only",
}


def wrong_signs(found, expected):
    """Whether a zero has another sign, in words, or nothing."""
    import numpy
    for number, (x, y) in enumerate(zip(found, expected, strict=True)):
        for a, b in [(x.real, y.real), (x.imag, y.imag)] if x.dtype.kind == "c" else [(x, y)] * (x.dtype.kind not in "iub"):
            wrong = (a == 0) & (b == 0) & (numpy.signbit(a) != numpy.signbit(b))
            if wrong.any():
                return f"result {number} has another sign of zero at {int(wrong.sum())} of {wrong.size}, first at {int(numpy.flatnonzero(wrong)[0])}"
    return ""


def compare(program, found, expected):
    """What is wrong, or nothing."""
    if program.exact:
        return difference(found, expected, program.text, {}) or wrong_signs(found, expected)
    found, expected = ([without_subnormals(x) for x in results] for results in (found, expected))
    return difference(found, expected, program.text, {kind: program.slack * bound for kind, bound in BOUNDS.items()}, program.share)


def without_subnormals(x):
    """Functions may take what is smaller than the smallest normal number for zero."""
    import ml_dtypes
    import numpy
    if x.dtype.kind in "iub":
        return x
    tiny = float(ml_dtypes.finfo(x.real.dtype).tiny)
    if x.dtype.kind == "c":
        parts = numpy.stack([x.real, x.imag], -1)
        return numpy.where(abs(parts) < tiny, x.real.dtype.type(0), parts).view(x.dtype)[..., 0]
    return numpy.where(abs(x.astype("f8")) < tiny, x.dtype.type(0), x)


def reason_in(table, name):
    return next((reason for pattern, reason in table.items() if re.fullmatch(pattern, name)), "")


class Judges:
    def __init__(self, everything):
        self.interpreter, self.xla, self.runner, self.reader = interpreter(), xla_cpu(), Runner(), Reader()
        self.everything = everything

    def close(self):
        self.interpreter.close()
        self.xla.close()
        self.reader.close()

    def judge(self, program):
        """(who judged it, what is wrong or nothing)"""
        case = {"text": program.text, "inputs": program.inputs}
        stage, found = self.runner.run(case)
        if stage != "ok":
            return "nobody", f"{stage}: {found}"
        outcome, written = self.reader.run(program.text)
        if outcome != "read":
            return "nobody", f"{outcome}: {written}"
        if self.everything:
            stage, again = self.runner.run({**case, "text": written})
            wrong = f"{stage}: {again}" if stage != "ok" else compare(program, again, found)
            if wrong:
                return "nobody", f"what was written: {wrong}\n{written}"
        return self.compared(program, found)

    def refusal(self, name, text, words):
        """What is wrong with Weft's refusal of a text, or nothing."""
        outcome, said = self.reader.run(text)
        return "" if outcome == "refused" and words in said else f"{name}: {outcome}, without {words}: {said[:300]}"

    def compared(self, program, found):
        expected, why = self.interpreter.run(program.text, program.inputs)
        listed, alone = reason_in(DIFFERS, program.name), reason_in(ALONE, program.name)
        if expected is not None:
            wrong = compare(program, found, expected)
            if not listed and not alone:
                return "interpreter", wrong
            if not wrong:
                return "interpreter", "agrees with the interpreter: it must leave the list"
            if alone:
                return "interpreter", ""
        expected, whynot = self.xla.run(program.text, program.inputs)
        if expected is not None:
            return "XLA:CPU", compare(program, found, expected)
        if program.operation in UNJUDGED and program.expected is not None:
            return "nobody", compare(program, found, program.expected)
        return "nobody", f"the interpreter: {why[:300]}\nXLA:CPU: {whynot[:300]}"


def chosen(programs, args):
    """All, or of each operation one in so many: those whose names have the smallest sums, so that a new program moves few others."""
    by_operation = collections.defaultdict(list)
    for program in programs:
        if args.only in program.name:
            by_operation[program.operation].append(program)
    return [p for group in by_operation.values() for p in sorted(group, key=lambda p: p.seed)[:None if args.all or args.only else -(-len(group) // ONE_OF)]]


def operations():
    """What the reader takes, as it says itself."""
    said = subprocess.run([str(BUILD / "bin" / "weft_dump_outcomes"), "operations"], capture_output=True, text=True, check=True)
    return set(said.stdout.splitlines())


def table(counts):
    lines = ["| operation | interpreter | XLA:CPU |", "|---|---:|---:|"]
    return "\n".join(lines + [f"| {name} | {by['interpreter']} | {by['XLA:CPU']} |" for name, by in sorted(counts.items())]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="", help="programs whose names hold this")
    parser.add_argument("--table", type=pathlib.Path)
    args = parser.parse_args()
    programs = [p for maker in MAKERS for p in maker.programs()]
    names = collections.Counter(p.name for p in programs)
    failures = [f"{name}: {count} programs have this name" for name, count in names.items() if count > 1]
    failures += [f"{p.name}: the program has no {p.operation}" for p in programs if re.search(r"[\w.]+$", p.operation)[0].removeprefix("func.") not in p.text]
    known, about = operations(), {p.operation for p in programs}
    failures += [f"{name}: no program is about it" for name in sorted(known - about - set(ELSEWHERE))]
    failures += [f"{name}: must leave the list of what is tested elsewhere" for name in sorted(about & set(ELSEWHERE) | set(ELSEWHERE) - known)]
    failures += [f"{name}: the reader does not know it" for name in sorted(about - known)]
    for entries in (DIFFERS, ALONE):
        failures += [f"{pattern}: is listed and no program's name" for pattern in entries if not any(re.fullmatch(pattern, name) for name in names)]
    judges, counts, totals = Judges(args.all), collections.defaultdict(collections.Counter), collections.Counter()
    for program in chosen(programs, args):
        who, wrong = judges.judge(program)
        if not wrong and who != "nobody" and program.operation in UNJUDGED:
            wrong = f"is judged by {who}: it must leave the list"
        if wrong:
            failures.append(f"{program.name}, {who}: {wrong}\n{program.text if len(program.text) < SHOWN else ''}")
        counts[program.operation][who] += 1
        totals[who] += 1
    turned_away = list(interpreter_refused.refused())
    failures += [wrong for name, text, words in turned_away if (wrong := judges.refusal(name, text, words))]
    judges.close()
    print("\n".join(failures))
    if args.table:
        args.table.write_text(table(counts), encoding="utf-8")
    print(f"{sum(totals.values())} of {len(programs)} programs of {len(about)} operations: {totals['interpreter']} judged by StableHLO's interpreter, "
          f"{totals['XLA:CPU']} by XLA:CPU, {totals['nobody']} by nobody; {len(turned_away)} texts refused; {len(failures)} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    enter(__file__)
    sys.exit(main())
