// logsumexp: log of the sum of exponentials over axes.
#include "src/ops/complex.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes,
                        AxesOrAll(call.attrs, AttrPosition<kReductionAttrs, "dims">(), x.dims().size()));
  // An infinite maximum would give inf - inf; shifting by 0 there is as good. No gradient belongs to the
  // shift.
  const bool complex = IsComplex(x.dtype());
  Value top = Unary(b, kOp_stop_gradient, ReduceKeep(b, complex ? PlanesOf(b, x).re : x, Reducer::kMax, axes));
  Value shift = Select(b, Unary(b, kOp_is_finite, top), top, FullLike(b, top, 0));
  if (complex) shift = Convert(b, shift, x.dtype());
  WEFT_ASSIGN_OR_RETURN(Value sum, ReduceByAttrs(call, Reducer::kSum, Exp(b, Sub(b, x, shift))));
  results[0] = b.ok() ? Add(b, Log(b, sum), Reshape(b, shift, sum.dims())) : Value();
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[2,3]"}, {"T[4,5,3] dims=[0,-1]"}, {"T[3,131] dims=[1] keepdims=true"}, {"T[]"}, {"T[1,4] dims=[0]"}};

}  // namespace

constinit const OpDef kOp_logsumexp = {
    .name = "weft.logsumexp",
    .c_name = "logsumexp",
    .kind = Kind::kMacro,
    .doc =
        "log(sum(exp(x))) over some axes, by default all, shifted by the maximum so that it does not overflow (of complex "
        "numbers that of the real parts).",
    .example = "y = wf_logsumexp(s, x);",
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
