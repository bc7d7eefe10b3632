// gather: boxes of the operand at computed places.
#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/conv/window.h"
#include "src/ops/lies.h"
#include "src/ops/planes.h"
#include "src/ops/shape/gather_dims.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"},
                                    {"start_indices", kI, "where each box begins", false, false, 'I'}};
constexpr AttrDef kAttrs[] = {
    {"offset_dims", AttrType::kInts, "result dimensions that run within a box", true},
    {"collapsed_slice_dims", AttrType::kInts, "operand dimensions of box size 1 that vanish", true},
    {"start_index_map", AttrType::kInts, "operand dimension of each component of an index", true},
    {"index_vector_dim", AttrType::kInt, "dimension of start_indices that holds the components; its rank: none", true},
    {"slice_sizes", AttrType::kInts, "size of a box in each operand dimension", true},
    {"operand_batching_dims", AttrType::kInts, "operand dimensions that run along with …", false, "[]"},
    {"start_indices_batching_dims", AttrType::kInts, "… these dimensions of start_indices", false, "[]"},
};

GatherDims Read(const Attrs& a) {
  return {Attr<kAttrs, "offset_dims">(a),
          Attr<kAttrs, "collapsed_slice_dims">(a),
          Attr<kAttrs, "start_index_map">(a),
          Attr<kAttrs, "index_vector_dim">(a),
          Attr<kAttrs, "operand_batching_dims">(a),
          Attr<kAttrs, "start_indices_batching_dims">(a),
          Attr<kAttrs, "slice_sizes">(a)};
}

absl::Status Infer(const InferCall& call, Types* results) {
  const GatherDims dims = Read(call.attrs);
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckGather(dims, x.dims, call.operands[1]->dims));
  results->push_back(Type::Tensor(x.dtype, GatheredDims(dims, x.dims, call.operands[1]->dims)));
  return absl::OkStatus();
}

// Adds everything up where it came from.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Attrs& a = call.node.attrs();
  const Value& x = call.operands[0];
  // Taking nothing from an empty dimension: scatter would ask for a place to add to.
  if (x.type().count() == 0) {
    grads[0] = FullLike(b, x, 0);
    return absl::OkStatus();
  }
  Value inside = HoldInside(b, Read(a), call.operands[1], x.dims());
  grads[0] = Call(b, kOp_scatter, {FullLike(b, x, 0), inside, call.cotangents[0]},
                  {Attr<kAttrs, "offset_dims">(a), Attr<kAttrs, "collapsed_slice_dims">(a),
                   Attr<kAttrs, "start_index_map">(a), Attr<kAttrs, "index_vector_dim">(a), int64_t{0},
                   Attr<kAttrs, "operand_batching_dims">(a), Attr<kAttrs, "start_indices_batching_dims">(a)});
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  const GatherDims dims = Read(call.attrs);
  const Dims strides = StridesOf(x.dims());
  ForEachIndex(call.results[0].dims(), [&](int64_t k, const Dims& index) {
    Dims at;
    if (!Locate(dims, *call.operands[1], x.dims(), index, true, &at)) return;
    int64_t from = 0;
    for (size_t d = 0; d < at.size(); ++d) from += at[d] * strides[d];
    CopyElement(x, from, call.results[0], k);
  });
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Attrs& a = node.attrs();
  writer.Emit(
      "gather",
      {{"dimension_numbers",
        absl::StrCat("#stablehlo.gather<offset_dims = ", ShloList(Attr<kAttrs, "offset_dims">(a)),
                     ", collapsed_slice_dims = ", ShloList(Attr<kAttrs, "collapsed_slice_dims">(a)),
                     ", operand_batching_dims = ", ShloList(Attr<kAttrs, "operand_batching_dims">(a)),
                     ", start_indices_batching_dims = ", ShloList(Attr<kAttrs, "start_indices_batching_dims">(a)),
                     ", start_index_map = ", ShloList(Attr<kAttrs, "start_index_map">(a)),
                     ", index_vector_dim = ", Attr<kAttrs, "index_vector_dim">(a), ">")},
       {"slice_sizes", ShloArray(Attr<kAttrs, "slice_sizes">(a))},
       {"indices_are_sorted", ShloBool(false)}});
}

