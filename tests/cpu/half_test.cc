// Composites of f16 and bf16 over the ranges in which rounding every step to 16 bits lost the value (zeros, infinities, NaN):
// the CPU backend and the reference against definitions in double that share nothing with the expansions.
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "src/autodiff/gradient.h"
#include "src/backends/reference/interpreter.h"
#include "src/ops/build.h"
#include "tests/cpu/backend_support.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Value;
using ops::Call;
using Doubles = std::vector<double>;

HostTensor Rounded(DType dtype, const Dims& dims, const Doubles& values) {
  HostTensor t(dtype, dims);
  for (int64_t k = 0; k < t.count(); ++k) t.SetDouble(k, values[k]);
  return t;
}
Doubles ValuesOf(const HostTensor& t) {
  Doubles values(t.count());
  for (int64_t k = 0; k < t.count(); ++k) values[k] = t.GetDouble(k);
  return values;
}

// The distance between neighbours at x.
double Ulp(DType dtype, double x) {
  const int digits = dtype == DType::kF16 ? 11 : 8, lowest = dtype == DType::kF16 ? -14 : -126;
  const int exponent = x == 0 ? lowest : std::max(lowest, std::ilogb(x));
  return std::ldexp(1.0, exponent - digits + 1);
}

struct Range {
  double mean, deviation;
};
constexpr Range kRanges[] = {{0, 1}, {0, 8}, {0, 300}, {1000, 1}, {0, 1e-3}};
constexpr int64_t kRows = 3, kColumns = 500;

double Sum(const Doubles& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
double Mean(const Doubles& x) { return Sum(x) / static_cast<double>(x.size()); }
double Variance(const Doubles& x) {
  const double mean = Mean(x);
  double sum = 0;
  for (double v : x) sum += (v - mean) * (v - mean);
  return sum / static_cast<double>(x.size());
}
double LogSumExp(const Doubles& x) {
  const double most = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double v : x) sum += std::exp(v - most);
  return most + std::log(sum);
}
Doubles Map(const Doubles& x, const std::function<double(double)>& f) {
  Doubles y;
  for (double v : x) y.push_back(f(v));
  return y;
}

struct Composite {
  const char* name;
  Value (*call)(Builder&, const Value& x);
  Doubles (*row)(const Doubles& x);  // what a row of x gives
  double f32_error;                  // of the f32 computation, relative to the largest value of a row and of its result
};

const Composite kComposites[] = {
    {"layer_norm", [](Builder& b, const Value& x) { return Call(b, ops::kOp_layer_norm, {x, Value(), Value()}); },
     [](const Doubles& x) {
       return Map(x, [&](double v) { return (v - Mean(x)) / std::sqrt(Variance(x) + 1e-5); });
     },
     4e-7},
    {"rms_norm", [](Builder& b, const Value& x) { return Call(b, ops::kOp_rms_norm, {x, Value()}, {1e-5}); },
     [](const Doubles& x) {
       const double square = Mean(Map(x, [](double v) { return v * v; }));
       return Map(x, [&](double v) { return v / std::sqrt(square + 1e-5); });
     },
     4e-7},
    {"softmax", [](Builder& b, const Value& x) { return Call(b, ops::kOp_softmax, {x}); },
     [](const Doubles& x) { return Map(x, [&](double v) { return std::exp(v - LogSumExp(x)); }); }, 0},
    {"log_softmax", [](Builder& b, const Value& x) { return Call(b, ops::kOp_log_softmax, {x}); },
     [](const Doubles& x) { return Map(x, [&](double v) { return v - LogSumExp(x); }); }, 4e-7},
    {"logsumexp", [](Builder& b, const Value& x) { return Call(b, ops::kOp_logsumexp, {x}, {ir::Ints{1}}); },
     [](const Doubles& x) { return Doubles{LogSumExp(x)}; }, 4e-7},
    {"mean", [](Builder& b, const Value& x) { return Call(b, ops::kOp_mean, {x}, {ir::Ints{1}}); },
     [](const Doubles& x) { return Doubles{Mean(x)}; }, 4e-7},
    {"var", [](Builder& b, const Value& x) { return Call(b, ops::kOp_var, {x}, {ir::Ints{1}}); },
     [](const Doubles& x) { return Doubles{Variance(x)}; }, 0},
    {"std", [](Builder& b, const Value& x) { return Call(b, ops::kOp_std, {x}, {ir::Ints{1}}); },
     [](const Doubles& x) { return Doubles{std::sqrt(Variance(x))}; }, 0},
    {"mse to 3", [](Builder& b, const Value& x) { return Call(b, ops::kOp_mse, {x, ops::FullLike(b, x, 3)}, {int64_t{2}}); },
     [](const Doubles& x) { return Map(x, [](double v) { return (v - 3) * (v - 3); }); }, 0},
};

