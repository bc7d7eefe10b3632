// See vector_math.h. Polynomials are Taylor series where these reach 1e-11, else Chebyshev fits; the comment at each says
// of what, on which interval, with which error. tests/cpu/vector_math_test.cc measures every function in ULPs.
#include "src/backends/cpu/loop/vector_math.h"

#include <cmath>
#include <limits>
#include <vector>

namespace weft::cpu {

using ir::ScalarOp;
using V = VectorMath::V;

namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLn2 = 0.693147180559945309417;
constexpr double kLog2E = 1.44269504088896340736;

llvm::Type* WithElement(llvm::Type* like, llvm::Type* element) {
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like)) {
    return llvm::FixedVectorType::get(element, vector->getNumElements());
  }
  return element;
}
bool IsF64(V x) { return x->getType()->getScalarType()->isDoubleTy(); }
}  // namespace

V VectorMath::Constant(V like, double value) { return llvm::ConstantFP::get(like->getType(), value); }
V VectorMath::IntConstant(llvm::Type* type, int64_t value) {
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(value), true);
}
llvm::Type* VectorMath::IntTypeOf(V x) {
  return WithElement(x->getType(), IsF64(x) ? b_.getInt64Ty() : static_cast<llvm::Type*>(b_.getInt32Ty()));
}

V VectorMath::Fma(V x, V y, V z) {
  if (target_.has_fma) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, z});
  if (IsF64(x)) return b_.CreateFAdd(b_.CreateFMul(x, y), z);
  // The product of two f32 is exact in f64.
  llvm::Type* wide = WithElement(x->getType(), b_.getDoubleTy());
  V sum = b_.CreateFAdd(b_.CreateFMul(b_.CreateFPExt(x, wide), b_.CreateFPExt(y, wide)), b_.CreateFPExt(z, wide));
  return b_.CreateFPTrunc(sum, x->getType());
}

V VectorMath::ProductLow(V x, V y, V product) {
  if (target_.has_fma) return Fma(x, y, b_.CreateFNeg(product));
  // Veltkamp's halves of 26 bits; without overflow below 2^996.
  const auto high = [&](V v) {
    V scaled = b_.CreateFMul(v, Constant(v, 134217729));  // 2^27 + 1
    return b_.CreateFSub(scaled, b_.CreateFSub(scaled, v));
  };
  V xh = high(x), yh = high(y);
  V xl = b_.CreateFSub(x, xh), yl = b_.CreateFSub(y, yh);
  V low = b_.CreateFSub(b_.CreateFMul(xh, yh), product);
  low = b_.CreateFAdd(b_.CreateFAdd(low, b_.CreateFMul(xh, yl)), b_.CreateFMul(xl, yh));
  return b_.CreateFAdd(low, b_.CreateFMul(xl, yl));
}

V VectorMath::Poly(V x, std::initializer_list<double> ascending) {
  const double* c = ascending.end();
  V p = Constant(x, *--c);
  while (c != ascending.begin()) p = Fma(p, x, Constant(x, *--c));
  return p;
}

V VectorMath::Max(V x, V y) {
  const bool cx = llvm::isa<llvm::Constant>(x);
  if (cx) std::swap(x, y);
  V greater = b_.CreateSelect(b_.CreateFCmpOGT(y, x), y, x);  // a NaN in x stays
  auto* constant = llvm::dyn_cast<llvm::Constant>(y);
  if (constant != nullptr && !constant->isNaN()) return greater;
  return b_.CreateSelect(b_.CreateFCmpUNO(y, y), y, greater);
}

V VectorMath::Min(V x, V y) {
  const bool cx = llvm::isa<llvm::Constant>(x);
  if (cx) std::swap(x, y);
  V less = b_.CreateSelect(b_.CreateFCmpOLT(y, x), y, x);
  auto* constant = llvm::dyn_cast<llvm::Constant>(y);
  if (constant != nullptr && !constant->isNaN()) return less;
  return b_.CreateSelect(b_.CreateFCmpUNO(y, y), y, less);
}

V VectorMath::Maximum(V x, V y) {
  if (llvm::isa<llvm::Constant>(x)) std::swap(x, y);
  if (auto* constant = llvm::dyn_cast<llvm::Constant>(y); constant != nullptr && !constant->isNaN()) {
    // A tie gives the constant, a NaN stays.
    return constant->isNullValue() ? b_.CreateSelect(b_.CreateFCmpUGT(x, y), x, y) : Max(x, y);
  }
  return OfEqual(x, y, Max(x, y), llvm::Instruction::And);
}

V VectorMath::Minimum(V x, V y) {
  if (llvm::isa<llvm::Constant>(x)) std::swap(x, y);
  if (auto* constant = llvm::dyn_cast<llvm::Constant>(y); constant != nullptr && !constant->isNaN()) {
    return constant->isNegativeZeroValue() ? b_.CreateSelect(b_.CreateFCmpULT(x, y), x, y) : Min(x, y);
  }
  return OfEqual(x, y, Min(x, y), llvm::Instruction::Or);
}

// Chooses between two zeros: the sign that both have (And), or either has (Or).
V VectorMath::OfEqual(V x, V y, V other, llvm::Instruction::BinaryOps join) {
  llvm::Type* type = x->getType();
  llvm::Type* bits = type->getWithNewType(b_.getIntNTy(type->getScalarSizeInBits()));
  V both = b_.CreateBinOp(join, b_.CreateBitCast(x, bits), b_.CreateBitCast(y, bits));
  return b_.CreateSelect(b_.CreateFCmpOEQ(x, y), b_.CreateBitCast(both, type), other);
}

