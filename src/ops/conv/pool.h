// max_pool, avg_pool and their kin share these: windows over the spatial dimensions of channels-last data.
#pragma once

#include "absl/functional/function_ref.h"
#include "src/ops/conv/channels.h"
#include "src/ops/conv/window.h"

namespace weft::ops {

inline constexpr ir::OperandDef kPoolOperands[] = {{"x", ir::kF, "[batch, spatial…, features], NHWC for images"}};
inline constexpr ir::OperandDef kMaxPoolOperands[] = {
    {"x", ir::kNumber, "[batch, spatial…, features], NHWC for images"}};
inline constexpr ir::AttrDef kPoolAttrs[] = {
    {"window", ir::AttrType::kInts, "size of the window in each spatial dimension", true},
    {"strides", ir::AttrType::kInts, "step of the window; absent: its size"},
    {"padding", ir::AttrType::kEnum, "valid: none; same: ceil(in / stride) outputs; explicit: see pads", false, "valid",
     kPaddingNames},
    {"pads", ir::AttrType::kInts, "padding before and after each spatial dimension: [low0, high0, low1, …]"},
};
inline constexpr ir::AttrDef kCeilAttr = {"ceil_mode", ir::AttrType::kBool,
                                          "with windows that begin inside and end behind the padding", false, "false"};
inline constexpr ir::AttrDef kMaxPoolAttrs[] = {
    kPoolAttrs[0],     kPoolAttrs[1], kPoolAttrs[2],
    kPoolAttrs[3],     kCeilAttr,     {"dilation", ir::AttrType::kInts, "spacing of the window's elements; absent: 1"},
    kChannelsFirstAttr};

// The windows over the spatial dimensions, padding and all. Attributes are those of kMaxPoolAttrs, or the first of them.
absl::StatusOr<std::vector<Window>> PoolWindows(const ir::OpDef& op, const ir::Attrs& attrs, const Dims& x);
// The attributes of reduce_window.
ir::Attrs PoolAttrs(std::span<const Window> windows, Reducer reducer);
absl::StatusOr<ir::Attrs> PoolAttrs(const ir::OpDef& op, const ir::Attrs& attrs, const Dims& x, Reducer reducer);
absl::Status InferPool(const ir::InferCall& call, ir::Types* results);

// Checks that the places of spatial dimensions, counted as one row, are i32.
absl::Status CheckPlaces(std::span<const int64_t> spatial);

// Functions that give the elements under the windows of a spatial dimension, x with its axis replaced by [out, window], and where they
// lie along it, in that shape.
using TakeFn = absl::FunctionRef<ir::Value(const ir::Value& x, size_t dimension)>;
using PlaceFn = absl::FunctionRef<ir::Value(const Dims& dims, size_t dimension)>;
// The largest elements and where each is, counted over the spatial dimensions as one row.
absl::Status LargestOf(ir::Builder& b, const ir::Value& x, size_t spatial, TakeFn take, PlaceFn places,
                       ir::Value* values, ir::Value* indices);
// The same of windows that are known.
absl::Status LargestUnder(ir::Builder& b, const ir::Value& x, std::span<const Window> windows, ir::Value* values,
                          ir::Value* indices);

}  // namespace weft::ops
