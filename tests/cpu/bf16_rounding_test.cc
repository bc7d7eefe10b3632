// Rounding to bf16 leaves out what a kernel shows to be unnecessary: the bits are those of the whole of it, for every bf16 number.
#include "src/backends/cpu/loop/bf16_rounding.h"

#include <bit>
#include <functional>

#include "cpu/loop_support.h"

namespace weft::cpu {
namespace {

using ir::ScalarOp;
using ir::ScalarValue;

constexpr int64_t kAllBF16 = 1 << 16;

// Nearest even; NaN becomes quiet.
uint16_t Rounded(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

struct Case {
  std::string name;
  BF16Rounding rounding;  // of what `call` gives
  std::function<ScalarValue(LoopBuilder&, ScalarValue x, ScalarValue y)> call;
};

std::vector<Case> Cases() {
  const auto round = [](LoopBuilder& b, ScalarValue x) { return b.Round(x, DType::kBF16); };
  const auto binary = [](ScalarOp op) { return [op](LoopBuilder& b, ScalarValue x, ScalarValue y) { return b.Binary(op, x, y); }; };
  const auto sum = [round](LoopBuilder& b, ScalarValue x, ScalarValue y) { return round(b, b.Binary(ScalarOp::kAdd, x, y)); };
  std::vector<Case> cases;
  for (ScalarOp op : {ScalarOp::kAdd, ScalarOp::kSub, ScalarOp::kMul, ScalarOp::kDiv}) {
    const std::string name(ir::FactsOf(op).name);
    cases.push_back({name, BF16Rounding::kHighNan, binary(op)});
    cases.push_back({name + " in f64", BF16Rounding::kHighNan, [op](LoopBuilder& b, ScalarValue x, ScalarValue y) {
                       return b.Convert(b.Binary(op, b.Convert(x, DType::kF64), b.Convert(y, DType::kF64)), DType::kF32);
                     }});
  }
  for (ScalarOp op : {ScalarOp::kMin, ScalarOp::kMax}) {
    const std::string name(ir::FactsOf(op).name);
    cases.push_back({name + " of loads", BF16Rounding::kAny, binary(op)});
    cases.push_back({name + " of rounded", BF16Rounding::kNone, [op, sum](LoopBuilder& b, ScalarValue x, ScalarValue y) {
                       return b.Binary(op, sum(b, x, y), sum(b, y, y));
                     }});
  }
  for (ScalarOp op : {ScalarOp::kNeg, ScalarOp::kAbs}) {
    const std::string name(ir::FactsOf(op).name);
    cases.push_back({name + " of a load", BF16Rounding::kAny, [op](LoopBuilder& b, ScalarValue x, ScalarValue) { return b.Unary(op, x); }});
    cases.push_back({name + " of rounded", BF16Rounding::kNone, [op, sum](LoopBuilder& b, ScalarValue x, ScalarValue y) {
                       return b.Unary(op, sum(b, x, y));
                     }});
  }
  for (ScalarOp op : {ScalarOp::kExp, ScalarOp::kExp2, ScalarOp::kTanh, ScalarOp::kLogistic, ScalarOp::kSilu, ScalarOp::kGelu, ScalarOp::kGeluTanh}) {
    const std::string name(ir::FactsOf(op).name);
    cases.push_back({name + " of a load", BF16Rounding::kAny, [op](LoopBuilder& b, ScalarValue x, ScalarValue) { return b.Unary(op, x); }});
    const auto of_sum = [op](LoopBuilder& b, ScalarValue x, ScalarValue y) { return b.Unary(op, b.Binary(ScalarOp::kAdd, x, y)); };
    cases.push_back({name, BF16Rounding::kHighNan, of_sum});
    cases.push_back({name + " in f64", BF16Rounding::kHighNan, [op](LoopBuilder& b, ScalarValue x, ScalarValue y) {
                       ScalarValue wide = b.Convert(b.Binary(ScalarOp::kAdd, x, y), DType::kF64);
                       b.set_for_16_bits(true);
                       wide = b.Unary(op, wide);
                       b.set_for_16_bits(false);
                       return b.Convert(wide, DType::kF32);
                     }});
  }
  const auto with = [](ScalarOp op, double constant) {
    return [=](LoopBuilder& b, ScalarValue x, ScalarValue) { return b.Binary(op, x, b.Constant(DType::kF32, constant)); };
  };
  cases.push_back({"times 1", BF16Rounding::kAny, with(ScalarOp::kMul, 1)});
  cases.push_back({"times -1", BF16Rounding::kAny, with(ScalarOp::kMul, -1)});
  cases.push_back({"less 0", BF16Rounding::kAny, with(ScalarOp::kSub, 0)});
  cases.push_back({"a half of rounded", BF16Rounding::kHighNan, [sum](LoopBuilder& b, ScalarValue x, ScalarValue y) {
                     return b.Binary(ScalarOp::kMul, sum(b, x, y), b.Constant(DType::kF32, 0.5));
                   }});
  cases.push_back({"fma", BF16Rounding::kHighNan, [](LoopBuilder& b, ScalarValue x, ScalarValue y) { return b.Fma(x, y, x); }});
  cases.push_back({"root", BF16Rounding::kHighNan, [](LoopBuilder& b, ScalarValue x, ScalarValue) { return b.Unary(ScalarOp::kSqrt, x); }});
  cases.push_back({"reciprocal root", BF16Rounding::kHighNan, [](LoopBuilder& b, ScalarValue x, ScalarValue) { return b.Unary(ScalarOp::kRsqrt, x); }});
  cases.push_back({"load", BF16Rounding::kAny, [](LoopBuilder&, ScalarValue x, ScalarValue) { return x; }});
  cases.push_back({"a choice of rounded", BF16Rounding::kNone, [sum](LoopBuilder& b, ScalarValue x, ScalarValue y) {
                     return b.Select(b.Binary(ScalarOp::kLt, x, y), sum(b, x, y), b.Constant(DType::kF32, 1.5));
                   }});
  cases.push_back({"a choice of what bf16 lacks", BF16Rounding::kHighNan, [sum](LoopBuilder& b, ScalarValue x, ScalarValue y) {
                     return b.Select(b.Binary(ScalarOp::kLt, x, y), sum(b, x, y), b.Constant(DType::kF32, 1.01));
                   }});
  return cases;
}

TEST(BF16Rounding, IsTheWholeOfItForEveryNumber) {
  HostTensor x(DType::kBF16, {kAllBF16}), y(DType::kBF16, {kAllBF16});
  for (int64_t i = 0; i < kAllBF16; ++i) {
    const auto first = static_cast<uint16_t>(i), second = static_cast<uint16_t>(i * 40503 + 77);
    std::memcpy(x.mutable_bytes().data() + 2 * i, &first, 2);
    std::memcpy(y.mutable_bytes().data() + 2 * i, &second, 2);
  }
  for (const CpuTarget& target : TestTargets()) {
    const Jit jit(target);
    for (const Case& c : Cases()) {
      SCOPED_TRACE(std::string(NameOf(target.isa)) + " " + c.name);
      LoopKernel k;
      LoopBuilder b(k);
      k.dims = {Dim{kAllBF16}};
      k.buffers = 4;
      const ScalarValue full = c.call(b, b.Load({0, DType::kBF16, 0, {1}}), b.Load({1, DType::kBF16, 0, {1}}));
      EXPECT_EQ(BF16FactsOf(k).rounding[full.id], c.rounding);
      k.stores.push_back({{2, DType::kF32, 0, {1}}, full.id});
      k.stores.push_back({{3, DType::kBF16, 0, {1}}, b.Round(full, DType::kBF16).id});
      Finish(k);
      std::vector<float> exact(kAllBF16);
      std::vector<uint16_t> rounded(kAllBF16);
      RunLoop(jit, k, {x.mutable_bytes().data(), y.mutable_bytes().data(), exact.data(), rounded.data()});
      for (int64_t i = 0; i < kAllBF16; ++i) {
        ASSERT_EQ(rounded[i], Rounded(exact[i])) << std::hex << i << " gives " << std::bit_cast<uint32_t>(exact[i]);
      }
    }
  }
}

TEST(BF16Rounding, OfSumsAndOtherTypes) {
  LoopKernel k;
  LoopBuilder b(k);
  k.dims = {Dim{4}, Dim{8, true}};
  k.buffers = 5;
  const ScalarValue half = b.Load({0, DType::kBF16, 0, {8, 1}}), full = b.Load({1, DType::kF32, 0, {8, 1}});
  const ScalarValue square = b.Binary(ScalarOp::kMul, half, half);
  const auto of = [&](ScalarValue x) { return BF16FactsOf(k).rounding[x.id]; };
  EXPECT_EQ(of(b.Reduce(ops::Reducer::kSum, square)), BF16Rounding::kHighNan);
  EXPECT_EQ(of(b.Reduce(ops::Reducer::kMax, b.Round(square, DType::kBF16))), BF16Rounding::kNone);
  EXPECT_EQ(of(b.Reduce(ops::Reducer::kSum, full)), BF16Rounding::kAny);
  EXPECT_EQ(of(b.Binary(ScalarOp::kAdd, half, full)), BF16Rounding::kAny);
  EXPECT_EQ(of(b.Binary(ScalarOp::kAdd, half, b.Load({2, DType::kF16, 0, {8, 1}}))), BF16Rounding::kAny);
  EXPECT_EQ(of(b.Convert(b.Load({3, DType::kI8, 0, {8, 1}}), DType::kF32)), BF16Rounding::kNone);
  EXPECT_EQ(of(b.Convert(b.Load({4, DType::kI32, 0, {8, 1}}), DType::kF32)), BF16Rounding::kHighNan);
}

}  // namespace
}  // namespace weft::cpu
