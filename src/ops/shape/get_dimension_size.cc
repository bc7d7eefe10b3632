// get_dimension_size: the size of one dimension, a constant.
#include "src/ir/stablehlo.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {{"dimension", AttrType::kInt, "which dimension", true}};

absl::Status Infer(const InferCall& call, Types* results) {
  const int64_t dimension = Attr<kAttrs, "dimension">(call.attrs);
  const auto rank = static_cast<int64_t>(call.operands[0]->rank());
  if (dimension < 0 || dimension >= rank) {
    return UserError("dimension is ", dimension, "; x has rank ", rank);
  }
  const int64_t size = call.operands[0]->dims[dimension];
  if (size > INT32_MAX) return UserError("dimension ", dimension, " has size ", size, ", which no i32 holds");
  results->push_back(Type::Scalar(DType::kI32));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  HostTensor size(DType::kI32, {});
  size.SetInt(0, call.operands[0].dims()[Attr<kAttrs, "dimension">(call.attrs)]);
  results[0] = Constant(call.b, std::move(size));
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  writer.Emit("get_dimension_size", {{"dimension", ShloI64(Attr<kAttrs, "dimension">(node.attrs()))}});
}

constexpr Sample kSamples[] = {{"T[2,3] dimension=1"}, {"T[0,3] dimension=0"}, {"T[131] dimension=0"}};
constexpr Absent kAbsent[] = {{Part::kGradient, Reason::kNotDifferentiable},
                              {Part::kReference, Reason::kExpands},
                              {Part::kExample, Reason::kFromStableHlo}};

}  // namespace

constinit const OpDef kOp_get_dimension_size = {
    .name = "get_dimension_size",
    .c_name = "get_dimension_size",
    .kind = Kind::kComposite,
    .doc = "The size of one dimension as an i32 scalar, which is part of the program: shapes are static.",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .stablehlo = StableHlo,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
