// Vectors side by side give what one vector after the other gives, bit by bit, wherever a loop ends; so do rows that go down a
// vector that they share.
#include "src/backends/cpu/loop/side_by_side.h"

#include <bit>
#include <limits>

#include "cpu/loop_support.h"
#include "src/backends/cpu/loop/block_loop.h"

namespace weft::cpu {
namespace {

using ir::ScalarOp;
using ir::ScalarValue;

constexpr int64_t kMost = 2 * 2048 + 100;  // elements of the longest run

// Through `length` operations of all kinds that the types of a chain have, rounded to `dtype` each.
ScalarValue Operations(LoopBuilder& b, int length, DType dtype, ScalarValue a, ScalarValue c, ScalarValue whole) {
  const DType computed = dtype == DType::kF64 ? dtype : DType::kF32;
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
  return x;
}

// Three inputs, of which the last is i32.
LoopKernel Chain(int length, DType dtype, int64_t size) {
  LoopKernel k;
  LoopBuilder b(k);
  k.dims = {Dim{size}};
  k.buffers = 5;
  const ScalarValue a = b.Load({0, dtype, 0, {1}}), c = b.Load({1, dtype, 0, {1}});
  const ScalarValue x = Operations(b, length, dtype, a, c, b.Load({2, DType::kI32, 0, {1}}));
  k.stores.push_back({{3, dtype, 0, {1}}, x.id});
  k.stores.push_back({{4, DType::kBool, 0, {1}}, b.Binary(ScalarOp::kLe, x, a).id});
  Finish(k);
  return k;
}

// The sum of a chain over each row, and a chain that needs it.
LoopKernel Rows(int length, DType dtype, int64_t rows, int64_t columns) {
  LoopKernel k;
  LoopBuilder b(k);
  k.dims = {Dim{rows}, Dim{columns, true}};
  k.buffers = 6;
  k.vector_reduces = true;
  const ScalarValue a = b.Load({0, dtype, 0, {columns, 1}}), c = b.Load({1, dtype, 0, {0, 1}});
  const ScalarValue whole = b.Load({2, DType::kI32, 0, {columns, 1}});
  const ScalarValue sum = b.Reduce(ops::Reducer::kSum, Operations(b, length, dtype, a, c, whole));
  const ScalarValue x = Operations(b, length, dtype, b.Binary(ScalarOp::kSub, a, sum), c, whole);
  k.stores.push_back({{3, dtype, 0, {columns, 1}}, x.id});
  k.stores.push_back({{4, DType::kBool, 0, {columns, 1}}, b.Binary(ScalarOp::kLe, x, a).id});
  k.stores.push_back({{5, dtype == DType::kF64 ? dtype : DType::kF32, 0, {1, 0}}, sum.id, true});
  Finish(k);
  return k;
}

// A chain, its sum over each column, and the sum of its squares.
LoopKernel Columns(int length, DType dtype, int64_t columns, int64_t rows) {
  LoopKernel k;
  LoopBuilder b(k);
  k.dims = {Dim{columns}, Dim{rows, true}};
  k.buffers = 6;
  const ScalarValue a = b.Load({0, dtype, 0, {1, columns}}), c = b.Load({1, dtype, 0, {1, 0}});
  const ScalarValue x = Operations(b, length, dtype, a, c, b.Load({2, DType::kI32, 0, {1, columns}}));
  const ScalarValue sum = b.Reduce(ops::Reducer::kSum, x), squares = b.Reduce(ops::Reducer::kSum, b.Binary(ScalarOp::kMul, x, x));
  k.stores.push_back({{3, dtype, 0, {1, columns}}, x.id});
  k.stores.push_back({{4, DType::kBool, 0, {1, 0}}, b.Binary(ScalarOp::kLe, sum, squares).id, true});
  k.stores.push_back({{5, dtype == DType::kF64 ? dtype : DType::kF32, 0, {1, 0}}, b.Binary(ScalarOp::kSub, sum, squares).id, true});
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

// Without `infinite` ones sums say something.
std::vector<HostTensor> Inputs(DType dtype, bool infinite) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> values(-3, 3);
  std::vector<HostTensor> tensors;
  for (DType type : {dtype, dtype, DType::kI32, dtype, DType::kBool, dtype == DType::kF64 ? dtype : DType::kF32}) {
    HostTensor t(type, {kMost});
    for (int64_t i = 0; i < kMost; ++i) {
      const uint64_t kind = random() % 40;
      const double edges[] = {0, -0.0, 1e-40, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()};
      if (IsFloat(type)) {
        t.SetDouble(i, kind < (infinite ? 5 : 3) ? edges[kind] : values(random));
      } else {
        t.SetInt(i, IsBool(type) ? 0 : static_cast<int64_t>(random() % 200) - 100);
      }
    }
    tensors.push_back(std::move(t));
  }
  return tensors;
}

std::vector<HostTensor> Outcome(const Compiled& compiled, const LoopPlan& plan, std::vector<HostTensor> tensors) {
  std::vector<void*> buffers;
  for (HostTensor& t : tensors) buffers.push_back(t.mutable_bytes().data());
  std::vector<double> scratch(plan.scratch_bytes / sizeof(double) + 8);
  compiled.fn(buffers.data(), plan.params.data(), 0, plan.tasks, scratch.data());
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

// The number behind a word of the key.
int Said(const LoopPlan& plan, const std::string& word) {
  const size_t at = plan.key.find(word);
  return at == std::string::npos ? 0 : std::stoi(plan.key.substr(at + word.size()));
}
int SideOf(const LoopPlan& plan) { return Said(plan, " side "); }
int PanelOf(const LoopPlan& plan) { return Said(plan, " panel "); }

// Code for a million elements runs fewer: sizes are arguments. Code for few elements has one vector after the other.
TEST(Codegen, RunsLongChainsOfEveryLength) {
  const int64_t counts[] = {1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 2047, 2048, 2049, 2112, kMost};
  for (const CpuTarget& target : TestTargets()) {
    const Jit jit(target);
    int most = 1, first = 0;
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
      const std::vector<HostTensor> inputs = Inputs(dtype, true);
      for (int length = ++first; length <= 100; length += length + 1) {
        SCOPED_TRACE(std::string(NameOf(target.isa)) + " " + std::string(NameOf(dtype)) + " " + std::to_string(length));
        const LoopKernel big = Chain(length, dtype, 1 << 20), small = Chain(length, dtype, 1 << 10);
        LoopPlan plan = PlanLoop(big, target);
        const int side = SideOf(plan);
        most = std::max(most, side);
        EXPECT_TRUE(length <= 30 || side > 1) << plan.key;
        if (side == 1) continue;
        ASSERT_EQ(SideOf(PlanLoop(small, target)), 1);
        const Compiled together = Compile(jit, big), alone = Compile(jit, small);
        for (int64_t count : counts) {
          SCOPED_TRACE(std::to_string(count));
          plan.params[0] = count;
          plan.params[1] = ElementsOfTask(count);
          plan.tasks = (count + plan.params[1] - 1) / plan.params[1];
          const std::vector<HostTensor> got = Outcome(together, plan, inputs), want = Outcome(alone, plan, inputs);
          for (size_t t = 0; t < got.size(); ++t) ExpectSameBits(got[t], want[t]);
        }
      }
    }
    EXPECT_EQ(most, 8);
  }
}

// Rows' sums keep their order: it is that of one vector after the other.
TEST(Codegen, RunsLongChainsAlongRows) {
  for (const CpuTarget& target : TestTargets()) {
    const Jit jit(target);
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
      const std::vector<HostTensor> inputs = Inputs(dtype, false);
      for (int length : {9, 20, 50}) {
        SCOPED_TRACE(std::string(NameOf(target.isa)) + " " + std::string(NameOf(dtype)) + " " + std::to_string(length));
        const LoopKernel big = Rows(length, dtype, 1 << 10, 1 << 10), small = Rows(length, dtype, 4, 1 << 10);
        EXPECT_GT(SideOf(PlanLoop(big, target)), 1);
        ASSERT_EQ(SideOf(PlanLoop(small, target)), 1);
        const Compiled together = Compile(jit, big), alone = Compile(jit, small);
        for (int64_t columns : {2, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 128, 129, 1000}) {
          SCOPED_TRACE(std::to_string(columns));
          const LoopPlan plan = PlanLoop(Rows(length, dtype, 4, columns), target);
          const std::vector<HostTensor> got = Outcome(together, plan, inputs), want = Outcome(alone, plan, inputs);
          for (size_t t = 0; t < got.size(); ++t) ExpectSameBits(got[t], want[t]);
        }
      }
    }
  }
}

TEST(Codegen, RunsLongChainsDownColumns) {
  constexpr int64_t kRows = 4;
  for (const CpuTarget& target : TestTargets()) {
    const Jit jit(target);
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
      const std::vector<HostTensor> inputs = Inputs(dtype, false);
      for (int length : {20, 50}) {
        SCOPED_TRACE(std::string(NameOf(target.isa)) + " " + std::string(NameOf(dtype)) + " " + std::to_string(length));
        const LoopKernel big = Columns(length, dtype, 1 << 10, 1 << 10), small = Columns(length, dtype, 1 << 10, kRows);
        const int panel = PanelOf(PlanLoop(big, target));
        EXPECT_GT(panel, 1);
        ASSERT_EQ(PanelOf(PlanLoop(small, target)), 1);
        const Compiled together = Compile(jit, big), alone = Compile(jit, small);
        for (int64_t columns : {2, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 128, 129, 1000}) {
          SCOPED_TRACE(std::to_string(columns));
          const LoopPlan plan = PlanLoop(Columns(length, dtype, columns, kRows), target);
          LoopPlan wide = plan;
          int64_t& block = wide.params[2];
          block *= panel;
          wide.tasks = (columns + block - 1) / block;
          const std::vector<HostTensor> got = Outcome(together, wide, inputs), want = Outcome(alone, plan, inputs);
          for (size_t t = 0; t < got.size(); ++t) ExpectSameBits(got[t], want[t]);
        }
      }
    }
  }
}

