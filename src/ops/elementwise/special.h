// Makers of special functions, and of operations that are formulas of others. A special function is a composite with a gradient of
// its own: its expansion, put together of pieces by abs, sign and where, gives no derivative where these have none.
#pragma once

#include <cmath>
#include <limits>

#include "src/ops/batching.h"
#include "src/ops/complex.h"
#include "src/ops/polynomial.h"

namespace weft::ops {

#define WEFT_OP(name) extern const ir::OpDef kOp_##name;
#include "src/ops/special.list"
#undef WEFT_OP

inline constexpr ir::OperandDef kSpecialOperands[] = {{"x", ir::kF, "operand"}};

// Each says its names, documentation, samples and tolerance.
consteval ir::OpDef Special(ir::OpDef named) {
  named.since = 2;
  named.kind = ir::Kind::kComposite;
  if (named.operands.empty()) named.operands = kSpecialOperands;
  named.results = kResult;
  if (named.infer == nullptr) named.infer = InferSame;
  named.batching = BatchLeading;
  named.lowering = ir::Lowering::kExpand;
  named.absent = kCompositeAbsent;
  return named;
}

// An operation that is a formula of others: a macro, which is differentiated, batched and computed as what it stands for. Operands
// broadcast, and the result has the type of the first, unless it says otherwise.
consteval ir::OpDef Formula(ir::OpDef named) {
  named.since = 2;
  named.kind = ir::Kind::kMacro;
  if (named.operands.empty()) named.operands = kSpecialOperands;
  if (named.results.empty()) named.results = kResult;
  if (named.infer == nullptr) named.infer = InferSame;
  named.lowering = ir::Lowering::kExpand;
  if (named.absent.empty()) named.absent = kMacroAbsent;
  return named;
}
// The same of operands that broadcast.
consteval ir::OpDef Broadcasting(ir::OpDef named) {
  named.rule = ir::OperandRule::kBroadcast;
  return Formula(named);
}

// Expansion of a one-result composite or macro of two operands.
template <ir::Value (*f)(ir::Builder&, const ir::Value&, const ir::Value&)>
absl::Status ExpandBinary(const ir::ExpandCall& call, std::span<ir::Value> results) {
  results[0] = f(call.b, call.operands[0], call.operands[1]);
  return absl::OkStatus();
}

// Expansion and slope of a function that has formulas of its own of complex numbers.
template <ir::Value (*real)(ir::Builder&, const ir::Value&), Planes (*complex)(ir::Builder&, const Planes&)>
absl::Status ExpandAnywhere(const ir::ExpandCall& call, std::span<ir::Value> results) {
  const ir::Value& x = call.operands[0];
  results[0] = IsComplex(x.dtype()) ? ComplexFrom(call.b, complex(call.b, PlanesOf(call.b, x))) : real(call.b, x);
  return call.b.status();
}
template <ir::Value (*real)(ir::Builder&, const ir::Value&, const ir::Value&),
          ir::Value (*complex)(ir::Builder&, const ir::Value&)>
absl::Status GradientAnywhere(const ir::GradCall& call, std::span<ir::Value> grads) {
  const ir::Value& x = call.operands[0];
  const ir::Value slope = IsComplex(x.dtype()) ? complex(call.b, x) : real(call.b, x, call.results[0]);
  grads[0] = Mul(call.b, call.cotangents[0], slope);
  return absl::OkStatus();
}
inline constexpr ir::OperandDef kRealOrComplex[] = {{"x", ir::kF | ir::kC, "operand"}};

// x beyond a size and x within it, each with 1 in the place of the other: what is computed of one and not chosen is finite, and 0
// times its slope is 0. NaN is within.
struct BySize {
  BySize(ir::Builder& b, const ir::Value& x, double size)
      : far(Compare(b, Direction::kGt, Abs(b, x), size)),
        beyond(Select(b, far, x, FullLike(b, x, 1))),
        within(Select(b, far, FullLike(b, x, 1), x)) {}
  ir::Value far, beyond, within;
};

// x held to a size beyond which a slope is what it is there: it has no products of 0 and infinity.
inline ir::Value Held(ir::Builder& b, const ir::Value& x, double size) {
  return Minimum(b, Maximum(b, x, FullLike(b, x, -size)), FullLike(b, x, size));
}

// The gradient where a function has none: NaN as a multiple of g, which forward mode turns round. 0 where it is not `taken`, since NaN times
// the 0 that an untaken branch is sent would be NaN.
inline ir::Value NoSlope(ir::Builder& b, const ir::Value& taken, const ir::Value& g) {
  return Mul(b, g, Select(b, taken, FullLike(b, g, std::numeric_limits<double>::quiet_NaN()), FullLike(b, g, 0)));
}

// The modified Bessel function of the first kind of order 0 or 1, of f32 or f64; times e^-|x| where it is `scaled`.
ir::Value ModifiedBessel(ir::Builder& b, const ir::Value& x, int order, bool scaled);

// I1(x) / x, or J1(x) / x, of |x| below kNearOrigin: by their series, since the slopes of a quotient cancel there.
inline constexpr double kNearOrigin = 0.1;
ir::Value FirstOverX(ir::Builder& b, const ir::Value& x, bool modified);

// e^(factor x²), factor a power of two with a sign, without the rounding of the square, of f32 or f64.
ir::Value ExpOfSquare(ir::Builder& b, const ir::Value& x, double factor);
// e^(x²) erfc(x), and the same of a >= 0, both of f64.
ir::Value ErfcxOf(ir::Builder& b, const ir::Value& x);
ir::Value ErfcxAbove(ir::Builder& b, const ir::Value& a);

// 2 / sqrt(pi) e^(-x²), erf's slope; its own slopes are 0 at infinity, too.
ir::Value Bell(ir::Builder& b, const ir::Value& x);

}  // namespace weft::ops