// Without SSE4.1 LLVM calls libm for each of these; the magic-number form needs no call and no branch.
V VectorMath::Round(llvm::Intrinsic::ID rounding, V x) {
  if (rounding == llvm::Intrinsic::round) {
    // Half away from zero: trunc(|x| + the largest number below a half), sign of x.
    V magnitude = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
    const double almost_half = IsF64(x) ? 0.49999999999999994 : static_cast<double>(0.49999997f);
    return CopySign(Round(llvm::Intrinsic::trunc, b_.CreateFAdd(magnitude, Constant(x, almost_half))), x);
  }
  if (target_.isa != Isa::kPortable) return b_.CreateUnaryIntrinsic(rounding, x);
  const double magic = IsF64(x) ? 4503599627370496.0 : 8388608.0;  // 2^52, 2^23: from here on all are integers
  V magnitude = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  V rounded = b_.CreateFSub(b_.CreateFAdd(magnitude, Constant(x, magic)), Constant(x, magic));
  V one = Constant(x, 1);
  V zero = Constant(x, 0);
  if (rounding == llvm::Intrinsic::trunc) {
    rounded = b_.CreateFSub(rounded, b_.CreateSelect(b_.CreateFCmpOGT(rounded, magnitude), one, zero));
  }
  V is_small = b_.CreateFCmpOLT(magnitude, Constant(x, magic));
  V signed_value = CopySign(rounded, x);
  if (rounding == llvm::Intrinsic::floor) {
    signed_value = b_.CreateFSub(signed_value, b_.CreateSelect(b_.CreateFCmpOGT(signed_value, x), one, zero));
    signed_value = CopySign(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, signed_value), x);
  } else if (rounding == llvm::Intrinsic::ceil) {
    signed_value = b_.CreateFAdd(signed_value, b_.CreateSelect(b_.CreateFCmpOLT(signed_value, x), one, zero));
    signed_value = CopySign(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, signed_value), x);
  }
  return b_.CreateSelect(is_small, signed_value, x);
}

V VectorMath::CopySign(V magnitude, V sign) {
  return b_.CreateIntrinsic(llvm::Intrinsic::copysign, {magnitude->getType()}, {magnitude, sign});
}

V VectorMath::CallPerLane(const std::string& name, V x, V y) {
  llvm::Type* element = x->getType()->getScalarType();
  llvm::Module* module = b_.GetInsertBlock()->getModule();
  std::vector<llvm::Type*> types(y == nullptr ? 1 : 2, element);
  const std::string symbol = element->isDoubleTy() ? name : name + "f";
  llvm::FunctionCallee callee = module->getOrInsertFunction(symbol, llvm::FunctionType::get(element, types, false));
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (vector == nullptr) {
    return y == nullptr ? b_.CreateCall(callee, {x}) : b_.CreateCall(callee, {x, y});
  }
  V result = llvm::PoisonValue::get(x->getType());
  for (uint64_t lane = 0; lane < vector->getNumElements(); ++lane) {
    V a = b_.CreateExtractElement(x, lane);
    V r = y == nullptr ? b_.CreateCall(callee, {a}) : b_.CreateCall(callee, {a, b_.CreateExtractElement(y, lane)});
    result = b_.CreateInsertElement(result, r, lane);
  }
  return result;
}

V VectorMath::Pow2(V n) {
  V biased = b_.CreateAdd(n, IntConstant(n->getType(), 1023));
  return b_.CreateBitCast(b_.CreateShl(biased, IntConstant(n->getType(), 52)),
                          WithElement(n->getType(), b_.getDoubleTy()));
}

// expm1(r), |r| <= 0.347; Taylor to r^10, 1e-12 relative.
V VectorMath::ExpSeries(V r) {
  V q = Poly(r, {1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320, 1. / 362880, 1. / 3628800});
  return Fma(b_.CreateFMul(r, r), q, r);
}

// expm1(r) for x = n ln 2 + r.
V VectorMath::ExpReduced(V x, V* n) {
  V rounded = Round(llvm::Intrinsic::roundeven, b_.CreateFMul(x, Constant(x, kLog2E)));
  V r = Fma(rounded, Constant(x, -0.693147180369123816490), x);  // ln 2 in two parts: n times the first is exact
  r = Fma(rounded, Constant(x, -1.90821492927058770002e-10), r);
  *n = b_.CreateFPToSI(rounded, IntTypeOf(x));
  return ExpSeries(r);
}

// Clamped to where f32 has long overflowed or vanished, so that 2^n is a normal f64; NaN becomes 0.
V VectorMath::Tame(V x, double limit) {
  V clamped = Min(Max(x, Constant(x, -limit)), Constant(x, limit));
  return b_.CreateSelect(b_.CreateFCmpUNO(x, x), Constant(x, 0), clamped);
}