// Fewer than eight tasks would be cut, and their sums be others.
TEST(Codegen, WidePanelsLeaveEnoughTasks) {
  const CpuTarget target = TestTargets().back();
  for (int64_t columns = 64; columns <= 4096; columns += 64) {
    const LoopPlan few = PlanLoop(Columns(50, DType::kF32, columns, 4), target);
    const LoopPlan many = PlanLoop(Columns(50, DType::kF32, columns, 1 << 12), target);
    EXPECT_EQ(few.tasks < kFewTasks, many.tasks < kFewTasks) << columns;
  }
}

// Memory further down is asked for where there is much of it and rows are short.
TEST(Codegen, AsksForRowsFurtherDown) {
  const CpuTarget target = TestTargets().back();
  const auto asks = [&](int64_t columns, int64_t rows) {
    const LoopKernel kernel = Columns(20, DType::kF32, columns, rows);
    const absl::StatusOr<std::string> text = LoopText(kernel, target);
    EXPECT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(text->find("llvm.prefetch") != std::string::npos, Said(PlanLoop(kernel, target), " ahead ") > 0);
    return Said(PlanLoop(kernel, target), " ahead ");
  };
  EXPECT_EQ(asks(96, 1 << 12), 16);
  EXPECT_EQ(asks(96, 1 << 8), 0);
  EXPECT_EQ(asks(1 << 10, 1 << 12), 0);
}

