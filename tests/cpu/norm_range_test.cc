// Norms, variances and deviations of numbers whose squares leave the range of their type, and their gradients. The judge is long
// double, where they do not.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "cpu/loop_support.h"
#include "src/autodiff/gradient.h"
#include "src/backends/reference/interpreter.h"
#include "src/ops/build.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/control_programs.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Ints;
using ir::Type;
using ir::Value;
using Vec = std::vector<Value>;
using Real = long double;
using Reals = std::vector<Real>;

enum class Op { kLayerNorm, kRmsNorm, kBatchNorm, kVar, kStd };

// Of a matrix, along its rows, its columns or all of it. Batches are normed along columns.
enum class Along { kRows, kColumns, kAll };

struct Norm {
  Op op;
  Along along;
  double epsilon = 0;
  bool spreads() const { return op == Op::kVar || op == Op::kStd; }
};

const Norm kNorms[] = {
    {Op::kLayerNorm, Along::kRows, 1e-5},    {Op::kLayerNorm, Along::kRows, 0},    {Op::kLayerNorm, Along::kColumns, 1e-5},
    {Op::kLayerNorm, Along::kColumns, 0},    {Op::kRmsNorm, Along::kRows, 1e-6},   {Op::kRmsNorm, Along::kRows, 0},
    {Op::kBatchNorm, Along::kColumns, 1e-5}, {Op::kBatchNorm, Along::kColumns, 0}, {Op::kVar, Along::kRows},
    {Op::kVar, Along::kColumns},             {Op::kVar, Along::kAll},              {Op::kStd, Along::kRows},
    {Op::kStd, Along::kColumns},             {Op::kStd, Along::kAll}};

std::string TitleOf(const Norm& norm, DType dtype, const Dims& dims) {
  constexpr const char* kOps[] = {"layer_norm", "rms_norm", "batch_norm", "var", "std"};
  constexpr const char* kAlong[] = {" along rows", " along columns", " of all"};
  return absl::StrCat(kOps[static_cast<int>(norm.op)], kAlong[static_cast<int>(norm.along)], " epsilon ", norm.epsilon, " ", NameOf(dtype), DimsToString(dims));
}

// The elements that are normed together.
std::vector<std::vector<int64_t>> GroupsOf(Along along, const Dims& dims) {
  std::vector<std::vector<int64_t>> groups(along == Along::kAll ? 1 : dims[along == Along::kRows ? 0 : 1]);
  for (int64_t r = 0; r < dims[0]; ++r) {
    for (int64_t c = 0; c < dims[1]; ++c) {
      groups[along == Along::kAll ? 0 : along == Along::kRows ? r : c].push_back(r * dims[1] + c);
    }
  }
  return groups;
}

// Parameters: x and the result's cotangent. Results: the norm, and the gradient of x.
Ref<const ir::Function> Program(const Norm& norm, DType dtype, const Dims& dims, bool gradient = true) {
  const int64_t groups = static_cast<int64_t>(GroupsOf(norm.along, dims).size());
  const Dims result = !norm.spreads() ? dims : norm.along == Along::kAll ? Dims{} : Dims{groups};
  return test::MakeFunction("main", {Type::Tensor(dtype, dims), Type::Tensor(dtype, result)}, [&](Builder& b, const Vec& p) {
    const auto one = [&](double value) { return ops::Full(b, dtype, {dims[1]}, value); };
    const int64_t axis = norm.along == Along::kRows ? 1 : 0;
    const Ints axes = norm.along == Along::kAll ? Ints{0, 1} : Ints{axis};
    Value y;
    switch (norm.op) {
      case Op::kLayerNorm: y = ops::Call(b, ops::kOp_layer_norm, {p[0], {}, {}}, {axis, norm.epsilon}); break;
      case Op::kRmsNorm: y = ops::Call(b, ops::kOp_rms_norm, {p[0], {}}, {norm.epsilon}); break;
      case Op::kBatchNorm: y = ops::CallAll(b, ops::kOp_batch_norm, {p[0], one(1), one(0)}, {int64_t{1}, norm.epsilon})[0]; break;
      case Op::kVar: y = ops::Call(b, ops::kOp_var, {p[0]}, {axes, false, int64_t{0}}); break;
      case Op::kStd: y = ops::Call(b, ops::kOp_std, {p[0]}, {axes, false, int64_t{0}}); break;
    }
    EXPECT_TRUE(b.ok()) << b.status();
    if (!gradient) return Vec{y};
    const auto slopes = autodiff::Gradient(b, y, {{p[0]}}, p[1]);
    EXPECT_TRUE(slopes.ok()) << slopes.status();
    return Vec{y, (*slopes)[0]};
  });
}

