// Scaled dot-product attention as one kernel, where that beats the expansion.
#include <algorithm>
#include <cmath>

#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/lower/lowering.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using ir::Node;
using ir::Value;

constexpr int64_t kMostWidth = 256;

bool HasMask(const Node& node) { return node.operands().size() > 3 && node.operands()[3]; }

// What the kernel can do.
bool CanServe(const Node& node) {
  const Value &q = node.operands()[0], &v = node.operands()[2];
  const DType dtype = q.dtype();
  const size_t rank = q.dims().size();
  if (dtype != DType::kF32 && dtype != DType::kBF16) return false;
  if (node.results()[0].dtype != dtype || rank < 3 || rank > 2 + static_cast<size_t>(kMaxBatchDims)) return false;
  if (q.dims().back() > kMostWidth || v.dims().back() > kMostWidth) return false;
  if (HasMask(node) && node.operands()[3].dtype() != dtype) return false;
  return q.type().count() > 0 && v.type().count() > 0;
}

// What it does faster than the expansion without making training slower by much: measured (benchmarks/kernels/attention.cc).
// Products of f32 decide where scores fit a cache. Of bf16 the values are multiplied twice, which nothing but pairs repays.
bool Serves(const Node& node, const CpuTarget& target) {
  if (!CanServe(node)) return false;
  const Dims &q = node.operands()[0].dims(), &k = node.operands()[1].dims();
  const int64_t queries = q[q.size() - 2], keys = k[k.size() - 2];
  const bool bf16 = node.operands()[0].dtype() == DType::kBF16;
  if (bf16 && !target.has_bf16_dot && target.tiles == TileUnit::kNone) return false;
  if (queries <= kFewQueries) return keys >= 256 && keys <= 1024;
  if (ops::ScaledDotProductAttentionAttrs{node.attrs()}.causal()) return queries >= 128 && keys >= 512;
  return queries >= 128 && keys >= (bf16 ? 4096 : 1024);
}

AttentionMatrix MatrixOf(const Dims& dims) {
  const Dims strides = StridesOf(dims);
  AttentionMatrix matrix;
  matrix.row_stride = strides[dims.size() - 2];
  std::copy(strides.begin(), strides.end() - 2, matrix.batch_strides.begin());
  return matrix;
}

absl::Status LowerAttention(Lowering& lowering, const Node& node) {
  const Value result{Ref<const Node>::Share(&node), 0};
  const Value &q = node.operands()[0], &k = node.operands()[1], &v = node.operands()[2];
  const ops::ScaledDotProductAttentionAttrs attrs{node.attrs()};
  if (!CanServe(node)) return InternalError("attention that should have been expanded");
  const size_t rank = q.dims().size();
  AttentionCall call;
  call.dtype = q.dtype();
  call.queries = q.dims()[rank - 2];
  call.keys = k.dims()[rank - 2];
  call.width = q.dims()[rank - 1];
  call.value_width = v.dims()[rank - 1];
  call.batch_rank = static_cast<int>(rank) - 2;
  std::copy(q.dims().begin(), q.dims().end() - 2, call.batch_sizes.begin());
  call.q = MatrixOf(q.dims());
  call.k = MatrixOf(k.dims());
  call.v = MatrixOf(v.dims());
  call.out = MatrixOf(result.dims());
  call.causal = attrs.causal();
  call.scale = static_cast<float>(attrs.has_scale() ? attrs.scale() : 1 / std::sqrt(static_cast<double>(call.width)));
  std::vector<StorageId> reads = {lowering.Of(q), lowering.Of(k), lowering.Of(v)};
  if (HasMask(node)) {
    const Value& mask = node.operands()[3];
    const size_t missing = rank - mask.dims().size();
    const Dims own = StridesOf(mask.dims());
    Dims strides(rank, 0);
    for (size_t d = missing; d < rank; ++d) {
      if (mask.dims()[d - missing] != 1) strides[d] = own[d - missing];
    }
    call.has_mask = true;
    call.mask_column_stride = strides[rank - 1];
    call.mask.row_stride = strides[rank - 2];
    std::copy(strides.begin(), strides.end() - 2, call.mask.batch_strides.begin());
    reads.push_back(lowering.Of(mask));
  }
  const StorageId out = lowering.Define(result);
  const StorageId space = lowering.Temporary(std::max<int64_t>(AttentionSpace(lowering.target(), call), 1));
  const double work = static_cast<double>(q.type().count() / call.width) * static_cast<double>(call.keys) *
                      static_cast<double>(call.width + call.value_width + 16);
  lowering.Host("attention", reads, {out, space}, EncodeAttention(call), 10.0 * work + 1e6);
  return absl::OkStatus();
}

constexpr OpRule kRules[] = {{&ops::kOp_scaled_dot_product_attention, LowerAttention, Serves}};

}  // namespace

std::span<const OpRule> AttentionRules() { return kRules; }

}  // namespace weft::cpu
