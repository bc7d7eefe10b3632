// scaled_dot_product_attention: softmax(q k^T scale + mask) v; and its gradient, for which backends may have a kernel.
#include <algorithm>
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
constexpr std::string_view kAlignments[] = {"none", "upper_left", "lower_right"};
enum Alignment : int64_t { kNone = 0, kUpperLeft = 1, kLowerRight = 2 };
constexpr AttrDef kAttrs[] = {
    {"causal", AttrType::kBool, "query i sees keys up to i: causal_alignment upper_left, unless that says another",
     false, "false"},
    {"scale", AttrType::kDouble, "factor of the scores; absent: 1 / sqrt(width)"},
    {"dtype", AttrType::kDType, kResultDTypeDoc},
    {"enable_gqa", AttrType::kBool,
     "q may have more heads, the dimension before queries, than k and v: a multiple; head h sees key head h / (heads / key "
     "heads)",
     false, "false"},
    {"causal_alignment", AttrType::kEnum,
     "where the diagonal lies behind which keys are hidden. upper_left: query i sees keys up to i, as PyTorch's is_causal; "
     "lower_right: the last query sees all keys, query i those up to i + keys - queries (a cache of keys); none: as causal says",
     false, "none", kAlignments},
    {"nan_if_unseen", AttrType::kBool, "a query that sees no key gives NaN, and gradients of NaN, instead of 0", false,
     "false"}};

constexpr OperandDef kGradientOperands[] = {kOperands[0],
                                            kOperands[1],
                                            kOperands[2],
                                            {"grad_output", kF, "cotangent of the result: [..., queries, value width]"},
                                            kOperands[3]};
constexpr AttrDef kGradientAttrs[] = {kAttrs[0], kAttrs[1], kAttrs[3], kAttrs[4], kAttrs[5]};
constexpr std::string_view kGradientResults[] = {"grad_q", "grad_k", "grad_v"};

// The attributes that attention and its gradient have in common.
struct Scores {
  int64_t alignment = kNone;
  double scale = 1;
  bool nan_if_unseen = false;
};
template <const auto& schema>
Scores ScoresOf(const Attrs& attrs, const Dims& q) {
  const bool given = HasAttr<schema, "scale">(attrs);
  const int64_t alignment = Attr<schema, "causal_alignment">(attrs);
  return {alignment == kNone && Attr<schema, "causal">(attrs) ? kUpperLeft : alignment,
          given ? Attr<schema, "scale">(attrs) : 1 / std::sqrt(static_cast<double>(q.back())),
          Attr<schema, "nan_if_unseen">(attrs)};
}

