// batch_norm_running: batch normalisation in training together with the running statistics that inference takes.
#include <algorithm>
#include <cmath>

#include "src/ops/elementwise/special.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "features on one axis, everything else is the batch"},
                                    {"scale", kF, "[features]"},
                                    {"offset", kF, "[features]"},
                                    {"running_mean", kF, "[features], before this batch", false, false, 'R'},
                                    {"running_variance", kF, "[features], before this batch", false, false, 'R'}};
constexpr AttrDef kAttrs[] = {
    {"axis", AttrType::kInt, "feature axis; negative counts from the end", false, "-1"},
    {"epsilon", AttrType::kDouble, "added to the variance", false, "1e-5"},
    {"momentum", AttrType::kDouble, "what this batch counts in the running statistics", false, "0.1"}};
constexpr std::string_view kResults[] = {"result", "running_mean", "running_variance"};

absl::Status Infer(const InferCall& call, Types* results) {
  Attrs own;
  for (size_t i = 0; i < 2; ++i) own.set(i, call.attrs.at(i));
  WEFT_RETURN_IF_ERROR(kOp_batch_norm.infer(InferCall{kOp_batch_norm, call.operands.first(3), own}, results));
  for (size_t i : {3, 4}) {
    if (call.operands[i]->dims != (*results)[1].dims) {
      return UserError(kOperands[i].name, " must have shape ", DimsToString((*results)[1].dims), ", not ",
                       DimsToString(call.operands[i]->dims));
    }
    (*results)[i - 2] = *call.operands[i];
  }
  const double momentum = Attr<kAttrs, "momentum">(call.attrs);
  if (!std::isfinite(momentum)) return UserError("momentum is ", momentum, "; it must be finite");
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  Attrs own;
  for (size_t i = 0; i < 2; ++i) own.set(i, call.attrs.at(i));
  const Values found = CallAll(b, kOp_batch_norm, {call.operands[0], call.operands[1], call.operands[2]}, own);
  if (!b.ok()) return b.status();
  const double momentum = Attr<kAttrs, "momentum">(call.attrs);
  const double features = static_cast<double>(found[1].type().count());
  const double count = features == 0 ? 0 : static_cast<double>(found[0].type().count()) / features;
  const auto blend = [&](const Value& old, const Value& now, double unbiased) {
    const Value fresh = Convert(b, Unary(b, kOp_stop_gradient, now), old.dtype());
    return Add(b, Mul(b, old, 1 - momentum), Mul(b, fresh, momentum * unbiased));
  };
  results[0] = found[0];
  results[1] = blend(call.operands[3], found[1], 1);
  results[2] = blend(call.operands[4], found[2], count > 1 ? count / (count - 1) : 1);
  return b.status();
}

constexpr Sample kSamples[] = {{"T[4,3] T[3] T[3] T[3] T[3]", 0.5, 2, false},
                               {"T[5,4,3] T[4] T[4] T[4] T[4] axis=1 epsilon=0.1 momentum=0.5", 0.5, 2, false}};

}  // namespace

constinit const OpDef kOp_batch_norm_running = Formula({
    .name = "weft.batch_norm_running",
    .c_name = "batch_norm_running",
    .doc =
        "batch_norm, and the running statistics after this batch: (1 - momentum) old + momentum new, the new variance over the count "
        "less 1, as in PyTorch. Assign them to the tensors that batch_norm_inference reads. No gradient flows through the batch's part of "
        "them. Source: Ioffe and Szegedy (2015).",
    .example =
        "weft_tensor *mean, *var;\nh = wf_batch_norm_running(s, x, scale, offset, m, v, .out_running_mean = &mean, .out_running_variance = "
        "&var);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-12, .bf16 = 4e-2, .f16 = 1e-2, .absolute = 1e-5},
});

}  // namespace weft::ops
