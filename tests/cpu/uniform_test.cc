// uniform stays in [low, high) in every type and range, is evenly spread over the type's numbers there, and is on every path
// what the reference draws.
#include <cmath>
#include <map>

#include "src/backends/reference/interpreter.h"
#include "src/ops/build.h"
#include "tests/cpu/backend_support.h"

namespace weft::cpu {
namespace {

constexpr int64_t kDraws = 40000;

Ref<const ir::Function> Draw(DType dtype, double low, double high, absl::Status* status) {
  ir::Builder b;
  const ir::Value state{ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(DType::kU64, {3})}), 0};
  const ir::Value x = ops::Call(b, ops::kOp_uniform, {state}, {ir::Ints{kDraws}, low, high, dtype});
  *status = b.status();
  return b.ok() ? ir::Function::Create("uniform", {state}, {x}) : nullptr;
}

HostTensor State() {
  HostTensor state(DType::kU64, {3});
  state.SetInt(0, 7);
  return state;
}

struct Range {
  DType dtype;
  double low, high;
};

TEST(Uniform, StaysInsideItsBoundsInEveryTypeAndRange) {
  constexpr double kF32 = 3.4028234663852886e38, kF64 = 1.7976931348623157e308;
  const Range ranges[] = {
      {DType::kBF16, 100, 101}, {DType::kBF16, 0, 1},        {DType::kBF16, -0.1, 0.3},      {DType::kBF16, -3e38, 3e38},
      {DType::kBF16, 255, 257}, {DType::kBF16, -1e-40, 2e-40}, {DType::kF16, 100, 101},      {DType::kF16, -65504, 65504},
      {DType::kF16, -0.1, 0.3}, {DType::kF16, 2047, 2050},   {DType::kF16, -3e-7, 5e-7},     {DType::kF32, 0, 1},
      {DType::kF32, -kF32, kF32}, {DType::kF32, -3e38, 3e38}, {DType::kF32, 16777215, 16777217}, {DType::kF32, 1, 1.0000002},
      {DType::kF32, -0.1, 0.3}, {DType::kF64, -kF64, kF64},  {DType::kF64, 1, 1.0000000000000004}, {DType::kF64, 0.1, 0.3}};
  for (const Range& r : ranges) {
    SCOPED_TRACE(std::string(NameOf(r.dtype)) + " " + std::to_string(r.low) + " " + std::to_string(r.high));
    absl::Status status;
    const auto function = Draw(r.dtype, r.low, r.high, &status);
    ASSERT_TRUE(status.ok()) << status;
    const HostTensor state = State();
    const auto want = reference::Interpret(*function, {&state, 1});
    ASSERT_TRUE(want.ok());
    double sum = 0;
    for (int64_t i = 0; i < kDraws; ++i) {
      const double x = (*want)[0].GetDouble(i);
      ASSERT_TRUE(x >= r.low && x < r.high) << x << " of draw " << i;
      sum += x / kDraws;
    }
    // Within eight deviations of the middle, and a unit below where the type rounds down.
    const double width = r.high / 2 - r.low / 2, middle = r.low / 2 + r.high / 2;
    const double unit = BitsOf(r.dtype) > 16 ? 0 : std::ldexp(1.0, std::ilogb(r.high) - (r.dtype == DType::kBF16 ? 7 : 10));
    if (width > 0.1 && width < 1e300 && r.high < 1e7) {
      EXPECT_LT(sum, middle + 0.025 * width);
      EXPECT_GT(sum, middle - 0.025 * width - unit);
    }
    for (const std::string& isa : TestIsas()) {
      const auto got = RunOnCpu(TestBackend(), function, {&state, 1}, isa);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_TRUE((*got)[0] == (*want)[0]) << isa;
    }
  }
}

TEST(Uniform, SpreadsEvenlyOverTheNumbersOfA16BitType) {
  absl::Status status;
  const auto function = Draw(DType::kBF16, 100, 102, &status);
  ASSERT_TRUE(status.ok());
  const HostTensor state = State();
  const auto got = RunOnCpu(TestBackend(), function, {&state, 1});
  ASSERT_TRUE(got.ok());
  std::map<double, int> counts;
  for (int64_t i = 0; i < kDraws; ++i) ++counts[(*got)[0].GetDouble(i)];
  ASSERT_EQ(counts.size(), 4u);  // 100, 100.5, 101, 101.5
  for (const auto& [number, count] : counts) EXPECT_NEAR(count, kDraws / 4, 5 * std::sqrt(kDraws * 3 / 16.)) << number;
}

TEST(Uniform, OfF32InAnOrdinaryRangeIsLowPlusTheUnitDrawTimesTheWidth) {
  absl::Status status;
  const auto unit = Draw(DType::kF32, 0, 1, &status), scaled = Draw(DType::kF32, 2, 5, &status);
  const HostTensor state = State();
  const auto u = RunOnCpu(TestBackend(), unit, {&state, 1}), x = RunOnCpu(TestBackend(), scaled, {&state, 1});
  ASSERT_TRUE(u.ok() && x.ok());
  for (int64_t i = 0; i < kDraws; ++i) {
    const volatile float product = static_cast<float>((*u)[0].GetDouble(i)) * 3.0f;
    ASSERT_EQ((*x)[0].GetDouble(i), product + 2.0f);
  }
}

TEST(Uniform, RefusesBoundsThatTheTypeDoesNotHold) {
  absl::Status status;
  Draw(DType::kF16, 0, 1e6, &status);
  EXPECT_NE(status.message().find("low is 0 and high is 1e+06; f16 ends at 65504"), std::string::npos) << status;
  Draw(DType::kF32, -1e39, 0, &status);
  EXPECT_NE(status.message().find("f32 ends at 3.40282e+38"), std::string::npos) << status;
  Draw(DType::kBF16, 100.1, 100.2, &status);
  EXPECT_NE(status.message().find("there is no bf16 in [100.1, 100.2)"), std::string::npos) << status;
}

}  // namespace
}  // namespace weft::cpu
