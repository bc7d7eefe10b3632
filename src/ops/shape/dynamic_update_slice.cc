// dynamic_update_slice: x with a box replaced that begins where scalars say.
#include <algorithm>

#include "src/ops/batching.h"
#include "src/ops/conv/window.h"
#include "src/ops/planes.h"
#include "src/ops/shape/gather_dims.h"
#include "src/ops/simpler.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {"x", kEveryType, "operand"},
    {"update", kEveryType, "the new box"},
    {"start_indices", kI, "one scalar a dimension, moved so that the box lies inside", false, true, 'I'}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Type& update = *call.operands[1];
  if (update.rank() != x.rank() || call.operands.size() != x.rank() + 2) {
    return UserError("x has rank ", x.rank(), ", update rank ", update.rank(), " and ", call.operands.size() - 2,
                     " start indices are given; all three must agree");
  }
  for (size_t d = 0; d < x.rank(); ++d) {
    if (call.operands[d + 2]->rank() != 0) {
      return UserError("start index ", d, " must be a scalar, not of shape ", DimsToString(call.operands[d + 2]->dims));
    }
    if (update.dims[d] > x.dims[d]) {
      return UserError("update has size ", update.dims[d], " in dimension ", d, "; x has ", x.dims[d]);
    }
  }
  results->push_back(x);
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const Value& g = call.cotangents[0];
  const Value& update = call.operands[1];
  const std::span<const Value> starts = call.operands.subspan(2);
  if (call.wanted[0]) {
    Values operands = {g, FullLike(call.b, update, 0)};
    operands.insert(operands.end(), starts.begin(), starts.end());
    grads[0] = Call(call.b, kOp_dynamic_update_slice, std::move(operands));
  }
  if (call.wanted[1]) {
    Values operands = {g};
    operands.insert(operands.end(), starts.begin(), starts.end());
    grads[1] = Call(call.b, kOp_dynamic_slice, std::move(operands), {ToInts(update.dims())});
  }
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  HostTensor& y = call.results[0];
  y = *call.operands[0];
  const HostTensor& update = *call.operands[1];
  const Dims strides = StridesOf(y.dims());
  ForEachIndex(update.dims(), [&](int64_t k, const Dims& index) {
    int64_t to = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      const int64_t room = y.dims()[d] - update.dims()[d];
      to += (std::clamp<int64_t>(call.operands[d + 2]->GetInt(0), 0, room) + index[d]) * strides[d];
    }
    CopyElement(update, k, y, to);
  });
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[5] T[3] i32[]<0:5>"}, {"T[4,7] T[2,3] i64[]<-2:6> i64[]<-2:9>"}, {"T[4,7] T[0,7] u32[]<0:4> u32[]<0:7>"}};

// Boxes that begin elsewhere in each example are scattered.
absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  if (AnyBatched(call, 2)) {
    const Ints shifted = Shifted(Axes(call.node.type().rank()));
    const GatherDims d{.window = shifted,
                       .index_map = shifted,
                       .index_vector = 1,
                       .operand_batching = {0},
                       .index_batching = {0},
                       .sizes = Before(1, call.node.operands()[1].dims())};
    const Value x = Batched(call, 0), update = Batched(call, 1), starts = Starts(call, 2);
    WEFT_RETURN_IF_ERROR(call.b.status());
    results[0] =
        Call(call.b, kOp_scatter, {x, HoldInside(call.b, d, starts, x.dims()), update},
             {d.window, d.collapsed, d.index_map, d.index_vector, kScatterSet, d.operand_batching, d.index_batching});
    return absl::OkStatus();
  }
  Values operands = {Batched(call, 0), Batched(call, 1)};
  operands.push_back(Scalar(call.b, call.operands.size() > 2 ? call.operands[2].dtype() : DType::kI32, 0));
  for (const Value& start : call.operands.subspan(2)) operands.push_back(start);
  results[0] = Call(call.b, call.node.op(), std::move(operands));
  return absl::OkStatus();
}

// Into one number everywhere: the update, padded with it.
Value Simpler(const SimplerCall& call) {
  const Ref<const Literal> around = UniformLiteral(call.x());
  if (around == nullptr) return {};
  const Value& update = call.operands[1];
  const Dims& whole = call.x().dims();
  const std::optional<Ints> begins = LiteralStarts(call.operands.subspan(2), whole, update.dims());
  if (!begins) return {};
  Ints behind;
  for (size_t d = 0; d < whole.size(); ++d) behind.push_back(whole[d] - (*begins)[d] - update.dims()[d]);
  return Call(call.b, kOp_pad, {update, Constant(call.b, around->value)},
              {*begins, std::move(behind), Ints(whole.size(), 0)});
}

}  // namespace

constinit const OpDef kOp_dynamic_update_slice = {
    .name = "dynamic_update_slice",
    .c_name = "dynamic_update_slice",
    .doc = "x with a box replaced by update that begins where integer scalars say; it is moved so that it lies inside.",
    .example = "cache = wf_dynamic_update_slice(s, cache, row, WF_TENSORS(i, zero));",
    .operands = kOperands,
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
