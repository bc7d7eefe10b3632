// Distributions whose parameters are tensors: these broadcast, to each other and to `shape` where that is given, and the result
// has their type. Formulas over standard draws, so that gradients flow to the parameters where a formula has them.
#pragma once

#include "src/ops/control/repeat.h"
#include "src/ops/random/bits.h"

namespace weft::ops {

inline constexpr ir::AttrDef kDrawAttrs[] = {
    {"shape", ir::AttrType::kInts, "result shape, to which the parameters broadcast; absent: their common one"}};

// Shape rules of operations whose last operand is the state and whose first attribute is `shape`: the type of the first
// parameter, or bool.
absl::Status InferDrawn(const ir::InferCall& call, ir::Types* results);
absl::Status InferDrawnBool(const ir::InferCall& call, ir::Types* results);

// The parameters of such a call, all in the shape of the result.
absl::StatusOr<ir::Values> DrawnParameters(const ir::ExpandCall& call);

// The operation of it: a macro, unless it says otherwise.
consteval ir::OpDef Drawn(ir::OpDef named) {
  named.since = 2;
  if (named.attrs.empty()) named.attrs = kDrawAttrs;
  named.results = kResult;
  if (named.infer == nullptr) named.infer = InferDrawn;
  named.lowering = ir::Lowering::kExpand;
  named.random = true;
  return named;
}

// Exponentially distributed with mean 1: -log1p(-v), v all of a word's bits, finest where v is small. Never 0, never infinite.
ir::Value RandomExponential(ir::Builder& b, const ir::Value& state, const Dims& dims, DType dtype);
// Normal numbers of mean 0 and deviation 1, f32 or f64.
ir::Value RandomNormal(ir::Builder& b, const ir::Value& state, const Dims& dims, DType dtype);
// f64 inside (0, 1), symmetric about a half.
ir::Value RandomOpen(ir::Builder& b, const ir::Value& state, const Dims& dims);

// x where the parameters are those of a distribution, NaN elsewhere.
ir::Value Where(ir::Builder& b, const ir::Value& valid, const ir::Value& x);

// The n-th of the streams that one call draws from; they have nothing in common with what later calls draw.
ir::Value StreamOfCall(ir::Builder& b, const ir::Value& state, uint64_t n);

// One try of a rejection: whether it is accepted, and the value. `state` is the try's own, `outside` what does not change.
struct Try {
  ir::Value accepted, value;
};
// Tries again where no try has been accepted, as long as there is such an element among those that are `active`; `first` is the
// result of the others. No distribution here needs more than two tries on average.
template <typename Propose>
ir::Value Reject(ir::Builder& b, const ir::Value& stream, const ir::Value& active, const ir::Value& first,
                 ir::Values outside, Propose propose) {
  constexpr uint64_t kMostTries = 10000;
  outside.push_back(stream);
  const ir::Values found = Repeat(
      b, "tries", {U64(b, 0), active, first}, outside,
      [](ir::Builder& in, std::span<const ir::Value> carried) {
        const ir::Value more = Compare(in, Direction::kLt, carried[0], U64(in, kMostTries));
        return And(in, carried[1], BroadcastTo(in, more, carried[1].dims()));
      },
      [&](ir::Builder& in, std::span<const ir::Value> carried, std::span<const ir::Value> fixed) -> ir::Values {
        const Try one = propose(in, StreamOf(in, fixed.back(), carried[0]), fixed);
        const ir::Value taken = And(in, carried[1], one.accepted);
        const ir::Value open = And(in, carried[1], Call(in, kOp_bitwise_not, {one.accepted}));
        return {Add(in, carried[0], U64(in, 1)), open, Select(in, taken, one.value, carried[2])};
      });
  return found[2];
}

}  // namespace weft::ops
