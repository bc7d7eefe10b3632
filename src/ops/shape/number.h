// Numbers that a caller gives for elements of a type.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

// Floats and complex numbers round whatever there is; integers and bools hold the whole numbers of their range. `name` is what
// the caller calls it.
absl::Status CheckNumber(std::string_view name, double value, DType dtype);
// An imaginary part that is not 0 needs a complex type.
absl::Status CheckImaginary(std::string_view name, double imaginary, DType dtype);

}  // namespace weft::ops
