// Derivatives where a formula gives no answer or many: kinks, ties, poles, saturation, nothing to differentiate. The numbers
// are PyTorch 2.15's (f64), typed in; where we differ the line says why. Also what is refused, and by which name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "src/autodiff/gradient.h"
#include "src/ops/build.h"
#include "tests/ops/op_matrix.h"

namespace weft {
namespace {

using List = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Values of all operands; then, order by order, the gradient along one of them. Each order differentiates the sum of what
// the order before gave, elements times 1, 2, 3, …
struct Row {
  const ir::OpDef& op;
  std::string call;  // as in samples
  std::vector<List> operands;
  std::vector<List> orders;
  size_t along = 0;
};

ir::Value Sum(ir::Builder& b, const ir::Value& x) {
  HostTensor weights(x.dtype(), x.dims());
  for (int64_t i = 0; i < weights.count(); ++i) weights.SetDouble(i, static_cast<double>(i + 1));
  const ir::Value product = ops::Mul(b, x, ops::Constant(b, std::move(weights)));
  return ops::Reduce(b, product, ops::Reducer::kSum, ops::Axes(x.dims().size()));
}

void Check(const Row& row) {
  SCOPED_TRACE(absl::StrCat(row.op.c_name, " ", row.call));
  const ir::Sample sample{.call = row.call};
  auto c = test::MakeCase(row.op, sample, DType::kF64);
  ASSERT_TRUE(c.ok()) << c.status();
  ASSERT_EQ(c->arguments.size(), row.operands.size());
  for (size_t w = 0; w < row.operands.size(); ++w) {
    ASSERT_EQ(c->arguments[w].count(), static_cast<int64_t>(row.operands[w].size()));
    for (int64_t i = 0; i < c->arguments[w].count(); ++i) {
      const double value = row.operands[w][static_cast<size_t>(i)];
      if (IsFloat(c->arguments[w].dtype())) {
        c->arguments[w].SetDouble(i, value);
      } else {
        c->arguments[w].SetInt(i, static_cast<int64_t>(value));
      }
    }
  }
  ir::Builder b;
  ir::Value y = ops::Call(b, row.op, c->operands, c->parsed.attrs);
  ASSERT_TRUE(b.ok()) << b.status();
  for (size_t order = 0; order < row.orders.size(); ++order) {
    SCOPED_TRACE(absl::StrCat("order ", order + 1));
    const auto gradient = autodiff::Gradient(b, Sum(b, y), {{c->parameters[row.along]}});
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    y = (*gradient)[0];
    const auto found = test::Evaluate(*c, {{y}});
    ASSERT_TRUE(found.ok()) << found.status();
    const List& expected = row.orders[order];
    ASSERT_EQ((*found)[0].count(), static_cast<int64_t>(expected.size()));
    for (size_t i = 0; i < expected.size(); ++i) {
      const double got = (*found)[0].GetDouble(static_cast<int64_t>(i));
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(got)) << "element " << i << " is " << got;
      } else if (std::isinf(expected[i])) {
        EXPECT_EQ(got, expected[i]) << "element " << i;
      } else {
        EXPECT_NEAR(got, expected[i], expected[i] == 0 ? 1e-14 : 5e-6 * std::fabs(expected[i])) << "element " << i;
      }
    }
  }
}

