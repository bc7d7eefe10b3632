// The elements under windows and parts of an axis, by take.
#include "src/ops/shape/taps.h"

#include <algorithm>

namespace weft::ops {

using namespace ir;

Value TakeTaps(Builder& b, const Value& x, int64_t axis, const Taps& taps) {
  HostTensor index(DType::kI32, {taps.out, taps.count});
  for (size_t i = 0; i < taps.index.size(); ++i) index.SetInt(static_cast<int64_t>(i), taps.index[i]);
  return Call(b, kOp_take, {x, Constant(b, std::move(index))}, {axis});
}

Value Weigh(Builder& b, const Value& x, int64_t axis, const Taps& taps) {
  const Value taken = TakeTaps(b, x, axis, taps);
  if (!taken) return {};
  Value weighted = taken;
  if (!taps.weight.empty()) {
    HostTensor weights(x.dtype(), {taps.out, taps.count});
    for (size_t i = 0; i < taps.weight.size(); ++i) weights.SetDouble(static_cast<int64_t>(i), taps.weight[i]);
    const Value spread = BroadcastInDim(b, Constant(b, std::move(weights)), taken.dims(), {axis, axis + 1});
    // An element of weight 0 is left out of the sum, because 0 times infinity would be NaN.
    weighted = Select(b, Compare(b, Direction::kEq, spread, 0), FullLike(b, taken, 0), Mul(b, taken, spread));
  }
  return Reduce(b, weighted, Reducer::kSum, {axis + 1});
}

absl::StatusOr<Taps> WindowTaps(int64_t in, int64_t out, int64_t size, int64_t step, int64_t dilation, int64_t low) {
  Taps taps{.out = out, .count = size};
  for (int64_t at = 0; at < out; ++at) {
    const int64_t first = at * step - low;
    // The window's own elements that are inside, by number.
    const int64_t from = first >= 0 ? 0 : (-first + dilation - 1) / dilation;
    const int64_t last = in - 1 < first ? -1 : std::min(size - 1, (in - 1 - first) / dilation);
    if (from > last) return UserError("the window at ", at, " lies in padding alone: there is no element under it");
    for (int64_t tap = 0; tap < size; ++tap) taps.index.push_back(first + std::clamp(tap, from, last) * dilation);
  }
  return taps;
}

Taps PartTaps(int64_t in, int64_t out) {
  Taps taps{.out = out, .count = 0};
  const auto begin = [&](int64_t at) { return at * in / out; };
  const auto end = [&](int64_t at) { return ((at + 1) * in + out - 1) / out; };
  for (int64_t at = 0; at < out; ++at) taps.count = std::max(taps.count, end(at) - begin(at));
  for (int64_t at = 0; at < out; ++at) {
    const int64_t length = end(at) - begin(at);
    for (int64_t tap = 0; tap < taps.count; ++tap) {
      taps.index.push_back(begin(at) + std::min(tap, length - 1));
      taps.weight.push_back(tap < length ? 1.0 / static_cast<double>(length) : 0);
    }
  }
  return taps;
}

}  // namespace weft::ops
