// See axes.h.
#include "src/ops/axes.h"

namespace weft::ops {

absl::StatusOr<int64_t> AxisOfRow(std::string_view attribute, int64_t axis, size_t rank) {
  if (rank > 0) return NormalizeAxis(attribute, axis, rank);
  if (axis == 0 || axis == -1) return 0;
  return UserError(attribute, " is ", axis, "; of a tensor of rank 0 it can be 0 or -1, as of one element in a row");
}

absl::StatusOr<ir::Ints> AlongAxis(std::string_view attribute, int64_t axis, size_t rank) {
  WEFT_ASSIGN_OR_RETURN(const int64_t along, AxisOfRow(attribute, axis, rank));
  return rank > 0 ? ir::Ints{along} : ir::Ints();
}

}  // namespace weft::ops
