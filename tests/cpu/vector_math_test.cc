// Every function of f32 in ULPs, over values from the whole range of f32, on every instruction set.
#include <bit>
#include <functional>

#include "cpu/loop_support.h"

namespace weft::cpu {
namespace {

using ir::ScalarOp;

// Distance in representable f32 between x and the exact result, with half-ULP resolution lost: exact gives below 0.5.
double UlpsFrom(float x, double exact) {
  if (std::isnan(exact)) return std::isnan(x) ? 0 : 1e30;
  const float rounded = static_cast<float>(exact);
  if (std::isinf(rounded) || std::isinf(x)) return x == rounded || std::fabs(exact) > 3.4e38 ? 0 : 1e30;
  if (x == exact) return 0;
  const double magnitude = std::max(std::fabs(exact), 1.1754943508222875e-38);
  const double ulp = std::ldexp(1.0, std::ilogb(magnitude) - 23);
  return std::fabs(x - exact) / ulp;
}

struct Function {
  ScalarOp op;
  double (*exact)(double);
  double low, high;  // arguments outside are skipped
  double ulps;
};

double Logistic(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double Gelu(double x) { return x * std::erfc(-x * M_SQRT1_2) / 2; }
double Silu(double x) { return x * Logistic(x); }
double GeluTanh(double x) { return x * Logistic(1.59576912160573071176 * (x + 0.044715 * x * x * x)); }
double Rsqrt(double x) { return 1 / std::sqrt(x); }

// The bounds are what cpu_backend asks for where that is 1 ULP or more.
constexpr double kAll = 3.5e38;
const Function kFunctions[] = {
    {ScalarOp::kExp, std::exp, -87.3, 89, 1},      {ScalarOp::kExp2, std::exp2, -126, 128, 1},
    {ScalarOp::kExpm1, std::expm1, -kAll, 89, 1},  {ScalarOp::kLog, std::log, -1, kAll, 1},
    {ScalarOp::kLog1p, std::log1p, -2, kAll, 1},   {ScalarOp::kLogistic, Logistic, -87, kAll, 2},
    {ScalarOp::kTanh, std::tanh, -kAll, kAll, 2},  {ScalarOp::kErf, std::erf, -kAll, kAll, 1.2},
    {ScalarOp::kLog2, std::log2, -1, kAll, 1},     {ScalarOp::kGelu, Gelu, -kAll, kAll, 2},
    {ScalarOp::kGeluTanh, GeluTanh, -kAll, kAll, 2}, {ScalarOp::kSilu, Silu, -kAll, kAll, 2},
    {ScalarOp::kSin, std::sin, -kAll, kAll, 1},    {ScalarOp::kCos, std::cos, -kAll, kAll, 1},
    {ScalarOp::kTan, std::tan, -kAll, kAll, 1},    {ScalarOp::kCbrt, std::cbrt, -kAll, kAll, 1},
    {ScalarOp::kSqrt, std::sqrt, -1, kAll, 0.51},  {ScalarOp::kRsqrt, Rsqrt, 0, kAll, 1.5},
    {ScalarOp::kFloor, std::floor, -kAll, kAll, 0}, {ScalarOp::kCeil, std::ceil, -kAll, kAll, 0},
    {ScalarOp::kRoundAway, std::round, -kAll, kAll, 0}, {ScalarOp::kRoundEven, std::nearbyint, -kAll, kAll, 0},
    {ScalarOp::kTrunc, std::trunc, -kAll, kAll, 0},
};

std::vector<float> Arguments() {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 65521) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (float x = -20; x < 20; x += 0.00137f) values.push_back(x);
  for (float x : {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, 1e-40f, INFINITY, -INFINITY, NAN}) values.push_back(x);
  return values;
}

std::vector<float> RunLoop(const CpuTarget& target, const LoopKernel& kernel, std::vector<std::vector<float>> inputs) {
  Jit jit(target);
  const LoopKernel* one = &kernel;
  const std::string symbol = "loop";
  auto object = CompileLoops(jit, {&one, 1}, {&symbol, 1});
  EXPECT_TRUE(object.ok()) << object.status();
  auto library = jit.Load(*object);
  EXPECT_TRUE(library.ok()) << library.status();
  auto fn = (*library)->Function<LoopFn>("loop");
  EXPECT_TRUE(fn.ok());
  std::vector<float> result(inputs[0].size() + 64);
  std::vector<void*> buffers;
  for (auto& input : inputs) buffers.push_back(input.data());
  buffers.push_back(result.data());
  const LoopPlan plan = PlanLoop(kernel, target);
  (*fn)(buffers.data(), plan.params.data(), 0, plan.tasks, nullptr);
  result.resize(inputs[0].size());
  return result;
}

TEST(VectorMath, FunctionsStayWithinTheirUlps) {
  const std::vector<float> arguments = Arguments();
  for (const CpuTarget& target : TestTargets()) {
    for (const Function& f : kFunctions) {
      LoopKernel k;
      LoopBuilder b(k);
      k.dims = {Dim{static_cast<int64_t>(arguments.size())}};
      k.buffers = 2;
      k.stores.push_back({{1, DType::kF32, 0, {1}}, b.Unary(f.op, b.Load({0, DType::kF32, 0, {1}})).id});
      Finish(k);
      const std::vector<float> results = RunLoop(target, k, {arguments});
      double worst = 0;
      float at = 0;
      for (size_t i = 0; i < arguments.size(); ++i) {
        const float x = arguments[i];
        if (x < f.low || x > f.high) continue;
        const double ulps = UlpsFrom(results[i], f.exact(x));
        if (ulps > worst) {
          worst = ulps;
          at = x;
        }
      }
      EXPECT_LE(worst, f.ulps) << NameOf(target.isa) << " function " << static_cast<int>(f.op) << " at " << at;
    }
  }
}

// f32, and f64 in both its forms: one that needs all digits and one on the way to 16 bits.
TEST(VectorMath, OddFunctionsKeepTheSignOfZeroAndPowersOfTwoAreExact) {
  const ScalarOp odd[] = {ScalarOp::kCbrt, ScalarOp::kErf, ScalarOp::kErfInv, ScalarOp::kExpm1, ScalarOp::kLog1p,
                          ScalarOp::kSin,  ScalarOp::kTan, ScalarOp::kTanh,   ScalarOp::kGelu,
                          ScalarOp::kGeluTanh, ScalarOp::kSilu};
  constexpr int64_t kCount = 300;
  for (const CpuTarget& target : TestTargets()) {
    for (DType dtype : {DType::kF32, DType::kF64}) {
      for (bool for_16_bits : {false, true}) {
        const auto run = [&](ScalarOp op, const std::function<double(int64_t)>& argument) {
          LoopKernel k;
          LoopBuilder b(k);
          b.set_for_16_bits(for_16_bits);
          k.dims = {Dim{kCount}};
          k.buffers = 2;
          k.stores.push_back({{1, dtype, 0, {1}}, b.Unary(op, b.Load({0, dtype, 0, {1}})).id});
          Finish(k);
          HostTensor x(dtype, {kCount}), y(dtype, {kCount});
          for (int64_t i = 0; i < kCount; ++i) x.SetDouble(i, argument(i));
          Jit jit(target);
          const LoopKernel* one = &k;
          const std::string symbol = "loop";
          absl::StatusOr<std::string> object = CompileLoops(jit, {&one, 1}, {&symbol, 1});
          auto library = jit.Load(*object);
          auto fn = (*library)->Function<LoopFn>("loop");
          void* buffers[] = {x.mutable_bytes().data(), y.mutable_bytes().data()};
          const LoopPlan plan = PlanLoop(k, target);
          (*fn)(buffers, plan.params.data(), 0, plan.tasks, nullptr);
          return y;
        };
        SCOPED_TRACE(std::string(NameOf(target.isa)) + " " + std::string(NameOf(dtype)) + (for_16_bits ? " for 16 bits" : ""));
        for (ScalarOp op : odd) {
          const HostTensor y = run(op, [](int64_t i) { return i % 2 == 0 ? -0.0 : 0.0; });
          for (int64_t i = 0; i < 20; ++i) {
            ASSERT_TRUE(y.GetDouble(i) == 0 && std::signbit(y.GetDouble(i)) == (i % 2 == 0)) << static_cast<int>(op);
          }
        }
        const HostTensor powers = run(ScalarOp::kExp2, [](int64_t i) { return i - 149; });
        const HostTensor logarithms = run(ScalarOp::kLog2, [](int64_t i) { return std::ldexp(1.0, static_cast<int>(i) - 149); });
        for (int64_t i = 0; i < 277; ++i) {
          ASSERT_EQ(powers.GetDouble(i), std::ldexp(1.0, static_cast<int>(i) - 149));
          ASSERT_EQ(logarithms.GetDouble(i), i - 149);
        }
        for (const ScalarOp op : {ScalarOp::kExp, ScalarOp::kExp2}) {
          const HostTensor nothing = run(op, [](int64_t i) { return i == 0 ? -INFINITY : -151 - 3.0 * i; });
          for (int64_t i = 0; i < kCount && dtype == DType::kF32; ++i) ASSERT_EQ(nothing.GetDouble(i), 0) << i;
        }
      }
    }
  }
}

TEST(VectorMath, PowersAndAnglesFollowTheirSpecialCases) {
  std::vector<float> xs, ys;
  const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 2.0f, -2.0f, 0.5f, -0.5f, 3.0f, -3.0f, 1e-30f, -1e-30f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN};
  for (float x : special) {
    for (float y : special) {
      xs.push_back(x);
      ys.push_back(y);
    }
  }
  std::mt19937 random(3);
  std::uniform_real_distribution<float> some(-8, 8);
  for (int i = 0; i < 20000; ++i) {
    xs.push_back(some(random));
    ys.push_back(some(random));
  }
  for (const CpuTarget& target : TestTargets()) {
    for (ScalarOp op : {ScalarOp::kPow, ScalarOp::kAtan2}) {
      LoopKernel k;
      LoopBuilder b(k);
      k.dims = {Dim{static_cast<int64_t>(xs.size())}};
      k.buffers = 3;
      k.stores.push_back({{2, DType::kF32, 0, {1}}, b.Binary(op, b.Load({0, DType::kF32, 0, {1}}), b.Load({1, DType::kF32, 0, {1}})).id});
      Finish(k);
      const std::vector<float> results = RunLoop(target, k, {xs, ys});
      for (size_t i = 0; i < xs.size(); ++i) {
        const double exact = op == ScalarOp::kPow ? std::pow(static_cast<double>(xs[i]), ys[i]) : std::atan2(static_cast<double>(xs[i]), ys[i]);
        ASSERT_LE(UlpsFrom(results[i], exact), 1) << NameOf(target.isa) << " " << static_cast<int>(op) << " of " << xs[i] << " and " << ys[i]
                                                  << " is " << results[i] << ", not " << exact;
      }
    }
  }
}

}  // namespace
}  // namespace weft::cpu
