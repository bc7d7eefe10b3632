// Many equal layers that are calls of one function compile like a few.
#include <gtest/gtest.h>

#include <cmath>

#include "src/autodiff/gradient.h"
#include "src/ir/rewrite.h"
#include "src/ops/build.h"
#include "src/passes/passes.h"
#include "tests/cpu/run_all.h"
#include "tests/support/control_programs.h"
#include "tests/support/cpu_under_test.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Function;
using ir::Type;
using ir::Value;
using test::MakeFunction;
using Vec = std::vector<Value>;

const Type kX = Type::Tensor(DType::kF32, {4, 8}), kWide = Type::Tensor(DType::kF32, {8, 16}), kNarrow = Type::Tensor(DType::kF32, {16, 8}),
           kRow = Type::Tensor(DType::kF32, {8});
constexpr size_t kWeights = 4;

Value Product(Builder& b, const Value& x, const Value& y) {
  const ir::Ints none, last = {1}, first = {0};
  return ops::Call(b, ops::kOp_dot_general, {x, y}, {none, none, last, first});
}

// x + gelu(normalized x w1) w2
Ref<const Function> Layer() {
  return ir::Intern(MakeFunction("layer", {kX, kRow, kRow, kWide, kNarrow}, [](Builder& b, const Vec& p) {
    const Value h = ops::Call(b, ops::kOp_layer_norm, {p[0], p[1], p[2]});
    return Vec{ops::Add(b, p[0], Product(b, ops::Unary(b, ops::kOp_gelu, Product(b, h, p[3])), p[4]))};
  }));
}

// The sum after so many layers and its gradients with respect to all weights.
Ref<const Function> Step(int layers) {
  const Ref<const Function> layer = Layer();
  std::vector<Type> types = {kX};
  for (int l = 0; l < layers; ++l) types.insert(types.end(), {kRow, kRow, kWide, kNarrow});
  return MakeFunction("main", types, [&](Builder& b, const Vec& p) {
    Value x = p[0];
    for (size_t l = 0; l < static_cast<size_t>(layers); ++l) {
      ir::Values operands = {x};
      operands.insert(operands.end(), p.begin() + static_cast<ptrdiff_t>(1 + l * kWeights), p.begin() + static_cast<ptrdiff_t>(1 + (l + 1) * kWeights));
      x = ops::Call(b, ops::kOp_call, std::move(operands), {}, {&layer, 1});
    }
    Vec results = {ops::Reduce(b, x, ops::Reducer::kSum, {0, 1})};
    auto grads = autodiff::Gradient(b, results[0], std::span(p).subspan(1));
    EXPECT_TRUE(grads.ok()) << grads.status();
    if (grads.ok()) results.insert(results.end(), grads->begin(), grads->end());
    return results;
  });
}

struct Counts {
  std::string functions;
  int64_t kernels, code_bytes, entries;
};
Counts CountsOf(int layers) {
  const std::unique_ptr<CpuBackend> owned = *test::NewCpuBackend({.threads = 1});
  CpuBackend& backend = *owned;
  const auto module = Prepared(backend, ir::CopyFunction(*Step(layers)));
  EXPECT_TRUE(module.ok()) << module.status();
  const auto executable = backend.Compile(*module, {});
  EXPECT_TRUE(executable.ok()) << executable.status();
  const ExecutableStats stats = (*executable)->stats();
  std::string functions;
  for (const Function* each : ir::CalleesFirst(module->main())) functions += each->name() + " ";
  return {std::move(functions), stats.kernels_compiled, stats.code_bytes, stats.kernels};
}

// The first layer has a backward step of its own (nobody asks for the gradient of what goes in), so two layers share none.
TEST(Layers, OfATrainingStepShareTheirKernels) {
  const Counts two = CountsOf(2);
  const Counts few = CountsOf(3), many = CountsOf(96);
  EXPECT_EQ(many.functions, "layer.forward layer.backward main ");
  EXPECT_EQ(many.functions, few.functions);
  EXPECT_EQ(many.kernels, few.kernels);
  EXPECT_EQ(many.code_bytes, few.code_bytes);
  EXPECT_LE(2 * many.kernels, 3 * two.kernels);
  EXPECT_LE(2 * many.code_bytes, 3 * two.code_bytes);
  EXPECT_GT(many.entries, 16 * few.entries);
}

TEST(Layers, HaveTheSameBitsCalledAndWrittenOut) {
  const Ref<const Function> step = Step(3);
  std::vector<HostTensor> arguments;
  for (const Value& parameter : step->parameters()) {
    HostTensor value(parameter.dtype(), parameter.dims());
    for (int64_t i = 0; i < value.count(); ++i) value.SetDouble(i, std::sin(static_cast<double>(i + static_cast<int64_t>(arguments.size()))) / 2);
    arguments.push_back(std::move(value));
  }
  const auto called = RunOnCpu(TestBackend(), ir::CopyFunction(*step), arguments);
  ir::Module module;
  module.functions.push_back(ir::CopyFunction(*step));
  const auto written = RunOnCpu(TestBackend(), passes::InlineCalls(*passes::MergeCalls(module, {}), {})->functions[0], arguments);
  ASSERT_TRUE(called.ok() && written.ok()) << called.status() << written.status();
  for (size_t i = 0; i < called->size(); ++i) {
    EXPECT_TRUE(std::ranges::equal((*called)[i].bytes(), (*written)[i].bytes())) << i;
  }
}

}  // namespace
}  // namespace weft::cpu
