// VectorMath's silu and gelu: x times a share between 0 and 1. Where the share is small its relative error is the absolute one
// of an exponent of up to 745, so exponents come in two parts, and what sums and quotients lose is put back.
#include <cmath>

#include "src/backends/cpu/loop/vector_math.h"

namespace weft::cpu {

using V = VectorMath::V;

namespace {
constexpr double kLog2E = 1.44269504088896340736;
constexpr double kInverseCubic = 22.3638600022363860, kInverseCubicLow = -3.73426239301405668e-17;  // 1 / 0.044715
constexpr double kSlope = 0.0713548162726002488, kSlopeLow = -6.1751499181553155e-19;  // sqrt(8 / pi) 0.044715
}  // namespace

// --- f32, with fused multiply-add -----------------------------------------------------------------------------------

// n = x factor rounded to a whole number, from -190 to 63: the sum's last bits are n + 64, and become the exponent's.
V VectorMath::WholeF32(V x, double factor, V* shift) {
  V magic = Constant(x, 12582912 + 64);  // 1.5 * 2^23
  V sum = Fma(x, Constant(x, factor), magic);
  *shift = b_.CreateShl(b_.CreateBitCast(sum, IntTypeOf(x)), IntConstant(IntTypeOf(x), 23));
  return b_.CreateFSub(sum, magic);
}
V VectorMath::ShiftF32(V x, V shift) {
  return b_.CreateBitCast(b_.CreateAdd(b_.CreateBitCast(x, shift->getType()), shift), x->getType());
}

// max(x, 0) - lower 2^-64; a NaN for -infinity, as 0 times it would give.
V VectorMath::AboveF32(V x, V lower) {
  V share = b_.CreateSelect(b_.CreateFCmpOLT(x, Constant(x, 0)), Constant(x, 0), Constant(x, 1));
  return Fma(lower, Constant(x, -0x1p-64), b_.CreateFMul(x, share));
}

// max(x, 0) - a e / (1 + e) for a = |x| and e = power 2^n, the shift being that by n + 64: so that nothing is a denormal before the
// end. With q = N / (1 + e) rounded, q - N is exact and q - N + q e is what q has too much.
V VectorMath::ShareF32(V x, V a, V power, V shift) {
  V one = Constant(x, 1);
  V shifted = ShiftF32(power, shift);
  V e = b_.CreateFMul(shifted, Constant(x, 0x1p-64));
  V numerator = b_.CreateFMul(a, shifted);
  V lost = Fma(a, shifted, b_.CreateFNeg(numerator));
  V inverse = b_.CreateFDiv(one, b_.CreateFAdd(e, one));
  V quotient = b_.CreateFMul(numerator, inverse);
  V excess = b_.CreateFSub(Fma(quotient, e, b_.CreateFSub(quotient, numerator)), lost);
  return AboveF32(x, Fma(b_.CreateFNeg(excess), inverse, quotient));
}

// 1.7 ULP: that of e^-|x|, twice rounded, and the result's own. At 112 the result is 0.
V VectorMath::SiluF32(V x) {
  V a = Min(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), Constant(x, 112));
  V shift = nullptr;
  V n = WholeF32(a, -kLog2E, &shift);
  V r = Fma(n, Constant(x, -0.693145751953125), b_.CreateFNeg(a));
  r = Fma(n, Constant(x, -1.42860682030941723212e-6), r);
  V power = b_.CreateFAdd(Fma(b_.CreateFMul(r, r), ExpTailF32(r), r), Constant(x, 1));
  return ShareF32(x, a, power, shift);
}

// The exponent is -k w, w = |x| (x^2 + 1 / 0.044715), k = sqrt(8 / pi) 0.044715: everything is reduced in units of k, with the
// factor in two parts of which the first has few digits, so that a difference with it is exact. 1.99 ULP.
V VectorMath::GeluTanhF32(V x) {
  V a = Min(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), Constant(x, 11));
  V c = Constant(x, 22.363861083984375);
  V factor = Fma(a, a, c);
  V factor_low = Fma(a, a, b_.CreateFSub(c, factor));
  factor_low = b_.CreateFAdd(factor_low, Constant(x, -1.08174798899978e-6));
  V shift = nullptr;
  V n = WholeF32(b_.CreateFMul(a, factor), -kSlope * kLog2E, &shift);
  // ln 2 / k in two parts: n times the first is exact.
  V r = Fma(a, factor, b_.CreateFMul(n, Constant(x, 9.714111328125)));
  r = b_.CreateFAdd(r, Fma(a, factor_low, b_.CreateFMul(n, Constant(x, -2.03001013039044e-5))));
  // (exp(-k r) - 1) / r for |r| <= 4.86: ExpTailF32's fit.
  V p = Poly(r, {-0.0713548162726002, 0.00254575490951216, -6.05506245055788e-5, 1.08013943694059e-6,
                 -1.54146634249589e-8, 1.83909929304412e-10, -1.87335408887067e-12});
  return ShareF32(x, a, Fma(r, p, Constant(x, 1)), shift);
}