void ExpectClose(const HostTensor& got, const Doubles& want, double extra) {
  ASSERT_EQ(got.count(), static_cast<int64_t>(want.size()));
  const HostTensor best = Rounded(got.dtype(), got.dims(), want);
  for (int64_t k = 0; k < got.count(); ++k) {
    if (got.GetDouble(k) == best.GetDouble(k)) continue;
    // Relative, from f32: every one of these adds up some hundred positive numbers or none.
    const double most = 0.51 * Ulp(got.dtype(), want[k]) + extra + 4e-6 * std::abs(want[k]);
    ASSERT_LE(std::abs(got.GetDouble(k) - want[k]), most) << "element " << k << ": " << got.GetDouble(k) << ", not " << want[k];
  }
}

// By the CPU backend on every path, and by the reference.
void ForEachWay(Ref<const ir::Function> function, std::span<const HostTensor> arguments,
                const std::function<void(const std::vector<HostTensor>&)>& check) {
  std::vector<std::string> isas = TestIsas();
  isas.emplace_back("amx-model");
  for (const std::string& isa : isas) {
    SCOPED_TRACE(isa);
    const auto got = RunOnCpu(TestBackend(), function, arguments, isa);
    ASSERT_TRUE(got.ok()) << got.status();
    check(*got);
  }
  SCOPED_TRACE("reference");
  const auto got = reference::Interpret(*function, arguments);
  ASSERT_TRUE(got.ok()) << got.status();
  check(*got);
}

Value NewParameter(DType dtype, const Dims& dims) {
  return Value{ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(dtype, dims)}), 0};
}

class Half : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Half, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(Half, CompositesComputeInF32AndRoundOnce) {
  std::mt19937 random(1);
  for (const Range& range : kRanges) {
    std::normal_distribution<double> draw(range.mean, range.deviation);
    Doubles raw(kRows * kColumns);
    for (double& v : raw) v = draw(random);
    const HostTensor x = Rounded(GetParam(), {kRows, kColumns}, raw);
    const Doubles values = ValuesOf(x);
    for (const Composite& composite : kComposites) {
      SCOPED_TRACE(absl::StrCat(composite.name, " of N(", range.mean, ", ", range.deviation, ")"));
      Builder b;
      const Value p = NewParameter(GetParam(), x.dims());
      const Value y = composite.call(b, p);
      ASSERT_TRUE(b.ok()) << b.status();
      Doubles want;
      double extra = 0;
      for (int64_t r = 0; r < kRows; ++r) {
        const Doubles row(values.begin() + r * kColumns, values.begin() + (r + 1) * kColumns);
        const Doubles result = composite.row(row);
        want.insert(want.end(), result.begin(), result.end());
        // The f32 subtraction of the mean or the largest: an error of the row's size over what it is divided by.
        const double scale = std::abs(range.mean) + 8 * range.deviation;
        const double divisor = std::string_view(composite.name).ends_with("_norm") ? std::sqrt(Variance(row) + 1e-5) : 1;
        extra = std::max(extra, composite.f32_error * scale / divisor);
      }
      ForEachWay(ir::Function::Create("main", {p}, {y}), std::span(&x, 1),
                 [&](const std::vector<HostTensor>& got) { ExpectClose(got[0], want, extra); });
    }
  }
}

TEST_P(Half, LongAxesNeitherOverflowNorVanish) {
  constexpr int64_t kLong = 70'000;
  for (double value : {0.0, 1.0, 3.0}) {
    const HostTensor x = Rounded(GetParam(), {kLong}, Doubles(kLong, value));
    Builder b;
    const Value p = NewParameter(GetParam(), x.dims());
    const std::vector<Value> ys = {Call(b, ops::kOp_mean, {p}), Call(b, ops::kOp_softmax, {p}),
                                   Call(b, ops::kOp_mse, {p, ops::FullLike(b, p, 0)}), Call(b, ops::kOp_rms_norm, {p, Value()})};
    ASSERT_TRUE(b.ok()) << b.status();
    ForEachWay(ir::Function::Create("main", {p}, ys), std::span(&x, 1), [&](const std::vector<HostTensor>& got) {
      ExpectClose(got[0], {value}, 0);
      ExpectClose(got[1], Doubles(kLong, 1.0 / kLong), 0);
      ExpectClose(got[2], {value * value}, 0);
      ExpectClose(got[3], Doubles(kLong, value == 0 ? 0 : 1), 2e-6);
    });
  }
}

TEST_P(Half, ScoresPastTheLargestF16DoNotBreakAttention) {
  const Dims dims = {1, 1, 8, 64};
  const HostTensor q = Rounded(GetParam(), dims, Doubles(8 * 64, 60)), v = Rounded(GetParam(), dims, Doubles(8 * 64, 2));
  Builder b;
  const Value p = NewParameter(GetParam(), dims), w = NewParameter(GetParam(), dims);
  const Value y = Call(b, ops::kOp_scaled_dot_product_attention, {p, p, w, Value()});
  ASSERT_TRUE(b.ok()) << b.status();
  const HostTensor arguments[] = {q, v};  // scores of 230,400 / 8
  ForEachWay(ir::Function::Create("main", {p, w}, {y}), arguments,
             [&](const std::vector<HostTensor>& got) { ExpectClose(got[0], Doubles(8 * 64, 2), 0); });
}