TEST(GradientConventions, OfKinksAndTies) {
  for (const Row& row : std::vector<Row>{
           {ops::kOp_abs, "T[4]", {{0, -0.0, 3, -2}}, {{0, 0, 3, -4}, {0, 0, 0, 0}}},
           {ops::kOp_relu, "T[3]", {{0, -1, 2}}, {{0, 0, 3}, {0, 0, 0}, {0, 0, 0}}},
           {ops::kOp_relu6, "T[4]", {{0, 3, 6, 7}}, {{0, 2, 0, 0}, {0, 0, 0, 0}}},
           {ops::kOp_leaky_relu, "T[3]", {{0, -1, 2}}, {{0.01, 0.02, 3}, {0, 0, 0}}},
           // Of the second order at 0 PyTorch takes the right side, 0; we stay with the left one, as in the first.
           {ops::kOp_elu, "T[2] alpha=2", {{0, -1}}, {{2, 1.47152}, {2, 2.94304}, {2, 5.88607}}},
           {ops::kOp_maximum, "T[3] T[3]", {{1, 3, 2}, {1, 2, 3}}, {{0.5, 2, 0}, {0, 0, 0}}},
           {ops::kOp_minimum, "T[3] T[3]", {{1, 3, 2}, {1, 2, 3}}, {{0.5, 0, 3}, {0, 0, 0}}},
           {ops::kOp_max, "T[3]", {{3, 3, 1}}, {{0.5, 0.5, 0}, {0, 0, 0}}},
           {ops::kOp_min, "T[3]", {{1, 3, 1}}, {{0.5, 0, 0.5}, {0, 0, 0}}},
           {ops::kOp_max_pool, "T[1,4,1] window=[2]", {{3, 3, 1, 1}}, {{1, 0, 2, 0}, {0, 0, 0, 0}}},
           {ops::kOp_clip, "T[5] low=-1 high=1", {{-1, 0, 1, 2, -2}}, {{0, 2, 0, 0, 0}, {0, 0, 0, 0, 0}}},
           {ops::kOp_clip, "T[3] low=0", {{0, 1, -1}}, {{0, 2, 0}}},
           {ops::kOp_clip, "T[3] high=0", {{0, 1, -1}}, {{0, 0, 3}}},
           {ops::kOp_clamp, "T[3] T[3] T[3]", {{-1, -1, -1}, {-1, 0, 1}, {1, 1, 1}}, {{0.5, 2, 1.5}, {0, 0, 0}}, 1},
           {ops::kOp_clamp, "T[3] T[3] T[3]", {{0, 0, 0}, {0, -1, 1}, {1, 1, 1}}, {{0.5, 2, 0}}, 0},
           // Between equal bounds the result never follows x. PyTorch: 1 at x = 0.
           {ops::kOp_clamp, "T[1] T[3] T[1]", {{0}, {0, 1, -1}, {0}}, {{0, 0, 0}}, 1},
       }) {
    Check(row);
  }
}

