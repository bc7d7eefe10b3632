"""Adds an operation to a copy of the tree: one new file and one list line, nothing else by hand
(a member of a family that shares a file adds its lines there instead of the new file).

The copy's operation table and the new file are compiled and linked before the build's own objects, then the
build's operation tests run on the larger table: shape rule, reference, expansion, scalar rule, finite
differences, vmap. A second copy with a wrong gradient must fail there. Then the generator runs in the copy and
the C function must be in the header, the fluent layer and the version script.
"""
import difflib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
BUILD = os.environ["WEFT_BUILD"]
NEW_FILE = "src/ops/nn/tanhshrink.cc"
LIST = "src/ops/ops.list"
OPERATION = """\
// tanhshrink: x - tanh(x).
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};

Value Derivative(Builder& b, const Value& x, const Value& y) { return DERIVATIVE; }

Value Expansion(Builder& b, const Value& x) { return Sub(b, x, Unary(b, kOp_tanh, x)); }

ScalarValue LowerScalar(const ScalarCall& call) {
  const ScalarValue& x = call.operands[0];
  return call.b.Binary(ScalarOp::kSub, x, call.b.Unary(ScalarOp::kTanh, x));
}

double Double(double x) { return x - std::tanh(x); }

constexpr auto kSamples = UnarySamples(-4, 4);

}  // namespace

constinit const OpDef kOp_tanhshrink = {
    .name = "weft.tanhshrink",
    .c_name = "tanhshrink",
    .kind = Kind::kComposite,
    .doc = "What tanh takes away, x - tanh(x), elementwise.",
    .example = "y = wf_tanhshrink(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = {.f32 = 2e-6, .f64 = 2e-14, .bf16 = 3e-2, .f16 = 4e-3, .absolute = 1e-6},
    .absent = kPointwiseAbsent,
    .cost = Cost::kFunction,
};

}  // namespace weft::ops
"""


def run(*args, **more):
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    return done.returncode, done.stdout


class AddOperation(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="weft-add-op.")
        self.tree = os.path.join(self.work, "tree")
        for top in ("src", "include", "pkgconfig", "tests/abi", "docs"):
            shutil.copytree(os.path.join(SOURCE, top), os.path.join(self.tree, top))
        with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as handle:
            self.commands = {os.path.relpath(e["file"], SOURCE): e["command"] for e in json.load(handle)}

    def tearDown(self):
        shutil.rmtree(self.work)

    def must(self, *args, **more):
        code, text = run(*args, **more)
        self.assertEqual(0, code, f"{' '.join(args)[:300]}:\n{text[-3000:]}")
        return text

    def add(self, derivative):
        with open(os.path.join(self.tree, NEW_FILE), "w", encoding="utf-8") as out:
            out.write(OPERATION.replace("DERIVATIVE", derivative))
        with open(os.path.join(self.tree, LIST), "a", encoding="utf-8") as out:
            out.write("WEFT_OP(tanhshrink)\n")

    def compile(self, path, like):
        """The object of a file of the copy, by the command of a file of the build."""
        out = os.path.join(self.work, os.path.basename(path) + ".o")
        command = self.commands[like].split()
        command = command[:command.index("-o")]
        if "-include" in command:  # the build's precompiled header holds the tree's list, not the copy's
            at = command.index("-include")
            del command[at:at + 2]
        command += ["-iquote", self.tree, "-c", os.path.join(self.tree, path), "-o", out]
        self.must(*[arg.replace('\\"', '"') for arg in command], cwd=BUILD)
        return out

    def link(self, program, objects):
        """A program of the build, with objects that come before what its archives hold."""
        out = os.path.join(self.work, program)
        command = self.must("ninja", "-C", BUILD, "-t", "commands", "-s", f"bin/{program}").splitlines()[-1]
        command = command.split("&&")[1].split()
        at = command.index("-o")
        command = command[:at] + objects + ["-o", out] + command[at + 2:]
        self.must(*command, cwd=BUILD)
        return out

    def programs(self, *names):
        objects = [self.compile(NEW_FILE, "src/ops/nn/softplus.cc"), self.compile("src/ops/registry.cc", "src/ops/registry.cc")]
        return [self.link(name, objects) for name in names]

    def changed(self):
        """[(path, lines added, lines removed)] of the copy against the tree, without generated files."""
        found = []
        for top in ("src", "include/c_api/api.json"):
            roots = os.walk(os.path.join(self.tree, top)) if os.path.isdir(os.path.join(self.tree, top)) else []
            for root, _, names in roots:
                for name in names:
                    new = os.path.join(root, name)
                    old = os.path.join(SOURCE, os.path.relpath(new, self.tree))
                    before = open(old, encoding="utf-8").read().splitlines() if os.path.exists(old) else None
                    after = open(new, encoding="utf-8").read().splitlines()
                    if before == after:
                        continue
                    diff = list(difflib.ndiff(before or [], after))
                    found.append((os.path.relpath(new, self.tree), before is None,
                                  sum(d.startswith("+ ") for d in diff), sum(d.startswith("- ") for d in diff)))
        return sorted(found)

    def test_one_file_and_one_list_line_are_enough(self):
        self.add("Square(b, Sub(b, x, y))")
        touched = self.changed()
        self.assertEqual([(NEW_FILE, True), (LIST, False)], [t[:2] for t in touched])
        self.assertEqual((1, 0), touched[1][2:])

        tests, transforms, dump = self.programs("weft_test_ops", "weft_test_transforms", "opdump")
        code, text = run(tests, cwd=self.work)
        self.assertIn(code, (0, 1), text[-3000:])  # ran to its end
        self.assertNotIn("tanhshrink", text, "the operation's own tests failed")
        # vmap of each operation in a vmap, and that none is left out.
        self.must(transforms, "--gtest_filter=Vmap.OfVmapOfEveryOperation:Vmap.IsTestedOfEveryOperation", cwd=self.work)

        with open(os.path.join(self.tree, "include/c_api/ops.json"), "w", encoding="utf-8") as out:
            out.write(self.must(dump))
        self.must(sys.executable, os.path.join(self.tree, "include/c_api/generate.py"))
        for path, text in (("include/c_api/weft_ops.h", "weft_tanhshrink("),
                           ("include/c_api/weft_fluent.h", "wf_tanhshrink("),
                           ("pkgconfig/weft.map", "weft_tanhshrink;")):
            with open(os.path.join(self.tree, path), encoding="utf-8") as handle:
                self.assertIn(text, handle.read(), path)

    def test_a_wrong_gradient_is_found_by_the_tests_that_come_with_it(self):
        self.add("Sub(b, x, y)")
        (tests,) = self.programs("weft_test_ops")
        code, text = run(tests, "--gtest_filter=*Gradient*", cwd=self.work)
        self.assertNotEqual(0, code, "the finite differences took a wrong gradient for right")
        self.assertIn("tanhshrink", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
