// dynamic_gather: gather of boxes whose sizes are an operand.
#include <algorithm>

#include "src/ir/stablehlo.h"
#include "src/ops/shape/dynamic_shapes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    kDynamicX,
    {"start_indices", kI, "where each box begins", false, false, 'S'},
    {.name = "slice_sizes", .types = kI, .doc = "[rank of x]; the type of the result says it too", .group = 0}};
constexpr AttrDef kAttrs[] = {
    kShapeAttr,
    {"offset_dims", AttrType::kInts, "result dimensions that run within a box", true},
    {"collapsed_slice_dims", AttrType::kInts, "operand dimensions of box size 1 that vanish", true},
    {"start_index_map", AttrType::kInts, "operand dimension of each component of an index", true},
    {"index_vector_dim", AttrType::kInt, "dimension of start_indices that holds the components; its rank: none", true},
    {"operand_batching_dims", AttrType::kInts, "operand dimensions that run along with …", false, "[]"},
    {"start_indices_batching_dims", AttrType::kInts, "… these dimensions of start_indices", false, "[]"}};

// The box has size 1 where dimensions vanish, else the size of the result's offset dimension.
absl::StatusOr<Attrs> StaticGather(const Attrs& a, size_t rank) {
  const Ints &shape = Attr<kAttrs, "shape">(a), &offset = Attr<kAttrs, "offset_dims">(a);
  const Ints &collapsed = Attr<kAttrs, "collapsed_slice_dims">(a), &batching = Attr<kAttrs, "operand_batching_dims">(a);
  Ints sizes;
  size_t next = 0;
  for (int64_t d = 0; d < static_cast<int64_t>(rank); ++d) {
    const auto in = [d](const Ints& list) { return std::ranges::find(list, d) != list.end(); };
    if (in(collapsed) || in(batching)) {
      sizes.push_back(1);
      continue;
    }
    if (next == offset.size() || offset[next] < 0 || offset[next] >= static_cast<int64_t>(shape.size())) {
      return UserError("offset_dims ", DimsToString(offset), " must name a dimension of the result ",
                       DimsToString(shape), " for each of x that stays");
    }
    sizes.push_back(shape[offset[next++]]);
  }
  return Attrs{offset,
               collapsed,
               Attr<kAttrs, "start_index_map">(a),
               Attr<kAttrs, "index_vector_dim">(a),
               sizes,
               batching,
               Attr<kAttrs, "start_indices_batching_dims">(a)};
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Ints& shape = Attr<kAttrs, "shape">(call.attrs);
  WEFT_RETURN_IF_ERROR(CheckStaticShape(shape));
  WEFT_RETURN_IF_ERROR(CheckAmounts(call, 2, x.rank()));
  WEFT_ASSIGN_OR_RETURN(const Attrs attrs, StaticGather(call.attrs, x.rank()));
  WEFT_RETURN_IF_ERROR(kOp_gather.infer(InferCall{kOp_gather, call.operands.first(2), attrs}, results));
  if (results->back().dims == ToDims(shape)) return absl::OkStatus();
  return UserError("shape is ", DimsToString(shape), "; the boxes give ", DimsToString(results->back().dims));
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(Attrs attrs, StaticGather(call.attrs, call.operands[0].dims().size()));
  results[0] = Call(call.b, kOp_gather, {call.operands[0], call.operands[1]}, std::move(attrs));
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Attrs& a = node.attrs();
  const auto list = [&](std::string_view name, const Ints& values) {
    return absl::StrCat(name, " = ", ShloList(values));
  };
  writer.Emit(node.op().name,
              {{"dimension_numbers",
                absl::StrCat("#stablehlo.gather<", list("offset_dims", Attr<kAttrs, "offset_dims">(a)), ", ",
                             list("collapsed_slice_dims", Attr<kAttrs, "collapsed_slice_dims">(a)), ", ",
                             list("operand_batching_dims", Attr<kAttrs, "operand_batching_dims">(a)), ", ",
                             list("start_indices_batching_dims", Attr<kAttrs, "start_indices_batching_dims">(a)), ", ",
                             list("start_index_map", Attr<kAttrs, "start_index_map">(a)),
                             ", index_vector_dim = ", Attr<kAttrs, "index_vector_dim">(a), ">")},
               {"indices_are_sorted", ShloBool(false)}});
}

constexpr Sample kSamples[] = {
    {"T[5,1] i32[4]<0:5> i64[2]<1:2> shape=[4,1] offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0] "
     "index_vector_dim=1"},
    {"T[4,6] i64[3,2]<-2:7> i32[2]<2:3> shape=[3,2,2] offset_dims=[1,2] collapsed_slice_dims=[] "
     "start_index_map=[1,0] index_vector_dim=1"}};

}  // namespace

constinit const OpDef kOp_dynamic_gather = {
    .name = "dynamic_gather",
    .c_name = "dynamic_gather",
    .kind = Kind::kComposite,
    .doc = "gather of boxes whose sizes an operand says too. For StableHLO programs; the result's type must be known.",
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