V VectorMath::Exp64(V x) {
  V n = nullptr;
  V r = ExpReduced(Tame(x, 200), &n);
  V result = b_.CreateFMul(b_.CreateFAdd(r, Constant(x, 1)), Pow2(n));
  // Whole zeros and infinities, lest an infinity times what stands for 0 be one.
  result = b_.CreateSelect(b_.CreateFCmpOLT(x, Constant(x, -200)), Constant(x, 0), result);
  result = b_.CreateSelect(b_.CreateFCmpOGT(x, Constant(x, 200)), Constant(x, kInf), result);
  return b_.CreateSelect(b_.CreateFCmpUNO(x, x), x, result);
}

V VectorMath::Expm164(V x) {
  V n = nullptr;
  V r = ExpReduced(Tame(x, 200), &n);
  V scale = Pow2(n);
  V result = Fma(r, scale, b_.CreateFSub(scale, Constant(x, 1)));
  V unchanged = b_.CreateFCmpUEQ(x, Constant(x, 0));  // -0 or NaN
  return b_.CreateSelect(unchanged, x, result);
}

// A whole x has r = 0 and comes out exactly.
V VectorMath::Exp2Wide(V x) {
  V tame = Tame(x, 300);
  V rounded = Round(llvm::Intrinsic::roundeven, tame);
  V r = b_.CreateFMul(b_.CreateFSub(tame, rounded), Constant(x, kLn2));
  V result = b_.CreateFMul(b_.CreateFAdd(ExpSeries(r), Constant(x, 1)), Pow2(b_.CreateFPToSI(rounded, IntTypeOf(x))));
  return b_.CreateSelect(b_.CreateFCmpUNO(x, x), x, result);
}

// x = 2^n m, m in [0.707, 1.414], for x from f32 (denormals of f32 are normal here): ln m by 2 atanh((m-1)/(m+1)), n.
V VectorMath::LogReduced(V x, V* n) {
  llvm::Type* i64 = IntTypeOf(x);
  V bits = b_.CreateBitCast(x, i64);
  V offset = b_.CreateSub(bits, IntConstant(i64, 0x3FE6A09E667F3BCD));  // of sqrt(1/2)
  V exponent = b_.CreateAShr(offset, IntConstant(i64, 52));
  V m = b_.CreateBitCast(b_.CreateSub(bits, b_.CreateShl(exponent, IntConstant(i64, 52))), x->getType());
  V s = b_.CreateFDiv(b_.CreateFSub(m, Constant(x, 1)), b_.CreateFAdd(m, Constant(x, 1)));
  V z = b_.CreateFMul(s, s);
  V p = Poly(z, {2., 2. / 3, 2. / 5, 2. / 7, 2. / 9, 2. / 11, 2. / 13, 2. / 15, 2. / 17});
  *n = b_.CreateSIToFP(b_.CreateTrunc(exponent, WithElement(i64, b_.getInt32Ty())), x->getType());
  return b_.CreateFMul(s, p);
}

V VectorMath::LogEdges(V x, V log) {
  V result = b_.CreateSelect(b_.CreateFCmpOEQ(x, Constant(x, 0)), Constant(x, -kInf), log);
  result = b_.CreateSelect(b_.CreateFCmpOLT(x, Constant(x, 0)), Constant(x, std::nan("")), result);
  V unchanged = b_.CreateFCmpUEQ(x, Constant(x, kInf));  // +inf or NaN
  return b_.CreateSelect(unchanged, x, result);
}

V VectorMath::Log64(V x) {
  V n = nullptr;
  V m = LogReduced(x, &n);
  return LogEdges(x, Fma(n, Constant(x, kLn2), m));
}

// A power of two has ln m = 0 and comes out exactly.
V VectorMath::Log2Wide(V x) {
  V n = nullptr;
  V m = LogReduced(x, &n);
  return LogEdges(x, Fma(m, Constant(x, kLog2E), n));
}

V VectorMath::Erf64(V x) {
  V magnitude = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  V z = b_.CreateFMul(x, x);
  // Taylor on [0, 1]: (-1)^n / (n! (2n + 1)) times 2 / sqrt(pi); 1e-11.
  constexpr double k = 1.12837916709551257390;
  V small =
      b_.CreateFMul(x, Poly(z, {k, -k / 3, k / 10, -k / 42, k / 216, -k / 1320, k / 9360, -k / 75600, k / 685440,
                                -k / 6894720, k / 76204800, -k / 918086400, k / 11975040000., -k / 168129561600.}));
  // ln erfc on [1, 4.1], 8e-11; erf is 1 in f32 from 3.92 on.
  V clamped = Min(Max(magnitude, Constant(x, 1)), Constant(x, 4.1));
  V log_erfc =
      Poly(clamped, {0.0000596225343606016434, -1.12876269382246861, -0.635513115870016728, -0.104656372032401435,
                     0.021208848277710486, -0.00131164915871957502, -0.00101403450043575889, 0.000490110211245771812,
                     -0.000124788978071433346, 0.0000206512789452665213, -2.22665658755214188e-6,
                     1.43035784420481997e-7, -4.16884475415543267e-9});
  V n = nullptr;
  V finite = b_.CreateSelect(b_.CreateFCmpUNO(x, x), Constant(x, -1), log_erfc);
  V e = ExpReduced(finite, &n);
  V erfc = b_.CreateFMul(b_.CreateFAdd(e, Constant(x, 1)), Pow2(n));
  V large = CopySign(b_.CreateFSub(Constant(x, 1), erfc), x);
  V result = b_.CreateSelect(b_.CreateFCmpOLT(magnitude, Constant(x, 1)), small, large);
  return b_.CreateSelect(b_.CreateFCmpUNO(x, x), x, result);
}

