// dynamic_broadcast_in_dim: repeats along dimensions of a shape that is an operand.
#include <algorithm>

#include "src/ir/stablehlo.h"
#include "src/ops/shape/dynamic_shapes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    kDynamicX, Amounts("output_dimensions", "[rank of the result]; the type of the result says it too")};
constexpr AttrDef kAttrs[] = {
    kShapeAttr,
    {"broadcast_dimensions", AttrType::kInts, "result dimension of each operand dimension", true},
    {"known_expanding_dimensions", AttrType::kInts, "operand dimensions of size 1 that grow; nothing follows from it"},
    {"known_nonexpanding_dimensions", AttrType::kInts, "operand dimensions that do not; nothing follows from it"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Ints& shape = Attr<kAttrs, "shape">(call.attrs);
  WEFT_RETURN_IF_ERROR(CheckStaticShape(shape));
  WEFT_RETURN_IF_ERROR(CheckAmounts(call, 1, shape.size()));
  const Type& x = *call.operands[0];
  const Ints& positions = Attr<kAttrs, "broadcast_dimensions">(call.attrs);
  if (positions.size() != x.rank()) {
    return UserError("broadcast_dimensions has ", positions.size(), " entries for an operand of rank ", x.rank());
  }
  for (size_t i = 0; i < positions.size(); ++i) {
    const int64_t at = positions[i];
    if (at < 0 || at >= static_cast<int64_t>(shape.size()) || std::count(positions.begin(), positions.end(), at) != 1) {
      return UserError("broadcast_dimensions ", DimsToString(positions), " must name dimensions 0 to ",
                       static_cast<int64_t>(shape.size()) - 1, ", each at most once");
    }
    if (x.dims[i] != 1 && x.dims[i] != shape[at]) {
      return UserError("operand dimension ", i, " is ", x.dims[i], " and cannot become ", shape[at],
                       " (it must be 1 or equal)");
    }
  }
  results->push_back(Type::Tensor(x.dtype, ToDims(shape)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  results[0] = BroadcastInAnyOrder(call.b, call.operands[0], ToDims(Attr<kAttrs, "shape">(call.attrs)),
                                   Attr<kAttrs, "broadcast_dimensions">(call.attrs));
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  ShloAttrs attrs = {{"broadcast_dimensions", ShloArray(Attr<kAttrs, "broadcast_dimensions">(node.attrs()))}};
  for (size_t i : {2, 3}) {
    if (node.attrs().has(i)) attrs.emplace_back(kAttrs[i].name, ShloArray(node.attrs().IntList(i)));
  }
  writer.Emit(node.op().name, std::move(attrs));
}

constexpr Sample kSamples[] = {{"T[3] i64[2]<3:4> shape=[3,3] broadcast_dimensions=[1]"},
                               {"T[2,1] i32[2]<2:3> shape=[2,2] broadcast_dimensions=[1,0]"},
                               {"T[1] i32[2]<4:5> shape=[4,4] broadcast_dimensions=[0] "
                                "known_expanding_dimensions=[0] known_nonexpanding_dimensions=[]"}};

}  // namespace

constinit const OpDef kOp_dynamic_broadcast_in_dim = {
    .name = "dynamic_broadcast_in_dim",
    .c_name = "dynamic_broadcast_in_dim",
    .kind = Kind::kComposite,
    .doc =
        "broadcast_in_dim to a shape that an operand says too. For StableHLO programs; the result's type must be known.",
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
