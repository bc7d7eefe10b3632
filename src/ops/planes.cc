// See planes.h.
#include "src/ops/planes.h"

#include "src/ops/scalar_function.h"

namespace weft::ops {

using namespace ir;

Splits EachPlane(const PlanesCall& call) {
  Values re, im;
  for (const Split& operand : call.operands) {
    re.push_back(operand.complex() ? operand.planes.re : operand.whole);
    im.push_back(operand.complex() ? operand.planes.im : operand.whole);
  }
  const Value real = Call(call.b, call.op(), std::move(re), call.attrs());
  return Complex({real, Call(call.b, call.op(), std::move(im), call.attrs())});
}

Splits InPlace(const PlanesCall& call, std::span<const Ref<const Function>> regions) {
  Values flat;
  for (const Split& operand : call.operands) {
    flat.push_back(operand.complex() ? operand.planes.re : operand.whole);
    if (operand.complex()) flat.push_back(operand.planes.im);
  }
  const Values found = call.b.EmitAll(call.op(), std::move(flat), call.attrs(), regions);
  Splits results;
  size_t next = 0;
  for (const Type& type : call.node.results()) {
    if (!call.b.ok()) return {};
    const bool complex = type.is_tensor() && IsComplex(type.dtype);
    results.push_back(complex ? Split{{}, {found[next], found[next + 1]}} : Split{found[next], {}});
    next += complex ? 2 : 1;
  }
  return results;
}
Splits InPlace(const PlanesCall& call) { return InPlace(call, call.regions); }

Planes FromReal(Builder& b, const Value& re) { return {re, FullLike(b, re, 0)}; }

Splits ProductPlanes(const PlanesCall& call) {
  Attrs attrs = call.attrs();
  for (size_t i = 0; i < attrs.size(); ++i) {
    if (const auto* dtype = std::get_if<DType>(&attrs.at(i))) attrs.set(i, PartOf(*dtype));
  }
  const auto product = [&](const Value& x, const Value& y) { return Call(call.b, call.op(), {x, y}, attrs); };
  const Planes &x = call.planes(0), &y = call.planes(1);
  return Complex(
      {Sub(call.b, product(x.re, y.re), product(x.im, y.im)), Add(call.b, product(x.re, y.im), product(x.im, y.re))});
}

Splits MultiplyPlanes(const PlanesCall& call, const OpDef& by, Values operands, Attrs attrs) {
  const DType part = operands[0].dtype();
  const DType types[] = {part, part, part, part};
  const auto body = MakeScalarFunction("multiply", types, [](Builder& inner, std::span<const Value> p) {
    const Planes product = ComplexMul(inner, {p[0], p[1]}, {p[2], p[3]});
    return Values{product.re, product.im};
  });
  if (!body.ok()) {
    call.b.Fail(body.status());
    return {};
  }
  const Values found = CallAll(call.b, by, std::move(operands), std::move(attrs), {&*body, 1});
  return call.b.ok() ? Complex({found[0], found[1]}) : Splits();
}

Values WithOne(Builder& b, const Planes& x) {
  return {x.re, x.im, Scalar(b, x.re.dtype(), 1), Scalar(b, x.re.dtype(), 0)};
}

Attrs WithoutAttr(const PlanesCall& call, size_t attribute) {
  Attrs attrs;
  for (size_t i = 0; i < call.attrs().size(); ++i) {
    if (i != attribute) attrs.set(i > attribute ? i - 1 : i, call.attrs().at(i));
  }
  return attrs;
}

}  // namespace weft::ops
