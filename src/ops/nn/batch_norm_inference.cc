// batch_norm_inference: batch normalisation by known means and variances.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "features on one axis"},
                                    {"scale", kF, "[features]"},
                                    {"offset", kF, "[features]"},
                                    {"mean", kF, "[features], running average"},
                                    {"variance", kF, "[features], running average"}};
constexpr AttrDef kAttrs[] = {{"axis", AttrType::kInt, "feature axis; negative counts from the end", false, "-1"},
                              {"epsilon", AttrType::kDouble, "added to the variance", false, "1e-5"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(call.attrs), x.rank()));
  for (size_t i = 1; i < 5; ++i) {
    if (call.operands[i]->dims != Dims{x.dims[axis]}) {
      return UserError(kOperands[i].name, " must have shape [", x.dims[axis], "], not ",
                       DimsToString(call.operands[i]->dims));
    }
  }
  const double epsilon = Attr<kAttrs, "epsilon">(call.attrs);
  if (!std::isfinite(epsilon)) return UserError("epsilon is ", epsilon, "; it must be finite");
  results->push_back(x);
  return absl::OkStatus();
}

// One factor and one summand a feature.
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(call.attrs), x.dims().size()));
  Value factor = Mul(b, call.operands[1], Rsqrt(b, Add(b, call.operands[4], Attr<kAttrs, "epsilon">(call.attrs))));
  Value summand = Sub(b, call.operands[2], Mul(b, call.operands[3], factor));
  auto spread = [&](const Value& v) { return BroadcastInDim(b, v, x.dims(), {axis}); };
  results[0] = Add(b, Mul(b, x, spread(factor)), spread(summand));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[4,3] T[3] T[3] T[3] T[3]", 0.2, 2},
                               {"T[2,3,5,2] T[2] T[2] T[2] T[2]", 0.2, 2},
                               {"T[0,4,3] T[4] T[4] T[4] T[4] axis=1", 0.2, 2}};

}  // namespace

constinit const OpDef kOp_batch_norm_inference = {
    .name = "weft.batch_norm_inference",
    .c_name = "batch_norm_inference",
    .kind = Kind::kMacro,
    .doc = "Batch normalisation by known means and variances: (x - mean) / sqrt(variance + epsilon) * scale + offset.",
    .example = "h = wf_batch_norm_inference(s, x, scale, offset, mean, var);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-12, .bf16 = 4e-2, .f16 = 1e-2, .absolute = 1e-5},
    .absent = kMacroAbsent,
};

}  // namespace weft::ops
