// is_finite: neither infinite nor NaN.
#include <cmath>

#include "src/ir/stablehlo.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

absl::Status Reference(const ReferenceCall& call) {
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    call.results[0].SetInt(k, std::isfinite(call.operands[0]->GetDouble(k)));
  }
  return absl::OkStatus();
}

Splits OnPlanes(const PlanesCall& call) {
  const Planes x = call.planes(0);
  return Real(And(call.b, Unary(call.b, kOp_is_finite, x.re), Unary(call.b, kOp_is_finite, x.im)));
}

// StableHLO's takes real numbers.
void StableHlo(const Node& node, StableHloWriter& writer) {
  const Value& x = node.operands()[0];
  if (!IsComplex(x.dtype())) return writer.Emit("is_finite");
  const Type part = Type::Tensor(PartOf(x.dtype()), x.dims());
  const auto finite = [&](std::string_view name) {
    const std::string whole[] = {writer.Name(x)}, one[] = {writer.Op(name, whole, part)};
    return writer.Op("is_finite", one, node.type());
  };
  const std::string both[] = {finite("real"), finite("imag")};
  writer.EmitOn("and", both);
}

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_is_finite = {
    .name = "is_finite",
    .c_name = "is_finite",
    .doc = "Elementwise test that gives bool: neither infinite nor NaN; of a complex one both parts.",
    .example = "y = wf_is_finite(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferBool,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kIsFinite>,
    .reference = Reference,
    .stablehlo = StableHlo,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .planes = OnPlanes,
};

}  // namespace weft::ops
