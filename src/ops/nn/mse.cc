// mse: mean squared error.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "prediction"}, {"y", kF, "target of the same shape"}};
constexpr std::string_view kReductions[] = {"mean", "sum", "none"};
constexpr AttrDef kAttrs[] = {
    {"reduction", AttrType::kEnum, "mean over elements, sum over elements, or none", false, "mean", kReductions}};

// No broadcasting: a loss over [64] and [64, 1] is nearly always a mistake.
absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferSame(call, results));
  if (Attr<kAttrs, "reduction">(call.attrs) != 2) results->back().dims.clear();
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  Value loss = Square(b, Sub(b, call.operands[0], call.operands[1]));
  if (Attr<kAttrs, "reduction">(call.attrs) != 2)
    loss = Reduce(b, loss, Reducer::kSum, Axes(call.operands[0].dims().size()));
  if (Attr<kAttrs, "reduction">(call.attrs) == 0)
    loss = Mul(b, loss, 1.0 / static_cast<double>(call.operands[0].type().count()));
  results[0] = loss;
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[4,7] T[4,7]"}, {"T[5] T[5] reduction=sum"}, {"T[2,3] T[2,3] reduction=none"}, {"T[] T[]"}};

}  // namespace

constinit const OpDef kOp_mse = {
    .name = "weft.mse",
    .c_name = "mse",
    .kind = Kind::kMacro,
    .doc =
        "Mean squared error (x - y)^2 of two tensors of one shape: the mean over all elements, unless reduction says "
        "sum or none.",
    .example = "loss = wf_mse(s, prediction, target);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 3e-2, .f16 = 4e-3, .absolute = 1e-6},
    .absent = kMacroAbsent,
};

}  // namespace weft::ops
