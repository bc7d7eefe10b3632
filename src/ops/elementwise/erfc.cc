// erfc: 1 - erf(x), without cancellation.
#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

// Cephes' rational approximations of exp(x²) erfc(x), S. L. Moshier, netlib: below and above 8.
constexpr double kErfcP[] = {2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687,
                             4.86371970985681366614e1,   1.96520832956077098242e2,  5.26445194995477358631e2,
                             9.34528527171957607540e2,   1.02755188689515710272e3,  5.57535335369399327526e2};
constexpr double kErfcQ[] = {1,
                             1.32281951154744992508e1,
                             8.67072140885989742329e1,
                             3.54937778887819891062e2,
                             9.75708501743205489753e2,
                             1.82390916687909736289e3,
                             2.24633760818710981792e3,
                             1.65666309194161350182e3,
                             5.57535340817727675546e2};
constexpr double kErfcR[] = {5.64189583547755073984e-1, 1.27536670759978104416, 5.01905042251180477414,
                             6.16021097993053585195,    7.40974269950448939160, 2.97886665372100240670};
constexpr double kErfcS[] = {1,
                             2.26052863220117276590,
                             9.39603524938001434673,
                             1.20489539808096656605e1,
                             1.70814450747565897222e1,
                             9.60896809063285878198,
                             3.36907645100081516050};
// The coefficients in f32, of x exp(x²) erfc(x) by 1 / x²: below and above 2.
constexpr double kErfcP32[] = {2.326819970068386e-2,  -1.387039388740657e-1, 3.687424674597105e-1,
                               -5.824733027278666e-1, 6.210004621745983e-1,  -4.944515323274145e-1,
                               3.404879937665872e-1,  -2.741127028184656e-1, 5.638259427386472e-1};
constexpr double kErfcR32[] = {-1.047766399936249e+1, 1.297719955372516e+1, -7.495518717768503,
                               2.921019019210786,     -1.015265279202700,   4.218463358204948e-1,
                               -2.820767439740514e-1, 5.641895067754075e-1};

// Computes erfc for |x| >= 1, where 1 - erf(x) would cancel.
Value ErfcTail(Builder& b, const Value& a) {
  const Value square = Mul(b, a, a), bell = Exp(b, Neg(b, square));
  if (a.dtype() == DType::kF64) {
    const Value middle = Div(b, Polynomial(b, a, kErfcP), Polynomial(b, a, kErfcQ));
    const Value far = Div(b, Polynomial(b, a, kErfcR), Polynomial(b, a, kErfcS));
    const Value tail = Mul(b, bell, Select(b, Compare(b, Direction::kLt, a, 8), middle, far));
    return Select(b, Compare(b, Direction::kGt, a, 28), FullLike(b, a, 0), tail);
  }
  const Value inverse = Div(b, 1, square);
  const Value sum =
      Select(b, Compare(b, Direction::kLt, a, 2), Polynomial(b, inverse, kErfcP32), Polynomial(b, inverse, kErfcR32));
  const Value tail = Mul(b, Div(b, bell, a), sum);
  return Select(b, Compare(b, Direction::kGt, a, 11), FullLike(b, a, 0), tail);
}

Value Erfc(Builder& b, const Value& x) {
  const Value a = Abs(b, x), tail = ErfcTail(b, a);
  const Value far = Select(b, Compare(b, Direction::kLt, x, 0), Sub(b, 2, tail), tail);
  return Select(b, Compare(b, Direction::kGt, a, 1), far, Sub(b, 1, Unary(b, kOp_erf, x)));
}

Value Slope(Builder& b, const Value& x, const Value&) { return Neg(b, Bell(b, x)); }

constexpr auto kSamples = UnarySamples(-3, 3);

}  // namespace

Value Bell(Builder& b, const Value& x) {
  const BySize by(b, x, 30);  // e^-900 is 0 in f64
  const Value bell = Mul(b, Exp(b, Neg(b, Square(b, by.within))), 1.12837916709551257390);
  return Select(b, by.far, FullLike(b, x, 0), bell);
}

constinit const OpDef kOp_erfc = Special({
    .name = "weft.erfc",
    .c_name = "erfc",
    .doc = "Elementwise complementary error function 1 - erf(x), to full accuracy where that is small.",
    .example = "y = wf_erfc(s, x);",
    .gradient = GradientUnary<Slope>,
    .expand = ExpandUnary<Erfc>,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-7},
});

}  // namespace weft::ops
