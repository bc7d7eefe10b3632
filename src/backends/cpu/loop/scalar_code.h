// One scalar expression of the loop IR as LLVM IR, on scalars or vectors, with the edge cases that ir/scalar.h promises;
// and the way between memory's types and computed ones.
#pragma once

#include "src/backends/cpu/loop/bf16_rounding.h"
#include "src/backends/cpu/loop/loop.h"
#include "src/backends/cpu/loop/vector_math.h"

namespace weft::cpu {

class ScalarCode {
 public:
  using V = llvm::Value*;

  ScalarCode(llvm::IRBuilder<>& builder, const CpuTarget& target)
      : b_(builder), target_(target), math_(builder, target) {}

  // i1 for bool; f32, f64 and integers as they are.
  llvm::Type* ComputeLlvm(DType dtype);
  // i8 for bool, i16 for bf16 and f16.
  llvm::Type* MemoryLlvm(DType dtype);

  // Arguments are scalars or vectors of one length; `from` is the first argument's type, `rounding` what its rounding to bf16
  // has to do, `of_bf16` whether it is a BF16Facts::function. Null: no code for this.
  V Emit(const Expr& e, DType from, BF16Rounding rounding, bool of_bf16, V const args[3]);
  V Combine(ops::Reducer op, DType dtype, V x, V y);
  V FromMemory(V raw, DType dtype);
  V ToMemory(V value, DType dtype, BF16Rounding rounding);

 private:
  llvm::Type* Like(V x, llvm::Type* element);
  V Int(V like, int64_t value);
  V Unary(const Expr& e, DType from, V x);
  V Binary(const Expr& e, DType from, V x, V y);
  V IntPower(DType dtype, V x, V y);
  V Convert(DType from, DType to, V x, bool to_odd);
  V F32RoundedToOdd(DType from, V x);
  V RoundBF16(V x, BF16Rounding rounding);  // f32 bits with the low half zero
  V F16Bits(V x);                           // f32 to i16
  V F16Value(V bits);                       // i16 to f32

  llvm::IRBuilder<>& b_;
  const CpuTarget& target_;
  VectorMath math_;
};

}  // namespace weft::cpu
