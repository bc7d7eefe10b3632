// VectorMath's f64: libm lane by lane, with corrections where libm's last bits are not good enough (glibc: cbrt 3.7 ULP, tanh
// 2.2, no inverse error function).
#include <cmath>

#include "src/backends/cpu/loop/vector_math.h"

namespace weft::cpu {

using ir::ScalarOp;
using V = VectorMath::V;

V VectorMath::Double(ScalarOp op, V x) {
  switch (op) {
    case ScalarOp::kCbrt: return CbrtDouble(x);
    case ScalarOp::kExp: return CallPerLane("exp", x);
    case ScalarOp::kExp2: return CallPerLane("exp2", x);
    case ScalarOp::kExpm1: return CallPerLane("expm1", x);
    case ScalarOp::kLog: return CallPerLane("log", x);
    case ScalarOp::kLog2: return CallPerLane("log2", x);
    case ScalarOp::kLog1p: return CallPerLane("log1p", x);
    case ScalarOp::kTanh: return TanhDouble(x);
    case ScalarOp::kErf: return CallPerLane("erf", x);
    case ScalarOp::kErfInv: return ErfInvDouble(x);
    case ScalarOp::kGelu: return GeluDouble(x);
    case ScalarOp::kGeluTanh: return GeluTanhDouble(x);
    case ScalarOp::kSilu: return SiluDouble(x);
    case ScalarOp::kSin: return CallPerLane("sin", x);
    case ScalarOp::kCos: return CallPerLane("cos", x);
    case ScalarOp::kTan: return CallPerLane("tan", x);
    case ScalarOp::kLogistic: return LogisticDouble(x);
    default: return nullptr;
  }
}

// One Newton step with y^3 - x in two parts: 0.5 ULP. Small x are scaled by 2^162, so that no product
// of the step is a denormal, large ones by 2^-162, so that none overflows.
V VectorMath::CbrtDouble(V x) {
  V magnitude = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  V tiny = b_.CreateFCmpOLT(magnitude, Constant(x, 0x1p-800));
  V huge = b_.CreateFCmpOGT(magnitude, Constant(x, 0x1p900));
  const auto scale = [&](double low, double high) {
    return b_.CreateSelect(tiny, Constant(x, low), b_.CreateSelect(huge, Constant(x, high), Constant(x, 1)));
  };
  V scaled = b_.CreateFMul(x, scale(0x1p162, 0x1p-162));
  V y = CallPerLane("cbrt", scaled);
  V square = b_.CreateFMul(y, y);
  V square_low = ProductLow(y, y, square);
  V cube = b_.CreateFMul(square, y);
  V cube_low = Fma(square_low, y, ProductLow(square, y, cube));
  V excess = b_.CreateFAdd(b_.CreateFSub(cube, scaled), cube_low);
  V step = b_.CreateFDiv(excess, b_.CreateFMul(square, Constant(x, 3)));
  V finite = b_.CreateAnd(b_.CreateFCmpONE(x, Constant(x, 0)),
                          b_.CreateFCmpOLT(magnitude, llvm::ConstantFP::getInfinity(x->getType())));
  V result = b_.CreateFSub(y, b_.CreateSelect(finite, step, Constant(x, 0)));
  return b_.CreateFMul(b_.CreateSelect(finite, result, y), scale(0x1p-54, 0x1p54));
}

// e / (e + 2), e = expm1(2 |x|), with what e + 2 loses put back. About 1.5 ULP, nearly all of it expm1's.
V VectorMath::TanhDouble(V x) {
  V two = Constant(x, 2);
  V magnitude = Min(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), Constant(x, 22));
  V e = CallPerLane("expm1", b_.CreateFAdd(magnitude, magnitude));
  V sum = b_.CreateFAdd(e, two);
  V larger = b_.CreateFCmpOGT(e, two);
  V high = b_.CreateSelect(larger, e, two), low = b_.CreateSelect(larger, two, e);
  V lost = b_.CreateFSub(low, b_.CreateFSub(sum, high));
  V quotient = b_.CreateFDiv(e, sum);
  return CopySign(b_.CreateFSub(quotient, b_.CreateFMul(quotient, b_.CreateFDiv(lost, sum))), x);
}

