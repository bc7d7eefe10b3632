// pad: puts a value around and between the elements of x, or cuts edges off.
#include <algorithm>

#include "src/ops/batching.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"
#include "src/runtime/launch_look.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}, {"value", kEveryType, "scalar to fill with"}};
constexpr AttrDef kAttrs[] = {
    {"edge_padding_low", AttrType::kInts, "elements before the first of each dimension; negative: cut off", true},
    {"edge_padding_high", AttrType::kInts, "elements after the last of each dimension; negative: cut off", true},
    {"interior_padding", AttrType::kInts, "elements between neighbours of each dimension", true},
};
constexpr Along kAlong[] = {Along::kEach, Along::kEach, Along::kEach};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  if (call.operands[1]->rank() != 0) {
    return UserError("value must be a scalar, not of shape ", DimsToString(call.operands[1]->dims));
  }
  for (size_t i = 0; i < 3; ++i) {
    if (call.attrs.IntList(i).size() != x.rank()) {
      return UserError(kAttrs[i].name, " has ", call.attrs.IntList(i).size(), " entries for an operand of rank ",
                       x.rank());
    }
  }
  Dims dims;
  for (size_t d = 0; d < x.rank(); ++d) {
    const int64_t low = Attr<kAttrs, "edge_padding_low">(call.attrs)[d],
                  high = Attr<kAttrs, "edge_padding_high">(call.attrs)[d],
                  interior = Attr<kAttrs, "interior_padding">(call.attrs)[d];
    if (interior < 0) return UserError("interior_padding entry ", d, " is ", interior, "; it cannot be negative");
    int64_t gaps = 0, size = 0;
    // Entries below 2^40, as in windows, keep all later arithmetic on them (interior + 1, -low) in range.
    constexpr int64_t kMost = int64_t{1} << 40;
    const bool overflow = low < -kMost || low > kMost || high < -kMost || high > kMost || interior > kMost ||
                          __builtin_mul_overflow(x.dims[d] == 0 ? 0 : x.dims[d] - 1, interior, &gaps) ||
                          __builtin_add_overflow(x.dims[d], gaps, &size) ||
                          __builtin_add_overflow(size, low + high, &size);
    if (overflow || size < 0) {
      return UserError("dimension ", d, " of size ", x.dims[d], " with padding low ", low, ", high ", high,
                       ", interior ", interior, overflow ? " is too large" : " would have a negative size");
    }
    dims.push_back(size);
  }
  results->push_back(Type::Tensor(x.dtype, std::move(dims)));
  return absl::OkStatus();
}

// Back: undo the edges (negated padding), then take every (interior + 1)th element. The rest is the padding value's.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Attrs& a = call.node.attrs();
  const Dims& x = call.operands[0].dims();
  const Value& g = call.cotangents[0];
  Ints low, high, zero(x.size(), 0), limit, strides;
  for (size_t d = 0; d < x.size(); ++d) {
    low.push_back(-Attr<kAttrs, "edge_padding_low">(a)[d]);
    high.push_back(-Attr<kAttrs, "edge_padding_high">(a)[d]);
    strides.push_back(Attr<kAttrs, "interior_padding">(a)[d] + 1);
    limit.push_back(x[d] == 0 ? 0 : (x[d] - 1) * (Attr<kAttrs, "interior_padding">(a)[d] + 1) + 1);
  }
  Value inner = Slice(b, Pad(b, g, 0, low, high, zero), zero, limit, strides);
  if (call.wanted[0]) grads[0] = inner;
  if (call.wanted[1]) {
    // The sum of what x does not cover. (All less what it covers would cancel, and pass a NaN on.)
    HostTensor no(DType::kBool, {}), yes(DType::kBool, {});
    yes.SetInt(0, 1);
    Value covered = BroadcastTo(b, Constant(b, std::move(no)), x);
    Value outside = Call(b, kOp_pad, {covered, Constant(b, std::move(yes))}, call.node.attrs());
    grads[1] = Reduce(b, Select(b, outside, g, FullLike(b, g, 0)), Reducer::kSum, Axes(x.size()));
  }
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  HostTensor& y = call.results[0];
  const Dims y_strides = StridesOf(y.dims());
  const Dims x_strides = StridesOf(x.dims());
  PieceLook look(100);
  for (int64_t k = 0; k < y.count() && !look.Ends(); ++k) {
    int64_t from = 0;
    bool inside = true;
    for (size_t d = 0; d < y.dims().size(); ++d) {
      const int64_t step = Attr<kAttrs, "interior_padding">(call.attrs)[d] + 1;
      const int64_t at = (k / y_strides[d]) % y.dims()[d] - Attr<kAttrs, "edge_padding_low">(call.attrs)[d];
      inside = inside && at >= 0 && at % step == 0 && at / step < x.dims()[d];
      from += at / step * x_strides[d];
    }
    CopyElement(inside ? x : *call.operands[1], inside ? from : 0, y, k);
  }
  return absl::OkStatus();
}