// x P(x), P the normal distribution function. P(-t) = e^(-t^2 / 2) G(u) / (t + 4), u = (t - 4) / (t + 4): a fit of G up to
// t = 14.6, where even the denormals of f32 end (5e-13). x goes to the other factor than the exponential, which may be a denormal.
V VectorMath::Gelu64(V x) {
  V t = Min(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), Constant(x, 21));  // e^-220 is 0 here
  V e = Exp64(b_.CreateFMul(b_.CreateFMul(t, t), Constant(x, -0.5)));
  V inverse = b_.CreateFDiv(Constant(t, 1), b_.CreateFAdd(t, Constant(t, 4)));
  V u = b_.CreateFMul(b_.CreateFSub(t, Constant(t, 4)), inverse);
  V fit = Poly(u, {0.755285130415729793, -0.607896641972489693, 0.387137400742339979, -0.186521857876243108,
                   0.0603965750638508659, -0.00754019132518274586, -0.00347969793198114186, 0.00163084245289542651,
                   0.000133410093128310621, -0.000231189249206903352, -2.26641306655307149e-6, 0.000035188969120902255,
                   1.60793888190200844e-6, -5.35779103037778149e-6, -1.36670128967137719e-6});
  V positive = b_.CreateFCmpOGT(x, Constant(x, 0));
  V factor = b_.CreateSelect(positive, t, x);  // t is finite where x may not be
  V lower = b_.CreateFMul(b_.CreateFMul(factor, b_.CreateFMul(fit, inverse)), e);
  return b_.CreateSelect(positive, b_.CreateFSub(x, lower), lower);
}

// x * f(w), w = -ln(1 - x^2): fits of f in w - 2.5 for w < 5 (3e-12) and in sqrt(w) - 3 beyond (4e-11).
V VectorMath::ErfInv64(V x) {
  V one = Constant(x, 1);
  V w = b_.CreateFNeg(Log64(b_.CreateFMul(b_.CreateFSub(one, x), b_.CreateFAdd(one, x))));
  V central = Poly(b_.CreateFSub(w, Constant(x, 2.5)),
                   // the fit's variable runs over [-2.5, 2.5]
                   {1.50140935111079192, 0.246640276730559321, -0.00417731772599163957, -0.00125270782607625833,
                    0.00021825027393418203, -4.99622276136669528e-6, -3.41663610307791287e-6, 4.7883694126272847e-7,
                    1.34292871422317946e-8, -1.09066557431078274e-8, 9.02488144787148813e-10, 1.29824460433323252e-10,
                    -3.01223460211607582e-11, -3.3888175188593955e-13, 4.38499531170088807e-13});
  V root = b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, Min(w, Constant(x, 40)));
  V tail = Poly(b_.CreateFSub(root, Constant(x, 3)),
                {2.83297679873344023, 1.00167527630567647, 0.00944552165573848652, -0.00764378946889132852,
                 0.00568517996800564168, -0.0035589849346296773, 0.00148386503836454872, -0.000147952481567231513,
                 -0.00028414171451401234, 0.000203450343856014213, -0.000043182238544820324, -0.0000215408499399565396,
                 0.0000173488139219379583, -4.37511734335561011e-6, 3.2337044981309482e-7});
  V result = b_.CreateFMul(x, b_.CreateSelect(b_.CreateFCmpOLT(w, Constant(x, 5)), central, tail));
  V magnitude = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  result = b_.CreateSelect(b_.CreateFCmpOEQ(magnitude, one), CopySign(Constant(x, kInf), x), result);
  return b_.CreateSelect(b_.CreateFCmpUGT(magnitude, one), Constant(x, std::nan("")), result);
}

// x in [0, 1]: above tan(pi/8) around pi/4. Taylor on [0, 0.4143], 1e-11.
V VectorMath::Atan64(V x) {
  V one = Constant(x, 1);
  V high = b_.CreateFCmpOGT(x, Constant(x, 0.41421356237309503));
  V t = b_.CreateSelect(high, b_.CreateFDiv(b_.CreateFSub(x, one), b_.CreateFAdd(x, one)), x);
  V z = b_.CreateFMul(t, t);
  V p = Poly(z, {1., -1. / 3, 1. / 5, -1. / 7, 1. / 9, -1. / 11, 1. / 13, -1. / 15, 1. / 17, -1. / 19, 1. / 21,
                 -1. / 23, 1. / 25});
  return Fma(t, p, b_.CreateSelect(high, Constant(x, 0.78539816339744830962), Constant(x, 0)));
}

