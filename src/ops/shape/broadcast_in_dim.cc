// broadcast_in_dim: repeats along new or size-1 dimensions.
#include "src/ir/stablehlo_read.h"
#include "src/ops/batching.h"
#include "src/ops/build.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"
#include "src/runtime/launch_look.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "tensor to repeat"}};
constexpr AttrDef kAttrs[] = {
    {"shape", AttrType::kInts, "result shape", true},
    {"broadcast_dimensions", AttrType::kInts, "result dimension of each operand dimension, strictly increasing", true},
};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Ints& shape = Attr<kAttrs, "shape">(call.attrs);
  const Ints& positions = Attr<kAttrs, "broadcast_dimensions">(call.attrs);
  if (positions.size() != x.rank()) {
    return UserError("broadcast_dimensions has ", positions.size(), " entries for an operand of rank ", x.rank());
  }
  for (size_t i = 0; i < positions.size(); ++i) {
    const int64_t at = positions[i];
    if (at < 0 || at >= static_cast<int64_t>(shape.size()) || (i > 0 && at <= positions[i - 1])) {
      return UserError("broadcast_dimensions ", DimsToString(positions), " must increase strictly within 0 to ",
                       static_cast<int64_t>(shape.size()) - 1);
    }
    if (x.dims[i] != 1 && x.dims[i] != shape[at]) {
      return UserError("operand dimension ", i, " is ", x.dims[i], " and cannot become ", shape[at],
                       " (it must be 1 or equal)");
    }
  }
  results->push_back(Type::Tensor(x.dtype, Dims(shape.begin(), shape.end())));
  return absl::OkStatus();
}

// Sums over what was repeated.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const Value& x = call.operands[0];
  const Ints& positions = Attr<kAttrs, "broadcast_dimensions">(call.node.attrs());
  const Dims& shape = call.results[0].dims();
  Ints summed;
  size_t next = 0;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    const bool mapped = next < positions.size() && positions[next] == d;
    if (!mapped || x.dims()[next] != shape[d]) summed.push_back(d);
    if (mapped) ++next;
  }
  Value g = call.cotangents[0];
  if (!summed.empty()) g = Reduce(call.b, g, Reducer::kSum, summed);
  grads[0] = Reshape(call.b, g, x.dims());
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  HostTensor& y = call.results[0];
  const Ints& positions = Attr<kAttrs, "broadcast_dimensions">(call.attrs);
  const Dims x_strides = StridesOf(x.dims());
  const Dims y_strides = StridesOf(y.dims());
  PieceLook look(100);
  for (int64_t k = 0; k < y.count() && !look.Ends(); ++k) {
    int64_t from = 0;
    for (size_t i = 0; i < positions.size(); ++i) {
      const int64_t index = (k / y_strides[positions[i]]) % y.dims()[positions[i]];
      from += (x.dims()[i] == 1 ? 0 : index) * x_strides[i];
    }
    CopyElement(x, from, y, k);
  }
  return absl::OkStatus();
}

// StableHLO's dimensions may come in any order.
Values Read(StableHloOp& op) {
  if (op.operands.size() != 1 || op.results.size() != 1) return op.Refuse("one operand and one result are expected");
  return {BroadcastInAnyOrder(op.b, op.operands[0], op.results[0].dims, op.Ints("broadcast_dimensions"))};
}

constexpr Sample kSamples[] = {{"T[3] shape=[2,3] broadcast_dimensions=[1]"},
                               {"T[] shape=[4] broadcast_dimensions=[]"},
                               {"T[2,1] shape=[2,5] broadcast_dimensions=[0,1]"},
                               {"T[3] shape=[3,0,2] broadcast_dimensions=[0]"}};

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  const Ints& shape = Attr<kAttrs, "shape">(call.node.attrs());
  results[0] = BroadcastInDim(call.b, call.operands[0], ToDims(Before(call.size, shape)),
                              Before(0, Shifted(Attr<kAttrs, "broadcast_dimensions">(call.node.attrs()))));
  return absl::OkStatus();
}

Value Simpler(const SimplerCall& call) {
  const Dims& dims = call.node.type().dims;
  const Ints& positions = Attr<kAttrs, "broadcast_dimensions">(call.node.attrs());
  if (call.x().dims() == dims) return call.x();  // positions increase strictly, so they are all dimensions
  if (call.from(kOp_broadcast_in_dim)) {
    Ints joined;
    for (int64_t p : Attr<kAttrs, "broadcast_dimensions">(call.from().attrs())) joined.push_back(positions[p]);
    return BroadcastInDim(call.b, call.from().operands()[0], dims, std::move(joined));
  }
  if (Squeezed(call.x().dims()) == Squeezed(dims) && call.x().type().count() != 0) {
    return Reshape(call.b, call.x(), dims);
  }
  // A reshape that only put in dimensions of size 1 is said by the positions.
  if (call.from(kOp_reshape)) {
    const Value& source = call.from().operands()[0];
    if (source.dims() == Squeezed(call.x().dims())) {
      Ints kept;
      for (size_t i = 0; i < positions.size(); ++i) {
        if (call.x().dims()[i] != 1) kept.push_back(positions[i]);
      }
      return BroadcastInDim(call.b, source, dims, std::move(kept));
    }
  }
  return MoveNarrow(call);
}

absl::StatusOr<std::vector<AffineIndex>> OperandIndex(const IndexMapCall& call) {
  const Dims& from = call.node.operands()[0].dims();
  const Ints& at = Attr<kAttrs, "broadcast_dimensions">(call.node.attrs());
  std::vector<AffineIndex> index;
  for (size_t i = 0; i < from.size(); ++i) index.push_back(from[i] == 1 ? call.zero : call.result[at[i]]);
  return index;
}

}  // namespace

constinit const OpDef kOp_broadcast_in_dim = {
    .name = "broadcast_in_dim",
    .c_name = "broadcast_in_dim",
    .doc =
        "Repeats x along new or size-1 dimensions: operand dimension i becomes result dimension "
        "broadcast_dimensions[i]. StableHLO broadcast_in_dim. For NumPy's rule see broadcast_to.",
    .example = "y = wf_broadcast_in_dim(s, b, WF_INTS(64, 10), WF_INTS(1));",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .batching = Batching,
    .lowering = Lowering::kIndexMap,
    .reference = Reference,
    .read = Read,
    .samples = kSamples,
    .tolerance = {.f32 = 0, .f64 = 0, .bf16 = 0, .f16 = 0},
    .rounds_once = true,
    .cheap_again = true,  // repeats a smaller tensor
    .planes = EachPlane,
    .simpler = Simpler,
    .index_map = OperandIndex,
    .on_bytes = true,
};

}  // namespace weft::ops