// What a group of elements gives: the results, the gradient of its elements, and how large what they are differences of is.
struct Answer {
  Reals y, dx;
  Real y_top = 0, dx_top = 0;
};

// By what a norm is.
Answer Judge(const Norm& norm, const Reals& x, const Reals& g) {
  Answer answer;
  const auto n = static_cast<Real>(x.size());
  Real mean = 0, square = 0, most = 0, most_g = 0;
  for (const Real v : x) mean += norm.op == Op::kRmsNorm ? 0 : v / n, most = std::max(most, std::fabs(v));
  for (const Real v : g) most_g = std::max(most_g, std::fabs(v));
  Reals d;
  for (const Real v : x) d.push_back(v - mean);
  for (const Real v : d) square += v * v / n;
  const Real root = std::sqrt(square + static_cast<Real>(norm.epsilon)), cancelled = most / root;
  if (norm.op == Op::kVar) {
    answer = {{square}, {}, most * most, most_g * most / n};
    for (const Real v : d) answer.dx.push_back(2 * g[0] * v / n);
  } else if (norm.op == Op::kStd) {
    answer = {{root}, {}, most * cancelled, most_g * cancelled * cancelled / n};
    for (const Real v : d) answer.dx.push_back(g[0] * v / n / root);
  } else {
    Real total = 0, along = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      answer.y.push_back(d[i] / root);
      total += norm.op == Op::kRmsNorm ? 0 : g[i] / n;
      along += g[i] * answer.y[i] / n;
    }
    for (size_t i = 0; i < x.size(); ++i) answer.dx.push_back((g[i] - total - answer.y[i] * along) / root);
    answer.y_top = cancelled, answer.dx_top = most_g * (1 + cancelled * cancelled) / root;
  }
  return answer;
}

// Within `bound` of the largest result that the group has, where the type can hold it.
void Compare(const Reals& want, const Reals& have, DType dtype, Real bound, const std::string& what, Real top) {
  const bool f64 = dtype == DType::kF64, f16 = dtype == DType::kF16;
  const Real most = f64 ? std::numeric_limits<double>::max() : f16 ? 65504.0L : static_cast<Real>(0x1.fep127);
  const Real least = f64 ? std::numeric_limits<double>::min() : f16 ? 0x1p-14L : 0x1p-126L;
  for (const Real v : want) top = std::max(top, std::fabs(v));
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::fabs(want[i]) > 0.98L * most && std::fabs(want[i]) < 1.02L * most) continue;  // either, by a rounding
    if (std::fabs(want[i]) > most) {
      ASSERT_TRUE(std::isinf(have[i]) && (have[i] > 0) == (want[i] > 0)) << what << " " << i << ": " << have[i] << " for " << want[i];
    } else {
      ASSERT_LE(std::fabs(have[i] - want[i]), bound * (top + least)) << what << " " << i << ": " << have[i] << " for " << want[i];
    }
  }
}

// What a type's norms are tried with; a group each.
std::vector<double> MagnitudesOf(DType dtype) {
  if (dtype == DType::kF64) return {1, 1e-300, 1e300, 1e-160, 1e160, 3, 1e-140, 1e140, 1e-220, 1e220, 1e-290};
  if (dtype == DType::kF16) return {1, 1e-3, 1e4, 100, 0.02, 1e3};
  return {1, 1e15, 1e-15, 1e18, 1e-19, 1e19, 3, 1e-22, 1e20, 1e-25, 1e25, 1e-30, 1e30, 0.01, 1e-36, 1e33};
}