// max(x, 0) - |x| P(-|x|), P the normal distribution function: P(-t) = e^(-t^2 / 2) G(i) i, i = 1 / (t + 4), a fit of G up to
// t = 14.7, where even the denormals end (9e-9). The rounded i stands for a t that is off by (1 - i (t + 4)) / i, which P's
// logarithmic slope, known to 7 %, puts right. 1.96 ULP: the result's own and what enters G.
V VectorMath::GeluF32(V x) {
  V one = Constant(x, 1), four = Constant(x, 4);
  V t = Min(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), Constant(x, 14.7));
  V half = b_.CreateFMul(t, Constant(x, -0.5));
  V shift = nullptr;
  V n = WholeF32(b_.CreateFMul(t, half), kLog2E, &shift);
  V r = Fma(t, half, b_.CreateFMul(n, Constant(x, -0.693145751953125)));
  r = Fma(n, Constant(x, -1.42860682030941723212e-6), r);
  V power = b_.CreateFAdd(r, one);
  V power_low = b_.CreateFSub(r, b_.CreateFSub(power, one));
  power_low = Fma(b_.CreateFMul(r, r), ExpTailF32(r), power_low);

  V sum = b_.CreateFAdd(t, four);
  V inverse = b_.CreateFDiv(one, sum);
  V minus = b_.CreateFNeg(inverse);
  V residual = Fma(minus, sum, one);
  residual = Fma(minus, b_.CreateFSub(t, b_.CreateFSub(sum, four)), residual);
  V slope = Fma(inverse, Constant(x, 8.95), Constant(x, 0.736));
  power_low = Fma(b_.CreateFMul(residual, slope), power, power_low);

  V u = b_.CreateFSub(inverse, Constant(x, 0.1517379730939865));
  V c = Constant(x, 0.90498488627);
  V rest = Poly(u, {6.41242214965, 33.5376472537, 123.316195201, 268.441199671, 53.8155438962, -1448.28837111,
                    -2195.28403675, 7268.48442309, 17835.6840658});
  V g = Fma(u, rest, c);
  V g_low = Fma(u, rest, b_.CreateFSub(c, g));
  inverse = ShiftF32(inverse, shift);
  V scaled = b_.CreateFMul(inverse, g);
  V scaled_low = Fma(inverse, g_low, Fma(inverse, g, b_.CreateFNeg(scaled)));
  V share = b_.CreateFMul(scaled, power);
  V share_low = Fma(scaled, power_low, Fma(scaled, power, b_.CreateFNeg(share)));
  share_low = Fma(scaled_low, power, share_low);
  return AboveF32(x, Fma(t, share, b_.CreateFMul(t, share_low)));
}

// --- f64, with libm's exponential -----------------------------------------------------------------------------------

VectorMath::Pair VectorMath::Sum(V x, V y) {
  V sum = b_.CreateFAdd(x, y);
  V back = b_.CreateFSub(sum, x);
  return {sum, b_.CreateFAdd(b_.CreateFSub(x, b_.CreateFSub(sum, back)), b_.CreateFSub(y, back))};
}
VectorMath::Pair VectorMath::Product(V x, V y) {
  V product = b_.CreateFMul(x, y);
  return {product, ProductLow(x, y, product)};
}
VectorMath::Pair VectorMath::Product(Pair x, Pair y) {
  Pair product = Product(x.high, y.high);
  product.low = Fma(x.high, y.low, Fma(x.low, y.high, product.low));
  return product;
}

// e^exponent, exponent <= 0, below -600 times 2^64, so that no factor is a denormal; *scale takes it back.
VectorMath::Pair VectorMath::ExpPair(Pair exponent, V* scale) {
  V x = exponent.high, zero = Constant(x, 0);
  V far = b_.CreateFCmpOLT(x, Constant(x, -600));
  // 64 ln 2; the first part has no digits that the sum would lose.
  V moved = b_.CreateFAdd(x, b_.CreateSelect(far, Constant(x, 0x1.62e42fefa39f0p+5), zero));
  V low = b_.CreateFAdd(exponent.low, b_.CreateSelect(far, Constant(x, -5.6212373967393701e-15), zero));
  *scale = b_.CreateSelect(far, Constant(x, 0x1p-64), Constant(x, 1));
  V e = CallPerLane("exp", moved);
  return {e, b_.CreateFMul(e, low)};
}

