// Functions from bf16 to bf16 have forms of their own, of fewer operations: with and without them all 65,536 results are the exact
// ones rounded, on every instruction set.
#include <bit>

#include "cpu/loop_support.h"
#include "src/backends/cpu/loop/bf16_rounding.h"

namespace weft::cpu {
namespace {

using ir::ScalarOp;
using ir::ScalarValue;

constexpr int64_t kAllBF16 = 1 << 16;

float Value(int64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Nearest even at once: f32 first rounds to odd.
uint16_t Rounded(double exact) {
  auto near = static_cast<float>(exact);
  uint32_t bits = std::bit_cast<uint32_t>(near);
  if (std::isfinite(near) && near != exact) bits = (bits - (std::fabs(near) > std::fabs(exact))) | 1;
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

struct Function {
  ScalarOp op;
  double (*exact)(double);
};
double Logistic(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double Silu(double x) { return x * Logistic(x); }
double GeluTanh(double x) { return x * Logistic(1.59576912160573071176 * (x + 0.044715 * x * x * x)); }
double Gelu(double x) { return x * std::erfc(-x * M_SQRT1_2) / 2; }
const Function kFunctions[] = {{ScalarOp::kExp, std::exp},       {ScalarOp::kTanh, std::tanh},
                               {ScalarOp::kLogistic, Logistic},  {ScalarOp::kSilu, Silu},
                               {ScalarOp::kGeluTanh, GeluTanh},  {ScalarOp::kGelu, Gelu}};

enum class Argument { kLoaded, kComputed };  // of which a NaN may signal, or is quiet

// From one bf16 to another; with `kept` also to an f32, for which there are no forms of their own.
LoopKernel Kernel(ScalarOp op, Argument argument, bool kept) {
  LoopKernel k;
  LoopBuilder b(k);
  k.dims = {Dim{kAllBF16}};
  k.buffers = 4;
  ScalarValue x = b.Load({0, DType::kBF16, 0, {1}});
  if (argument == Argument::kComputed) {
    x = b.Round(b.Binary(ScalarOp::kAdd, x, b.Load({3, DType::kBF16, 0, {0}})), DType::kBF16);
  }
  const ScalarValue y = b.Unary(op, x);
  k.stores.push_back({{1, DType::kBF16, 0, {1}}, b.Round(y, DType::kBF16).id});
  EXPECT_TRUE(BF16FactsOf(k).function[y.id]);
  if (kept) k.stores.push_back({{2, DType::kF32, 0, {1}}, y.id});
  EXPECT_EQ(BF16FactsOf(k).function[y.id], !kept);
  Finish(k);
  return k;
}

std::vector<uint16_t> Results(const CpuTarget& target, const LoopKernel& kernel) {
  std::vector<uint16_t> x(kAllBF16), result(kAllBF16), minus_zero = {0x8000};
  for (int64_t i = 0; i < kAllBF16; ++i) x[i] = static_cast<uint16_t>(i);
  std::vector<float> full(kAllBF16);
  RunLoop(Jit(target), kernel, {x.data(), result.data(), full.data(), minus_zero.data()});
  return result;
}

TEST(BF16Functions, AreExactOnesRoundedForEveryNumber) {
  for (const CpuTarget& target : TestTargets()) {
    for (const Function& f : kFunctions) {
      for (Argument argument : {Argument::kLoaded, Argument::kComputed}) {
        for (bool kept : {false, true}) {
          SCOPED_TRACE(absl::StrCat(NameOf(target.isa), " ", static_cast<int>(f.op), argument == Argument::kLoaded ? "" : " computed",
                                    kept ? " kept" : ""));
          const std::vector<uint16_t> results = Results(target, Kernel(f.op, argument, kept));
          for (int64_t i = 0; i < kAllBF16; ++i) {
            const double exact = f.exact(Value(i));
            if (std::isnan(exact)) {
              ASSERT_TRUE(std::isnan(Value(results[i]))) << Value(i) << " gives " << Value(results[i]);
            } else {
              ASSERT_EQ(results[i], Rounded(exact)) << Value(i) << " gives " << Value(results[i]) << ", not " << exact;
            }
          }
        }
      }
    }
  }
}

// What reads more than the rounded value, or has more than one of bf16's, needs every digit.
TEST(BF16Functions, AreThoseOfBF16ForBF16Alone) {
  LoopKernel k;
  LoopBuilder b(k);
  k.dims = {Dim{4}, Dim{8, true}};
  k.buffers = 4;
  const ScalarValue half = b.Load({0, DType::kBF16, 0, {8, 1}}), full = b.Load({1, DType::kF32, 0, {8, 1}});
  const auto is_one = [&](ScalarValue y) -> bool { return BF16FactsOf(k).function[y.id]; };
  const ScalarValue rounded = b.Unary(ScalarOp::kExp, half), summed = b.Unary(ScalarOp::kTanh, half);
  const ScalarValue of_full = b.Unary(ScalarOp::kExp, full), to_half = b.Unary(ScalarOp::kSilu, half);
  const ScalarValue read = b.Unary(ScalarOp::kGelu, half), stored = b.Unary(ScalarOp::kLogistic, half);
  b.Round(rounded, DType::kBF16);
  b.Reduce(ops::Reducer::kSum, summed);
  b.Round(of_full, DType::kBF16);
  b.Round(to_half, DType::kF16);
  b.Binary(ScalarOp::kMul, b.Round(read, DType::kBF16), read);
  k.stores.push_back({{2, DType::kBF16, 0, {8, 1}}, stored.id});
  EXPECT_TRUE(is_one(rounded));
  EXPECT_FALSE(is_one(summed));
  EXPECT_FALSE(is_one(of_full));
  EXPECT_FALSE(is_one(to_half));
  EXPECT_FALSE(is_one(read));
  EXPECT_TRUE(is_one(stored));
}

}  // namespace
}  // namespace weft::cpu
