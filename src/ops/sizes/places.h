// Operations whose results have as many elements as the data say share these. Here the caller gives the size and a
// count comes beside the result, so that shapes are known when a program is recorded. Their exact forms are
// src/c_api/sizes.cc.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

// unique_static and unique_consecutive_static have it.
inline constexpr ir::AttrDef kSlicesAttr = {"axis", ir::AttrType::kInt,
                                            "the slices along this axis are compared, each as a whole; negative counts "
                                            "from the end; absent: elements"};
inline constexpr ir::AttrDef kSizeAttr = {"size", ir::AttrType::kInt,
                                          "how many there is room for; what does not fit is left out", true};
// The name of what `size` counts comes into the text.
absl::Status CheckSize(const ir::Attrs& attrs, size_t size_attr);
// That places in x can be counted in i32.
absl::Status CheckPlaces(std::string_view name, const ir::Type& x);

// The first `size` elements of x [n] that are not zero; NaN is not.
struct Places {
  ir::Value at;     // i32[size]: where they stand; a place of x, whichever, where there is none
  ir::Value there;  // bool[size]: whether there is one
  ir::Value count;  // i32[]: all of them, also those without room
};
Places FirstTrue(ir::Builder& b, const ir::Value& x, int64_t size);

// Element i of `values` [size, ...] is stored at slots[i] of a result [count, ...] that begins as `fill`; none where the slot is
// outside. Of several for one slot one stays, or they add up.
ir::Value PutAt(ir::Builder& b, const ir::Value& slots, const ir::Value& values, int64_t count, double fill,
                bool add = false);

// unique_static and unique_consecutive_static tell elements apart, read as a row, or slices along an axis.
struct Uniques {
  bool slices = false;
  int64_t axis = 0;
  Dims shape;    // x's, or the row's
  Dims inverse;  // the shape of the places: x's, or as many as slices
  Dims Values(int64_t size) const;
  // The values where the axis has no elements: made of x, so that they have a gradient.
  ir::Value Nothing(ir::Builder& b, const ir::Value& x, int64_t size, double fill) const;
};
absl::StatusOr<Uniques> UniquesOf(const ir::Attrs& attrs, size_t axis_attr, const Dims& dims);
// The slices of x along an axis as rows [size, elements of one], without a gradient.
ir::Value SliceRows(ir::Builder& b, const ir::Value& x, int64_t axis);
// Tells for each row of x [n] or [n, m], n > 0, by element whether it differs from the one before it; the first does.
ir::Value Begins(ir::Builder& b, const ir::Value& x, bool equal_nan);
// i32[n]: how many different rows of x [n, m], n > 0, come before each one in lexicographic order.
ir::Value RowRanks(ir::Builder& b, const ir::Value& x, bool equal_nan);

// x where `there` [size], which runs along one axis of x, is true; else the number.
ir::Value WhereThere(ir::Builder& b, const ir::Value& there, const ir::Value& x, int64_t axis, double fill);

}  // namespace weft::ops
