// Machine code of loop kernels against their evaluator, on every instruction set of this machine.
#include "cpu/loop_support.h"

namespace weft::cpu {
namespace {

using ir::ScalarOp;
using ir::ScalarValue;

TEST(Codegen, AddsVectorsOfEveryLength) {
  for (int64_t n : {0, 1, 3, 15, 16, 17, 63, 64, 100, 2047, 5000}) {
    LoopKernel k;
    LoopBuilder b(k);
    k.dims = {Dim{n}};
    k.buffers = 3;
    const ScalarValue x = b.Load({0, DType::kF32, 0, {1}});
    const ScalarValue y = b.Load({1, DType::kF32, 0, {1}});
    k.stores.push_back({{2, DType::kF32, 0, {1}}, b.Binary(ScalarOp::kAdd, x, y).id});
    Finish(k);
    CheckLoop(k, {{DType::kF32, n}, {DType::kF32, n}, {DType::kF32, n}}, 0, 2);
  }
}

TEST(Codegen, FollowsBroadcastsTransposesAndReversals) {
  LoopKernel k;
  LoopBuilder b(k);
  k.dims = {Dim{5}, Dim{37}};
  k.buffers = 5;
  ScalarValue x = b.Load({0, DType::kF32, 0, {0, 1}});    // a row for all
  x = b.Binary(ScalarOp::kMul, x, b.Load({1, DType::kF32, 0, {1, 0}}));   // a column
  x = b.Binary(ScalarOp::kAdd, x, b.Load({2, DType::kF32, 0, {1, 5}}));   // transposed
  x = b.Binary(ScalarOp::kSub, x, b.Load({3, DType::kF32, 36, {37, -1}}));  // reversed
  ScalarValue i = b.Convert(b.Index({0, DType::kInvalid, 3, {100, 2}}), DType::kF32);
  x = b.Binary(ScalarOp::kAdd, x, i);
  k.stores.push_back({{4, DType::kF32, 0, {37, 1}}, x.id});
  Finish(k);
  CheckLoop(k, {{DType::kF32, 37}, {DType::kF32, 5}, {DType::kF32, 185}, {DType::kF32, 185}, {DType::kF32, 185}}, 1e-6, 2);
}

// A layer's bias, a residual and a bound on rows of every length, in groups of rows, in parts of groups and in blocks.
TEST(Codegen, RowsThatShareAVectorGoDownItsColumns) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    for (const int64_t columns : {1, 7, 16, 24, 33, 200, 1500, 4100, 9000}) {
      for (const int64_t rows : {1, 2, 300}) {
        if (rows * columns > 500'000) continue;
        LoopKernel k;
        LoopBuilder b(k);
        k.dims = {Dim{rows}, Dim{columns}};
        k.buffers = 5;
        ScalarValue x = b.Load({0, dtype, 0, {columns, 1}});
        x = b.Binary(ScalarOp::kAdd, x, b.Load({1, ComputeType(dtype), 0, {0, 1}}));
        x = b.Binary(ScalarOp::kMul, x, b.Load({2, ComputeType(dtype), 0, {1, 0}}));
        x = b.Binary(ScalarOp::kMax, x, b.Load({3, dtype, 0, {columns, 1}}));
        k.stores.push_back({{4, dtype, 0, {columns, 1}}, b.Round(x, dtype).id});
        Finish(k);
        const int64_t all = rows * columns;
        for (const int splits : {1, 3}) {
          CheckLoop(k, {{dtype, all}, {ComputeType(dtype), columns}, {ComputeType(dtype), rows}, {dtype, all}, {dtype, all}}, 0,
                    splits);
        }
      }
    }
  }
}

TEST(Codegen, RoundsBoundsToSixteenBits) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const double bound : {6.0, 0.3}) {  // no 16-bit number is 0.3
      LoopKernel k;
      LoopBuilder b(k);
      k.dims = {Dim{5}, Dim{100}};
      k.buffers = 3;
      ScalarValue x = b.Load({0, dtype, 0, {100, 1}});
      x = b.Round(b.Binary(ScalarOp::kMul, x, b.Load({1, DType::kF32, 0, {0, 1}})), dtype);
      x = b.Binary(ScalarOp::kMin, b.Binary(ScalarOp::kMax, x, b.Constant(DType::kF32, 0)), b.Constant(DType::kF32, bound));
      const ScalarValue y = b.Round(x, dtype);
      k.stores.push_back({{2, dtype, 0, {100, 1}}, y.id});
      Finish(k);
      CheckLoop(k, {{dtype, 500}, {DType::kF32, 100, -9, 9}, {dtype, 500}}, 0);
    }
  }
}

LoopKernel Softmax(int64_t rows, int64_t columns, DType dtype) {
  LoopKernel k;
  LoopBuilder b(k);
  k.dims = {Dim{rows}, Dim{columns, true}};
  k.buffers = 2;
  const ScalarValue x = b.Load({0, dtype, 0, {columns, 1}});
  const ScalarValue e = b.Unary(ScalarOp::kExp, b.Binary(ScalarOp::kSub, x, b.Reduce(ops::Reducer::kMax, x)));
  const ScalarValue y = b.Binary(ScalarOp::kDiv, e, b.Reduce(ops::Reducer::kSum, e));
  k.stores.push_back({{1, dtype, 0, {columns, 1}}, y.id});
  k.vector_reduces = true;
  Finish(k);
  return k;
}

