// Checks and defaults of window attributes.
#include "src/ops/conv/window.h"

#include <algorithm>

#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"

namespace weft::ops {

absl::Status CheckWindow(const Window& window, size_t dimension) {
  constexpr int64_t kMost = int64_t{1} << 40;  // products of two still fit
  auto check = [&](std::string_view what, int64_t value, int64_t least) {
    if (value >= least && value <= kMost) return absl::OkStatus();
    return UserError("window dimension ", dimension, ": ", what, " is ", value, "; it must be at least ", least,
                     value > kMost ? " and below 2^40" : "");
  };
  WEFT_RETURN_IF_ERROR(check("size", window.size, 1));
  WEFT_RETURN_IF_ERROR(check("stride", window.stride, 1));
  WEFT_RETURN_IF_ERROR(check("operand dilation", window.base_dilation, 1));
  WEFT_RETURN_IF_ERROR(check("window dilation", window.dilation, 1));
  WEFT_RETURN_IF_ERROR(check("low padding", window.low, -kMost));
  WEFT_RETURN_IF_ERROR(check("high padding", window.high, -kMost));
  int64_t product;
  if (__builtin_mul_overflow(window.in, window.base_dilation, &product) || product > int64_t{1} << 60 ||
      __builtin_mul_overflow(window.size, window.dilation, &product) || product > int64_t{1} << 60) {
    return UserError("window dimension ", dimension, " is too large");
  }
  return absl::OkStatus();
}

absl::StatusOr<ir::Ints> PerDimension(const ir::OpDef& op, const ir::Attrs& attrs, size_t i, size_t dimensions,
                                      int64_t otherwise, size_t per) {
  if (!attrs.has(i)) return ir::Ints(dimensions * per, otherwise);
  const ir::Ints& values = attrs.IntList(i);
  if (values.size() != dimensions * per) {
    return UserError(op.attrs[i].name, " ", DimsToString(values), " has ", values.size(), " entries; ",
                     dimensions * per, " are needed, ", per == 1 ? "one" : "low and high", " for each of ", dimensions,
                     " dimensions");
  }
  return values;
}

absl::StatusOr<std::vector<Window>> WindowsOf(const ir::OpDef& op, const ir::Attrs& attrs, const Dims& dims,
                                              const WindowAttrs& at) {
  const size_t n = dims.size();
  ir::Ints base(n, 1), dilation(n, 1);
  WEFT_ASSIGN_OR_RETURN(const ir::Ints sizes, PerDimension(op, attrs, at.sizes, n, 1));
  WEFT_ASSIGN_OR_RETURN(const ir::Ints strides, PerDimension(op, attrs, at.strides, n, 1));
  if (at.base && at.dilation) {
    WEFT_ASSIGN_OR_RETURN(base, PerDimension(op, attrs, *at.base, n, 1));
    WEFT_ASSIGN_OR_RETURN(dilation, PerDimension(op, attrs, *at.dilation, n, 1));
  }
  WEFT_ASSIGN_OR_RETURN(const ir::Ints padding, PerDimension(op, attrs, at.padding, n, 0, 2));
  std::vector<Window> windows;
  for (size_t d = 0; d < n; ++d) {
    windows.push_back({dims[d], sizes[d], strides[d], padding[2 * d], padding[2 * d + 1], base[d], dilation[d]});
    WEFT_RETURN_IF_ERROR(CheckWindow(windows.back(), d));
  }
  return windows;
}

ir::Attrs WithExamples(ir::Attrs attrs, const WindowAttrs& at) {
  attrs = Longer(std::move(attrs), {{at.sizes, 1}, {at.strides, 1}, {at.padding, 0}, {at.padding, 0}});
  if (at.base) attrs = Longer(std::move(attrs), {{*at.base, 1}});
  if (at.dilation) attrs = Longer(std::move(attrs), {{*at.dilation, 1}});
  return attrs;
}

std::vector<std::pair<std::string, std::string>> ShloWindows(std::span<const Window> windows) {
  ir::Ints sizes, strides, base, dilation, low, high;
  for (const Window& w : windows) {
    sizes.push_back(w.size);
    strides.push_back(w.stride);
    base.push_back(w.base_dilation);
    dilation.push_back(w.dilation);
    low.push_back(w.low);
    high.push_back(w.high);
  }
  return {{"window_dimensions", ir::ShloArray(sizes)},
          {"window_strides", ir::ShloArray(strides)},
          {"base_dilations", ir::ShloArray(base)},
          {"window_dilations", ir::ShloArray(dilation)},
          {"padding", ir::ShloPairs(low, high)}};
}

absl::StatusOr<ir::Ints> ResolvePadding(const ir::OpDef& op, const ir::Attrs& attrs, size_t mode, size_t pads,
                                        std::span<const Window> windows) {
  const auto padding = static_cast<Padding>(attrs.Int(mode));
  if (padding == Padding::kExplicit && !attrs.has(pads)) {
    return UserError("padding is explicit and ", op.attrs[pads].name, " is not given");
  }
  if (padding != Padding::kExplicit && attrs.has(pads)) {
    return UserError(op.attrs[pads].name, " is given and padding is ", kPaddingNames[attrs.Int(mode)],
                     "; it goes with padding explicit");
  }
  WEFT_ASSIGN_OR_RETURN(ir::Ints result, PerDimension(op, attrs, pads, windows.size(), 0, 2));
  if (padding != Padding::kSame) {
    for (size_t d = 0; d < windows.size(); ++d) {
      const Window& w = windows[d];
      int64_t room = 0;  // padding past all bounds is the shape rule's business
      if (__builtin_add_overflow(w.in, result[2 * d], &room) ||
          __builtin_add_overflow(room, result[2 * d + 1], &room)) {
        continue;
      }
      if (w.in == 0 || w.dilated_size() <= room) continue;
      return UserError("the window spans ", w.dilated_size(), " elements of spatial dimension ", d, ", which has ",
                       w.in, " and padding ", result[2 * d], " and ", result[2 * d + 1],
                       ": no place is left for it; pad more, or make it smaller");
    }
    return result;
  }
  for (size_t d = 0; d < windows.size(); ++d) {
    const Window& w = windows[d];
    const int64_t out = (w.in + w.stride - 1) / w.stride;
    const int64_t total = std::max<int64_t>(0, (out - 1) * w.stride + w.dilated_size() - w.in);
    result[2 * d] = total / 2;
    result[2 * d + 1] = total - total / 2;
  }
  return result;
}

}  // namespace weft::ops