// A maximum reports NaN, and its gradient tells it: PyTorch's amax (NaN for all of the row), maximum (both operands get all of it),
// relu, relu6 (hardtanh) and max_pool (the NaN gets it), but that of several NaNs under a window PyTorch takes the last one.
TEST(GradientConventions, OfNan) {
  const List x = {1, kNaN, 3, kNaN}, low = {0, kNaN, 0, 0, 2}, mid = {kNaN, 0.5, 0.5, -1, kNaN}, high = {1, 1, kNaN, kNaN, 1};
  const std::string five = "T[5] T[5] T[5]";
  for (const Row& row : std::vector<Row>{
           {ops::kOp_max, "T[4]", {x}, {{kNaN, kNaN, kNaN, kNaN}}},
           {ops::kOp_min, "T[4]", {x}, {{kNaN, kNaN, kNaN, kNaN}}},
           {ops::kOp_max, "T[2]", {{-kInf, -kInf}}, {{0.5, 0.5}, {0, 0}}},
           {ops::kOp_reduce, "T[3,2] dimensions=[1] reducer=max", {{1, kNaN, 3, 2, 4, 4}}, {{kNaN, kNaN, 2, 0, 1.5, 1.5}}},
           {ops::kOp_reduce, "T[2,2] dimensions=[0] reducer=min", {{1, kNaN, 3, 2}}, {{1, kNaN, 0, kNaN}}},
           {ops::kOp_maximum, "T[4] T[4]", {{1, kNaN, 3, kNaN}, {kNaN, 2, 4, kNaN}}, {{1, 2, 0, 4}, {0, 0, 0, 0}}, 0},
           {ops::kOp_maximum, "T[4] T[4]", {{1, kNaN, 3, kNaN}, {kNaN, 2, 4, kNaN}}, {{1, 2, 3, 4}, {0, 0, 0, 0}}, 1},
           {ops::kOp_minimum, "T[4] T[4]", {{1, kNaN, 3, kNaN}, {kNaN, 2, 4, kNaN}}, {{1, 2, 3, 4}, {0, 0, 0, 0}}, 0},
           {ops::kOp_minimum, "T[4] T[4]", {{1, kNaN, 3, kNaN}, {kNaN, 2, 4, kNaN}}, {{1, 2, 0, 4}, {0, 0, 0, 0}}, 1},
           // As minimum(maximum(x, low), high) says.
           {ops::kOp_clamp, five, {low, mid, high}, {{1, 2, 0, 4, 5}, {0, 0, 0, 0, 0}}, 0},
           {ops::kOp_clamp, five, {low, mid, high}, {{1, 2, 3, 0, 5}, {0, 0, 0, 0, 0}}, 1},
           {ops::kOp_clamp, five, {low, mid, high}, {{1, 2, 3, 4, 5}, {0, 0, 0, 0, 0}}, 2},
           {ops::kOp_clip, "T[2] low=-1 high=1", {{kNaN, 3}}, {{1, 0}, {0, 0}}},
           {ops::kOp_relu, "T[2]", {{kNaN, -1}}, {{1, 0}, {0, 0}}},
           {ops::kOp_relu6, "T[3]", {{kNaN, -1, 7}}, {{1, 0, 0}, {0, 0, 0}}},
           {ops::kOp_max_pool, "T[1,4,1] window=[2]", {x}, {{0, 1, 0, 2}, {0, 0, 0, 0}}},
           {ops::kOp_max_pool, "T[1,4,1] window=[3] strides=[1]", {x}, {{0, 3, 0, 0}, {0, 0, 0, 0}}},
           {ops::kOp_max_pool, "T[1,4,1] window=[2] strides=[3] padding=same", {x}, {{0, 1, 0, 2}, {0, 0, 0, 0}}},
           {ops::kOp_reduce_window, "T[3] window_dimensions=[3] reducer=max", {{1, kNaN, 3}}, {{0, 1, 0}, {0, 0, 0}}},
           {ops::kOp_reduce_window, "T[3] window_dimensions=[3] reducer=min", {{1, kNaN, 3}}, {{0, 1, 0}, {0, 0, 0}}},
           {ops::kOp_reduce_window, "T[3] window_dimensions=[2] reducer=max padding=[1,1]", {{kNaN, 2, kNaN}}, {{3, 0, 7}, {0, 0, 0}}},
           {ops::kOp_scatter,
            "T[3] i32[4]<0:3> T[4] update_window_dims=[] inserted_window_dims=[0] scatter_dims_to_operand_dims=[0] index_vector_dim=1 "
            "reducer=max",
            {{1, kNaN, 5}, {0, 0, 1, 2}, {3, 3, 9, 5}},
            {{0, kNaN, 1.5}},
            0},
           {ops::kOp_scatter,
            "T[3] i32[4]<0:3> T[4] update_window_dims=[] inserted_window_dims=[0] scatter_dims_to_operand_dims=[0] index_vector_dim=1 "
            "reducer=max",
            {{1, kNaN, 5}, {0, 0, 1, 2}, {3, 3, 9, 5}},
            {{0.5, 0.5, kNaN, 1.5}},
            2},
           {ops::kOp_softmax, "T[2]", {{kNaN, 1}}, {{kNaN, kNaN}}},
       }) {
    Check(row);
  }
}

