"""Adds an operation to a copy of the tree: one new file and one list line, nothing else by hand
(a member of a family that shares a file adds its lines there instead of the new file).

The copy's operation table and the new file are compiled and linked before the build's own objects, then the
build's operation tests run on the larger table: shape rule, reference, expansion, scalar rule, finite
differences, vmap. A second copy with a wrong gradient must fail there. Then the generator runs in the copy: it changes these
committed files and no other, and what the build makes of them has the C function, too.

An operation with a kernel of the CPU is three new files and two list lines: its definition, what a node becomes, the kernel. The
build's CPU tests run it on every instruction set beside its reference; a second copy whose kernel is wrong must fail there.
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
NEW_FILE = "src/ops/nn/tanhgap.cc"
LIST = "src/ops/ops.list"
# The committed files that the generator changes for an operation, beside ops.json, which opdump writes.
MOVED = ("include/c_api/weft_api.json", "include/c_api/weft_ops.h", "include/c_api/weft_fluent.h",
         "docs/reference.md", "docs/operations.md", "docs/languages.md")
OPERATION = """\
// tanhgap: x - tanh(x).
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

constinit const OpDef kOp_tanhgap = {
    .name = "weft.tanhgap",
    .c_name = "tanhgap",
    .kind = Kind::kComposite,
    .doc = "What tanh takes away, x - tanh(x), elementwise.",
    .example = "y = wf_tanhgap(s, x);",
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

SPAN_FILE = "src/ops/reduce/span.cc"
SPAN_RULE = "src/backends/cpu/lower/lower_span.cc"
SPAN_KERNEL = "src/backends/cpu/launch/host_span.cc"
CPU_LIST = "src/backends/cpu/launch/operations.list"
SPAN = {SPAN_FILE: """\
// span: the distance between the largest and the smallest element of each row.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand of rank 2"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  if (x.rank() != 2) return UserError("x has rank ", x.rank(), "; it must have rank 2");
  results->push_back(Type::Tensor(x.dtype, {x.dims[0]}));
  return absl::OkStatus();
}

absl::Status Expansion(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  results[0] = Sub(b, Reduce(b, x, Reducer::kMax, {1}), Reduce(b, x, Reducer::kMin, {1}));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[3,5]"}, {"T[40,70]"}, {"T[1,1]"}};
constexpr Absent kAbsent[] = {{Part::kGradient, Reason::kExpands}, {Part::kReference, Reason::kExpands}, {Part::kStableHlo, Reason::kExpands}};

}  // namespace

constinit const OpDef kOp_span = {
    .name = "weft.span",
    .c_name = "span",
    .kind = Kind::kComposite,
    .doc = "The distance between the largest and the smallest element of each row.",
    .example = "y = wf_span(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = Infer,
    .expand = Expansion,
    .lowering = Lowering::kKernel,
    .samples = kSamples,
    .absent = kAbsent,
};

}  // namespace weft::ops
""", SPAN_RULE: """\
// The span of rows: one pass over memory.
#include "src/backends/cpu/lower/lowering.h"
#include "src/ops/registry.h"

namespace weft::cpu {
namespace {

bool Serves(const ir::Node& node, const CpuTarget&) { return node.type().dtype == DType::kF32; }

absl::Status Lower(Lowering& lowering, const ir::Node& node) {
  const ir::Value &x = node.operands()[0], result{Ref<const ir::Node>::Share(&node), 0};
  lowering.Host("span", {lowering.Of(x)}, {lowering.Define(result)}, {x.dims()[0], x.dims()[1]}, static_cast<double>(x.type().count()));
  return absl::OkStatus();
}

constexpr OpRule kRules[] = {{&ops::kOp_span, Lower, Serves}};

}  // namespace

std::span<const OpRule> SpanRules() { return kRules; }

}  // namespace weft::cpu
""", SPAN_KERNEL: """\
// The span of rows.
#include <algorithm>

#include "src/backends/cpu/launch/host_kernels.h"

namespace weft::cpu {
namespace {

absl::Status RunSpan(const HostCall& call) {
  const auto* x = static_cast<const float*>(call.buffers[0]);
  auto* y = static_cast<float*>(call.buffers[1]);
  for (int64_t row = 0; row < call.params[0]; ++row, x += call.params[1]) {
    float least = x[0], most = x[0];
    for (int64_t i = 1; i < call.params[1]; ++i) least = std::min(least, x[i]), most = std::max(most, x[i]);
    y[row] = SPAN_OF_ROW;
  }
  return absl::OkStatus();
}

constexpr HostKernel kKernels[] = {{"span", RunSpan}};

}  // namespace

std::span<const HostKernel> SpanHostKernels() { return kKernels; }

}  // namespace weft::cpu
"""}


def run(*args, **more):
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    return done.returncode, done.stdout


class AddOperation(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="weft-add-op.")
        self.tree = os.path.join(self.work, "tree")
        for top in ("src", "include", "bindings", "docs"):
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
            out.write("WEFT_OP(tanhgap)\n")

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

    def add_kernel(self, span):
        for path, text in SPAN.items():
            with open(os.path.join(self.tree, path), "w", encoding="utf-8") as out:
                out.write(text.replace("SPAN_OF_ROW", span))
        for path, line in ((LIST, "WEFT_OP(span)\n"), (CPU_LIST, "WEFT_CPU_BOTH(Span)\n")):
            with open(os.path.join(self.tree, path), "a", encoding="utf-8") as out:
                out.write(line)

    def kernel_test(self):
        """The exit status and text of the build's CPU test of the operation alone."""
        lower, launch = "src/backends/cpu/lower/", "src/backends/cpu/launch/"
        objects = [self.compile(path, like) for path, like in (
            (SPAN_FILE, "src/ops/nn/softplus.cc"), ("src/ops/registry.cc", "src/ops/registry.cc"),
            (SPAN_RULE, lower + "lower_running.cc"), (SPAN_KERNEL, launch + "host_running.cc"),
            (lower + "lower_ops.cc", lower + "lower_ops.cc"), (launch + "host_products.cc", launch + "host_products.cc"))]
        program = self.link("weft_test_cpu", objects)
        return run(program, "--gtest_filter=CpuOps.EverySample*", cwd=self.work, env={**os.environ, "WEFT_TEST_OP": "span"})

    def changed(self):
        """[(path, lines added, lines removed)] of the copy against the tree, without generated files."""
        found = []
        for top in ("src", "bindings/generate"):
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
        code, text = run(tests, cwd=self.work, env={**os.environ, "WEFT_TEST_OP": "tanhgap"})
        self.assertIn(code, (0, 1), text[-3000:])  # ran to its end
        self.assertNotIn("tanhgap", text, "the operation's own tests failed")
        # vmap of each operation in a vmap, and that none is left out.
        self.must(transforms, "--gtest_filter=Vmap.OfVmapOfEveryOperation:Vmap.IsTestedOfEveryOperation", cwd=self.work)

        with open(os.path.join(self.tree, "include/c_api/ops.json"), "w", encoding="utf-8") as out:
            out.write(self.must(dump))
        wrote = self.must(sys.executable, os.path.join(self.tree, "bindings/generate"))
        self.assertEqual(sorted("wrote " + path for path in MOVED), sorted(wrote.splitlines()))
        self.must(sys.executable, os.path.join(self.tree, "bindings/generate"), "--build", os.path.join(self.work, "built"))
        for top, path, text in ((self.tree, "include/c_api/weft_ops.h", "weft_tanhgap("),
                                (self.tree, "include/c_api/weft_fluent.h", "wf_tanhgap("),
                                (os.path.join(self.work, "built"), "pkgconfig/weft.map", "weft_tanhgap;")):
            with open(os.path.join(top, path), encoding="utf-8") as handle:
                self.assertIn(text, handle.read(), path)

    def test_a_kernel_of_the_cpu_is_three_files_and_two_list_lines(self):
        self.add_kernel("most - least")
        touched = self.changed()
        self.assertEqual(sorted([(path, True) for path in SPAN] + [(LIST, False), (CPU_LIST, False)]), [t[:2] for t in touched])
        self.assertEqual([(1, 0), (1, 0)], [t[2:] for t in touched if not t[1]])
        code, text = self.kernel_test()
        self.assertEqual(0, code, text[-3000:])

    def test_a_wrong_kernel_is_found_by_the_tests_that_come_with_it(self):
        self.add_kernel("most + least")
        code, text = self.kernel_test()
        self.assertNotEqual(0, code, "the kernel did not run, or nobody compared it")
        self.assertIn("span", text)

    def test_a_wrong_gradient_is_found_by_the_tests_that_come_with_it(self):
        self.add("Sub(b, x, y)")
        (tests,) = self.programs("weft_test_ops")
        code, text = run(tests, "--gtest_filter=*Gradient*", cwd=self.work, env={**os.environ, "WEFT_TEST_OP": "tanhgap"})
        self.assertNotEqual(0, code, "the finite differences took a wrong gradient for right")
        self.assertIn("tanhgap", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
