// Pooling attributes as those of reduce_window.
#include "src/ops/conv/pool.h"

namespace weft::ops {

using ir::Ints;

absl::StatusOr<ir::Attrs> PoolAttrs(const ir::OpDef& op, const ir::Attrs& attrs, const Dims& x, Reducer reducer) {
  if (x.size() < 3) {
    return UserError("x has shape ", DimsToString(x), "; [batch, spatial…, features] of rank 3 or more is needed");
  }
  const size_t n = x.size() - 2;
  WEFT_ASSIGN_OR_RETURN(const Ints sizes, PerDimension(op, attrs, AttrPosition<kPoolAttrs, "window">(), n, 1));
  Ints strides = sizes;
  if (HasAttr<kPoolAttrs, "strides">(attrs)) {
    WEFT_ASSIGN_OR_RETURN(strides, PerDimension(op, attrs, AttrPosition<kPoolAttrs, "strides">(), n, 1));
  }
  std::vector<Window> windows;
  for (size_t d = 0; d < n; ++d) {
    windows.push_back({.in = x[1 + d], .size = sizes[d], .stride = strides[d]});
    WEFT_RETURN_IF_ERROR(CheckWindow(windows.back(), d));
  }
  WEFT_ASSIGN_OR_RETURN(const Ints padding, ResolvePadding(op, attrs, AttrPosition<kPoolAttrs, "padding">(),
                                                           AttrPosition<kPoolAttrs, "pads">(), windows));
  auto spread = [](const Ints& inner, size_t per, int64_t outer) {
    Ints all(per, outer);
    all.insert(all.end(), inner.begin(), inner.end());
    all.insert(all.end(), per, outer);
    return all;
  };
  return ir::Attrs{spread(sizes, 1, 1), static_cast<int64_t>(reducer), spread(strides, 1, 1), Ints(n + 2, 1),
                   Ints(n + 2, 1),      spread(padding, 2, 0)};
}

absl::Status InferPool(const ir::InferCall& call, ir::Types* results) {
  WEFT_ASSIGN_OR_RETURN(const ir::Attrs attrs, PoolAttrs(call.op, call.attrs, call.operands[0]->dims, Reducer::kSum));
  return kOp_reduce_window.infer(ir::InferCall{kOp_reduce_window, call.operands, attrs}, results);
}

}  // namespace weft::ops
