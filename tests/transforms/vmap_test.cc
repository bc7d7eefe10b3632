// vmap of every operation, of control flow and of what draws, against one example after the other on the reference interpreter.
#include "src/transforms/vmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "src/autodiff/gradient.h"
#include "src/backends/reference/interpreter.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/ops/batching.h"
#include "src/ops/random/bits.h"
#include "src/ops/registry.h"
#include "tests/support/body_programs.h"
#include "tests/support/control_programs.h"
#include "tests/support/op_programs.h"
#include "tests/support/seeds.h"
#include "tests/transforms/examples.h"

namespace weft::transforms {
namespace {

using ::testing::HasSubstr;
using ir::Function;
using ir::Type;
using ir::Value;
using test::Tensors;

// The elements so many places further on, at the end from the beginning again.
HostTensor Turned(const HostTensor& x, int64_t by) {
  HostTensor turned(x.dtype(), x.dims());
  for (int64_t i = 0; i < x.count(); ++i) ops::CopyElement(x, (i + by) % x.count(), turned, i);
  return turned;
}

constexpr int64_t kSize = 3;

// The inputs, turned from example to example.
std::vector<Tensors> Examples(const test::OpProgram& program, int64_t size) {
  const bool turns = program.group != "cholesky" && program.group != "triangular_solve";  // of matrices that have factors
  std::vector<Tensors> examples(size);
  for (int64_t e = 0; e < size; ++e) {
    for (const HostTensor& input : program.inputs) examples[e].push_back(turns ? Turned(input, e) : input);
  }
  return examples;
}

// vmap with these axes, of inputs of which those that are mapped differ from example to example, beside each example by itself.
void Agrees(const test::OpProgram& program, std::span<const int64_t> in_axes, int64_t out_axis, std::vector<std::string_view>* loops) {
  test::ExpectAsALoop(program.module.main(), Examples(program, kSize), in_axes, out_axis, program.tolerance, loops);
}

// All inputs mapped; each alone, along its last axis.
void AgreesAllWays(const test::OpProgram& program, std::vector<std::string_view>* loops, int* cases) {
  const size_t inputs = program.module.main().parameters().size();
  if (inputs == 0) return;
  SCOPED_TRACE(program.name);
  Agrees(program, std::vector<int64_t>(inputs, 0), 0, loops);
  ++*cases;
  for (size_t i = 0; i < inputs && inputs > 1; ++i) {
    SCOPED_TRACE(absl::StrCat("input ", i, " alone"));
    std::vector<int64_t> axes(inputs, kNotMapped);
    axes[i] = -1;
    Agrees(program, axes, -1, nullptr);
    ++*cases;
  }
}

TEST(Vmap, OfEveryOperationAndItsGradient) {
  const auto programs = test::OpPrograms(/*all_types=*/true);
  ASSERT_TRUE(programs.ok()) << programs.status();
  std::vector<std::string_view> loops;
  int cases = 0;
  for (size_t i = 0; i < programs->size(); i += test::kOneCaseIn) AgreesAllWays((*programs)[i], &loops, &cases);
  EXPECT_GE(cases, 5000 / static_cast<int>(test::kOneCaseIn));
  // Nothing goes over its examples one after the other.
  EXPECT_THAT(std::set<std::string_view>(loops.begin(), loops.end()), ::testing::IsEmpty());
}

// Two samples of each in a vmap of a vmap, beside the inner one in a loop.
TEST(Vmap, OfVmapOfEveryOperation) {
  const auto programs = test::OpPrograms();
  ASSERT_TRUE(programs.ok()) << programs.status();
  std::vector<std::string_view> loops;
  std::map<std::string, int> seen;
  for (const test::OpProgram& program : *programs) {
    const Function& one = program.module.main();
    const size_t inputs = one.parameters().size();
    if (inputs == 0 || ++seen[program.group] > 2) continue;
    SCOPED_TRACE(program.name);
    const std::vector<int64_t> in_axes(inputs, 0), last(inputs, -1), out_axes(one.results().size(), -1);
    const auto inner = Vmap({.function = one, .size = 2, .in_axes = in_axes, .out_axes = out_axes}, &loops);
    ASSERT_TRUE(inner.ok()) << inner.status();
    test::OpProgram many = program;
    many.module.functions = {*inner};
    const std::vector<Tensors> examples = Examples(program, 2);
    for (size_t i = 0; i < inputs; ++i) many.inputs[i] = test::Stacked({examples[0][i], examples[1][i]}, 0);
    Agrees(many, last, 0, &loops);
  }
  EXPECT_GE(seen.size(), 150u);
  EXPECT_THAT(std::set<std::string_view>(loops.begin(), loops.end()), ::testing::IsEmpty());
}

// The tests of this file, of control flow and rules, tests/c_api/custom.c and tests/c_api/meshes.c go over these; the
// compiler's own operation stands in no function.
TEST(Vmap, IsTestedOfEveryOperation) {
  std::set<std::string_view> seen;
  for (const auto& programs : {test::OpPrograms(/*all_types=*/true), test::ControlPrograms(), test::BodyPrograms()}) {
    ASSERT_TRUE(programs.ok()) << programs.status();
    for (const test::OpProgram& program : *programs) {
      for (const Function* function : ir::CalleesFirst(program.module.main())) {
        for (const ir::Node* node : function->nodes()) seen.insert(node->op().c_name);
      }
    }
  }
  std::set<std::string_view> others;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (op->kind != ir::Kind::kMacro && !seen.contains(op->c_name)) others.insert(op->c_name);
  }
  EXPECT_EQ(others, (std::set<std::string_view>{"custom_call", "custom_gradient", "fusion", "per_device", "view_as_complex", "view_as_real"}));
}

TEST(Vmap, OfControlFlow) {
  const auto programs = test::ControlPrograms();
  ASSERT_TRUE(programs.ok()) << programs.status();
  std::vector<std::string_view> loops;
  int cases = 0;
  for (const test::OpProgram& program : *programs) {
    if (!program.random) AgreesAllWays(program, &loops, &cases);
  }
  EXPECT_GE(cases, 20);
  EXPECT_TRUE(loops.empty()) << loops[0];
}

TEST(Vmap, OfBodies) {
  const auto programs = test::BodyPrograms();
  ASSERT_TRUE(programs.ok()) << programs.status();
  std::vector<std::string_view> loops, own;
  int cases = 0;
  for (size_t i = 0; i < programs->size(); i += test::kOneCaseIn) {
    const test::OpProgram& program = (*programs)[i];
    AgreesAllWays(program, &own, &cases);
    std::vector<int64_t> axes;
    for (const Value& parameter : program.module.main().parameters()) {
      axes.push_back(parameter.type().rank() == 0 ? kNotMapped : 0);
    }
    SCOPED_TRACE(program.name);
    if (std::ranges::find(axes, 0) != axes.end()) Agrees(program, axes, 0, &loops);
  }
  EXPECT_GE(cases, 50);
  EXPECT_TRUE(loops.empty()) << loops[0];
  // What functions begin with and capture are scalars: where examples have their own, they go one after the other.
  if (test::kOneCaseIn > 1) return;  // not each of these is among the cases
  EXPECT_THAT(std::set<std::string_view>(own.begin(), own.end()),
              ::testing::UnorderedElementsAre("reduce_by", "reduce_window_by", "scatter_by", "sort_by", "weft.select_and_scatter_by"));
}

Value Parameter(DType dtype, Dims dims) { return {ir::Node::Create(ops::kOp_parameter, {}, {}, {Type::Tensor(dtype, std::move(dims))}), 0}; }

HostTensor Counted(DType dtype, Dims dims) {
  HostTensor x(dtype, std::move(dims));
  for (int64_t i = 0; i < x.count(); ++i) x.SetDouble(i, static_cast<double>(i % 7) - 2.5);
  return x;
}

TEST(Vmap, OfVmap) {
  const Value x = Parameter(DType::kF32, {4}), w = Parameter(DType::kF32, {4, 2});
  ir::Builder b;
  const Value y = ops::Tanh(b, ops::Call(b, ops::kOp_matmul, {x, w}));
  const auto slopes = autodiff::Gradient(b, ops::Reduce(b, y, ops::Reducer::kSum, {0}), {{w}});
  ASSERT_TRUE(b.ok() && slopes.ok());
  const Ref<const Function> one = Function::Create("one", {x, w}, {y, (*slopes)[0]});
  const std::vector<int64_t> rows = {0, kNotMapped}, both = {0, 2}, first = {0, 0}, last = {-1, 1};
  std::vector<std::string_view> loops;
  const auto inner = Vmap({.function = *one, .size = 3, .in_axes = rows, .out_axes = first}, &loops);
  ASSERT_TRUE(inner.ok()) << inner.status();
  const auto outer = Vmap({.function = **inner, .size = 5, .in_axes = both, .out_axes = last}, &loops);
  ASSERT_TRUE(outer.ok()) << outer.status();
  EXPECT_TRUE(loops.empty());
  EXPECT_EQ(Type::Tensor(DType::kF32, {3, 2, 5}), (*outer)->results()[0].type());
  EXPECT_EQ(Type::Tensor(DType::kF32, {3, 5, 4, 2}), (*outer)->results()[1].type());
  const HostTensor xs = Counted(DType::kF32, {5, 3, 4}), ws = Counted(DType::kF32, {4, 2, 5});
  const auto found = reference::Interpret(**outer, Tensors{xs, ws});
  ASSERT_TRUE(found.ok()) << found.status();
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      for (int64_t k = 0; k < 2; ++k) {
        double sum = 0;
        for (int64_t c = 0; c < 4; ++c) sum += xs.GetDouble((i * 3 + j) * 4 + c) * ws.GetDouble((c * 2 + k) * 5 + i);
        EXPECT_NEAR(std::tanh(sum), (*found)[0].GetDouble((j * 2 + k) * 5 + i), 1e-5);
        for (int64_t c = 0; c < 4; ++c) {
          const double slope = (1 - std::tanh(sum) * std::tanh(sum)) * xs.GetDouble((i * 3 + j) * 4 + c);
          EXPECT_NEAR(slope, (*found)[1].GetDouble(((j * 5 + i) * 4 + c) * 2 + k), 1e-5);
        }
      }
    }
  }
}

