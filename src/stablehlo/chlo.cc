// CHLO, the dialect of what StableHLO leaves to be decomposed: as JAX emits it. Each formula is exact where the argument makes
// the obvious one lose digits; f16 and bf16 are computed in f32 and rounded once.
#include <cmath>
#include <limits>
#include <numbers>

#include "src/ops/complex.h"
#include "src/ops/elementwise/total_order.h"
#include "src/ops/hyperbolic.h"
#include "src/stablehlo/rules.h"
#include "src/stablehlo/special_functions.h"

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

Value Log1p(Builder& b, const Value& x) { return Unary(b, ops::kOp_log1p, x); }
Value Atan2(Builder& b, const Value& y, const Value& x) { return ops::Call(b, ops::kOp_atan2, {y, x}); }
Value Nan(Builder& b, const Value& x) { return FullLike(b, x, std::numeric_limits<double>::quiet_NaN()); }

using UnaryFormula = Value (*)(Builder& b, const Value& x);
using ComplexFormula = ops::Planes (*)(Builder& b, const ops::Planes& x);

// One operand, floats; also complex where there is a formula for those.
template <UnaryFormula formula, ComplexFormula complex = nullptr>
Values Read(StableHloOp& op) {
  if constexpr (complex != nullptr) {
    if (op.operands.size() == 1 && op.operands[0].type().is_tensor() && IsComplex(op.operands[0].dtype())) {
      return {ops::ComplexFrom(op.b, complex(op.b, ops::PlanesOf(op.b, op.operands[0])))};
    }
  }
  if (op.operands.size() != 1 || !op.operands[0].type().is_tensor() || !IsFloat(op.operands[0].dtype())) {
    op.b.Fail(UserError("one operand of floats is expected"));
    return {};
  }
  const Value& x = op.operands[0];
  return {ops::Convert(op.b, formula(op.b, ops::Widened(op.b, x)), x.dtype())};
}

using BinaryFormula = Value (*)(Builder& b, const Value& x, const Value& y);

template <BinaryFormula formula>
Values Read(StableHloOp& op) {
  const bool two = op.operands.size() == 2 && op.operands[0].type() == op.operands[1].type();
  if (!two || !op.operands[0].type().is_tensor() || !IsFloat(op.operands[0].dtype())) {
    op.b.Fail(UserError("two operands of one type, of floats, are expected"));
    return {};
  }
  const Values wide = ops::Widened(op.b, op.operands);
  return {ops::Convert(op.b, formula(op.b, wide[0], wide[1]), op.operands[0].dtype())};
}

template <const ir::OpDef& own>
Values ReadOwn(StableHloOp& op) {
  return ops::CallAll(op.b, own, op.operands);
}

// atan2(sqrt((1 - x)(1 + x)), x): no cancellation near 1.
Value Leg(Builder& b, const Value& x) { return Sqrt(b, Mul(b, Sub(b, 1, x), Add(b, x, 1))); }
Value Acos(Builder& b, const Value& x) { return Atan2(b, Leg(b, x), x); }
Value Asin(Builder& b, const Value& x) { return Atan2(b, x, Leg(b, x)); }
Value Atan(Builder& b, const Value& x) { return Atan2(b, x, FullLike(b, x, 1)); }

// log(x + sqrt(x² - 1)), by x - 1 where x is near 1 and without the square where that is too large.
Value Acosh(Builder& b, const Value& x) {
  const Value d = Add(b, x, -1);
  const Value near = Log1p(b, Add(b, d, Sqrt(b, Mul(b, d, Add(b, x, 1)))));
  const Value far = Add(b, Log(b, x), std::numbers::ln2);
  const Value inside = Select(b, Compare(b, Direction::kGt, x, ops::LargeRoot(x)), far, near);
  return Select(b, Compare(b, Direction::kLt, x, 1), Nan(b, x), inside);
}

Value Atanh(Builder& b, const Value& x) {
  const Value a = ops::Abs(b, x);
  // log1p(2 a / (1 - a)) / 2
  const Value half = Mul(b, Log1p(b, Div(b, Mul(b, a, 2), Sub(b, 1, a))), 0.5);
  const Value inside = Mul(b, Unary(b, ops::kOp_sign, x), half);
  return Select(b, Compare(b, Direction::kGt, a, 1), Nan(b, x), inside);
}

