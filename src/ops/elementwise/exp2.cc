// exp2: 2^x.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

constexpr double kLn2 = 0.693147180559945309417;

Value Derivative(Builder& b, const Value& x, const Value& y) { return Mul(b, y, kLn2); }

Value Expansion(Builder& b, const Value& x) { return Exp(b, Mul(b, x, kLn2)); }

double Double(double x) { return std::exp2(x); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_exp2 = {
    .name = "weft.exp2",
    .c_name = "exp2",
    .kind = Kind::kComposite,
    .doc = "Elementwise 2^x, exact where x is a whole number.",
    .example = "y = wf_exp2(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kExp2>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 3e-2, .f16 = 4e-3},
    .absent = kPointwiseAbsent,
    .cost = Cost::kFunction,
};

}  // namespace weft::ops
