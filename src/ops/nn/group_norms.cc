// Normalization by groups of features, and by the features beside each one.
#include <cmath>

#include "src/ops/conv/window.h"
#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kAxis = {"axis", AttrType::kInt, "axis of the features; negative counts from the end", false, "-1"};
constexpr AttrDef kEpsilon = {"epsilon", AttrType::kDouble, "added to the variance", false, "1e-5"};
constexpr AttrDef kGroupAttrs[] = {{"groups", AttrType::kInt, "of features, at least 1", true}, kAxis, kEpsilon};
constexpr AttrDef kInstanceAttrs[] = {kAxis, kEpsilon};
constexpr AttrDef kResponseAttrs[] = {
    {"size", AttrType::kInt, "features that are summed, at least 1", true},
    kAxis,
    {"alpha", AttrType::kDouble, "what the mean of squares is multiplied by", false, "1e-4"},
    {"beta", AttrType::kDouble, "exponent", false, "0.75"},
    {"k", AttrType::kDouble, "added to it", false, "1"}};
constexpr OperandDef kNormed[] = {{"x", kF, "[batch, …]"},
                                  {"scale", kF, "[features]; absent: 1", true},
                                  {"offset", kF, "[features]; absent: 0", true}};

absl::Status CheckNormed(const InferCall& call, int64_t given_axis, double epsilon, int64_t groups, Types* results) {
  const Type& x = *call.operands[0];
  if (x.rank() < 2) return UserError("x has shape ", DimsToString(x.dims), "; [batch, …] of rank 2 or more is needed");
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", given_axis, x.rank()));
  if (axis == 0) return UserError("axis is 0, which is the batch's");
  if (groups < 1 || x.dims[axis] % groups != 0) {
    return UserError("groups is ", groups, "; it must divide the ", x.dims[axis], " features");
  }
  for (size_t i : {1, 2}) {
    if (call.operands[i] != nullptr && call.operands[i]->dims != Dims{x.dims[axis]}) {
      return UserError(kNormed[i].name, " must have shape [", x.dims[axis], "], not ",
                       DimsToString(call.operands[i]->dims));
    }
  }
  if (!std::isfinite(epsilon)) return UserError("epsilon is ", epsilon, "; it must be finite");
  results->push_back(x);
  return absl::OkStatus();
}
// Each group of each example as a row, which layer_norm makes even.
absl::Status Normed(const ExpandCall& call, int64_t given_axis, double epsilon, int64_t groups,
                    std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Dims dims = x.dims();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", given_axis, dims.size()));
  if (x.type().count() == 0) {
    results[0] = x;
    return absl::OkStatus();
  }
  Ints order = {0, axis};
  Dims front = {dims[0], dims[axis]};
  for (int64_t d = 1; d < static_cast<int64_t>(dims.size()); ++d) {
    if (d == axis) continue;
    order.push_back(d);
    front.push_back(dims[d]);
  }
  Ints back(order.size(), 0);
  for (size_t d = 0; d < order.size(); ++d) back[order[d]] = static_cast<int64_t>(d);
  const int64_t rows = dims[0] * groups;
  const Value row = Reshape(b, Transpose(b, x, order), {rows, x.type().count() / rows});
  const Value even = Call(b, kOp_layer_norm, {row, Value(), Value()}, {int64_t{1}, epsilon});
  if (!even) return b.status();
  Value y = Transpose(b, Reshape(b, even, front), back);
  if (call.operands[1]) y = Mul(b, y, BroadcastInDim(b, call.operands[1], dims, {axis}));
  if (call.operands[2]) y = Add(b, y, BroadcastInDim(b, call.operands[2], dims, {axis}));
  results[0] = y;
  return absl::OkStatus();
}
absl::Status InferGroup(const InferCall& call, Types* results) {
  return CheckNormed(call, Attr<kGroupAttrs, "axis">(call.attrs), Attr<kGroupAttrs, "epsilon">(call.attrs),
                     Attr<kGroupAttrs, "groups">(call.attrs), results);
}
absl::Status ExpandGroup(const ExpandCall& call, std::span<Value> results) {
  return Normed(call, Attr<kGroupAttrs, "axis">(call.attrs), Attr<kGroupAttrs, "epsilon">(call.attrs),
                Attr<kGroupAttrs, "groups">(call.attrs), results);
}
absl::Status InferInstance(const InferCall& call, Types* results) {
  return CheckNormed(call, Attr<kInstanceAttrs, "axis">(call.attrs), Attr<kInstanceAttrs, "epsilon">(call.attrs), 1,
                     results);
}
absl::Status ExpandInstance(const ExpandCall& call, std::span<Value> results) {
  const Dims& dims = call.operands[0].dims();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("axis", Attr<kInstanceAttrs, "axis">(call.attrs), dims.size()));
  return Normed(call, axis, Attr<kInstanceAttrs, "epsilon">(call.attrs), dims[axis], results);
}