// |x| <= 2^20: n = round(x 2 / pi) below 2^20, three parts of pi / 2 of 33 bits each.
void VectorMath::SinCos64(V x, V* sine, V* cosine) {
  V n = Round(llvm::Intrinsic::roundeven, b_.CreateFMul(x, Constant(x, 0.63661977236758134308)));
  V r = Fma(n, Constant(x, -1.57079632673412561417), x);
  r = Fma(n, Constant(x, -6.07710050630396597660e-11), r);
  r = Fma(n, Constant(x, -2.02226624879595063154e-21), r);
  V z = b_.CreateFMul(r, r);
  V s = Poly(z, {-1. / 6, 1. / 120, -1. / 5040, 1. / 362880, -1. / 39916800, 1. / 6227020800.});
  s = Fma(b_.CreateFMul(z, r), s, r);
  V c = Poly(z, {1., -1. / 2, 1. / 24, -1. / 720, 1. / 40320, -1. / 3628800, 1. / 479001600., -1. / 87178291200.});
  llvm::Type* i64 = IntTypeOf(x);
  V quadrant = b_.CreateFPToSI(n, WithElement(i64, b_.getInt32Ty()));
  llvm::Type* i32 = quadrant->getType();
  const auto bit = [&](V value, int64_t mask) {
    return b_.CreateICmpNE(b_.CreateAnd(value, IntConstant(i32, mask)), IntConstant(i32, 0));
  };
  V swap = bit(quadrant, 1);
  V sine_value = b_.CreateSelect(swap, c, s);
  V cosine_value = b_.CreateSelect(swap, s, c);
  *sine = b_.CreateSelect(bit(quadrant, 2), b_.CreateFNeg(sine_value), sine_value);
  *cosine =
      b_.CreateSelect(bit(b_.CreateAdd(quadrant, IntConstant(i32, 1)), 2), b_.CreateFNeg(cosine_value), cosine_value);
}

V VectorMath::Unless(V in_range, llvm::function_ref<V()> fast, llvm::function_ref<V()> slow) {
  llvm::LLVMContext& context = b_.getContext();
  llvm::Function* function = b_.GetInsertBlock()->getParent();
  V all = in_range->getType()->isVectorTy() ? b_.CreateAndReduce(in_range) : in_range;
  auto* fast_block = llvm::BasicBlock::Create(context, "", function);
  auto* slow_block = llvm::BasicBlock::Create(context, "", function);
  auto* join = llvm::BasicBlock::Create(context, "", function);
  b_.CreateCondBr(all, fast_block, slow_block);
  b_.SetInsertPoint(fast_block);
  V fast_result = fast();
  auto* fast_end = b_.GetInsertBlock();
  b_.CreateBr(join);
  b_.SetInsertPoint(slow_block);
  V slow_result = slow();
  auto* slow_end = b_.GetInsertBlock();
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
  llvm::PHINode* phi = b_.CreatePHI(fast_result->getType(), 2);
  phi->addIncoming(fast_result, fast_end);
  phi->addIncoming(slow_result, slow_end);
  return phi;
}

// Huge angles go to libm, out of line: a vector with one takes the slow way whole.
V VectorMath::Trig(ScalarOp op, V x) {
  const char* name = op == ScalarOp::kSin ? "sin" : op == ScalarOp::kCos ? "cos" : "tan";
  V in_range = b_.CreateFCmpULE(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), Constant(x, 1048576));
  const auto fast = [&] {
    V wide = IsF64(x) ? x : b_.CreateFPExt(x, WithElement(x->getType(), b_.getDoubleTy()));
    V sine = nullptr, cosine = nullptr;
    SinCos64(b_.CreateSelect(b_.CreateFCmpUNO(wide, wide), Constant(wide, 0), wide), &sine, &cosine);
    V result = op == ScalarOp::kSin ? sine : op == ScalarOp::kCos ? cosine : b_.CreateFDiv(sine, cosine);
    result = b_.CreateFPCast(result, x->getType());
    if (op != ScalarOp::kCos) result = b_.CreateSelect(b_.CreateFCmpOEQ(x, Constant(x, 0)), x, result);  // -0
    return b_.CreateSelect(b_.CreateFCmpUNO(x, x), x, result);
  };
  return Unless(in_range, fast, [&] { return CallPerLane(name, x); });
}

// Fit for |r| <= 0.347, 1.4e-9 of exp(r).
V VectorMath::ExpTailF32(V r) {
  return Poly(r, {0.500000001348105802, 0.166666666816401663, 0.0416664647729668138, 0.00833331090856545328,
                  0.00139336669000069318, 0.000198910095963083161});
}

bool VectorMath::HasScale(V x) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  return target_.isa == Isa::kAvx512 && vector != nullptr && vector->getNumElements() == 16;
}
V VectorMath::Scale(V x, V n) {
  return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                            {x, n, x, b_.getInt16(-1), b_.getInt32(4)});
}

// e^r 2^n in f32 for |r| <= 0.347. n is NaN where r is.
V VectorMath::ExpScaledF32(V r, V n) {
  V p = b_.CreateFAdd(Fma(b_.CreateFMul(r, r), ExpTailF32(r), r), Constant(r, 1));
  if (HasScale(r)) return Scale(p, n);
  // 2^n in two factors, so that denormals and the last binade below overflow come out.
  llvm::Type* i32 = IntTypeOf(r);
  V i = b_.CreateFPToSI(b_.CreateSelect(b_.CreateFCmpUNO(n, n), Constant(r, 0), n), i32);
  V half = b_.CreateAShr(i, IntConstant(i32, 1));
  const auto power = [&](V e) {
    return b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(e, IntConstant(i32, 127)), IntConstant(i32, 23)), r->getType());
  };
  return b_.CreateFMul(b_.CreateFMul(p, power(half)), power(b_.CreateSub(i, half)));
}

