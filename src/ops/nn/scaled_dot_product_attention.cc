// scaled_dot_product_attention: softmax(q k^T scale + mask) v.
#include <cmath>
#include <limits>

#include "src/ops/result_dtype.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {"q", kF, "[..., queries, width]"},
    {"k", kF, "[..., keys, width]"},
    {"v", kF, "[..., keys, value width]"},
    {"mask", kF | kB, "broadcasts to [..., queries, keys]; bool: true is seen; float: added", true, false, 0}};
constexpr AttrDef kAttrs[] = {
    {"causal", AttrType::kBool, "query i sees keys up to i (counted from the end if there are more keys)", false,
     "false"},
    {"scale", AttrType::kDouble, "factor of the scores; absent: 1 / sqrt(width)"},
    {"dtype", AttrType::kDType, kResultDTypeDoc}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type &q = *call.operands[0], &k = *call.operands[1], &v = *call.operands[2];
  const size_t rank = q.rank();
  if (rank < 2 || k.rank() != rank || v.rank() != rank) {
    return UserError("q, k and v must have the same rank, at least 2");
  }
  for (size_t d = 0; d + 2 < rank; ++d) {
    if (q.dims[d] != k.dims[d] || q.dims[d] != v.dims[d]) {
      return UserError("leading dimension ", d, " is ", q.dims[d], ", ", k.dims[d], " and ", v.dims[d],
                       "; it must be equal in q, k and v");
    }
  }
  if (q.dims[rank - 1] != k.dims[rank - 1]) {
    return UserError("q has width ", q.dims[rank - 1], " and k ", k.dims[rank - 1], "; they must be equal");
  }
  if (k.dims[rank - 2] != v.dims[rank - 2]) {
    return UserError("k has ", k.dims[rank - 2], " keys and v ", v.dims[rank - 2], "; they must be equal");
  }
  Dims scores = q.dims;
  scores[rank - 1] = k.dims[rank - 2];
  if (const Type* mask = call.operands[3]) {
    absl::StatusOr<Dims> joined = BroadcastDims(scores, mask->dims);
    if (!joined.ok() || *joined != scores) {
      return UserError("mask ", DimsToString(mask->dims), " does not broadcast to the scores ", DimsToString(scores));
    }
    if (!IsBool(mask->dtype) && mask->dtype != q.dtype) {
      return UserError("mask has dtype ", NameOf(mask->dtype), "; it must be i1 or that of q, ", NameOf(q.dtype));
    }
  }
  if (HasAttr<kAttrs, "scale">(call.attrs) && !std::isfinite(Attr<kAttrs, "scale">(call.attrs))) {
    return UserError("scale is ", Attr<kAttrs, "scale">(call.attrs), "; it must be finite");
  }
  Dims dims = q.dims;
  dims[rank - 1] = v.dims[rank - 1];
  const DType dtype = ResultDType<kAttrs>(call.attrs, q.dtype);
  WEFT_RETURN_IF_ERROR(CheckResultDType(dtype, q.dtype));
  results->push_back(Type::Tensor(dtype, std::move(dims)));
  return absl::OkStatus();
}

double ScaleOf(const Attrs& attrs, const Dims& q) {
  return HasAttr<kAttrs, "scale">(attrs) ? Attr<kAttrs, "scale">(attrs) : 1 / std::sqrt(static_cast<double>(q.back()));
}

// The operands as they are computed with: as wide as the result, if that is wider.
Values Computed(Builder& b, std::span<const Value> operands, const Attrs& attrs) {
  const DType wide = Wider(operands[0].dtype(), ResultDType<kAttrs>(attrs, operands[0].dtype()));
  Values computed;
  for (const Value& x : operands) computed.push_back(x && IsFloat(x.dtype()) ? Convert(b, x, wide) : x);
  return computed;
}