absl::Status InferResponse(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(NormalizeAxis("axis", Attr<kResponseAttrs, "axis">(call.attrs), x.rank()).status());
  const int64_t size = Attr<kResponseAttrs, "size">(call.attrs);
  if (size < 1 || size > INT32_MAX) return UserError("size is ", size, "; it must be 1 to 2^31 - 1");
  results->push_back(x);
  return absl::OkStatus();
}
absl::Status ExpandResponse(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const size_t rank = x.dims().size();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kResponseAttrs, "axis">(call.attrs), rank));
  const int64_t size = Attr<kResponseAttrs, "size">(call.attrs);
  Ints window(rank, 1), padding(2 * rank, 0);
  window[axis] = size;
  padding[2 * axis] = size / 2;
  padding[2 * axis + 1] = (size - 1) / 2;
  const Value sum =
      Call(b, kOp_reduce_window, {Square(b, x)},
           {window, static_cast<int64_t>(Reducer::kSum), Ints(rank, 1), Ints(rank, 1), Ints(rank, 1), padding});
  const Value base = Add(b, Mul(b, sum, Attr<kResponseAttrs, "alpha">(call.attrs) / static_cast<double>(size)),
                         Attr<kResponseAttrs, "k">(call.attrs));
  results[0] = Div(b, x, Call(b, kOp_pow, {base, FullLike(b, x, Attr<kResponseAttrs, "beta">(call.attrs))}));
  return absl::OkStatus();
}

constexpr Sample kGroups[] = {{"T[2,3,4] T[4] T[4] groups=2"}, {"T[2,4,3] none T[4] groups=4 axis=1"}};
constexpr Sample kInstances[] = {{"T[2,5,3] T[3] none"}};
constexpr Sample kResponses[] = {{"T[2,5] size=3 alpha=0.5"}};
constexpr Tolerance kTolerance = {.f32 = 1e-5, .f64 = 1e-12, .bf16 = 4e-2, .f16 = 1e-2, .absolute = 1e-5};

}  // namespace

constinit const OpDef kOp_group_norm = Formula({
    .name = "weft.group_norm",
    .c_name = "group_norm",
    .doc = "Zero mean and unit variance over each example's groups of features, then scale and offset. Source: Wu, "
           "He (2018).",
    .example = "h = wf_group_norm(s, x, scale, offset, 8);",
    .operands = kNormed,
    .attrs = kGroupAttrs,
    .infer = InferGroup,
    .expand = ExpandGroup,
    .samples = kGroups,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_instance_norm = Formula({
    .name = "weft.instance_norm",
    .c_name = "instance_norm",
    .doc = "Zero mean and unit variance over each example's every feature, then scale and offset.",
    .example = "h = wf_instance_norm(s, x, scale, offset);",
    .operands = kNormed,
    .attrs = kInstanceAttrs,
    .infer = InferInstance,
    .expand = ExpandInstance,
    .samples = kInstances,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_local_response_norm = Formula({
    .name = "weft.local_response_norm",
    .c_name = "local_response_norm",
    .doc = "x / (k + alpha times the mean of squares of the features around)^beta, what lies outside counting as 0. "
           "Source: Krizhevsky and others (2012).",
    .example = "h = wf_local_response_norm(s, x, 5);",
    .attrs = kResponseAttrs,
    .infer = InferResponse,
    .expand = ExpandResponse,
    .samples = kResponses,
    .tolerance = kTolerance,
});

}  // namespace weft::ops