TEST_P(Half, GradientsOfCompositesComputeInF32AndRoundOnce) {
  std::mt19937 random(2);
  std::normal_distribution<double> draw(0, 8);
  Doubles raw(kRows * kColumns), seeds(kRows * kColumns);
  for (double& v : raw) v = draw(random);
  for (double& v : seeds) v = draw(random);
  const Dims dims = {kRows, kColumns};
  const HostTensor arguments[] = {Rounded(GetParam(), dims, raw), Rounded(GetParam(), dims, seeds)};
  const Doubles x = ValuesOf(arguments[0]), g = ValuesOf(arguments[1]);
  Builder b;
  const Value p = NewParameter(GetParam(), dims), seed = NewParameter(GetParam(), dims);
  const auto normed = autodiff::Gradient(b, Call(b, ops::kOp_layer_norm, {p, Value(), Value()}), {{p}}, seed);
  const auto mean = autodiff::Gradient(b, Call(b, ops::kOp_mean, {p}), {{p}}, Value());
  const auto tanh = autodiff::Gradient(b, ops::Tanh(b, p), {{p}}, seed);
  ASSERT_TRUE(normed.ok() && mean.ok() && tanh.ok()) << normed.status() << mean.status() << tanh.status();
  Doubles want_norm(x.size()), want_tanh(x.size());
  for (int64_t r = 0; r < kRows; ++r) {
    const Doubles row(x.begin() + r * kColumns, x.begin() + (r + 1) * kColumns);
    const double average = Mean(row), deviation = std::sqrt(Variance(row) + 1e-5);
    double sum = 0, along = 0;
    for (int64_t c = 0; c < kColumns; ++c) {
      sum += g[r * kColumns + c] / kColumns;
      along += g[r * kColumns + c] * (row[c] - average) / deviation / kColumns;
    }
    for (int64_t c = 0; c < kColumns; ++c) {
      const int64_t k = r * kColumns + c;
      want_norm[k] = (g[k] - sum - (row[c] - average) / deviation * along) / deviation;
      want_tanh[k] = g[k] * (1 - std::tanh(x[k]) * std::tanh(x[k]));
    }
  }
  ForEachWay(ir::Function::Create("main", {p, seed}, {(*normed)[0], (*mean)[0], (*tanh)[0]}), arguments,
             [&](const std::vector<HostTensor>& got) {
               ExpectClose(got[0], want_norm, 4e-6);
               ExpectClose(got[1], Doubles(x.size(), 1.0 / static_cast<double>(x.size())), 0);
               ExpectClose(got[2], want_tanh, 4e-6);  // 1 - y^2 in f32, times up to 30
             });
}

TEST_P(Half, ElementsThatSeveralWindowsChoseAreSummedInF32) {
  // Every window of 4 chooses the middle: 1 + four times three eighths of an ULP of 1, which vanish one by one.
  const double small = 3.0 / 8 * Ulp(GetParam(), 1);
  const HostTensor arguments[] = {Rounded(GetParam(), {7}, {0, 0, 0, 9, 0, 0, 0}),
                                  Rounded(GetParam(), {4}, {1, small, small, small})};
  Builder b;
  const Value x = NewParameter(GetParam(), {7}), source = NewParameter(GetParam(), {4});
  const Value y = Call(b, ops::kOp_select_and_scatter, {x, source}, {ir::Ints{4}});
  ASSERT_TRUE(b.ok()) << b.status();
  ForEachWay(ir::Function::Create("main", {x, source}, {y}), arguments, [&](const std::vector<HostTensor>& got) {
    ExpectClose(got[0], {0, 0, 0, 1 + 3 * small, 0, 0, 0}, 0);
  });
}

// What makes all that cost no memory traffic: kernels and products read 16 bits.
TEST_P(Half, NoWidenedCopyOfATensorIsStored) {
  Builder b;
  const Value x = NewParameter(GetParam(), {64, 96}), w = NewParameter(GetParam(), {96, 32}), bias = NewParameter(GetParam(), {32});
  const Value y = Call(b, ops::kOp_softmax, {Call(b, ops::kOp_linear, {Call(b, ops::kOp_layer_norm, {x, Value(), Value()}), w, bias})});
  ASSERT_TRUE(b.ok()) << b.status();
  const auto module = Prepared(TestBackend(), ir::Function::Create("main", {x, w, bias}, {y}));
  ASSERT_TRUE(module.ok()) << module.status();
  const auto executable = TestBackend().Compile(*module, {});
  ASSERT_TRUE(executable.ok()) << executable.status();
  // The norm; the product with bias and rounding; the softmax.
  EXPECT_EQ((*executable)->stats().kernels, 3);
}

}  // namespace
}  // namespace weft::cpu
