// rms_norm: unit root mean square along the last axis, then scale.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "[..., size]"}, {"scale", kF, "[size]; absent: 1", true}};
constexpr AttrDef kAttrs[] = {{"epsilon", AttrType::kDouble, "added to the mean square", false, "1e-6"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  if (x.rank() == 0) return UserError("x must have at least one dimension");
  if (call.operands[1] != nullptr && call.operands[1]->dims != Dims{x.dims.back()}) {
    return UserError("scale must have shape [", x.dims.back(), "], not ", DimsToString(call.operands[1]->dims));
  }
  const double epsilon = call.attrs.Double(0);
  if (!(epsilon >= 0 && std::isfinite(epsilon)))
    return UserError("epsilon is ", epsilon, "; it must be finite, not negative");
  results->push_back(x);
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const int64_t last = x.dims().size() - 1;
  Value mean = Mul(b, ReduceKeep(b, Square(b, x), Reducer::kSum, {last}), 1.0 / static_cast<double>(x.dims()[last]));
  Value y = Mul(b, x, Rsqrt(b, Add(b, mean, call.attrs.Double(0))));
  results[0] = call.operands[1] ? Mul(b, y, call.operands[1]) : y;
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[4,7] T[7]"}, {"T[3,131]"}, {"T[0,3] T[3]"}, {"T[5]"}};

}  // namespace

constinit const OpDef kOp_rms_norm = {
    .name = "weft.rms_norm",
    .c_name = "rms_norm",
    .kind = Kind::kMacro,
    .doc =
        "Root mean square normalisation along the last axis: x / sqrt(mean(x^2) + epsilon) * scale. Source: Zhang and "
        "Sennrich (2019).",
    .example = "h = wf_rms_norm(s, x, scale);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 8e-6, .f64 = 1e-13, .bf16 = 4e-2, .f16 = 1e-2, .absolute = 1e-6},
    .absent = kMacroAbsent,
};

}  // namespace weft::ops
