// Gradients against central finite differences, in f64 on the reference.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/autodiff/gradient.h"
#include "src/ops/build.h"
#include "tests/ops/op_matrix.h"

namespace weft {
namespace {

using test::Case;

// Step of the difference: truncation grows with its square, cancellation with its inverse; 1e-5 balances them
// in f64.
constexpr double kStep = 1e-5;

double WeightedSum(const std::vector<HostTensor>& values, const std::vector<HostTensor>& weights) {
  double sum = 0;
  for (size_t r = 0; r < values.size(); ++r) {
    if (!IsFloat(values[r].dtype())) continue;
    for (int64_t i = 0; i < values[r].count(); ++i) sum += values[r].GetDouble(i) * weights[r].GetDouble(i);
  }
  return sum;
}

// One scalar: the results weighted by fixed random numbers, so that errors in different elements cannot
// cancel.
absl::StatusOr<ir::Value> Weigh(ir::Builder& b, const ir::Values& results, std::vector<HostTensor>* weights) {
  ir::Value total;
  for (const ir::Value& result : results) {
    ir::Sample uniform{.call = "", .low = -1, .high = 1};
    ops::SampleOperand operand;
    operand.type = result.type();
    weights->push_back(ops::FillSample(uniform, operand, 77 + weights->size()));
    if (!IsFloat(result.dtype())) continue;
    ir::Value product = ops::Mul(b, result, ops::Constant(b, weights->back()));
    ir::Value sum = ops::Reduce(b, product, ops::Reducer::kSum, ops::Axes(result.dims().size()));
    total = total ? ops::Add(b, total, sum) : sum;
  }
  return b.ok() ? absl::StatusOr<ir::Value>(total) : b.status();
}

// The float parameters and where they stand among all.
std::pair<std::vector<ir::Value>, std::vector<size_t>> Wanted(const Case& c) {
  std::pair<std::vector<ir::Value>, std::vector<size_t>> wanted;
  for (size_t i = 0; i < c.parameters.size(); ++i) {
    if (!IsFloat(c.parameters[i].dtype())) continue;
    wanted.first.push_back(c.parameters[i]);
    wanted.second.push_back(i);
  }
  return wanted;
}

// The gradient of the weighted results against differences of them.
void CheckSlopes(ir::Builder& b, const ir::Values& results, Case& c, double tolerance) {
  std::vector<HostTensor> weights;
  const auto total = Weigh(b, results, &weights);
  ASSERT_TRUE(total.ok()) << total.status();
  const auto [wanted, index] = Wanted(c);
  if (!*total || wanted.empty()) return;
  const auto gradients = autodiff::Gradient(b, *total, wanted);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  const auto analytic = test::Evaluate(c, *gradients);
  ASSERT_TRUE(analytic.ok()) << analytic.status();
  const Ref<const ir::Function> forward =
      ir::Function::Create("f", c.parameters, {results.begin(), results.end()});
  for (size_t w = 0; w < wanted.size(); ++w) {
    HostTensor& x = c.arguments[index[w]];
    ASSERT_EQ((*analytic)[w].dims(), x.dims());
    ASSERT_EQ((*analytic)[w].dtype(), x.dtype());
    const int64_t stride =
        std::max<int64_t>(1, x.count() / 12);  // a dozen elements of each operand are enough
    for (int64_t i = 0; i < x.count(); i += stride) {
      const double at = x.GetDouble(i);
      x.SetDouble(i, at + kStep);
      const auto up = reference::Interpret(*forward, c.arguments);
      x.SetDouble(i, at - kStep);
      const auto down = reference::Interpret(*forward, c.arguments);
      x.SetDouble(i, at);
      ASSERT_TRUE(up.ok() && down.ok());
      const double numeric = (WeightedSum(*up, weights) - WeightedSum(*down, weights)) / (2 * kStep);
      const double got = (*analytic)[w].GetDouble(i);
      EXPECT_NEAR(got, numeric, tolerance * (1 + std::fabs(numeric)))
          << "operand " << index[w] << " element " << i;
    }
  }
}

// Calls check(op, case) for every sample that is smooth, in f64.
template <typename F>
int ForEachSmoothCase(F check) {
  int checked = 0;
  for (const ir::OpDef* op : ops::AllOps()) {
    bool excused = false;
    for (const ir::Absent& absent : op->absent) {
      excused = excused || (absent.part == ir::Part::kGradient && absent.reason != ir::Reason::kExpands);
    }
    if (excused) continue;
    for (const ir::Sample& sample : op->samples) {
      if (!sample.gradient) continue;
      const std::vector<DType> types = ops::SampleTypes(*op, sample);
      if (std::find(types.begin(), types.end(), DType::kF64) == types.end()) continue;
      for (uint64_t seed : {1, 2}) {
        auto c = test::MakeCase(*op, sample, DType::kF64, seed);
        if (!c.ok()) {
          ADD_FAILURE() << c.status();
          return checked;
        }
        SCOPED_TRACE(c->name);
        check(*op, *c);
        ++checked;
      }
    }
  }
  return checked;
}

TEST(Gradients, AgreeWithFiniteDifferences) {
  const int checked = ForEachSmoothCase([](const ir::OpDef& op, Case& c) {
    ir::Builder b;
    const ir::Values results = ops::CallAll(b, op, c.operands, c.parsed.attrs);
    ASSERT_TRUE(b.ok()) << b.status();
    CheckSlopes(b, results, c, 2e-6);
  });
  EXPECT_GT(checked, 500);
}

// Every rule's own operations have rules: the gradient of each gradient, too.
TEST(Gradients, OfGradientsAgreeWithFiniteDifferences) {
  const int checked = ForEachSmoothCase([](const ir::OpDef& op, Case& c) {
    ir::Builder b;
    const ir::Values results = ops::CallAll(b, op, c.operands, c.parsed.attrs);
    ASSERT_TRUE(b.ok()) << b.status();
    std::vector<HostTensor> weights;
    const auto total = Weigh(b, results, &weights);
    ASSERT_TRUE(total.ok()) << total.status();
    const auto [wanted, index] = Wanted(c);
    if (!*total || wanted.empty()) return;
    const auto gradients = autodiff::Gradient(b, *total, wanted);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    CheckSlopes(b, {gradients->begin(), gradients->end()}, c, 1e-5);
  });
  EXPECT_GT(checked, 500);
}

}  // namespace
}  // namespace weft
