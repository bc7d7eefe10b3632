// leaky_relu: x where positive, else a small slope.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};
constexpr AttrDef kAttrs[] = {{"slope", AttrType::kDouble, "slope below 0", false, "0.01"}};

absl::Status Infer(const InferCall& call, Types* results) {
  if (!std::isfinite(Attr<kAttrs, "slope">(call.attrs)))
    return UserError("slope is ", Attr<kAttrs, "slope">(call.attrs), "; it must be finite");
  return InferSame(call, results);
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const double alpha = Attr<kAttrs, "slope">(call.node.attrs());
  const Value& x = call.operands[0];
  const Value& g = call.cotangents[0];
  grads[0] = Select(b, Compare(b, Direction::kGt, x, 0), g, Mul(b, g, alpha));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const double alpha = Attr<kAttrs, "slope">(call.attrs);
  const Value& x = call.operands[0];
  results[0] = Select(b, Compare(b, Direction::kGt, x, 0), x, Mul(b, x, alpha));
  return absl::OkStatus();
}

ScalarValue LowerScalar(const ScalarCall& call) {
  ScalarBuilder& b = call.b;
  const ScalarValue& x = call.operands[0];
  const ScalarValue alpha = b.Constant(x.dtype, Attr<kAttrs, "slope">(call.attrs));
  const ScalarValue low = b.Binary(ScalarOp::kMul, x, alpha);
  return b.Select(b.Binary(ScalarOp::kGt, x, b.Constant(x.dtype, 0)), x, low);
}

absl::Status Reference(const ReferenceCall& call) {
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    const double x = call.operands[0]->GetDouble(k);
    call.results[0].SetDouble(k, x > 0 ? x : Attr<kAttrs, "slope">(call.attrs) * x);
  }
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3]"}, {"T[131] slope=0.3"}, {"T[]"}, {"T[0]"}, {"T[1] slope=2"}};

}  // namespace

constinit const OpDef kOp_leaky_relu = {
    .name = "weft.leaky_relu",
    .c_name = "leaky_relu",
    .kind = Kind::kComposite,
    .doc = "Leaky rectifier, elementwise: x where it is positive, slope times x elsewhere.",
    .example = "y = wf_leaky_relu(s, x);",
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
    .tolerance = {.f32 = 2e-7, .f64 = 1e-15, .bf16 = 1e-2, .f16 = 2e-3},
    .absent = kPointwiseAbsent,
};

}  // namespace weft::ops
