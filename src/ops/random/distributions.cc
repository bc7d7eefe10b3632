// Parts that distributions of tensors share.
#include "src/ops/random/distributions.h"

#include <cmath>
#include <limits>

namespace weft::ops {
namespace {

using namespace ir;

absl::StatusOr<Dims> DrawnDims(std::span<const Dims> parameters, const Attrs& attrs) {
  Dims dims;
  for (const Dims& each : parameters) {
    WEFT_ASSIGN_OR_RETURN(dims, BroadcastDims(dims, each));
  }
  if (!HasAttr<kDrawAttrs, "shape">(attrs)) return dims;
  const Dims shape = ToDims(Attr<kDrawAttrs, "shape">(attrs));
  const absl::StatusOr<Dims> joined = BroadcastDims(dims, shape);
  if (joined.ok() && *joined == shape) return shape;
  return UserError("the parameters have shape ", DimsToString(dims), ", which does not broadcast to shape ",
                   DimsToString(shape));
}

absl::Status InferAs(const InferCall& call, DType dtype, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckState(*call.operands.back()));
  std::vector<Dims> parameters;
  for (const Type* each : call.operands.first(call.operands.size() - 1)) parameters.push_back(each->dims);
  WEFT_ASSIGN_OR_RETURN(Dims dims, DrawnDims(parameters, call.attrs));
  results->push_back(Type::Tensor(dtype, std::move(dims)));
  return absl::OkStatus();
}

}  // namespace

absl::Status InferDrawn(const InferCall& call, Types* results) {
  return InferAs(call, call.operands[0]->dtype, results);
}
absl::Status InferDrawnBool(const InferCall& call, Types* results) { return InferAs(call, DType::kBool, results); }

absl::StatusOr<Values> DrawnParameters(const ExpandCall& call) {
  std::vector<Dims> shapes;
  const std::span<const Value> given = call.operands.first(call.operands.size() - 1);
  for (const Value& each : given) shapes.push_back(each.dims());
  WEFT_ASSIGN_OR_RETURN(const Dims dims, DrawnDims(shapes, call.attrs));
  Values parameters;
  for (const Value& each : given) parameters.push_back(BroadcastTo(call.b, each, dims));
  WEFT_RETURN_IF_ERROR(call.b.status());
  return parameters;
}

Value RandomExponential(Builder& b, const Value& state, const Dims& dims, DType dtype) {
  const bool wide = dtype == DType::kF64;
  Value bits = Convert(b, RandomBits(b, state, dims, wide ? DType::kU64 : DType::kU32), dtype);
  if (!bits) return {};
  Value v = Mul(b, Add(b, bits, 0.5), std::ldexp(1.0, wide ? -64 : -32));
  v = Minimum(b, v, FullLike(b, v, 1 - std::ldexp(1.0, wide ? -53 : -24)));
  return Neg(b, Unary(b, kOp_log1p, Neg(b, v)));
}

Value RandomNormal(Builder& b, const Value& state, const Dims& dims, DType dtype) {
  return Call(b, kOp_normal, {state}, {ToInts(dims), 0.0, 1.0, dtype});
}

Value RandomOpen(Builder& b, const Value& state, const Dims& dims) {
  Value bits = RandomBits(b, state, dims, DType::kU64);
  if (!bits) return {};
  bits = Call(b, kOp_shift_right_logical, {bits, FullLike(b, bits, 12)});
  return Mul(b, Add(b, Convert(b, bits, DType::kF64), 0.5), 0x1p-52);
}

Value Where(Builder& b, const Value& valid, const Value& x) {
  return Select(b, valid, x, FullLike(b, x, std::numeric_limits<double>::quiet_NaN()));
}

Value StreamOfCall(Builder& b, const Value& state, uint64_t n) {
  return StreamOf(b, StreamOf(b, state, U64(b, 0)), U64(b, n));
}

}  // namespace weft::ops
