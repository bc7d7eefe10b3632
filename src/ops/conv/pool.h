// What max_pool and avg_pool share: windows over the spatial dimensions of channels-last data.
#pragma once

#include "src/ops/conv/window.h"

namespace weft::ops {

inline constexpr ir::OperandDef kPoolOperands[] = {{"x", ir::kF, "[batch, spatial…, features], NHWC for images"}};
inline constexpr ir::AttrDef kPoolAttrs[] = {
    {"window", ir::AttrType::kInts, "size of the window in each spatial dimension", true},
    {"strides", ir::AttrType::kInts, "step of the window; absent: its size"},
    {"padding", ir::AttrType::kEnum, "valid: none; same: ceil(in / stride) outputs; explicit: see pads", false, "valid",
     kPaddingNames},
    {"pads", ir::AttrType::kInts, "padding before and after each spatial dimension: [low0, high0, low1, …]"},
};

// The attributes of reduce_window.
absl::StatusOr<ir::Attrs> PoolAttrs(const ir::OpDef& op, const ir::Attrs& attrs, const Dims& x, Reducer reducer);
absl::Status InferPool(const ir::InferCall& call, ir::Types* results);

}  // namespace weft::ops