Value IsInf(Builder& b, const Value& x) {
  return Compare(b, Direction::kEq, ops::Abs(b, x), std::numeric_limits<double>::infinity());
}
Values ReadIsInf(StableHloOp& op) {
  if (op.operands.size() != 1) op.b.Fail(UserError("one operand is expected"));
  return {op.b.ok() ? IsInf(op.b, op.operands[0]) : Value()};
}

// Of a real tensor, too, its complex conjugate.
Values ReadConj(StableHloOp& op) {
  if (op.operands.size() != 1 || !op.operands[0].type().is_tensor()) {
    op.b.Fail(UserError("one operand is expected"));
    return {};
  }
  if (!IsComplex(op.operands[0].dtype())) return {op.operands[0]};
  const ops::Planes x = ops::PlanesOf(op.b, op.operands[0]);
  return {ops::ComplexFrom(op.b, {x.re, Neg(op.b, x.im)})};
}

// The next number from x towards y: one more or less as integers, whose order within a sign is that of the floats.
Values ReadNextAfter(StableHloOp& op) {
  if (op.operands.size() != 2 || !(op.operands[0].type() == op.operands[1].type()) ||
      !IsFloat(op.operands[0].dtype())) {
    op.b.Fail(UserError("two operands of one type, of floats, are expected"));
    return {};
  }
  Builder& b = op.b;
  const Value &x = op.operands[0], &y = op.operands[1];
  const int bits = BitsOf(x.dtype());
  const DType integer = bits == 64 ? DType::kI64 : bits == 32 ? DType::kI32 : DType::kI16;
  const auto whole = [&](int64_t value) {
    HostTensor one(integer, {});
    one.SetInt(0, value);
    return ops::BroadcastInDim(b, ops::Constant(b, std::move(one)), x.dims(), {});
  };
  const auto image = [&](const Value& v) { return ops::Call(b, ops::kOp_bitcast_convert, {v}, {integer}); };
  const Value sign = whole(static_cast<int64_t>(~uint64_t{0} << (bits - 1))),
              magnitude = whole(INT64_MAX >> (64 - bits));
  const Value i = image(x), j = image(y), zero = whole(0), one = whole(1);
  const Value i_size = ops::And(b, i, magnitude), j_size = ops::And(b, j, magnitude);
  const Value same_sign = Compare(b, Direction::kEq, ops::And(b, i, sign), ops::And(b, j, sign));
  const Value grows = ops::And(b, same_sign, Compare(b, Direction::kLt, i_size, j_size));
  const Value step = Select(b, grows, one, whole(-1));
  // From zero to the smallest number of the other's sign; from both zeros to the other.
  const Value smallest = ops::Call(b, ops::kOp_bitwise_or, {ops::And(b, j, sign), one});
  const Value from_zero = Select(b, Compare(b, Direction::kEq, j_size, zero), j, smallest);
  Value next = Select(b, Compare(b, Direction::kEq, i_size, zero), from_zero, Add(b, i, step));
  next = Select(b, Compare(b, Direction::kEq, i, j), j, next);
  const Value number = ops::Call(b, ops::kOp_bitcast_convert, {next}, {x.dtype()});
  const auto nan = [&](const Value& v) { return Compare(b, Direction::kNe, v, v); };
  const Value any = ops::Call(b, ops::kOp_bitwise_or, {nan(x), nan(y)});
  return {Select(b, any, Nan(b, x), number)};
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
    {"chlo.acos", Read<Acos, ops::ComplexAcos>},
    {"chlo.acosh", Read<Acosh, ops::ComplexAcosh>},
    {"chlo.asin", Read<Asin, ops::ComplexAsin>},
    {"chlo.asinh", Read<ops::Asinh, ops::ComplexAsinh>},
    {"chlo.atan", Read<Atan, ops::ComplexAtan>},
    {"chlo.atanh", Read<Atanh, ops::ComplexAtanh>},
    {"chlo.conj", ReadConj},
    {"chlo.cosh", Read<ops::Cosh, ops::ComplexCosh>},
    {"chlo.sinh", Read<ops::Sinh, ops::ComplexSinh>},
    {"chlo.bessel_i1e", Read<BesselI1e>},
    {"chlo.digamma", Read<Digamma>},
    {"chlo.erfc", Read<Erfc>},
    {"chlo.lgamma", Read<Lgamma>},
    {"chlo.next_after", ReadNextAfter},
    {"chlo.polygamma", Read<Polygamma>},
    {"chlo.zeta", Read<Zeta>},
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
