// std: standard deviation over axes.
#include "src/ops/reduce/variance.h"

namespace weft::ops {
namespace {

using namespace ir;

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  if (IsComplex(call.operands[0].dtype())) {
    WEFT_ASSIGN_OR_RETURN(const Value square, ComplexVariance(b, call.operands[0], call.attrs));
    results[0] = Sqrt(b, square);
    return b.status();
  }
  WEFT_ASSIGN_OR_RETURN(const Spread spread, SpreadOf(b, call.operands[0], call.attrs));
  results[0] = Reshape(b, Div(b, Sqrt(b, spread.square.mean), spread.square.scale), spread.dims);
  return absl::OkStatus();
}

// With d the distances from the mean: g d / (count - correction) / std. Where std is 0 its slope is infinite, and times 0 that is NaN:
// no slope leads through it. A deviation so small that its reciprocal is none of the type's goes with the distances' factor.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  constexpr double kSmall = 0x1p-100, kFactor = 0x1p80;
  Builder& b = call.b;
  if (IsComplex(call.operands[0].dtype())) {
    const Value &y = call.results[0], none = Compare(b, Direction::kEq, y, 0);
    const Value half = Div(b, Mul(b, call.cotangents[0], 0.5), Select(b, none, FullLike(b, y, 1), y));
    WEFT_ASSIGN_OR_RETURN(
        grads[0],
        ComplexVarianceGradient(b, call.operands[0], Select(b, none, FullLike(b, y, 0), half), call.node.attrs()));
    return b.status();
  }
  WEFT_ASSIGN_OR_RETURN(const Spread spread, SpreadOf(b, call.operands[0], call.node.attrs()));
  WEFT_RETURN_IF_ERROR(b.status());
  const Dims& kept = spread.square.scale.dims();
  const Value deviation = Reshape(b, call.results[0], kept);
  const Value zero = FullLike(b, deviation, 0), one = FullLike(b, deviation, 1);
  const Value flat = Compare(b, Direction::kEq, deviation, zero);
  const Value factor = Select(b, Compare(b, Direction::kLt, deviation, kSmall), FullLike(b, deviation, kFactor), one);
  Value inverse = Div(b, 1, Mul(b, Select(b, flat, one, deviation), factor));
  inverse = Select(b, flat, zero, inverse);
  Value g = Mul(b, Reshape(b, call.cotangents[0], kept), spread.share);
  grads[0] = Mul(b, Mul(b, Mul(b, spread.centered, factor), inverse), g);
  return absl::OkStatus();
}

}  // namespace

constinit const OpDef kOp_std = {
    .name = "weft.std",
    .c_name = "std",
    .kind = Kind::kComposite,
    .doc =
        "Standard deviation over some axes, by default all: the root of var. Its gradient is 0 where all "
        "elements are equal, as in PyTorch.",
    .example = "y = wf_std(s, x);",
    .operands = kVarianceOperands,
    .attrs = kVarianceAttrs,
    .results = kResult,
    .infer = InferVariance,
    .gradient = Gradient,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kVarianceSamples,
    .tolerance = kVarianceTolerance,
    .absent = kCompositeAbsent,
};

}  // namespace weft::ops