TEST(Codegen, SoftmaxIsOneKernelOfThreePasses) {
  for (int64_t n : {1, 7, 16, 65, 1000}) {
    const LoopKernel k = Softmax(9, n, DType::kF32);
    EXPECT_EQ(k.stages, 3);
    CheckLoop(k, {{DType::kF32, 9 * n}, {DType::kF32, 9 * n}}, 1e-6, 2);
  }
  CheckLoop(Softmax(4, 33, DType::kF64), {{DType::kF64, 132}, {DType::kF64, 132}}, 1e-14);
  CheckLoop(Softmax(4, 33, DType::kBF16), {{DType::kBF16, 132}, {DType::kBF16, 132}}, 1e-2);
  CheckLoop(Softmax(4, 33, DType::kF16), {{DType::kF16, 132}, {DType::kF16, 132}}, 2e-3);
}

TEST(Codegen, ReducesColumnsWithASideResultAndARowEpilogue) {
  for (int64_t n : {1, 10, 64, 130}) {
    LoopKernel k;
    LoopBuilder b(k);
    k.dims = {Dim{n}, Dim{33, true}};
    k.buffers = 5;
    const ScalarValue g = b.Load({0, DType::kF32, 0, {1, n}});
    const ScalarValue x = b.Load({1, DType::kF32, 0, {1, n}});
    const ScalarValue zero = b.Constant(DType::kF32, 0);
    const ScalarValue masked = b.Select(b.Binary(ScalarOp::kGt, x, zero), g, zero);
    const ScalarValue sum = b.Reduce(ops::Reducer::kSum, masked);
    const ScalarValue p = b.Load({2, DType::kF32, 0, {1, 0}});
    const ScalarValue next = b.Binary(ScalarOp::kSub, p, b.Binary(ScalarOp::kMul, sum, b.Constant(DType::kF32, 0.1)));
    k.stores.push_back({{3, DType::kF32, 0, {1, n}}, masked.id});
    k.stores.push_back({{4, DType::kF32, 0, {1, 0}}, next.id, true});
    Finish(k);
    const std::vector<LoopBuffer> buffers = {{DType::kF32, 33 * n}, {DType::kF32, 33 * n}, {DType::kF32, n}, {DType::kF32, 33 * n}, {DType::kF32, n}};
    CheckLoop(k, buffers, 1e-5);
    SplitKernel split = SplitReduction(k, 4);
    EXPECT_EQ(split.partial_types.size(), 1u);
    CheckLoop(split.first, {{DType::kF32, 33 * n}, {DType::kF32, 33 * n}, {DType::kF32, n}, {DType::kF32, 33 * n}, {DType::kF32, n}, {DType::kF32, split.partial_count}}, 1e-5);
    CheckLoop(split.second, {{DType::kF32, split.partial_count}, {DType::kF32, n}, {DType::kF32, n}}, 1e-5);
  }
}

TEST(Codegen, ReducesEveryTypeByEveryReducer) {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI8, DType::kI32, DType::kI64, DType::kU8, DType::kU16, DType::kU64, DType::kBool}) {
    for (int op = 0; op < 6; ++op) {
      if (op >= 4 && IsFloat(dtype)) continue;
      if (op < 4 && IsBool(dtype)) continue;
      SCOPED_TRACE(std::string(NameOf(dtype)) + " " + std::string(ops::kReducerNames[op]));
      LoopKernel k;
      LoopBuilder b(k);
      k.dims = {Dim{3}, Dim{45, true}};
      k.buffers = 2;
      ScalarValue x = b.Reduce(static_cast<ops::Reducer>(op), b.Load({0, dtype, 0, {45, 1}}));
      k.stores.push_back({{1, dtype, 0, {1, 0}}, x.id, true});
      k.vector_reduces = true;
      Finish(k);
      const double tolerance = dtype == DType::kF64 ? 1e-13 : dtype == DType::kF32 ? 1e-5 : 1e-2;
      CheckLoop(k, {{dtype, 135, -1, 1.2}, {dtype, 3}}, tolerance);
    }
  }
}

TEST(Codegen, FormsThatDifferInSizesOnlyShareCode) {
  const CpuTarget target = TestTargets().back();
  EXPECT_EQ(PlanLoop(Softmax(4, 100, DType::kF32), target).key, PlanLoop(Softmax(9, 120, DType::kF32), target).key);
  EXPECT_NE(PlanLoop(Softmax(4, 100, DType::kF32), target).key, PlanLoop(Softmax(4, 100, DType::kBF16), target).key);
}

TEST(Codegen, IntegerDivisionHasNoTraps) {
  for (DType dtype : {DType::kI8, DType::kI32, DType::kI64, DType::kU8, DType::kU32}) {
    for (ScalarOp op : {ScalarOp::kDiv, ScalarOp::kRem, ScalarOp::kPow, ScalarOp::kShl, ScalarOp::kShrLogical, ScalarOp::kShrArithmetic}) {
      SCOPED_TRACE(static_cast<int>(op));
      LoopKernel k;
      LoopBuilder b(k);
      k.dims = {Dim{200}};
      k.buffers = 3;
      ScalarValue x = b.Load({0, dtype, 0, {1}});
      const int64_t least = IsSigned(dtype) ? static_cast<int64_t>(~uint64_t{0} << (BitsOf(dtype) - 1)) : 0;
      x = b.Select(b.Binary(ScalarOp::kEq, x, b.IntConstant(dtype, 3)), b.IntConstant(dtype, least), x);
      k.stores.push_back({{2, dtype, 0, {1}}, b.Binary(op, x, b.Load({1, dtype, 0, {1}})).id});
      Finish(k);
      CheckLoop(k, {{dtype, 200, -1, 9}, {dtype, 200, IsSigned(dtype) ? -2.9 : 0, 40}, {dtype, 200}}, 0);
    }
  }
}

}  // namespace
}  // namespace weft::cpu
