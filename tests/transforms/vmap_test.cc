// vmap of every operation, of control flow and of what draws, against one example after the other on the reference interpreter.
#include "src/transforms/vmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

namespace weft::transforms {
namespace {

using ::testing::HasSubstr;
using ir::Function;
using ir::Type;
using ir::Value;
using Tensors = std::vector<HostTensor>;

// The elements so many places further on, at the end from the beginning again.
HostTensor Turned(const HostTensor& x, int64_t by) {
  HostTensor turned(x.dtype(), x.dims());
  for (int64_t i = 0; i < x.count(); ++i) ops::CopyElement(x, (i + by) % x.count(), turned, i);
  return turned;
}

// Examples along an axis, and one of them.
HostTensor Stacked(const Tensors& examples, int64_t axis) {
  Dims dims = examples[0].dims();
  dims.insert(dims.begin() + axis, static_cast<int64_t>(examples.size()));
  HostTensor all(examples[0].dtype(), dims);
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(axis) + 1; d < dims.size(); ++d) inner *= dims[d];
  const auto size = static_cast<int64_t>(examples.size());
  for (int64_t e = 0; e < size; ++e) {
    for (int64_t i = 0; i < examples[e].count(); ++i) {
      ops::CopyElement(examples[e], i, all, (i / inner * size + e) * inner + i % inner);
    }
  }
  return all;
}

// What is wrong with `found`, in units of what `tolerance` allows.
double Error(const HostTensor& found, const HostTensor& expected, const ir::Tolerance& tolerance) {
  if (found.dtype() != expected.dtype() || found.dims() != expected.dims()) return HUGE_VAL;
  if (!IsFloat(found.dtype())) return std::ranges::equal(found.bytes(), expected.bytes()) ? 0 : HUGE_VAL;
  const double relative = found.dtype() == DType::kF64    ? tolerance.f64
                          : found.dtype() == DType::kBF16 ? tolerance.bf16
                          : found.dtype() == DType::kF16  ? tolerance.f16
                                                          : tolerance.f32;
  const double scale = found.dtype() == DType::kF64 ? 1e-8 : IsHalf(found.dtype()) ? 8192 : 1;
  double worst = 0;
  for (int64_t i = 0; i < found.count(); ++i) {
    const double x = found.GetDouble(i), y = expected.GetDouble(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double error = std::abs(x - y) / (tolerance.absolute * scale + relative * std::abs(y));
    worst = std::max(worst, std::isnan(error) ? HUGE_VAL : error);
  }
  return worst;
}

constexpr int64_t kSize = 3;

// vmap with these axes, of inputs of which those that are mapped are turned from example to example, beside each example by itself.
void Agrees(const test::OpProgram& program, std::span<const int64_t> in_axes, int64_t out_axis, std::vector<std::string_view>* loops) {
  const Function& function = program.module.main();
  const bool turns = program.group != "cholesky" && program.group != "triangular_solve";  // of matrices that have factors
  std::vector<int64_t> out_axes(function.results().size(), out_axis);
  const auto vmapped = Vmap({.function = function, .size = kSize, .in_axes = in_axes, .out_axes = out_axes}, loops);
  ASSERT_TRUE(vmapped.ok()) << vmapped.status();
  std::vector<Tensors> examples(kSize);
  Tensors inputs;
  for (size_t i = 0; i < in_axes.size(); ++i) {
    Tensors each;
    for (int64_t e = 0; e < kSize; ++e) {
      each.push_back(in_axes[i] == kNotMapped || !turns ? program.inputs[i] : Turned(program.inputs[i], e));
      examples[e].push_back(each.back());
    }
    const int64_t axis = in_axes[i] < 0 ? in_axes[i] + static_cast<int64_t>(each[0].dims().size()) + 1 : in_axes[i];
    inputs.push_back(in_axes[i] == kNotMapped ? program.inputs[i] : Stacked(each, axis));
  }
  const auto found = reference::Interpret(**vmapped, inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<Tensors> expected(function.results().size());
  for (const Tensors& example : examples) {
    auto one = reference::Interpret(function, example);
    ASSERT_TRUE(one.ok()) << one.status();
    for (size_t r = 0; r < one->size(); ++r) expected[r].push_back(std::move((*one)[r]));
  }
  for (size_t r = 0; r < expected.size(); ++r) {
    const int64_t axis = out_axis < 0 ? out_axis + static_cast<int64_t>(expected[r][0].dims().size()) + 1 : out_axis;
    EXPECT_LE(Error((*found)[r], Stacked(expected[r], axis), program.tolerance), 1) << "result " << r << "\n" << ir::Print(program.module);
  }
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
  for (const test::OpProgram& program : *programs) AgreesAllWays(program, &loops, &cases);
  EXPECT_GE(cases, 5000);
  // With all operands mapped these go over examples one after the other, a convolution with groups of its batch alone; all others
  // have a way of their own.
  EXPECT_THAT(std::set<std::string_view>(loops.begin(), loops.end()),
              ::testing::UnorderedElementsAre("convolution", "dynamic_slice", "dynamic_update_slice", "pad", "reduce_window", "select_and_scatter"));
}

TEST(Vmap, OfControlFlow) {
  const auto programs = test::ControlPrograms();
  ASSERT_TRUE(programs.ok()) << programs.status();
  int cases = 0;
  for (const test::OpProgram& program : *programs) {
    if (!program.random) AgreesAllWays(program, nullptr, &cases);
  }
  EXPECT_GE(cases, 20);
}

TEST(Vmap, OfBodies) {
  const auto programs = test::BodyPrograms();
  ASSERT_TRUE(programs.ok()) << programs.status();
  int cases = 0;
  for (const test::OpProgram& program : *programs) AgreesAllWays(program, nullptr, &cases);
  EXPECT_GE(cases, 50);
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
