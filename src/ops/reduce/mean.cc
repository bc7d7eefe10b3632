// mean over axes.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const int64_t count, ReducedCount(call.attrs, call.operands[0].dims()));
  WEFT_ASSIGN_OR_RETURN(Value sum, ReduceByAttrs(call, Reducer::kSum, call.operands[0]));
  results[0] = Div(b, sum, FullLike(b, sum, static_cast<double>(count)));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[2,3]"}, {"T[4,5,3] dims=[0,-1]"}, {"T[3,131] dims=[1] keepdims=true"}, {"T[]"}, {"T[1,4] dims=[0]"}};

}  // namespace

constinit const OpDef kOp_mean = {
    .name = "weft.mean",
    .c_name = "mean",
    .kind = Kind::kMacro,
    .doc = "Arithmetic mean over some axes, by default all. Over nothing: NaN.",
    .example = "y = wf_mean(s, x);",
    .operands = kOperands,
    .attrs = kReductionAttrs,
    .results = kResult,
    .infer = InferReduction,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 4e-6},
    .absent = kMacroAbsent,
};

}  // namespace weft::ops
