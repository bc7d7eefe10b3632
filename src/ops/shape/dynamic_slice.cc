// dynamic_slice: a box of x that begins where scalars say.
#include <algorithm>

#include "src/ops/batching.h"
#include "src/ops/conv/window.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {"x", kEveryType, "operand"},
    {"start_indices", kI, "one scalar a dimension, moved so that the box lies inside", false, true, 'I'}};
constexpr AttrDef kAttrs[] = {{"slice_sizes", AttrType::kInts, "size of the box in each dimension", true}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Ints& sizes = Attr<kAttrs, "slice_sizes">(call.attrs);
  if (call.operands.size() != x.rank() + 1 || sizes.size() != x.rank()) {
    return UserError(call.operands.size() - 1, " start indices and ", sizes.size(), " slice_sizes given; x has rank ",
                     x.rank());
  }
  for (size_t d = 0; d < x.rank(); ++d) {
    if (call.operands[d + 1]->rank() != 0) {
      return UserError("start index ", d, " must be a scalar, not of shape ", DimsToString(call.operands[d + 1]->dims));
    }
    if (sizes[d] < 0 || sizes[d] > x.dims[d]) {
      return UserError("slice_sizes entry ", d, " is ", sizes[d], "; dimension ", d, " has size ", x.dims[d]);
    }
  }
  results->push_back(Type::Tensor(x.dtype, ToDims(sizes)));
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Values operands = {FullLike(call.b, call.operands[0], 0), call.cotangents[0]};
  operands.insert(operands.end(), call.operands.begin() + 1, call.operands.end());
  grads[0] = Call(call.b, kOp_dynamic_update_slice, std::move(operands));
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  const Dims strides = StridesOf(x.dims());
  ForEachIndex(call.results[0].dims(), [&](int64_t k, const Dims& index) {
    int64_t from = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      const int64_t room = x.dims()[d] - call.results[0].dims()[d];
      from += (std::clamp<int64_t>(call.operands[d + 1]->GetInt(0), 0, room) + index[d]) * strides[d];
    }
    CopyElement(x, from, call.results[0], k);
  });
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[5] i32[]<0:5> slice_sizes=[3]"},
                               {"T[4,7] i64[]<-2:6> i64[]<-2:9> slice_sizes=[2,3]"},
                               {"T[4,7] u32[]<0:4> u32[]<0:7> slice_sizes=[0,7]"}};

// Boxes that begin elsewhere in each example are gathered.
absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  const Ints& sizes = Attr<kAttrs, "slice_sizes">(call.node.attrs());
  if (AnyBatched(call, 1)) {
    const Ints axes = Axes(sizes.size()), shifted = Shifted(axes);
    const Ints batching = call.batched[0] ? Ints{0} : Ints();
    // offset_dims, collapsed_slice_dims, start_index_map, index_vector_dim, slice_sizes, operand and start_indices batching
    results[0] = Call(call.b, kOp_gather, {call.operands[0], Starts(call, 1)},
                      {shifted, Ints(), call.batched[0] ? shifted : axes, int64_t{1},
                       call.batched[0] ? Before(1, sizes) : sizes, batching, batching});
    return absl::OkStatus();
  }
  Values operands = {call.operands[0]};
  operands.push_back(Scalar(call.b, call.operands.size() > 1 ? call.operands[1].dtype() : DType::kI32, 0));
  for (const Value& start : call.operands.subspan(1)) operands.push_back(start);
  results[0] = Call(call.b, call.node.op(), std::move(operands), {Before(call.size, sizes)});
  return absl::OkStatus();
}

// At literal starts: a slice.
Value Simpler(const SimplerCall& call) {
  const Dims& box = call.node.type().dims;
  const std::optional<Ints> begins = LiteralStarts(call.operands.subspan(1), call.x().dims(), box);
  if (!begins) return {};
  Ints ends;
  for (size_t d = 0; d < begins->size(); ++d) ends.push_back((*begins)[d] + box[d]);
  return Slice(call.b, call.x(), *begins, std::move(ends), Ints(box.size(), 1));
}

}  // namespace

constinit const OpDef kOp_dynamic_slice = {
    .name = "dynamic_slice",
    .c_name = "dynamic_slice",
    .doc = "A box of x of fixed size that begins where integer scalars say; it is moved so that it lies inside.",
    .example = "y = wf_dynamic_slice(s, x, WF_TENSORS(i, zero), WF_INTS(1, 64));",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .batching = Batching,
    .lowering = Lowering::kKernel,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .rounds_once = true,
    .planes = EachPlane,
    .simpler = Simpler,
    .on_bytes = true,
};

}  // namespace weft::ops
