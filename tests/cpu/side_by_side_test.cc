// Vectors side by side give what one vector after the other gives, bit by bit, wherever a loop ends.
#include <bit>
#include <limits>

#include "cpu/loop_support.h"

namespace weft::cpu {
namespace {

using ir::ScalarOp;
using ir::ScalarValue;

constexpr int64_t kMost = 2 * 2048 + 100;  // elements of the longest run

// Three inputs, of which the last is i32, through `length` operations of all kinds that the types of a chain have.
LoopKernel Chain(int length, DType dtype, int64_t size) {
  LoopKernel k;
  LoopBuilder b(k);
  k.dims = {Dim{size}};
  k.buffers = 5;
  const DType computed = dtype == DType::kF64 ? dtype : DType::kF32;
  const ScalarValue a = b.Load({0, dtype, 0, {1}}), c = b.Load({1, dtype, 0, {1}});
  const ScalarValue whole = b.Load({2, DType::kI32, 0, {1}});
  ScalarValue x = a;
  for (int i = 0; i < length; ++i) {
    switch (i % 8) {
      case 0: x = b.Binary(ScalarOp::kMul, x, c); break;
      case 1: x = b.Binary(ScalarOp::kAdd, x, b.Convert(whole, computed)); break;
      case 2: x = b.Binary(ScalarOp::kMax, x, b.Binary(ScalarOp::kSub, a, c)); break;
      case 3: x = computed == DType::kF64 ? b.Unary(ScalarOp::kAbs, x) : b.Unary(ScalarOp::kTanh, x); break;
      case 4: x = b.Select(b.Binary(ScalarOp::kLt, x, c), x, b.Unary(ScalarOp::kNeg, x)); break;
      case 5: x = b.Fma(x, a, b.Constant(computed, 0.25)); break;
      case 6: x = b.Binary(ScalarOp::kDiv, x, b.Binary(ScalarOp::kAdd, b.Unary(ScalarOp::kAbs, x), b.Constant(computed, 1))); break;
      default: x = b.Select(b.Binary(ScalarOp::kGt, whole, b.IntConstant(DType::kI32, i)), x, c); break;
    }
    x = b.Round(x, dtype);
  }
  k.stores.push_back({{3, dtype, 0, {1}}, x.id});
  k.stores.push_back({{4, DType::kBool, 0, {1}}, b.Binary(ScalarOp::kLe, x, a).id});
  Finish(k);
  return k;
}

struct Compiled {
  std::unique_ptr<JitLibrary> library;
  LoopFn* fn = nullptr;
};
Compiled Compile(const Jit& jit, const LoopKernel& kernel) {
  const LoopKernel* one = &kernel;
  const std::string symbol = "loop";
  Compiled compiled;
  auto object = CompileLoops(jit, {&one, 1}, {&symbol, 1});
  EXPECT_TRUE(object.ok()) << object.status();
  compiled.library = std::move(*jit.Load(*object));
  compiled.fn = *compiled.library->Function<LoopFn>("loop");
  return compiled;
}

std::vector<HostTensor> Inputs(DType dtype) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> values(-3, 3);
  std::vector<HostTensor> tensors;
  for (DType type : {dtype, dtype, DType::kI32, dtype, DType::kBool}) {
    HostTensor t(type, {kMost});
    for (int64_t i = 0; i < kMost; ++i) {
      const uint64_t kind = random() % 40;
      const double edges[] = {0, -0.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN(), 1e-40};
      if (IsFloat(type)) {
        t.SetDouble(i, kind < 5 ? edges[kind] : values(random));
      } else {
        t.SetInt(i, IsBool(type) ? 0 : static_cast<int64_t>(random() % 200) - 100);
      }
    }
    tensors.push_back(std::move(t));
  }
  return tensors;
}

// The first `count` elements.
std::vector<HostTensor> Outcome(const Compiled& compiled, LoopPlan plan, int64_t count, std::vector<HostTensor> tensors) {
  std::vector<void*> buffers;
  for (HostTensor& t : tensors) buffers.push_back(t.mutable_bytes().data());
  const int64_t block = ElementsOfTask(count);
  plan.params[0] = count;
  plan.params[1] = block;
  compiled.fn(buffers.data(), plan.params.data(), 0, (count + block - 1) / block, nullptr);
  return tensors;
}

// NaN is NaN, whatever its digits.
void ExpectSameBits(const HostTensor& got, const HostTensor& want) {
  for (int64_t i = 0; i < got.count(); ++i) {
    if (!IsFloat(got.dtype())) {
      ASSERT_EQ(got.GetInt(i), want.GetInt(i)) << "element " << i;
    } else if (!std::isnan(got.GetDouble(i)) || !std::isnan(want.GetDouble(i))) {
      ASSERT_EQ(std::bit_cast<uint64_t>(got.GetDouble(i)), std::bit_cast<uint64_t>(want.GetDouble(i)))
          << "element " << i << ": " << got.GetDouble(i) << ", not " << want.GetDouble(i);
    }
  }
}

// Code for a million elements runs fewer: sizes are arguments. Code for few elements has one vector after the other.
TEST(Codegen, RunsLongChainsOfEveryLength) {
  const int64_t counts[] = {1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 2047, 2048, 2049, 2112, kMost};
  for (const CpuTarget& target : TestTargets()) {
    const Jit jit(target);
    int most = 1, first = 0;
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
      const std::vector<HostTensor> inputs = Inputs(dtype);
      for (int length = ++first; length <= 100; length += length + 1) {
        SCOPED_TRACE(std::string(NameOf(target.isa)) + " " + std::string(NameOf(dtype)) + " " + std::to_string(length));
        const LoopKernel big = Chain(length, dtype, 1 << 20), small = Chain(length, dtype, 1 << 10);
        const LoopPlan plan = PlanLoop(big, target);
        const std::string& key = plan.key;
        const int side = key.ends_with(" side 4") ? 4 : key.ends_with(" side 2") ? 2 : 1;
        most = std::max(most, side);
        EXPECT_TRUE(length <= 30 || side > 1) << key;
        if (side == 1) continue;
        ASSERT_TRUE(PlanLoop(small, target).key.ends_with(" side 1"));
        const Compiled together = Compile(jit, big), alone = Compile(jit, small);
        for (int64_t count : counts) {
          const std::vector<HostTensor> got = Outcome(together, plan, count, inputs);
          const std::vector<HostTensor> want = Outcome(alone, plan, count, inputs);
          SCOPED_TRACE(std::to_string(count));
          for (size_t t = 0; t < got.size(); ++t) ExpectSameBits(got[t], want[t]);
        }
      }
    }
    EXPECT_EQ(most, 4);
  }
}

}  // namespace
}  // namespace weft::cpu