// About 0.8 ULP. `low`, if given, is what x lost when it was rounded. NaN comes through the arithmetic.
V VectorMath::ExpF32(V x, V low, bool can_be_positive) {
  // The result is 0 below -104. On Intel's processors `vscalefps` takes 70 ns for a vector with a result below the normal numbers, but not
  // where n is below -511, as it is for what a mask hides.
  V clamped = Max(x, Constant(x, HasScale(x) ? -360 : -104));
  if (can_be_positive) clamped = Min(clamped, Constant(x, 89));
  V n = b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, b_.CreateFMul(clamped, Constant(x, kLog2E)));
  V r = Fma(n, Constant(x, -0.693145751953125), clamped);
  r = Fma(n, Constant(x, -1.42860682030941723212e-6), r);
  if (low != nullptr) r = b_.CreateFAdd(r, low);
  return ExpScaledF32(r, n);
}

V VectorMath::Exp2F32(V x) {
  V clamped = Min(Max(x, Constant(x, HasScale(x) ? -520 : -151)), Constant(x, 129));  // as in ExpF32
  V n = b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, clamped);
  return ExpScaledF32(b_.CreateFMul(b_.CreateFSub(clamped, n), Constant(x, kLn2)), n);
}

// With e = e^-|x| and d = e / (1 + e): 1 - d, and below 0 e - e d. About 1.7 ULP, as d counts for half at most.
V VectorMath::LogisticF32(V x) {
  V one = Constant(x, 1);
  V e = ExpF32(b_.CreateFNeg(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x)), nullptr, false);
  V d = b_.CreateFDiv(e, b_.CreateFAdd(one, e));
  return b_.CreateSelect(b_.CreateFCmpOLT(x, Constant(x, 0)), Fma(b_.CreateFNeg(e), d, e), b_.CreateFSub(one, d));
}

// w = -ln(1 - x^2) from f64: x + x (w g(w) + sqrt(pi) / 2 - 1) for w < 5 (6e-9), x times a fit in sqrt(w) - 3 beyond (8e-9).
// About 1.7 ULP.
V VectorMath::ErfInvF32(V x) {
  V one = Constant(x, 1);
  V wide = b_.CreateFPExt(x, WithElement(x->getType(), b_.getDoubleTy()));
  V log = Log64(b_.CreateFMul(b_.CreateFSub(Constant(wide, 1), wide), b_.CreateFAdd(Constant(wide, 1), wide)));
  V w = b_.CreateFNeg(b_.CreateFPTrunc(log, x->getType()));
  V g = Poly(w, {0.232013662699, 0.0115494955366, -0.00233611646933, -0.000125439837512, 4.32277421821e-5,
                 4.52387330212e-6, -2.11326230265e-6, 2.42152765319e-7, -1.0611781386e-8, 6.71942166321e-11});
  V central = Fma(x, Fma(w, g, Constant(x, 0.88622692545275801365 - 1)), x);
  V root = b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, Max(w, Constant(x, 5)));
  V tail = Poly(b_.CreateFSub(root, Constant(x, 3)),
                {2.83297679595, 1.00167503548, 0.00944564508792, -0.0076385921417, 0.00568360492798, -0.00359055212636,
                 0.00149460190233, -7.07736481143e-5, -0.000317686706742, 0.000125706943734});
  V result = b_.CreateSelect(b_.CreateFCmpOLT(w, Constant(x, 5)), central, b_.CreateFMul(x, tail));
  V edge = b_.CreateFCmpOEQ(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), one);
  return CopySign(b_.CreateSelect(edge, Constant(x, kInf), result), x);  // -0 too
}

// Below 1: x + x q(x^2), 3e-11; from 1: 1 - exp of a fit of ln erfc up to 3.95 (8e-9), where erf is 1 in f32. About 0.8 ULP.
V VectorMath::ErfF32(V x) {
  V magnitude = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  V q = Poly(b_.CreateFMul(x, x),
             {0.12837916706154342, -0.3761263846802871, 0.11283782495236845, -0.026865430727670243,
              0.0052210318078580228, -0.00084840804055351063, 0.00011265959025606609, -9.6670445714869964e-6});
  V small = Fma(x, q, x);
  // Not shifted to the middle: the constant term stays small, and with it the rounding of the last step.
  V log_erfc = Poly(Min(Max(magnitude, Constant(x, 1)), Constant(x, 3.95)),
                    {0.000407436541399, -1.13063444995, -0.631033342397, -0.110965260533, 0.0270368721147,
                     -0.00503659145822, 0.000677504651773, -6.07634217168e-5, 3.16058821266e-6, -6.84770663768e-8});
  V large = CopySign(b_.CreateFSub(Constant(x, 1), ExpF32(log_erfc, nullptr, false)), x);
  V result = b_.CreateSelect(b_.CreateFCmpOLT(magnitude, Constant(x, 1)), small, large);
  return b_.CreateSelect(b_.CreateFCmpUNO(x, x), x, result);
}

// Below 0.632: x + x^3 q(x^2), fit to 2e-9; beyond: 1 - 2 / (exp(2 |x|) + 1). About 1.5 ULP.
V VectorMath::TanhF32(V x) {
  V magnitude = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  V z = b_.CreateFMul(x, x);
  V q = Poly(z, {-0.333333331493745071, 0.133333001461889147, -0.0539584616274522014, 0.0217625029073592639,
                 -0.00832318705827877452, 0.00226950168416235399});
  V small = Fma(b_.CreateFMul(z, x), q, x);
  V e = ExpF32(Min(b_.CreateFAdd(magnitude, magnitude), Constant(x, 40)));
  V large = b_.CreateFSub(Constant(x, 1), b_.CreateFDiv(Constant(x, 2), b_.CreateFAdd(e, Constant(x, 1))));
  V result = b_.CreateSelect(b_.CreateFCmpOLT(magnitude, Constant(x, 0.63)), small, large);
  return CopySign(result, x);  // -0 too: its series ends in -0 + 0
}

