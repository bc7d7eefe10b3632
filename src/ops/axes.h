// Axes as NumPy counts them: 0 and -1 of a scalar, which has none, are those of a row of one element.
#pragma once

#include "src/ops/build.h"

namespace weft::ops {

// NormalizeAxis, and for rank 0 the axis 0 of such a row.
absl::StatusOr<int64_t> AxisOfRow(std::string_view attribute, int64_t axis, size_t rank);
// Returns the dimensions that a reduction along the axis removes: the axis, or none for a scalar.
absl::StatusOr<ir::Ints> AlongAxis(std::string_view attribute, int64_t axis, size_t rank);

// A scalar as [1], anything else as it is: where NumPy's result has the axis.
inline Dims RowDims(const Dims& dims) { return dims.empty() ? Dims{1} : dims; }
inline ir::Value AsRow(ir::Builder& b, const ir::Value& x) { return x ? Reshape(b, x, RowDims(x.dims())) : x; }

}  // namespace weft::ops