#define WEFT_PAD(low, high, interior) " edge_padding_low=" low " edge_padding_high=" high " interior_padding=" interior
constexpr Sample kSamples[] = {
    {"T[3] T[]" WEFT_PAD("[1]", "[2]", "[0]")},           {"T[2,3] T[]" WEFT_PAD("[0,1]", "[1,0]", "[1,2]")},
    {"T[4,5] T[]" WEFT_PAD("[-1,2]", "[1,-3]", "[0,1]")}, {"T[] T[]" WEFT_PAD("[]", "[]", "[]")},
    {"T[0,2] T[]" WEFT_PAD("[2,0]", "[1,0]", "[3,0]")},   {"T[1,131] T[]" WEFT_PAD("[1,1]", "[1,1]", "[0,0]")}};
#undef WEFT_PAD

// A value that each example has of its own is chosen where the operand is not.
absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Attrs attrs = Longer(call.node.attrs(), {{0, 0}, {1, 0}, {2, 0}});
  const Value value = call.batched[1] ? Scalar(b, call.operands[1].dtype(), 0) : call.operands[1];
  results[0] = Call(b, kOp_pad, {Batched(call, 0), value}, attrs);
  if (!call.batched[1]) return absl::OkStatus();
  const Value covered = Full(b, DType::kBool, call.node.operands()[0].dims(), 1);
  const Value inside = Call(b, kOp_pad, {covered, Scalar(b, DType::kBool, 0)}, call.node.attrs());
  WEFT_RETURN_IF_ERROR(b.status());
  const Dims& dims = results[0].dims();
  results[0] = Select(b, BroadcastInDim(b, inside, dims, Shifted(Axes(inside.dims().size()))), results[0],
                      OfEachExample(b, call.operands[1], dims));
  return absl::OkStatus();
}

Value Simpler(const SimplerCall& call) {
  const auto zero = [](const Ints& ints) { return std::ranges::all_of(ints, [](int64_t n) { return n == 0; }); };
  const Attrs& a = call.node.attrs();
  const bool nothing = zero(Attr<kAttrs, "edge_padding_low">(a)) && zero(Attr<kAttrs, "edge_padding_high">(a)) &&
                       zero(Attr<kAttrs, "interior_padding">(a));
  return nothing ? call.x() : Value();
}

}  // namespace

constinit const OpDef kOp_pad = {
    .name = "pad",
    .c_name = "pad",
    .doc =
        "Puts a scalar around (low, high) and between (interior) the elements of x; negative low and high cut edges "
        "off.",
    .example = "y = wf_pad(s, x, zero, WF_INTS(1, 1), WF_INTS(1, 1), WF_INTS(0, 0));",
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
    .cheap_again = true,  // moves elements
    .planes = EachPlane,
    .simpler = Simpler,
    .along = kAlong,
    .on_bytes = true,
};

}  // namespace weft::ops
