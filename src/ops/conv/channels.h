// Data whose features stand second, [batch, features, spatial…], for operations that are written for features last. Transposes bring them
// there and back; the pass move_channels takes out what meets.
#pragma once

#include "src/ops/build.h"

namespace weft::ops {

inline constexpr ir::AttrDef kChannelsFirstAttr = {"channels_first", ir::AttrType::kBool,
                                                   "x and the result are [batch, features, spatial…], NCHW for images",
                                                   false, "false"};
inline constexpr ir::AttrDef kKernelFirstAttr = {
    "channels_first", ir::AttrType::kBool,
    "x and the result are [batch, features, spatial…], and w is PyTorch's: [output features, features / groups, window…], of "
    "conv_transpose [features, output features / groups, window…]",
    false, "false"};

// How a kernel becomes [window…, features / groups, output features].
enum class Kernel : uint8_t { kNone, kForward, kTransposed };

using InferRule = absl::Status (*)(const ir::InferCall&, ir::Types*);
using ExpandRule = absl::Status (*)(const ir::ExpandCall&, std::span<ir::Value>);

// The rules of an operation whose attribute `flag` says that features stand second, from those for features last. `groups` is the
// position of that attribute, if there is a kernel.
absl::Status InferFirst(const ir::InferCall& call, ir::Types* results, size_t flag, InferRule rule,
                        Kernel kernel = Kernel::kNone, size_t groups = 0);
absl::Status ExpandFirst(const ir::ExpandCall& call, std::span<ir::Value> results, size_t flag, ExpandRule rule,
                         Kernel kernel = Kernel::kNone, size_t groups = 0);

}  // namespace weft::ops
