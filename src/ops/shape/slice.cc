// slice: a box of x, with strides.
#include "src/ops/batching.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"
#include "src/runtime/launch_look.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {
    {"start_indices", AttrType::kInts, "first index of each dimension", true},
    {"limit_indices", AttrType::kInts, "index after the last, of each dimension", true},
    {"strides", AttrType::kInts, "step in each dimension", true},
};
constexpr Along kAlong[] = {Along::kEach, Along::kEach, Along::kEach};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  for (size_t i = 0; i < 3; ++i) {
    if (call.attrs.IntList(i).size() != x.rank()) {
      return UserError(kAttrs[i].name, " has ", call.attrs.IntList(i).size(), " entries for an operand of rank ",
                       x.rank());
    }
  }
  Dims dims;
  for (size_t d = 0; d < x.rank(); ++d) {
    const int64_t start = Attr<kAttrs, "start_indices">(call.attrs)[d],
                  limit = Attr<kAttrs, "limit_indices">(call.attrs)[d], step = Attr<kAttrs, "strides">(call.attrs)[d];
    if (start < 0 || limit < start || limit > x.dims[d]) {
      return UserError("dimension ", d, " has size ", x.dims[d], " and is asked for from ", start, " to ", limit,
                       "; 0 <= start <= limit <= size must hold");
    }
    if (step < 1) return UserError("strides entry ", d, " is ", step, "; it must be at least 1 (see reverse)");
    if (step > int64_t{1} << 40) return UserError("strides entry ", d, " is ", step, "; it must be at most 2^40");
    dims.push_back((limit - start + step - 1) / step);
  }
  results->push_back(Type::Tensor(x.dtype, std::move(dims)));
  return absl::OkStatus();
}

// Puts each element of g back to where it came from, zeros elsewhere.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const Attrs& a = call.node.attrs();
  const Dims& x = call.operands[0].dims();
  const Dims& y = call.results[0].dims();
  Ints high, interior;
  for (size_t d = 0; d < x.size(); ++d) {
    const int64_t step = Attr<kAttrs, "strides">(a)[d];
    interior.push_back(step - 1);
    const int64_t used = y[d] == 0 ? 0 : (y[d] - 1) * step + 1;
    high.push_back(x[d] - Attr<kAttrs, "start_indices">(a)[d] - used);
  }
  grads[0] = Pad(call.b, call.cotangents[0], 0, Attr<kAttrs, "start_indices">(a), high, interior);
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  HostTensor& y = call.results[0];
  const Dims x_strides = StridesOf(x.dims());
  const Dims y_strides = StridesOf(y.dims());
  PieceLook look(100);
  for (int64_t k = 0; k < y.count() && !look.Ends(); ++k) {
    int64_t from = 0;
    for (size_t d = 0; d < y.dims().size(); ++d) {
      const int64_t index = (k / y_strides[d]) % y.dims()[d];
      from += (Attr<kAttrs, "start_indices">(call.attrs)[d] + index * Attr<kAttrs, "strides">(call.attrs)[d]) *
              x_strides[d];
    }
    CopyElement(x, from, y, k);
  }
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[5] start_indices=[1] limit_indices=[4] strides=[1]"},
    {"T[4,7] start_indices=[0,1] limit_indices=[4,7] strides=[1,3]"},
    {"T[4,7] start_indices=[3,6] limit_indices=[4,7] strides=[2,2]"},
    {"T[3] start_indices=[2] limit_indices=[2] strides=[1]"},
    {"T[] start_indices=[] limit_indices=[] strides=[]"},
    {"T[2,131,3] start_indices=[0,1,0] limit_indices=[2,130,3] strides=[1,1,2]"},
};

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  const Attrs& a = call.node.attrs();
  results[0] = Slice(call.b, call.operands[0], Before(0, Attr<kAttrs, "start_indices">(a)),
                     Before(call.size, Attr<kAttrs, "limit_indices">(a)), Before(1, Attr<kAttrs, "strides">(a)));
  return absl::OkStatus();
}

// A slice beside a box that was set to zeros, as the gradients of updates of one tensor are. (Beside other updates it stays: they
// run in place, which they could not if somebody still reads what was there.)
Value BesideZeros(const SimplerCall& call) {
  const Value &x = call.from().operands()[0], &box = call.from().operands()[1];
  if (call.from().extras() != nullptr || !IsUniform(box, 0.0)) return {};
  const std::optional<Ints> begins = LiteralStarts(call.from().operands().subspan(2), x.dims(), box.dims());
  if (!begins) return {};
  const Attrs& a = call.node.attrs();
  const Ints &start = Attr<kAttrs, "start_indices">(a), &limit = Attr<kAttrs, "limit_indices">(a);
  for (size_t d = 0; d < begins->size(); ++d) {
    if (limit[d] <= (*begins)[d] || start[d] >= (*begins)[d] + box.dims()[d]) {
      return Slice(call.b, x, start, limit, Attr<kAttrs, "strides">(a));
    }
  }
  return {};
}

Value Simpler(const SimplerCall& call) {
  if (call.node.type().dims == call.x().dims()) return call.x();  // same sizes: start 0, stride 1
  if (call.from(kOp_dynamic_update_slice)) return BesideZeros(call);
  if (!call.from(kOp_slice)) return MoveNarrow(call);
  const Attrs &outer = call.node.attrs(), &inner = call.from().attrs();
  Ints start, limit, strides;
  for (size_t i = 0; i < call.x().dims().size(); ++i) {
    const int64_t size = call.node.type().dims[i], step = Attr<kAttrs, "strides">(inner)[i];
    // Where nothing is taken, start and stride are free, and what they were may lie outside of the source.
    const int64_t first = Attr<kAttrs, "start_indices">(inner)[i] + Attr<kAttrs, "start_indices">(outer)[i] * step;
    start.push_back(size == 0 ? 0 : first);
    strides.push_back(size <= 1 ? 1 : step * Attr<kAttrs, "strides">(outer)[i]);
    limit.push_back(size == 0 ? 0 : start[i] + (size - 1) * strides[i] + 1);
  }
  return Slice(call.b, call.from().operands()[0], std::move(start), std::move(limit), std::move(strides));
}

absl::StatusOr<std::vector<AffineIndex>> OperandIndex(const IndexMapCall& call) {
  const Ints &start = Attr<kAttrs, "start_indices">(call.node.attrs()),
             &strides = Attr<kAttrs, "strides">(call.node.attrs());
  std::vector<AffineIndex> index(call.result.begin(), call.result.end());
  for (size_t i = 0; i < index.size(); ++i) {
    index[i].offset = start[i] + index[i].offset * strides[i];
    for (int64_t& c : index[i].coefficients) c *= strides[i];
  }
  return index;
}

}  // namespace

constinit const OpDef kOp_slice = {
    .name = "slice",
    .c_name = "slice",
    .doc =
        "A box of x: indices start, start + stride, … below limit in each dimension. For one dimension with negative "
        "indices see slice_in_dim.",
    .example = "half = wf_slice(s, x, WF_INTS(0, 0), WF_INTS(32, 10), WF_INTS(1, 1));",
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
    .along = kAlong,
    .on_bytes = true,
};

}  // namespace weft::ops
