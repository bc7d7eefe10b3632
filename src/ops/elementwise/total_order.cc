// See total_order.h.
#include "src/ops/elementwise/total_order.h"

namespace weft::ops {
namespace {

using ir::Builder;
using ir::Value;

// The order is that of the bits as integers, the lower ones of negative numbers turned around, which undoes itself.
Value Turned(Builder& b, const Value& bits) {
  if (!bits) return {};
  const int width = BitsOf(bits.dtype());
  const auto constant = [&](int64_t value) {
    HostTensor tensor(bits.dtype(), {});
    tensor.SetInt(0, value);
    return BroadcastInDim(b, Constant(b, std::move(tensor)), bits.dims(), {});
  };
  const Value sign = Call(b, kOp_shift_right_arithmetic, {bits, constant(width - 1)});
  return Call(b, kOp_bitwise_xor, {bits, And(b, sign, constant(INT64_MAX >> (64 - width)))});
}

}  // namespace

Value InTotalOrder(Builder& b, const Value& given) {
  const Value x = IsNarrow(given.dtype()) ? Convert(b, given, ComputeType(given.dtype())) : given;
  const int width = BitsOf(x.dtype());
  const DType integer = width == 64 ? DType::kI64 : width == 32 ? DType::kI32 : DType::kI16;
  return Turned(b, Call(b, kOp_bitcast_convert, {x}, {integer}));
}

Value FromTotalOrder(Builder& b, const Value& order, DType dtype) {
  const DType wide = IsNarrow(dtype) ? ComputeType(dtype) : dtype;
  const Value x = Call(b, kOp_bitcast_convert, {Turned(b, order)}, {wide});
  return IsNarrow(dtype) ? Convert(b, x, dtype) : x;
}

}  // namespace weft::ops
