// reshape: the same elements in row-major order under another shape.
#include <cstring>

#include "src/ops/batching.h"
#include "src/ops/families.h"
#include "src/ops/lies.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {
    {"shape", AttrType::kInts, "result shape; one entry may be -1 and is then worked out", true}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  Dims shape = ToDims(Attr<kAttrs, "shape">(call.attrs));
  int64_t* open = nullptr;
  Dims known;
  for (int64_t& dim : shape) {
    if (dim == -1 && open == nullptr) {
      open = &dim;
    } else if (dim < 0) {
      return UserError("shape ", DimsToString(Attr<kAttrs, "shape">(call.attrs)),
                       dim == -1 ? " has -1 twice" : " has a negative entry", "; only one entry may be -1");
    } else {
      known.push_back(dim);
    }
  }
  const std::optional<int64_t> count = CheckedCount(known);
  if (open != nullptr && count && *count != 0 && x.count() % *count == 0) *open = x.count() / *count;
  if (!CheckedCount(shape) || *CheckedCount(shape) != x.count()) {
    return UserError("shape ", DimsToString(Attr<kAttrs, "shape">(call.attrs)), " does not hold the ", x.count(),
                     " elements of ", DimsToString(x.dims));
  }
  results->push_back(Type::Tensor(x.dtype, std::move(shape)));
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  grads[0] = Reshape(call.b, call.cotangents[0], call.operands[0].dims());
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  const std::span<const std::byte> from = call.operands[0]->bytes();
  if (!from.empty()) std::memcpy(call.results[0].mutable_bytes().data(), from.data(), from.size());
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3] shape=[3,2]"}, {"T[2,6] shape=[4,-1]"}, {"T[1,1] shape=[]"},
                               {"T[] shape=[1,1]"},    {"T[0,3] shape=[7,0]"},  {"T[130] shape=[2,5,13]"}};

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  results[0] = Reshape(call.b, call.operands[0], ToDims(Before(call.size, call.node.type().dims)));
  return absl::OkStatus();
}

Value Simpler(const SimplerCall& call) {
  const Dims& dims = call.node.type().dims;
  if (call.x().dims() == dims) return call.x();
  if (call.from(kOp_reshape)) return Reshape(call.b, call.from().operands()[0], dims);
  if (call.from(kOp_broadcast_in_dim) && call.from().operands()[0].type().count() == 1 &&
      call.node.type().count() != 1) {
    return BroadcastInDim(call.b, Reshape(call.b, call.from().operands()[0], {}), dims, {});
  }
  return MoveNarrow(call);
}

// Where dimensions of size 1 come and go alone.
absl::StatusOr<std::vector<AffineIndex>> OperandIndex(const IndexMapCall& call) {
  const Dims &from = call.node.operands()[0].dims(), &to = call.node.type().dims;
  if (Squeezed(from) != Squeezed(to)) return absl::UnimplementedError("reshape inside a kernel");
  std::vector<AffineIndex> index;
  size_t next = 0;
  for (int64_t size : from) {
    if (size == 1) {
      index.push_back(call.zero);
      continue;
    }
    while (to[next] == 1) ++next;
    index.push_back(call.result[next++]);
  }
  return index;
}

// Groups of dimensions that are one another's product: the outermost one of a group is cut as it was.
Sharding OwnLie(const LieCall& call) {
  const Dims &from = call.node.operands()[0].dims(), &to = call.node.type().dims;
  Sharding result;
  size_t i = 0, j = 0;
  while (i < from.size() && j < to.size()) {
    if (from[i] == 1 && to[j] != 1) {
      ++i;
      continue;
    }
    if (to[j] == 1 && from[i] != 1) {
      ++j;
      continue;
    }
    LieAs(call, call.operands[0], static_cast<int64_t>(i), static_cast<int64_t>(j), &result);
    int64_t left = from[i++], right = to[j++];
    while (left != right && (left < right ? i < from.size() : j < to.size())) {
      if (left < right) {
        left *= from[i++];
      } else {
        right *= to[j++];
      }
    }
    if (left != right) break;
  }
  return result;
}

}  // namespace

constinit const OpDef kOp_reshape = {
    .name = "reshape",
    .c_name = "reshape",
    .doc =
        "The same elements in row-major order under another shape. One entry of shape may be -1: it becomes whatever "
        "makes the number of elements right.",
    .example = "h = wf_reshape(s, h, WF_INTS(64, -1));",
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
    .alias = true,        // row-major before and after
    .planes = EachPlane,
    .simpler = Simpler,
    .index_map = OperandIndex,
    .lies = OwnLie,
    .on_bytes = true,
};

}  // namespace weft::ops
