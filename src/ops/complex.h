// Functions of complex numbers as formulas of two real tensors. OpDef::planes computes with them, and so do readers of
// texts whose functions are no operations of ours. Steps that would overflow or cancel without need are scaled or
// rewritten; infinities and NaN go as C99's Annex G has them, but that the sign of a zero may get lost.
#pragma once

#include <array>

#include "src/ir/planes.h"
#include "src/ops/build.h"

namespace weft::ops {

using ir::Planes;

// The two planes of a complex value, by the operations real and imag; and the complex value of two planes.
Planes PlanesOf(ir::Builder& b, const ir::Value& x);
ir::Value ComplexFrom(ir::Builder& b, const Planes& x);
// The conjugate; of a real value itself.
ir::Value Conj(ir::Builder& b, const ir::Value& x);

Planes ComplexAdd(ir::Builder& b, const Planes& x, const Planes& y);
Planes ComplexSub(ir::Builder& b, const Planes& x, const Planes& y);
Planes ComplexMul(ir::Builder& b, const Planes& x, const Planes& y);
Planes ComplexDiv(ir::Builder& b, const Planes& x, const Planes& y);
Planes ComplexPow(ir::Builder& b, const Planes& x, const Planes& y);
Planes ComplexNeg(ir::Builder& b, const Planes& x);
ir::Value ComplexAbs(ir::Builder& b, const Planes& x);
Planes ComplexSign(ir::Builder& b, const Planes& x);
Planes ComplexExp(ir::Builder& b, const Planes& x);
Planes ComplexExpm1(ir::Builder& b, const Planes& x);
Planes ComplexLog(ir::Builder& b, const Planes& x);
Planes ComplexLog1p(ir::Builder& b, const Planes& x);
Planes ComplexSqrt(ir::Builder& b, const Planes& x);
// The cube root of the least angle: of negative real numbers a complex one.
Planes ComplexCbrt(ir::Builder& b, const Planes& x);
// The angle of (x, y), -i log((x + i y) / sqrt(x^2 + y^2)); `y` is the first operand.
Planes ComplexAtan2(ir::Builder& b, const Planes& y, const Planes& x);
// The larger or smaller one by real parts, and by imaginary ones where these are equal; the one that has a NaN.
Planes ComplexMax(ir::Builder& b, const Planes& x, const Planes& y);
Planes ComplexMin(ir::Builder& b, const Planes& x, const Planes& y);
Planes ComplexRsqrt(ir::Builder& b, const Planes& x);
Planes ComplexSin(ir::Builder& b, const Planes& x);
Planes ComplexCos(ir::Builder& b, const Planes& x);
Planes ComplexTan(ir::Builder& b, const Planes& x);
Planes ComplexSinh(ir::Builder& b, const Planes& x);
Planes ComplexCosh(ir::Builder& b, const Planes& x);
Planes ComplexTanh(ir::Builder& b, const Planes& x);
Planes ComplexSigmoid(ir::Builder& b, const Planes& x);
Planes ComplexAsin(ir::Builder& b, const Planes& x);
Planes ComplexAcos(ir::Builder& b, const Planes& x);
Planes ComplexAtan(ir::Builder& b, const Planes& x);
Planes ComplexAsinh(ir::Builder& b, const Planes& x);
Planes ComplexAcosh(ir::Builder& b, const Planes& x);
Planes ComplexAtanh(ir::Builder& b, const Planes& x);

}  // namespace weft::ops
