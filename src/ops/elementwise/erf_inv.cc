// erf_inv: the inverse of the error function.
#include "src/ops/erf_inv.h"

#include <limits>

#include "src/ops/polynomial.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand in [-1, 1]"}};

// sqrt(pi) / 2 e^(y^2)
Value Derivative(Builder& b, const Value&, const Value& y) {
  return Mul(b, Exp(b, Square(b, y)), 0.88622692545275801365);
}

// M. Giles, Approximating the erfinv function, GPU Computing Gems (2010): in w = -log(1 - x^2), for w < 5 and
// above.
constexpr double kCentral[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                               -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
constexpr double kTail[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                            -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};

Value Expansion(Builder& b, const Value& x) {
  Value w = Neg(b, Unary(b, kOp_log1p, Neg(b, Square(b, x))));
  Value central = Polynomial(b, Add(b, w, -2.5), kCentral);
  Value tail = Polynomial(b, Add(b, Sqrt(b, Maximum(b, w, FullLike(b, w, 5))), -3), kTail);
  Value y = Mul(b, x, Select(b, Compare(b, Direction::kLt, w, 5), central, tail));
  if (x && x.dtype() == DType::kF64) {  // Giles' fit has single accuracy; Newton's steps double the digits
    for (int step = 0; step < 2; ++step) {
      Value error = Sub(b, Unary(b, kOp_erf, y), x);
      y = Sub(b, y, Mul(b, Mul(b, error, 0.88622692545275801365), Exp(b, Square(b, y))));
    }
  }
  Value edge = Compare(b, Direction::kEq, Abs(b, x), 1);
  return Select(b, edge, Mul(b, x, std::numeric_limits<double>::infinity()), y);
}

double Double(double x) { return ErfInv(x); }

constexpr auto kSamples = UnarySamples(-0.95, 0.95);

}  // namespace

constinit const OpDef kOp_erf_inv = {
    .name = "weft.erf_inv",
    .c_name = "erf_inv",
    .kind = Kind::kComposite,
    .doc = "Elementwise inverse of the error function; infinite at -1 and 1, NaN outside.",
    .example = "y = wf_erf_inv(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .expand = ExpandWide<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kErfInv>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-12, .bf16 = 2e-2, .f16 = 4e-3},
    .absent = kPointwiseAbsent,
};

}  // namespace weft::ops
