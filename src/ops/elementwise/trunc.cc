// trunc: x without its fraction.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};

Value Expansion(Builder& b, const Value& x) { return Mul(b, Unary(b, kOp_sign, x), Unary(b, kOp_floor, Abs(b, x))); }

double Double(double x) { return std::trunc(x); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_trunc = {
    .name = "weft.trunc",
    .c_name = "trunc",
    .kind = Kind::kComposite,
    .doc = "Elementwise rounding towards zero, as a float. Its gradient is zero everywhere, so none flows.",
    .example = "y = wf_trunc(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kTrunc>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kPointwiseNoGradient,
    .rounds_once = true,
};

}  // namespace weft::ops
