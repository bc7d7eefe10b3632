// See scalar_code.h.
#include "src/backends/cpu/loop/scalar_code.h"

namespace weft::cpu {

using ir::ScalarOp;
using V = ScalarCode::V;

llvm::Type* ScalarCode::ComputeLlvm(DType dtype) {
  if (IsBool(dtype)) return b_.getInt1Ty();
  if (dtype == DType::kF64) return b_.getDoubleTy();
  if (IsFloat(dtype)) return b_.getFloatTy();
  return b_.getIntNTy(BitsOf(dtype));
}

llvm::Type* ScalarCode::MemoryLlvm(DType dtype) {
  if (dtype == DType::kF32) return b_.getFloatTy();
  if (dtype == DType::kF64) return b_.getDoubleTy();
  return b_.getIntNTy(BytesOf(dtype) * 8);
}

llvm::Type* ScalarCode::Like(V x, llvm::Type* element) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  return vector == nullptr ? element : llvm::FixedVectorType::get(element, vector->getNumElements());
}

V ScalarCode::Int(V like, int64_t value) {
  return llvm::ConstantInt::get(like->getType(), static_cast<uint64_t>(value), true);
}

// Nearest even, without the machine's own conversion, which flushes denormals. NaN keeps its sign and becomes quiet.
V ScalarCode::RoundBF16(V x, BF16Rounding rounding) {
  V bits = b_.CreateBitCast(x, Like(x, b_.getInt32Ty()));
  if (rounding == BF16Rounding::kNone) return bits;
  // Minus 0x7FFF, and minus 1 more if the last digit that stays is odd: AVX-512 has one instruction for the two.
  V minus = b_.CreateXor(b_.CreateAnd(b_.CreateLShr(bits, Int(bits, 16)), Int(bits, 1)), Int(bits, -0x7FFF));
  V rounded = b_.CreateSub(bits, minus);
  if (rounding == BF16Rounding::kAny) {
    V quiet = b_.CreateOr(bits, Int(bits, 0x400000));
    rounded = b_.CreateSelect(b_.CreateFCmpUNO(x, x), quiet, rounded);
  }
  return b_.CreateAnd(rounded, Int(bits, -65536));
}

V ScalarCode::F16Bits(V x) {
  if (target_.isa != Isa::kPortable) {
    return b_.CreateBitCast(b_.CreateFPTrunc(x, Like(x, b_.getHalfTy())), Like(x, b_.getInt16Ty()));
  }
  V bits = b_.CreateBitCast(x, Like(x, b_.getInt32Ty()));
  V magnitude = b_.CreateAnd(bits, Int(bits, 0x7FFFFFFF));
  V sign = b_.CreateAnd(b_.CreateLShr(bits, Int(bits, 16)), Int(bits, 0x8000));
  V odd = b_.CreateAnd(b_.CreateLShr(magnitude, Int(bits, 13)), Int(bits, 1));
  V normal = b_.CreateAdd(b_.CreateAdd(magnitude, Int(bits, 0xFFF - (int64_t{112} << 23))), odd);
  normal = b_.CreateLShr(normal, Int(bits, 13));
  // Below 2^-14: adding a half shifts the value to the place of f16's denormals and rounds it there.
  V as_float = b_.CreateBitCast(magnitude, x->getType());
  V shifted = b_.CreateBitCast(b_.CreateFAdd(as_float, llvm::ConstantFP::get(x->getType(), 0.5)), bits->getType());
  V tiny = b_.CreateSub(shifted, Int(bits, 0x3F000000));
  V result = b_.CreateSelect(b_.CreateICmpULT(magnitude, Int(bits, 0x38800000)), tiny, normal);
  result = b_.CreateSelect(b_.CreateICmpUGE(magnitude, Int(bits, 0x47800000)), Int(bits, 0x7C00), result);
  result = b_.CreateSelect(b_.CreateICmpUGT(magnitude, Int(bits, 0x7F800000)), Int(bits, 0x7E00), result);
  return b_.CreateTrunc(b_.CreateOr(result, sign), Like(x, b_.getInt16Ty()));
}

