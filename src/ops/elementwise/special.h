// What elementwise functions that StableHLO programs bring (CHLO's) have in common. Each is a composite with a rule of its own: its
// expansion, put together of pieces by abs, sign and where, gives no derivative where these have none.
#pragma once

#include <cmath>

#include "src/ops/batching.h"
#include "src/ops/polynomial.h"

namespace weft::ops {

#define WEFT_OP(name) extern const ir::OpDef kOp_##name;
#include "src/ops/special.list"
#undef WEFT_OP

inline constexpr ir::OperandDef kSpecialOperands[] = {{"x", ir::kF, "operand"}};
inline constexpr ir::Absent kSpecialAbsent[] = {{ir::Part::kReference, ir::Reason::kExpands},
                                                {ir::Part::kStableHlo, ir::Reason::kExpands},
                                                {ir::Part::kExample, ir::Reason::kFromStableHlo}};

// Each says its names, documentation, samples and tolerance.
consteval ir::OpDef Special(ir::OpDef named) {
  named.since = 1;
  named.kind = ir::Kind::kComposite;
  if (named.operands.empty()) named.operands = kSpecialOperands;
  named.results = kResult;
  named.infer = InferSame;
  named.batching = BatchLeading;
  named.lowering = ir::Lowering::kExpand;
  named.absent = kSpecialAbsent;
  named.exported = false;
  return named;
}

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

// 2 / sqrt(pi) e^(-x²), erf's slope; its own slopes are 0 at infinity, too.
ir::Value Bell(ir::Builder& b, const ir::Value& x);

}  // namespace weft::ops
