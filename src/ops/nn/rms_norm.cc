// rms_norm: unit root mean square along the last axis, then scale.
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/reduce/variance.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "[..., size]"}, {"scale", kF | kC, "[size]; absent: 1", true}};
constexpr AttrDef kAttrs[] = {{"epsilon", AttrType::kDouble, "added to the mean square", false, "1e-6"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  if (x.rank() == 0) return UserError("x must have at least one dimension");
  if (call.operands[1] != nullptr && call.operands[1]->dims != Dims{x.dims.back()}) {
    return UserError("scale must have shape [", x.dims.back(), "], not ", DimsToString(call.operands[1]->dims));
  }
  const double epsilon = Attr<kAttrs, "epsilon">(call.attrs);
  if (!std::isfinite(epsilon)) return UserError("epsilon is ", epsilon, "; it must be finite");
  results->push_back(x);
  return absl::OkStatus();
}

struct Normalized {
  Value value;    // x / root
  Value inverse;  // 1 / root, with the last axis kept
};

Value Mean(Builder& b, const Value& x) {
  if (!x) return {};
  const auto last = static_cast<int64_t>(x.dims().size()) - 1;
  return Mul(b, ReduceKeep(b, x, Reducer::kSum, {last}), 1.0 / static_cast<double>(x.dims()[last]));
}

Normalized Normalize(Builder& b, const Value& x, const Attrs& attrs) {
  const double epsilon = Attr<kAttrs, "epsilon">(attrs);
  const auto reduce = [&](const Value& y) { return Mean(b, y); };
  if (IsComplex(x.dtype())) {
    const Value inverse = Rsqrt(b, Add(b, reduce(Square(b, x)), epsilon));
    return {Mul(b, x, inverse), inverse};
  }
  const MeanSquare square = InRange(b, {x, {}, reduce(Square(b, x)), epsilon}, reduce);
  Value inverse = square.Inverse(b, epsilon);
  return {Mul(b, x, inverse), inverse};
}

// With n the normalised x and h = g * scale: dx = (h - n mean(h n)) / root. The expansion's gradient holds 1 / root^3,
// which is 0 in f32 from roots of 1e15 on.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& g = call.cotangents[0];
  const Normalized n = Normalize(b, call.operands[0], call.node.attrs());
  const bool scaled = call.operands.size() > 1 && call.operands[1];
  if (call.wanted[0]) {
    Value h = scaled ? Mul(b, g, call.operands[1]) : g;
    grads[0] = Mul(b, Sub(b, h, Mul(b, n.value, Mean(b, Mul(b, h, n.value)))), n.inverse);
  }
  if (scaled && call.wanted[1]) grads[1] = SumTo(b, Mul(b, g, n.value), call.operands[1].dims());
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Value y = Normalize(call.b, call.operands[0], call.attrs).value;
  results[0] = call.operands[1] ? Mul(call.b, y, call.operands[1]) : y;
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[4,7] T[7]"}, {"T[3,131]"}, {"T[0,3] T[3]"}, {"T[5]"}};

}  // namespace

constinit const OpDef kOp_rms_norm = {
    .name = "weft.rms_norm",
    .c_name = "rms_norm",
    .kind = Kind::kComposite,
    .doc =
        "Root mean square normalisation along the last axis: x / sqrt(mean(x^2) + epsilon) * scale. Of complex "
        "numbers the mean is that of their squares, as in PyTorch. Source: Zhang and Sennrich (2019).",
    .example = "h = wf_rms_norm(s, x, scale);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 8e-6, .f64 = 1e-13, .bf16 = 4e-2, .f16 = 1e-2, .absolute = 1e-6},
    .absent = kCompositeAbsent,
};

}  // namespace weft::ops