HostTensor Random(DType dtype, const Dims& dims, uint64_t seed) {
  HostTensor x(dtype, dims);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> values(-1, 1);
  for (int64_t i = 0; i < x.count(); ++i) x.SetDouble(i, values(random) + 0.25);
  return x;
}

const std::vector<Dims> kShapes = {{16, 300}, {300, 16}, {33, 37}, {5, 4}, {3, 1100}, {700, 3}};
const std::vector<Dims> kFewShapes = {{33, 37}, {5, 4}};

void CheckValues(const Norm& norm, DType dtype, const Dims& dims, double magnitude) {
  const auto groups = GroupsOf(norm.along, dims);
  HostTensor x = Random(dtype, dims, 1);
  const std::vector<double> magnitudes = MagnitudesOf(dtype);
  for (size_t k = 0; k < groups.size(); ++k) {
    for (const int64_t i : groups[k]) x.SetDouble(i, x.GetDouble(i) * (magnitude != 0 ? magnitude : magnitudes[k % magnitudes.size()]));
  }
  const auto function = Program(norm, dtype, dims);
  const HostTensor g = Random(dtype, function->parameters()[1].dims(), 2), arguments[] = {x, g};
  const Real u = dtype == DType::kF64 ? 0x1p-53L : dtype == DType::kF32 ? 0x1p-24L : dtype == DType::kBF16 ? 0x1p-8L : 0x1p-11L;
  const auto check = [&](const std::vector<HostTensor>& have) {
    for (size_t k = 0; k < groups.size() && !testing::Test::HasFatalFailure(); ++k) {
      Reals xs, gs, y, dx;
      for (const int64_t i : groups[k]) {
        const int64_t at = norm.spreads() ? static_cast<int64_t>(k) : i;
        xs.push_back(x.GetDouble(i)), gs.push_back(g.GetDouble(at)), dx.push_back(have[1].GetDouble(i));
        if (!norm.spreads() || y.empty()) y.push_back(have[0].GetDouble(at));
      }
      const Answer want = Judge(norm, xs, gs);
      Compare(want.y, y, dtype, 16 * u, absl::StrCat("group ", k, " result"), want.y_top);
      Compare(want.dx, dx, dtype, 32 * u, absl::StrCat("group ", k, " gradient"), want.dx_top);
    }
  };
  for (const std::string& isa : TestIsas()) {
    SCOPED_TRACE(absl::StrCat(TitleOf(norm, dtype, dims), " of ", magnitude, " ", isa));
    const auto have = RunOnCpu(TestBackend(), function, arguments, isa);
    ASSERT_TRUE(have.ok()) << have.status();
    check(*have);
  }
  if (x.count() > 20000) return;
  SCOPED_TRACE(absl::StrCat(TitleOf(norm, dtype, dims), " of ", magnitude, " reference"));
  const auto have = reference::Interpret(*function, arguments);
  ASSERT_TRUE(have.ok()) << have.status();
  check(*have);
}

TEST(NormRange, ResultsAndGradientsAreRightWhereverTheTypeHasThem) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    for (const Norm& norm : kNorms) {
      for (const Dims& dims : dtype == DType::kF32 && norm.along != Along::kAll ? kShapes : kFewShapes) {
        if (norm.along != Along::kAll) CheckValues(norm, dtype, dims, 0);
        if (HasFatalFailure()) return;
      }
      const std::vector<double> magnitudes = MagnitudesOf(dtype);
      for (size_t m = 0; m < magnitudes.size() && norm.along == Along::kAll; m += 2) {
        CheckValues(norm, dtype, kFewShapes[0], magnitudes[m]);
        if (HasFatalFailure()) return;
      }
    }
  }
  // Rows that no kernel walks twice.
  for (const Norm& norm : kNorms) {
    if (norm.along == Along::kRows) CheckValues(norm, DType::kF32, {9, 40000}, 0);
  }
}