// result where 2^-60 <= |x| < limit; x / 2 below; beyond x, or for negative x zero.
V VectorMath::ShareEdges(V x, double limit, V result) {
  V a = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  V inside = b_.CreateFCmpOLT(a, Constant(x, limit));
  V negative = b_.CreateFCmpOLT(x, Constant(x, 0));
  V outside = b_.CreateFMul(x, b_.CreateSelect(negative, Constant(x, 0), Constant(x, 1)));
  result = b_.CreateSelect(inside, CopySign(result, x), outside);
  return b_.CreateSelect(b_.CreateFCmpOLT(a, Constant(x, 0x1p-60)), b_.CreateFMul(x, Constant(x, 0.5)), result);
}

// ShareF32's way for e = e^exponent.
V VectorMath::ShareDouble(V x, Pair exponent, double limit) {
  V one = Constant(x, 1), zero = Constant(x, 0);
  V scale = nullptr;
  Pair e = ExpPair(exponent, &scale);
  V negative = b_.CreateFCmpOLT(x, zero);
  Pair lower = Product(x, e.high);
  V numerator = b_.CreateSelect(negative, lower.high, x);
  V lost = b_.CreateSelect(negative, Fma(x, e.low, lower.low), zero);
  V inverse = b_.CreateFDiv(one, b_.CreateFAdd(one, e.high));
  V quotient = b_.CreateFMul(numerator, inverse);
  Pair part = Product({quotient, zero}, e);
  V residual = b_.CreateFSub(b_.CreateFSub(b_.CreateFSub(numerator, quotient), part.high), part.low);
  V result = Fma(b_.CreateFAdd(residual, lost), inverse, quotient);
  return ShareEdges(x, limit, b_.CreateFMul(result, b_.CreateSelect(negative, scale, one)));
}

V VectorMath::SiluDouble(V x) {
  return ShareDouble(x, {b_.CreateFNeg(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x)), Constant(x, 0)}, 800);
}

V VectorMath::GeluTanhDouble(V x) {
  V a = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  Pair square = Product(a, a);
  Pair factor = Sum(square.high, Constant(x, kInverseCubic));
  factor.low = b_.CreateFAdd(factor.low, b_.CreateFAdd(square.low, Constant(x, kInverseCubicLow)));
  Pair cubic = Product({a, Constant(x, 0)}, factor);
  return ShareDouble(x, Product(cubic, {Constant(x, -kSlope), Constant(x, -kSlopeLow)}), 23);
}

// GeluF32's way: i = 1 / (t + 6), a fit of G up to t = 38.7 (4e-18) and of P's logarithmic slope to 6 %.
V VectorMath::GeluDouble(V x) {
  V one = Constant(x, 1), six = Constant(x, 6);
  V t = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  V scale = nullptr;
  Pair power = ExpPair(Product(t, b_.CreateFMul(t, Constant(x, -0.5))), &scale);
  Pair sum = Sum(t, six);
  V inverse = b_.CreateFDiv(one, sum.high);
  Pair whole = Product({inverse, Constant(x, 0)}, sum);
  V residual = b_.CreateFSub(b_.CreateFSub(one, whole.high), whole.low);
  V slope = Poly(inverse, {1.128, -0.972, 127.84});
  V u = b_.CreateFSub(inverse, Constant(x, 0.0625));
  Pair g = {Poly(u, {382.914604502856414,  2760.7419339528452,   18124.4647355537849,  106888.183616316365,
                     554488.875622450215,  2439756.29330606102,  8434606.90202794479,  17964209.6316895176,
                     -15216439.62366565,   -326903919.737221585, -1281921052.84946613, -283996272.620619103,
                     20666260693.9504234,  81038195529.6801413,  -53954654254.55327,   -2011185960047.1294,
                     -11601260646322.2336, 134622090074468.466,  -396672535663415.435, 388536246604464.191}),
            Constant(x, 0)};
  // The last three steps in two parts.
  constexpr double last[][2] = {
      {48.8172035419322047, 3.23327e-15}, {5.7596764415427507, 1.01605e-16}, {0.632107105622176048, -4.30569e-17}};
  for (const auto& [high, low] : last) {
    Pair product = Product({u, Constant(x, 0)}, g);
    g = Sum(Constant(x, high), product.high);
    g.low = b_.CreateFAdd(g.low, b_.CreateFAdd(product.low, Constant(x, low)));
  }
  g = Product({inverse, b_.CreateFMul(inverse, b_.CreateFMul(residual, slope))}, g);
  Pair lower = Product({b_.CreateFNeg(t), Constant(x, 0)}, Product(g, power));
  V high = b_.CreateFAdd(lower.high, lower.low);
  V low = b_.CreateFAdd(b_.CreateFSub(lower.high, high), lower.low);
  V negative = b_.CreateFCmpOLT(x, Constant(x, 0));
  Pair result = Sum(b_.CreateSelect(negative, Constant(x, 0), x), b_.CreateFMul(high, scale));
  return ShareEdges(x, 38.7, b_.CreateFAdd(result.high, Fma(low, scale, result.low)));
}

}  // namespace weft::cpu