// Gradients of each example of a convolutional layer: no loop.
TEST(Vmap, OfTheGradientOfAConvolution) {
  const Value x = Parameter(DType::kF32, {1, 6, 6, 2}), k = Parameter(DType::kF32, {3, 3, 2, 4});
  ir::Builder b;
  const Value y = ops::Tanh(b, ops::Call(b, ops::kOp_conv, {x, k}));
  const auto slopes = autodiff::Gradient(b, ops::Reduce(b, y, ops::Reducer::kSum, {0, 1, 2, 3}), {{k, x}});
  ASSERT_TRUE(b.ok() && slopes.ok());
  test::OpProgram program{.name = "conv", .group = "conv"};
  program.module.functions = {Function::Create("main", {x, k}, {y, (*slopes)[0], (*slopes)[1]})};
  program.inputs = {Counted(DType::kF32, {1, 6, 6, 2}), Counted(DType::kF32, {3, 3, 2, 4})};
  program.tolerance = {.f32 = 1e-5, .absolute = 1e-5};
  std::vector<std::string_view> loops;
  for (const std::vector<int64_t>& axes : {std::vector<int64_t>{0, kNotMapped}, {kNotMapped, 0}, {0, 0}}) Agrees(program, axes, 0, &loops);
  EXPECT_TRUE(loops.empty()) << loops[0];
}