V ScalarCode::F16Value(V raw) {
  if (target_.isa != Isa::kPortable) {
    return b_.CreateFPExt(b_.CreateBitCast(raw, Like(raw, b_.getHalfTy())), Like(raw, b_.getFloatTy()));
  }
  V bits = b_.CreateZExt(raw, Like(raw, b_.getInt32Ty()));
  V sign = b_.CreateShl(b_.CreateAnd(bits, Int(bits, 0x8000)), Int(bits, 16));
  V magnitude = b_.CreateShl(b_.CreateAnd(bits, Int(bits, 0x7FFF)), Int(bits, 13));
  llvm::Type* type = Like(raw, b_.getFloatTy());
  V scaled = b_.CreateFMul(b_.CreateBitCast(magnitude, type), llvm::ConstantFP::get(type, 0x1p112));
  V special = b_.CreateOr(magnitude, Int(bits, 0x7F800000));
  V is_special = b_.CreateICmpUGE(magnitude, Int(bits, 0x7C00 << 13));
  V value = b_.CreateSelect(is_special, special, b_.CreateBitCast(scaled, bits->getType()));
  return b_.CreateBitCast(b_.CreateOr(value, sign), type);
}

V ScalarCode::FromMemory(V raw, DType dtype) {
  if (IsBool(dtype)) return b_.CreateICmpNE(raw, llvm::Constant::getNullValue(raw->getType()));
  if (dtype == DType::kBF16) {
    V wide = b_.CreateZExt(raw, Like(raw, b_.getInt32Ty()));
    return b_.CreateBitCast(b_.CreateShl(wide, Int(wide, 16)), Like(raw, b_.getFloatTy()));
  }
  if (dtype == DType::kF16) return F16Value(raw);
  return raw;
}

V ScalarCode::ToMemory(V value, DType dtype, BF16Rounding rounding) {
  if (IsBool(dtype)) return b_.CreateZExt(value, Like(value, b_.getInt8Ty()));
  if (dtype == DType::kBF16) {
    V bits = RoundBF16(value, rounding);
    return b_.CreateTrunc(b_.CreateLShr(bits, Int(bits, 16)), Like(value, b_.getInt16Ty()));
  }
  if (dtype == DType::kF16) return F16Bits(value);
  return value;
}

// Towards zero, and if that was not exact the low bit is set: what rounds it once more to at most 22 digits gets what one
// rounding of x would have given (Boldo and Melquiond 2008).
V ScalarCode::F32RoundedToOdd(DType from, V x) {
  llvm::Type* f64 = Like(x, b_.getDoubleTy());
  V wide = x;
  if (!IsFloat(from)) {
    if (BitsOf(from) == 64) {
      // The digits that f64 has no room for go into bit 11, which it has room for.
      V magnitude = IsSigned(from) ? b_.CreateSelect(b_.CreateICmpSLT(x, Int(x, 0)), b_.CreateNeg(x), x) : x;
      V dropped = b_.CreateICmpNE(b_.CreateAnd(magnitude, Int(x, 0x7FF)), Int(x, 0));
      V odd = b_.CreateOr(b_.CreateAnd(magnitude, Int(x, ~int64_t{0x7FF})),
                          b_.CreateSelect(dropped, Int(x, 0x800), Int(x, 0)));
      odd = b_.CreateSelect(b_.CreateICmpUGE(magnitude, Int(x, int64_t{1} << 53)), odd, magnitude);
      wide = b_.CreateUIToFP(odd, f64);
      if (IsSigned(from)) wide = b_.CreateSelect(b_.CreateICmpSLT(x, Int(x, 0)), b_.CreateFNeg(wide), wide);
    } else {
      wide = IsSigned(from) ? b_.CreateSIToFP(x, f64) : b_.CreateUIToFP(x, f64);
    }
  }
  V near = b_.CreateFPTrunc(wide, Like(x, b_.getFloatTy()));
  V back = b_.CreateFPExt(near, f64);
  V bits = b_.CreateBitCast(near, Like(x, b_.getInt32Ty()));
  V beyond = b_.CreateFCmpOGT(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back),
                              b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, wide));
  V inexact = b_.CreateFCmpONE(back, wide);
  V odd = b_.CreateOr(b_.CreateSub(bits, b_.CreateZExt(beyond, bits->getType())), Int(bits, 1));
  return b_.CreateBitCast(b_.CreateSelect(inexact, odd, bits), near->getType());
}

