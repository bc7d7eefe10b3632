// Slopes of windows that no other operation undoes: products, and largest or least elements with dilation.
#pragma once

#include "src/ops/conv/window.h"

namespace weft::ops {

// The cotangent g of a window's prod, max or min at each element of x. The elements under all windows are written out, a copy for each
// window that has them, and what these are worth is added where they were. Products are right whichever elements are 0; of equal
// extremes the first has the slope, or the first NaN.
absl::StatusOr<ir::Value> UnderGradient(ir::Builder& b, const ir::Value& x, const ir::Value& g, Reducer reducer,
                                        std::span<const Window> windows);

}  // namespace weft::ops
