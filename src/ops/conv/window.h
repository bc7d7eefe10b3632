// Sliding windows: the arithmetic that convolution, reduce_window and select_and_scatter share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/ops/families.h"
#include "src/runtime/launch_look.h"

namespace weft::ops {

// One dimension. Dilation spreads elements apart with gaps between them.
struct Window {
  int64_t in = 1;    // elements of the operand
  int64_t size = 1;  // taps
  int64_t stride = 1;
  int64_t low = 0, high = 0;  // padding; negative cuts
  int64_t base_dilation = 1;  // of the operand
  int64_t dilation = 1;       // of the window

  static int64_t Dilated(int64_t count, int64_t dilation) { return count == 0 ? 0 : (count - 1) * dilation + 1; }
  int64_t dilated_in() const { return Dilated(in, base_dilation); }
  int64_t dilated_size() const { return Dilated(size, dilation); }
  int64_t out() const {
    const int64_t room = dilated_in() + low + high - dilated_size();
    return room < 0 ? 0 : room / stride + 1;
  }
  // The operand element that tap `tap` of output `at` reads, -1 where there is none.
  int64_t Index(int64_t at, int64_t tap) const {
    const int64_t position = at * stride + tap * dilation - low;
    if (position < 0 || position % base_dilation != 0) return -1;
    return position / base_dilation < in ? position / base_dilation : -1;
  }
};

// Sizes and strides at least 1, dilations at least 1, everything below 2^40. `dimension` is for the text.
absl::Status CheckWindow(const Window& window, size_t dimension);

// An attribute with one entry a dimension (`per` = 2: low and high); `otherwise` where it is absent.
absl::StatusOr<ir::Ints> PerDimension(const ir::OpDef& op, const ir::Attrs& attrs, size_t i, size_t dimensions,
                                      int64_t otherwise, size_t per = 1);

// Positions of window attributes; what an operation has not is absent.
struct WindowAttrs {
  size_t sizes, strides, padding;
  std::optional<size_t> base = {}, dilation = {};
};
// One for each dimension, checked.
absl::StatusOr<std::vector<Window>> WindowsOf(const ir::OpDef& op, const ir::Attrs& attrs, const Dims& dims,
                                              const WindowAttrs& at);
// The attributes of a window with one more dimension in front, over which it does not reach.
ir::Attrs WithExamples(ir::Attrs attrs, const WindowAttrs& at);
// StableHLO's window attributes.
std::vector<std::pair<std::string, std::string>> ShloWindows(std::span<const Window> windows);

// How C-level operations say padding.
inline constexpr std::string_view kPaddingNames[] = {"valid", "same", "explicit"};
enum class Padding : int64_t { kValid = 0, kSame = 1, kExplicit = 2 };
// [low, high, …] for windows whose other members are set, each of which must fit unless there is nothing to go over. `same` gives ceil(in / stride) outputs, the odd
// element at the end.
absl::StatusOr<ir::Ints> ResolvePadding(const ir::OpDef& op, const ir::Attrs& attrs, size_t mode, size_t pads,
                                        std::span<const Window> windows);

// Calls f with the index along each dimension, last one fastest.
template <typename F>
void ForEachIndex(std::span<const int64_t> dims, F f) {
  const int64_t count = CountOf(dims);
  Dims index(dims.size(), 0);
  PieceLook look(1000);
  for (int64_t k = 0; k < count && !look.Ends(); ++k) {
    f(k, index);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
}

// Calls f with each index of the operand that lies under a tap of the window at `at`, in the order of the taps. Goes over the
// operand: there may be 2^40 taps with nothing but padding under them.
template <typename F>
void ForEachUnder(std::span<const Window> windows, std::span<const int64_t> at, F f) {
  Dims from, first, count;
  for (size_t d = 0; d < windows.size(); ++d) {
    const Window& w = windows[d];
    from.push_back(at[d] * w.stride - w.low);  // where the first tap is
    const int64_t last = from[d] + (w.size - 1) * w.dilation;
    first.push_back(from[d] <= 0 ? 0 : (from[d] + w.base_dilation - 1) / w.base_dilation);
    const int64_t end = last < 0 ? 0 : std::min(w.in, last / w.base_dilation + 1);
    count.push_back(std::max<int64_t>(end - first[d], 0));
  }
  Dims index(windows.size(), 0);
  ForEachIndex(count, [&](int64_t, const Dims& step) {
    for (size_t d = 0; d < windows.size(); ++d) {
      index[d] = first[d] + step[d];
      if ((index[d] * windows[d].base_dilation - from[d]) % windows[d].dilation != 0) return;
    }
    f(index);
  });
}

}  // namespace weft::ops