absl::Status CheckShapes(const Type& q, const Type& k, const Type& v, const Type* mask, bool enable_gqa) {
  const size_t rank = q.rank();
  if (rank < 2 || k.rank() != rank || v.rank() != rank) {
    return UserError("q, k and v must have the same rank, at least 2");
  }
  for (size_t d = 0; d + 2 < rank; ++d) {
    const int64_t heads = q.dims[d], key_heads = k.dims[d];
    if (d + 3 == rank && heads != key_heads && key_heads == v.dims[d]) {
      if (!enable_gqa) {
        return UserError("heads are ", heads, " in q and ", key_heads,
                         " in k and v; they must be equal unless enable_gqa is true");
      }
      if (key_heads == 0 || heads % key_heads != 0) {
        return UserError("heads are ", heads, " in q and ", key_heads,
                         " in k and v; with enable_gqa the first must be a multiple of the second");
      }
      continue;
    }
    if (heads != key_heads || heads != v.dims[d]) {
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
  if (mask == nullptr) return absl::OkStatus();
  Dims scores = q.dims;
  scores[rank - 1] = k.dims[rank - 2];
  absl::StatusOr<Dims> joined = BroadcastDims(scores, mask->dims);
  if (!joined.ok() || *joined != scores) {
    return UserError("mask ", DimsToString(mask->dims), " does not broadcast to the scores ", DimsToString(scores));
  }
  if (!IsBool(mask->dtype) && mask->dtype != q.dtype) {
    return UserError("mask has dtype ", NameOf(mask->dtype), "; it must be i1 or that of q, ", NameOf(q.dtype));
  }
  return absl::OkStatus();
}

template <const auto& schema>
absl::Status CheckScale(const Attrs& attrs) {
  if (HasAttr<schema, "scale">(attrs) && !std::isfinite(Attr<schema, "scale">(attrs))) {
    return UserError("scale is ", Attr<schema, "scale">(attrs), "; it must be finite");
  }
  return absl::OkStatus();
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Type &q = *call.operands[0], &v = *call.operands[2];
  WEFT_RETURN_IF_ERROR(CheckShapes(q, *call.operands[1], v, call.operands[3], Attr<kAttrs, "enable_gqa">(call.attrs)));
  WEFT_RETURN_IF_ERROR(CheckScale<kAttrs>(call.attrs));
  Dims dims = q.dims;
  dims.back() = v.dims.back();
  const DType dtype = ResultDType<kAttrs>(call.attrs, q.dtype);
  WEFT_RETURN_IF_ERROR(CheckResultDType(dtype, q.dtype));
  results->push_back(Type::Tensor(dtype, std::move(dims)));
  return absl::OkStatus();
}

absl::Status InferGradient(const InferCall& call, Types* results) {
  const Type &q = *call.operands[0], &v = *call.operands[2], &g = *call.operands[3];
  WEFT_RETURN_IF_ERROR(
      CheckShapes(q, *call.operands[1], v, call.operands[4], Attr<kGradientAttrs, "enable_gqa">(call.attrs)));
  WEFT_RETURN_IF_ERROR(CheckScale<kGradientAttrs>(call.attrs));
  Dims dims = q.dims;
  dims.back() = v.dims.back();
  if (g.dims != dims) {
    return UserError("grad_output must have shape ", DimsToString(dims), ", not ", DimsToString(g.dims));
  }
  for (size_t i = 0; i < 3; ++i) {
    results->push_back(Type::Tensor(ComputeType(q.dtype), call.operands[i]->dims));
  }
  return absl::OkStatus();
}

// The operands as they are computed with: as wide as the result, if that is wider.
Values Computed(Builder& b, std::span<const Value> operands, const Attrs& attrs) {
  const DType wide = Wider(operands[0].dtype(), ResultDType<kAttrs>(attrs, operands[0].dtype()));
  Values computed;
  for (const Value& x : operands) computed.push_back(x && IsFloat(x.dtype()) ? Convert(b, x, wide) : x);
  return computed;
}

// Prepares the left side of a product that has a row for each of `x`'s queries: one product for all heads that share a
// key head, so that k and v are not repeated. [..., heads, queries, n] and [..., key heads, heads / key heads *
// queries, n] have the same layout.
Value ByKeyHead(Builder& b, const Value& x, const Value& of_keys) {
  const size_t rank = x.dims().size();
  if (rank < 3 || x.dims()[rank - 3] == of_keys.dims()[rank - 3]) return x;
  Dims dims = x.dims();
  dims[rank - 2] *= dims[rank - 3] / of_keys.dims()[rank - 3];
  dims[rank - 3] = of_keys.dims()[rank - 3];
  return Reshape(b, x, dims);
}
// x [..., heads, queries, m] times y [..., key heads, m, n] or, transposed, [..., key heads, n, m].
Value TimesKeys(Builder& b, const Value& x, const Value& y, bool transpose_y) {
  if (!x || !y) return {};
  Value product = BatchMatmul(b, ByKeyHead(b, x, y), y, false, transpose_y);
  if (!product) return {};
  Dims dims = x.dims();
  dims.back() = product.dims().back();
  return Reshape(b, product, dims);
}
// x^T y of both for each key head, summed over its heads and their queries.
Value SumByKey(Builder& b, const Value& x, const Value& y, const Value& of_keys) {
  if (!x || !y) return {};
  return BatchMatmul(b, ByKeyHead(b, x, of_keys), ByKeyHead(b, y, of_keys), true, false);
}

// The probabilities [..., queries, keys]. Hidden scores are -inf.
Value Probabilities(Builder& b, const Value& q, const Value& k, const Value* mask, const Scores& of) {
  const size_t rank = q.dims().size();
  Value scores = Mul(b, TimesKeys(b, q, k, true), of.scale);
  if (!scores) return {};
  const Dims dims = scores.dims();
  Value hidden = FullLike(b, scores, -std::numeric_limits<double>::infinity());
  if (mask != nullptr && *mask) {
    Value added = BroadcastTo(b, *mask, dims);
    scores = IsBool(mask->dtype()) ? Select(b, added, scores, hidden) : Add(b, scores, added);
  }
  if (of.alignment != kNone) {
    // Keys before the first query's own.
    const int64_t lead = of.alignment == kLowerRight ? dims[rank - 1] - dims[rank - 2] : 0;
    Value query = Iota(b, DType::kI32, {dims[rank - 2], dims[rank - 1]}, 0);
    Value key = Iota(b, DType::kI32, {dims[rank - 2], dims[rank - 1]}, 1);
    Value seen = Compare(b, Direction::kLe, key, Add(b, query, static_cast<double>(lead)));
    scores = Select(b, BroadcastTo(b, seen, dims), scores, hidden);
  }
  return Call(b, kOp_softmax, {scores}, {int64_t{-1}, int64_t{!of.nan_if_unseen}});
}

// From the probabilities, computed again: with dp = g v^T and ds = p (dp - sum(dp p)), dq = ds k scale, dk =
// ds^T q scale, dv = p^T g. grads: of q, k, v and, if there are so many, of a mask; those that are wanted.
void Cotangents(Builder& b, std::span<const Value> operands, const Value* mask, const Value& g, const Scores& of,
                std::span<const bool> wanted, std::span<Value> grads) {
  const Value &q = operands[0], &k = operands[1], &v = operands[2];
  const auto last = static_cast<int64_t>(q.dims().size()) - 1;
  Value p = Probabilities(b, q, k, mask, of);
  Value dp = TimesKeys(b, g, v, true);
  Value ds = Mul(b, p, Sub(b, dp, ReduceKeep(b, Mul(b, dp, p), Reducer::kSum, {last})));
  if (wanted[0]) grads[0] = Mul(b, TimesKeys(b, ds, k, false), of.scale);
  if (wanted[1]) grads[1] = Mul(b, SumByKey(b, ds, q, k), of.scale);
  if (wanted[2]) grads[2] = SumByKey(b, p, g, k);
  if (wanted.size() > 3 && wanted[3]) grads[3] = SumTo(b, ds, mask->dims());
}

// The operands of the operation that gives the cotangents of q, k and v: 16-bit ones as they were before they were f32.
Values GradientOperands(const GradCall& call, std::span<const Value> computed, const Value& g) {
  const std::span<const Value> given = call.node.operands();
  const bool narrow = IsWidened(given[0].dtype()) && computed[0].dtype() == ComputeType(given[0].dtype()) &&
                      IsWidening(*g.node) && g.node->operands()[0].dtype() == given[0].dtype();
  const auto from = [&](size_t i) {
    if (i >= computed.size() || !computed[i]) return Value();
    const Node& node = *computed[i].node;
    const bool was = narrow && IsWidening(node) && node.operands()[0].dtype() == given[i].dtype();
    return was ? node.operands()[0] : computed[i];
  };
  return {from(0), from(1), from(2), narrow ? g.node->operands()[0] : g, from(3)};
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Attrs& attrs = call.node.attrs();
  const Values operands = Computed(b, call.operands, attrs);
  const Value g = Convert(b, call.cotangents[0], operands[0].dtype());
  WEFT_RETURN_IF_ERROR(b.status());
  const bool masked = operands.size() > 3 && operands[3];
  const bool of_mask = masked && call.wanted[3] && IsFloat(operands[3].dtype());
  if (call.wanted[0] && call.wanted[1] && call.wanted[2] && !of_mask) {
    Attrs told = {attrs.at(0)};
    if (attrs.has(1)) told.set(1, attrs.at(1));
    for (size_t i = 2; i < std::size(kGradientAttrs); ++i) told.set(i, attrs.at(i + 1));
    Values three = CallAll(b, kOp_scaled_dot_product_attention_gradient, GradientOperands(call, operands, g), told);
    std::ranges::move(three, grads.begin());
  } else {
    const bool wanted[] = {call.wanted[0], call.wanted[1], call.wanted[2], of_mask};
    Cotangents(b, operands, masked ? &operands[3] : nullptr, g, ScoresOf<kAttrs>(attrs, operands[0].dims()), wanted,
               grads);
  }
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i]) grads[i] = Convert(b, grads[i], call.operands[i].dtype());
  }
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Values operands = Computed(b, call.operands, call.attrs);
  const Value p =
      Probabilities(b, operands[0], operands[1], &operands[3], ScoresOf<kAttrs>(call.attrs, operands[0].dims()));
  Value y = TimesKeys(b, p, operands[2], false);
  results[0] = Convert(b, y, ResultDType<kAttrs>(call.attrs, call.operands[0].dtype()));
  return absl::OkStatus();
}