V VectorMath::Function(ScalarOp op, V x, bool to_f32) {
  if (op == ScalarOp::kSqrt) return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
  if (op == ScalarOp::kRsqrt) {
    return b_.CreateFDiv(Constant(x, 1), b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
  }
  if (IsF64(x) && !to_f32) return Double(op, x);
  if (op == ScalarOp::kSin || op == ScalarOp::kCos || op == ScalarOp::kTan) return Trig(op, x);
  if (IsF64(x)) return Wide(op, x);
  if (target_.has_fma) {
    switch (op) {
      case ScalarOp::kExp: return ExpF32(x);
      case ScalarOp::kExp2: return Exp2F32(x);
      case ScalarOp::kTanh: return TanhF32(x);
      case ScalarOp::kLogistic: return LogisticF32(x);
      case ScalarOp::kErf: return ErfF32(x);
      case ScalarOp::kErfInv: return ErfInvF32(x);
      case ScalarOp::kGelu: return GeluF32(x);
      case ScalarOp::kGeluTanh: return GeluTanhF32(x);
      case ScalarOp::kSilu: return SiluF32(x);
      default: break;
    }
  }
  V result = Wide(op, b_.CreateFPExt(x, WithElement(x->getType(), b_.getDoubleTy())));
  return result == nullptr ? nullptr : b_.CreateFPTrunc(result, x->getType());
}

V VectorMath::Wide(ScalarOp op, V x) {
  V one = Constant(x, 1);
  V magnitude = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  V nan = b_.CreateFCmpUNO(x, x);
  switch (op) {
    case ScalarOp::kExp: return Exp64(x);
    case ScalarOp::kExp2: return Exp2Wide(x);
    case ScalarOp::kExpm1: return Expm164(x);
    case ScalarOp::kLog: return Log64(x);
    case ScalarOp::kLog2: return Log2Wide(x);
    case ScalarOp::kLog1p: {
      // ln(u) plus what 1 + x lost, for x in (-1, inf).
      V u = b_.CreateFAdd(one, x);
      V lost = b_.CreateFDiv(b_.CreateFSub(x, b_.CreateFSub(u, one)), u);
      V inside = b_.CreateAnd(b_.CreateFCmpOGT(x, Constant(x, -1)), b_.CreateFCmpOLT(x, Constant(x, kInf)));
      V result = b_.CreateFAdd(Log64(u), b_.CreateSelect(inside, lost, Constant(x, 0)));
      return b_.CreateSelect(b_.CreateFCmpUEQ(x, Constant(x, 0)), x, result);  // -0 or NaN
    }
    case ScalarOp::kLogistic: return b_.CreateFDiv(one, b_.CreateFAdd(one, Exp64(b_.CreateFNeg(x))));
    case ScalarOp::kTanh: {
      V tame = Min(magnitude, Constant(x, 20));
      V e = Expm164(b_.CreateFAdd(tame, tame));
      V result = CopySign(b_.CreateFDiv(e, b_.CreateFAdd(e, Constant(x, 2))), x);
      return b_.CreateSelect(nan, x, result);
    }
    case ScalarOp::kErf: return Erf64(x);
    case ScalarOp::kErfInv: return ErfInv64(x);
    case ScalarOp::kGelu: return Gelu64(x);
    case ScalarOp::kGeluTanh: {
      constexpr double k = 1.59576912160573071176;  // sqrt(8 / pi)
      V slope = Fma(b_.CreateFMul(x, x), Constant(x, k * 0.044715), Constant(x, k));
      return b_.CreateFMul(x, Wide(ScalarOp::kLogistic, b_.CreateFMul(x, slope)));
    }
    case ScalarOp::kSilu: return b_.CreateFMul(x, Wide(ScalarOp::kLogistic, x));
    case ScalarOp::kCbrt: {
      V root = Exp64(Max(b_.CreateFMul(Log64(magnitude), Constant(x, 1. / 3)), Constant(x, -100)));
      V unchanged = b_.CreateOr(b_.CreateFCmpUEQ(magnitude, Constant(x, kInf)), b_.CreateFCmpOEQ(x, Constant(x, 0)));
      return b_.CreateSelect(unchanged, x, CopySign(root, x));
    }
    default: return nullptr;
  }
}

V VectorMath::Atan2(V y, V x, bool to_f32) {
  if (IsF64(x) && !to_f32) return CallPerLane("atan2", y, x);
  llvm::Type* wide = WithElement(x->getType(), b_.getDoubleTy());
  V wy = b_.CreateFPCast(y, wide), wx = b_.CreateFPCast(x, wide);
  V ay = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, wy), ax = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, wx);
  V steep = b_.CreateFCmpOGT(ay, ax);
  V low = b_.CreateSelect(steep, ax, ay), high = b_.CreateSelect(steep, ay, ax);
  V t = b_.CreateFDiv(low, high);
  t = b_.CreateSelect(b_.CreateFCmpOEQ(high, Constant(high, 0)), Constant(t, 0), t);   // 0 / 0
  t = b_.CreateSelect(b_.CreateFCmpOEQ(low, Constant(low, kInf)), Constant(t, 1), t);  // inf / inf
  V angle = Atan64(t);
  angle = b_.CreateSelect(steep, b_.CreateFSub(Constant(angle, 1.57079632679489661923), angle), angle);
  llvm::Type* i64 = IntTypeOf(wx);
  V negative = b_.CreateICmpSLT(b_.CreateBitCast(wx, i64), IntConstant(i64, 0));  // -0 is negative
  angle = b_.CreateSelect(negative, b_.CreateFSub(Constant(angle, 3.14159265358979323846), angle), angle);
  V result = b_.CreateFPCast(CopySign(angle, wy), x->getType());
  return b_.CreateSelect(b_.CreateFCmpUNO(x, y), b_.CreateFAdd(x, y), result);
}

