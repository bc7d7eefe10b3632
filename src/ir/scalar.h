// The vocabulary of elementwise code. An operation's `scalar` rule writes one element with it; the CPU compiler
// implements it as LLVM vectors, tests as plain doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

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

// The properties that a loop compiler asks of an operation of the vocabulary, by position.
struct ScalarFacts {
  ScalarOp op;
  std::string_view name;
  bool function = false;  // costs more than about five simple ones
  uint8_t roundings = 0;  // of a float result: 0 exact, 1 as if rounded from the exact result, 2 any
};
inline constexpr ScalarFacts kScalarFacts[] = {
    {ScalarOp::kAdd, "add", false, 1},
    {ScalarOp::kSub, "sub", false, 1},
    {ScalarOp::kMul, "mul", false, 1},
    {ScalarOp::kDiv, "div", false, 1},
    {ScalarOp::kRem, "rem"},
    {ScalarOp::kMin, "min"},
    {ScalarOp::kMax, "max"},
    {ScalarOp::kNeg, "neg"},
    {ScalarOp::kAbs, "abs"},
    {ScalarOp::kSign, "sign"},
    {ScalarOp::kAnd, "and"},
    {ScalarOp::kOr, "or"},
    {ScalarOp::kXor, "xor"},
    {ScalarOp::kNot, "not"},
    {ScalarOp::kShl, "shl"},
    {ScalarOp::kShrLogical, "shr"},
    {ScalarOp::kShrArithmetic, "sar"},
    {ScalarOp::kPopcount, "popcount"},
    {ScalarOp::kClz, "clz"},
    {ScalarOp::kFloor, "floor"},
    {ScalarOp::kCeil, "ceil"},
    {ScalarOp::kRoundAway, "round_away"},
    {ScalarOp::kRoundEven, "round_even"},
    {ScalarOp::kTrunc, "trunc"},
    {ScalarOp::kSqrt, "sqrt", false, 1},
    {ScalarOp::kRsqrt, "rsqrt", false, 2},
    {ScalarOp::kCbrt, "cbrt", true, 2},
    {ScalarOp::kExp, "exp", true, 2},
    {ScalarOp::kExp2, "exp2", true, 2},
    {ScalarOp::kExpm1, "expm1", true, 2},
    {ScalarOp::kLog, "log", true, 2},
    {ScalarOp::kLog2, "log2", true, 2},
    {ScalarOp::kLog1p, "log1p", true, 2},
    {ScalarOp::kLogistic, "logistic", true, 2},
    {ScalarOp::kTanh, "tanh", true, 2},
    {ScalarOp::kErf, "erf", true, 2},
    {ScalarOp::kErfInv, "erf_inv", true, 2},
    {ScalarOp::kGelu, "gelu", true, 2},
    {ScalarOp::kGeluTanh, "gelu_tanh", true, 2},
    {ScalarOp::kSilu, "silu", true, 2},
    {ScalarOp::kSin, "sin", true, 2},
    {ScalarOp::kCos, "cos", true, 2},
    {ScalarOp::kTan, "tan", true, 2},
    {ScalarOp::kAtan2, "atan2", true, 2},
    {ScalarOp::kPow, "pow", true, 2},
    {ScalarOp::kIsFinite, "is_finite"},
    {ScalarOp::kIsNan, "is_nan"},
    {ScalarOp::kEq, "eq"},
    {ScalarOp::kNe, "ne"},
    {ScalarOp::kLt, "lt"},
    {ScalarOp::kLe, "le"},
    {ScalarOp::kGt, "gt"},
    {ScalarOp::kGe, "ge"},
    {ScalarOp::kMulHi, "mulhi"},
};
static_assert(
    [] {
      for (size_t i = 0; i < std::size(kScalarFacts); ++i) {
        if (kScalarFacts[i].op != static_cast<ScalarOp>(i)) return false;
      }
      return std::size(kScalarFacts) == static_cast<size_t>(ScalarOp::kMulHi) + 1;
    }(),
    "kScalarFacts lists the operations in their order");
constexpr const ScalarFacts& FactsOf(ScalarOp op) { return kScalarFacts[static_cast<size_t>(op)]; }

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