TEST(Vmap, OfWhatDraws) {
  const Value x = Parameter(DType::kF32, {4}), stream = Parameter(DType::kU64, {3});
  ir::Builder b;
  const ir::Values drawn = ops::CallAll(b, ops::kOp_rng_bit_generator, {stream}, {ir::Ints{4}, DType::kU32});
  const Value y = ops::Add(b, x, ops::Convert(b, drawn[1], DType::kF32));
  ASSERT_TRUE(b.ok()) << b.status();
  const Ref<const Function> one = Function::Create("noise", {x, stream}, {y});
  const std::vector<int64_t> axes = {0};
  HostTensor zeros(DType::kF32, {3, 4}), state(DType::kU64, {3});
  for (int64_t i = 0; i < 3; ++i) state.SetInt(i, 11 + i);
  const auto numbers = [&](Randomness randomness) {
    const auto vmapped = Vmap({.function = *one, .draws = true, .size = 3, .in_axes = axes, .out_axes = axes, .randomness = randomness});
    EXPECT_TRUE(vmapped.ok()) << vmapped.status();
    const auto found = reference::Interpret(**vmapped, Tensors{zeros, state});
    EXPECT_TRUE(found.ok()) << found.status();
    std::set<double> different;
    for (int64_t i = 0; i < 12; ++i) different.insert((*found)[0].GetDouble(i));
    return different.size();
  };
  EXPECT_EQ(12u, numbers(Randomness::kDifferent));
  EXPECT_EQ(4u, numbers(Randomness::kSame));
  EXPECT_THAT(Vmap({.function = *one, .draws = true, .size = 3, .in_axes = axes, .out_axes = axes, .randomness = Randomness::kError}).status().message(),
              HasSubstr("the function @noise draws random numbers, which randomness forbids"));
}

TEST(Vmap, WhatIsWrongIsSaid) {
  const Value x = Parameter(DType::kF32, {2, 3}), y = Parameter(DType::kF32, {});
  ir::Builder b;
  const Ref<const Function> one = Function::Create("f", {x, y}, {ops::Tanh(b, x), y});
  const auto refused = [&](int64_t size, std::vector<int64_t> in, std::vector<int64_t> out) {
    return std::string(Vmap({.function = *one, .size = size, .in_axes = in, .out_axes = out}).status().message());
  };
  EXPECT_EQ("size is 0; there must be at least one example", refused(0, {0, 0}, {0, 0}));
  EXPECT_EQ("the function @f has 2 inputs and 2 results; there are 1 in_axes and 2 out_axes", refused(2, {0}, {0, 0}));
  EXPECT_EQ("none of the 2 inputs of the function @f has examples: one of in_axes must be an axis", refused(2, {kNotMapped, kNotMapped}, {0, 0}));
  EXPECT_EQ("in_axes[0] is 3; input 0 of one example is f32[2, 3], so that the examples can lie along axes -3 to 2", refused(2, {3, 0}, {0, 0}));
  EXPECT_EQ("out_axes[1] is -2; result 1 of one example is f32[], so that the examples can lie along axes -1 to 0", refused(2, {0, 0}, {0, -2}));
  EXPECT_EQ("out_axes[0] says that the examples share result 0 of the function @f, which depends on what they have each: it needs an axis",
            refused(2, {0, kNotMapped}, {kNotMapped, kNotMapped}));
  EXPECT_EQ("", refused(2, {0, kNotMapped}, {0, kNotMapped}));
  EXPECT_EQ("", refused(2, {0, kNotMapped}, {0, 0}));
}

}  // namespace
}  // namespace weft::transforms
