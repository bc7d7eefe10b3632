// reverse: turns the order of elements around along some dimensions.
#include <algorithm>

#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"
#include "src/runtime/launch_look.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {{"dimensions", AttrType::kInts, "dimensions to turn around", true}};
constexpr Along kAlong[] = {Along::kNumbers};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(
      NormalizeAxes("dimensions", Attr<kAttrs, "dimensions">(call.attrs), call.operands[0]->rank()).status());
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  grads[0] = Reverse(call.b, call.cotangents[0], Attr<kAttrs, "dimensions">(call.node.attrs()));
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes,
                        NormalizeAxes("dimensions", Attr<kAttrs, "dimensions">(call.attrs), x.dims().size()));
  const Dims strides = StridesOf(x.dims());
  PieceLook look(100);
  for (int64_t k = 0; k < x.count() && !look.Ends(); ++k) {
    int64_t from = k;
    for (int64_t d : axes) {
      const int64_t index = (k / strides[d]) % x.dims()[d];
      from += (x.dims()[d] - 1 - 2 * index) * strides[d];
    }
    CopyElement(x, from, call.results[0], k);
  }
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  absl::StatusOr<Ints> axes = NormalizeAxes("dimensions", Attr<kAttrs, "dimensions">(node.attrs()), node.type().rank());
  if (!axes.ok()) return writer.Fail(axes.status());
  writer.Emit("reverse", {{"dimensions", ShloArray(*axes)}});
}

constexpr Sample kSamples[] = {{"T[5] dimensions=[0]"},
                               {"T[2,3,4] dimensions=[0,2]"},
                               {"T[2,3] dimensions=[-1]"},
                               {"T[2,3] dimensions=[]"},
                               {"T[0,3] dimensions=[0]"}};

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  return BatchAlong(call, AttrPosition<kAttrs, "dimensions">(), results);
}

Value Simpler(const SimplerCall& call) {
  const auto axes = NormalizeAxes("dimensions", Attr<kAttrs, "dimensions">(call.node.attrs()), call.x().dims().size());
  if (!axes.ok()) return {};
  const bool nothing = std::ranges::all_of(*axes, [&](int64_t d) { return call.x().dims()[d] == 1; });
  return nothing ? call.x() : Value();
}

absl::StatusOr<std::vector<AffineIndex>> OperandIndex(const IndexMapCall& call) {
  const Dims& from = call.node.operands()[0].dims();
  std::vector<AffineIndex> index(call.result.begin(), call.result.end());
  for (int64_t d : Attr<kAttrs, "dimensions">(call.node.attrs())) {
    d += d < 0 ? static_cast<int64_t>(from.size()) : 0;
    index[d].offset = from[d] - 1 - index[d].offset;
    for (int64_t& c : index[d].coefficients) c = -c;
  }
  return index;
}

}  // namespace

constinit const OpDef kOp_reverse = {
    .name = "reverse",
    .c_name = "reverse",
    .doc = "Turns the order of elements around along some dimensions.",
    .example = "y = wf_reverse(s, x, WF_INTS(-1));",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .batching = Batching,
    .lowering = Lowering::kIndexMap,
    .reference = Reference,
    .stablehlo = StableHlo,
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
