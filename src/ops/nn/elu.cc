// elu: x where positive, else alpha (e^x - 1).
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};
constexpr AttrDef kAttrs[] = {{"alpha", AttrType::kDouble, "depth of the plateau below 0", false, "1"}};

absl::Status Infer(const InferCall& call, Types* results) {
  if (!std::isfinite(Attr<kAttrs, "alpha">(call.attrs)))
    return UserError("alpha is ", Attr<kAttrs, "alpha">(call.attrs), "; it must be finite");
  return InferSame(call, results);
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const double alpha = Attr<kAttrs, "alpha">(call.node.attrs());
  const Value& x = call.operands[0];
  const Value& g = call.cotangents[0];
  // Where x is positive e^x may overflow, and its own slope times 0 would be NaN.
  Value positive = Compare(b, Direction::kGt, x, 0);
  Value low = Select(b, positive, FullLike(b, x, 0), x);
  grads[0] = Select(b, positive, g, Mul(b, g, Mul(b, Exp(b, low), alpha)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const double alpha = Attr<kAttrs, "alpha">(call.attrs);
  const Value& x = call.operands[0];
  results[0] = Select(b, Compare(b, Direction::kGt, x, 0), x, Mul(b, Unary(b, kOp_expm1, x), alpha));
  return absl::OkStatus();
}

ScalarValue LowerScalar(const ScalarCall& call) {
  ScalarBuilder& b = call.b;
  const ScalarValue& x = call.operands[0];
  const ScalarValue alpha = b.Constant(x.dtype, Attr<kAttrs, "alpha">(call.attrs));
  const ScalarValue low = b.Binary(ScalarOp::kMul, b.Unary(ScalarOp::kExpm1, x), alpha);
  return b.Select(b.Binary(ScalarOp::kGt, x, b.Constant(x.dtype, 0)), x, low);
}

absl::Status Reference(const ReferenceCall& call) {
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    const double x = call.operands[0]->GetDouble(k);
    call.results[0].SetDouble(k, x > 0 ? x : Attr<kAttrs, "alpha">(call.attrs) * std::expm1(x));
  }
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3]"}, {"T[131] alpha=0.3"}, {"T[]"}, {"T[0]"}, {"T[1] alpha=2"}};

}  // namespace

constinit const OpDef kOp_elu = {
    .name = "weft.elu",
    .c_name = "elu",
    .kind = Kind::kComposite,
    .doc =
        "Exponential linear unit, elementwise: x where it is positive, alpha (e^x - 1) elsewhere. Source: Clevert, "
        "Unterthiner, Hochreiter (2015).",
    .example = "y = wf_elu(s, x);",
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
    .tolerance = {.f32 = 2e-6, .f64 = 1e-14, .bf16 = 2e-2, .f16 = 4e-3},
    .absent = kPointwiseAbsent,
    .cost = Cost::kFunction,
};

}  // namespace weft::ops
