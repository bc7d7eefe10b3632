// The reverse sweep itself: accumulation, expansion, what stops it, zeros, error texts. The operations' own rules are
// tested by finite differences in tests/ops.
#include "src/autodiff/gradient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/backends/reference/interpreter.h"
#include "src/ops/build.h"

namespace weft::autodiff {
namespace {

using ir::Value;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Value Parameter(DType dtype, Dims dims) {
  return {ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(dtype, std::move(dims))}), 0};
}

HostTensor F64(std::vector<double> values) {
  HostTensor tensor(DType::kF64, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.SetDouble(static_cast<int64_t>(i), values[i]);
  return tensor;
}

// The value at the given parameters, flattened.
std::vector<double> Evaluate(const Value& value, std::vector<Value> parameters, std::vector<HostTensor> arguments) {
  auto function = ir::Function::Create("main", std::move(parameters), {value});
  auto results = reference::Interpret(*function, arguments);
  EXPECT_TRUE(results.ok()) << results.status();
  std::vector<double> flat;
  for (int64_t i = 0; results.ok() && i < (*results)[0].count(); ++i) flat.push_back((*results)[0].GetDouble(i));
  return flat;
}

Value Sum(ir::Builder& b, const Value& x) {
  ir::Ints all;
  for (size_t i = 0; i < x.dims().size(); ++i) all.push_back(static_cast<int64_t>(i));
  return ops::Reduce(b, x, ops::Reducer::kSum, all);
}

TEST(Gradient, AddsWhatComesBackOnAllPaths) {
  ir::Builder b;
  Value x = Parameter(DType::kF64, {2});
  // x * x + 3 x: two uses in one node, a third elsewhere.
  Value y = Sum(b, ops::Add(b, ops::Mul(b, x, x), ops::Mul(b, x, ops::FullLike(b, x, 3))));
  auto g = Gradient(b, y, {{x}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_THAT(Evaluate((*g)[0], {x}, {F64({1, -2})}), ElementsAre(5, -1));
}

TEST(Gradient, OfAnIntermediateValueAndOfWhatItComesFrom) {
  ir::Builder b;
  Value x = Parameter(DType::kF64, {2});
  Value h = ops::Mul(b, x, x);
  Value y = Sum(b, ops::Mul(b, h, h));
  auto g = Gradient(b, y, {{x, h, y}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_THAT(Evaluate((*g)[0], {x}, {F64({1, 2})}), ElementsAre(4, 32));
  EXPECT_THAT(Evaluate((*g)[1], {x}, {F64({1, 2})}), ElementsAre(2, 8));
  EXPECT_THAT(Evaluate((*g)[2], {x}, {F64({1, 2})}), ElementsAre(1));
}

TEST(Gradient, IsZeroWhereNothingFlows) {
  ir::Builder b;
  Value x = Parameter(DType::kF64, {2}), z = Parameter(DType::kF64, {3});
  auto g = Gradient(b, Sum(b, x), {{z, x}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_THAT(Evaluate((*g)[0], {x, z}, {F64({1, 2}), F64({1, 2, 3})}), ElementsAre(0, 0, 0));
  EXPECT_THAT(Evaluate((*g)[1], {x, z}, {F64({1, 2}), F64({1, 2, 3})}), ElementsAre(1, 1));
}

TEST(Gradient, StopsAtStopGradientComparisonsAndIntegers) {
  ir::Builder b;
  Value x = Parameter(DType::kF64, {2});
  Value stopped = ops::Call(b, ops::kOp_stop_gradient, {x});
  Value rounded = ops::Convert(b, ops::Convert(b, x, DType::kI32), DType::kF64);
  Value y = Sum(b, ops::Mul(b, ops::Add(b, stopped, rounded), x));
  ASSERT_TRUE(b.ok()) << b.status();
  auto g = Gradient(b, y, {{x}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_THAT(Evaluate((*g)[0], {x}, {F64({1.5, -2.5})}), ElementsAre(1.5 + 1, -2.5 - 2));
}

TEST(Gradient, TakesASeedForOutputsOfAnyShape) {
  ir::Builder b;
  Value x = Parameter(DType::kF64, {2}), seed = Parameter(DType::kF64, {2});
  auto g = Gradient(b, ops::Mul(b, x, x), {{x}}, seed);
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_THAT(Evaluate((*g)[0], {x, seed}, {F64({1, 2}), F64({10, 100})}), ElementsAre(20, 400));
}

// A composite of ours without a gradient, within another: f(x, y) = x * x * y, g(x) = f(x, x) + x.
absl::Status ExpandInner(const ir::ExpandCall& call, std::span<Value> results) {
  results[0] = ops::Mul(call.b, ops::Mul(call.b, call.operands[0], call.operands[0]), call.operands[1]);
  return absl::OkStatus();
}
absl::Status InferFirst(const ir::InferCall& call, ir::Types* results) {
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}
constexpr ir::OperandDef kTwo[] = {{"x", ir::kF, ""}, {"y", ir::kF, ""}};
constexpr ir::OperandDef kOne[] = {{"x", ir::kF, ""}};
constexpr std::string_view kNames[] = {"result"};
constinit const ir::OpDef kInner = {.name = "test.inner",
                                    .c_name = "inner",
                                    .kind = ir::Kind::kComposite,
                                    .operands = kTwo,
                                    .results = kNames,
                                    .infer = InferFirst,
                                    .expand = ExpandInner};
absl::Status ExpandOuter(const ir::ExpandCall& call, std::span<Value> results) {
  results[0] = ops::Add(call.b, ops::Call(call.b, kInner, {call.operands[0], call.operands[0]}), call.operands[0]);
  return absl::OkStatus();
}
constinit const ir::OpDef kOuter = {.name = "test.outer",
                                    .c_name = "outer",
                                    .kind = ir::Kind::kComposite,
                                    .operands = kOne,
                                    .results = kNames,
                                    .infer = InferFirst,
                                    .expand = ExpandOuter};
constinit const ir::OpDef kNothing = {
    .name = "test.nothing", .c_name = "nothing", .operands = kOne, .results = kNames, .infer = InferFirst};

TEST(Gradient, ExpandsCompositesWithoutARuleAlsoWithinEachOther) {
  ir::Builder b;
  Value x = Parameter(DType::kF64, {2}), y = Parameter(DType::kF64, {2});
  Value h = ops::Mul(b, x, y);
  // The operands of inner depend on each other: its expansion must end at both.
  Value out = Sum(b, ops::Call(b, kOuter, {ops::Call(b, kInner, {h, x})}));
  ASSERT_TRUE(b.ok()) << b.status();
  auto g = Gradient(b, out, {{x, y}});
  ASSERT_TRUE(g.ok()) << g.status();
  // u = x^3 y^2, out = u^3 + u: d/dx = (3 u^2 + 1) 3 x^2 y^2, d/dy = (3 u^2 + 1) 2 x^3 y.
  EXPECT_THAT(Evaluate((*g)[0], {x, y}, {F64({1, 2}), F64({1, 0.5})}), ElementsAre(4 * 3, 13 * 3));
  EXPECT_THAT(Evaluate((*g)[1], {x, y}, {F64({1, 2}), F64({1, 0.5})}), ElementsAre(4 * 2, 13 * 8));
}

TEST(Gradient, OfTheGradientIsTheSecondDerivative) {
  ir::Builder b;
  Value x = Parameter(DType::kF64, {1});
  auto first = Gradient(b, ops::Mul(b, ops::Mul(b, x, x), x), {{x}});
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = Gradient(b, (*first)[0], {{x}});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(Evaluate((*second)[0], {x}, {F64({5})}), ElementsAre(30));
}

TEST(Gradient, NeverVisitsWhatIsOlderThanEveryWrt) {
  ir::Builder b;
  Value old = Parameter(DType::kF64, {1});
  for (int i = 0; i < 10; ++i) old = ops::Mul(b, old, old);
  Value x = ops::Mul(b, old, old);
  auto g = Gradient(b, ops::Mul(b, x, old), {{x}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(b.emitted(), 12 + 3);  // ones (constant, broadcast) and one product
}

// Each took minutes when every step walked all of its past.
TEST(Gradient, NeverWalksThePastOfWhatNoGradientIsWantedOf) {
  constexpr int kSteps = 20'000;
  ir::Builder b;
  Value w = Parameter(DType::kF64, {1, 1}), first = Parameter(DType::kF64, {1, 1}), scale = Parameter(DType::kF64, {1, 1});
  Value x = first, sum;
  for (int i = 0; i < kSteps; ++i) {
    x = ops::Mul(b, x, scale);
    Value product = ops::Call(b, kInner, {x, w});  // differentiated by its expansion
    sum = sum ? ops::Add(b, sum, product) : product;
  }
  auto g = Gradient(b, sum, {{w}});
  ASSERT_TRUE(g.ok()) << g.status();
  const HostTensor zero(DType::kF64, {1, 1});
  EXPECT_THAT(Evaluate((*g)[0], {w, first, scale}, {zero, zero, zero}), ElementsAre(0));
}

TEST(Gradient, NeverWalksBehindWhatStopsIt) {
  ir::Builder b;
  Value w = Parameter(DType::kF64, {1}), state = w;
  for (int i = 0; i < 10'000; ++i) {
    state = ops::Call(b, ops::kOp_stop_gradient, {ops::Mul(b, state, w)});
    auto g = Gradient(b, ops::Mul(b, state, w), {{w}});
    ASSERT_TRUE(g.ok()) << g.status();
    if (i != 2) continue;
    EXPECT_THAT(Evaluate((*g)[0], {w}, {F64({3})}), ElementsAre(81));
  }
}

// Of n elements: a few operations a halving, and each order is a fixed factor dearer than the one before.
TEST(Gradient, OfAProductGrowsWithTheLogarithm) {
  for (const int64_t n : {2, 1000, 1 << 20}) {
    ir::Builder b;
    const Value x = Parameter(DType::kF64, {n});
    const auto first = Gradient(b, ops::Reduce(b, x, ops::Reducer::kProd, {0}), {{x}});
    ASSERT_TRUE(first.ok()) << first.status();
    const double levels = std::ceil(std::log2(n));
    EXPECT_LE(b.emitted(), 10 * levels + 5);
    const auto second = Gradient(b, Sum(b, (*first)[0]), {{x}});
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_LE(b.emitted(), 50 * levels + 25);
    if (n > 1000) continue;
    std::vector<double> ones(static_cast<size_t>(n), 1);
    EXPECT_THAT(Evaluate((*second)[0], {x}, {F64(ones)}), ::testing::Each(static_cast<double>(n - 1)));
  }
}

// Rows and columns together, the size kept or not; in 16 bits without an overflow on the way (300 * 300 is inf in f16).
TEST(Gradient, OfAProductInEveryFloatType) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    for (const bool keep : {false, true}) {
      ir::Builder b;
      const Value x = Parameter(dtype, {2, 1, 3});
      const Value y = ops::Call(b, ops::kOp_prod, {x}, {ir::Ints{0, -1}, int64_t{keep}});
      ASSERT_TRUE(b.ok()) << b.status();
      EXPECT_EQ(y.dims(), keep ? Dims({1, 1, 1}) : Dims({1}));
      const auto first = Gradient(b, Sum(b, y), {{x}});
      ASSERT_TRUE(first.ok()) << first.status();
      const auto second = Gradient(b, Sum(b, (*first)[0]), {{x}});
      ASSERT_TRUE(second.ok()) << second.status();
      HostTensor at(dtype, {2, 1, 3});
      const double values[] = {256, 0.5, 0, 512, 0.0078125, 0.25};
      for (int64_t i = 0; i < 6; ++i) at.SetDouble(i, values[i]);
      EXPECT_THAT(Evaluate((*first)[0], {x}, {at}), ElementsAre(0, 0, 256 * 0.5, 0, 0, 0));
      EXPECT_THAT(Evaluate((*second)[0], {x}, {at}),
                  ElementsAre(0.5, 256, ::testing::DoubleNear(17152.75, 1), 0.25, 128 * 128, 512));
    }
  }
}

TEST(Gradient, OfTakingNothingFromAnEmptyAxisIsEmpty) {
  ir::Builder b;
  Value x = Parameter(DType::kF64, {2, 0, 3}), none = Parameter(DType::kI32, {0});
  const Value y = ops::Call(b, ops::kOp_take, {x, none}, {int64_t{1}});
  const auto g = Gradient(b, Sum(b, y), {{x}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ((*g)[0].type(), x.type());
  EXPECT_THAT(Evaluate((*g)[0], {x}, {HostTensor(DType::kF64, {2, 0, 3})}), ElementsAre());
}

TEST(Gradient, SaysWhatIsWrong) {
  ir::Builder b;
  Value x = Parameter(DType::kF32, {2, 3}), n = Parameter(DType::kI32, {2, 3});
  auto message = [&](const Value& output, std::vector<Value> wrt, Value seed = {}) {
    return std::string(Gradient(b, output, wrt, seed).status().message());
  };
  EXPECT_EQ(message(x, {x}),
            "grad: y has shape [2, 3]; without a cotangent it must have one element (reduce it, or give a "
            "cotangent)");
  EXPECT_EQ(message(n, {x}), "grad: y must be a float or complex tensor, not i32[2, 3]");
  EXPECT_EQ(message(x, {n}), "grad: xs[0] must be a float or complex tensor, not i32[2, 3]");
  EXPECT_EQ(message(x, {x}, Parameter(DType::kF32, {2})),
            "grad: cotangent is f32[2]; it must have y's type f32[2, 3]");
  EXPECT_EQ(message({}, {x}), "grad: y is missing");
  const absl::Status status = Gradient(b, Sum(b, ops::Call(b, kNothing, {x})), {{x}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "in the gradient of nothing: the operation nothing has no gradient");
}

}  // namespace
}  // namespace weft::autodiff
