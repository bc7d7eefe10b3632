// Every differentiable operation to its third derivative: each gradient against finite differences of the order below it, in
// f64 on the reference. Drawn from the operation table, at random points and at those where rules go wrong: zeros, ties,
// edges. What no difference can judge is in gradient_conventions_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "src/autodiff/gradient.h"
#include "src/ops/build.h"
#include "tests/support/only_op.h"
#include "tests/ops/op_matrix.h"

namespace weft {
namespace {

using test::Case;

constexpr int kOrders = 3;

// The slope of f at 0 where both sides agree about it, by differences.
struct Slope {
  double value = NAN;
  bool bounded = true;  // f is finite all around
  bool smooth = false;
};

// What two estimates of one slope may differ by. Rounding adds about 1e-16 |f| / step, at most 1e-11 |f|.
double Spread(double relative, double slope, double f) { return relative * (1 + std::fabs(slope)) + 1e-9 * std::fabs(f); }

// The slope on one side of f(0) = at, from f(h / 2), f(h) and f(2 h); error h^3. NaN where the three do not agree.
double Side(double at, double f0, double f1, double f2, double h) {
  const double d0 = (f0 - at) / (h / 2), d1 = (f1 - at) / h, d2 = (f2 - at) / (2 * h);
  const double slope = (8 * d0 - 6 * d1 + d2) / 3;
  return std::fabs(slope - (2 * d0 - d1)) <= Spread(1e-3, slope, at) ? slope : NAN;
}

// Large steps first: they round least; kinks and poles nearby ask for smaller ones.
template <typename F>
Slope Measure(F f) {
  Slope slope;
  const double at = f(0);
  for (const double h : {0x1p-8, 0x1p-11, 0x1p-14}) {
    const std::array<double, 3> up = {f(h / 2), f(h), f(2 * h)}, down = {f(-h / 2), f(-h), f(-2 * h)};
    slope.bounded = std::isfinite(at);
    for (int i = 0; i < 3; ++i) slope.bounded = slope.bounded && std::isfinite(up[i]) && std::isfinite(down[i]);
    if (!slope.bounded) continue;
    // Error h^4 each, h^6 together.
    const double wide = (8 * (up[1] - down[1]) - (up[2] - down[2])) / (12 * h);
    const double narrow = (8 * (up[0] - down[0]) - (up[1] - down[1])) / (6 * h);
    const double right = Side(at, up[0], up[1], up[2], h), left = Side(at, down[0], down[1], down[2], -h);
    slope.value = (16 * narrow - wide) / 15;
    slope.smooth = std::fabs(narrow - wide) <= Spread(1e-7, wide, at) && std::fabs(right - left) <= Spread(1e-3, wide, at);
    if (slope.smooth) break;
  }
  return slope;
}

// Where sides differ: the sums of the smaller and of the larger slopes of all outputs, each times its weight. NaN where one
// is not known. f gives the outputs.
template <typename F>
std::pair<double, double> Between(F f, const std::vector<HostTensor>& weights) {
  constexpr double h = 0x1p-14;
  const std::vector<HostTensor> at = f(0), up[] = {f(h / 2), f(h), f(2 * h)}, down[] = {f(-h / 2), f(-h), f(-2 * h)};
  double least = 0, most = 0;
  for (size_t r = 0; r < at.size(); ++r) {
    if (!IsFloat(at[r].dtype())) continue;
    for (int64_t i = 0; i < at[r].count(); ++i) {
      auto side = [&](const std::vector<HostTensor>(&to)[3], double step) {
        return weights[r].GetDouble(i) * Side(at[r].GetDouble(i), to[0][r].GetDouble(i), to[1][r].GetDouble(i), to[2][r].GetDouble(i), step);
      };
      const double right = side(up, h), left = side(down, -h);
      least += right < left ? right : left;
      most += right < left ? left : right;
    }
  }
  return {least, most};
}

struct Tally {
  int smooth = 0, kinks = 0, none = 0, refused = 0;
};
using Tallies = std::map<std::string, std::array<Tally, kOrders>>;

// One scalar of all results, weighted by numbers no two of which are alike, so that mistakes cannot cancel.
absl::StatusOr<ir::Value> Weigh(ir::Builder& b, std::span<const ir::Value> results, std::mt19937& random,
                                std::vector<HostTensor>* weights) {
  ir::Value total;
  for (const ir::Value& result : results) {
    weights->emplace_back(result.dtype(), result.dims());
    if (!IsFloat(result.dtype())) continue;
    for (int64_t i = 0; i < weights->back().count(); ++i) weights->back().SetDouble(i, 0.5 + 0x1p-32 * random());
    const ir::Value product = ops::Mul(b, result, ops::Constant(b, weights->back()));
    const ir::Value sum = ops::Reduce(b, product, ops::Reducer::kSum, ops::Axes(result.dims().size()));
    total = total ? ops::Add(b, total, sum) : sum;
  }
  return b.ok() ? absl::StatusOr<ir::Value>(total) : b.status();
}

// A way through the float operands: one number an element. A single element's is named.
struct Direction {
  std::vector<std::vector<double>> along;
  std::string element;
};

// Dense ones, and some single elements of each operand.
std::vector<Direction> Directions(const Case& c, const std::vector<size_t>& index, int64_t singles,
                                  std::mt19937& random) {
  Direction zero;
  for (size_t i : index) zero.along.emplace_back(c.arguments[i].count(), 0.0);
  std::vector<Direction> directions(2, zero);
  for (Direction& direction : directions) {
    for (auto& part : direction.along) {
      for (double& x : part) x = 0x1p-31 * random() - 1;
    }
  }
  for (size_t w = 0; w < index.size(); ++w) {
    const auto count = static_cast<int64_t>(zero.along[w].size());
    for (int64_t i = 0; i < count; i += (count + singles - 1) / singles) {
      directions.push_back(zero);
      directions.back().along[w][i] = 1;
      directions.back().element = absl::StrCat("along operand ", index[w], " element ", i);
    }
  }
  return directions;
}

// All orders of one case, along some single elements of each operand; 0: it is not smooth, and an order may be refused but
// not fail. Where sides differ (a kink), the gradient must lie between them.
void CheckOrders(const ir::OpDef& op, const Case& c, int64_t singles, Tallies& tallies) {
  std::mt19937 random(7);
  ir::Builder b;
  ir::Values results = ops::CallAll(b, op, c.operands, c.parsed.attrs);
  ASSERT_TRUE(b.ok()) << b.status();
  std::vector<ir::Value> wanted;
  std::vector<size_t> index;
  for (size_t i = 0; i < c.parameters.size(); ++i) {
    if (!IsFloat(c.parameters[i].dtype())) continue;
    wanted.push_back(c.parameters[i]);
    index.push_back(i);
  }
  if (wanted.empty()) return;
  for (int order = 1; order <= kOrders; ++order) {
    SCOPED_TRACE(absl::StrCat("order ", order));
    Tally& tally = tallies[std::string(op.c_name)][order - 1];
    std::vector<HostTensor> weights;
    const auto total = Weigh(b, results, random, &weights);
    ASSERT_TRUE(total.ok()) << total.status();
    if (!*total) return;
    const auto gradients = autodiff::Gradient(b, *total, wanted);
    if (absl::IsUnimplemented(gradients.status())) {
      EXPECT_THAT(std::string(gradients.status().message()), ::testing::StartsWith("in the gradient of "));
      ++tally.refused;
      return;
    }
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    const auto analytic = test::Evaluate(c, *gradients);
    ASSERT_TRUE(analytic.ok()) << analytic.status();
    const auto function = ir::Function::Create("f", c.parameters, {*total});
    const auto outputs = ir::Function::Create("outputs", c.parameters, {results.begin(), results.end()});
    for (size_t w = 0; w < wanted.size(); ++w) {
      ASSERT_EQ((*analytic)[w].dims(), c.arguments[index[w]].dims());
      ASSERT_EQ((*analytic)[w].dtype(), c.arguments[index[w]].dtype());
    }
    if (singles == 0) {
      results.assign(gradients->begin(), gradients->end());
      continue;
    }
    for (const Direction& direction : Directions(c, index, singles, random)) {
      std::vector<HostTensor> moved = c.arguments;
      double got = 0;
      for (size_t w = 0; w < index.size(); ++w) {
        for (int64_t i = 0; i < moved[index[w]].count(); ++i) {
          if (direction.along[w][i] != 0) got += direction.along[w][i] * (*analytic)[w].GetDouble(i);
        }
      }
      auto at = [&](const ir::Function& f, double t) {
        for (size_t w = 0; w < index.size(); ++w) {
          const HostTensor& from = c.arguments[index[w]];
          for (int64_t i = 0; i < from.count(); ++i) {
            const double step = direction.along[w][i];
            if (step != 0) moved[index[w]].SetDouble(i, from.GetDouble(i) + t * step);
          }
        }
        auto values = reference::Interpret(f, moved);
        EXPECT_TRUE(values.ok()) << values.status();
        return values.ok() ? *std::move(values) : std::vector<HostTensor>();
      };
      const Slope slope = Measure([&](double t) { return at(*function, t)[0].GetDouble(0); });
      // Where three tie, the gradient is that of one of their orders, which need not lie between the sides of another.
      const bool orders = &op == &ops::kOp_sort || &op == &ops::kOp_top_k;
      const bool kink = !slope.smooth && slope.bounded && order == 1 && !direction.element.empty() && !orders;
      const auto [least, most] = kink ? Between([&](double t) { return at(*outputs, t); }, weights) : std::pair<double, double>(NAN, NAN);
      if (slope.smooth) {
        ++tally.smooth;
        EXPECT_NEAR(got, slope.value, Spread(1e-6, slope.value, 0)) << direction.element;
      } else if (least <= most) {
        ++tally.kinks;
        EXPECT_GE(got, least - Spread(1e-3, got, 0)) << direction.element;
        EXPECT_LE(got, most + Spread(1e-3, got, 0)) << direction.element;
      } else {
        ++tally.none;
        EXPECT_TRUE(!slope.bounded || std::isfinite(got)) << got << " " << direction.element << " where all around is finite";
      }
    }
    results.assign(gradients->begin(), gradients->end());
  }
}

// Nothing flows through it.
bool Excused(const ir::OpDef& op) {
  return std::any_of(op.absent.begin(), op.absent.end(), [](const ir::Absent& absent) {
    return absent.part == ir::Part::kGradient && absent.reason != ir::Reason::kExpands;
  });
}

// Calls check(op, sample, case) for every sample of every operation that has a gradient, in f64.
template <typename F>
void ForEachCase(uint64_t seed, F check) {
  for (const ir::OpDef* op : ops::AllOps()) {
    if (test::LeftOut(*op)) continue;
    if (Excused(*op)) continue;
    for (const ir::Sample& sample : op->samples) {
      const std::vector<DType> types = ops::SampleTypes(*op, sample);
      if (std::find(types.begin(), types.end(), DType::kF64) == types.end()) continue;
      auto c = test::MakeCase(*op, sample, DType::kF64, seed);
      ASSERT_TRUE(c.ok()) << c.status();
      SCOPED_TRACE(c->name);
      check(*op, sample, *c);
    }
  }
}

// Implicit gradients of numbers that are drawn by rejection are no differences of these numbers: tests/ops/scipy_test.py. No gradient goes
// into running statistics; those of geqrf, ldl and ldl_solve's ld are UNIMPLEMENTED, and numpy_linalg.py has ldl_solve's other one.
bool OfNoDifference(const ir::OpDef& op) {
  constexpr std::string_view kNames[] = {"gamma", "beta", "dirichlet", "gamma_slope", "batch_norm_running",
                                         "geqrf", "ldl",  "ldl_solve"};
  return std::ranges::find(kNames, op.c_name) != std::end(kNames);
}

// Every operation with a gradient was compared at every order, unless it was refused; at most the share was beyond judging.
void ExpectCompared(const Tallies& tallies, double share) {
  Tally all;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (test::LeftOut(*op)) continue;
    const bool floats = std::any_of(op->operands.begin(), op->operands.end(),
                                    [](const ir::OperandDef& operand) { return ir::Contains(operand.types, DType::kF64); });
    // Carried functions: tests/lazy/frames_test. Types of their own: complex_gradient_test.cc.
    const bool generic = std::ranges::any_of(op->samples, [](const ir::Sample& sample) { return sample.call.starts_with("T"); });
    if (Excused(*op) || OfNoDifference(*op) || !floats || !op->regions.empty() || (!generic && !op->samples.empty())) continue;
    const auto found = tallies.find(std::string(op->c_name));
    if (found == tallies.end()) {
      ADD_FAILURE() << op->c_name << " has no sample that is smooth in f64";
      continue;
    }
    bool refused = false;
    for (int k = 0; k < kOrders; ++k) {
      const Tally& tally = found->second[k];
      refused = refused || tally.refused > 0;
      EXPECT_TRUE(tally.smooth > 0 || refused) << op->c_name << " was never compared at order " << k + 1;
      all.smooth += tally.smooth;
      all.kinks += tally.kinks;
      all.none += tally.none;
    }
  }
  EXPECT_GT(all.smooth, 10'000);
  EXPECT_LE(all.none, share * (all.smooth + all.kinks)) << "too many points that no difference could judge";
}

TEST(Gradients, OfThreeOrdersAgreeWithFiniteDifferences) {
  Tallies tallies;
  for (uint64_t seed : {1, 2}) {
    ForEachCase(seed, [&](const ir::OpDef& op, const ir::Sample& sample, Case& c) {
      CheckOrders(op, c, sample.gradient ? 4 : 0, tallies);
    });
  }
  ExpectCompared(tallies, 0.01);
}

// Few values, so that elements tie, and many zeros; the range of the sample says where the operation is smooth inside.
TEST(Gradients, OfThreeOrdersHoldAtZerosTiesAndEdges) {
  constexpr double kValues[] = {-1, -0.5, 0, 0.5, 1, 2};
  enum Pattern { kMixed, kMostlyZeros, kEqual };
  Tallies tallies;
  for (const Pattern pattern : {kMixed, kMostlyZeros, kEqual}) {
    ForEachCase(3, [&](const ir::OpDef& op, const ir::Sample& sample, Case& c) {
      if (!sample.gradient) return;
      std::vector<double> values;
      std::mt19937 random(11);
      for (double value : kValues) {
        if (value >= sample.low && value <= sample.high) values.push_back(value);
      }
      const bool zero = std::find(values.begin(), values.end(), 0.0) != values.end();
      ASSERT_FALSE(values.empty());
      for (size_t a = 0; a < c.arguments.size(); ++a) {
        HostTensor& argument = c.arguments[a];
        if (!IsFloat(argument.dtype())) continue;
        for (int64_t i = 0; i < argument.count(); ++i) {
          double value = values[random() % values.size()];
          if (pattern == kMostlyZeros && zero && random() % 2 == 0) value = 0;
          if (pattern == kEqual) value = zero ? 0 : values[0];
          argument.SetDouble(i, value);
        }
        if (c.parsed.operands[a].dominant) ops::MakeDominant(sample, argument);
      }
      CheckOrders(op, c, 12, tallies);
    });
  }
  ExpectCompared(tallies, 0.1);
}

}  // namespace
}  // namespace weft