// cummax and cummin, sort and top_k send it with the element that they chose.
TEST(GradientConventions, OfNanThatIsChosen) {
  const struct {
    const ir::OpDef& op;
    ir::Attrs attrs;
    List slope;
  } kChosen[] = {{ops::kOp_cummax, {}, {1, 5, 0}}, {ops::kOp_cummin, {}, {1, 5, 0}}, {ops::kOp_top_k, {int64_t{1}}, {0, 1, 0}}};
  for (const auto& [op, attrs, slope] : kChosen) {
    SCOPED_TRACE(op.c_name);
    ir::Builder b;
    const ir::Value x = test::NewParameter(ir::Type::Tensor(DType::kF64, {3}));
    const ir::Values y = ops::CallAll(b, op, {x}, attrs);
    ASSERT_TRUE(b.ok()) << b.status();
    const auto gradient = autodiff::Gradient(b, Sum(b, y[0]), {{x}});
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    HostTensor values(DType::kF64, {3});
    for (int64_t i = 0; i < 3; ++i) values.SetDouble(i, i == 1 ? kNaN : static_cast<double>(i + 1));
    const auto found = reference::Interpret(*ir::Function::Create("f", {x}, {(*gradient)[0]}), {{values}});
    ASSERT_TRUE(found.ok()) << found.status();
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ((*found)[0].GetDouble(i), slope[static_cast<size_t>(i)]) << i;
  }
}

TEST(GradientConventions, OfPolesAndRoots) {
  for (const Row& row : std::vector<Row>{
           {ops::kOp_sqrt, "T[2]", {{0, 4}}, {{kInf, 0.5}, {-kInf, -0.125}, {kInf, 0.09375}}},
           {ops::kOp_rsqrt, "T[2]", {{0, 4}}, {{-kInf, -0.125}, {kInf, 0.09375}, {-kInf, -0.1171875}}},
           {ops::kOp_log, "T[2]", {{0, 2}}, {{kInf, 1}, {-kInf, -1}, {kInf, 2}}},
           {ops::kOp_log1p, "T[2]", {{-1, 1}}, {{kInf, 1}, {-kInf, -1}, {kInf, 2}}},
           {ops::kOp_erf_inv, "T[3]", {{1, -1, 0}}, {{kInf, kInf, 2.658681}, {kInf, -kInf, 0}, {kInf, kInf, 37.58623}}},
           // PyTorch: NaN from the second order on.
           {ops::kOp_atan2, "T[3] T[3]", {{0, 0, 1}, {0, -1, 0}}, {{0, -2, 0}, {0, 0, 0}, {0, 16, 0}}, 0},
           {ops::kOp_atan2, "T[3] T[3]", {{0, 0, 1}, {0, -1, 0}}, {{0, 0, -3}, {0, 0, 0}, {0, 0, 54}}, 1},
           {ops::kOp_atan2, "T[2] T[2]", {{3e200, 3e-200}, {4e200, 4e-200}}, {{4 / 25e200, 8 / 25e-200}}},
           // PyTorch's slope of the first is -10: 1 / 0.1 rounds up.
           {ops::kOp_rem, "T[3] T[3]", {{1, 7, -7}, {0.1, 2, 2}}, {{-9, -6, 9}, {0, 0, 0}}, 1},
       }) {
    Check(row);
  }
}

