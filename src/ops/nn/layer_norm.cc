// layer_norm: zero mean and unit variance along one axis, then scale and offset.
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/reduce/variance.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"},
                                    {"scale", kF, "[size of the axis]; absent: 1", true},
                                    {"offset", kF, "[size of the axis]; absent: 0", true}};
constexpr AttrDef kAttrs[] = {{"axis", AttrType::kInt, "axis to normalise; negative counts from the end", false, "-1"},
                              {"epsilon", AttrType::kDouble, "added to the variance", false, "1e-5"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(call.attrs), x.rank()));
  for (size_t i : {1, 2}) {
    if (call.operands[i] != nullptr && call.operands[i]->dims != Dims{x.dims[axis]}) {
      return UserError(kOperands[i].name, " must have shape [", x.dims[axis], "], not ",
                       DimsToString(call.operands[i]->dims));
    }
  }
  const double epsilon = Attr<kAttrs, "epsilon">(call.attrs);
  if (!std::isfinite(epsilon)) return UserError("epsilon is ", epsilon, "; it must be finite");
  results->push_back(x);
  return absl::OkStatus();
}

struct Normalized {
  Value value;    // (x - mean) / deviation
  Value inverse;  // 1 / deviation, with the axis kept
};

Value Mean(Builder& b, const Value& x, int64_t axis, int64_t size) {
  return x ? Mul(b, ReduceKeep(b, x, Reducer::kSum, {axis}), 1.0 / static_cast<double>(size)) : Value();
}

Normalized Normalize(Builder& b, const Value& x, const Attrs& attrs, int64_t axis) {
  const int64_t size = x.dims()[axis];
  const double epsilon = Attr<kAttrs, "epsilon">(attrs);
  const auto reduce = [&](const Value& y) { return Mean(b, y, axis, size); };
  Value mean = reduce(x), centered = Sub(b, x, mean);
  const MeanSquare square = InRange(b, {x, mean, reduce(Square(b, centered)), epsilon}, reduce);
  Value inverse = square.Inverse(b, epsilon);
  return {Mul(b, centered, inverse), inverse};
}

// With n the normalised x and h = g * scale: dx = (h - mean(h) - n mean(h n)) / deviation.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Value& g = call.cotangents[0];
  const Dims& dims = x.dims();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("axis", Attr<kAttrs, "axis">(call.node.attrs()), dims.size()));
  const Normalized n = Normalize(b, x, call.node.attrs(), axis);
  const bool scaled = call.operands.size() > 1 && call.operands[1];
  if (call.wanted[0]) {
    Value h = scaled ? Mul(b, g, BroadcastInDim(b, call.operands[1], dims, {axis})) : g;
    Value mean = Mean(b, h, axis, dims[axis]);
    Value along = Mean(b, Mul(b, h, n.value), axis, dims[axis]);
    grads[0] = Mul(b, Sub(b, Sub(b, h, mean), Mul(b, n.value, along)), n.inverse);
  }
  Ints others = Axes(dims.size());
  others.erase(others.begin() + axis);
  if (scaled && call.wanted[1]) grads[1] = Reduce(b, Mul(b, g, n.value), Reducer::kSum, others);
  if (call.operands.size() > 2 && call.operands[2] && call.wanted[2]) grads[2] = Reduce(b, g, Reducer::kSum, others);
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(call.attrs), x.dims().size()));
  Value y = Normalize(b, x, call.attrs, axis).value;
  if (call.operands[1]) y = Mul(b, y, BroadcastInDim(b, call.operands[1], x.dims(), {axis}));
  if (call.operands[2]) y = Add(b, y, BroadcastInDim(b, call.operands[2], x.dims(), {axis}));
  results[0] = y;
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[4,7] T[7] T[7]"}, {"T[2,3,5] T[3] none axis=1"}, {"T[3,131]"}, {"T[2,4] none T[4]"}, {"T[0,3] T[3] T[3]"}};

}  // namespace

constinit const OpDef kOp_layer_norm = {
    .name = "weft.layer_norm",
    .c_name = "layer_norm",
    .kind = Kind::kComposite,
    .doc =
        "Layer normalisation along one axis: (x - mean) / sqrt(variance + epsilon) * scale + offset, variance over "
        "the count. Source: Ba, Kiros, Hinton (2016).",
    .example = "h = wf_layer_norm(s, x, scale, offset);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-12, .bf16 = 4e-2, .f16 = 1e-2, .absolute = 1e-5},
    .absent = kCompositeAbsent,
};

}  // namespace weft::ops