// What is made again for one row changes no bit of the others; and a power of two changes no digit.
TEST(NormRange, OrdinaryRowsKeepTheirBits) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const Norm& norm : kNorms) {
      if (norm.along == Along::kAll) continue;
      for (const Dims& dims : kFewShapes) {
        const auto groups = GroupsOf(norm.along, dims);
        const HostTensor x = Random(dtype, dims, 1);
        HostTensor mixed = x;
        for (size_t k = 0; k < groups.size(); k += 3) {
          const double factor = (dtype == DType::kF64 ? std::array{0x1p900, 0x1p-900} : std::array{0x1p100, 0x1p-100})[k % 2];
          for (const int64_t i : groups[k]) mixed.SetDouble(i, x.GetDouble(i) * factor);
        }
        const auto function = Program(norm, dtype, dims);
        const HostTensor g = Random(dtype, function->parameters()[1].dims(), 2), plain[] = {x, g}, some[] = {mixed, g};
        for (const std::string& isa : TestIsas()) {
          SCOPED_TRACE(absl::StrCat(TitleOf(norm, dtype, dims), " ", isa));
          const auto want = RunOnCpu(TestBackend(), function, plain, isa), have = RunOnCpu(TestBackend(), function, some, isa);
          ASSERT_TRUE(want.ok() && have.ok()) << want.status() << have.status();
          for (size_t k = 0; k < groups.size(); ++k) {
            for (const int64_t i : groups[k]) {
              const int64_t at = norm.spreads() ? static_cast<int64_t>(k) : i;
              if (k % 3 == 0 && (norm.spreads() || norm.epsilon != 0)) continue;
              ASSERT_EQ((*have)[0].GetDouble(at), (*want)[0].GetDouble(at)) << "group " << k;
              if (k % 3 == 0) continue;
              ASSERT_EQ((*have)[1].GetDouble(i), (*want)[1].GetDouble(i)) << "group " << k;
            }
          }
        }
      }
    }
  }
}

// Infinities, NaN and equal elements, as PyTorch has them.
TEST(NormRange, SpecialRows) {
  constexpr double kInf = HUGE_VAL, kNaN = std::numeric_limits<double>::quiet_NaN();
  const double rows[][4] = {{1, kInf, 2, 3}, {1, kNaN, 2, 3}, {0x1p100, 0x1p100, 0x1p100, 0x1p100}, {0, 0, 0, 0}, {0x1p-100, 0x1p-100, 0x1p-100, 0x1p-100}, {-kInf, 1e30, 1e30, 1e30}};
  const auto all = [](double v) { return std::array<double, 4>{v, v, v, v}; };
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const Norm& norm : kNorms) {
      if (norm.along == Along::kAll || (norm.epsilon == 0 && !norm.spreads())) continue;
      for (size_t r = 0; r < std::size(rows); ++r) {
        const bool constant = r >= 2 && r <= 4;
        std::array<double, 4> want = all(constant ? 0 : kNaN);
        if (norm.op == Op::kRmsNorm) {
          if (r == 0) want = {0, kNaN, 0, 0};
          if (r == 2) want = all(1);
          if (r == 4) want = all(0x1p-100 / std::sqrt(1e-6));
          if (r == 5) want = {kNaN, 0, 0, 0};
        }
        const bool columns = norm.along == Along::kColumns;
        const Dims dims = columns ? Dims{4, 1} : Dims{1, 4};
        HostTensor x(dtype, dims), g(dtype, norm.spreads() ? Dims{1} : dims);
        for (int64_t i = 0; i < 4; ++i) x.SetDouble(i, rows[r][i]);
        for (int64_t i = 0; i < g.count(); ++i) g.SetDouble(i, 1);
        const HostTensor arguments[] = {x, g};
        const auto function = Program(norm, dtype, dims);
        for (const std::string& isa : TestIsas()) {
          SCOPED_TRACE(absl::StrCat(TitleOf(norm, dtype, dims), " row ", r, " ", isa));
          const auto have = RunOnCpu(TestBackend(), function, arguments, isa);
          ASSERT_TRUE(have.ok()) << have.status();
          for (int64_t i = 0; i < (*have)[0].count(); ++i) {
            const double y = (*have)[0].GetDouble(i);
            if (std::isnan(want[i])) {
              EXPECT_TRUE(std::isnan(y)) << y;
            } else {
              EXPECT_NEAR(y, want[i], 0x1p-7 * std::fabs(want[i]));
            }
          }
          // No slope leads through a deviation of 0.
          for (int64_t i = 0; i < 4 && constant && norm.spreads(); ++i) EXPECT_EQ((*have)[1].GetDouble(i), 0);
        }
      }
    }
  }
}