TEST(GradientConventions, OfPowers) {
  const List x = {0, 0, 0, 0, 0, 0, -2, -2, 2, 2, -2, -0.0}, y = {2, 3, 1, 0, -1, 0.5, 2, 3, 0, 1, 0, 0};
  for (const Row& row : std::vector<Row>{
           // PyTorch has NaN at 0^0 from the second order on and at 0^1 in the third.
           {ops::kOp_pow,
            "T[12] T[12]",
            {x, y},
            {{0, 0, 3, 0, -kInf, kInf, -28, 96, 0, 10, 0, 0},
             {2, 0, 0, 0, kInf, -kInf, 98, -768, 0, 0, 0, 0},
             {0, 48, 0, 0, -kInf, kInf, 0, 3072, 0, 0, 0, 0}}},
           // PyTorch: NaN in the second order where ours is 0.
           {ops::kOp_pow,
            "T[8] T[8]",
            {{0, 0, 0, 0, 0, -2, 2, 2}, {2, 1, 0, -1, 0.5, 3, 0, 3}},
            {{0, 0, 0, -kInf, 0, kNaN, 4.852030, 44.36142}, {0, 0, 0, kInf, 0, kNaN, 23.54219, 245.9920}},
            1},
           {ops::kOp_integer_pow, "T[2] exponent=0", {{0, 1}}, {{0, 0}, {0, 0}}},
           {ops::kOp_integer_pow, "T[2] exponent=1", {{0, 1}}, {{1, 2}, {0, 0}}},
           {ops::kOp_integer_pow, "T[2] exponent=2", {{0, 1}}, {{0, 4}, {2, 8}, {0, 0}}},
           {ops::kOp_integer_pow, "T[2] exponent=3", {{0, 1}}, {{0, 6}, {0, 24}, {6, 48}}},
           {ops::kOp_integer_pow, "T[2] exponent=-1", {{0, 2}}, {{-kInf, -0.5}, {kInf, 1}, {-kInf, -3}}},
           {ops::kOp_square, "T[2]", {{0, 1}}, {{0, 4}, {2, 8}, {0, 0}}},
           {ops::kOp_prod, "T[4]", {{1, 0, 2, 3}}, {{0, 6, 0, 0}, {12, 23, 6, 4}, {68, 58, 28, 20}}},
           {ops::kOp_prod, "T[4]", {{0, 5, 0, 3}}, {{0, 0, 0, 0}, {45, 0, 15, 0}, {156, 18, 52, 30}}},
           {ops::kOp_prod, "T[3]", {{0, 0, 0}}, {{0, 0, 0}, {0, 0, 0}, {12, 6, 4}}},
           {ops::kOp_prod,
            "T[2,3] dims=[1]",
            {{1, 0, 2, 0, 0, 3}},
            {{0, 2, 0, 0, 0, 0}, {4, 5, 2, 30, 24, 0}, {12, 6, 4, 120, 96, 80}}},
       }) {
    Check(row);
  }
}

// The mixed derivatives of a power are one number, whichever comes first; also at exponents where rules branch.
TEST(GradientConventions, MixedDerivativesOfPowersAgree) {
  ir::Builder b;
  const ir::Type type = ir::Type::Tensor(DType::kF64, {3});
  const ir::Value x = test::NewParameter(type), y = test::NewParameter(type);
  const auto first = autodiff::Gradient(b, Sum(b, ops::Call(b, ops::kOp_pow, {x, y})), {{x, y}});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto xy = autodiff::Gradient(b, Sum(b, (*first)[0]), {{y}});
  const auto yx = autodiff::Gradient(b, Sum(b, (*first)[1]), {{x}});
  ASSERT_TRUE(xy.ok() && yx.ok());
  HostTensor base(DType::kF64, {3}), exponent(DType::kF64, {3});
  for (int64_t i = 0; i < 3; ++i) base.SetDouble(i, 2), exponent.SetDouble(i, static_cast<double>(i));
  const auto values = reference::Interpret(*ir::Function::Create("f", {x, y}, {(*xy)[0], (*yx)[0]}), {{base, exponent}});
  ASSERT_TRUE(values.ok()) << values.status();
  for (int64_t i = 0; i < 3; ++i) {
    const double y = static_cast<double>(i), n = y + 1;
    const double expected = n * n * std::pow(2, y - 1) * (1 + y * std::log(2));
    EXPECT_NEAR((*values)[0].GetDouble(i), expected, 1e-12);
    EXPECT_NEAR((*values)[1].GetDouble(i), expected, 1e-12);
  }
}

