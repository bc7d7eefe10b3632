// One line for each scalar operation.
#include "tests/ops/plain_scalar_builder.h"

#include <bit>

#include "src/ops/erf_inv.h"

namespace weft::test {

using ir::ScalarOp;

double PlainScalarBuilder::FloatUnary(ScalarOp op, double x) {
  switch (op) {
    case ScalarOp::kNeg:
      return -x;
    case ScalarOp::kAbs:
      return std::fabs(x);
    case ScalarOp::kSign:
      return x > 0 ? 1 : x < 0 ? -1 : x;
    case ScalarOp::kFloor:
      return std::floor(x);
    case ScalarOp::kCeil:
      return std::ceil(x);
    case ScalarOp::kRoundAway:
      return std::round(x);
    case ScalarOp::kRoundEven:
      return std::nearbyint(x);
    case ScalarOp::kTrunc:
      return std::trunc(x);
    case ScalarOp::kSqrt:
      return std::sqrt(x);
    case ScalarOp::kRsqrt:
      return 1 / std::sqrt(x);
    case ScalarOp::kCbrt:
      return std::cbrt(x);
    case ScalarOp::kExp:
      return std::exp(x);
    case ScalarOp::kExp2:
      return std::exp2(x);
    case ScalarOp::kExpm1:
      return std::expm1(x);
    case ScalarOp::kLog:
      return std::log(x);
    case ScalarOp::kLog2:
      return std::log2(x);
    case ScalarOp::kLog1p:
      return std::log1p(x);
    case ScalarOp::kLogistic:
      return 1 / (1 + std::exp(-x));
    case ScalarOp::kTanh:
      return std::tanh(x);
    case ScalarOp::kErf:
      return std::erf(x);
    case ScalarOp::kGelu:
      return x * std::erfc(-x * M_SQRT1_2) / 2;
    case ScalarOp::kGeluTanh:
      return x / (1 + std::exp(-std::sqrt(8 / M_PI) * (x + 0.044715 * x * x * x)));
    case ScalarOp::kSilu:
      return x / (1 + std::exp(-x));
    case ScalarOp::kErfInv:
      return ops::ErfInv(x);
    case ScalarOp::kSin:
      return std::sin(x);
    case ScalarOp::kCos:
      return std::cos(x);
    case ScalarOp::kTan:
      return std::tan(x);
    default:
      return NAN;
  }
}

double PlainScalarBuilder::FloatBinary(ScalarOp op, double x, double y) {
  switch (op) {
    case ScalarOp::kAdd:
      return x + y;
    case ScalarOp::kSub:
      return x - y;
    case ScalarOp::kMul:
      return x * y;
    case ScalarOp::kDiv:
      return x / y;
    case ScalarOp::kRem:
      return std::fmod(x, y);
    case ScalarOp::kMin:
      return ops::CombineDouble(ops::Reducer::kMin, x, y);
    case ScalarOp::kMax:
      return ops::CombineDouble(ops::Reducer::kMax, x, y);
    case ScalarOp::kAtan2:
      return std::atan2(x, y);
    case ScalarOp::kPow:
      return std::pow(x, y);
    default:
      return NAN;
  }
}

int64_t PlainScalarBuilder::IntUnary(ScalarOp op, DType dtype, int64_t x) {
  const int bits = BitsOf(dtype);
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  switch (op) {
    case ScalarOp::kNeg:
      return static_cast<int64_t>(-static_cast<uint64_t>(x));
    case ScalarOp::kAbs:
      return x < 0 ? static_cast<int64_t>(-static_cast<uint64_t>(x)) : x;
    case ScalarOp::kSign:
      return (x > 0) - (x < 0);
    case ScalarOp::kNot:
      return IsBool(dtype) ? x == 0 : ~x;
    case ScalarOp::kPopcount:
      return std::popcount(static_cast<uint64_t>(x) & mask);
    case ScalarOp::kClz:
      return std::countl_zero(static_cast<uint64_t>(x) & mask) - (64 - bits);
    default:
      return -77;  // no integer form: the comparison with the reference fails
  }
}

int64_t PlainScalarBuilder::IntBinary(ScalarOp op, DType dtype, int64_t x, int64_t y) {
  const auto a = static_cast<uint64_t>(x), b = static_cast<uint64_t>(y);
  const int bits = BitsOf(dtype);
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  const bool is_unsigned = IsUnsigned(dtype);
  const bool too_far = b >= static_cast<uint64_t>(bits);
  switch (op) {
    case ScalarOp::kAdd:
      return ops::CombineInt(ops::Reducer::kSum, dtype, x, y);
    case ScalarOp::kMul:
      return ops::CombineInt(ops::Reducer::kProd, dtype, x, y);
    case ScalarOp::kMin:
      return ops::CombineInt(ops::Reducer::kMin, dtype, x, y);
    case ScalarOp::kMax:
      return ops::CombineInt(ops::Reducer::kMax, dtype, x, y);
    case ScalarOp::kSub:
      return static_cast<int64_t>(a - b);
    case ScalarOp::kDiv:
      if (y == 0) return -1;
      if (is_unsigned) return static_cast<int64_t>(a / b);
      return y == -1 ? static_cast<int64_t>(-a) : x / y;
    case ScalarOp::kRem:
      if (y == 0) return x;
      if (is_unsigned) return static_cast<int64_t>(a % b);
      return y == -1 ? 0 : x % y;
    case ScalarOp::kAnd:
      return x & y;
    case ScalarOp::kOr:
      return x | y;
    case ScalarOp::kXor:
      return x ^ y;
    case ScalarOp::kShl:
      return too_far ? 0 : static_cast<int64_t>(a << b);
    case ScalarOp::kShrLogical:
      return too_far ? 0 : static_cast<int64_t>((a & mask) >> b);
    case ScalarOp::kShrArithmetic: {
      const int64_t spread = static_cast<int64_t>(a << (64 - bits)) >> (64 - bits);
      return spread >> (too_far ? bits - 1 : static_cast<int>(b));
    }
    case ScalarOp::kPow: {
      if (y < 0 && !is_unsigned) return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
      uint64_t result = 1;
      uint64_t base = a;
      for (uint64_t e = b; e != 0; e >>= 1, base *= base) {
        if ((e & 1) != 0) result *= base;
      }
      return static_cast<int64_t>(result);
    }
    case ScalarOp::kMulHi:
      return static_cast<int64_t>((a * b) >> 32);  // u32
    default:
      return -77;
  }
}

}  // namespace weft::test
