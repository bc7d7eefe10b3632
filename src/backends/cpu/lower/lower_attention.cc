// Scaled dot-product attention and its gradient as one kernel each, where that beats the expansion.
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

constexpr const ir::OpDef *kForward = &ops::kOp_scaled_dot_product_attention,
                          *kGradient = &ops::kOp_scaled_dot_product_attention_gradient;

// The operands and sizes of either operation. The one query of each of several heads that share a key head counts as
// one of so many queries of that head, where it sees all keys: the keys are read once then.
struct Attention {
  const Value &q, &k, &v, *mask = nullptr;
  bool causal = false;
  int64_t lead = 0;  // as in AttentionCall
  bool nan_if_unseen = false;
  int64_t queries = 0, keys = 0, group = 1;
  bool heads_are_queries = false;
};
template <typename Attrs>
void SetVisible(const Attrs& attrs, Attention& a) {
  constexpr int64_t kNone = 0, kLowerRight = 2;
  a.causal = attrs.causal() || attrs.causal_alignment() != kNone;
  a.lead = attrs.causal_alignment() == kLowerRight ? a.keys - a.queries : 0;
  a.nan_if_unseen = attrs.nan_if_unseen();
}
Attention AttentionOf(const Node& node) {
  const std::span<const Value> operands = node.operands();
  Attention a{operands[0], operands[1], operands[2]};
  const size_t mask = &node.op() == kForward ? 3 : 4;
  if (operands.size() > mask && operands[mask]) a.mask = &operands[mask];
  const size_t row = a.q.dims().size() - 2;
  a.queries = a.q.dims()[row];
  a.keys = a.k.dims()[row];
  if (&node.op() == kForward) {
    SetVisible(ops::ScaledDotProductAttentionAttrs{node.attrs()}, a);
  } else {
    SetVisible(ops::ScaledDotProductAttentionGradientAttrs{node.attrs()}, a);
  }
  if (row == 0 || a.q.dims()[row - 1] == a.k.dims()[row - 1]) return a;
  a.group = a.q.dims()[row - 1] / a.k.dims()[row - 1];
  if (a.queries != 1 || (a.causal && a.lead + 1 < a.keys)) return a;
  a.heads_are_queries = true;
  a.causal = false;
  std::swap(a.queries, a.group);
  return a;
}

// Tells whether the kernels can compute the node.
bool CanServe(const Node& node) {
  const Attention a = AttentionOf(node);
  const DType dtype = a.q.dtype();
  const size_t rank = a.q.dims().size();
  if (dtype != DType::kF32 && dtype != DType::kBF16) return false;
  if (rank < 3 || rank > 2 + static_cast<size_t>(kMaxBatchDims)) return false;
  if (a.q.dims().back() > kMostWidth || a.v.dims().back() > kMostWidth) return false;
  if (a.mask != nullptr && a.mask->dtype() != dtype) return false;
  if (a.q.type().count() == 0 || a.v.type().count() == 0) return false;
  // A query that sees no key sends NaN to every key, and the gradient's kernel does not read masked keys.
  return &node.op() == kForward ? node.results()[0].dtype == dtype : !a.nan_if_unseen;
}

// The fewest queries and keys for which the kernels are faster than the expansion, alone and both of a training step:
// measured (benchmarks/kernels/attention.cc), without tiles on a Zen 5, with tiles on a Xeon of 2023. A target's rule holds
// for all of its machines, since results have other bits.
struct Fewest {
  int64_t queries = 128;
  int64_t forward = 1024, forward_causal = 256, gradient = 1024, gradient_causal = 256;  // keys
};
constexpr Fewest kF32, kF32BesideTiles = {128, 512, 128, 512, 128};
// In bf16 the values are multiplied twice, which only products of pairs repay, and tiles do not notice.
constexpr Fewest kPairs = {.forward = 4096}, kTiles = {64, 64, 64, 512, 128};

bool Serves(const Node& node, const CpuTarget& target) {
  if (!CanServe(node)) return false;
  const Attention a = AttentionOf(node);
  const bool bf16 = a.q.dtype() == DType::kBF16, forward = &node.op() == kForward;
  const bool tiles = target.tiles != TileUnit::kNone;
  if (bf16 && !target.has_bf16_dot && !tiles) return false;
  if (a.queries <= kFewQueries) return forward && a.keys >= 256 && a.keys <= 1024;
  const Fewest& fewest = bf16 ? (tiles ? kTiles : kPairs) : tiles ? kF32BesideTiles : kF32;
  if (a.queries < fewest.queries) return false;
  if (forward) return a.keys >= (a.causal ? fewest.forward_causal : fewest.forward);
  return a.keys >= (a.causal ? fewest.gradient_causal : fewest.gradient);
}

AttentionMatrix MatrixOf(std::span<const int64_t> strides) {
  AttentionMatrix matrix;
  matrix.row_stride = strides[strides.size() - 2];
  std::copy(strides.begin(), strides.end() - 2, matrix.batch_strides.begin());
  return matrix;
}
// The matrix of an operand that has as many heads as q.
AttentionMatrix OfQueries(const Attention& a, std::span<const int64_t> strides) {
  AttentionMatrix matrix = MatrixOf(strides);
  if (!a.heads_are_queries) return matrix;
  int64_t& heads = matrix.batch_strides[strides.size() - 3];
  matrix.row_stride = heads;
  heads *= a.queries;
  return matrix;
}

// Rows so far apart fall into few sets of the first cache, where a product reads several at once.
constexpr int64_t kCrowdedBytes = 4096;

