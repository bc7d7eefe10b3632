// StableHLO's batch_norm_training, batch_norm_inference and batch_norm_grad, as composites of our own.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/ir/stablehlo.h"
#include "src/ops/families.h"
#include "src/runtime/number_text.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kX = {"x", kF, "features on one dimension, everything else is the batch"};
constexpr OperandDef kScale = {"scale", kF, "[features]"};
constexpr OperandDef kOffset = {"offset", kF, "[features]"};
constexpr OperandDef kMean = {"mean", kF, "[features]"};
constexpr OperandDef kVariance = {"variance", kF, "[features]"};
constexpr OperandDef kTrainingOperands[] = {kX, kScale, kOffset};
constexpr OperandDef kInferenceOperands[] = {kX, kScale, kOffset, kMean, kVariance};
constexpr OperandDef kGradOperands[] = {
    kX, kScale, kMean, kVariance, {"grad_output", kF, "cotangent of the normalised x, shaped as that"}};
constexpr AttrDef kAttrs[] = {{"epsilon", AttrType::kDouble, "added to the variance, as f32", true},
                              {"feature_index", AttrType::kInt, "dimension of the features", true}};
constexpr std::string_view kTrainingResults[] = {"output", "batch_mean", "batch_var"};
constexpr std::string_view kGradResults[] = {"grad_operand", "grad_scale", "grad_offset"};

// The attribute is f32 in StableHLO.
double EpsilonOf(const Attrs& attrs) { return static_cast<float>(Attr<kAttrs, "epsilon">(attrs)); }

absl::Status Check(const InferCall& call) {
  const Type& x = *call.operands[0];
  const int64_t feature = Attr<kAttrs, "feature_index">(call.attrs);
  if (feature < 0 || feature >= static_cast<int64_t>(x.rank())) {
    return UserError("feature_index is ", feature, "; x has rank ", x.rank());
  }
  if (const double epsilon = EpsilonOf(call.attrs); !(epsilon >= 0 && std::isfinite(epsilon))) {
    return UserError("epsilon is ", Attr<kAttrs, "epsilon">(call.attrs), "; it must be finite as f32, not negative");
  }
  for (size_t i = 1; i < call.operands.size(); ++i) {
    const std::string_view name = call.op.operands[i].name;
    const Dims wanted = name == "grad_output" ? x.dims : Dims{x.dims[feature]};
    if (call.operands[i]->dims != wanted) {
      return UserError(name, " must have shape ", DimsToString(wanted), ", not ", DimsToString(call.operands[i]->dims));
    }
  }
  return absl::OkStatus();
}

absl::Status InferThree(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(Check(call));
  const Type& x = *call.operands[0];
  const Type features = Type::Tensor(x.dtype, {x.dims[Attr<kAttrs, "feature_index">(call.attrs)]});
  for (const Type& type : {x, features, features}) results->push_back(type);
  return absl::OkStatus();
}

absl::Status InferOne(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(Check(call));
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}

// batch_norm's attributes of the same meaning.
Attrs Own(const Attrs& attrs) { return {Attr<kAttrs, "feature_index">(attrs), EpsilonOf(attrs)}; }

absl::Status ExpandTraining(const ExpandCall& call, std::span<Value> results) {
  std::ranges::move(CallAll(call.b, kOp_batch_norm, {call.operands.begin(), call.operands.end()}, Own(call.attrs)),
                    results.begin());
  return absl::OkStatus();
}

absl::Status ExpandInference(const ExpandCall& call, std::span<Value> results) {
  results[0] = Call(call.b, kOp_batch_norm_inference, {call.operands.begin(), call.operands.end()}, Own(call.attrs));
  return absl::OkStatus();
}

// With c the centred x, v the variance with epsilon and n the elements of a feature:
// dx = scale / sqrt(v) (g - sum(g) / n - c sum(g c) / (v n)).
absl::Status ExpandGrad(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &g = call.operands[4];
  const int64_t feature = Attr<kAttrs, "feature_index">(call.attrs);
  Ints batch = Axes(x.dims().size());
  batch.erase(batch.begin() + feature);
  double inverse = 1;
  for (int64_t d : batch) inverse /= static_cast<double>(x.dims()[d]);
  const auto spread = [&](const Value& v) { return BroadcastInDim(b, v, x.dims(), {feature}); };
  const auto sum = [&](const Value& v) { return Reduce(b, v, Reducer::kSum, batch); };
  const Value centered = Sub(b, x, spread(call.operands[2]));
  const Value variance = Add(b, call.operands[3], EpsilonOf(call.attrs));
  const Value total = sum(g), along = sum(Mul(b, g, centered));
  const Value middle = Sub(b, Sub(b, g, spread(Mul(b, total, inverse))),
                           Mul(b, centered, spread(Div(b, Mul(b, along, inverse), variance))));
  const Value reciprocal = Rsqrt(b, variance);
  results[0] = Mul(b, middle, spread(Mul(b, call.operands[1], reciprocal)));
  results[1] = Mul(b, along, reciprocal);
  results[2] = total;
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const auto epsilon = static_cast<float>(Attr<kAttrs, "epsilon">(node.attrs()));
  writer.Emit(node.op().name, {{"epsilon", NumberText(epsilon, std::chars_format::scientific, 9) + " : f32"},
                               {"feature_index", ShloI64(Attr<kAttrs, "feature_index">(node.attrs()))}});
}