V ScalarCode::Convert(DType from, DType to, V x, bool to_odd) {
  if (to_odd) return F32RoundedToOdd(from, x);
  llvm::Type* type = Like(x, ComputeLlvm(to));
  if (IsBool(to)) {
    V zero = llvm::Constant::getNullValue(x->getType());
    return IsFloat(from) ? b_.CreateFCmpUNE(x, zero) : b_.CreateICmpNE(x, zero);
  }
  if (IsFloat(to)) {
    if (IsFloat(from)) return b_.CreateFPCast(x, type);
    return IsSigned(from) ? b_.CreateSIToFP(x, type) : b_.CreateUIToFP(x, type);
  }
  if (IsFloat(from)) {
    return b_.CreateIntrinsic(IsSigned(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat,
                              {type, x->getType()}, {x});
  }
  return b_.CreateIntCast(x, type, IsSigned(from));
}

V ScalarCode::Emit(const Expr& e, DType from, BF16Rounding rounding, bool of_bf16, V const args[3]) {
  if (of_bf16) {
    if (V value = math_.OfBF16(e.op, args[0])) return value;
  }
  switch (e.kind) {
    case ExprKind::kConstant:
      if (IsFloat(e.dtype)) return llvm::ConstantFP::get(ComputeLlvm(e.dtype), e.number);
      return llvm::ConstantInt::get(ComputeLlvm(e.dtype), static_cast<uint64_t>(e.integer), true);
    case ExprKind::kUnary: return Unary(e, from, args[0]);
    case ExprKind::kBinary: return Binary(e, from, args[0], args[1]);
    case ExprKind::kSelect: return b_.CreateSelect(args[0], args[1], args[2]);
    case ExprKind::kFma:
      if (IsFloat(e.dtype)) return math_.Fma(args[0], args[1], args[2]);
      return b_.CreateAdd(b_.CreateMul(args[0], args[1]), args[2]);
    case ExprKind::kConvert: return Convert(from, e.dtype, args[0], e.storage != DType::kInvalid);
    case ExprKind::kBitcast:
      if (IsHalf(e.storage))
        return IsFloat(from) ? ToMemory(args[0], e.storage, BF16Rounding::kNone) : FromMemory(args[0], e.storage);
      if (BitsOf(from) != BitsOf(e.dtype) || IsBool(from) || IsBool(e.dtype)) return nullptr;
      return b_.CreateBitCast(args[0], Like(args[0], ComputeLlvm(e.dtype)));
    case ExprKind::kRound:
      if (e.storage == DType::kBF16) return b_.CreateBitCast(RoundBF16(args[0], rounding), args[0]->getType());
      return F16Value(F16Bits(args[0]));
    default: return nullptr;
  }
}

V ScalarCode::Unary(const Expr& e, DType from, V x) {
  const bool is_float = IsFloat(from);
  switch (e.op) {
    case ScalarOp::kNeg: return is_float ? b_.CreateFNeg(x) : b_.CreateNeg(x);
    case ScalarOp::kAbs:
      if (is_float) return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
      if (!IsSigned(from)) return x;
      return b_.CreateSelect(b_.CreateICmpSLT(x, Int(x, 0)), b_.CreateNeg(x), x);
    case ScalarOp::kSign: {
      if (is_float) {
        V one = llvm::ConstantFP::get(x->getType(), 1);
        V zero = llvm::ConstantFP::get(x->getType(), 0);
        V unit = b_.CreateIntrinsic(llvm::Intrinsic::copysign, {x->getType()}, {one, x});
        return b_.CreateSelect(b_.CreateFCmpONE(x, zero), unit, x);  // NaN and zeros as they are
      }
      if (IsBool(from)) return x;
      V positive = b_.CreateSelect(b_.CreateICmpEQ(x, Int(x, 0)), Int(x, 0), Int(x, 1));
      if (!IsSigned(from)) return positive;
      return b_.CreateSelect(b_.CreateICmpSLT(x, Int(x, 0)), Int(x, -1), positive);
    }
    case ScalarOp::kNot: return b_.CreateNot(x);
    case ScalarOp::kPopcount: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, x);
    case ScalarOp::kClz: return b_.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, x, b_.getFalse());
    case ScalarOp::kFloor: return is_float ? math_.Round(llvm::Intrinsic::floor, x) : x;
    case ScalarOp::kCeil: return is_float ? math_.Round(llvm::Intrinsic::ceil, x) : x;
    case ScalarOp::kRoundAway: return is_float ? math_.Round(llvm::Intrinsic::round, x) : x;
    case ScalarOp::kRoundEven: return is_float ? math_.Round(llvm::Intrinsic::roundeven, x) : x;
    case ScalarOp::kTrunc: return is_float ? math_.Round(llvm::Intrinsic::trunc, x) : x;
    case ScalarOp::kIsNan: return is_float ? b_.CreateFCmpUNO(x, x) : nullptr;
    case ScalarOp::kIsFinite:
      if (!is_float) return nullptr;
      return b_.CreateFCmpOLT(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x),
                              llvm::ConstantFP::getInfinity(x->getType()));
    default: return is_float ? math_.Function(e.op, x, e.storage != DType::kInvalid) : nullptr;
  }
}

