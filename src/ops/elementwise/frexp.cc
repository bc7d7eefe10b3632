// frexp: a number as mantissa and power of two.
#include "src/ops/elementwise/special.h"
#include "src/ops/nan.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kWhole, "operand"}};
constexpr std::string_view kResults[] = {"mantissa", "exponent"};

absl::Status Infer(const InferCall& call, Types* results) {
  results->push_back(*call.operands[0]);
  results->push_back(Type::Tensor(DType::kI32, call.operands[0]->dims));
  return absl::OkStatus();
}

// The bits of f32 or f64; subnormal numbers are made normal ones first.
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value x = Widened(b, call.operands[0]);
  if (!x) return b.status();
  const bool wide = x.dtype() == DType::kF64;
  const DType integer = wide ? DType::kI64 : DType::kI32;
  const int digits = wide ? 52 : 23, bias = wide ? 1022 : 126, shift = 64;
  const int64_t ones = wide ? 2047 : 255;
  const auto whole = [&](int64_t value) {
    HostTensor one(integer, {});
    one.SetInt(0, value);
    return BroadcastInDim(b, Constant(b, std::move(one)), x.dims(), {});
  };
  const Value small = Compare(b, Direction::kLt, Abs(b, x), wide ? 0x1p-1022 : 0x1p-126);
  const Value normal = Select(b, small, Mul(b, x, 0x1p64), x);
  const Value bits = Call(b, kOp_bitcast_convert, {normal}, {integer});
  const Value field = And(b, Call(b, kOp_shift_right_logical, {bits, whole(digits)}), whole(ones));
  const Value exponent = Sub(b, Sub(b, field, whole(bias)), Select(b, small, whole(shift), whole(0)));
  const Value rest = And(b, bits, whole(~(ones << digits)));
  const Value half = Either(b, rest, whole(static_cast<int64_t>(bias) << digits));
  const Value mantissa = Call(b, kOp_bitcast_convert, {half}, {x.dtype()});
  const Value plain =
      Either(b, Compare(b, Direction::kEq, x, 0), Call(b, kOp_bitwise_not, {Unary(b, kOp_is_finite, x)}));
  results[0] = Convert(b, Select(b, plain, x, mantissa), call.operands[0].dtype());
  results[1] = Convert(b, Select(b, plain, whole(0), exponent), DType::kI32);
  return absl::OkStatus();
}

// Between powers of two the mantissa is x times a constant.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  if (!call.cotangents[0]) return absl::OkStatus();
  grads[0] = Call(call.b, kOp_ldexp, {call.cotangents[0], Call(call.b, kOp_neg, {call.results[1]})});
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3]", 0.5, 0.99}, {"T[]", -3.9, -2.1, false}, {"T[0,3]"}, {"T[131]", -9, 9, false}};

}  // namespace

constinit const OpDef kOp_frexp = {
    .name = "weft.frexp",
    .c_name = "frexp",
    .since = 2,
    .kind = Kind::kComposite,
    .doc =
        "Each number as mantissa, of size 1/2 to 1, and the exponent of 2, i32: x = mantissa 2^exponent, exactly. 0, "
        "infinities and NaN are their own mantissas, with exponent 0. The gradient is that of the mantissa between powers of 2.",
    .example = "m = wf_frexp(s, x);",
    .operands = kOperands,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .batching = BatchLeading,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kCompositeAbsent,
};

}  // namespace weft::ops
