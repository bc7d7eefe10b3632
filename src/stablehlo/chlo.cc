// CHLO, the dialect of what StableHLO leaves to be decomposed: as JAX emits it. Functions of floats are operations of ours, with
// gradients of their own.
#include <cmath>
#include <limits>
#include <numbers>

#include "src/ops/complex.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/elementwise/total_order.h"
#include "src/stablehlo/rules.h"

namespace weft::stablehlo {
namespace {

using ir::Builder;
using ir::StableHloOp;
using ir::Value;
using ir::Values;
using ops::Add;
using ops::Compare;
using ops::Direction;
using ops::Div;
using ops::FullLike;
using ops::Log;
using ops::Mul;
using ops::Neg;
using ops::Select;
using ops::Sqrt;
using ops::Sub;
using ops::Unary;

using ComplexFormula = ops::Planes (*)(Builder& b, const ops::Planes& x);

// Floats by an operation of ours; complex numbers by a formula.
template <const ir::OpDef& own, ComplexFormula complex = nullptr>
Values ReadOwn(StableHloOp& op) {
  const bool tensor = !op.operands.empty() && op.operands[0].type().is_tensor();
  if constexpr (complex != nullptr) {
    if (tensor && op.operands.size() == 1 && IsComplex(op.operands[0].dtype())) {
      return {ops::ComplexFrom(op.b, complex(op.b, ops::PlanesOf(op.b, op.operands[0])))};
    }
  }
  if (own.operands.size() == 1 &&
      (op.operands.size() != 1 || !tensor || !ir::Contains(own.operands[0].types, op.operands[0].dtype()))) {
    op.b.Fail(UserError("one operand of floats is expected"));
    return {};
  }
  const bool two = op.operands.size() == 2 && op.operands[0].type() == op.operands[1].type();
  if (own.operands.size() == 2 && (!two || !tensor || !IsFloat(op.operands[0].dtype()))) {
    op.b.Fail(UserError("two operands of one type, of floats, are expected"));
    return {};
  }
  return ops::CallAll(op.b, own, op.operands);
}

Value IsInf(Builder& b, const Value& x) {
  return Compare(b, Direction::kEq, ops::Abs(b, x), std::numeric_limits<double>::infinity());
}
Values ReadIsInf(StableHloOp& op) {
  if (op.operands.size() != 1) op.b.Fail(UserError("one operand is expected"));
  return {op.b.ok() ? IsInf(op.b, op.operands[0]) : Value()};
}

// Reads the complex conjugate, which exists for real tensors, too.
Values ReadConj(StableHloOp& op) {
  if (op.operands.size() != 1 || !op.operands[0].type().is_tensor()) {
    op.b.Fail(UserError("one operand is expected"));
    return {};
  }
  if (!IsComplex(op.operands[0].dtype())) return {op.operands[0]};
  const ops::Planes x = ops::PlanesOf(op.b, op.operands[0]);
  return {ops::ComplexFrom(op.b, {x.re, Neg(op.b, x.im)})};
}

Value Shifted(Builder& b, const ir::OpDef& shift, const Value& x, int bits) {
  return ops::Call(b, shift, {x, FullLike(b, x, bits)});
}
// The upper half of a product of u64, by halves that do not overflow.
Value UpperOfU64(Builder& b, const Value& x, const Value& y) {
  const auto high = [&](const Value& v) { return Shifted(b, ops::kOp_shift_right_logical, v, 32); };
  const auto low = [&](const Value& v) { return ops::Call(b, ops::kOp_bitwise_and, {v, FullLike(b, v, 0xFFFFFFFFu)}); };
  const Value middle = Add(b, Mul(b, high(x), low(y)), high(Mul(b, low(x), low(y))));
  const Value other = Add(b, Mul(b, low(x), high(y)), low(middle));
  return Add(b, Mul(b, high(x), high(y)), Add(b, high(middle), high(other)));
}
// The upper half of a product: of what is narrower by a wider one, of i64 by that of the same bits as u64, less what signs added.
Values ReadMulHi(StableHloOp& op) {
  Builder& b = op.b;
  if (op.operands.size() != 2 || !op.operands[0].type().is_tensor() ||
      !(op.operands[0].type() == op.operands[1].type()) || !IsInteger(op.operands[0].dtype()) ||
      BitsOf(op.operands[0].dtype()) < 8) {
    b.Fail(UserError("two operands of one type, of integers of whole bytes, are expected"));
    return {};
  }
  const Value &x = op.operands[0], &y = op.operands[1];
  const DType dtype = x.dtype();
  const bool plain = IsUnsigned(dtype);
  if (const int bits = BitsOf(dtype); bits < 64) {
    const DType wide = plain ? DType::kU64 : DType::kI64;
    const Value product = Mul(b, ops::Convert(b, x, wide), ops::Convert(b, y, wide));
    return {ops::Convert(
        b, Shifted(b, plain ? ops::kOp_shift_right_logical : ops::kOp_shift_right_arithmetic, product, bits), dtype)};
  }
  if (plain) return {UpperOfU64(b, x, y)};
  const auto bits_as = [&](const Value& v, DType to) { return ops::Call(b, ops::kOp_bitcast_convert, {v}, {to}); };
  const Value upper = bits_as(UpperOfU64(b, bits_as(x, DType::kU64), bits_as(y, DType::kU64)), dtype);
  const auto where_negative = [&](const Value& v, const Value& other) {
    return Select(b, Compare(b, Direction::kLt, v, 0), other, FullLike(b, other, 0));
  };
  return {Sub(b, Sub(b, upper, where_negative(x, y)), where_negative(y, x))};
}

// Floats in IEEE's total order, where NaN comes first and the NaN whose sign bit is set last.
Values ReadTopK(StableHloOp& op) {
  if (op.operands.size() != 1) {
    op.b.Fail(UserError(op.operands.size(), " operands; one is expected"));
    return {};
  }
  const Value& x = op.operands[0];
  const int64_t k = op.Int("k", 0);
  if (!IsFloat(x.dtype())) return ops::CallAll(op.b, ops::kOp_top_k, {x}, {k});
  Values found = ops::CallAll(op.b, ops::kOp_top_k, {ops::InTotalOrder(op.b, x)}, {k});
  if (op.b.ok()) found[0] = ops::FromTotalOrder(op.b, found[0], x.dtype());
  return found;
}

constexpr Rule kChlo[] = {
    {"chlo.acos", ReadOwn<ops::kOp_acos, ops::ComplexAcos>},
    {"chlo.acosh", ReadOwn<ops::kOp_acosh, ops::ComplexAcosh>},
    {"chlo.asin", ReadOwn<ops::kOp_asin, ops::ComplexAsin>},
    {"chlo.asinh", ReadOwn<ops::kOp_asinh, ops::ComplexAsinh>},
    {"chlo.atan", ReadOwn<ops::kOp_atan, ops::ComplexAtan>},
    {"chlo.atanh", ReadOwn<ops::kOp_atanh, ops::ComplexAtanh>},
    {"chlo.conj", ReadConj},
    {"chlo.cosh", ReadOwn<ops::kOp_cosh, ops::ComplexCosh>},
    {"chlo.sinh", ReadOwn<ops::kOp_sinh, ops::ComplexSinh>},
    {"chlo.bessel_i1e", ReadOwn<ops::kOp_bessel_i1e>},
    {"chlo.digamma", ReadOwn<ops::kOp_digamma>},
    {"chlo.erfc", ReadOwn<ops::kOp_erfc>},
    {"chlo.lgamma", ReadOwn<ops::kOp_lgamma>},
    {"chlo.mulhi", ReadMulHi},
    {"chlo.next_after", ReadOwn<ops::kOp_nextafter>},
    {"chlo.polygamma", ReadOwn<ops::kOp_polygamma>},
    {"chlo.zeta", ReadOwn<ops::kOp_zeta>},
    {"chlo.tan", ReadOwn<ops::kOp_tan>},
    {"chlo.erf", ReadOwn<ops::kOp_erf>},
    {"chlo.erf_inv", ReadOwn<ops::kOp_erf_inv>},
    {"chlo.square", ReadOwn<ops::kOp_square>},
    {"chlo.is_inf", ReadIsInf},
    {"chlo.top_k", ReadTopK},
};

}  // namespace

std::span<const Rule> ChloRules() { return kChlo; }

}  // namespace weft::stablehlo