// Computes the power by squaring, one step a bit of the exponent. Negative exponents: 1, -1 and 0 as StableHLO's
// division would give.
V ScalarCode::IntPower(DType dtype, V x, V y) {
  V result = Int(x, 1);
  V base = x;
  for (int bit = 0; bit < BitsOf(dtype); ++bit) {
    V set = b_.CreateICmpNE(b_.CreateAnd(y, b_.CreateShl(Int(y, 1), Int(y, bit))), Int(y, 0));
    result = b_.CreateSelect(set, b_.CreateMul(result, base), result);
    if (bit + 1 < BitsOf(dtype)) base = b_.CreateMul(base, base);
  }
  if (!IsSigned(dtype)) return result;
  V odd = b_.CreateICmpNE(b_.CreateAnd(y, Int(y, 1)), Int(y, 0));
  V inverse = b_.CreateSelect(b_.CreateICmpEQ(x, Int(x, -1)), b_.CreateSelect(odd, Int(x, -1), Int(x, 1)), Int(x, 0));
  inverse = b_.CreateSelect(b_.CreateICmpEQ(x, Int(x, 1)), Int(x, 1), inverse);
  return b_.CreateSelect(b_.CreateICmpSLT(y, Int(y, 0)), inverse, result);
}

V ScalarCode::Binary(const Expr& e, DType from, V x, V y) {
  const bool is_float = IsFloat(from), is_bool = IsBool(from), is_signed = IsSigned(from);
  switch (e.op) {
    case ScalarOp::kAdd: return is_float ? b_.CreateFAdd(x, y) : is_bool ? b_.CreateOr(x, y) : b_.CreateAdd(x, y);
    case ScalarOp::kSub: return is_float ? b_.CreateFSub(x, y) : is_bool ? b_.CreateXor(x, y) : b_.CreateSub(x, y);
    case ScalarOp::kMul: return is_float ? b_.CreateFMul(x, y) : is_bool ? b_.CreateAnd(x, y) : b_.CreateMul(x, y);
    case ScalarOp::kMin:
      if (is_float) return math_.Minimum(x, y);
      return b_.CreateSelect(is_signed ? b_.CreateICmpSLT(x, y) : b_.CreateICmpULT(x, y), x, y);
    case ScalarOp::kMax:
      if (is_float) return math_.Maximum(x, y);
      return b_.CreateSelect(is_signed ? b_.CreateICmpSGT(x, y) : b_.CreateICmpUGT(x, y), x, y);
    case ScalarOp::kDiv:
    case ScalarOp::kRem: {
      if (is_float) return e.op == ScalarOp::kDiv ? b_.CreateFDiv(x, y) : math_.Rem(x, y);
      if (is_bool) return nullptr;
      const bool divides = e.op == ScalarOp::kDiv;
      V zero = b_.CreateICmpEQ(y, Int(y, 0));
      V minus = is_signed ? b_.CreateICmpEQ(y, Int(y, -1)) : nullptr;
      V safe = b_.CreateSelect(zero, Int(y, 1), y);
      if (is_signed) safe = b_.CreateSelect(minus, Int(y, 1), safe);
      V result = nullptr;
      if (divides) {
        result = is_signed ? b_.CreateSDiv(x, safe) : b_.CreateUDiv(x, safe);
        if (is_signed) result = b_.CreateSelect(minus, b_.CreateNeg(x), result);
        return b_.CreateSelect(zero, Int(x, -1), result);
      }
      result = is_signed ? b_.CreateSRem(x, safe) : b_.CreateURem(x, safe);
      return b_.CreateSelect(zero, x, result);  // by -1 the safe divisor gives 0 too
    }
    case ScalarOp::kAnd: return b_.CreateAnd(x, y);
    case ScalarOp::kOr: return b_.CreateOr(x, y);
    case ScalarOp::kXor: return b_.CreateXor(x, y);
    case ScalarOp::kShl:
    case ScalarOp::kShrLogical:
    case ScalarOp::kShrArithmetic: {
      if (is_float || is_bool) return nullptr;
      V inside = b_.CreateICmpULT(y, Int(y, BitsOf(from)));
      V amount = b_.CreateSelect(inside, y, Int(y, e.op == ScalarOp::kShrArithmetic ? BitsOf(from) - 1 : 0));
      if (e.op == ScalarOp::kShrArithmetic) return b_.CreateAShr(x, amount);
      V shifted = e.op == ScalarOp::kShl ? b_.CreateShl(x, amount) : b_.CreateLShr(x, amount);
      return b_.CreateSelect(inside, shifted, Int(x, 0));
    }
    case ScalarOp::kMulHi: {
      llvm::Type* wide = Like(x, b_.getInt64Ty());
      V product = b_.CreateMul(b_.CreateZExt(x, wide), b_.CreateZExt(y, wide));
      return b_.CreateTrunc(b_.CreateLShr(product, Int(product, 32)), x->getType());
    }
    case ScalarOp::kAtan2: return is_float ? math_.Atan2(x, y, e.storage != DType::kInvalid) : nullptr;
    case ScalarOp::kPow:
      if (is_float) return math_.Pow(x, y, e.storage != DType::kInvalid);
      return is_bool ? nullptr : IntPower(from, x, y);
    case ScalarOp::kEq: return is_float ? b_.CreateFCmpOEQ(x, y) : b_.CreateICmpEQ(x, y);
    case ScalarOp::kNe: return is_float ? b_.CreateFCmpUNE(x, y) : b_.CreateICmpNE(x, y);
    case ScalarOp::kLt:
      return is_float ? b_.CreateFCmpOLT(x, y) : is_signed ? b_.CreateICmpSLT(x, y) : b_.CreateICmpULT(x, y);
    case ScalarOp::kLe:
      return is_float ? b_.CreateFCmpOLE(x, y) : is_signed ? b_.CreateICmpSLE(x, y) : b_.CreateICmpULE(x, y);
    case ScalarOp::kGt:
      return is_float ? b_.CreateFCmpOGT(x, y) : is_signed ? b_.CreateICmpSGT(x, y) : b_.CreateICmpUGT(x, y);
    case ScalarOp::kGe:
      return is_float ? b_.CreateFCmpOGE(x, y) : is_signed ? b_.CreateICmpSGE(x, y) : b_.CreateICmpUGE(x, y);
    default: return nullptr;
  }
}

V ScalarCode::Combine(ops::Reducer op, DType dtype, V x, V y) {
  // A reduction may give either of two zeros of different sign.
  if (IsFloat(dtype) && op == ops::Reducer::kMax) return math_.Max(x, y);
  if (IsFloat(dtype) && op == ops::Reducer::kMin) return math_.Min(x, y);
  static constexpr ScalarOp kOps[] = {ScalarOp::kAdd, ScalarOp::kMul, ScalarOp::kMax,
                                      ScalarOp::kMin, ScalarOp::kAnd, ScalarOp::kOr};
  Expr e;
  e.op = kOps[static_cast<size_t>(op)];
  e.dtype = dtype;
  return Binary(e, dtype, x, y);
}

}  // namespace weft::cpu