constexpr Sample kTrainingSamples[] = {{"T[4,3] T[3] T[3] epsilon=1e-3 feature_index=1"},
                                       {"T[2,3,5,2] T[3] T[3] epsilon=0.1 feature_index=1"},
                                       {"T[5,4,3] T[3] T[3] epsilon=0.01 feature_index=2"}};
constexpr Sample kInferenceSamples[] = {{"T[4,3] T[3] T[3] T[3] T[3] epsilon=1e-3 feature_index=1", 0.2, 2},
                                        {"T[2,3,5,2] T[3] T[3] T[3] T[3] epsilon=0.1 feature_index=1", 0.2, 2},
                                        {"T[0,4] T[4] T[4] T[4] T[4] epsilon=0.1 feature_index=1", 0.2, 2}};
constexpr Sample kGradSamples[] = {{"T[4,3] T[3] T[3] T[3] T[4,3] epsilon=1e-3 feature_index=1", 0.2, 2},
                                   {"T[2,3,5,2] T[3] T[3] T[3] T[2,3,5,2] epsilon=0.1 feature_index=1", 0.2, 2},
                                   {"T[7] T[7] T[7] T[7] T[7] epsilon=0.01 feature_index=0", 0.2, 2}};
constexpr Tolerance kTolerance = {.f32 = 1e-5, .f64 = 1e-12, .bf16 = 4e-2, .f16 = 1e-2, .absolute = 1e-5};
constexpr Absent kExported[] = {{Part::kGradient, Reason::kExpands}, {Part::kReference, Reason::kExpands}};

}  // namespace

constinit const OpDef kOp_batch_norm_training = {
    .name = "batch_norm_training",
    .c_name = "batch_norm_training",
    .since = 1,
    .kind = Kind::kComposite,
    .doc =
        "StableHLO's batch normalisation in training: (x - mean) / sqrt(variance + epsilon) * scale + offset with each "
        "feature's mean and variance of this batch, which are results too. The same as batch_norm, whose attributes have "
        "defaults.",
    .example =
        "weft_tensor *mean, *var;\nh = wf_batch_norm_training(s, x, scale, offset, 1e-5, 1, .out_batch_mean = &mean, "
        ".out_batch_var = &var);",
    .operands = kTrainingOperands,
    .attrs = kAttrs,
    .results = kTrainingResults,
    .infer = InferThree,
    .expand = ExpandTraining,
    .lowering = Lowering::kExpand,
    .stablehlo = StableHlo,
    .samples = kTrainingSamples,
    .tolerance = kTolerance,
    .absent = kExported,
};

constinit const OpDef kOp_stablehlo_batch_norm_inference = {
    .name = "batch_norm_inference",
    .c_name = "stablehlo_batch_norm_inference",
    .kind = Kind::kComposite,
    .doc =
        "StableHLO's batch normalisation by known means and variances: (x - mean) / sqrt(variance + epsilon) * scale + "
        "offset. From C it is batch_norm_inference.",
    .operands = kInferenceOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = InferOne,
    .expand = ExpandInference,
    .lowering = Lowering::kExpand,
    .stablehlo = StableHlo,
    .samples = kInferenceSamples,
    .tolerance = kTolerance,
    .absent = kStableHloComposite,
    .exported = false,
};

constinit const OpDef kOp_batch_norm_grad = {
    .name = "batch_norm_grad",
    .c_name = "batch_norm_grad",
    .since = 1,
    .kind = Kind::kComposite,
    .doc =
        "The cotangents of x, scale and offset of batch_norm_training by that of its output, with the mean and variance that "
        "it gave.",
    .example =
        "weft_tensor *ds, *db;\ndx = wf_batch_norm_grad(s, x, scale, mean, var, dy, 1e-5, 1, .out_grad_scale = &ds, "
        ".out_grad_offset = &db);",
    .operands = kGradOperands,
    .attrs = kAttrs,
    .results = kGradResults,
    .infer = InferThree,
    .expand = ExpandGrad,
    .lowering = Lowering::kExpand,
    .stablehlo = StableHlo,
    .samples = kGradSamples,
    .tolerance = kTolerance,
    .absent = kExported,
};

}  // namespace weft::ops
