// The table of judged elementwise operations: the bound and the exact result of each.
#pragma once

#include <cstdint>

#include "accuracy/special.h"
#include "accuracy/ulps.h"

namespace accuracy {

enum Function {
  kAbs, kCbrt, kCeil, kCos, kErf, kErfInv, kExp, kExp2, kExpm1, kFloor, kLog, kLog1p, kLog2, kNeg, kRound, kRoundAway, kRsqrt,
  kSigmoid, kSign, kSin, kSqrt, kSquare, kCube, kTan, kTanh, kTrunc, kElu, kGelu, kGeluTanh, kLeakyRelu, kRelu, kRelu6, kSilu,
  kSoftplus, kStopGradient, kAcos, kAcosh, kAsin, kAsinh, kAtan, kAtanh, kCosh, kSinh, kLog10, kAngle, kDeg2rad, kRad2deg,
  kReciprocal, kFrac, kErfc, kSinc, kEntr, kLogit, kRoundDecimals, kCelu, kHardshrink, kHardsigmoid, kHardswish, kHardtanh,
  kLogsigmoid, kMish, kSelu, kSoftplusBeta, kSoftshrink, kSoftsign, kTanhshrink, kThreshold, kAdd, kAtan2, kDiv, kMul, kPow, kSub,
  kFloorDivide, kTruncDivide, kMod, kHeaviside, kHypot, kLdexp, kLogaddexp, kLogaddexp2, kNextafter, kPrelu, kXlogy, kXlog1py,
  // From here on judged in long double at the least, by special.h.
  kLgamma, kDigamma, kMvlgamma, kI0, kI0e, kI1, kI1e, kJ0, kJ1, kY0, kY1, kK0, kK0e, kK1, kK1e, kErfcx, kNdtr, kLogNdtr, kNdtri,
  kPolygamma, kZeta, kIgamma, kIgammac
};

struct Op {
  const char* name;        // of weft_op_apply
  const char* attributes;  // "form=tanh beta=2.0"; empty: none
  Function function;
  double f32, f64;         // bounds in ULPs; 0.5: correctly rounded
  double low, high;        // where half of the f64 points lie; `within`: all points of every type
  int operands = 1;
  bool within = false;
  bool special() const { return function >= kLgamma; }
  bool asks_result() const { return function == kErfInv || function == kNdtri || function == kRoundDecimals; }
};
constexpr Op kOps[] = {
    {"abs", "", kAbs, 0, 0, -2, 2},
    {"cbrt", "", kCbrt, 1, 1.5, -100, 100},
    {"ceil", "", kCeil, 0, 0, -100, 100},
    {"cos", "", kCos, 1, 1, -100, 100},
    {"erf", "", kErf, 1.5, 1.5, -6, 6},
    {"erf_inv", "", kErfInv, 2, 2, -1, 1},
    {"exp", "", kExp, 1, 1, -745, 710},
    {"exp2", "", kExp2, 1, 1, -1075, 1025},
    {"expm1", "", kExpm1, 1, 1, -40, 710},
    {"floor", "", kFloor, 0, 0, -100, 100},
    {"log", "", kLog, 1, 1, 0, 4},
    {"log1p", "", kLog1p, 1, 1, -1, 4},
    {"log2", "", kLog2, 1, 1, 0, 4},
    {"neg", "", kNeg, 0, 0, -2, 2},
    {"round", "", kRound, 0, 0, -100, 100},
    {"round_away", "", kRoundAway, 0, 0, -100, 100},
    {"rsqrt", "", kRsqrt, 1.5, 1.5, 0, 100},
    {"sigmoid", "", kSigmoid, 2, 2, -710, 40},
    {"sign", "", kSign, 0, 0, -2, 2},
    {"sin", "", kSin, 1, 1, -100, 100},
    {"sqrt", "", kSqrt, 0.5, 0.5, 0, 100},
    {"square", "", kSquare, 0.5, 0.5, -100, 100},
    {"integer_pow", "exponent=3", kCube, 1.5, 1.5, -100, 100},
    {"tan", "", kTan, 1.5, 1, -100, 100},
    {"tanh", "", kTanh, 2, 2, -20, 20},
    {"trunc", "", kTrunc, 0, 0, -100, 100},
    {"elu", "", kElu, 1, 1, -40, 40},
    {"gelu", "", kGelu, 2, 2, -38, 8},
    {"gelu", "form=tanh", kGeluTanh, 2, 2, -22, 8},
    {"leaky_relu", "", kLeakyRelu, 1.5, 1, -100, 100},
    {"relu", "", kRelu, 0, 0, -2, 2},
    {"relu6", "", kRelu6, 0, 0, -10, 10},
    {"silu", "", kSilu, 2, 2, -745, 40},
    {"softplus", "", kSoftplus, 2, 2, -745, 40},
    {"stop_gradient", "", kStopGradient, 0, 0, -2, 2},
    {"add", "", kAdd, 0.5, 0.5, -100, 100, 2},
    {"atan2", "", kAtan2, 1, 1, -100, 100, 2},
    {"div", "", kDiv, 0.5, 0.5, -100, 100, 2},
    {"mul", "", kMul, 0.5, 0.5, -100, 100, 2},
    {"pow", "", kPow, 1, 1, 0, 40, 2},
    {"sub", "", kSub, 0.5, 0.5, -100, 100, 2},
    {"acos", "", kAcos, 3, 4, -1, 1},
    {"acosh", "", kAcosh, 3, 4, 1, 100},
    {"asin", "", kAsin, 3, 4, -1, 1},
    {"asinh", "", kAsinh, 3, 4, -100, 100},
    {"atan", "", kAtan, 3, 4, -100, 100},
    {"atanh", "", kAtanh, 3, 4, -1, 1},
    {"cosh", "", kCosh, 3, 4, -710, 710},
    {"sinh", "", kSinh, 3, 4, -710, 710},
    {"log10", "", kLog10, 3, 4, 0, 4},
    {"angle", "", kAngle, 0.5, 0.5, -2, 2},
    {"deg2rad", "", kDeg2rad, 1.5, 1.5, -360, 360},
    {"rad2deg", "", kRad2deg, 1.5, 1.5, -7, 7},
    {"reciprocal", "", kReciprocal, 0.5, 0.5, -100, 100},
    {"frac", "", kFrac, 0, 0, -100, 100},
    {"erfc", "", kErfc, 3, 4, -6, 28},
    {"sinc", "", kSinc, 3, 4, -100, 100},
    {"entr", "", kEntr, 3, 4, 0, 4},
    {"logit", "", kLogit, 3, 4, 0, 1},
    {"round_decimals", "decimals=2", kRoundDecimals, 1.5, 1.5, -1000, 1000, 1, true},
    {"celu", "alpha=0.5", kCelu, 3, 4, -40, 40},
    {"hardshrink", "", kHardshrink, 0, 0, -2, 2},
    {"hardsigmoid", "", kHardsigmoid, 1.5, 1.5, -4, 4},
    {"hardswish", "", kHardswish, 3, 3, -4, 4},
    {"hardtanh", "", kHardtanh, 0, 0, -2, 2},
    {"logsigmoid", "", kLogsigmoid, 2, 2, -40, 745},
    {"mish", "", kMish, 3, 4, -745, 40},
    {"selu", "", kSelu, 3, 4, -40, 40},
    {"softplus_beta", "beta=2.0", kSoftplusBeta, 3, 4, -370, 20},
    {"softshrink", "", kSoftshrink, 0.5, 0.5, -2, 2},
    {"softsign", "", kSoftsign, 1.5, 1.5, -100, 100},
    {"tanhshrink", "", kTanhshrink, 3, 4, -4, 4},
    {"threshold", "threshold=0.5 value=-1.0", kThreshold, 0, 0, -2, 2},
    {"floor_divide", "", kFloorDivide, 2, 2, -100, 100, 2},
    {"trunc_divide", "", kTruncDivide, 0, 0, -100, 100, 2},
    {"mod", "", kMod, 0.5, 0.5, -100, 100, 2},
    {"heaviside", "", kHeaviside, 0, 0, -2, 2, 2},
    {"hypot", "", kHypot, 3, 3, -100, 100, 2},
    {"ldexp", "", kLdexp, 3, 3, -40, 40, 2},
    {"logaddexp", "", kLogaddexp, 3, 4, -40, 40, 2},
    {"logaddexp2", "", kLogaddexp2, 3, 4, -40, 40, 2},
    {"nextafter", "", kNextafter, 0, 0, -2, 2, 2},
    {"prelu", "", kPrelu, 0.5, 0.5, -100, 100, 2},
    {"xlogy", "", kXlogy, 3, 3, 0, 40, 2},
    {"xlog1py", "", kXlog1py, 3, 3, 0, 40, 2},
    {"lgamma", "", kLgamma, 0.51, 4, -20, 60},
    {"digamma", "", kDigamma, 0.51, 4, -20, 60},
    {"mvlgamma", "p=2", kMvlgamma, 0.51, 4, 0.6, 60, 1, true},
    {"bessel_i0", "", kI0, 0.51, 4, -80, 80},
    {"bessel_i0e", "", kI0e, 3, 4, -80, 80},
    {"bessel_i1", "", kI1, 0.51, 4, -80, 80},
    {"bessel_i1e", "", kI1e, 3, 4, -80, 80},
    {"bessel_j0", "", kJ0, 0.51, 4, -100, 100},
    {"bessel_j1", "", kJ1, 0.51, 4, -100, 100},
    {"bessel_y0", "", kY0, 0.51, 4, 0, 100},
    {"bessel_y1", "", kY1, 0.51, 4, 0, 100},
    {"bessel_k0", "", kK0, 0.51, 4, 0, 80},
    {"bessel_k0e", "", kK0e, 0.51, 4, 0, 80},
    {"bessel_k1", "", kK1, 0.51, 4, 0, 80},
    {"bessel_k1e", "", kK1e, 0.51, 4, 0, 80},
    {"erfcx", "", kErfcx, 0.51, 4, -9, 27},
    {"ndtr", "", kNdtr, 0.51, 4, -38, 9},
    {"log_ndtr", "", kLogNdtr, 0.51, 4, -40, 9},
    {"ndtri", "", kNdtri, 0.51, 4, 0, 1},
    {"polygamma", "", kPolygamma, 8, 12, 0.05, 30, 2, true},
    {"zeta", "", kZeta, 8, 8, 1.1, 30, 2, true},
    {"igamma", "", kIgamma, 0.51, 1000, 0.1, 50, 2, true},
    {"igammac", "", kIgammac, 0.51, 300, 0.1, 50, 2, true},
};

template <typename T>
T Logistic(T x) {
  const T e = M_exp(-Magnitude(x));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}
template <typename T>
T Softplus(T x) {
  return (x > 0 ? x : T(0)) + M_log1p(M_exp(-Magnitude(x)));
}
// tanh(log(1 + e^x)) of w = e^x (e^x + 2) is w / (w + 2).
template <typename T>
T Mish(T x) {
  if (x > 60) return x;
  if (x < -11000) return -T(0);
  const T e = M_exp(x), w = e * (e + 2);
  return x * w / (w + 2);
}
// By tanh's continued fraction x / (1 + x² / (3 + x² / (5 + …))) near 0.
template <typename T>
T Tanhshrink(T x) {
  if (!(Magnitude(x) < 1)) return x - M_tanh(x);
  T below = 61;
  for (int k = 59; k >= 3; k -= 2) below = k + x * x / below;
  const T more = x * x / below;
  return x * more / (1 + more);
}
template <typename T>
T Sinc(T x) {
  if (x == 0) return 1;
  const T whole = M_nearbyint(x), sine = M_sin(kPi<T> * (x - whole));
  return (M_nearbyint(whole / 2) * 2 == whole ? sine : -sine) / (kPi<T> * x);
}
template <typename T>
T Logit(T x) {
  const T rest = 1 - x;
  return Magnitude(x - rest) < static_cast<T>(0.5) ? M_log1p((x - rest) / rest) : M_log(x / rest);
}
template <typename T>
T LogAdd(T x, T y, bool two) {
  const T unit = two ? M_log(static_cast<T>(2)) : T(1), most = x > y ? x : y;
  if (x != x || y != y) return x + y;
  if (x == y) return x + M_log(static_cast<T>(2)) / unit;
  return most + M_log1p(M_exp(-unit * Magnitude(x - y))) / unit;
}
template <typename T>
T Mod(T x, T y) {
  const T rest = M_fmod(x, y);
  return rest + (rest != 0 && (rest < 0) != (y < 0) ? y : T(0));
}
template <typename T>
T FloorDivide(T x, T y) {
  if (y == 0) return x / y;
  const T rest = M_fmod(x, y), whole = M_nearbyint((x - rest) / y) - (rest != 0 && (rest < 0) != (y < 0) ? 1 : 0);
  return whole == 0 ? x / y * 0 : whole;
}
template <typename T>
T TimesLog(T x, T y, bool plus_one) {
  if (x == 0 && (y <= (plus_one ? -1 : 0) || y == std::numeric_limits<double>::infinity())) return x * 0;
  return x * (plus_one ? M_log1p(y) : M_log(y));
}
// The multiple of 1 / 100 that is given, if it is as near as another but for the rounding of 100 x; else the nearest.
template <typename T>
T Hundredths(const Format& format, T x, double got) {
  const T scaled = 100 * x, given = M_nearbyint(100 * static_cast<T>(got));
  const bool near = Magnitude(given - scaled) <= static_cast<T>(0.5) + Magnitude(scaled) * std::ldexp(1.0, -format.digits);
  const T whole = near ? given : M_nearbyint(scaled);
  return whole == 0 ? x * 0 : whole / 100;
}

template <typename T>
T ExactSpecial(Function function, T x, T y, double got) {
  switch (function) {
    case kLgamma: return M_lgamma(x);
    case kDigamma: return Digamma(x);
    case kMvlgamma: return M_lgamma(x) + M_lgamma(x - static_cast<T>(0.5)) + M_log(kPi<T>) / 2;
    case kI0: return BesselI<T>(0, x, false);
    case kI0e: return BesselI<T>(0, x, true);
    case kI1: return BesselI<T>(1, x, false);
    case kI1e: return BesselI<T>(1, x, true);
    case kJ0: return M_j0(x);
    case kJ1: return M_j1(x);
    case kY0: return M_y0(x);
    case kY1: return M_y1(x);
    case kK0: return BesselK<T>(0, x, false);
    case kK0e: return BesselK<T>(0, x, true);
    case kK1: return BesselK<T>(1, x, false);
    case kK1e: return BesselK<T>(1, x, true);
    case kErfcx: return Erfcx(x);
    case kNdtr: return Ndtr(x);
    case kLogNdtr: return LogNdtr(x);
    case kNdtri: return Ndtri(x, got);
    case kPolygamma: return Polygamma(x, y);
    case kZeta: return Zeta(x, y);
    case kIgamma: return IncompleteGamma(x, y, false);
    case kIgammac: return IncompleteGamma(x, y, true);
    default: return x;
  }
}

// The exact result at (x, y); `got` is what is judged.
template <typename T>
T Exact(const Op& op, const Format& format, T x, T y, double got) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if constexpr (sizeof(T) == sizeof(double)) {
    if (op.special()) return static_cast<double>(ExactSpecial<long double>(op.function, x, y, got));
  }
  switch (op.function) {
    case kAbs: return Magnitude(x) + 0;
    case kCbrt: return M_cbrt(x);
    case kCeil: return ::ceil(static_cast<double>(x));  // exact in every type
    case kCos: return M_cos(x);
    case kErf: return M_erf(x);
    case kErfInv: return ErfInv(x, got);
    case kExp: return M_exp(x);
    case kExp2: return M_exp2(x);
    case kExpm1: return M_expm1(x);
    case kFloor: return ::floor(static_cast<double>(x));
    case kLog: return M_log(x);
    case kLog1p: return M_log1p(x);
    case kLog2: return M_log2(x);
    case kNeg: return -x;
    case kRound: return ::nearbyint(static_cast<double>(x));
    case kRoundAway: return ::round(static_cast<double>(x));
    case kRsqrt: return 1 / M_sqrt(x);
    case kSigmoid: return Logistic(x);
    case kSign: return x > 0 ? T(1) : x < 0 ? T(-1) : x;
    case kSin: return M_sin(x);
    case kSqrt: return M_sqrt(x);
    case kSquare: return x * x;
    case kCube: return x * x * x;
    case kTan: return M_tan(x);
    case kTanh: return M_tanh(x);
    case kTrunc: return ::trunc(static_cast<double>(x));
    case kElu: return x > 0 ? x : M_expm1(x);
    case kGelu: return x * M_erfc(-x * kRootHalf<T>) / 2;
    case kGeluTanh: return x * Logistic(kRoot8OverPi<T> * (x + (static_cast<T>(44715) / 1000000) * x * x * x));
    case kLeakyRelu: return x > 0 ? x : x * 0.01;
    case kRelu: return x > 0 || x != x ? x : T(0);  // of two zeros the positive one
    case kRelu6: return x > 6 ? T(6) : x > 0 || x != x ? x : T(0);
    case kSilu: {
      const T e = M_exp(-Magnitude(x));
      return x < 0 ? x * e / (1 + e) : x / (1 + e);
    }
    case kSoftplus: return Softplus(x);
    case kStopGradient: return x;
    case kAcos: return M_acos(x);
    case kAcosh: return M_acosh(x);
    case kAsin: return M_asin(x);
    case kAsinh: return M_asinh(x);
    case kAtan: return M_atan(x);
    case kAtanh: return M_atanh(x);
    case kCosh: return M_cosh(x);
    case kSinh: return M_sinh(x);
    case kLog10: return M_log10(x);
    case kAngle: return x < 0 ? kPi<T> : x * 0 == 0 || x == kInf ? T(0) : x;
    case kDeg2rad: return x * kPi<T> / 180;
    case kRad2deg: return x * 180 / kPi<T>;
    case kReciprocal: return 1 / x;
    case kFrac: return x - M_trunc(x);
    case kErfc: return M_erfc(x);
    case kSinc: return Sinc(x);
    case kEntr: return x < 0 ? T(-kInf) : x == 0 ? T(0) : -x * M_log(x);
    case kLogit: return Logit(x);
    case kRoundDecimals: return Hundredths(format, x, got);
    case kCelu: return x > 0 ? x : M_expm1(2 * x) / 2;
    case kHardshrink: return Magnitude(x) <= static_cast<T>(0.5) ? T(0) : x;
    case kHardsigmoid: return x != x ? x : x <= -3 ? T(0) : x >= 3 ? T(1) : (x + 3) / 6;
    case kHardswish: return x != x ? x : x <= -3 ? T(0) : x >= 3 ? x : x * (x + 3) / 6;
    case kHardtanh: return x <= -1 ? T(-1) : x >= 1 ? T(1) : x;
    case kLogsigmoid: return -Softplus(-x);
    case kMish: return Mish(x);
    case kSelu: return kSeluScale<T> * (x > 0 ? x : kSeluAlpha<T> * M_expm1(x));
    case kSoftplusBeta: return 2 * x > 20 ? x : Softplus(2 * x) / 2;
    case kSoftshrink: return Magnitude(x) <= static_cast<T>(0.5) ? T(0) : x > 0 ? x - static_cast<T>(0.5) : x + static_cast<T>(0.5);
    case kSoftsign: return Magnitude(x) > static_cast<T>(1e300) ? T(x > 0 ? 1 : -1) : x / (1 + Magnitude(x));
    case kTanhshrink: return Tanhshrink(x);
    case kThreshold: return x <= static_cast<T>(0.5) ? T(-1) : x;
    case kAdd: return x + y;
    case kAtan2: return M_atan2(x, y);
    case kDiv: return x / y;
    case kMul: return x * y;
    case kPow: return M_pow(x, y);
    case kSub: return x - y;
    case kFloorDivide: return FloorDivide(x, y);
    // The quotient of the type, rounded towards 0.
    case kTruncDivide: return sizeof(T) == sizeof(double) ? ::trunc(static_cast<double>(static_cast<float>(x / y))) : ::trunc(static_cast<double>(x) / static_cast<double>(y));
    case kMod: return Mod(x, y);
    case kHeaviside: return x == 0 ? y : T(x > 0 ? 1 : 0);
    case kHypot: return M_hypot(x, y);
    case kLdexp: {
      const T end = sizeof(T) == sizeof(double) ? 700 : 5000;
      return x * M_exp2(y > end ? end : y < -end ? -end : y);
    }
    case kLogaddexp: return LogAdd(x, y, false);
    case kLogaddexp2: return LogAdd(x, y, true);
    case kNextafter: return NextOf(format, static_cast<double>(x), static_cast<double>(y));
    case kPrelu: return x > 0 ? x : x * y;
    case kXlogy: return TimesLog(x, y, false);
    case kXlog1py: return TimesLog(x, y, true);
    default: return ExactSpecial(op.function, x, y, got);
  }
}

