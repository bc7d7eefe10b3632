// See dynamic_shapes.h.
#include "src/ops/shape/dynamic_shapes.h"

#include "src/ops/generated/attributes.h"

namespace weft::ops {

using ir::Builder;
using ir::Ints;
using ir::Value;

absl::Status CheckStaticShape(const Ints& shape) {
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 0) {
      return UserError("the size of result dimension ", d, " is not known; shapes must be static in this version");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAmounts(const ir::InferCall& call, size_t first, size_t rank) {
  for (size_t i = first; i < call.op.operands.size(); ++i) {
    if (call.operands[i]->dims == Dims{static_cast<int64_t>(rank)}) continue;
    return UserError(call.op.operands[i].name, " is ", ir::ShortType(*call.operands[i]), "; it must have shape [", rank,
                     "]");
  }
  return absl::OkStatus();
}

std::optional<Ints> KnownAmounts(const Value& amounts) {
  if (!amounts || &amounts.node->op() != &kOp_constant) return std::nullopt;
  const HostTensor& value = ConstantAttrs{amounts.node->attrs()}.value();
  Ints known;
  for (int64_t i = 0; i < value.count(); ++i) known.push_back(value.GetInt(i));
  return known;
}

Value Along(Builder& b, const Value& amounts, int64_t i, int64_t count) {
  return BroadcastTo(b, Convert(b, Reshape(b, Slice(b, amounts, {i}, {i + 1}, {1}), {}), DType::kI64), {count});
}

Value DynamicPad(Builder& b, const Value& x, const Value& value, const Value& low, const Value& high,
                 const Value& interior, const Dims& shape) {
  if (!x || !value) return {};
  const auto known_low = KnownAmounts(low), known_high = KnownAmounts(high), known_interior = KnownAmounts(interior);
  if (known_low && known_high && known_interior) {
    const Value padded = Call(b, kOp_pad, {x, value}, {*known_low, *known_high, *known_interior});
    if (!padded || padded.dims() == shape) return padded;
    b.Fail(UserError("the padding gives ", DimsToString(padded.dims()), ", the result is ", DimsToString(shape)));
    return {};
  }
  const Value fill = BroadcastInDim(b, value, shape, {});
  if (x.type().count() == 0 || CountOf(shape) == 0) return fill;
  Value y = x, inside;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    const Value at = Sub(b, Iota(b, DType::kI64, {shape[d]}, 0), Along(b, low, d, shape[d]));
    const Value step = Add(b, Along(b, interior, d, shape[d]), 1.0);
    const Value from = Div(b, at, step);
    const Value on = And(b, Compare(b, Direction::kGe, at, 0), Compare(b, Direction::kEq, Mul(b, from, step), at));
    const Value here = And(b, on, Compare(b, Direction::kLt, from, static_cast<double>(x.dims()[d])));
    y = Call(b, kOp_take, {y, from}, {d});
    const Value everywhere = BroadcastInDim(b, here, shape, {d});
    inside = inside ? And(b, inside, everywhere) : everywhere;
  }
  return inside ? Select(b, inside, y, fill) : y;
}

}  // namespace weft::ops
