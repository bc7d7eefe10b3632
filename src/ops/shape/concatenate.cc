// concatenate: tensors one after the other along a dimension.
#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"
#include "src/runtime/launch_look.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {"inputs", kEveryType, "tensors that differ only in the joined dimension", false, true}};
constexpr AttrDef kAttrs[] = {
    {"dimension", AttrType::kInt, "dimension to join along; negative counts from the end", false, "0"}};
constexpr Along kAlong[] = {Along::kNumbers};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& first = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("dimension", Attr<kAttrs, "dimension">(call.attrs), first.rank()));
  Type result = first;
  for (size_t i = 1; i < call.operands.size(); ++i) {
    Dims dims = call.operands[i]->dims;
    if (dims.size() == first.rank()) {
      result.dims[axis] += dims[axis];
      dims[axis] = first.dims[axis];
    }
    if (dims != first.dims) {
      return UserError("inputs 0 and ", i, " have shapes ", DimsToString(first.dims), " and ",
                       DimsToString(call.operands[i]->dims), "; all but dimension ", axis, " must be equal");
    }
  }
  results->push_back(std::move(result));
  return absl::OkStatus();
}

// Each input gets its part back.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const Dims& dims = call.results[0].dims();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("dimension", Attr<kAttrs, "dimension">(call.node.attrs()), dims.size()));
  Ints start(dims.size(), 0), limit = ToInts(dims);
  for (size_t i = 0; i < call.operands.size(); ++i) {
    limit[axis] = start[axis] + call.operands[i].dims()[axis];
    if (call.wanted[i]) grads[i] = Slice(call.b, call.cotangents[0], start, limit, Ints(dims.size(), 1));
    start[axis] = limit[axis];
  }
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  HostTensor& y = call.results[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("dimension", Attr<kAttrs, "dimension">(call.attrs), y.dims().size()));
  const int64_t inner = StridesOf(y.dims())[axis];
  int64_t start = 0;
  for (const HostTensor* x : call.operands) {
    const int64_t size = x->dims()[axis];
    PieceLook look(100);
    for (int64_t k = 0; k < x->count() && !look.Ends(); ++k) {
      const int64_t outer = k / (size * inner), at = k / inner % size;
      CopyElement(*x, k, y, (outer * y.dims()[axis] + start + at) * inner + k % inner);
    }
    start += size;
  }
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const int64_t axis = Attr<kAttrs, "dimension">(node.attrs());
  writer.Emit("concatenate",
              {{"dimension", ShloI64(axis < 0 ? axis + static_cast<int64_t>(node.type().rank()) : axis)}});
}

constexpr Sample kSamples[] = {{"T[2,3] T[4,3]"},
                               {"T[2,3] T[2,1] T[2,5] dimension=1"},
                               {"T[5] dimension=-1"},
                               {"T[0,3] T[2,3]"},
                               {"T[2,3,4] T[2,3,1] dimension=-1"}};

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  return BatchAlong(call, AttrPosition<kAttrs, "dimension">(), results);
}

Value Simpler(const SimplerCall& call) { return call.operands.size() == 1 ? call.x() : Value(); }

}  // namespace

constinit const OpDef kOp_concatenate = {
    .name = "concatenate",
    .c_name = "concatenate",
    .doc = "Joins tensors one after the other along one dimension; the others must agree.",
    .example = "y = wf_concatenate(s, WF_TENSORS(a, b), .dimension = 1);",
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
    .simpler = Simpler,
    .along = kAlong,
    .on_bytes = true,
};

}  // namespace weft::ops
