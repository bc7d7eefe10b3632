// avg_pool: the mean under each window.
#include <algorithm>

#include "src/ops/conv/pool.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kAvgPoolAttrs[] = {
    kPoolAttrs[0],
    kPoolAttrs[1],
    kPoolAttrs[2],
    kPoolAttrs[3],
    kCeilAttr,
    {"count_include_pad", AttrType::kBool, "padding counts as elements that are 0", false, "false"},
    {"divisor", AttrType::kInt, "divides each sum; absent: how many elements it has"},
    kChannelsFirstAttr};

// The attributes that all pools have; the windows are read from them.
Attrs Shared(const Attrs& attrs) {
  Attrs shared;
  for (size_t i = 0; i <= AttrPosition<kAvgPoolAttrs, "ceil_mode">(); ++i) {
    if (attrs.has(i)) shared.set(i, attrs.at(i));
  }
  return shared;
}

absl::Status InferLast(const InferCall& call, Types* results) {
  if (HasAttr<kAvgPoolAttrs, "divisor">(call.attrs) && Attr<kAvgPoolAttrs, "divisor">(call.attrs) == 0) {
    return UserError("divisor is 0; it must be another number");
  }
  const Attrs shared = Shared(call.attrs);
  return InferPool(InferCall{call.op, call.operands, shared}, results);
}

// A window at the edge is divided by the elements it really has, and with count_include_pad by those of the padding, too; not by
// what ceil_mode adds.
absl::Status ExpandLast(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows, PoolWindows(call.op, Shared(call.attrs), x.dims()));
  const Attrs attrs = PoolAttrs(windows, Reducer::kSum);
  const Value sum = Call(b, kOp_reduce_window, {x}, attrs);
  if (HasAttr<kAvgPoolAttrs, "divisor">(call.attrs)) {
    results[0] = Mul(b, sum, 1.0 / static_cast<double>(Attr<kAvgPoolAttrs, "divisor">(call.attrs)));
    return absl::OkStatus();
  }
  if (std::ranges::all_of(windows, [](const Window& w) { return w.low == 0 && w.high == 0; })) {
    double count = 1;  // of a window, which may be larger than any tensor where there are no windows
    for (const Window& w : windows) count *= static_cast<double>(w.size);
    results[0] = Mul(b, sum, 1.0 / count);
    return absl::OkStatus();
  }
  Attrs plain = Shared(call.attrs);
  plain.set(AttrPosition<kAvgPoolAttrs, "ceil_mode">(), int64_t{0});
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> given, PoolWindows(call.op, plain, x.dims()));
  const bool padding = Attr<kAvgPoolAttrs, "count_include_pad">(call.attrs);
  Value ones = Full(b, x.dtype(), x.dims(), 1);
  std::vector<Window> counting = windows;
  if (padding) {
    Dims dims = x.dims();
    for (size_t d = 0; d < windows.size(); ++d) {
      dims[1 + d] += given[d].low + given[d].high;
      counting[d] = windows[d];
      counting[d].in = dims[1 + d];
      counting[d].low = 0;
      counting[d].high = windows[d].high - given[d].high;
    }
    ones = Full(b, x.dtype(), dims, 1);
  }
  results[0] = Div(b, sum, Call(b, kOp_reduce_window, {ones}, PoolAttrs(counting, Reducer::kSum)));
  return absl::OkStatus();
}

absl::Status Infer(const InferCall& call, Types* results) {
  return InferFirst(call, results, AttrPosition<kAvgPoolAttrs, "channels_first">(), InferLast);
}
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  return ExpandFirst(call, results, AttrPosition<kAvgPoolAttrs, "channels_first">(), ExpandLast);
}

constexpr Sample kSamples[] = {
    {"T[2,3,4,6] window=[2,2] channels_first=true"},
    {"T[2,4,6,3] window=[2,2]"},
    {"T[1,5,7,2] window=[3,3] strides=[2,2] padding=same"},
    {"T[1,5,5,1] window=[3,2] strides=[1,2] padding=explicit pads=[1,1,0,1]"},
    {"T[2,7,3] window=[3]"},
    {"T[0,4,4,1] window=[2,2]"},
    {"T[1,5,4,2] window=[2,3] padding=explicit pads=[1,0,1,1] ceil_mode=true count_include_pad=true"}};

}  // namespace

constinit const OpDef kOp_avg_pool = {
    .name = "weft.avg_pool",
    .c_name = "avg_pool",
    .kind = Kind::kMacro,
    .doc = "The mean under each window of channels-last data; padding is not counted unless count_include_pad says so.",
    .example = "h = wf_avg_pool(s, h, WF_INTS(7, 7));",
    .operands = kPoolOperands,
    .attrs = kAvgPoolAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-6},
    .absent = kMacroAbsent,
};

}  // namespace weft::ops
