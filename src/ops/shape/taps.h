// Elements of one axis at places known when recording, several for each place of the result: windows, padding, resizing.
#pragma once

#include <vector>

#include "src/ops/build.h"

namespace weft::ops {

// `count` elements for each of `out` places, in rows. Without weights each counts as it is.
struct Taps {
  int64_t out = 0, count = 1;
  std::vector<int64_t> index;
  std::vector<double> weight = {};
};

// x with the axis replaced by [out, count].
ir::Value TakeTaps(ir::Builder& b, const ir::Value& x, int64_t axis, const Taps& taps);
// x with the axis replaced by [out]: the weighted sums of the elements, or with one tap each the elements.
ir::Value Weigh(ir::Builder& b, const ir::Value& x, int64_t axis, const Taps& taps);

// Windows of `size` elements, `step` apart, that begin at -low; what lies outside is replaced by the nearest element of the window
// that is inside, and weighs 0 where there are weights.
absl::StatusOr<Taps> WindowTaps(int64_t in, int64_t out, int64_t size, int64_t step, int64_t dilation, int64_t low);
// Windows that divide `in` elements into `out` parts as equal as they can be. Those that are shorter repeat their last element, which
// weighs 0; the others weigh 1 / length.
Taps PartTaps(int64_t in, int64_t out);

}  // namespace weft::ops
