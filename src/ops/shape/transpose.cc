// transpose: permutes dimensions.
#include <algorithm>

#include "src/ops/batching.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"
#include "src/runtime/launch_look.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {{"permutation", AttrType::kInts, "operand dimension of each result dimension", true}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Ints& permutation = Attr<kAttrs, "permutation">(call.attrs);
  Ints sorted = permutation;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != Axes(x.rank())) {
    return UserError("permutation ", DimsToString(permutation), " must name each of the ", x.rank(),
                     " dimensions once, counting from 0");
  }
  Dims dims;
  for (int64_t d : permutation) dims.push_back(x.dims[d]);
  results->push_back(Type::Tensor(x.dtype, std::move(dims)));
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const Ints& permutation = Attr<kAttrs, "permutation">(call.node.attrs());
  Ints inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) inverse[permutation[i]] = i;
  grads[0] = Transpose(call.b, call.cotangents[0], inverse);
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  HostTensor& y = call.results[0];
  const Ints& permutation = Attr<kAttrs, "permutation">(call.attrs);
  const Dims x_strides = StridesOf(x.dims());
  const Dims y_strides = StridesOf(y.dims());
  PieceLook look(100);
  for (int64_t k = 0; k < y.count() && !look.Ends(); ++k) {
    int64_t from = 0;
    for (size_t i = 0; i < permutation.size(); ++i) {
      from += (k / y_strides[i]) % y.dims()[i] * x_strides[permutation[i]];
    }
    CopyElement(x, from, y, k);
  }
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3] permutation=[1,0]"},
                               {"T[2,3,5] permutation=[2,0,1]"},
                               {"T[] permutation=[]"},
                               {"T[4,0] permutation=[1,0]"},
                               {"T[1,7,1,3] permutation=[3,2,1,0]"}};

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  results[0] = Transpose(call.b, call.operands[0], Before(0, Shifted(Attr<kAttrs, "permutation">(call.node.attrs()))));
  return absl::OkStatus();
}

Value Simpler(const SimplerCall& call) {
  const Ints& permutation = Attr<kAttrs, "permutation">(call.node.attrs());
  if (permutation == Axes(permutation.size())) return call.x();
  if (Value moved = MoveNarrow(call)) return moved;
  if (call.from(kOp_transpose)) {
    Ints joined;
    const Ints& inner = Attr<kAttrs, "permutation">(call.from().attrs());
    for (int64_t p : permutation) joined.push_back(inner[p]);
    return Transpose(call.b, call.from().operands()[0], std::move(joined));
  }
  if (call.from(kOp_broadcast_in_dim) && call.from().operands()[0].type().rank() == 0) {
    return BroadcastInDim(call.b, call.from().operands()[0], call.node.type().dims, {});
  }
  // Dimensions of size 1 may move freely: nothing moves in memory, and a reshape costs nothing.
  int64_t last = -1;
  for (int64_t p : permutation) {
    if (call.x().dims()[p] == 1) continue;
    if (p < last) return {};
    last = p;
  }
  return Reshape(call.b, call.x(), call.node.type().dims);
}

absl::StatusOr<std::vector<AffineIndex>> OperandIndex(const IndexMapCall& call) {
  const Ints& permutation = Attr<kAttrs, "permutation">(call.node.attrs());
  const auto rank = static_cast<int64_t>(permutation.size());
  std::vector<AffineIndex> index(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) {
    index[permutation[i] < 0 ? permutation[i] + rank : permutation[i]] = call.result[i];
  }
  return index;
}

}  // namespace

constinit const OpDef kOp_transpose = {
    .name = "transpose",
    .c_name = "transpose",
    .doc = "Permutes dimensions: result dimension i is operand dimension permutation[i].",
    .example = "y = wf_transpose(s, x, WF_INTS(1, 0));",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .batching = Batching,
    .lowering = Lowering::kIndexMap,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .rounds_once = true,
    .cheap_again = true,  // moves elements
    .planes = EachPlane,
    .simpler = Simpler,
    .index_map = OperandIndex,
    .on_bytes = true,
};

}  // namespace weft::ops
