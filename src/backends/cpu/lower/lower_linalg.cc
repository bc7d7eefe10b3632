// Cholesky decompositions and triangular solves: 16-bit floats through f32, and the room their kernels work in.
#include <algorithm>

#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/lower/lowering.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"

namespace weft::cpu {
namespace {

using ir::Node;
using ir::Value;

DType ComputedIn(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

StorageId Widened(Lowering& lowering, const Value& x) {
  const DType wide = ComputedIn(x.dtype());
  return wide == x.dtype() ? lowering.Of(x) : lowering.Converted(lowering.Of(x), x.dtype(), wide, x.type().count());
}

// Where the kernel writes; Finish makes it the result.
StorageId Begin(Lowering& lowering, const Value& result) {
  const DType wide = ComputedIn(result.dtype());
  if (wide == result.dtype()) return lowering.Define(result);
  return lowering.Temporary(result.type().count() * BytesOf(wide));
}
void Finish(Lowering& lowering, const Value& result, StorageId written) {
  const DType wide = ComputedIn(result.dtype());
  if (wide == result.dtype()) return;
  lowering.Alias(result, lowering.Converted(written, wide, result.dtype(), result.type().count()));
}

int64_t BatchOf(const Dims& dims) { return CountOf(std::span(dims).first(dims.size() - 2)); }

absl::Status LowerCholesky(Lowering& lowering, const Node& node) {
  const Value result{Ref<const Node>::Share(&node), 0};
  const DType dtype = ComputedIn(result.dtype());
  const int64_t n = result.dims().back(), batch = BatchOf(result.dims());
  const StorageId a = Widened(lowering, node.operands()[0]), l = Begin(lowering, result);
  const StorageId panel = lowering.Temporary(std::max<int64_t>(CholeskyPanel(n) * BytesOf(dtype), 1));
  const double work = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  lowering.Host("cholesky", {a}, {l, panel},
                {static_cast<int64_t>(dtype), batch, n, ops::CholeskyAttrs{node.attrs()}.lower()},
                20.0 * static_cast<double>(batch) * work / 3 + 1e6);
  Finish(lowering, result, l);
  return absl::OkStatus();
}

absl::Status LowerTriangularSolve(Lowering& lowering, const Node& node) {
  const Value result{Ref<const Node>::Share(&node), 0};
  const ops::TriangularSolveAttrs attrs{node.attrs()};
  const DType dtype = ComputedIn(result.dtype());
  const Dims &a_dims = node.operands()[0].dims(), &dims = result.dims();
  const int64_t n = a_dims.back(), batch = BatchOf(dims);
  const int64_t m = attrs.left_side() ? dims.back() : dims[dims.size() - 2];
  const StorageId a = Widened(lowering, node.operands()[0]), b = Widened(lowering, node.operands()[1]);
  const StorageId x = Begin(lowering, result);
  const StorageId packed = lowering.Temporary(std::max<int64_t>(SolvePacked(batch, n) * BytesOf(dtype), 1));
  const StorageId ordered = lowering.Temporary(std::max<int64_t>(result.type().count() * BytesOf(dtype), 1));
  const double work = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(m);
  lowering.Host("triangular_solve", {a, b}, {x, packed, ordered},
                {static_cast<int64_t>(dtype), batch, n, m, attrs.left_side(), attrs.lower(), attrs.unit_diagonal(),
                 attrs.transpose_a() != 0},
                10.0 * static_cast<double>(batch) * work + 1e6);
  Finish(lowering, result, x);
  return absl::OkStatus();
}

constexpr OpRule kRules[] = {
    {&ops::kOp_cholesky, LowerCholesky},
    {&ops::kOp_triangular_solve, LowerTriangularSolve},
};

}  // namespace

std::span<const OpRule> LinalgRules() { return kRules; }

}  // namespace weft::cpu
