// dynamic_pad: pad by amounts that are operands.
#include "src/ir/stablehlo.h"
#include "src/ops/shape/dynamic_shapes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {kDynamicX,
                                    {"padding_value", kEveryType, "scalar to fill with"},
                                    Amounts("edge_padding_low", "[rank]: before the first of each dimension"),
                                    Amounts("edge_padding_high", "[rank]: after the last; follows from the shape"),
                                    Amounts("interior_padding", "[rank]: between neighbours")};
constexpr AttrDef kAttrs[] = {kShapeAttr};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Ints& shape = Attr<kAttrs, "shape">(call.attrs);
  WEFT_RETURN_IF_ERROR(CheckStaticShape(shape));
  if (call.operands[1]->rank() != 0) {
    return UserError("padding_value must be a scalar, not of shape ", DimsToString(call.operands[1]->dims));
  }
  WEFT_RETURN_IF_ERROR(CheckAmounts(call, 2, x.rank()));
  if (shape.size() != x.rank()) return UserError("shape ", DimsToString(shape), " has another rank than x, ", x.rank());
  results->push_back(Type::Tensor(x.dtype, ToDims(shape)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  const Ints& shape = Attr<kAttrs, "shape">(call.attrs);
  results[0] = DynamicPad(call.b, call.operands[0], call.operands[1], call.operands[2], call.operands[3],
                          call.operands[4], ToDims(shape));
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) { writer.Emit(node.op().name); }

constexpr Sample kSamples[] = {{"T[2,3] T[] i32[2]<1:2> i32[2]<1:2> i32[2]<0:1> shape=[4,5]"},
                               {"T[3] T[] i64[1]<-1:0> i64[1]<2:3> i64[1]<1:2> shape=[6]"},
                               {"T[0,2] T[] i32[2]<1:2> i32[2]<1:2> i32[2]<0:1> shape=[2,4]"},
                               {"T[] T[] i32[0] i32[0] i32[0] shape=[]"}};

}  // namespace

constinit const OpDef kOp_dynamic_pad = {
    .name = "dynamic_pad",
    .c_name = "dynamic_pad",
    .kind = Kind::kComposite,
    .doc = "pad by amounts computed while the program runs. For StableHLO programs; the result's type must be known.",
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
