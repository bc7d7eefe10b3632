// constant: a literal of the program. Its value is part of the cache key.
#include "src/ir/stablehlo_read.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kAttrs[] = {{"value", AttrType::kLiteral, "the tensor", true}};

absl::Status Infer(const InferCall& call, Types* results) {
  const HostTensor& value = Attr<kAttrs, "value">(call.attrs);
  results->push_back(Type::Tensor(value.dtype(), value.dims()));
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  call.results[0] = Attr<kAttrs, "value">(call.attrs);
  return absl::OkStatus();
}

// One element for every element: the loop compiler's constant.
ScalarValue LowerScalar(const ScalarCall& call) {
  const HostTensor& value = Attr<kAttrs, "value">(call.attrs);
  if (value.count() != 1) return {};
  return IsFloat(call.dtype) ? call.b.Constant(call.dtype, value.GetDouble(0))
                             : call.b.IntConstant(call.dtype, value.GetInt(0));
}

constexpr Sample kSamples[] = {
    {"value=f32[2]{1,-2.5}"}, {"value=i32[]{7}"}, {"value=bool[2,1]{1,0}"}, {"value=bf16[0]{}"}};

// One element that stands for all is broadcast: its text is short, and so is what it makes.
Values Read(StableHloOp& op) {
  const ShloAttr* value = op.Find("value");
  if (value == nullptr || value->kind != ShloAttr::Kind::kTensor) {
    op.b.Fail(UserError("attribute value must be dense<…>"));
    return {};
  }
  const Value literal = Call(op.b, kOp_constant, {}, {value->tensor});
  if (!value->splat || value->type->count() == 1) return {literal};
  return {BroadcastInDim(op.b, literal, value->type->dims, {})};
}

Splits OnPlanes(const PlanesCall& call) {
  const HostTensor& value = Attr<kAttrs, "value">(call.attrs());
  return Complex({Constant(call.b, value.Part(0)), Constant(call.b, value.Part(1))});
}

}  // namespace

constinit const OpDef kOp_constant = {
    .name = "constant",
    .c_name = "constant",
    .doc =
        "A literal tensor of the program. Made by rules; what a caller computes with is an argument, never a "
        "constant. The scalar rule is for literals of one element.",
    .example = "one = wf_full(s, NULL, 0, 1);",
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = Reference,
    .read = Read,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .exported = false,
    .planes = OnPlanes,
};

}  // namespace weft::ops