// exp(y ln |x|) in f64: the logarithm's 1e-13 times y ln|x| <= 104 leaves 1e-11.
V VectorMath::Pow(V x, V y, bool to_f32) {
  if (IsF64(x) && !to_f32) return CallPerLane("pow", x, y);
  llvm::Type* wide = WithElement(x->getType(), b_.getDoubleTy());
  V wx = b_.CreateFPCast(x, wide), wy = b_.CreateFPCast(y, wide);
  V one = Constant(wx, 1), zero = Constant(wx, 0), inf = Constant(wx, kInf);
  V ax = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, wx);
  V ay = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, wy);
  V exponent = b_.CreateFMul(Log64(ax), wy);
  exponent = b_.CreateSelect(b_.CreateFCmpOEQ(ax, one), zero, exponent);  // also 0 * inf
  V result = Exp64(exponent);
  // exp(+-200) stands for inf and 0 in f32; exact zeros and infinities of x come out of ln as -inf and inf.
  V integer_y = b_.CreateFCmpOEQ(Round(llvm::Intrinsic::trunc, wy), wy);
  V half = b_.CreateFMul(wy, Constant(wy, 0.5));
  V odd = b_.CreateAnd(integer_y, b_.CreateFCmpONE(Round(llvm::Intrinsic::trunc, half), half));
  odd = b_.CreateAnd(odd, b_.CreateFCmpOLT(ay, inf));
  llvm::Type* i64 = IntTypeOf(wx);
  V sign_bit = b_.CreateICmpSLT(b_.CreateBitCast(wx, i64), IntConstant(i64, 0));
  result = b_.CreateSelect(b_.CreateAnd(sign_bit, odd), b_.CreateFNeg(result), result);
  V negative = b_.CreateAnd(b_.CreateFCmpOLT(wx, zero), b_.CreateFCmpONE(ax, inf));
  V undefined = b_.CreateAnd(negative, b_.CreateNot(integer_y));
  result = b_.CreateSelect(undefined, Constant(wx, std::nan("")), result);
  V unordered = b_.CreateFCmpUNO(wx, wy);
  result = b_.CreateSelect(unordered, b_.CreateFAdd(wx, wy), result);
  V is_one = b_.CreateOr(b_.CreateFCmpOEQ(wy, zero), b_.CreateFCmpOEQ(wx, one));
  result = b_.CreateSelect(is_one, one, result);
  return b_.CreateFPCast(result, x->getType());
}

// Where the quotient is below 2^29 (f32, computed in f64) or 2^52 (f64) the remainder is x less its whole part times y, which is exact: the
// rounded quotient's whole part is at most one too large, and then the sign says so. A vector with another goes to libm whole.
V VectorMath::Rem(V x, V y) {
  const bool f64 = IsF64(x);
  if (f64 && !target_.has_fma) return CallPerLane("fmod", x, y);
  V wide_x = x, wide_y = y;
  if (!f64) {
    llvm::Type* wide = WithElement(x->getType(), b_.getDoubleTy());
    wide_x = b_.CreateFPExt(x, wide);
    wide_y = b_.CreateFPExt(y, wide);
  }
  V quotient = b_.CreateFDiv(wide_x, wide_y);
  V size = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, quotient);
  V divisor = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, wide_y);
  V in_range = b_.CreateFCmpOLT(size, Constant(size, f64 ? 0x1p52 : 0x1p29));
  in_range = b_.CreateAnd(in_range, b_.CreateFCmpOLT(divisor, Constant(divisor, kInf)));
  const auto fast = [&] {
    V whole = Round(llvm::Intrinsic::trunc, quotient);
    V rest = f64 ? Fma(b_.CreateFNeg(whole), wide_y, wide_x) : b_.CreateFSub(wide_x, b_.CreateFMul(whole, wide_y));
    V zero = Constant(rest, 0);
    V crossed =
        b_.CreateSelect(b_.CreateFCmpOLT(wide_x, zero), b_.CreateFCmpOGT(rest, zero), b_.CreateFCmpOLT(rest, zero));
    rest = b_.CreateSelect(crossed, b_.CreateFAdd(rest, CopySign(divisor, wide_x)), rest);
    return b_.CreateFPCast(CopySign(rest, wide_x), x->getType());  // 0 has x's sign, too
  };
  return Unless(in_range, fast, [&] { return CallPerLane("fmod", x, y); });
}

}  // namespace weft::cpu
