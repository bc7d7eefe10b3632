// The vocabulary of elementwise code. An operation's `scalar` rule writes one element with it; the CPU compiler
// implements it as LLVM vectors, tests as plain doubles.
#pragma once

#include <cstdint>

#include "src/runtime/dtype.h"

namespace weft::ir {

// A handle of the implementation's; dtype is what the element is (bf16 and f16 are already f32 inside).
struct ScalarValue {
  uint32_t id = 0;
  DType dtype = DType::kInvalid;
};

enum class ScalarOp : uint8_t {
  // arithmetic; integers wrap, division by zero gives -1 (all ones) and min / -1 gives min, as StableHLO's CPU does
  kAdd,
  kSub,
  kMul,
  kDiv,
  kRem,
  kMin,
  kMax,  // min and max propagate NaN
  kNeg,
  kAbs,
  kSign,
  // bits and truth; on bool these are logical
  kAnd,
  kOr,
  kXor,
  kNot,
  kShl,
  kShrLogical,
  kShrArithmetic,
  kPopcount,
  kClz,
  // rounding
  kFloor,
  kCeil,
  kRoundAway,
  kRoundEven,
  kTrunc,
  // functions of floats
  kSqrt,
  kRsqrt,
  kCbrt,
  kExp,
  kExp2,
  kExpm1,
  kLog,
  kLog2,
  kLog1p,
  kLogistic,
  kTanh,
  kErf,
  kErfInv,
  kGelu,      // x (1 + erf(x / sqrt 2)) / 2, without the loss below 0
  kGeluTanh,  // x logistic(sqrt(8 / pi) (x + 0.044715 x^3))
  kSilu,      // x logistic(x)
  kSin,
  kCos,
  kTan,
  kAtan2,
  kPow,
  kIsFinite,
  kIsNan,
  // comparisons give bool; ordered but for kNe
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  // high 32 bits of a u32 product
  kMulHi,
};

// Thread rule: one builder, one thread. Operands of a binary operation have one dtype.
class ScalarBuilder {
 public:
  virtual ~ScalarBuilder() = default;
  virtual ScalarValue Unary(ScalarOp op, ScalarValue x) = 0;
  virtual ScalarValue Binary(ScalarOp op, ScalarValue x, ScalarValue y) = 0;
  virtual ScalarValue Select(ScalarValue condition, ScalarValue x, ScalarValue y) = 0;
  virtual ScalarValue Fma(ScalarValue x, ScalarValue y, ScalarValue z) = 0;
  virtual ScalarValue Constant(DType dtype, double value) = 0;
  virtual ScalarValue IntConstant(DType dtype, int64_t value) = 0;
  // Value conversion; to bool: not equal 0. Float to integer truncates and saturates.
  virtual ScalarValue Convert(ScalarValue x, DType to) = 0;
  virtual ScalarValue Bitcast(ScalarValue x, DType to) = 0;  // same width
};

}  // namespace weft::ir