// A kernel of rows (vectors along them), of columns (across), or of rows that lie across: what it reduces is needed where a
// condition of the row says so.
LoopKernel Guarded(DType dtype, int64_t rows, int64_t length, bool across, bool reduces_vector, bool when) {
  LoopKernel k;
  LoopBuilder b(k);
  k.dims = {Dim{rows}, Dim{length, true}};
  k.buffers = 4;
  const std::vector<int64_t> strides = across ? std::vector<int64_t>{1, rows} : std::vector<int64_t>{length, 1};
  const ir::ScalarValue x = b.Load({0, dtype, 0, strides}), other = b.Load({1, dtype, 0, {1, 0}}), c = b.Load({2, DType::kBool, 0, {1, 0}});
  const ir::ScalarValue half = b.Binary(ir::ScalarOp::kMul, b.Reduce(ops::Reducer::kSum, x), b.Constant(dtype, 0.5));
  k.stores.push_back({{3, dtype, 0, {1, 0}}, (when ? b.Select(c, half, other) : b.Select(c, other, half)).id, true});
  k.vector_reduces = reduces_vector;
  Finish(k);
  return k;
}

TEST(NormRange, PassesThatNoRowNeedsAreLeftOut) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const auto& [rows, length] : {std::pair<int64_t, int64_t>{37, 5}, {37, 900}, {1, 70}, {100, 3}}) {
      for (const bool when : {true, false}) {
        for (const auto& [across, reduces_vector] : {std::pair{false, true}, {true, false}, {true, true}}) {
          const LoopKernel k = Guarded(dtype, rows, length, across, reduces_vector, when);
          ASSERT_TRUE(IsGuarded(k)) << ToString(k);
          EXPECT_EQ(GuardsOf(k)[0].when, when);
          CheckLoop(k, {{dtype, rows * length}, {dtype, rows}, {DType::kBool, rows}, {dtype, rows}}, dtype == DType::kF64 ? 1e-12 : 2e-4);
          // The pass costs nothing by plan: nobody waits for other threads.
          const CpuTarget target = TestTargets()[0];
          LoopKernel open = k;
          open.stores.push_back(k.stores[0]);
          for (size_t i = 0; i < k.exprs.size(); ++i) {
            if (k.exprs[i].kind == ExprKind::kReduced) open.stores.back().expr = static_cast<uint32_t>(i);
          }
          EXPECT_FALSE(IsGuarded(open));
          EXPECT_GE(PlanLoop(open, target).cost, PlanLoop(k, target).cost);
        }
      }
    }
  }
}

// Norms stay one kernel, and the programs have the pass that makes squares again with a guard.
TEST(NormRange, NormsAreOneKernel) {
  for (const Norm& norm : {kNorms[0], kNorms[4], Norm{Op::kStd, Along::kRows}, Norm{Op::kVar, Along::kRows}}) {
    const auto lowered = FusedAndLowered(Program(norm, DType::kF32, {64, 256}, false));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_EQ(lowered->program.lists[0].size(), 1) << ToString(lowered->program);
  }
}

}  // namespace
}  // namespace weft::cpu