// By whose last place an error is measured: the exact result's, but where functions have zeros the envelope's of the wave, or of the largest
// term from which the zero comes. 16-bit results are measured by themselves.
template <typename T>
T SizeOf(const Op& op, const Format& format, T x, T y, T exact) {
  if (format.bytes == 2) return exact;
  const auto larger = [&](T other) { return Magnitude(other) > Magnitude(exact) ? Magnitude(other) : exact; };
  switch (op.function) {
    case kJ0: return Magnitude(x) < 1 ? exact : larger(M_hypot(exact, M_y0(Magnitude(x))));
    case kJ1: return Magnitude(x) < 1 ? exact : larger(M_hypot(exact, M_y1(Magnitude(x))));
    case kY0: return x > 0 ? larger(M_hypot(exact, M_j0(x))) : exact;
    case kY1: return x > 0 ? larger(M_hypot(exact, M_j1(x))) : exact;
    case kLgamma: return x < 0 ? larger(M_lgamma(1 - x)) : exact;
    case kDigamma: {
      if (!(x < 0)) return exact;
      const T term = Digamma<T>(1 - x);
      return larger(std::max(term, Magnitude(exact - term)));
    }
    case kMvlgamma: return larger(Magnitude(M_lgamma(x)) + Magnitude(M_lgamma(x - static_cast<T>(0.5))) + M_log(kPi<T>) / 2);
    case kLogaddexp:
    case kLogaddexp2: return larger(x > y ? x : y);
    default: return exact;
  }
}

}  // namespace accuracy
