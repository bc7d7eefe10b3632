// integer_pow: x to a fixed whole power.
#include <cmath>
#include <cstdlib>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "base"}};
constexpr AttrDef kAttrs[] = {{"exponent", AttrType::kInt, "whole exponent, -64 to 64", true}};

constexpr int64_t kLeast = -64;

absl::Status Infer(const InferCall& call, Types* results) {
  const int64_t n = Attr<kAttrs, "exponent">(call.attrs);
  if (n < kLeast || n > 64) return UserError("exponent is ", n, "; it must be -64 to 64 (see pow)");
  return InferSame(call, results);
}

// Square and multiply over any vocabulary; n > 0.
template <typename T, typename Multiply>
T Power(T x, int64_t n, Multiply multiply) {
  while ((n & 1) == 0) {
    x = multiply(x, x);
    n >>= 1;
  }
  T result = x;
  while ((n >>= 1) != 0) {
    x = multiply(x, x);
    if ((n & 1) != 0) result = multiply(result, x);
  }
  return result;
}

Value PowerOf(Builder& b, const Value& x, int64_t n) {
  if (n == 0) return FullLike(b, x, 1);
  Value y = Power<Value>(x, std::abs(n), [&](const Value& p, const Value& q) { return Mul(b, p, q); });
  return n < 0 ? Div(b, 1, y) : y;
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const int64_t n = Attr<kAttrs, "exponent">(call.node.attrs());
  if (n == 0) return absl::OkStatus();
  // A power again, so that the next order is n (n - 1) x^(n - 2) and not what the quotient rule makes of 1 / x^2 at 0.
  const Value& x = call.operands[0];
  const bool plain = (n - 1 >= 0 && n - 1 <= 1) || n - 1 < kLeast;
  Value power = plain ? PowerOf(b, x, n - 1) : Call(b, kOp_integer_pow, {x}, {n - 1});
  Value slope = Mul(b, power, static_cast<double>(n));
  grads[0] = Mul(b, call.cotangents[0], slope);
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  results[0] = PowerOf(call.b, call.operands[0], Attr<kAttrs, "exponent">(call.attrs));
  return absl::OkStatus();
}

ScalarValue LowerScalar(const ScalarCall& call) {
  ScalarBuilder& b = call.b;
  const ScalarValue& x = call.operands[0];
  const int64_t n = Attr<kAttrs, "exponent">(call.attrs);
  if (n == 0) return b.Constant(x.dtype, 1);
  auto multiply = [&](const ScalarValue& p, const ScalarValue& q) { return b.Binary(ScalarOp::kMul, p, q); };
  const ScalarValue y = Power<ScalarValue>(x, std::abs(n), multiply);
  return n < 0 ? b.Binary(ScalarOp::kDiv, b.Constant(x.dtype, 1), y) : y;
}

absl::Status Reference(const ReferenceCall& call) {
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    call.results[0].SetDouble(
        k, std::pow(call.operands[0]->GetDouble(k), static_cast<double>(Attr<kAttrs, "exponent">(call.attrs))));
  }
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3] exponent=3"}, {"T[131] exponent=-2", 0.5, 2},
                               {"T[] exponent=0"},    {"T[1] exponent=1"},
                               {"T[0] exponent=7"},   {"T[5] exponent=12", -1.5, 1.5}};

}  // namespace

constinit const OpDef kOp_integer_pow = {
    .name = "weft.integer_pow",
    .c_name = "integer_pow",
    .kind = Kind::kComposite,
    .doc = "Elementwise x to a fixed whole power by repeated multiplication; 1 for exponent 0.",
    .example = "y = wf_integer_pow(s, x, 3);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-14, .bf16 = 5e-2, .f16 = 8e-3},
    .absent = kPointwiseAbsent,
};

}  // namespace weft::ops