absl::Status ExpandGradient(const ExpandCall& call, std::span<Value> results) {
  constexpr bool kWanted[] = {true, true, true};
  Cotangents(call.b, call.operands, &call.operands[4], call.operands[3],
             ScoresOf<kGradientAttrs>(call.attrs, call.operands[0].dims()), kWanted, results);
  for (Value& grad : results) grad = Convert(call.b, grad, ComputeType(call.operands[0].dtype()));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3,4,5] T[2,3,6,5] T[2,3,6,7]"},
                               {"T[4,5] T[4,5] T[4,5] causal=true"},
                               {"T[2,3,5] T[2,7,5] T[2,7,5] causal=true scale=0.3"},
                               {"T[2,3,5] T[2,4,5] T[2,4,5] T[3,4]"},
                               {"T[0,3,5] T[0,4,5] T[0,4,5]"},
                               {"T[2,4,3,5] T[2,2,6,5] T[2,2,6,4] T[4,3,6] causal=true enable_gqa=true"},
                               {"T[3,2,5] T[1,4,5] T[1,4,5] enable_gqa=true"},
                               {"bf16[2,3,5] bf16[2,4,5] bf16[2,4,5] bf16[3,4] dtype=f32"},
                               {"T[7,5] T[4,5] T[4,5] causal=true"},
                               {"T[2,7,5] T[2,4,5] T[2,4,6] causal_alignment=lower_right"},
                               {"T[2,3,5] T[2,7,5] T[2,7,6] causal_alignment=lower_right nan_if_unseen=true"},
                               {"f32[3,5] f32[4,5] f32[4,5] dtype=f64"},
                               {"f32[3,5] f32[4,5] f32[4,5] dtype=bf16"}};
