// polar: complex numbers by their size and angle.
#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"size", kF, "absolute values, f32 or f64"}, {"angle", kF, "angles in radians"}};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferSame(call, results));
  DType& dtype = results->back().dtype;
  if (dtype != DType::kF32 && dtype != DType::kF64) {
    return UserError("size and angle are ", NameOf(dtype), "; complex numbers have parts of f32 or f64");
  }
  dtype = ComplexOf(dtype);
  return absl::OkStatus();
}

Value Polar(Builder& b, const Value& size, const Value& angle) {
  const Value re = Mul(b, size, Unary(b, kOp_cos, angle)), im = Mul(b, size, Unary(b, kOp_sin, angle));
  return Call(b, kOp_complex, {re, im});
}

constexpr Sample kSamples[] = {{"f32[2,3] f32[3]"}, {"f64[] f64[5]"}, {"f32[0,3] f32[3]"}};

}  // namespace

constinit const OpDef kOp_polar = Broadcasting({
    .name = "weft.polar",
    .c_name = "polar",
    .doc =
        "The complex numbers size (cos(angle) + i sin(angle)), elementwise with NumPy broadcasting; c64 of f32 or c128 of f64.",
    .example = "z = wf_polar(s, size, angle);",
    .operands = kOperands,
    .infer = Infer,
    .expand = ExpandBinary<Polar>,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-14},
});

}  // namespace weft::ops
