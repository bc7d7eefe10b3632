// Pooling attributes as windows, and as those of reduce_window.
#include "src/ops/conv/pool.h"

namespace weft::ops {

using ir::Ints;

absl::StatusOr<std::vector<Window>> PoolWindows(const ir::OpDef& op, const ir::Attrs& attrs, const Dims& x) {
  if (x.size() < 3) {
    return UserError("x has shape ", DimsToString(x), "; [batch, spatial…, features] of rank 3 or more is needed");
  }
  const size_t n = x.size() - 2;
  WEFT_ASSIGN_OR_RETURN(const Ints sizes, PerDimension(op, attrs, AttrPosition<kPoolAttrs, "window">(), n, 1));
  Ints strides = sizes;
  if (HasAttr<kPoolAttrs, "strides">(attrs)) {
    WEFT_ASSIGN_OR_RETURN(strides, PerDimension(op, attrs, AttrPosition<kPoolAttrs, "strides">(), n, 1));
  }
  Ints dilation(n, 1);
  if (HasAttr<kMaxPoolAttrs, "dilation">(attrs)) {
    WEFT_ASSIGN_OR_RETURN(dilation, PerDimension(op, attrs, AttrPosition<kMaxPoolAttrs, "dilation">(), n, 1));
  }
  std::vector<Window> windows;
  for (size_t d = 0; d < n; ++d) {
    windows.push_back({.in = x[1 + d], .size = sizes[d], .stride = strides[d], .dilation = dilation[d]});
    WEFT_RETURN_IF_ERROR(CheckWindow(windows.back(), d));
  }
  WEFT_ASSIGN_OR_RETURN(const Ints padding, ResolvePadding(op, attrs, AttrPosition<kPoolAttrs, "padding">(),
                                                           AttrPosition<kPoolAttrs, "pads">(), windows));
  for (size_t d = 0; d < n; ++d) {
    Window& w = windows[d];
    w.low = padding[2 * d];
    w.high = padding[2 * d + 1];
    WEFT_RETURN_IF_ERROR(CheckWindow(w, d));
    const size_t ceil = AttrPosition<kMaxPoolAttrs, "ceil_mode">();
    if (!attrs.has(ceil) || !attrs.Bool(ceil) || w.in == 0) continue;
    // One more where it begins before the padding behind the elements does.
    const int64_t next = w.out() * w.stride;
    if (next < w.in + w.low && (w.in + w.low + w.high - w.dilated_size()) % w.stride != 0) {
      w.high = std::max(w.high, next + w.dilated_size() - w.in - w.low);
    }
  }
  return windows;
}

ir::Attrs PoolAttrs(std::span<const Window> windows, Reducer reducer) {
  Ints sizes = {1}, strides = {1}, dilation = {1}, padding = {0, 0};
  for (const Window& w : windows) {
    sizes.push_back(w.size);
    strides.push_back(w.stride);
    dilation.push_back(w.dilation);
    padding.insert(padding.end(), {w.low, w.high});
  }
  for (Ints* list : {&sizes, &strides, &dilation}) list->push_back(1);
  padding.insert(padding.end(), {0, 0});
  return ir::Attrs{sizes, static_cast<int64_t>(reducer), strides, Ints(sizes.size(), 1), dilation, padding};
}

absl::StatusOr<ir::Attrs> PoolAttrs(const ir::OpDef& op, const ir::Attrs& attrs, const Dims& x, Reducer reducer) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows, PoolWindows(op, attrs, x));
  return PoolAttrs(windows, reducer);
}

absl::Status InferPool(const ir::InferCall& call, ir::Types* results) {
  WEFT_ASSIGN_OR_RETURN(const ir::Attrs attrs, PoolAttrs(call.op, call.attrs, call.operands[0]->dims, Reducer::kSum));
  return kOp_reduce_window.infer(ir::InferCall{kOp_reduce_window, call.operands, attrs}, results);
}

}  // namespace weft::ops
