// Short ways to say OpDef::planes: what an operation of complex values is, on their real and imaginary planes.
#pragma once

#include "src/ir/planes.h"
#include "src/ops/complex.h"

namespace weft::ops {

inline ir::Splits Complex(Planes planes) { return {ir::Split{{}, std::move(planes)}}; }
inline ir::Splits Real(ir::Value value) { return {ir::Split{std::move(value), {}}}; }

// Operations that move, choose or sum elements do the same on either plane.
ir::Splits EachPlane(const ir::PlanesCall& call);
// Operations that take any number of values: these double in place; so do carried functions.
ir::Splits InPlace(const ir::PlanesCall& call);
ir::Splits InPlace(const ir::PlanesCall& call, std::span<const Ref<const ir::Function>> regions);

// Operations that have a formula for complex numbers (complex.h).
template <Planes (*formula)(ir::Builder&, const Planes&)>
ir::Splits UnaryPlanes(const ir::PlanesCall& call) {
  return Complex(formula(call.b, call.planes(0)));
}
template <Planes (*formula)(ir::Builder&, const Planes&, const Planes&)>
ir::Splits BinaryPlanes(const ir::PlanesCall& call) {
  return Complex(formula(call.b, call.planes(0), call.planes(1)));
}

// Zeros for the imaginary part of what has none.
Planes FromReal(ir::Builder& b, const ir::Value& re);

// Sums of products: (a + i b)(c + i d) by four of them, since three would lose digits of the smaller part.
ir::Splits ProductPlanes(const ir::PlanesCall& call);

// Products of many elements by `by`, an operation that takes the function which combines two: here the multiplication of complex
// numbers on both planes at once. `attrs` are those of `by`.
ir::Splits MultiplyPlanes(const ir::PlanesCall& call, const ir::OpDef& by, ir::Values operands, ir::Attrs attrs);
// The planes of x and those of 1, where products begin.
ir::Values WithOne(ir::Builder& b, const Planes& x);
// The call's attributes without that of this number, for an operation that has the same others.
ir::Attrs WithoutAttr(const ir::PlanesCall& call, size_t attribute);

}  // namespace weft::ops