constexpr Sample kGradientSamples[] = {{"T[2,3,4,5] T[2,3,6,5] T[2,3,6,7] T[2,3,4,7]"},
                                       {"T[4,5] T[4,5] T[4,5] T[4,5] causal=true"},
                                       {"T[2,3,5] T[2,7,5] T[2,7,5] T[2,3,5] causal=true scale=0.3"},
                                       {"T[2,3,5] T[2,4,5] T[2,4,5] T[2,3,5] T[3,4]"},
                                       {"T[0,3,5] T[0,4,5] T[0,4,5] T[0,3,5]"},
                                       {"T[7,5] T[4,5] T[4,5] T[7,5] causal=true"},
                                       {"T[2,7,5] T[2,4,5] T[2,4,6] T[2,7,6] causal_alignment=lower_right"},
                                       {"T[2,4,3,5] T[2,2,6,5] T[2,2,6,4] T[2,4,3,4] causal=true enable_gqa=true"}};
constexpr Absent kReached[] = {{Part::kGradient, Reason::kExpands},
                               {Part::kReference, Reason::kExpands},
                               {Part::kStableHlo, Reason::kExpands},
                               {Part::kExample, Reason::kMovedByExpansionOf}};

}  // namespace

constinit const OpDef kOp_scaled_dot_product_attention = {
    .name = "weft.scaled_dot_product_attention",
    .c_name = "scaled_dot_product_attention",
    .kind = Kind::kComposite,
    .doc =
        "Attention softmax(q k^T scale + mask) v over any leading dimensions (batch, heads). With enable_gqa several "
        "heads of q may share one of k and v. The gradient computes the probabilities again instead of keeping them. A query "
        "that sees no key, all of whose scores are -inf, gives 0, and so are its gradients. Source: Vaswani et al. (2017).",
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

constinit const OpDef kOp_scaled_dot_product_attention_gradient = {
    .name = "weft.scaled_dot_product_attention_gradient",
    .c_name = "scaled_dot_product_attention_gradient",
    .kind = Kind::kComposite,
    .doc =
        "The cotangents of q, k and v of scaled_dot_product_attention by that of its result; f32 where q is narrower. "
        "Its gradient is made of it.",
    .operands = kGradientOperands,
    .attrs = kGradientAttrs,
    .results = kGradientResults,
    .infer = InferGradient,
    .expand = ExpandGradient,
    .lowering = Lowering::kKernel,
    .samples = kGradientSamples,
    .tolerance = {.f32 = 2e-5, .f64 = 1e-12, .bf16 = 5e-2, .f16 = 1e-2, .absolute = 2e-5},
    .absent = kReached,
    .exported = false,
};

}  // namespace weft::ops
