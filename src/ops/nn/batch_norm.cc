// batch_norm: zero mean and unit variance of each feature over the batch, in training.
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/reduce/variance.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "features on one axis, everything else is the batch"},
                                    {"scale", kF, "[features]"},
                                    {"offset", kF, "[features]"}};
constexpr AttrDef kAttrs[] = {{"axis", AttrType::kInt, "feature axis; negative counts from the end", false, "-1"},
                              {"epsilon", AttrType::kDouble, "added to the variance", false, "1e-5"}};
constexpr std::string_view kResults[] = {"result", "batch_mean", "batch_variance"};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(call.attrs), x.rank()));
  const Dims features = {x.dims[axis]};
  for (size_t i : {1, 2}) {
    if (call.operands[i]->dims != features) {
      return UserError(kOperands[i].name, " must have shape ", DimsToString(features), ", not ",
                       DimsToString(call.operands[i]->dims));
    }
  }
  const double epsilon = Attr<kAttrs, "epsilon">(call.attrs);
  if (!std::isfinite(epsilon)) return UserError("epsilon is ", epsilon, "; it must be finite");
  results->push_back(x);
  results->push_back(Type::Tensor(x.dtype, features));
  results->push_back(Type::Tensor(x.dtype, features));
  return absl::OkStatus();
}

struct Plan {
  int64_t axis;
  Ints batch;      // the other axes
  double inverse;  // 1 / elements of a feature
};
absl::StatusOr<Plan> MakePlan(const Attrs& attrs, const Dims& dims) {
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(attrs), dims.size()));
  Plan plan{axis, Axes(dims.size()), 1};
  plan.batch.erase(plan.batch.begin() + axis);
  for (int64_t d : plan.batch) plan.inverse /= static_cast<double>(dims[d]);
  return plan;
}

// The variance in range, from the mean and the variance of plain squares; both hold one value a feature.
MeanSquare SquareOf(Builder& b, const Plan& plan, const SquareCall& call) {
  return InRange(
      b, call, [&](const Value& v) { return BroadcastInDim(b, v, call.x.dims(), {plan.axis}); },
      [&](const Value& y) { return Mul(b, Reduce(b, y, Reducer::kSum, plan.batch), plan.inverse); });
}

// n the normalised x: dx = scale / deviation (g - mean(g) - n mean(g n)), and what the means' own cotangents
// add.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Dims& dims = x.dims();
  WEFT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(call.node.attrs(), dims));
  auto spread = [&](const Value& v) { return BroadcastInDim(b, v, dims, {plan.axis}); };
  auto sum = [&](const Value& v) { return Reduce(b, v, Reducer::kSum, plan.batch); };
  Value centered = Sub(b, x, spread(call.results[1]));
  if (const Value& g = call.cotangents[0]) {
    const double epsilon = Attr<kAttrs, "epsilon">(call.node.attrs());
    Value inverse = SquareOf(b, plan, {x, call.results[1], call.results[2], epsilon}).Inverse(b, epsilon);
    Value n = Mul(b, centered, spread(inverse));
    Value total = sum(g), along = sum(Mul(b, g, n));
    Value middle =
        Sub(b, Sub(b, g, spread(Mul(b, total, plan.inverse))), Mul(b, n, spread(Mul(b, along, plan.inverse))));
    grads[0] = Mul(b, middle, spread(Mul(b, call.operands[1], inverse)));
    grads[1] = along;
    grads[2] = total;
  }
  auto add = [&](Value more) { grads[0] = grads[0] ? Add(b, grads[0], more) : more; };
  if (call.cotangents[1]) add(spread(Mul(b, call.cotangents[1], plan.inverse)));
  if (call.cotangents[2]) add(Mul(b, centered, spread(Mul(b, call.cotangents[2], 2 * plan.inverse))));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(call.attrs, x.dims()));
  auto spread = [&](const Value& v) { return BroadcastInDim(b, v, x.dims(), {plan.axis}); };
  auto mean = [&](const Value& v) { return Mul(b, Reduce(b, v, Reducer::kSum, plan.batch), plan.inverse); };
  results[1] = mean(x);
  Value centered = Sub(b, x, spread(results[1]));
  const double epsilon = Attr<kAttrs, "epsilon">(call.attrs);
  const MeanSquare square = SquareOf(b, plan, {x, results[1], mean(Square(b, centered)), epsilon});
  results[2] = square.Plain(b);
  Value factor = Mul(b, call.operands[1], square.Inverse(b, epsilon));
  results[0] = Add(b, Mul(b, centered, spread(factor)), spread(call.operands[2]));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[4,3] T[3] T[3]"}, {"T[2,3,5,2] T[2] T[2]"}, {"T[5,4,3] T[4] T[4] axis=1 epsilon=0.1"}};

}  // namespace

constinit const OpDef kOp_batch_norm = {
    .name = "weft.batch_norm",
    .c_name = "batch_norm",
    .kind = Kind::kComposite,
    .doc =
        "Batch normalisation in training: (x - mean) / sqrt(variance + epsilon) * scale + offset with each feature's "
        "mean and variance (over the count) of this batch, which are results too, to keep running averages of. "
        "Source: Ioffe and Szegedy (2015).",
    .example =
        "weft_tensor *mean, *var;\nh = wf_batch_norm(s, x, scale, offset, .out_batch_mean = &mean, .out_batch_variance = &var);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-12, .bf16 = 4e-2, .f16 = 1e-2, .absolute = 1e-5},
    .absent = kCompositeAbsent,
};

}  // namespace weft::ops