// The probabilities [..., queries, keys]. Hidden scores are -inf: a query that sees no key gives NaN.
Value Probabilities(Builder& b, std::span<const Value> operands, const Attrs& attrs) {
  const Value& q = operands[0];
  const Value& k = operands[1];
  const size_t rank = q.dims().size();
  Value scores = Mul(b, BatchMatmul(b, q, k, false, true), ScaleOf(attrs, q.dims()));
  if (!scores) return {};
  const Dims dims = scores.dims();
  Value hidden = FullLike(b, scores, -std::numeric_limits<double>::infinity());
  if (operands.size() > 3 && operands[3]) {
    Value mask = BroadcastTo(b, operands[3], dims);
    scores = IsBool(operands[3].dtype()) ? Select(b, mask, scores, hidden) : Add(b, scores, mask);
  }
  if (Attr<kAttrs, "causal">(attrs)) {
    const int64_t lead = dims[rank - 1] - dims[rank - 2];  // keys before the first query's own
    Value query = Iota(b, DType::kI32, {dims[rank - 2], dims[rank - 1]}, 0);
    Value key = Iota(b, DType::kI32, {dims[rank - 2], dims[rank - 1]}, 1);
    Value seen = Compare(b, Direction::kLe, key, Add(b, query, static_cast<double>(lead)));
    scores = Select(b, BroadcastTo(b, seen, dims), scores, hidden);
  }
  return Call(b, kOp_softmax, {scores});
}

// From the probabilities, computed again: with dp = g v^T and ds = p (dp - sum(dp p)), dq = ds k scale, dk =
// ds^T q scale, dv = p^T g.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Attrs& attrs = call.node.attrs();
  const Values operands = Computed(b, call.operands, attrs);
  const Value &q = operands[0], &k = operands[1], &v = operands[2], g = Convert(b, call.cotangents[0], q.dtype());
  const auto last = static_cast<int64_t>(q.dims().size()) - 1;
  const double scale = ScaleOf(attrs, q.dims());
  Value p = Probabilities(b, operands, attrs);
  Value dp = BatchMatmul(b, g, v, false, true);
  Value ds = Mul(b, p, Sub(b, dp, ReduceKeep(b, Mul(b, dp, p), Reducer::kSum, {last})));
  if (call.wanted[0]) grads[0] = Mul(b, BatchMatmul(b, ds, k, false, false), scale);
  if (call.wanted[1]) grads[1] = Mul(b, BatchMatmul(b, ds, q, true, false), scale);
  if (call.wanted[2]) grads[2] = BatchMatmul(b, p, g, true, false);
  if (call.operands.size() > 3 && call.wanted[3] && IsFloat(call.operands[3].dtype())) {
    grads[3] = SumTo(b, ds, call.operands[3].dims());
  }
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i]) grads[i] = Convert(b, grads[i], call.operands[i].dtype());
  }
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Values operands = Computed(b, call.operands, call.attrs);
  Value y = BatchMatmul(b, Probabilities(b, operands, call.attrs), operands[2], false, false);
  results[0] = Convert(b, y, ResultDType<kAttrs>(call.attrs, call.operands[0].dtype()));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3,4,5] T[2,3,6,5] T[2,3,6,7]"},
                               {"T[4,5] T[4,5] T[4,5] causal=true"},
                               {"T[2,3,5] T[2,7,5] T[2,7,5] causal=true scale=0.3"},
                               {"T[2,3,5] T[2,4,5] T[2,4,5] T[3,4]"},
                               {"T[0,3,5] T[0,4,5] T[0,4,5]"},
                               {"bf16[2,3,5] bf16[2,4,5] bf16[2,4,5] bf16[3,4] dtype=f32"},
                               {"f32[3,5] f32[4,5] f32[4,5] dtype=f64"},
                               {"f32[3,5] f32[4,5] f32[4,5] dtype=bf16"}};

}  // namespace

constinit const OpDef kOp_scaled_dot_product_attention = {
    .name = "weft.scaled_dot_product_attention",
    .c_name = "scaled_dot_product_attention",
    .kind = Kind::kComposite,
    .doc =
        "Attention softmax(q k^T scale + mask) v over any leading dimensions (batch, heads). The gradient computes "
        "the probabilities again instead of keeping them. A query that sees no key gives NaN. Source: Vaswani et al. "
        "(2017).",
    .example = "y = wf_scaled_dot_product_attention(s, q, k, v, NULL, .causal = 1);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .lowering = Lowering::kKernel,  // without s x s scores in memory
    .samples = kSamples,
    .tolerance = {.f32 = 2e-5, .f64 = 1e-12, .bf16 = 5e-2, .f16 = 1e-2, .absolute = 1e-5},
    .absent = kCompositeAbsent,
};

}  // namespace weft::ops