// A loop over a product's blocks asks for what the next block reads beside the product.
TEST(Codegen, LoopsOfProductsAskForTheNextBlock) {
  const auto count = [](LoopKernel kernel) {
    const absl::StatusOr<std::string> text = LoopText(kernel, TestTargets().back());
    EXPECT_TRUE(text.ok()) << text.status();
    int64_t found = 0;
    for (size_t at = text->find("@llvm.prefetch"); at != std::string::npos; at = text->find("@llvm.prefetch", at + 1)) ++found;
    return found;
  };
  constexpr int64_t kRows = 64, kColumns = 96;
  LoopKernel update;
  LoopBuilder b(update);
  update.dims = {Dim{kRows * kColumns}};
  update.buffers = 3;
  const ScalarValue sum = b.Load({0, DType::kF32, 0, {1}}), weight = b.Load({1, DType::kF32, 0, {1}});
  update.stores.push_back({{2, DType::kF32, 0, {1}}, b.Binary(ScalarOp::kSub, weight, sum).id});
  Finish(update);
  LoopKernel alone = update;
  alone.loads.pop_back();
  alone.exprs[weight.id].index = 0;
  EXPECT_EQ(count(update), 0);
  ASSERT_TRUE(ToBlockLoop(update, kRows, kColumns, 0));
  ASSERT_TRUE(ToBlockLoop(alone, kRows, kColumns, 0));
  EXPECT_GT(count(update), 0);
  EXPECT_EQ(count(alone), 0) << "the product's block is near";
}

