// max_pool: the largest element under each window.
#include "src/ops/conv/pool.h"

namespace weft::ops {
namespace {

using namespace ir;

absl::Status ExpandLast(const ExpandCall& call, std::span<Value> results) {
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows, PoolWindows(call.op, call.attrs, x.dims()));
  // reduce_window's gradient knows no dilation.
  if (std::ranges::any_of(windows, [](const Window& w) { return w.dilation != 1; })) {
    Value indices;
    const DType dtype = x.dtype();
    WEFT_RETURN_IF_ERROR(LargestUnder(call.b, Widened(call.b, x), windows, &results[0], &indices));
    results[0] = Convert(call.b, results[0], dtype);
    return absl::OkStatus();
  }
  results[0] = Call(call.b, kOp_reduce_window, {x}, PoolAttrs(windows, Reducer::kMax));
  return absl::OkStatus();
}

absl::Status Infer(const InferCall& call, Types* results) {
  return InferFirst(call, results, AttrPosition<kMaxPoolAttrs, "channels_first">(), InferPool);
}
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  return ExpandFirst(call, results, AttrPosition<kMaxPoolAttrs, "channels_first">(), ExpandLast);
}

constexpr Sample kSamples[] = {{"T[2,3,4,6] window=[2,2] channels_first=true"},
                               {"T[2,4,6,3] window=[2,2]"},
                               {"T[1,5,7,2] window=[3,3] strides=[2,2] padding=same"},
                               {"T[1,5,5,1] window=[3,2] strides=[1,2] padding=explicit pads=[1,1,0,1]"},
                               {"T[2,7,3] window=[3]"},
                               {"T[0,4,4,1] window=[2,2]"},
                               {"T[1,8,6,2] window=[2,2] ceil_mode=true dilation=[2,1]"}};

}  // namespace

constinit const OpDef kOp_max_pool = {
    .name = "weft.max_pool",
    .c_name = "max_pool",
    .kind = Kind::kMacro,
    .doc =
        "The largest element under each window of channels-last data. NaN if any is. The gradient goes to the "
        "first of equals, or to the first NaN.",
    .example = "h = wf_max_pool(s, h, WF_INTS(2, 2));",
    .operands = kMaxPoolOperands,
    .attrs = kMaxPoolAttrs,
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