// Tells whether an operand is read through a view: rows are contiguous. An operand that is neither packed nor streamed
// is read again and again.
bool Reads(const Node& node, size_t operand, const View& view) {
  const Attention a = AttentionOf(node);
  const size_t row = a.q.dims().size() - 2;
  if (operand >= (&node.op() == kForward ? 3 : 4)) return false;
  if (view.strides[row + 1] != 1 && node.operands()[operand].dims()[row + 1] != 1) return false;
  const bool once = &node.op() == kForward && (operand > 0 || a.queries <= kFewQueries);
  return once || view.strides[row] * BytesOf(a.q.dtype()) % kCrowdedBytes != 0;
}

// An operand; `reads` gets where it lies.
AttentionMatrix Read(Lowering& lowering, const Node& node, size_t operand, std::vector<StorageId>& reads) {
  const View view = Views::Read(node, operand, Reads);
  reads.push_back(lowering.Of(view.base));
  const Attention a = AttentionOf(node);
  AttentionMatrix matrix = operand == 0 || operand == 3 ? OfQueries(a, view.strides) : MatrixOf(view.strides);
  matrix.offset = view.offset;
  return matrix;
}

// The fields that both kernels get, except q, k and v.
AttentionCall CallOf(const Attention& a, bool has_scale, double scale) {
  const size_t rank = a.q.dims().size();
  AttentionCall call;
  call.dtype = a.q.dtype();
  call.queries = a.queries;
  call.keys = a.keys;
  call.width = a.q.dims()[rank - 1];
  call.value_width = a.v.dims()[rank - 1];
  call.batch_rank = static_cast<int>(rank) - 2;
  std::copy(a.q.dims().begin(), a.q.dims().end() - 2, call.batch_sizes.begin());
  if (a.heads_are_queries) call.batch_sizes[rank - 3] /= a.queries;
  call.group = a.group;
  call.causal = a.causal;
  call.lead = a.lead;
  call.nan_if_unseen = a.nan_if_unseen;
  call.scale = static_cast<float>(has_scale ? scale : 1 / std::sqrt(static_cast<double>(call.width)));
  if (a.mask == nullptr) return call;
  const size_t missing = rank - a.mask->dims().size();
  const Dims own = StridesOf(a.mask->dims());
  Dims strides(rank, 0);
  for (size_t d = missing; d < rank; ++d) {
    if (a.mask->dims()[d - missing] != 1) strides[d] = own[d - missing];
  }
  call.has_mask = true;
  call.mask_column_stride = strides[rank - 1];
  call.mask = OfQueries(a, strides);
  return call;
}

// Returns the work of one pass over the scores.
double WorkOf(const Attention& a, const AttentionCall& call) {
  return static_cast<double>(a.q.type().count() / call.width) * static_cast<double>(call.keys) *
         static_cast<double>(call.width + call.value_width + 16);
}

absl::Status LowerAttention(Lowering& lowering, const Node& node) {
  if (!CanServe(node)) return InternalError("attention that should have been expanded");
  const Attention a = AttentionOf(node);
  const ops::ScaledDotProductAttentionAttrs attrs{node.attrs()};
  AttentionCall call = CallOf(a, attrs.has_scale(), attrs.has_scale() ? attrs.scale() : 0);
  const View written = lowering.Written(node);
  call.out = OfQueries(a, written.strides);
  std::vector<StorageId> reads;
  AttentionMatrix* const operands[] = {&call.q, &call.k, &call.v};
  for (size_t i = 0; i < std::size(operands); ++i) *operands[i] = Read(lowering, node, i, reads);
  if (a.mask != nullptr) reads.push_back(lowering.Of(*a.mask));
  const StorageId out = lowering.Define(written.base);
  const StorageId space = lowering.Temporary(std::max<int64_t>(AttentionSpace(lowering.target(), call), 1));
  lowering.Host("attention", reads, {out, space}, EncodeAttention({.call = call}), 10.0 * WorkOf(a, call) + 1e6);
  return absl::OkStatus();
}

absl::Status LowerGradient(Lowering& lowering, const Node& node) {
  if (!CanServe(node)) return InternalError("attention's gradient that should have been expanded");
  const Attention a = AttentionOf(node);
  const ops::ScaledDotProductAttentionGradientAttrs attrs{node.attrs()};
  AttentionGradientCall call;
  call.call = CallOf(a, attrs.has_scale(), attrs.has_scale() ? attrs.scale() : 0);
  std::vector<StorageId> reads;
  AttentionMatrix* const operands[] = {&call.call.q, &call.call.k, &call.call.v, &call.g};
  for (size_t i = 0; i < std::size(operands); ++i) *operands[i] = Read(lowering, node, i, reads);
  if (a.mask != nullptr) reads.push_back(lowering.Of(*a.mask));
  std::vector<StorageId> writes;
  for (uint32_t i = 0; i < 3; ++i) writes.push_back(lowering.Define({Ref<const Node>::Share(&node), i}));
  writes.push_back(lowering.Temporary(std::max<int64_t>(AttentionGradientSpace(call), 1)));
  lowering.Host("attention_gradient", reads, writes, EncodeAttention(call), 25.0 * WorkOf(a, call.call) + 1e6);
  return absl::OkStatus();
}

constexpr OpRule kRules[] = {{kForward, LowerAttention, Serves, Reads}, {kGradient, LowerGradient, Serves, Reads}};

}  // namespace

std::span<const OpRule> AttentionRules() { return kRules; }

}  // namespace weft::cpu
