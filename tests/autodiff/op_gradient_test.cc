// The gradient of one operation from inputs, results and cotangents: what the sweep over a recorded graph gives, input by
// input; finite differences check that one (tests/ops/gradient_test.cc), tests/c_api/vjp.c this one too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "src/autodiff/gradient.h"
#include "src/ir/differentiable.h"
#include "src/ops/complex.h"
#include "tests/ops/op_matrix.h"

namespace weft {
namespace {

using test::Case;

HostTensor Random(const ir::Type& type, std::mt19937& random) {
  HostTensor value(type.dtype, type.dims);
  if (IsComplex(type.dtype)) {
    for (const int part : {0, 1}) value.SetPart(part, Random(ir::Type::Tensor(PartOf(type.dtype), type.dims), random));
    return value;
  }
  for (int64_t i = 0; i < value.count(); ++i) value.SetDouble(i, 0.5 + 0x1p-32 * random());
  return value;
}

struct Both {
  std::vector<ir::Value> one, sweep;  // of the float operands; `one` may have empty ones
};

// With results as given values, cut off from what they were made of, or without.
void Compare(const ir::OpDef& op, const Case& c, bool with_results) {
  std::mt19937 random(7);
  ir::Builder b;
  const ir::Values results = ops::CallAll(b, op, c.operands, c.parsed.attrs);
  ASSERT_TRUE(b.ok()) << b.status();
  const auto known = test::EvaluateSplit(c.parameters, {results.data(), results.size()}, c.arguments);
  ASSERT_TRUE(known.ok()) << known.status();
  std::vector<ir::Value> given, cotangents;
  ir::Value total;
  for (size_t i = 0; i < results.size(); ++i) {
    if (with_results) given.push_back(ops::Constant(b, (*known)[i]));
    cotangents.emplace_back();
    if (!ir::CarriesGradient(results[i].dtype())) continue;
    cotangents[i] = ops::Constant(b, Random(results[i].type(), random));
    const ir::Value product = ops::Unary(b, ops::kOp_real, ops::Mul(b, results[i], ops::Conj(b, cotangents[i])));
    const ir::Value sum = ops::Reduce(b, product, ops::Reducer::kSum, ops::Axes(product.dims().size()));
    total = total ? ops::Add(b, total, sum) : sum;
  }
  absl::InlinedVector<bool, 8> wanted(c.operands.size(), true);
  const auto one = autodiff::OpGradient(b, {.op = op,
                                            .inputs = {c.operands.data(), c.operands.size()},
                                            .attrs = c.parsed.attrs,
                                            .results = given,
                                            .cotangents = cotangents,
                                            .wanted = {wanted.data(), wanted.size()}});
  if (op.random) {
    EXPECT_TRUE(absl::IsUnimplemented(one.status())) << one.status();
    return;
  }
  if (!total) {
    ASSERT_TRUE(one.ok()) << one.status();
    for (const ir::Value& gradient : *one) EXPECT_FALSE(gradient);
    return;
  }
  std::vector<ir::Value> wrt;
  for (const ir::Value& operand : c.operands) {
    if (operand && ir::CarriesGradient(operand.dtype())) wrt.push_back(operand);
  }
  const auto sweep = autodiff::Gradient(b, total, wrt);
  ASSERT_EQ(one.ok(), sweep.ok()) << one.status() << sweep.status();
  if (!one.ok()) return;
  ASSERT_EQ(one->size(), c.operands.size());
  std::vector<ir::Value> both;
  for (size_t i = 0, k = 0; i < c.operands.size(); ++i) {
    if (!c.operands[i] || !ir::CarriesGradient(c.operands[i].dtype())) {
      EXPECT_FALSE((*one)[i]);
      continue;
    }
    both.push_back((*sweep)[k++]);
    both.push_back((*one)[i] ? (*one)[i] : ops::FullLike(b, c.operands[i], 0));
  }
  ASSERT_TRUE(b.ok()) << b.status();
  const auto values = test::EvaluateSplit(c.parameters, both, c.arguments);
  ASSERT_TRUE(values.ok()) << values.status();
  const ir::Tolerance near{.f32 = 1e-5, .f64 = 1e-12, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-5};
  for (size_t i = 0; i < values->size(); i += 2) {
    EXPECT_EQ(test::Differences((*values)[i + 1], (*values)[i], near), "") << "operand " << i / 2;
  }
}

TEST(OpGradient, IsThatOfTheGraphForEverySample) {
  size_t cases = 0;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (!op->exported) continue;
    for (const ir::Sample& sample : op->samples) {
      for (DType dtype : ops::SampleTypes(*op, sample)) {
        const auto c = test::MakeCase(*op, sample, dtype);
        ASSERT_TRUE(c.ok()) << c.status();
        for (const bool with_results : {true, false}) {
          SCOPED_TRACE(absl::StrCat(c->name, with_results ? " with results" : ""));
          Compare(*op, *c, with_results);
          ++cases;
        }
      }
    }
  }
  EXPECT_GT(cases, 1000u);
}

const ir::Type kPair = ir::Type::Tensor(DType::kF64, {2});
constexpr bool kAll[] = {true, true, true};

TEST(OpGradient, TellsTwoInputsOfOneValueApart) {
  ir::Builder b;
  const ir::Value x = test::NewParameter(kPair), g = test::NewParameter(kPair);
  const ir::Value inputs[] = {x, x}, cotangents[] = {g};
  const auto found = autodiff::OpGradient(
      b, {.op = ops::kOp_sub, .inputs = inputs, .attrs = {}, .results = {}, .cotangents = cotangents, .wanted = {kAll, 2}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)[0], g);
  EXPECT_EQ(&(*found)[1].node->op(), &ops::kOp_neg);
}

TEST(OpGradient, UsesTheResultThatIsGiven) {
  ir::Builder b;
  const ir::Value x = test::NewParameter(kPair), y = test::NewParameter(kPair), g = test::NewParameter(kPair);
  const ir::Value inputs[] = {x}, results[] = {y}, cotangents[] = {g};
  const auto found = autodiff::OpGradient(
      b, {.op = ops::kOp_exp, .inputs = inputs, .attrs = {}, .results = results, .cotangents = cotangents, .wanted = {kAll, 1}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(b.emitted(), 1);  // g y: e^x is not computed again
  EXPECT_THAT((*found)[0].node->operands(), ::testing::UnorderedElementsAre(g, y));
}

TEST(OpGradient, MakesNothingThatNobodyWants) {
  ir::Builder b;
  const ir::Value x = test::NewParameter(kPair), y = test::NewParameter(kPair), g = test::NewParameter(kPair);
  const ir::Value inputs[] = {x, y}, cotangents[] = {g}, none[] = {ir::Value()};
  constexpr bool kSecond[] = {false, true};
  const auto found = autodiff::OpGradient(
      b, {.op = ops::kOp_mul, .inputs = inputs, .attrs = {}, .results = {}, .cotangents = cotangents, .wanted = kSecond});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE((*found)[0]);
  EXPECT_TRUE((*found)[1]);
  EXPECT_EQ(b.emitted(), 1);
  const auto zero = autodiff::OpGradient(
      b, {.op = ops::kOp_mul, .inputs = inputs, .attrs = {}, .results = {}, .cotangents = none, .wanted = {kAll, 2}});
  ASSERT_TRUE(zero.ok()) << zero.status();
  EXPECT_FALSE((*zero)[0] || (*zero)[1]);
  EXPECT_EQ(b.emitted(), 1);
}

}  // namespace
}  // namespace weft