// What moves bytes and computes nothing is worth a second thread, too.
TEST(Codegen, CostsCountBytes) {
  const auto cost = [](DType dtype) {
    LoopKernel copy;
    LoopBuilder b(copy);
    copy.dims = {Dim{128}, Dim{64}};
    copy.buffers = 2;
    copy.stores.push_back({{1, dtype, 0, {64, 1}}, b.Load({0, dtype, 0, {2304, 1}}).id});
    Finish(copy);
    return PlanLoop(copy, TestTargets().back()).cost / (128 * 64);
  };
  EXPECT_GE(cost(DType::kF32), cost(DType::kBF16) + 100) << "picoseconds an element";
}

// A chain over rows; `c` is one row for all of them, or the same row once for each.
LoopKernel OverRows(DType dtype, int64_t rows, int64_t columns, bool shared) {
  LoopKernel k;
  LoopBuilder b(k);
  k.dims = {Dim{rows}, Dim{columns}};
  k.buffers = 4;
  const ScalarValue a = b.Load({0, dtype, 0, {columns, 1}}), c = b.Load({1, dtype, 0, {shared ? 0 : columns, 1}});
  const ScalarValue once = b.Round(b.Unary(ScalarOp::kExp, c), dtype);  // of what is shared alone
  const ScalarValue x = b.Binary(ScalarOp::kAdd, b.Binary(ScalarOp::kMul, a, once), b.Load({2, dtype, 0, {1, 0}}));
  k.stores.push_back({{3, dtype, 0, {columns, 1}}, b.Round(x, dtype).id});
  Finish(k);
  return k;
}

TEST(Codegen, GoesDownRowsThatShareAVector) {
  const std::pair<int64_t, int64_t> shapes[] = {{1, 5},   {300, 1},   {300, 7},  {257, 16},  {100, 17},   {70, 144},
                                                {64, 63}, {33, 1000}, {3, 2047}, {3, 2048},  {5, 2049},   {4, 4200}};
  std::mt19937 random(3);
  std::uniform_real_distribution<double> values(-2, 2);
  for (const CpuTarget& target : TestTargets()) {
    const Jit jit(target);
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (const auto& [rows, columns] : shapes) {
        SCOPED_TRACE(std::string(NameOf(target.isa)) + " " + std::string(NameOf(dtype)) + " " + std::to_string(rows) + " x " +
                     std::to_string(columns));
        HostTensor all(dtype, {rows, columns}), row(dtype, {rows, columns}), scale(dtype, {rows}), out(dtype, {rows, columns});
        for (int64_t i = 0; i < all.count(); ++i) all.SetDouble(i, values(random));
        for (int64_t i = 0; i < row.count(); ++i) row.SetDouble(i, i < columns ? values(random) : row.GetDouble(i - columns));
        for (int64_t i = 0; i < rows; ++i) scale.SetDouble(i, values(random));
        const LoopKernel one = OverRows(dtype, rows, columns, true), each = OverRows(dtype, rows, columns, false);
        const std::vector<HostTensor> want = Outcome(Compile(jit, each), PlanLoop(each, target), {all, row, scale, out});
        const LoopPlan plan = PlanLoop(one, target);
        const Compiled compiled = Compile(jit, one);
        ExpectSameBits(Outcome(compiled, plan, {all, row, scale, out})[3], want[3]);
        // As several threads would, whose shares begin anywhere.
        std::vector<void*> buffers;
        for (HostTensor* t : {&all, &row, &scale, &out}) buffers.push_back(t->mutable_bytes().data());
        std::vector<double> scratch(plan.scratch_bytes / sizeof(double) + 8);
        for (int64_t share = 2; share >= 0; --share) {
          compiled.fn(buffers.data(), plan.params.data(), plan.tasks * share / 3, plan.tasks * (share + 1) / 3, scratch.data());
        }
        ExpectSameBits(out, want[3]);
      }
    }
  }
}

}  // namespace
}  // namespace weft::cpu