constexpr Sample kSamples[] = {
    {"T[5,3] i32[4]<0:5> offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0] index_vector_dim=1 "
     "slice_sizes=[1,3]"},
    {"T[4,6] i64[3,2]<-2:7> offset_dims=[1,2] collapsed_slice_dims=[] start_index_map=[1,0] "
     "index_vector_dim=1 "
     "slice_sizes=[2,3]"},
    {"T[2,5,3] i32[2,4]<0:5> offset_dims=[2] collapsed_slice_dims=[1] start_index_map=[1] index_vector_dim=2 "
     "slice_sizes=[1,1,3] operand_batching_dims=[0] start_indices_batching_dims=[0]"},
    {"T[7] u8[]<0:9> offset_dims=[] collapsed_slice_dims=[0] start_index_map=[0] index_vector_dim=0 "
     "slice_sizes=[1]"},
    {"T[5,3] i32[0]<0:5> offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0] index_vector_dim=1 "
     "slice_sizes=[1,3]"}};

// Indices alone: one more dimension of the result in front. Else the examples of both run along.
absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  Attrs attrs = call.node.attrs();
  const auto shift = [&](size_t i) { attrs.set(i, Shifted(attrs.IntList(i))); };
  constexpr size_t kOperandBatching = AttrPosition<kAttrs, "operand_batching_dims">(),
                   kStartsBatching = AttrPosition<kAttrs, "start_indices_batching_dims">();
  shift(AttrPosition<kAttrs, "offset_dims">());
  shift(kStartsBatching);
  attrs.set(AttrPosition<kAttrs, "index_vector_dim">(), Shifted(Attr<kAttrs, "index_vector_dim">(attrs)));
  if (call.batched[0]) {
    for (const size_t i :
         {AttrPosition<kAttrs, "collapsed_slice_dims">(), AttrPosition<kAttrs, "start_index_map">(), kOperandBatching})
      shift(i);
    attrs.set(AttrPosition<kAttrs, "slice_sizes">(), Before(1, Attr<kAttrs, "slice_sizes">(attrs)));
    attrs.set(kOperandBatching, Before(0, attrs.IntList(kOperandBatching)));
    attrs.set(kStartsBatching, Before(0, attrs.IntList(kStartsBatching)));
  }
  results[0] = Call(call.b, call.node.op(), {call.operands[0], Batched(call, 1)}, std::move(attrs));
  return absl::OkStatus();
}

// Outside the window as the indices lie, in it as the operand does where a box is all of a dimension.
Sharding OwnLie(const LieCall& call) {
  const Dims& operand = call.node.operands()[0].dims();
  const GatherDims dims = Read(call.node.attrs());
  Sharding result;
  int64_t from = 0;
  for (const int64_t to : dims.BatchDims(call.node.type().rank())) {
    if (from == dims.index_vector) ++from;
    LieAs(call, call.operands[1], from++, to, &result);
  }
  const Ints inside = dims.WindowDims(operand.size());
  for (size_t k = 0; k < inside.size(); ++k) {
    const auto d = static_cast<size_t>(inside[k]);
    if (dims.sizes[d] == operand[d]) LieAs(call, call.operands[0], inside[k], dims.window[k], &result);
  }
  return result;
}

}  // namespace

constinit const OpDef kOp_gather = {
    .name = "gather",
    .c_name = "gather",
    .doc =
        "Boxes of x at computed places, StableHLO's gather with all its dimension numbers; boxes that would reach "
        "outside are moved inside. For slices along one axis see take.",
    .example = "rows = wf_gather(s, table, ids, WF_INTS(1), WF_INTS(0), WF_INTS(0), 1, WF_INTS(1, 64));",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .batching = Batching,
    .lowering = Lowering::kKernel,
    .reference = Reference,
    .stablehlo = StableHlo,
    .samples = kSamples,
    .tolerance = kExact,
    .rounds_once = true,
    .planes = EachPlane,
    .lies = OwnLie,
    .on_bytes = true,
};

}  // namespace weft::ops
