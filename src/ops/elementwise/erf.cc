// erf: the error function.
#include <cmath>

#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};

Value Derivative(Builder& b, const Value& x, const Value&) { return Bell(b, x); }

// Chebyshev fits made for this file (40 digits), highest power first. Below 1: erf(x) / x in x^2, error
// 7e-18. From 1: erfc(x) e^(x^2) in 1 / (x + 2), error 4e-17 up to x = 6.2, where erfc is below 1e-17.
constexpr double kSmall[] = {-7.7958988270021422416e-10, 1.3720064546777685604e-8,    -1.6208483801871905902e-7,
                             1.644742470331736241e-6,    -0.000014924736907419660338, 0.00012055294904839707917,
                             -0.00085483259753896920806, 0.0052239776071164227321,    -0.02686617064323777036,
                             0.11283791670945006266,     -0.37612638903183540438,     1.1283791670955125665};
constexpr double kLarge[] = {
    368.38843227901019195,  -233.80573238896694062, -1724.8200270295584267, 4077.9046575483994414,
    -4343.7972161165442044, 2694.6572232181823839,  -1044.01138569431653,   281.54042099464584047,
    -69.618091807639938594, 9.6824734725736544908,  1.4750087057424819393,  2.9297303069350745711,
    1.9675443763732634226,  1.128698567458131625,   0.56418078953172569001, 1.1209121837762458965e-7};

Value Expansion(Builder& b, const Value& x) {
  Value a = Abs(b, x);
  Value square = Square(b, x);
  Value small = Mul(b, x, Polynomial(b, square, kSmall));
  Value tail = Mul(b, Exp(b, Neg(b, square)), Polynomial(b, Div(b, 1, Add(b, a, 2)), kLarge));
  Value large = Mul(b, Unary(b, kOp_sign, x), Sub(b, 1, tail));
  return Select(b, Compare(b, Direction::kLt, a, 1), small, large);
}

double Double(double x) { return static_cast<double>(std::erf(static_cast<long double>(x))); }

constexpr auto kSamples = UnarySamples(-3, 3);

}  // namespace

constinit const OpDef kOp_erf = {
    .name = "weft.erf",
    .c_name = "erf",
    .kind = Kind::kComposite,
    .doc = "Elementwise error function 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x.",
    .example = "y = wf_erf(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kErf>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = {.f32 = 2e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3},
    .absent = kPointwiseAbsent,
    .cost = Cost::kFunction,
};

}  // namespace weft::ops
