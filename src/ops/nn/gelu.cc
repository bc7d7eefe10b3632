// gelu: x times the normal distribution function of x.
#include <cmath>

#include "src/ops/elementwise/special.h"
#include "src/ops/own_attrs.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};
constexpr std::string_view kForms[] = {"erf", "tanh"};
constexpr AttrDef kAttrs[] = {
    {"form", AttrType::kEnum, "erf: exact; tanh: the usual approximation", false, "erf", kForms}};

constexpr double kRootHalf = 0.70710678118654752440;     // 1 / sqrt(2)
constexpr double kRoot2OverPi = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kCubic = 0.044715;

// The argument of tanh.
Value Inner(Builder& b, const Value& x) {
  return Mul(b, Add(b, x, Mul(b, Mul(b, Square(b, x), x), kCubic)), kRoot2OverPi);
}

// Phi(x) in either form.
Value Share(Builder& b, const Value& x, bool exact) {
  Value t = exact ? Unary(b, kOp_erf, Mul(b, x, kRootHalf)) : Tanh(b, Inner(b, x));
  return Mul(b, Add(b, t, 1), 0.5);
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value x = Held(b, call.operands[0], 60);  // e^-1800 is 0
  const bool exact = Attr<kAttrs, "form">(call.node.attrs()) == 0;
  Value share = Share(b, x, exact);
  Value slope;
  if (exact) {  // x times the density
    slope = Mul(b, Mul(b, x, Exp(b, Mul(b, Square(b, x), -0.5))), kRoot2OverPi / 2);
  } else {  // x / 2 (1 - tanh^2) inner'
    Value inner = Mul(b, Add(b, Mul(b, Square(b, x), 3 * kCubic), 1), kRoot2OverPi);
    slope = Mul(b, Mul(b, Mul(b, x, 0.5), Sub(b, 1, Square(b, Tanh(b, Inner(b, x))))), inner);
  }
  grads[0] = Mul(b, call.cotangents[0], Add(b, share, slope));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  results[0] = Mul(call.b, call.operands[0], Share(call.b, call.operands[0], Attr<kAttrs, "form">(call.attrs) == 0));
  return absl::OkStatus();
}

ScalarValue LowerScalar(const ScalarCall& call) {
  return call.b.Unary(Attr<kAttrs, "form">(call.attrs) == 0 ? ScalarOp::kGelu : ScalarOp::kGeluTanh, call.operands[0]);
}

absl::Status Reference(const ReferenceCall& call) {
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    // long double: the tail multiplies the argument's error by its square.
    const long double x = call.operands[0]->GetDouble(k);
    const long double share =
        Attr<kAttrs, "form">(call.attrs) == 0
            ? std::erfc(-x * 0.70710678118654752440084L) / 2
            : 1 / (1 + std::exp(-1.59576912160573071176L * (x + static_cast<long double>(kCubic) * x * x * x)));
    call.results[0].SetDouble(k, static_cast<double>(x * share));
  }
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3]"}, {"T[131] form=tanh", -4, 4}, {"T[]"}, {"T[0]"}, {"T[64] form=erf", -4, 4}};

}  // namespace

constinit const OpDef kOp_gelu = {
    .name = "weft.gelu",
    .c_name = "gelu",
    .kind = Kind::kComposite,
    .doc =
        "Gaussian error linear unit x Phi(x), elementwise, Phi the normal distribution function; exact by erf or in "
        "the usual tanh approximation. Source: Hendrycks and Gimpel (2016).",
    .example = "h = wf_gelu(s, wf_linear(s, x, w, b));",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = InferSame,
    .gradient = Gradient,
    .expand = Expand,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-12, .bf16 = 3e-2, .f16 = 8e-3, .absolute = 1e-6},
    .absent = kPointwiseAbsent,
    .cost = Cost::kFunction,
};

}  // namespace weft::ops
