// dynamic_iota: iota in a shape that is an operand.
#include "src/ir/stablehlo.h"
#include "src/ops/shape/dynamic_shapes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {kShapeOperand};
constexpr AttrDef kAttrs[] = {kShapeAttr,
                              {"iota_dimension", AttrType::kInt, "dimension that counts", true},
                              {"dtype", AttrType::kDType, "element type", false, "i32"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Ints& shape = Attr<kAttrs, "shape">(call.attrs);
  WEFT_RETURN_IF_ERROR(CheckStaticShape(shape));
  WEFT_RETURN_IF_ERROR(CheckAmounts(call, 0, shape.size()));
  const int64_t dimension = Attr<kAttrs, "iota_dimension">(call.attrs);
  if (dimension < 0 || dimension >= static_cast<int64_t>(shape.size())) {
    return UserError("iota_dimension is ", dimension, "; shape ", DimsToString(shape), " has rank ", shape.size());
  }
  const DType dtype = Attr<kAttrs, "dtype">(call.attrs);
  if (!Contains(kNumber | kC, dtype)) return UserError("dtype ", NameOf(dtype), " is not a number type");
  results->push_back(Type::Tensor(dtype, ToDims(shape)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  results[0] = Iota(call.b, Attr<kAttrs, "dtype">(call.attrs), ToDims(Attr<kAttrs, "shape">(call.attrs)),
                    Attr<kAttrs, "iota_dimension">(call.attrs));
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  writer.Emit(node.op().name, {{"iota_dimension", ShloI64(Attr<kAttrs, "iota_dimension">(node.attrs()))}});
}

constexpr Sample kSamples[] = {{"i64[2]<3:4> shape=[3,3] iota_dimension=0 dtype=f32"},
                               {"i32[1]<5:6> shape=[5] iota_dimension=0"}};
constexpr Absent kAbsent[] = {{Part::kGradient, Reason::kNotDifferentiable},
                              {Part::kReference, Reason::kExpands},
                              {Part::kExample, Reason::kFromStableHlo}};

}  // namespace

constinit const OpDef kOp_dynamic_iota = {
    .name = "dynamic_iota",
    .c_name = "dynamic_iota",
    .kind = Kind::kComposite,
    .doc = "iota in a shape that an operand says too. For StableHLO programs; the result's type must be known.",
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
