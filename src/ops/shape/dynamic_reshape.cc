// dynamic_reshape: the same elements in a shape that is an operand.
#include <algorithm>

#include "src/ir/stablehlo.h"
#include "src/ops/shape/dynamic_shapes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {kDynamicX, kShapeOperand};
constexpr AttrDef kAttrs[] = {kShapeAttr};

absl::Status Infer(const InferCall& call, Types* results) {
  const Ints& shape = Attr<kAttrs, "shape">(call.attrs);
  WEFT_RETURN_IF_ERROR(CheckStaticShape(shape));
  WEFT_RETURN_IF_ERROR(CheckAmounts(call, 1, shape.size()));
  const Type& x = *call.operands[0];
  if (!CheckedCount(shape) || *CheckedCount(shape) != x.count()) {
    return UserError("shape ", DimsToString(shape), " does not hold the ", x.count(), " elements of ",
                     DimsToString(x.dims));
  }
  results->push_back(Type::Tensor(x.dtype, ToDims(shape)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  results[0] = Reshape(call.b, call.operands[0], ToDims(Attr<kAttrs, "shape">(call.attrs)));
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) { writer.Emit(node.op().name); }

constexpr Sample kSamples[] = {{"T[2,3] i32[1]<6:7> shape=[6]"}, {"T[4] i64[2]<2:3> shape=[2,2]"}};

}  // namespace

constinit const OpDef kOp_dynamic_reshape = {
    .name = "dynamic_reshape",
    .c_name = "dynamic_reshape",
    .kind = Kind::kComposite,
    .doc =
        "The same elements in a shape that an operand says too. For StableHLO programs; the result's type must be known.",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .stablehlo = StableHlo,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kStableHloComposite,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
