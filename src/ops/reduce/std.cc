// std: standard deviation over axes.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};
constexpr AttrDef kAttrs[] = {
    kReductionAttrs[0],
    kReductionAttrs[1],
    {"correction", AttrType::kInt, "taken off the count: 0 NumPy's, 1 the unbiased", false, "0"}};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferReduction(call, results));
  WEFT_ASSIGN_OR_RETURN(const int64_t count, ReducedCount(call.attrs, call.operands[0]->dims));
  if (call.attrs.Int(2) < 0 || call.attrs.Int(2) >= count) {
    return UserError("correction is ", call.attrs.Int(2), "; with ", count, " elements it must be 0 to ",
                     count - 1);
  }
  return absl::OkStatus();
}

// In two passes: the distance from the mean, squared. (The mean of squares less the square of the mean
// cancels.)
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes, AxesOrAll(call.attrs, 0, x.dims().size()));
  WEFT_ASSIGN_OR_RETURN(const int64_t count, ReducedCount(call.attrs, x.dims()));
  Value mean = Mul(b, ReduceKeep(b, x, Reducer::kSum, axes), 1.0 / static_cast<double>(count));
  WEFT_ASSIGN_OR_RETURN(Value sum, ReduceByAttrs(call, Reducer::kSum, Square(b, Sub(b, x, mean))));
  Value variance = Mul(b, sum, 1.0 / static_cast<double>(count - call.attrs.Int(2)));
  results[0] = Sqrt(b, variance);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[2,3]"}, {"T[4,5,3] dims=[0,-1] correction=1"}, {"T[3,131] dims=[1] keepdims=true"}};

}  // namespace

constinit const OpDef kOp_std = {
    .name = "weft.std",
    .c_name = "std",
    .kind = Kind::kMacro,
    .doc =
        "Standard deviation over some axes, by default all: the root of var. Its gradient is infinite where "
        "all "
        "elements are equal.",
    .example = "y = wf_std(s, x);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 8e-6, .f64 = 1e-13, .bf16 = 4e-2, .f16 = 8e-3, .absolute = 4e-6},
    .absent = kMacroAbsent,
};

}  // namespace weft::ops
