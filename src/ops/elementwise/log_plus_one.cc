// log1p: log(1 + x).
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

Value Derivative(Builder& b, const Value& x, const Value& y) { return Div(b, 1, Add(b, x, 1)); }

double Double(double x) { return std::log1p(x); }

constexpr auto kSamples = UnarySamples(-0.9, 5);

}  // namespace

constinit const OpDef kOp_log1p = {
    .name = "log_plus_one",
    .c_name = "log1p",
    .doc = "Elementwise log(1 + x), exact near 0.",
    .example = "y = wf_log1p(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kLog1p>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .cost = Cost::kFunction,
    .planes = UnaryPlanes<ComplexLog1p>,
};

}  // namespace weft::ops