TEST(GradientConventions, OfReductionsAndNorms) {
  for (const Row& row : std::vector<Row>{
           // The first element is itself: PyTorch says NaN.
           {*ops::FindCalled("logcumsumexp"), "T[3]", {{-kInf, 1, 2}}, {{1, 2.8068242741, 2.1931757358}}},
           {ops::kOp_logsumexp,
            "T[4,2] dims=[1]",
            {{-kInf, 0, 0, 0, -kInf, -kInf, kInf, 0}},
            {{0, 1, 1, 1, kNaN, kNaN, kNaN, 0}, {0, 0, -0.5, 0.5, kNaN, kNaN, kNaN, kNaN}}},
           {ops::kOp_softmax,
            "T[3,3]",
            {{-kInf, 0, 0, 1000, 0, -1000, -kInf, -kInf, -kInf}},
            {{0, -0.25, 0.25, 0, 0, 0, kNaN, kNaN, kNaN},
             {0, 0, 0, 0, 0, 0, kNaN, kNaN, kNaN},
             {0, 0.125, -0.125, 0, 0, 0, kNaN, kNaN, kNaN}}},
           {ops::kOp_log_softmax,
            "T[2,3]",
            {{1000, 0, -1000, 0, 0, 0}},
            {{-5, 2, 3, -1, 0, 1}, {0, 0, 0, 5, 0, -5}, {0, 0, 0, -1.6666667, 3.3333333, -1.6666667}}},
           {ops::kOp_cross_entropy,
            "T[3,3] i32[3] reduction=sum",
            {{1000, 0, -1000, 1000, 0, -1000, 0, 0, 0}, {0, 1, 1}},
            {{0, 0, 0, 1, -1, 0, 0.33333333, -0.66666667, 0.33333333},
             {0, 0, 0, 0, 0, 0, -0.33333333, 0, 0.33333333},
             {0, 0, 0, 0, 0, 0, 0.11111111, -0.22222222, 0.11111111}}},
           {ops::kOp_cross_entropy,
            "T[1,3] i32[1] reduction=sum",
            {{-kInf, 0, 0}, {1}},
            {{0, -0.5, 0.5}, {0, -0.25, 0.25}, {0, 0, 0}}},
           {ops::kOp_std, "T[1]", {{5}}, {{0}, {0}, {0}}},
           {ops::kOp_std, "T[3]", {{2, 2, 2}}, {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
           {ops::kOp_std,
            "T[3]",
            {{1, 2, 4}},
            {{-0.356348, -0.0890871, 0.445435}, {-0.0381802, 0.0572703, -0.0190901}, {0.0545431, -0.0722696, 0.0177265}}},
           {ops::kOp_var, "T[1]", {{5}}, {{0}, {0}}},
           {ops::kOp_var, "T[3]", {{2, 2, 2}}, {{0, 0, 0}, {-0.6666667, 0, 0.6666667}, {0, 0, 0}}},
           // PyTorch's third order is that of an rms_norm: it does not add up to 0, as it must.
           {ops::kOp_layer_norm,
            "T[1,3]",
            {{2, 2, 2}},
            {{-316.2278, 0, 316.2278}, {0, 0, 0}, {63245553.2, 0, -63245553.2}}},
           {ops::kOp_rms_norm, "T[1,3]", {{0, 0, 0}}, {{1000, 2000, 3000}, {0, 0, 0}, {-14e9, -28e9, -42e9}}},
           {ops::kOp_batch_norm, "T[3,1] T[1] T[1]", {{2, 2, 2}, {1}, {0}}, {{-316.2278, 0, 316.2278}, {0, 0, 0}}},
           // Nothing to differentiate.
           {ops::kOp_sum, "T[2,0] dims=[1]", {{}}, {{}, {}}},
           {ops::kOp_prod, "T[2,0] dims=[1]", {{}}, {{}, {}}},
           {ops::kOp_prod, "T[0,2] dims=[1]", {{}}, {{}, {}}},
           {ops::kOp_mean, "T[0,2] dims=[1]", {{}}, {{}, {}}},
           {ops::kOp_logsumexp, "T[2,0] dims=[1]", {{}}, {{}, {}}},
           {ops::kOp_softmax, "T[0,3]", {{}}, {{}, {}}},
           {ops::kOp_prod, "T[1]", {{0}}, {{1}, {0}}},
           {ops::kOp_prod, "T[]", {{0}}, {{1}, {0}}},
           {ops::kOp_reduce, "T[2] dimensions=[] reducer=prod", {{0, 3}}, {{1, 2}, {0, 0}}},
       }) {
    Check(row);
  }
}

// Far out, where a factor is infinite or gone and its product with 0 would be NaN.
TEST(GradientConventions, OfSaturatedFunctions) {
  for (const Row& row : std::vector<Row>{
           {ops::kOp_sigmoid, "T[3]", {{1000, -1000, 0}}, {{0, 0, 0.75}, {0, 0, 0}, {0, 0, -3.375}}},
           {ops::kOp_tanh, "T[3]", {{1000, -1000, 0}}, {{0, 0, 3}, {0, 0, 0}, {0, 0, -54}}},
           {ops::kOp_softplus, "T[3]", {{1000, -1000, 0}}, {{1, 0, 1.5}, {0, 0, 2.25}, {0, 0, 0}}},
           {ops::kOp_silu, "T[3]", {{1000, -1000, 0}}, {{1, 0, 1.5}, {0, 0, 4.5}, {0, 0, 0}}},
           {ops::kOp_gelu, "T[3]", {{100, -100, 0}}, {{1, 0, 1.5}, {0, 0, 7.180961}, {0, 0, 0}}},
           // PyTorch: NaN in the third order.
           {ops::kOp_gelu, "T[3] form=tanh", {{100, -100, 0}}, {{1, 0, 1.5}, {0, 0, 7.180961}, {0, 0, 0}}},
           {ops::kOp_elu, "T[2]", {{1000, -1000}}, {{1, 0}, {0, 0}, {0, 0}}},
           {ops::kOp_erf, "T[3]", {{30, -30, 0}}, {{0, 0, 3.385138}, {0, 0, 0}, {0, 0, -60.93248}}},
           {ops::kOp_expm1, "T[2]", {{-1000, 0}}, {{0, 2}, {0, 4}, {0, 8}}},
           {ops::kOp_where, "i1[2] T[2] T[2]", {{1, 0}, {2, kInf}, {kNaN, 3}}, {{1, 0}, {0, 0}}, 1},
           // A root whose cube overflows.
           {ops::kOp_rms_norm, "T[1,2]", {{3e150, 4e150}}, {{-9.050967e-152, 6.788225e-152}}},
           // A key that is hidden has no slope, whatever its score.
           {ops::kOp_scaled_dot_product_attention,
            "T[1,2] T[2,2] T[2,1] i1[1,2]",
            {{1, 1}, {1, 2, 1e300, 4}, {5, 7}, {1, 0}},
            {{0, 0}, {0, 0}}},
           // A query that sees no key has none, and gives none to the keys.
           {ops::kOp_scaled_dot_product_attention,
            "T[2,1] T[2,1] T[2,1] i1[2,2]",
            {{1, 1}, {0.5, -0.5}, {1, 3}, {0, 0, 1, 1}},
            {{0, -0.7864477}, {0, 0.7268620}}},
           {ops::kOp_scaled_dot_product_attention,
            "T[2,1] T[2,1] T[2,1] T[2,2]",
            {{1, 1}, {0.5, -0.5}, {1, 3}, {-kInf, -kInf, 0, 0}},
            {{-0.7864477, 0.7864477}, {-0.3634310, 0.3634310}},
            1},
           {ops::kOp_scaled_dot_product_attention,
            "T[2,1] T[2,1] T[2,1] T[2,2]",
            {{1, 1}, {0.5, -0.5}, {1, 3}, {-kInf, -kInf, 0, 0}},
            {{0, 0, -0.7864477, 0.7864477}, {0, 0, -0.3634310, 0.3634310}},
            3},
           {ops::kOp_scaled_dot_product_attention,
            "T[2,1] T[1,1] T[1,1] causal_alignment=lower_right",
            {{1, 1}, {0.5}, {3}},
            {{2}, {0}},
            2},
           {ops::kOp_softmax, "T[2,2] safe=true", {{-kInf, -kInf, 0, 0}}, {{0, 0, -0.25, 0.25}, {0, 0, 0, 0}}},
           // The value of padding and what it surrounds do not meet: NaN inside stays inside.
           {ops::kOp_pad, "T[1] T[] edge_padding_low=[1] edge_padding_high=[1] interior_padding=[0]", {{kNaN}, {2}}, {{4}, {0}}, 1},
       }) {
    Check(row);
  }
}

// What pads a window never wins it, not against -inf and not against NaN before or after it.
TEST(GradientConventions, OfPoolingGradientsSkipPadding) {
  for (const List& x : {List{-kInf, 1}, List{1, -kInf}, List{-kInf, -kInf}}) {
    ir::Builder b;
    const ir::Value operand = test::NewParameter(ir::Type::Tensor(DType::kF64, {2}));
    const ir::Value source = test::NewParameter(ir::Type::Tensor(DType::kF64, {3}));
    const ir::Value y = ops::Call(b, ops::kOp_select_and_scatter, {operand, source}, {ir::Ints{2}, ir::Ints{1}, ir::Ints{1, 1}});
    const auto gradient = autodiff::Gradient(b, Sum(b, y), {{source}});
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    HostTensor values(DType::kF64, {2});
    for (int64_t i = 0; i < 2; ++i) values.SetDouble(i, x[static_cast<size_t>(i)]);
    const auto found = reference::Interpret(*ir::Function::Create("f", {operand, source}, {(*gradient)[0]}),
                                            {{values, HostTensor(DType::kF64, {3})}});
    ASSERT_TRUE(found.ok()) << found.status();
    // Each window's slope is the weight of the place it chose.
    EXPECT_EQ((*found)[0].GetDouble(0), 1);
    EXPECT_EQ((*found)[0].GetDouble(1), x[0] >= x[1] ? 1 : 2);
    EXPECT_EQ((*found)[0].GetDouble(2), 2);
  }
}

TEST(GradientConventions, WhatHasNoRuleIsRefusedByName) {
  const struct {
    const ir::OpDef& op;
    std::string call;
    int order;
    std::string name;
  } kRefused[] = {
      {ops::kOp_max_pool, "T[1,300,1] window=[257] strides=[1]", 2, "select_and_scatter"},
  };
  for (const auto& [op, call, order, name] : kRefused) {
    const ir::Sample sample{.call = call};
    auto c = test::MakeCase(op, sample, DType::kF64);
    ASSERT_TRUE(c.ok()) << c.status();
    ir::Builder b;
    ir::Value y = ops::Call(b, op, c->operands, c->parsed.attrs);
    for (int k = 1; k <= order; ++k) {
      const auto gradient = autodiff::Gradient(b, Sum(b, ops::Mul(b, y, y)), {{c->parameters[0]}});
      if (k < order) {
        ASSERT_TRUE(gradient.ok()) << gradient.status();
        y = (*gradient)[0];
      } else {
        EXPECT_EQ(gradient.status().code(), absl::StatusCode::kUnimplemented) << gradient.status();
        EXPECT_THAT(std::string(gradient.status().message()), ::testing::StartsWith("in the gradient of " + name + ": "));
      }
    }
  }
}

}  // namespace
}  // namespace weft