// 1 / (1 + e), e = e^-|x|, with what 1 + e and its inverse lose put back; e / (1 + e) below 0. About 1.5 ULP.
V VectorMath::LogisticDouble(V x) {
  V one = Constant(x, 1);
  V e = CallPerLane("exp", b_.CreateFNeg(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x)));
  V sum = b_.CreateFAdd(one, e);
  V lost = b_.CreateFSub(e, b_.CreateFSub(sum, one));
  V inverse = b_.CreateFDiv(one, sum);
  V minus = b_.CreateFNeg(inverse);
  V product = b_.CreateFMul(minus, sum);
  V residual = b_.CreateFAdd(b_.CreateFAdd(product, one), ProductLow(minus, sum, product));
  inverse = Fma(inverse, Fma(minus, lost, residual), inverse);
  return b_.CreateSelect(b_.CreateFCmpOLT(x, Constant(x, 0)), b_.CreateFMul(e, inverse), inverse);
}

// One Newton step from a start that is right to 1e-8 or better; the f32 one ends where f32 does, at 1 - 2^-24. Below 0.75 the error of the start is the series of erf, its first term in two
// parts, minus x; from there erfc(y) - (1 - x), where libm's erfc counts for little. About 1 ULP.
V VectorMath::ErfInvDouble(V x) {
  constexpr double k = 1.12837916709551257390, k_low = 1.5335459613165881e-17;  // 2 / sqrt(pi)
  V one = Constant(x, 1);
  V a = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  V inside = b_.CreateFCmpOLT(a, one);
  V start = ErfInv64(x);
  // In the root of w = -log(1 - x^2), from 4 to the 6.01 of the largest double below 1; Chebyshev fit, 4e-10.
  V w = b_.CreateFNeg(Log64(b_.CreateFMul(b_.CreateFSub(one, a), b_.CreateFAdd(one, a))));
  V root = b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, b_.CreateSelect(inside, w, one));
  V edge = Poly(b_.CreateFSub(root, Constant(x, 5)),
                {4.84990640131529173, 1.01030046755452068, -0.000138719233684603615, -0.000215052663798696269,
                 0.0000759779351988914878, -0.0000195754437201724645, 4.49986465387219583e-6, -1.05839683888261619e-6,
                 2.02839583582812351e-7});
  V guess = b_.CreateSelect(b_.CreateFCmpOGT(root, Constant(x, 4)), edge,
                            b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, start));
  V y = b_.CreateSelect(inside, guess, Constant(x, 0));
  V z = b_.CreateFMul(y, y);
  V term = b_.CreateFMul(y, Constant(x, k));
  V term_low = Fma(y, Constant(x, k_low), ProductLow(y, Constant(x, k), term));
  // Taylor: (-1)^n / (n! (2n + 1)) times k, to 1e-18 for y <= 0.82.
  V series = Poly(
      z, {-k / 3, k / 10, -k / 42, k / 216, -k / 1320, k / 9360, -k / 75600, k / 685440, -k / 6894720, k / 76204800,
          -k / 918086400, k / 11975040000., -k / 168129561600., k / 2528170444800., -k / 40537905408000.});
  V near = b_.CreateFAdd(b_.CreateFSub(term, a), Fma(b_.CreateFMul(y, z), series, term_low));
  V far = b_.CreateFSub(b_.CreateFSub(one, a), CallPerLane("erfc", y));
  V error = b_.CreateSelect(b_.CreateFCmpOLT(a, Constant(x, 0.75)), near, far);
  V step = b_.CreateFMul(error, b_.CreateFMul(Constant(x, 1 / k), Exp64(z)));
  V result = b_.CreateFSub(y, step);
  // The first term of the inverse series; the second is below 1e-18 of it.
  result = b_.CreateSelect(b_.CreateFCmpOLT(a, Constant(x, 1e-9)), b_.CreateFMul(a, Constant(x, 1 / k)), result);
  return b_.CreateSelect(inside, CopySign(result, x), start);
}

}  // namespace weft::cpu
