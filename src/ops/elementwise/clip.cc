// clip: x held between two fixed numbers.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kNumber, "operand"}};
constexpr AttrDef kAttrs[] = {{"low", AttrType::kDouble, "lower bound; absent: none"},
                              {"high", AttrType::kDouble, "upper bound; absent: none"}};

absl::Status Infer(const InferCall& call, Types* results) {
  if (!call.attrs.has(0) && !call.attrs.has(1))
    return UserError("neither low nor high is given; at least one is needed");
  if (call.attrs.has(0) && call.attrs.has(1) && !(call.attrs.Double(0) <= call.attrs.Double(1))) {
    return UserError("low is ", call.attrs.Double(0), " and high is ", call.attrs.Double(1),
                     "; low must not exceed high");
  }
  return InferSame(call, results);
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  Value y = call.operands[0];
  if (call.attrs.has(0)) y = Maximum(b, y, FullLike(b, y, call.attrs.Double(0)));
  if (call.attrs.has(1)) y = Minimum(b, y, FullLike(b, y, call.attrs.Double(1)));
  results[0] = y;
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3] low=-1 high=1"}, {"T[131] low=0"}, {"T[] high=0.5"}, {"T[0] low=0 high=1"}};

}  // namespace

constinit const OpDef kOp_clip = {
    .name = "weft.clip",
    .c_name = "clip",
    .kind = Kind::kMacro,
    .doc =
        "Elementwise min(max(x, low), high) with fixed bounds, either of which may be left out. For bounds that are "
        "tensors see clamp.",
    .example = "y = wf_clip(s, x, .low = -1, .high = 1);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
