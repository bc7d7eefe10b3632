// multi_head_attention: projections, attention of each head, and the projection behind it.
#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {"query", kF, "[batch, queries, features]"},
    {"key", kF, "[batch, keys, key features]"},
    {"value", kF, "[batch, keys, value features]"},
    {"query_weight", kF, "[features, width], as linear has weights"},
    {"key_weight", kF, "[key features, width]"},
    {"value_weight", kF, "[value features, value width]"},
    {"out_weight", kF, "[value width, out]"},
    {"query_bias", kF, "[width]; absent: 0", true},
    {"key_bias", kF, "[width]; absent: 0", true},
    {"value_bias", kF, "[value width]; absent: 0", true},
    {"out_bias", kF, "[out]; absent: 0", true},
    {"mask", kF | kB, "broadcasts to [batch, heads, queries, keys]; bool: true is seen; float: added", true, false, 0}};
constexpr AttrDef kAttrs[] = {{"heads", AttrType::kInt, "how many; width and value width are multiples of it", true},
                              {"causal", AttrType::kBool, "query i sees keys up to i", false, "false"}};

absl::Status CheckProduct(const InferCall& call, size_t x, size_t w, size_t bias, int64_t heads) {
  const auto name = [&](size_t i) { return call.op.operands[i].name; };
  const Type &type = *call.operands[x], &weight = *call.operands[w];
  if (weight.rank() != 2 || weight.dims[0] != type.dims.back()) {
    return UserError(name(w), " must have shape [", type.dims.back(), ", …], not ", DimsToString(weight.dims));
  }
  if (weight.dims[1] % heads != 0) {
    return UserError(name(w), " has shape ", DimsToString(weight.dims), ", whose width is no multiple of ", heads,
                     " heads");
  }
  const Type* const own = call.operands[bias];
  if (own == nullptr || own->dims == Dims{weight.dims[1]}) return absl::OkStatus();
  return UserError(name(bias), " must have shape [", weight.dims[1], "], not ", DimsToString(own->dims));
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Type &q = *call.operands[0], &k = *call.operands[1], &v = *call.operands[2];
  const int64_t heads = Attr<kAttrs, "heads">(call.attrs);
  if (heads < 1) return UserError("heads is ", heads, "; it must be at least 1");
  for (size_t i = 0; i < 3; ++i) {
    if (call.operands[i]->rank() == 3) continue;
    return UserError(kOperands[i].name, " has shape ", DimsToString(call.operands[i]->dims),
                     "; [batch, sequence, features] is needed");
  }
  if (q.dims[0] != k.dims[0] || k.dims[0] != v.dims[0] || k.dims[1] != v.dims[1]) {
    return UserError("query, key and value have shapes ", DimsToString(q.dims), ", ", DimsToString(k.dims), " and ",
                     DimsToString(v.dims), "; batches and numbers of keys must agree");
  }
  for (size_t i = 0; i < 3; ++i) WEFT_RETURN_IF_ERROR(CheckProduct(call, i, 3 + i, 7 + i, heads));
  const Type &width = *call.operands[3], &key_width = *call.operands[4], &value_width = *call.operands[5],
             &out = *call.operands[6];
  if (width.dims[1] != key_width.dims[1]) {
    return UserError("query_weight and key_weight have widths ", width.dims[1], " and ", key_width.dims[1],
                     "; they must be equal");
  }
  if (out.rank() != 2 || out.dims[0] != value_width.dims[1]) {
    return UserError("out_weight must have shape [", value_width.dims[1], ", …], not ", DimsToString(out.dims));
  }
  if (const Type* bias = call.operands[10]; bias != nullptr && bias->dims != Dims{out.dims[1]}) {
    return UserError("out_bias must have shape [", out.dims[1], "], not ", DimsToString(bias->dims));
  }
  if (const Type* mask = call.operands[11]; mask != nullptr) {
    const Dims scores = {q.dims[0], heads, q.dims[1], k.dims[1]};
    const absl::StatusOr<Dims> joined = BroadcastDims(scores, mask->dims);
    if (!joined.ok() || *joined != scores) {
      return UserError("mask ", DimsToString(mask->dims), " does not broadcast to the scores ", DimsToString(scores));
    }
    if (!IsBool(mask->dtype) && mask->dtype != q.dtype) {
      return UserError("mask has dtype ", NameOf(mask->dtype), "; it must be bool or that of query, ", NameOf(q.dtype));
    }
  }
  results->push_back(Type::Tensor(q.dtype, {q.dims[0], q.dims[1], out.dims[1]}));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const int64_t heads = Attr<kAttrs, "heads">(call.attrs);
  // [batch, heads, sequence, width of a head].
  const auto projected = [&](size_t i) -> Value {
    const Value y = Call(b, kOp_linear, {call.operands[i], call.operands[3 + i], call.operands[7 + i]});
    if (!y) return {};
    const Dims& dims = y.dims();
    return Transpose(b, Reshape(b, y, {dims[0], dims[1], heads, dims[2] / heads}), {0, 2, 1, 3});
  };
  Attrs attrs;
  attrs.set(0, Attr<kAttrs, "causal">(call.attrs) ? int64_t{1} : int64_t{0});
  Value mask = call.operands[11];
  if (mask && !IsBool(mask.dtype())) mask = Convert(b, mask, call.operands[0].dtype());
  const Value y = Call(b, kOp_scaled_dot_product_attention, {projected(0), projected(1), projected(2), mask}, attrs);
  if (!y) return b.status();
  const Dims dims = y.dims();
  const Value joined = Reshape(b, Transpose(b, y, {0, 2, 1, 3}), {dims[0], dims[2], heads * dims[3]});
  results[0] = Call(b, kOp_linear, {joined, call.operands[6], call.operands[10]});
  return b.status();
}

constexpr Sample kSamples[] = {
    {"T[2,3,4] T[2,5,4] T[2,5,4] T[4,6] T[4,6] T[4,6] T[6,4] T[6] T[6] T[6] T[4] heads=2", -1, 1},
    {"T[1,3,4] T[1,3,4] T[1,3,2] T[4,4] T[4,4] T[2,8] T[8,3] heads=4 causal=true", -1, 1},
    {"T[2,2,4] T[2,3,4] T[2,3,4] T[4,4] T[4,4] T[4,4] T[4,4] none none none none T[2,3] heads=2", -1, 1}};

}  // namespace

constinit const OpDef kOp_multi_head_attention = Formula({
    .name = "weft.multi_head_attention",
    .c_name = "multi_head_attention",
    .doc =
        "Attention of several heads: query, key and value by their weights, scaled_dot_product_attention of each head, and the "
        "heads side by side by the last weight. A query that sees no key gives out_bias. Source: Vaswani et al. (2017).",
    .example = "y = wf_multi_head_attention(s, x, x, x, wq, wk, wv, wo, NULL, NULL, NULL, NULL, NULL, 8);",
    .operands = kOperands,
    .attrs = kAttrs,
    .infer = Infer,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = {.f32 = 2e-5, .f64 = 1e-12, .bf16 = 4e-2, .f16 = 8e-3, .absolute = 2e-5},
});

}  // namespace weft::ops
