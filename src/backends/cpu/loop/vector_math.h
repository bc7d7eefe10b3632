// Functions of f32 and f64 as LLVM IR, for scalars and vectors alike. Straight-line code without calls for f32; f64 goes
// to libm lane by lane. No fast-math flags: NaN, infinities, signed zeros and denormals come out as IEEE asks.
#pragma once

#include "src/backends/cpu/jit/jit_llvm.h"
#include "src/ir/scalar.h"

namespace weft::cpu {

class VectorMath {
 public:
  using V = llvm::Value*;

  VectorMath(llvm::IRBuilder<>& builder, const CpuTarget& target) : b_(builder), target_(target) {}

  // x is float, double or a vector of them. Only the operations called functions in ir/scalar.h, kSqrt to kTan. With
  // `to_f32`, doubles are what f32 or less will be rounded from: 1e-10 is enough, and there are no calls.
  V Function(ir::ScalarOp op, V x, bool to_f32 = false);
  // The same of an f32 that is one of bf16's and for a result that will be rounded to bf16, or null: fewer operations.
  V OfBF16(ir::ScalarOp op, V x);
  V Atan2(V y, V x, bool to_f32 = false);
  V Pow(V x, V y, bool to_f32 = false);
  V Rem(V x, V y);  // C's fmod

  V Round(llvm::Intrinsic::ID rounding, V x);
  V Fma(V x, V y, V z);  // one rounding where the target has it
  V Max(V x, V y);       // NaN if either is; either of two zeros
  V Min(V x, V y);
  V Maximum(V x, V y);  // Max, but 0 above -0
  V Minimum(V x, V y);

 private:
  V OfEqual(V x, V y, V other, llvm::Instruction::BinaryOps join);
  V Constant(V like, double value);
  V IntConstant(llvm::Type* type, int64_t value);
  llvm::Type* IntTypeOf(V x);
  V ProductLow(V x, V y, V product);  // f64: what the product lost, exactly
  V Poly(V x, std::initializer_list<double> ascending);
  V Pow2(V n_int);  // f64: 2^n for -1022 <= n <= 1023
  V CopySign(V magnitude, V sign);
  V CallPerLane(const std::string& f64_name, V x, V y = nullptr);
  // The result of `fast` where all lanes are in range, and that of `slow`, out of line, where one is not.
  V Unless(V in_range, llvm::function_ref<V()> fast, llvm::function_ref<V()> slow);

  // f64 to its last bit or two, by libm and corrections of it.
  V Double(ir::ScalarOp op, V x);
  V CbrtDouble(V x);
  V TanhDouble(V x);
  V ErfInvDouble(V x);
  V LogisticDouble(V x);
  struct Pair {
    V high, low;
  };
  Pair Sum(V x, V y);
  Pair Product(V x, V y);
  Pair Product(Pair x, Pair y);
  Pair ExpPair(Pair exponent, V* scale);
  V ShareEdges(V x, double limit, V result);
  V ShareDouble(V x, Pair exponent, double limit);
  V SiluDouble(V x);
  V GeluTanhDouble(V x);
  V GeluDouble(V x);

  // f32 in f32 arithmetic, for targets with fused multiply-add.
  V ExpF32(V x, V low = nullptr, bool can_be_positive = true);
  bool HasScale(V x);
  V Scale(V x, V n);  // x 2^floor(n) where HasScale, rounded once
  V ExpScaledF32(V r, V n);
  V Exp2F32(V x);
  V LogisticF32(V x);
  V TanhF32(V x);
  V ErfF32(V x);
  V ErfInvF32(V x);
  V ExpTailF32(V r);  // (exp(r) - 1 - r) / r^2
  V WholeF32(V x, double factor, V* shift);
  V ShiftF32(V x, V shift);
  V AboveF32(V x, V lower);
  V ShareF32(V x, V a, V power, V shift);
  V SiluF32(V x);
  V GeluTanhF32(V x);
  V GeluF32(V x);
  // The functions of bf16.
  V Pow2Below1(V y, std::initializer_list<double> fit);
  V ShareOfBF16(V numerator, V power, V y);
  V TanhOfBF16(V x);
  V GeluOfBF16(V x);
  // In f64 arithmetic, accurate to about 1e-10: one rounding to f32 away from correct.
  V Wide(ir::ScalarOp op, V x);
  V Tame(V x, double limit);
  V ExpSeries(V r);
  V ExpReduced(V x, V* n);  // x = n ln 2 + r: expm1(r)
  V Exp64(V x);
  V Expm164(V x);
  V Exp2Wide(V x);
  V LogReduced(V x, V* n);
  V LogEdges(V x, V log);  // 0, negative numbers, +inf, NaN
  V Log64(V x);
  V Log2Wide(V x);
  V Gelu64(V x);
  V Erf64(V x);
  V ErfInv64(V x);
  V Atan64(V x);  // for x in [0, 1]
  void SinCos64(V x, V* sine, V* cosine);
  V Trig(ir::ScalarOp op, V x);

  llvm::IRBuilder<>& b_;
  const CpuTarget& target_;
};

}  // namespace weft::cpu
