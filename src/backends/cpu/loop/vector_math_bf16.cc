// VectorMath's functions from bf16 to bf16. Each has 65,536 arguments, so a fit needs no more digits than these ask for, which in
// the end are chosen among many: every result is the exact one rounded, as it is without these forms and on every instruction
// set. tests/cpu/bf16_functions_test.cc asserts it of every argument; other constants or another order of operations would not do.
#include "src/backends/cpu/loop/vector_math.h"

namespace weft::cpu {

using ir::ScalarOp;
using V = VectorMath::V;

V VectorMath::OfBF16(ScalarOp op, V x) {
  if (!target_.has_fma) return nullptr;
  if (op == ScalarOp::kTanh) return TanhOfBF16(x);
  if (!HasScale(x)) return nullptr;
  constexpr double kLog2E = 1.44269504088896340736, kSlope = 1.59576912160573071176;  // sqrt(8 / pi)
  const auto below = [&](V y) { return Min(y, Constant(x, 64)); };                    // from where on a share is 1
  switch (op) {
    case ScalarOp::kExp: {
      V y = b_.CreateFMul(x, Constant(x, kLog2E));
      return Scale(Pow2Below1(y, {0.999999881, 0.693153143, 0.240154386, 0.0558261089, 0.00899123307, 0.00187799276}),
                   y);
    }
    case ScalarOp::kLogistic: {
      V y = below(b_.CreateFMul(x, Constant(x, kLog2E)));
      V p = Pow2Below1(y, {1.00000012, 0.693153262, 0.240153775, 0.0558266081, 0.00899002422, 0.00187709369});
      return ShareOfBF16(p, p, y);
    }
    case ScalarOp::kSilu: {
      V y = below(b_.CreateFMul(x, Constant(x, kLog2E)));
      V p = Pow2Below1(y, {0.99999994, 0.693152905, 0.240153894, 0.0558260679, 0.00898978487, 0.00187764911});
      return ShareOfBF16(b_.CreateFMul(x, p), p, y);
    }
    case ScalarOp::kGeluTanh: {
      V slope = Fma(b_.CreateFMul(x, x), Constant(x, kSlope * 0.044715 * kLog2E), Constant(x, kSlope * kLog2E));
      V y = below(b_.CreateFMul(x, slope));
      V p = Pow2Below1(y, {0.99999994, 0.693153083, 0.240153611, 0.0558263175, 0.00898934063, 0.00187757669});
      return ShareOfBF16(b_.CreateFMul(x, p), p, y);
    }
    case ScalarOp::kGelu: return GeluOfBF16(x);
    default: return nullptr;
  }
}

// 2^f for y = n + f, n whole and 0 <= f < 1, where fit gives it to 2e-7; f is 0 of infinities. Scale(., y) makes it 2^y.
V VectorMath::Pow2Below1(V y, std::initializer_list<double> fit) {
  constexpr int kLessFloor = 1, kAsIs = 4;
  V f = b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_reduce_ps_512, {},
                           {y, b_.getInt32(kLessFloor), y, b_.getInt16(-1), b_.getInt32(kAsIs)});
  return Poly(f, fit);
}

// numerator 2^n / (1 + 2^y) for power = 2^(y - n). No value before the last operation is denormal.
V VectorMath::ShareOfBF16(V numerator, V power, V y) {
  V sum = b_.CreateFAdd(Scale(power, y), Constant(y, 1));
  return Scale(b_.CreateFDiv(numerator, sum), y);
}

// x P(x^2) / Q(x^2), 7e-6 up to 3.6, where tanh is 1 in bf16.
V VectorMath::TanhOfBF16(V x) {
  V t = Max(Min(x, Constant(x, 3.6)), Constant(x, -3.6));
  V z = b_.CreateFMul(t, t);
  V p = Poly(z, {0.9999932577709, 0.1063563204694, 0.0008110465408835});
  V q = Poly(z, {1, 0.43963366435606, 0.014100596257554});
  return b_.CreateFDiv(b_.CreateFMul(t, p), q);
}

// Computes as GeluF32: max(x, 0) - t e^(-t^2 / 2) G(i) i, t = |x|, i = 1 / (t + 3.8), with a fit of G to 8e-7; NaN for
// -infinity.
V VectorMath::GeluOfBF16(V x) {
  V y = b_.CreateFMul(b_.CreateFMul(x, x), Constant(x, -0.721347451));
  V p = Pow2Below1(y, {0.999999881, 0.693153203, 0.240153834, 0.0558264628, 0.00898864772, 0.00187795085});
  V t = Min(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), Constant(x, 15));
  V i = b_.CreateFDiv(Constant(x, 1), b_.CreateFAdd(t, Constant(x, 3.8)));
  V g = Poly(b_.CreateFSub(i, Constant(x, 0.15)),
             {0.841792345, 5.34235001, 24.9281425, 79.8459167, 135.288101, -93.3153076, -791.851624});
  V lower = Scale(b_.CreateFMul(b_.CreateFMul(t, p), b_.CreateFMul(i, g)), y);
  V share = b_.CreateSelect(b_.CreateFCmpOLT(x, Constant(x, 0)), Constant(x, 0), Constant(x, 1));
  return Fma(x, share, b_.CreateFNeg(lower));
}

}  // namespace weft::cpu
